"""The polygons of chosen masks, with their vertices. Only imported to compile."""

from __future__ import annotations

import numpy as np

from ..native import primitives as prims
from . import object_slots as at
from .inner import inner

_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_get_i32, _put_i32 = prims.get_i32, prims.put_i32  # type: ignore[attr-defined]
_get_u8, _put_u8 = prims.get_u8, prims.put_u8  # type: ignore[attr-defined]


def select_polygons(rows, begin, end):  # type: ignore[no-untyped-def]
    """Count the chosen polygons and vertices of each sample, or write them."""
    for s in range(begin, end):
        row = rows + 8 * at.POLYGON_ROW * s
        ids, polygons = _get_i64(row, at.IDS), _get_i64(row, at.POLYGONS)
        found, vertices = 0, 0
        for i in range(_get_i64(row, at.ID_COUNT)):
            id_, before = _get_i32(ids, i), found
            for earlier in range(i):
                if _get_i32(ids, earlier) == id_:
                    _note(row, at.REPEATED, i)
            for k in range(_get_i64(row, at.POLYGON_COUNT)):
                if _get_i32(polygons, 3 * k) == id_:
                    vertices = _take(row, i, k, found, vertices)
                    found += 1
            if found == before:
                _note(row, at.MISSING, i)
        _put_i64(row, at.FOUND_POLYGONS, found)
        _put_i64(row, at.FOUND_VERTICES, vertices)


@inner
def _note(row, problem, culprit):  # type: ignore[no-untyped-def]
    """Remember the first problem."""
    if _get_i64(row, at.PROBLEM) == at.FINE:
        _put_i64(row, at.PROBLEM, problem)
        _put_i64(row, at.CULPRIT, culprit)


@inner
def _take(row, i, k, found, vertices):  # type: ignore[no-untyped-def]
    """Take polygon k of the id at position i; returns the number of vertices so far."""
    polygons, out = _get_i64(row, at.POLYGONS), _get_i64(row, at.OUT_POLYGONS)
    first = np.int64(_get_i32(polygons, 3 * k + 1))
    last = np.int64(_get_i32(polygons, 3 * k + 2))
    if first > last:
        _note(row, at.REVERSED, k)
        return vertices
    if first < 0 or last > _get_i64(row, at.VERTEX_COUNT):
        _note(row, at.OUTSIDE, k)
        return vertices
    after = vertices + last - first
    if out != 0:
        id_ = _get_i32(polygons, 3 * k)
        if _get_i64(row, at.REINDEXES) != 0:
            id_ = np.int32(i)
        _put_i32(out, 3 * found, id_)
        _put_i32(out, 3 * found + 1, np.int32(vertices))
        _put_i32(out, 3 * found + 2, np.int32(after))
        size = _get_i64(row, at.VERTEX_BYTES)
        source = _get_i64(row, at.VERTICES) + size * first
        target = _get_i64(row, at.OUT_VERTICES) + size * vertices
        for n in range(size * (last - first)):
            _put_u8(target, n, _get_u8(source, n))
    return after
