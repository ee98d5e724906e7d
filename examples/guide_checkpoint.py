"""Save and resume a reader and a generator in one file, as in the guide of DALI's dynamic mode."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from data import arguments, folder

import ndd


def batches(reader, rng, device, count=None):
    """Labels and angles of up to `count` batches of the current epoch."""
    found = []
    for jpegs, labels in reader.next_epoch(batch_size=4):
        angles = ndd.random.uniform(batch_size=4, range=(-10, 10), rng=rng)
        x = ndd.rotate(ndd.decoders.image(jpegs, device=device), angle=angles, size=[32, 32])
        assert x.torch().shape == (4, 32, 32, 3)
        values = zip(labels.tensors, angles.tensors)
        found.append([(int(np.asarray(l)[0]), round(float(np.asarray(a)), 5)) for l, a in values])
        if len(found) == count:
            break
    return found


def main() -> None:
    chosen = arguments(__doc__, per_class=8, size=40).parse_args()
    root = str(folder(chosen))
    pattern = str(Path(tempfile.mkdtemp()) / "run_{seq:04d}.json")

    def start():
        options = dict(random_shuffle=True, seed=3, enable_checkpointing=True)
        return ndd.readers.File(file_root=root, **options), ndd.random.RNG(seed=1)

    reader, geometry = start()
    whole = batches(reader, geometry, chosen.device)

    reader, geometry = start()
    ckpt = ndd.checkpoint.Checkpoint()
    ckpt.register(reader, "train")
    ckpt.register(geometry, "geometry")
    first = batches(reader, geometry, chosen.device, count=2)
    ckpt.collect()
    ckpt.save(pattern)
    print(f"saved after {len(first)} of {len(whole)} batches")

    reader, geometry = start()
    ckpt = ndd.checkpoint.Checkpoint()
    ckpt.load(pattern)
    ckpt.register(reader, "train")  # this restores its state
    ckpt.register(geometry, "geometry")
    rest = batches(reader, geometry, chosen.device)
    left = whole[len(first) :]
    assert rest[: len(left)] == left  # upstream continues with the next epoch
    print(f"resumed: {len(rest)} batches, first the {len(left)} that were left")


if __name__ == "__main__":
    main()
