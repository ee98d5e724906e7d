"""Read shards as in the guide of DALI's dynamic mode: all ranks get equally many batches."""

from __future__ import annotations

import numpy as np
from data import arguments, folder

import ndd


def main() -> None:
    parser = arguments(__doc__, per_class=5, size=48)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    chosen = parser.parse_args()
    root = str(folder(chosen))
    for rank in range(chosen.world):  # in a real job, each rank is a process
        reader = ndd.readers.File(
            file_root=root,
            shard_id=rank,
            num_shards=chosen.world,
            stick_to_shard=True,
            pad_last_batch=True,
        )
        seen = []
        for jpegs, labels in reader.next_epoch(batch_size=chosen.batch_size):
            x = ndd.resize(ndd.decoders.image(jpegs, device=chosen.device), size=[32, 32])
            assert x.torch().shape == (chosen.batch_size, 32, 32, 3)
            seen += [int(np.asarray(label)[0]) for label in labels.tensors]
        print(f"rank {rank}: labels {seen}")


if __name__ == "__main__":
    main()
