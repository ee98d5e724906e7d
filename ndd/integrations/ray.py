"""Ray: `Augment` for Ray Data, `shard` for Ray Train.

>>> import ndd
>>> import ndd.integrations.ray as ndd_ray
>>> def augment(columns):
...     x = ndd.flip(columns["image"], horizontal=ndd.random.coin_flip(batch_size=2))
...     return {"image": x, "label": columns["label"]}
>>> worker = ndd_ray.Augment(augment)()        # Ray Data makes the workers itself
>>> import numpy as np
>>> batch = {"image": np.zeros((2, 4, 4, 3), np.uint8), "label": np.arange(2)}
>>> worker(batch)["label"].tolist()
[0, 1]

In a program: ``dataset.map_batches(ndd_ray.Augment(augment), batch_size=64, concurrency=8)``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..core.batch import Batch
from ..core.handle import evaluate_node
from ..core.tensor import Tensor
from ..kernels.common.threads import set_num_threads
from ..readers.reader import Reader
from ..runtime.lineage import derived_seed
from ..runtime.rng import RNG, use_default_rng
from .extras import need
from .table_columns import batches_of, to_numpy

__all__ = ["Augment", "cpu_share", "save_shard", "shard"]

Function = Callable[[dict[str, Any]], Mapping[str, Any]]
OnError = Literal["raise", "skip", "fill"]
_NAMESPACE = b"ndd"  # of the cluster's key-value store
PASSED_ON: Any = object()
FILLED = "an op with on_error='fill' could not decode or read this sample"
_log = logging.getLogger(__name__)


def Augment(
    function: Function,
    *,
    seed: int = 0,
    key: str | None = None,
    on_error: OnError = "raise",
    error_column: str = "error",
    num_threads: int | None = None,
) -> type[Worker]:
    """A class for `Dataset.map_batches`: its workers call a function of Batches.

    Ray makes an actor of it for each worker, which keeps compiled kernels warm. With
    ``batch_format="pyarrow"``, also columns of bytes arrive without a copy.

    Parameters
    ----------
    function : callable
        Gets a dict with a Batch for each column (a NumPy array, if the column is neither bytes nor
        numbers), and returns a dict of columns.
    seed : int
        Seed of the random numbers. Each worker draws from a stream of its own, and so does one that
        replaces it; a rerun has the same streams. Which samples a worker gets is up to Ray.
    key : str, optional
        A column that identifies samples. The random numbers of a batch then depend on `seed` and on
        its first sample, not on the worker, so that a rerun gives the same results. Use another
        `seed` for another epoch.
    on_error : "raise" | "skip" | "fill"
        What to do about samples on which the function fails: fail, drop their rows, or keep them
        with zeros (or empty tensors) and the message in `error_column`. The log has the
        messages in both cases. Samples that a decoder has filled itself get a message, too.
    error_column : str
        The column of messages, with on_error="fill". It is empty for good rows.
    num_threads : int, optional
        Threads of each worker; by default, the CPUs that Ray gave to it.
    """
    if not callable(function):
        raise TypeError(f"Augment: `function` must be callable, got {type(function).__name__}")
    if on_error not in ("raise", "skip", "fill"):
        raise ValueError(f'Augment: `on_error` must be "raise", "skip" or "fill", got {on_error!r}')
    values = dict(
        function=staticmethod(function), seed=seed, key=key, on_error=on_error,
        error_column=error_column, num_threads=num_threads, family=uuid.uuid4().hex,
        __module__=__name__,
    )  # fmt: skip
    return type(f"Augment_{getattr(function, '__name__', 'function')}", (Worker,), values)


class Worker:
    """Base of the classes that `Augment` makes."""

    function: Function
    seed: int
    key: str | None
    on_error: OnError
    error_column: str
    num_threads: int | None
    family: str  # of the workers of one `Augment`

    def __init__(self) -> None:
        threads = cpu_share() if self.num_threads is None else self.num_threads
        if threads is not None:
            set_num_threads(threads)
        self.number = _next_number(self.family)
        self.rng = RNG(seed=derived_seed(self.seed, self.number))
        self.filled: list[int] = []  # rows of the last results that an op has filled after an error
        self.no_rows: dict[str, Any] = {}  # the last results with bad rows, without any row

    def __call__(self, table: Any) -> Any:
        """The results for a batch of rows: an Arrow table for an Arrow table, a dict for a dict."""
        columns = batches_of(table)
        if self.key is not None:
            self.rng = RNG(seed=derived_seed(self.seed, _number_of(columns, self.key)))
        if self.on_error == "raise":
            return _like(table, self._results(columns, table))
        count = _rows_of(columns)
        results, errors = self._results_of_good(columns, table, count)
        if self.on_error == "fill":
            results[self.error_column] = np.array([errors.get(r, "") for r in range(count)], object)
        return _like(table, results)

    def _results(self, columns: dict[str, Any], table: Any) -> dict[str, Any]:
        """The columns that the function makes of those of a table."""
        made = self._raw(columns)
        return {n: table[n] if column is PASSED_ON else column for n, column in made.items()}

    def _raw(self, columns: dict[str, Any]) -> dict[str, Any]:
        """What the function returns, computed; `PASSED_ON` stands for columns that it got."""
        with use_default_rng(self.rng):
            results = dict(type(self).function(columns))
            for value in results.values():
                if isinstance(value, (Batch, Tensor)):
                    evaluate_node(value._node)
        invalid = [~v.valid for v in results.values() if isinstance(v, Batch) and v.batch_size]
        self.filled = sorted({int(k) for rows in invalid for k in np.flatnonzero(rows)})
        return {
            name: PASSED_ON if columns.get(name) is value else to_numpy(value)
            for name, value in results.items()
        }

    def _results_of_good(
        self, columns: dict[str, Any], table: Any, count: int
    ) -> tuple[dict[str, Any], dict[int, str]]:
        """Results of the rows on which the function works, and the errors of the others.

        With on_error="fill" there are results for the others, too.
        """
        state = self.rng.get_state()
        try:
            results = self._results(columns, table)
            return results, dict.fromkeys(self.filled, FILLED)
        except Exception as error:
            errors = {0: _line(error)} if count == 1 else {}
        for row in range(count if count > 1 else 0):
            try:
                self._raw(_chosen(columns, [row]))
            except Exception as error:
                errors[row] = _line(error)
        for row, text in errors.items():
            _log.warning("row %d of a batch was left out: %s", row, text)
        kept = [row for row in range(count) if row not in errors]
        self.rng.set_state(state)  # numbers do not depend on how the bad rows were found
        results = self._raw(_chosen(columns, kept)) if kept else dict(self.no_rows)
        self.no_rows = {n: c if c is PASSED_ON else np.asarray(c)[:0] for n, c in results.items()}
        for name, column in results.items():
            if column is PASSED_ON:
                whole = self.on_error == "fill"
                results[name] = table[name] if whole else to_numpy(_chosen(columns, kept)[name])
            elif self.on_error == "fill":
                results[name] = _spread(column, kept, count)
        return results, errors | {kept[k]: FILLED for k in self.filled if kept}


def _like(table: Any, results: dict[str, Any]) -> Any:
    """Results in the format of the rows that came."""
    if isinstance(table, dict):
        return results
    from ray.data.block import BlockAccessor

    arrow = type(table.column(0))
    made = {n: c for n, c in results.items() if not isinstance(c, arrow)}
    block = BlockAccessor.batch_to_arrow_block(made) if made else table.select([])
    for name, column in results.items():
        if name not in made:
            block = block.append_column(name, column)
    return block.select(list(results))


def _rows_of(columns: dict[str, Any]) -> int:
    for column in columns.values():
        return column.batch_size if isinstance(column, Batch) else len(column)
    return 0


def _chosen(columns: dict[str, Any], rows: list[int]) -> dict[str, Any]:
    return {n: c.select(rows) if isinstance(c, Batch) else c[rows] for n, c in columns.items()}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")


def _spread(column: Any, rows: list[int], count: int) -> Any:
    """A column with its values at some rows, and zeros (or nothing) at the others."""
    column = np.asarray(column)
    if column.dtype != object:
        spread = np.zeros((count, *column.shape[1:]), column.dtype)
        spread[rows] = column
        return spread
    spread = np.empty(count, object)
    sample: Any = column[0] if len(column) else None
    empty: Any = np.zeros((0,) * sample.ndim, sample.dtype) if hasattr(sample, "ndim") else sample
    for row in range(count):
        spread[row] = empty
    for row, value in zip(rows, column, strict=True):
        spread[row] = value
    return spread


# -- what a worker knows of its cluster ------------------------------------------------------------


def _ray() -> Any:
    return need("ray", "ndd.integrations.ray", "ray")


def cpu_share() -> int | None:
    """The number of CPUs that Ray gave to this worker, at least 1; None outside of Ray.

    >>> import ndd.integrations.ray as ndd_ray
    >>> ndd_ray.cpu_share() is None
    True
    """
    ray = _ray()
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return None
    return max(1, int(context.get_assigned_resources().get("CPU", 1)))


def _next_number(family: str) -> int:
    """How many workers of a family were made before this one, in the whole cluster.

    Writing a key succeeds only once, so each number has one owner. Replacements of workers that
    died, and the workers of later epochs, get numbers of their own.
    """
    ray = _ray()
    if not ray.is_initialized():
        return 0
    from ray.experimental.internal_kv import _internal_kv_put

    number = 0
    while _internal_kv_put(
        f"{family}/{number}".encode(), b"", overwrite=False, namespace=_NAMESPACE
    ):
        number += 1
    return number


def _number_of(columns: dict[str, Any], key: str) -> int:
    """A number for the first sample of a batch, made from its key."""
    import hashlib

    if key not in columns:
        raise KeyError(f"Augment: no column {key!r} for `key`; there are {', '.join(columns)}")
    column = columns[key]
    first = np.asarray(column.tensors[0]).tobytes() if isinstance(column, Batch) else str(column[0])
    data = first if isinstance(first, bytes) else first.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


# -- Ray Train ------------------------------------------------------------------------------------


def shard(reader_class: type[Reader], *, name: str = "reader", **arguments: Any) -> Reader:
    """This worker's part of a data set, in the training function of Ray Train.

    The shard is that of the worker's rank. If the run was restored from a checkpoint that
    `save_shard` has written to, the reader continues from there, also with another number of
    workers: what all of them had left is divided among the new ones.

    Parameters
    ----------
    reader_class : reader class
        For example `ndd.readers.File`.
    name : str
        Tells the states of several readers apart.
    **arguments
        Arguments of the reader.
    """
    train = need("ray.train", "ndd.integrations.ray", "ray")
    context = train.get_context()
    share = cpu_share()
    if share is not None:
        set_num_threads(share)
    ours = dict(shard_id=context.get_world_rank(), num_shards=context.get_world_size())
    reader = reader_class(**ours, **({"stick_to_shard": True} | arguments))
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = Path(folder) / _state_file(name)
            if state.exists():
                reader.set_state(state.read_text())
    return reader


def save_shard(reader: Reader, folder: Any, *, name: str = "reader") -> None:
    """Write the state of a reader into the folder of a checkpoint that will be reported.

    One rank is enough if all have taken equally many batches; the others may do it, too.
    """
    Path(folder, _state_file(name)).write_text(str(reader.get_state()))


def _state_file(name: str) -> str:
    return f"ndd-{name}.json"
