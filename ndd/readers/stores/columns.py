"""Columns of numbers that grow while files are listed: chunks enter, an array for each leaves."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array

# Larger columns are kept in a file that is mapped into memory, so that the system can drop pages
# which nobody uses. Smaller ones are not worth a file.
MAPPED_BYTES = 32 << 20


_KINDS = (np.int8, np.int16, np.int32, np.int64)
_AT_ONCE = 1 << 16  # numbers that are packed at a time


class Columns:
    """`width` columns of 64-bit integers: 8 bytes per row and column."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._chunks: list[Array] = []
        self._rows: list[Sequence[int]] = []

    def row(self, *values: int) -> None:
        """Append a row."""
        self._rows.append(values)
        if len(self._rows) >= 1 << 14:
            self._pack()

    def chunk(self, rows: Any) -> None:
        """Append many rows at once."""
        self._pack()
        self._chunks.append(np.ascontiguousarray(rows, np.int64).reshape(-1, self._width))

    def _pack(self) -> None:
        if self._rows:
            self._chunks.append(np.array(self._rows, np.int64))
            self._rows = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks)) + len(self._rows)

    def table(self) -> Array:
        """All rows in one array. No more rows may come."""
        return np.ascontiguousarray(np.stack(self.finish(), 1))

    def finish(self) -> list[Array]:
        """One array per column. No more rows may come."""
        self._pack()
        # Each column has memory of its own, so that it can be freed when it has been packed.
        columns = [_memory(len(self), np.int64) for _ in range(self._width)]
        begin = 0
        while self._chunks:  # each chunk is freed as soon as it is copied
            chunk = self._chunks.pop(0)
            for column, values in zip(columns, chunk.T, strict=True):
                column[begin : begin + len(chunk)] = values
            begin += len(chunk)
        return columns


class Packed:
    """A column in as few bytes per number as all of them need: 1, 2, 4 or 8.

    Zeros that all numbers end with (members of archives begin at multiples of 512) are not kept, so
    that 4 bytes reach far. A number below zero, which stands for a missing part, becomes -1.
    """

    def __init__(self, column: Array) -> None:
        parts = [column[k : k + _AT_ONCE] for k in range(0, len(column), _AT_ONCE)]
        low = 0
        for part in parts:
            low |= int(np.bitwise_or.reduce(part, where=part > 0, initial=0))
        self._shift = (low & -low).bit_length() - 1 if low else 0
        highest = int(column.max(initial=0)) >> self._shift
        kind = next(k for k in _KINDS if highest <= np.iinfo(k).max)
        self._short = _memory(len(column), kind)
        for k, part in enumerate(parts):
            self._short[k * _AT_ONCE :][: len(part)] = part >> self._shift
        self._has_gaps = int(column.min(initial=0)) < 0

    def __len__(self) -> int:
        return len(self._short)

    def __getitem__(self, k: Any) -> Any:
        """A number, or those at some places, as 64-bit integers."""
        found = np.asarray(self._short[k], np.int64) << self._shift
        return np.maximum(found, -1) if self._has_gaps else found

    @property
    def nbytes(self) -> int:
        return self._short.nbytes


def trim() -> None:
    """Give freed memory back to the system, if the C library is one that keeps it (glibc).

    Listing 10⁶ samples of archives frees 36 MB in pieces between others that stay.
    """
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)


def _memory(count: int, dtype: type[np.integer[Any]]) -> Array:
    nbytes = count * np.dtype(dtype).itemsize
    if nbytes < MAPPED_BYTES:
        return np.empty(count, dtype)
    with tempfile.TemporaryFile(prefix="ndd-index-") as file:  # the map outlives the name
        file.truncate(nbytes)
        return np.memmap(file, dtype, "r+", shape=(count,))
