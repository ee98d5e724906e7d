"""A running epoch: a plan and samples enter; batches, read ahead by threads, leave."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..kernels.common import forks, trace
from ..loop.loop import Loop
from ..tools.progress import Bar, bar
from .order import EpochPlan
from .read_ahead import ReadAhead

if TYPE_CHECKING:
    from .reader import Reader

# Single samples are read ahead in runs of this many, because handing an item from one thread to
# another takes about as long as reading a small file.
SAMPLES_PER_RUN = 16
# Batches of small records are read together, up to this many bytes and batches: reading a batch of
# 64 records of 1 KB takes 160 to 220 µs, of which 10 are spent on its bytes.
RUN_BYTES = 1 << 20
MAX_BATCHES_PER_RUN = 16
# Records that stay in mapped files take no memory.
RUN_BYTES_IN_FILES = 32 << 20

Sample = tuple[Array, ...]
I = TypeVar("I")  # a tuple or a dictionary of Batch or Tensor


class Samples(Protocol):
    """The samples of a data set. Several threads call its methods at once."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The sample's `source_info`, and its name in errors.

        If there is a method `output_name(index, output)`, that gives the `source_info`.
        """
        ...

    def read(self, index: int) -> Sample:
        """One array per output, in memory that nobody else writes to."""
        ...

    def fill(self, index: int, data: Any = None) -> Sample:
        """The replacement for a sample that cannot be read; `data` is the user's, if given."""
        ...

    def fingerprint(self) -> str:
        """Short text that differs between different sets of samples."""
        ...


@dataclass(frozen=True, slots=True)
class Bad:
    """Stands for a sample that could not be read."""

    index: int
    cause: Exception


class Table(Sequence["Sample | Bad"]):
    """The samples of a batch, all readable and side by side in memory.

    The reader makes its outputs from them without a loop over samples (64 files: 0.2 ms, not 0.4).
    """

    @abstractmethod
    def nodes(self) -> list[Node]:
        """The batch of each output."""

    def cut(self, ends: Sequence[int]) -> list[Sequence[Sample | Bad]]:
        """The samples before each end and behind the one before, as tables if that is possible."""
        return _cut([self[k] for k in range(len(self))], ends)


# Indices and samples of a batch. The samples are a list if some are bad and may be replaced.
Content = tuple[list[int], Any]


def read_sample(samples: Samples, index: int) -> Sample | Bad:
    """Read a sample; return `Bad` with the cause if that fails."""
    try:
        return samples.read(index)
    except Exception as error:
        return Bad(index, error)


def batches_per_run(samples: Samples, batch_size: int | None) -> int:
    """How many items of an epoch are read at a time."""
    if batch_size is None:
        return SAMPLES_PER_RUN
    nbytes = getattr(samples, "mean_bytes", None)  # of a sample, if that is known
    if nbytes is None:
        return 1
    most = RUN_BYTES_IN_FILES if getattr(samples, "stays_in_files", False) else RUN_BYTES
    fitting = most // max(1, int(nbytes * batch_size))
    return max(1, min(MAX_BATCHES_PER_RUN, fitting))


def read_batches(plan: EpochPlan, samples: Samples, step: int, item: int) -> list[Content]:
    """Read up to `step` batches, from number `item * step` on."""
    first = item * step
    parts = plan.indices(range(first, min(first + step, plan.count)))
    if not trace.active:
        return _read_parts(samples, parts)
    about = {"number": first, "batches": len(parts)}
    stage = trace.begin("read", "batch", samples=sum(map(len, parts)), about=about)
    contents: list[Content] = trace.during(stage, _read_parts, samples, parts)
    return contents


def _read_parts(samples: Samples, parts: list[list[int]]) -> list[Content]:
    """Read several batches, together if no sample comes twice."""
    read_many = getattr(samples, "read_many", None)
    whole = [*chain.from_iterable(parts)]
    if len(parts) == 1 or read_many is None or len(set(whole)) != len(whole):
        return [read_batch(samples, part) for part in parts]
    made = read_many(whole)
    ends = [*accumulate(map(len, parts))]
    cut = made.cut(ends) if isinstance(made, Table) else _cut(made, ends)
    return [*zip(parts, cut, strict=True)]


def _cut(samples: Sequence[Sample | Bad], ends: Sequence[int]) -> list[Sequence[Sample | Bad]]:
    return [samples[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]


def read_batch(samples: Samples, indices: list[int]) -> Content:
    """Read the samples of a batch; those that padding or wrapping repeats are read once."""
    once = list(dict.fromkeys(indices))
    read_many = getattr(samples, "read_many", None)
    made = read_many(once) if read_many else [read_sample(samples, i) for i in once]
    if len(once) == len(indices):
        return indices, made
    found = dict(zip(once, made, strict=True))
    return indices, [found[i] for i in indices]


class Sources(Sequence[str]):
    """Names of the samples of a batch, each made on demand."""

    def __init__(self, samples: Samples, indices: list[int], output: int = 0) -> None:
        self._samples, self._indices, self._output = samples, indices, output

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, k: int) -> str: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[str]: ...
    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return Sources(self._samples, self._indices[k], self._output)
        by_output = getattr(self._samples, "output_name", None)
        if by_output is not None:
            return by_output(self._indices[k], self._output)
        return self._samples.name(self._indices[k])


