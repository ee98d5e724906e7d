"""An epoch under way: its batches, read ahead by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..fusion.graph import Array
from .order import EpochPlan
from .read_ahead import ReadAhead

if TYPE_CHECKING:
    from .base import Reader

# Single samples are read ahead in runs of this many: handing over an item between threads takes
# about as long as reading a small file.
SAMPLES_PER_RUN = 16

Sample = tuple[Array, ...]


class Samples(Protocol):
    """The samples of a data set. Its methods are called by several threads at once."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The sample's `source_info`."""
        ...

    def read(self, index: int) -> Sample:
        """One array for each output, in memory that nobody else will write."""
        ...

    def fill(self, index: int, data: Any = None) -> Sample:
        """What stands for a sample that cannot be read; `data`: what the user gives instead."""
        ...

    def fingerprint(self) -> str:
        """Short text that is another one for other samples."""
        ...


@dataclass(frozen=True, slots=True)
class Bad:
    """Stands for a sample that could not be read."""

    index: int
    cause: Exception


Content = tuple[list[int], list[Sample | Bad]]  # indices and samples of a batch


def read_sample(samples: Samples, index: int) -> Sample | Bad:
    """A sample, or why there is none."""
    try:
        return samples.read(index)
    except Exception as error:
        return Bad(index, error)


def read_batches(plan: EpochPlan, samples: Samples, step: int, item: int) -> list[Content]:
    """Batches `item * step` and following; no more than `step` of them."""
    contents: list[Content] = []
    for number in range(item * step, min((item + 1) * step, plan.count)):
        indices = plan.indices(number)
        # padding and wrapping repeat samples: one is read once
        found = {i: read_sample(samples, i) for i in dict.fromkeys(indices)}
        contents.append((indices, [found[i] for i in indices]))
    return contents


class Run:
    """The threads and the progress of one epoch. It knows no reader: a dropped reader ends it."""

    def __init__(
        self, plan: EpochPlan, samples: Samples, batch_size: int | None, depth: int
    ) -> None:
        self.plan, self.batch_size = plan, batch_size
        self.given = 0  # items handed out
        self._step = SAMPLES_PER_RUN if batch_size is None else 1
        self._ready: deque[Content] = deque()
        items = -(-plan.count // self._step)
        self._ahead = ReadAhead(partial(read_batches, plan, samples, self._step), items, depth)

    def next(self) -> Content:
        """The next batch; the same again until `advance` is called."""
        if not self._ready:
            self._ready.extend(self._ahead.take(self.given // self._step))
        return self._ready[0]

    def advance(self) -> None:
        """The batch has been handed out."""
        self._ready.popleft()
        self.given += 1

    def stop(self) -> None:
        """End the threads."""
        self._ahead.stop()
        self._ready.clear()


class Epoch(Iterator[tuple[Any, ...]]):
    """One epoch of a reader: an iterator that has a length."""

    def __init__(self, reader: Reader, batch_size: int | None) -> None:
        self._reader = reader
        self._batch_size = batch_size
        self._run: Run | None = None  # from the first item on
        self._is_over = False

    def __len__(self) -> int:
        """Number of items in all; after resuming from a checkpoint, of those that were left."""
        plan = self._run.plan if self._run is not None else self._reader._plan(self._batch_size)
        return plan.count

    def __next__(self) -> tuple[Any, ...]:
        if self._is_over:
            raise StopIteration
        if self._run is None:
            self._run = self._reader._begin(self._batch_size)
        elif self._run is not self._reader._run:
            raise RuntimeError(
                f"{self._reader._where}: this epoch has ended because another one was begun; "
                f"use one iterator at a time, or a reader for each"
            )
        try:
            return self._reader._give(self._run)
        except StopIteration:
            self._is_over = True
            raise

    def __del__(self) -> None:
        # left by `break`: the reader may live on, but nobody will ask for what was read ahead
        if self.__dict__.get("_run") is not None:
            self._run.stop()  # type: ignore[union-attr]
