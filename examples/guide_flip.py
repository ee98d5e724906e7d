"""Use flipped pictures together with the originals, as in the guide of DALI's dynamic mode."""

from __future__ import annotations

import numpy as np
from data import arguments, folder

import ndd


def model(images) -> bool:
    """Whether the first of two batches is the mirror of the second."""
    flipped, original = images
    pairs = zip(flipped.tensors, original.tensors)
    return all(np.array_equal(np.asarray(f.cpu())[:, ::-1], o.cpu()) for f, o in pairs)


def main() -> None:
    chosen = arguments(__doc__, per_class=6).parse_args()
    count = 0
    for jpegs, _ in ndd.readers.File(file_root=str(folder(chosen))).next_epoch(batch_size=6):
        img = ndd.decoders.image(jpegs, device=chosen.device)
        flipped = ndd.flip(img, horizontal=True, vertical=False)
        assert model((flipped, img))
        count += img.batch_size
    print(f"{count} pictures are the mirrors of their mirrors")


if __name__ == "__main__":
    main()
