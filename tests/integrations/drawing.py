"""Data sets of random numbers, for workers that import them by name."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import ndd


def drawn(rng: ndd.random.RNG | None = None) -> int:
    """A random number in which equal ones tell of repeated streams."""
    return (rng or ndd.random.get_default_rng())()


class Draws(Dataset[torch.Tensor]):
    """Items are (index, worker, number of the default generator, number of an explicit one)."""

    def __init__(self, count: int = 8) -> None:
        self.count, self.rng = count, ndd.random.RNG(seed=5)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        return torch.tensor([index, info.id if info else -1, drawn(), drawn(self.rng)])


class StreamOfDraws(IterableDataset[torch.Tensor]):
    """The same as a stream, of which each worker has its part."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        for index in range(info.id, 8, info.num_workers):
            yield torch.tensor([index, info.id, drawn(), 0])


class StreamOfBatches(IterableDataset[ndd.Batch]):
    """Batches of our own, which travel from worker to loader by pickle."""

    def __iter__(self) -> Any:
        for k in range(2):
            yield ndd.batch([[k, k + 1.0], [k + 2.0]], dtype=ndd.float32) * 2


def seed_each_worker(worker: int) -> None:
    """A `worker_init_fn` that seeds all workers alike."""
    ndd.random.set_seed(42)


def epochs(method: str, count: int, data: Any = None, **options: Any) -> torch.Tensor:
    """All items of some epochs with two workers."""
    loader: Any = DataLoader(
        data or Draws(), batch_size=2, num_workers=2, multiprocessing_context=method, **options
    )
    return torch.cat([item for _ in range(count) for item in loader])
