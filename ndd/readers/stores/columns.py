"""Columns of numbers that grow while files are listed: chunks enter, an array for each leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array

# Larger columns are kept in a file that is mapped into memory, so that the system can drop pages
# which nobody uses. Smaller ones are not worth a file.
MAPPED_BYTES = 64 << 20


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
        table = _memory((self._width, len(self)))
        begin = 0
        while self._chunks:  # each chunk is freed as soon as it is copied
            chunk = self._chunks.pop(0)
            table[:, begin : begin + len(chunk)] = chunk.T
            begin += len(chunk)
        return list(table)


def _memory(shape: tuple[int, int]) -> Array:
    nbytes = shape[0] * shape[1] * 8
    if nbytes < MAPPED_BYTES:
        return np.empty(shape, np.int64)
    with tempfile.TemporaryFile(prefix="ndd-index-") as file:  # the map outlives the name
        file.truncate(nbytes)
        return np.memmap(file, np.int64, "r+", shape=shape)
