"""Two recipes for torch's DataLoader: a `Dataset` of files, an `IterableDataset` of shards.

You rarely need worker processes with ndd, which uses threads. They help if your own Python code is
the bottleneck. Workers never draw each other's numbers, and `set_seed` makes runs repeatable.
"""

from __future__ import annotations

from pathlib import Path

import torch
from data import arguments, folder
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import ndd


def view(files) -> torch.Tensor:
    """Random views of some files."""
    x = ndd.random_resized_crop(ndd.decoders.image(files), size=[32, 32])
    x = ndd.flip(x, horizontal=ndd.random.coin_flip(batch_size=x.batch_size))
    return ndd.crop_mirror_normalize(x, mean=[124, 116, 104], std=[58, 57, 57]).torch()


class Files(Dataset):
    """A list of files. A batch of indices arrives at once, so that it is one call of each op."""

    def __init__(self, root: str) -> None:
        self.paths = sorted(Path(root).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return view([self.paths[i].read_bytes() for i in indices])


class Shards(IterableDataset):
    """A reader: each worker reads its own shard, in batches."""

    def __init__(self, root: str, batch_size: int) -> None:
        self.root, self.batch_size = root, batch_size

    def __iter__(self):
        info = get_worker_info()
        worker, count = (info.id, info.num_workers) if info else (0, 1)
        reader = ndd.readers.File(
            file_root=self.root, random_shuffle=True, shard_id=worker, num_shards=count,
            last_batch="partial",
        )  # fmt: skip
        for jpegs, _ in reader.next_epoch(batch_size=self.batch_size):
            yield view(jpegs)


def main() -> None:
    parser = arguments(__doc__, per_class=8, size=48)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start", choices=["fork", "spawn", "forkserver"], default="fork")
    chosen = parser.parse_args()
    root = str(folder(chosen))
    pin = torch.cuda.is_available()  # pinned memory makes copies to a GPU asynchronous
    common = dict(num_workers=chosen.workers, multiprocessing_context=chosen.start, pin_memory=pin)

    def sums() -> tuple[float, float]:
        ndd.random.set_seed(42)
        by_index = DataLoader(
            Files(root), chosen.batch_size, shuffle=False, collate_fn=lambda x: x, **common
        )
        by_shard = DataLoader(Shards(root, chosen.batch_size), batch_size=None, **common)
        return tuple(
            float(sum(x.double().sum() for x in loader)) for loader in (by_index, by_shard)
        )

    first, second = sums(), sums()
    assert first == second, "a rerun repeats everything"
    print(f"{chosen.workers} workers ({chosen.start}): the same views twice")


if __name__ == "__main__":
    main()
