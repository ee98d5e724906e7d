"""Records as samples of a reader: an index enters, batches of parsed records leave.

A reader of records says how to list them (an index), how to parse one, and, if that is faster, how
to parse the records of a batch together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Held, Storage, array_at
from ..kernels.ir.dtypes import DType, from_numpy
from .epoch import Bad, Sample, Table
from .stores.record_index import RecordIndex

L = TypeVar("L")


class RecordSamples:
    """Records of an index, as samples of a reader. Subclasses parse them."""

    def __init__(self, where: str, index: RecordIndex) -> None:
        self._where, self.index = where, index
        self.starts, self.fingerprint = index.starts, index.fingerprint
        self.mean_bytes = index.mean_bytes
        self.stays_in_files = index.files.keeps(index.mean_bytes)

    def __len__(self) -> int:
        return len(self.index)

    def name(self, index: int) -> str:
        number, offset, _ = self.index.place(index)
        return f"{self.index.files.paths[number]} at index {offset}"

    def read(self, index: int) -> Sample:
        return self.parse(index, self.index.files.read(*self.index.place(index)))

    def read_many(self, indices: Sequence[int]) -> Sequence[Sample | Bad]:
        """Read all samples of a batch at once; parse them one by one only if one is bad."""
        contents = self.index.files.read_parts(*self.index.places(indices))
        found = contents.storage()
        if found is not None:
            try:
                table = self.table(indices, *found)
            except (ValueError, MemoryError):
                table = None
            if table is not None:
                return table
        return [self._parsed(i, c) for i, c in zip(indices, contents, strict=True)]

    def _parsed(self, index: int, content: Array | Exception) -> Sample | Bad:
        if isinstance(content, Exception):
            return Bad(index, content)
        try:
            return self.parse(index, content)
        except Exception as error:
            return Bad(index, error)

    def parse(self, index: int, content: Array) -> Sample:
        """The outputs of one record."""
        raise NotImplementedError

    def table(self, indices: Sequence[int], storage: Storage, sizes: Array) -> Table | None:
        """The outputs of all records of a batch; None if they must be parsed one by one."""
        return None

    def fill(self, index: int, data: Any = None) -> Sample:
        return filled(self._where, self.empty(), data)

    def empty(self) -> Sample:
        """The replacement for a record that cannot be read."""
        raise NotImplementedError


def filled(where: str, empty: Sample, data: Any, names: Sequence[str] | None = None) -> Sample:
    """A replacement for a bad sample: what `on_error` returned, in place of empty outputs."""
    if data is None:
        return empty
    found = list(empty)
    if isinstance(data, (bytes, bytearray, memoryview)):
        data = np.frombuffer(bytes(data), np.uint8)
    if isinstance(data, np.ndarray):  # stands for the first output of its kind
        kinds = [k for k, e in enumerate(empty) if e.dtype == data.dtype and e.ndim == data.ndim]
        if not kinds:
            raise _unusable(where, empty, f"{data.ndim}-D data of {data.dtype}", names)
        found[kinds[0]] = data
        return tuple(found)
    if isinstance(data, Mapping) and names is not None and set(data) <= set(names):
        data = [data.get(name, e) for name, e in zip(names, empty, strict=True)]
    if not isinstance(data, (tuple, list)) or len(data) != len(empty):
        raise _unusable(where, empty, type(data).__name__, names)
    for k, (value, wanted) in enumerate(zip(data, empty, strict=True)):
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = np.frombuffer(bytes(value), np.uint8)
        array = np.array(value, wanted.dtype)
        if array.ndim != wanted.ndim:
            raise _unusable(where, empty, f"{array.ndim}-D data as output {k}", names)
        found[k] = array
    return tuple(found)


def _unusable(where: str, empty: Sample, got: str, names: Sequence[str] | None) -> TypeError:
    wanted = ", ".join(f"{e.ndim}-D {e.dtype}" for e in empty)
    named = f" (or a dictionary of {', '.join(names)})" if names else ""
    return TypeError(
        f"{where}: `on_error` must return bytes, a sequence of {len(empty)} outputs ({wanted})"
        f"{named} or None, got {got}"
    )


def common_dtype(
    where: str, output: int, arrays: Sequence[Array], name: Callable[[int], str]
) -> DType:
    """The element type of an output whose records tell it; `name` gives that of a sample."""
    first = arrays[0]
    for s, array in enumerate(arrays):
        if array.dtype != first.dtype or array.ndim != first.ndim:
            raise ValueError(
                f"{where}: all samples of a batch must have the same type and number of "
                f"dimensions: output {output} of sample {s} ({name(s)!r}) is {array.ndim}-D "
                f"{array.dtype}, that of the first one ({name(0)!r}) {first.ndim}-D {first.dtype}"
            )
    found = from_numpy(first.dtype)
    assert found is not None, "readers make no other types"
    return found


@dataclass(frozen=True, slots=True)
class Column:
    """One output of a batch."""

    storage: Storage
    shapes: Shapes
    dtype: DType

    def array(self, k: int) -> Array:
        """One sample, in memory that nobody else writes to."""
        address, shape = int(self.storage.addresses[k]), self.shapes.tuples[k]
        found = array_at(address, shape, self.dtype.np, None, self.storage)
        mapped = getattr(self.storage.owner, "mapped", None)
        if mapped is None:
            return found
        mapped.protect()
        copied = found.copy()
        mapped.check(np.array([address]), np.array([found.nbytes]))
        return copied

    def cut(self, ends: Sequence[int]) -> list[Column]:
        """The samples before each end. Each part has an owner of its own, so that only the part
        that the user gets hold of counts as memory which may change."""
        old, rows, dtype = self.storage, self.shapes.rows, self.dtype
        mapped = getattr(old.owner, "mapped", None)
        parts, begin = [], 0
        for end in ends:
            owner = Held([old.owner], mapped)
            storage = Storage(old.addresses[begin:end], owner, dense=old.dense).share_flags(old)
            parts.append(Column(storage, Shapes(rows[begin:end]), dtype))
            begin = end
        return parts


class ColumnTable(Table):
    """A batch of samples that could all be read: one column per output."""

    def __init__(self, count: int, columns: Sequence[Column]) -> None:
        self._count, self._columns = count, columns

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < self._count:
            raise IndexError(k)
        return tuple(c.array(k) for c in self._columns)

    def cut(self, ends: Sequence[int]) -> list[Sequence[Sample | Bad]]:
        sizes = np.diff(ends, prepend=0).tolist()
        columns = zip(*(c.cut(ends) for c in self._columns), strict=True)
        return [ColumnTable(n, own) for n, own in zip(sizes, columns, strict=True)]

    def nodes(self) -> list[Node]:
        return [source(c.storage, c.shapes, c.dtype, batch=True) for c in self._columns]


def paths_of(where: str, name: str, given: Any) -> list[str]:
    """A path, or a list of paths, as text."""
    import os

    if isinstance(given, (str, bytes, os.PathLike)):
        given = [given]
    try:
        return [os.fsdecode(p) for p in given]
    except TypeError:
        raise TypeError(
            f"{where}: `{name}` must be a path or a list of paths, got {given!r}"
        ) from None


def listed(where: str, what: Callable[[], L]) -> L:
    """List the samples of a reader; errors name the reader."""
    import os

    try:
        return what()
    except OSError as error:
        name = "" if error.filename is None else f" {os.fsdecode(error.filename)!r}"
        new = type(error)(f"{where}: cannot read{name}: {error.strerror or error}")
        new.errno = error.errno
        raise new from error
    except (ValueError, TypeError, ImportError) as error:
        # Subclasses, such as those for characters, may want other arguments.
        kind = next(k for k in (ValueError, TypeError, ImportError) if isinstance(error, k))
        raise kind(f"{where}: {error}") from error
