"""Connected components of label maps, and their bounding boxes. Only imported to compile.

Neighbours share a face. A *run* is a piece of a line along the last axis with one label; lines are
numbered in memory order. Runs of neighbouring lines that overlap and have the same label belong to
one object, and so do the objects of both. A forest of runs keeps track of that: its roots are the
objects, each the first run of its object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...common.memo import memoized
from ...ir.dtypes import DType
from ..native import primitives as prims
from . import object_slots as at
from .inner import inner

_i32, _u64 = np.int32, np.uint64
_get_i64, _put_i64, _get_u64 = prims.get_i64, prims.put_i64, prims.get_u64  # type: ignore[attr-defined]
_get_i32, _put_i32 = prims.get_i32, prims.put_i32  # type: ignore[attr-defined]
_BEGIN, _END, _LABEL, _PARENT, _RUN = 0, 1, 2, 3, 4  # columns of RUNS, and how many there are


@memoized(4)
def make_find_objects(dtype: DType) -> Any:
    """`find_objects(rows, begin, end)` for label maps of this type (u8 or i32)."""
    get = getattr(prims, f"get_{dtype}")
    width = dtype.bytes
    at_once = 8 // width
    # Times a label: a word of equal labels.
    spread = _u64(0x0101010101010101 if width == 1 else 0x0000000100000001)
    low_bits = _u64((1 << 8 * width) - 1)

    @inner
    def end_of_run(data, begin, end):  # type: ignore[no-untyped-def]
        """The first element with another label than that at `begin`, or `end`."""
        label, k = get(data, begin), begin + 1
        word = (_u64(label) & low_bits) * spread
        while k + at_once <= end and _get_u64(data + width * k, 0) == word:
            k += at_once
        while k < end and get(data, k) == label:
            k += 1
        return k

    @inner
    def runs_of_line(row, line, n):  # type: ignore[no-untyped-def]
        """Append the runs of a line after the first n; returns their number."""
        data, runs = _get_i64(row, at.DATA), _get_i64(row, at.RUNS)
        extent = _get_i64(row, at.EXTENTS + _get_i64(row, at.DIMS) - 1)
        skips, background = _get_i64(row, at.SKIPS) != 0, _get_i64(row, at.BACKGROUND)
        first = line * extent
        k = first
        while k < first + extent:
            label, after = _i32(get(data, k)), end_of_run(data, k, first + extent)
            if not (skips and label == background):
                _put_i32(runs, _RUN * n + _BEGIN, _i32(k - first))
                _put_i32(runs, _RUN * n + _END, _i32(after - first))
                _put_i32(runs, _RUN * n + _LABEL, label)
                _put_i32(runs, _RUN * n + _PARENT, _i32(n))
                n += 1
            k = after
        return n

    def find_objects(rows, begin, end):  # type: ignore[no-untyped-def]
        """Find the objects of each sample from `begin` to `end`."""
        for s in range(begin, end):
            row = rows + 8 * at.OBJECT_ROW * s
            first_runs, n = _get_i64(row, at.FIRST_RUNS), 0
            for line in range(_get_i64(row, at.LINES)):
                _put_i64(first_runs, line, n)
                n = runs_of_line(row, line, n)
                _put_i64(first_runs, line + 1, n)
                _join_neighbours(row, line)
            _enclose(row)
            _put_i64(row, at.OBJECTS, _pack(row, n))

    return find_objects


@inner
def _root(runs, k):  # type: ignore[no-untyped-def]
    parent = np.int64(_get_i32(runs, _RUN * k + _PARENT))
    while parent != k:
        above = _get_i32(runs, _RUN * parent + _PARENT)
        _put_i32(runs, _RUN * k + _PARENT, above)  # shortens the way for the next search
        k = np.int64(above)
        parent = np.int64(_get_i32(runs, _RUN * k + _PARENT))
    return k


@inner
def _join(runs, k, m):  # type: ignore[no-untyped-def]
    a, b = _root(runs, k), _root(runs, m)
    _put_i32(runs, _RUN * max(a, b) + _PARENT, _i32(min(a, b)))


@inner
def _join_neighbours(row, line):  # type: ignore[no-untyped-def]
    """Join the runs of a line with those of all neighbouring lines before it."""
    stride, rest = 1, line
    for axis in range(_get_i64(row, at.DIMS) - 2, -1, -1):
        extent = _get_i64(row, at.EXTENTS + axis)
        if rest % extent > 0:
            _join_lines(row, line - stride, line)
        rest //= extent
        stride *= extent


@inner
def _join_lines(row, one, other):  # type: ignore[no-untyped-def]
    runs, first_runs = _get_i64(row, at.RUNS), _get_i64(row, at.FIRST_RUNS)
    k, k_end = _get_i64(first_runs, one), _get_i64(first_runs, one + 1)
    m, m_end = _get_i64(first_runs, other), _get_i64(first_runs, other + 1)
    while k < k_end and m < m_end:
        left, right = _get_i32(runs, _RUN * k + _END), _get_i32(runs, _RUN * m + _END)
        if _get_i32(runs, _RUN * k + _LABEL) == _get_i32(runs, _RUN * m + _LABEL):
            begins = max(_get_i32(runs, _RUN * k + _BEGIN), _get_i32(runs, _RUN * m + _BEGIN))
            if begins < min(left, right):
                _join(runs, k, m)
        if left <= right:
            k += 1
        if right <= left:
            m += 1


@inner
def _enclose(row):  # type: ignore[no-untyped-def]
    """Compute the box of every root: starts, then ends."""
    runs, first_runs = _get_i64(row, at.RUNS), _get_i64(row, at.FIRST_RUNS)
    boxes, dims = _get_i64(row, at.BOXES), _get_i64(row, at.DIMS)
    for line in range(_get_i64(row, at.LINES)):
        first, after = _get_i64(first_runs, line), _get_i64(first_runs, line + 1)
        for k in range(first, after):
            # Parents come first, so theirs are roots already.
            parent = np.int64(_get_i32(runs, _RUN * k + _PARENT))
            root = np.int64(_get_i32(runs, _RUN * parent + _PARENT))
            _put_i32(runs, _RUN * k + _PARENT, _i32(root))
            begin, end = _get_i32(runs, _RUN * k + _BEGIN), _get_i32(runs, _RUN * k + _END)
            _grow(boxes, dims, root, k, dims - 1, begin, end)
        rest = line
        for axis in range(dims - 2, -1, -1):
            extent = _get_i64(row, at.EXTENTS + axis)
            place, rest = _i32(rest % extent), rest // extent
            for k in range(first, after):
                root = np.int64(_get_i32(runs, _RUN * k + _PARENT))
                _grow(boxes, dims, root, k, axis, place, _i32(place + 1))


@inner
def _grow(boxes, dims, root, k, axis, begin, end):  # type: ignore[no-untyped-def]
    """Make the box of a root enclose its run k along an axis; the root itself is its first run."""
    low, high = 2 * dims * root + axis, 2 * dims * root + dims + axis
    if root != k:
        begin, end = min(begin, _get_i32(boxes, low)), max(end, _get_i32(boxes, high))
    _put_i32(boxes, low, begin)
    _put_i32(boxes, high, end)


@inner
def _pack(row, n):  # type: ignore[no-untyped-def]
    """Move labels and boxes of the roots to the beginning; returns their number."""
    runs, boxes, dims = _get_i64(row, at.RUNS), _get_i64(row, at.BOXES), _get_i64(row, at.DIMS)
    objects = 0
    for k in range(n):
        # The first columns of earlier runs are overwritten, which nobody needs any more.
        if _get_i32(runs, _RUN * k + _PARENT) == k:
            label = _get_i32(runs, _RUN * k + _LABEL)
            for d in range(2 * dims):
                _put_i32(boxes, 2 * dims * objects + d, _get_i32(boxes, 2 * dims * k + d))
            _put_i32(runs, objects, label)
            objects += 1
    return objects
