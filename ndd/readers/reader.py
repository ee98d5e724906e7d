"""The base class of readers: shards, shuffling, epochs, errors and checkpoints.

A reader class lists its samples (`_list`) and reads one (`Samples.read`); this does the rest.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NoReturn, overload

from ..codecs.on_error import Ledger, Policy, SampleError, check_policy
from ..core import convert
from ..core.batch import Batch
from ..core.errors import user_site
from ..core.suggestions import with_options_of
from ..core.tensor import Tensor
from ..fusion.graph.doubts import doubted
from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..kernels.common import forks
from ..loop.calls import Recording
from .epoch import Bad, Epoch, EpochRun, Sample, Samples, Sources, Table, read_sample
from .order import LAST_BATCH, EpochPlan, Order, Position
from .record_samples import common_dtype
from .rest import Division
from .resumable import Resumable
from .stores.remote import RemoteOptions


class Reader(Resumable):
    """Base class of all readers.

    Make it once and use it for many epochs: ``for jpegs, labels in reader.next_epoch(64)``.

    Parameters
    ----------
    max_batch_size : int, optional
        Largest batch size that `next_epoch` will accept.
    name : str, optional
        A name for messages.
    device : "cpu"
        Readers work on the CPU.
    shard_id, num_shards : int
        The part of the data set to read.
    stick_to_shard : bool
        Read the same shard in every epoch; otherwise each epoch reads the next shard.
    pad_last_batch : bool
        The last batch of an epoch repeats the last sample (``last_batch="pad"``).
    last_batch : "wrap" | "pad" | "partial" | "drop", optional
        What to do if the samples of an epoch do not fill its last batch. "wrap" fills it with
        samples of the next epoch, which then begins after them. "pad" repeats the last sample.
        "partial" makes the batch shorter. "drop" leaves it out. All ranks get equally many
        batches; with "partial", a rank may repeat a sample for that. The default is "wrap", as
        upstream (where larger shards may have one batch more).
    random_shuffle : bool
        Shuffle the samples of the shard again in each epoch. Shards are parts of a list that is
        shuffled once.
    initial_fill : int
        Accepted for compatibility; the whole shard is shuffled, not a buffer of this size.
    seed : int
        Seed of shuffling. The default is a fixed seed, so that runs are repeatable.
    shuffle_after_epoch : bool
        Shuffle the whole data set again in each epoch, then make shards; implies `stick_to_shard`.
    shuffle_after_epoch_seed : int, optional
        Seed for `shuffle_after_epoch`; `seed` if omitted.
    prefetch_queue_depth : int
        Number of batches to read ahead, each in its own thread.
    lazy_init : bool
        List the samples on first use, not at once.
    on_error : "raise" | "skip" | "fill" or function
        What to do about a sample that cannot be read. "skip" replaces it by the next readable
        sample with its labels, "fill" by an empty one, which `batch.valid` tells. A function gets
        a `SampleError(file, index, cause)` and returns the data to use, or None to skip. `errors`
        lists all failures.
    enable_checkpointing : bool
        Accepted for compatibility; `get_state` always works.
    storage_options : dict, optional
        For URLs (``s3://…``, ``https://…``): arguments of fsspec's file system.
    cache_dir : path, optional
        A folder where blocks of remote files are kept. Processes may share it.
    cache_bytes : int
        The limit of `cache_dir`; blocks that were not used for the longest time are removed.
    """

    #: For each output: its element type, and whether samples are packed into one block of memory.
    #: The type is None if the samples tell it. A third entry, if present, is the layout.
    outputs: Sequence[tuple[Any, ...]] = ()
    #: Whether `shuffle_after_epoch` shuffles whole files, each of which is read in its own order.
    _shuffles_files = False

    def __init_subclass__(cls) -> None:
        """Add the arguments of all readers, and suggestions for misspelt ones, to a new class."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            where = f"readers.{cls.__name__}"
            complete = with_options_of(Reader.__init__, cls.__init__, where)
            cls.__init__ = complete  # type: ignore[method-assign]

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        *,
        shard_id: int | None = 0,
        num_shards: int | None = 1,
        stick_to_shard: bool | None = False,
        pad_last_batch: bool | None = False,
        last_batch: Literal["wrap", "pad", "partial", "drop"] | None = None,
        random_shuffle: bool | None = False,
        initial_fill: int | None = 1024,
        seed: int | None = -1,
        shuffle_after_epoch: bool | None = False,
        shuffle_after_epoch_seed: int | None = None,
        prefetch_queue_depth: int | None = 1,
        lazy_init: bool | None = False,
        on_error: Policy = "raise",
        enable_checkpointing: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: Any = None,
        cache_bytes: int = 10 << 30,
    ) -> None:
        self._where = f"readers.{type(self).__name__}"
        self.name = name
        if str(device) != "cpu":
            raise ValueError(
                f"{self._where}: readers work on the CPU, got device={device!r}; decode with "
                f'device="gpu", or move the result with .gpu()'
            )
        self._max_batch_size = self._count(max_batch_size, "max_batch_size", None)
        self._num_shards = self._count(num_shards, "num_shards", 1)
        self._shard_id = 0 if shard_id is None else operator.index(shard_id)
        if not 0 <= self._shard_id < self._num_shards:
            raise ValueError(
                f"{self._where}: `shard_id` must be in 0 … {self._num_shards - 1} "
                f"(num_shards - 1), got {shard_id}"
            )
        self._count(initial_fill, "initial_fill", 1024)
        self._depth = self._count(prefetch_queue_depth, "prefetch_queue_depth", 1)
        self._last = self._last_batch(last_batch, pad_last_batch)
        self._choose_shuffle(random_shuffle, shuffle_after_epoch, stick_to_shard)
        self._stick = bool(stick_to_shard) or bool(shuffle_after_epoch)
        chosen = shuffle_after_epoch_seed if shuffle_after_epoch else None
        chosen = seed if chosen is None else chosen
        self._seed = -1 if chosen is None else operator.index(chosen)
        self._on_error = check_policy(on_error, self._where)
        #: Samples that could not be read: (file, index, cause).
        self.errors = Ledger()
        self._remote = RemoteOptions(
            dict(storage_options or {}),
            None if cache_dir is None else os.fsdecode(cache_dir),
            self._count(cache_bytes, "cache_bytes", 10 << 30),
        )
        self._position = Position()
        self._divisions: list[Division] = []  # of the current epoch, among other numbers of ranks
        self._has_run = False
        self._run: EpochRun | None = None  # the current epoch
        self._giving = forks.lock()  # threads may share an epoch
        self._called: EpochRun | None = None
        # Batch size and recording of the last epoch.
        self._known_loop: tuple[int | None, Recording | None] = None, None
        self._made: tuple[Samples, Order] | None = None
        if not lazy_init:
            self._data()

    # -- arguments ---------------------------------------------------------------------------

    def _count(self, value: Any, name: str, default: Any) -> Any:
        if value is None:
            return default
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(
                f"{self._where}: `{name}` must be an integer, got {type(value).__name__}"
            ) from None
        if number < 1:
            raise ValueError(f"{self._where}: `{name}` must be positive, got {number}")
        return number

    def _last_batch(self, last_batch: str | None, pad: bool | None) -> str:
        if last_batch is None:
            return "pad" if pad else "wrap"
        if last_batch not in LAST_BATCH:
            raise ValueError(
                f"{self._where}: `last_batch` must be one of {', '.join(LAST_BATCH)}, "
                f"got {last_batch!r}"
            )
        if pad and last_batch != "pad":
            raise ValueError(
                f"{self._where}: pad_last_batch=True and last_batch={last_batch!r} exclude "
                f"each other"
            )
        return last_batch

    def _choose_shuffle(
        self, random: bool | None, after_epoch: bool | None, stick: bool | None
    ) -> None:
        clash = random and not self._shuffles_files
        if after_epoch and (clash or stick):
            other = "random_shuffle" if clash else "stick_to_shard"
            raise ValueError(
                f"{self._where}: `shuffle_after_epoch` and `{other}` exclude each other"
            )
        self._shuffle = "pass" if random else "no"
        if after_epoch:
            self._shuffle = "all"
            if self._shuffles_files:
                self._shuffle = "files, then samples" if random else "files"

    # -- samples -----------------------------------------------------------------------------

    def _list(self) -> Samples:
        """Find the samples of the data set."""
        raise NotImplementedError

    def _data(self) -> tuple[Samples, Order]:
        if self._made is None:
            samples = self._list()
            count = len(samples)
            if count == 0:
                raise ValueError(f"{self._where}: no samples were found")
            if count < self._num_shards:
                raise ValueError(
                    f"{self._where}: {count} samples are too few for {self._num_shards} shards"
                )
            files = getattr(samples, "starts", None)
            self._made = samples, self._order(count, self._shard_id, self._num_shards, files)
        return self._made

    def _order(self, count: int, shard_id: int, num_shards: int, files: Array | None) -> Order:
        return Order(count, shard_id, num_shards, self._stick, self._shuffle, self._seed, files)

    def get_metadata(self, batch_size: int | None = None) -> dict[str, int]:
        """Sizes of the data set and of its shards. `batch_size` has no effect."""
        order = self._data()[1]
        padded = order.largest * order.num_shards if self._last == "pad" else order.count
        return {
            "epoch_size": order.count,
            "epoch_size_padded": padded,
            "number_of_shards": self._num_shards,
            "shard_id": self._shard_id,
            "pad_last_batch": int(self._last == "pad"),
            "stick_to_shard": int(self._stick),
        }

    # -- epochs ------------------------------------------------------------------------------

    @overload
    def next_epoch(
        self,
        batch_size: None = None,
        ctx: Any = None,
        capture: bool = False,
        *,
        prefetch: int | None = None,
        progress: bool = False,
    ) -> Epoch[tuple[Tensor, ...]]: ...
    @overload
    def next_epoch(
        self,
        batch_size: int,
        ctx: Any = None,
        capture: bool = False,
        *,
        prefetch: int | None = None,
        progress: bool = False,
    ) -> Epoch[tuple[Batch, ...]]: ...
    def next_epoch(
        self,
        batch_size: int | None = None,
        ctx: Any = None,
        capture: bool = False,
        *,
        prefetch: int | None = None,
        progress: bool = False,
    ) -> Epoch[Any]:
        """An iterator over one epoch: tuples of Batch, or of Tensor if `batch_size` is not given.

        The epoch begins with its first item, which ends an unfinished epoch. `len()` is its number
        of items. `progress` shows a bar (with tqdm, if that is installed).

        While your loop works with a batch, its op calls are already replayed on the next `prefetch`
        batches (default 2, or the variable NDD_PREFETCH; 0 turns this off). Values do not depend on
        this: a call that differs from what the loop did before runs as usual. Upstream needs
        `capture=True` for this; here `capture` and `ctx` have no effect.
        """
        size = self._count(batch_size, "batch_size", None)
        if size is not None and self._max_batch_size is not None and size > self._max_batch_size:
            raise ValueError(
                f"{self._where}: batch_size {size} is larger than max_batch_size "
                f"{self._max_batch_size}, which the reader was made with"
            )
        ahead = int(os.environ.get("NDD_PREFETCH", "2")) if prefetch is None else prefetch
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise ValueError(f"{self._where}: `prefetch` must be 0 or more, got {prefetch!r}")
        return Epoch(self, size, 0 if size is None else ahead, progress)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self._where}: a reader is read epoch by epoch: "
            f"for … in reader.next_epoch(batch_size=64)"
        )

    def __call__(self, *, batch_size: int | None = None) -> Any:
        """The next tuple of Batch or Tensor; epochs follow each other without end."""
        with self._giving:
            while True:
                run = self._called
                if run is None or run is not self._run or run.batch_size != batch_size:
                    run = self._called = self._begin(batch_size)
                try:
                    item = self._give(run)
                except StopIteration:
                    continue
                self._advance(run)
                return self._item(item)

    def _item(self, outputs: tuple[Any, ...]) -> Any:
        """What the caller gets for the outputs of an iteration."""
        return outputs

    def _plan(self, batch_size: int | None) -> EpochPlan:
        """The epoch that would begin now. An abandoned epoch counts as finished, so that all ranks
        stay in step and nothing depends on how far ahead was read."""
        at = self._position if self._run is None else self._run.plan.end()
        return EpochPlan(self._data()[1], self._last, at, batch_size or 1)

    def _begin(self, batch_size: int | None) -> EpochRun:
        plan = self._plan(batch_size)
        if self._run is not None:
            self._run.stop()
        self._has_run = True
        self._position = plan.at
        self._run = EpochRun(plan, self._data()[0], batch_size, self._depth)
        return self._run

    def _give(self, run: EpochRun, ready: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The next item of the current epoch; `ready` is the item if it was made in advance.

        The caller moves on to the next item as soon as it has this one.
        """
        if run.given == run.plan.count:
            run.stop()
            self._run, self._position = None, run.plan.end()
            raise StopIteration
        if ready is not None:
            return ready
        indices, samples = run.peek(run.given)
        try:
            filled = set()
            if not isinstance(samples, Table):
                for slot, sample in enumerate(samples):
                    if isinstance(sample, Bad):
                        indices[slot], samples[slot] = self._replaced(run, slot, sample)
                        if indices[slot] == sample.index:  # not another sample with its labels
                            filled.add(slot)
            return self._outputs(indices, samples, run.batch_size is not None, filled)
        except Exception:
            # After an error the epoch continues with the next batch, after Ctrl-C with this one.
            self._advance(run)
            raise

    def _advance(self, run: EpochRun) -> None:
        """Move on to the next item."""
        number = run.given + 1
        run.given, self._position = number, run.plan.after(number)
        run.forget()

    def _outputs(
        self, indices: list[int], samples: Sequence[Any], batch: bool,
        filled: Collection[int] = (),
    ) -> tuple[Any, ...]:  # fmt: skip
        """The handles of all outputs; the samples `filled` could not be read."""
        data = self._data()[0]
        doubts = doubted(filled, len(indices)) if filled else ()
        if batch and isinstance(samples, Table):
            nodes = samples.nodes()
        else:

            def name(s: int) -> str:
                return data.name(indices[s])

            nodes = [
                self._output(k, [s[k] for s in samples], batch, name)
                for k in range(len(self.outputs))
            ]
        handle = Batch if batch else Tensor
        return tuple(
            handle._of(node.like(source_info=Sources(data, list(indices), k), doubts=doubts))
            for k, node in enumerate(nodes)
        )

    def _output(self, k: int, arrays: list[Array], batch: bool, name: Callable[[int], str]) -> Node:
        """The node of output `k`; `name` gives the name of a sample, for errors."""
        dtype, packed, *layout = self.outputs[k]
        dtype = common_dtype(self._where, k, arrays, name) if dtype is None else dtype
        if packed:
            return convert.copy_arrays(arrays, dtype, layout[0] if layout else None, batch)
        return convert.wrap_arrays(
            arrays, dtype, layout[0] if layout else None, batch, external=False
        )

    def _replaced(self, run: EpochRun, slot: int, bad: Bad) -> tuple[int, Sample]:
        """The sample that replaces one that could not be read, and its index."""
        data = self._data()[0]
        entry = self.errors.add(data.name(bad.index), bad.index, bad.cause)
        policy = self._on_error
        if policy == "raise":
            raise self._unreadable(entry)
        if policy == "fill":
            return bad.index, data.fill(bad.index)
        given = policy(entry) if callable(policy) else None
        if given is not None:
            return bad.index, data.fill(bad.index, given)
        hopeless = {e.index for e in self.errors}
        for index in run.plan.followers(run.given, slot):
            if index not in hopeless:
                sample = read_sample(data, index)
                if not isinstance(sample, Bad):
                    return index, sample
                self.errors.add(data.name(index), index, sample.cause)
        error = self._unreadable(entry)
        error.args = (f"{error.args[0]}; no other sample can be read, either",)
        raise error

    def _unreadable(self, entry: SampleError) -> Exception:
        cause = entry.cause
        reason = getattr(cause, "strerror", None) or str(cause)
        text = (
            f"{self._where}: cannot read {entry.file!r} (sample {entry.index}): {reason} "
            f"(called at {user_site()})"
        )
        try:
            error: Any = type(cause)(text)
        except Exception:  # its constructor takes other arguments
            error = RuntimeError(text)
        if isinstance(cause, OSError):
            error.errno = cause.errno  # setting `filename`, too, would change the text
        error.__cause__ = cause
        return error  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        count = len(self._made[0]) if self._made else "?"
        return f"<{self._where} {self.name or ''} {count} samples>"