class EpochRun:
    """The threads and the progress of one epoch.

    It holds no reference to the reader, so dropping the reader ends the epoch.
    """

    def __init__(
        self, plan: EpochPlan, samples: Samples, batch_size: int | None, depth: int
    ) -> None:
        self.plan, self.batch_size = plan, batch_size
        self.given = 0  # items handed out
        self._step = batches_per_run(samples, batch_size)
        self._ready: dict[int, Content] = {}
        self._fetched = 0  # items that are in `_ready`, or were
        # Threads that work ahead may peek at batches that the caller has not asked for yet.
        self._fetching = forks.lock()
        items = -(-plan.count // self._step)
        self._ahead = ReadAhead(partial(read_batches, plan, samples, self._step), items, depth)

    def peek(self, number: int) -> Content:
        """A batch that has not been handed out yet."""
        with self._fetching:
            while number >= self._fetched:
                first = self._fetched
                contents = self._ahead.take(first // self._step)
                self._ready.update(enumerate(contents, first))
                self._fetched = first + len(contents)
            return self._ready[number]

    def forget(self) -> None:
        """Drop the batches that have been handed out."""
        for number in [*self._ready]:
            if number < self.given:
                self._ready.pop(number, None)

    def stop(self) -> None:
        """End the threads."""
        self._ahead.stop()
        self._ready.clear()


class Epoch(Iterator[I]):
    """One epoch of a reader: an iterator with a length.

    Threads may share it: each item goes to one of them.
    """

    def __init__(
        self, reader: Reader, batch_size: int | None, prefetch: int = 0, progress: bool = False
    ) -> None:
        self._reader = reader
        self._batch_size = batch_size
        self._prefetch = prefetch
        self._progress = progress
        self._bar: Bar | None = None
        self._run: EpochRun | None = None  # set when the first item is asked for
        self._loop: Loop | None = None  # likewise
        self._is_over = False
        self._thread = 0  # the first thread that asked for an item
        # Items that a thread was given but has not received, because an interrupt came.
        self._unreceived: dict[int, I | None] = {}

    def __len__(self) -> int:
        """Number of items; after resuming from a checkpoint, only those that were left."""
        plan = self._run.plan if self._run is not None else self._reader._plan(self._batch_size)
        return plan.count

    def __next__(self) -> I:
        thread = get_ident()
        item = self._unreceived.get(thread)
        if item is None:
            with self._reader._giving:
                item = self._next(thread)
        # From here on nothing can be interrupted until the caller has the item.
        self._unreceived[thread] = None
        return item

    def _next(self, thread: int) -> I:
        """Give the next item to a thread, which receives it later if an interrupt comes now."""
        if self._is_over:
            raise StopIteration
        run = self._begun(thread)
        number = run.given
        try:
            outputs = self._loop.next(number, partial(self._reader._give, run))  # type: ignore[union-attr]
        except StopIteration:
            self._is_over = True
            self._close()
            raise
        item: I = self._reader._item(outputs)
        position = run.plan.after(number + 1)
        # These three happen together: nothing can be interrupted between assignments.
        self._unreceived[thread] = item
        run.given, self._reader._position = number + 1, position
        run.forget()
        return item

    def _begun(self, thread: int) -> EpochRun:
        """The running epoch, which this thread may share with others."""
        if self._run is None or self._loop is None:
            run = self._reader._begin(self._batch_size)
            self._loop, self._run = self._followed(run), run
            self._thread = thread
            if self._progress:
                self._bar = bar(len(self), self._reader.name or self._reader._where)
        elif self._run is not self._reader._run:
            raise RuntimeError(
                f"{self._reader._where}: this epoch has ended because another one was begun; "
                f"use one iterator at a time, or a reader for each"
            )
        elif self._bar is not None:
            self._bar.update()  # the caller is done with the previous item
        if thread != self._thread:
            self._loop.share()
        return self._run

    def _followed(self, run: EpochRun) -> Loop:
        """The loop over this epoch, expected to make the same calls as in the epoch before."""
        size, known = self._reader._known_loop
        prepare = partial(_prepared, weakref.ref(self._reader), run)
        known = known if size == self._batch_size else None
        return Loop(prepare, run.plan.count, self._prefetch, known)

    def _close(self) -> None:
        if self._loop is not None:
            self._reader._known_loop = self._batch_size, self._loop.close()
        if self._bar is not None:
            self._bar.close()

    def __del__(self) -> None:
        # After a `break` the reader may live on, but nobody needs the batches read ahead.
        if self.__dict__.get("_run") is not None and not self._is_over:
            self._run.stop()  # type: ignore[union-attr]
            self._close()


def _prepared(reader: weakref.ref[Reader], run: EpochRun, number: int) -> tuple[Any, ...] | None:
    """The reader's outputs for item `number`; None if a bad sample leaves that to the reader."""
    owner = reader()
    if owner is None:
        return None
    indices, samples = run.peek(number)
    if not isinstance(samples, Table) and any(isinstance(sample, Bad) for sample in samples):
        return None  # the reader applies its error policy when the caller gets to this item
    return owner._outputs(indices, samples, run.batch_size is not None)
