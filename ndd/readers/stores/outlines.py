"""Masks of COCO annotations: polygons and run lengths enter, pixels leave.

Pixels equal those of pycocotools. Masks are flat arrays of columns: pixel (y, x) is x * height + y.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...fusion.graph.shapes import Array

# Polygons are drawn on a grid that is this much finer than the pixels.
_FINER = 5
# The work for a polygon grows with its outline. A longer one is a mistake in the annotations.
_MAX_OUTLINE = 1 << 22


def polygon_mask(points: Array, height: int, width: int) -> Array:
    """The pixels of a polygon (rows of x, y): whether an odd number of edges lies before each."""
    if not (abs(points) < _MAX_OUTLINE).all():  # also true for nan
        raise ValueError("a vertex of a polygon is far outside of the picture")
    fine = np.trunc(_FINER * points.astype(np.float64) + 0.5).astype(np.int64)
    fine = np.concatenate([fine, fine[:1]])
    if abs(np.diff(fine, axis=0)).max(1).sum() > _MAX_OUTLINE:
        raise ValueError("the outline of a polygon is too long for a picture")
    u, v = _outline(fine[:, 0], fine[:, 1])
    # An outline crosses the middle of a column of pixels where its fine column changes there.
    moved = np.flatnonzero(u[1:] != u[:-1])
    before, after = u[moved], u[moved + 1]
    column = (np.where(after < before, after, after - 1) + 0.5) / _FINER - 0.5
    row = (np.minimum(v[moved], v[moved + 1]) + 0.5) / _FINER - 0.5
    row = np.ceil(np.clip(row, 0, height))
    inside = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    at = (column[inside] * height + row[inside]).astype(np.int64)
    return _alternating(np.diff(np.sort(at), prepend=0, append=height * width))


def _outline(xs: Array, ys: Array) -> tuple[Array, Array]:
    """All points of the fine grid along the edges between successive points."""
    us, vs = [], []
    for k in range(len(xs) - 1):
        x0, x1, y0, y1 = int(xs[k]), int(xs[k + 1]), int(ys[k]), int(ys[k + 1])
        dx, dy = abs(x1 - x0), abs(y1 - y0)
        turned = x0 > x1 if dx >= dy else y0 > y1
        if turned:
            x0, x1, y0, y1 = x1, x0, y1, y0
        step = np.arange(max(dx, dy) + 1)
        if dx >= dy:
            slope = (y1 - y0) / dx if dx else 0.0
            u, v = x0 + step, np.trunc(y0 + slope * step + 0.5).astype(np.int64)
        else:
            u, v = np.trunc(x0 + (x1 - x0) / dy * step + 0.5).astype(np.int64), y0 + step
        us.append(u[::-1] if turned else u)
        vs.append(v[::-1] if turned else v)
    return np.concatenate(us), np.concatenate(vs)


def run_length_mask(counts: Sequence[int] | Array, height: int, width: int) -> Array:
    """The pixels of run lengths, which begin with pixels outside of the mask."""
    runs = np.asarray(counts, np.int64)
    if runs.ndim != 1 or (len(runs) and (runs.min() < 0 or runs.max() > height * width)):
        raise ValueError("a run length is negative or too large")
    if int(runs.sum()) != height * width:
        raise ValueError(f"run lengths of {int(runs.sum())} pixels for {height} × {width} pixels")
    return _alternating(runs)


def _alternating(runs: Array) -> Array:
    """Pixels outside, inside, outside …, as many as each run has; one byte for each."""
    return np.repeat((np.arange(len(runs)) & 1).astype(bool), runs)


def run_lengths(text: str) -> list[int]:
    """The numbers in a compressed list of run lengths.

    A character holds five bits and a flag for more; each number from the fourth on is a difference
    from the one two before it.
    """
    found: list[int] = []
    value, shift = 0, 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise ValueError(f"an invalid character {character!r} in compressed run lengths")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        if len(found) > 2:
            value += found[-2]
        found.append(value)
        value, shift = 0, 0
    if shift:
        raise ValueError("compressed run lengths end inside of a number")
    return found
