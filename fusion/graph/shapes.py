"""Shapes of all samples of a value, and the offsets of the samples in newly allocated memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.common.memo import Memo

Array = np.ndarray[Any, Any]
# One number for all samples, or one per sample. Python's integers are much faster than short
# arrays, and most batches are uniform in most axes.
Number = int | Array
SAMPLE_ALIGNMENT = 64  # alignment of ragged samples in bytes: one cache line
# Larger positions, extents and volumes are mistakes; sums of several still fit in 64 bits.
MAX_EXTENT = 2**48
MAX_BYTES = 2**47  # the address space of a process
MAX_RANK = 64  # NumPy's limit


class Shapes:
    """Shapes of all samples as one int64 array [samples, rank]; derived values are cached."""

    __slots__ = (
        "_bound", "_by_axis", "_extents", "_facts", "_kept", "_packed", "_strides", "_tuples",
        "_uniform", "_volumes", "count", "rank", "rows", "runs",
    )  # fmt: skip

    def __init__(self, rows: Array, runs: Array | None = None) -> None:
        self.rows = rows
        self.runs = runs  # lengths of runs of samples without gaps between them
        self.count: int = rows.shape[0]
        self.rank: int = rows.shape[1]
        self._extents: dict[int, int | None] = {}
        self._facts: tuple[int, ...] | None = None
        self._kept: dict[tuple[int, ...], Shapes] = {}
        self._packed: dict[int, tuple[Array, int, bool]] = {}
        self._tuples: list[tuple[int, ...]] | None = None
        self._uniform: bool | None = None
        self._volumes: Array | None = None
        self._bound = 0  # no volume is larger, once they are known
        self._strides: Array | None = None
        self._by_axis: list[Number] | None = None  # strides

    @staticmethod
    def of(shapes: Sequence[Sequence[int]], rank: int) -> Shapes:
        return Shapes.known(np.array(shapes, np.int64).reshape(len(shapes), rank))

    @staticmethod
    def known(rows: Array) -> Shapes:
        """The shapes with these rows. Those of small batches are one object for equal rows, so what
        follows from them is worked out once: most programs make the same sizes again and again."""
        if rows.nbytes > KNOWN_BYTES:
            return Shapes(np.ascontiguousarray(rows))
        key = rows.shape, rows.tobytes()
        found = _known.get(key)
        if found is None:
            own = rows.copy(order="C")  # the caller may go on writing to his
            own.flags.writeable = False
            found = _known.setdefault(key, Shapes(own))
        return found

    @property
    def tuples(self) -> list[tuple[int, ...]]:
        if self._tuples is None:
            self._tuples = [tuple(r) for r in self.rows.tolist()]
        return self._tuples

    @property
    def uniform(self) -> bool:
        if self._uniform is None:
            rows = self.rows
            self._uniform = len(rows) <= 1 or bool((rows == rows[0]).all())
        return self._uniform

    @property
    def facts(self) -> tuple[int, ...]:
        """Samples, then extents: all there is to know about uniform shapes; () if they differ."""
        if self._facts is None:
            known = self.uniform and self.count > 0
            self._facts = (self.count, *self.rows[0].tolist()) if known else ()
        return self._facts

    @property
    def volumes(self) -> Array:
        if self._volumes is None:
            self._volumes, self._bound = _checked_volumes(self.rows, self.uniform)
        return self._volumes

    def sizes(self, itemsize: int) -> Array:
        """Bytes of each sample; raises an error if no memory can hold them all."""
        found = self.volumes * itemsize  # fits, because volumes are checked
        if self._bound * itemsize * self.count > MAX_BYTES:
            total = sum(found.tolist())
            if total > MAX_BYTES:
                raise ValueError(
                    f"the result is too large: {total:.3g} bytes in {self.count} samples"
                )
        return found

    def checked(self) -> Shapes:
        """These shapes; raises an error if one of them is larger than any memory."""
        if self._volumes is None:
            _ = self.volumes
        return self

    @property
    def strides(self) -> Array:
        """Element strides of contiguous samples of these shapes."""
        if self._strides is None:
            out = np.ones_like(self.rows)
            for d in range(self.rank - 2, -1, -1):
                out[:, d] = out[:, d + 1] * self.rows[:, d + 1]
            self._strides = out
        return self._strides

    def same_as(self, other: Shapes) -> bool:
        if self is other:
            return True
        return self.rows.shape[1] == other.rows.shape[1] and bool((self.rows == other.rows).all())

    def extent(self, axis: int) -> int | None:
        """The extent of an axis, or None if samples differ in it."""
        if axis not in self._extents:
            column = self.rows[:, axis].tolist()  # faster than NumPy, even for 512 samples
            alike = len(column) > 0 and column.count(column[0]) == len(column)
            self._extents[axis] = column[0] if alike else None
        return self._extents[axis]

    def along(self, axis: int) -> Number:
        """The extent of an axis."""
        extent = self.extent(axis)
        return self.rows[:, axis] if extent is None else extent

    def stride(self, axis: int) -> Number:
        """The element stride of an axis of contiguous samples."""
        if self._by_axis is None:
            found: list[Number] = [1] * self.rank
            for d in range(self.rank - 2, -1, -1):
                found[d] = found[d + 1] * self.along(d + 1)
            self._by_axis = found
        return self._by_axis[axis]

    def keeping(self, axes: tuple[int, ...]) -> Shapes:
        """Shapes with only these axes."""
        found = self._kept.get(axes)
        if found is None:
            found = self._kept[axes] = Shapes(np.ascontiguousarray(self.rows[:, axes]))
        return found

    def packed(self, itemsize: int) -> tuple[Array, int, bool]:
        """(offsets, total bytes, dense) of samples that lie one after the other in new memory.

        Samples of equal shape have no gaps between them; ragged samples (or runs) are aligned.
        """
        found = self._packed.get(itemsize)
        if found is None:
            sizes = self.sizes(itemsize)
            dense = self.uniform
            if dense:
                pass
            elif self.runs is None:
                sizes = -(-sizes // SAMPLE_ALIGNMENT) * SAMPLE_ALIGNMENT
            else:
                sizes = sizes.copy()
                ends = np.cumsum(self.runs)
                totals = np.add.reduceat(sizes, ends - self.runs)
                sizes[ends - 1] += -totals % SAMPLE_ALIGNMENT
            ends = np.cumsum(sizes)
            found = self._packed[itemsize] = (
                ends - sizes,
                int(ends[-1]) if len(ends) else 0,
                dense,
            )
        return found


# Rows of up to this many bytes are compared with known ones: 64 samples of four axes.
KNOWN_BYTES = 1 << 11
_known: Memo[tuple[tuple[int, ...], bytes], Shapes] = Memo("shapes of small batches", 512)


def _checked_volumes(rows: Array, uniform: bool) -> tuple[Array, int]:
    """The volume of each sample, in integers that cannot overflow, and a bound for all of them."""
    if rows.shape[1] > MAX_RANK:
        raise ValueError(
            f"the result has {rows.shape[1]} dimensions, at most {MAX_RANK} are supported"
        )
    if uniform:
        bound = math.prod(rows[0].tolist()) if len(rows) else 0
        if bound <= MAX_EXTENT:
            return np.full(len(rows), bound), bound
    else:
        bound = int(np.maximum.reduce(rows, axis=None)) ** rows.shape[1]
        if bound <= MAX_EXTENT:
            return rows.prod(axis=1), bound
    volumes = [math.prod(row) for row in rows.tolist()]
    for s, volume in enumerate(volumes):
        if volume > MAX_EXTENT:
            shape = tuple(rows[s].tolist())
            raise ValueError(f"the result is too large: shape {shape} in sample {s}")
    return np.array(volumes, np.int64), max(volumes)


def are_within(values: Array, low: float, high: float) -> bool:
    """Whether all numbers lie between two others; nan does not."""
    if values.size <= 4:  # four operations of NumPy take longer
        return all(low <= v <= high for v in values.ravel().tolist())
    return bool(((values >= low) & (values <= high)).all())


def within(values: Array, highest: Array) -> Array:
    """Positions clamped to 0 … highest. np.clip takes three times as long for short arrays."""
    return np.minimum(np.maximum(values, 0), highest)


def firsts(counts: Array) -> Array:
    """Where runs of these lengths begin."""
    begin: Array = np.cumsum(counts) - counts
    return begin


def numbered(counts: Array) -> Array:
    """0, 1, 2 … up to each of the counts, one run after the other."""
    found: Array = np.arange(counts.sum()) - np.repeat(firsts(counts), counts)
    return found
