"""Columns of numbers that grow while files are listed: chunks enter, an array for each leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array

# Larger columns are kept in a file that is mapped into memory, so that the system can drop pages
# which nobody uses. Smaller ones are not worth a file.
MAPPED_BYTES = 32 << 20


# Numbers in this range are kept in 32 bits.
SHORT_NUMBERS = np.iinfo(np.int32)


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
        # Each column has memory of its own, so that `shortened` can free it.
        columns = [_memory(len(self), np.int64) for _ in range(self._width)]
        begin = 0
        while self._chunks:  # each chunk is freed as soon as it is copied
            chunk = self._chunks.pop(0)
            for column, values in zip(columns, chunk.T, strict=True):
                column[begin : begin + len(chunk)] = values
            begin += len(chunk)
        return columns


def shortened(column: Array) -> Array:
    """The numbers of a column in 4 bytes each, if they all fit."""
    lowest, highest = column.min(initial=0), column.max(initial=0)
    if lowest < SHORT_NUMBERS.min or highest > SHORT_NUMBERS.max:
        return column
    short = _memory(len(column), np.int32)
    short[:] = column
    return short


def _memory(count: int, dtype: type[np.integer[Any]]) -> Array:
    nbytes = count * np.dtype(dtype).itemsize
    if nbytes < MAPPED_BYTES:
        return np.empty(count, dtype)
    with tempfile.TemporaryFile(prefix="ndd-index-") as file:  # the map outlives the name
        file.truncate(nbytes)
        return np.memmap(file, dtype, "r+", shape=(count,))
