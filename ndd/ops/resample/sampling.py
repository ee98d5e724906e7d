"""Expressions that read an image between and beyond its pixels; all warps share them.

A position is a float32 expression and may have any value, even nan or infinity. It is clamped to
the image as a float, before it becomes an integer, so no position can cause a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, and_

import numpy as np

from ...core import convert
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIInterpType, DType
from ...kernels.ir.expr import At, Expr
from ..geometry.window import beside, check_numbers, round_away
from .exact import check_type

NN, LINEAR, CUBIC = (DALIInterpType(k) for k in range(3))

# We interpolate all other types: those that float32 holds exactly and, as upstream, int32.
NEAREST_ONLY = "bool u32 u64 i64 f64"
_NEAREST_ONLY = tuple(DType.parse(name) for name in NEAREST_ONLY.split())

INTERP_DOC = "INTERP_NN or INTERP_LINEAR."
DTYPE_DOC = "Element type of the result; the input's if omitted."
OLD_DTYPE_DOC = "Old name of `dtype`."
SIZE_DOC = "Size of the result: (H, W) or (D, H, W); rounded to whole pixels."


# -- arguments -----------------------------------------------------------------------------------


def result_type(x: Node, dtype: DType | None, interp: DALIInterpType) -> DType:
    if dtype in _NEAREST_ONLY and interp is not NN:
        raise TypeError(f"results of type {dtype} are not supported by a filter that interpolates")
    return dtype or x.dtype


def check_filter(
    x: Node, name: str, given: DALIInterpType, allowed: Sequence[DALIInterpType]
) -> None:
    if given not in allowed:
        known = ", ".join(a.name for a in allowed)
        raise ValueError(f"`{name}` must be one of {known}, got {given.name}")
    check_type(x, _NEAREST_ONLY, given is NN)


def resized(x: Node, axes: Sequence[int], size: Array | None) -> Shapes:
    """Shapes of the result: `size` (one row, or one per sample) along `axes`, else as `x`."""
    if size is None:
        return x.shapes
    if size.shape[1] != len(axes):
        raise ValueError(f"`size` must have {len(axes)} values, got {size.shape[1]}")
    if bool((size <= 0).any()):
        raise ValueError(f"`size` must be positive, got {size.min():g}")
    rows = np.array(np.broadcast_to(x.shapes.rows, (max(x.count, len(size)), x.rank)))
    rows[:, list(axes)] = np.maximum(round_away(check_numbers("size", size)), 1)
    return Shapes.known(rows).checked()


def check_pixels(x: Node, axes: Sequence[int], shapes: Shapes) -> None:
    """Reject samples without pixels, unless their result is empty, too."""
    empty = (x.shapes.rows[:, list(axes)] == 0).any(axis=1)
    bad = np.flatnonzero(empty & (shapes.volumes > 0))
    if len(bad):
        s = int(bad[0])
        raise ValueError(f"sample {s} of shape {x.shapes.tuples[s]} has no pixels to read")


def rows_node(rows: Array, x: Node, dtype: DType = dt.float32) -> Node:
    """Numbers [samples or 1, k] from the host, as one vector per sample of `x`."""
    if len(rows) == 1 and dtype is dt.float32:
        return beside(convert.const_vector(tuple(rows[0].tolist()), dtype), x)
    return beside(convert.rows_node(rows, dtype, x.batch), x)


# -- positions -----------------------------------------------------------------------------------


def f32(x: Expr) -> Expr:
    return ex.cast(x, dt.float32)


def centre(axis: int) -> Expr:
    """The centre of the output pixel, with pixel edges at integers."""
    return f32(ex.index(axis)) + 0.5


def affine_row(row: Sequence[Expr], point: Sequence[Expr]) -> Expr:
    """row[0] * x + (row[1] * y + (… + row[n])).

    In this order, all sums except the last are the same for a whole row of pixels.
    """
    total = row[-1]
    for number, coordinate in reversed(list(zip(row, point, strict=False))):
        total = number * coordinate + total
    return total


def stepped_row(row: Sequence[Expr], axes: Sequence[int]) -> Expr:
    """The affine sum of `row` at the centre of the output pixel; `axes` are those of x, y, …

    Along x it is a running sum, as upstream computes it (see NOTE [running sums]).
    """
    start = row[-1] + row[0] * 0.5
    for number, axis in zip(row[1:], axes[1:], strict=False):
        start = start + number * centre(axis)
    return ex.stepped(start, row[0], ex.index(axes[0]))


# -- pixels --------------------------------------------------------------------------------------


def nearest(x: Expr, at: Sequence[At], fill: Expr | None, dtype: DType) -> Expr:
    """The pixel that contains a position (pixel edges at integers), as `dtype`.

    Outside the image it is `fill`, or the nearest pixel if `fill` is None.
    """
    value = ex.fetch(x, *((axis, _clamped(p, ex.extent(x, axis))) for axis, p in at))
    value = ex.convert(value, dtype)
    if fill is None:
        return value
    inside = [(p >= 0.0) & (p < f32(ex.extent(x, axis))) for axis, p in at]
    return ex.select(reduce(and_, inside), value, fill)


def _clamped(p: Expr, extent: Expr) -> Expr:
    """The integer part of a position, clamped to the image; nan gives the first pixel."""
    return ex.cast(ex.minimum(ex.maximum(p, 0.0), f32(extent - 1)), dt.int32)


def linear(x: Expr, at: Sequence[At], fill: Expr | None) -> Expr:
    """Linear interpolation (pixel centres at integers) along (y, x) or (z, y, x), as float32.

    Pixels outside have the float32 value `fill`, or that of the nearest pixel if `fill` is None.
    """
    if len(at) == 2:
        return ex.bilinear(x, at[0], at[1], fill)
    (axis, p), (rows, y), (columns, column) = at
    extent = ex.extent(x, axis)
    # beyond one plane from the border nothing changes any more; nan counts as outside
    p = ex.minimum(ex.maximum(p, -1.0), f32(extent))
    base = ex.floor(p)
    part = p - base
    height, width = ex.extent(x, rows), ex.extent(x, columns)
    planes = []
    for k in (0.0, 1.0):
        # the plane changes from pixel to pixel, so `ex.bilinear` cannot read it line by line
        number = _clamped(base + k, extent)

        def tap(r: Expr, c: Expr, number: Expr = number) -> Expr:
            return ex.convert(ex.fetch(x, (axis, number), (rows, r), (columns, c)), dt.float32)

        plane = ex.bilinear_of(tap, y, column, height, width, fill)
        if fill is not None:
            inside = (base + k >= 0.0) & (base + k < f32(extent))
            plane = ex.select(inside, plane, fill)
        planes.append(plane)
    return planes[0] * (1.0 - part) + planes[1] * part


# -- borders -------------------------------------------------------------------------------------

BORDERS = ("constant", "replicate", "reflect", "reflect_101", "wrap")


def at_border(p: Expr, extent: Expr, border: str) -> Expr:
    """The pixel (int32) that replaces the integral float32 position `p`, which may lie outside.

    More than 2**23 pixels away the position is not exact, but the pixel still lies in the image.
    """
    n = f32(extent)
    if border == "wrap":
        p = p - ex.floor(p / n) * n
    elif border == "reflect":  # … 1 0 | 0 1 2 | 2 1 …
        p = p - ex.floor(p / (n * 2.0)) * (n * 2.0)
        p = ex.minimum(p, n * 2.0 - 1.0 - p)
    elif border == "reflect_101":  # … 2 1 | 0 1 2 | 1 0 …
        period = ex.maximum(n * 2.0 - 2.0, 1.0)
        p = p - ex.floor(p / period) * period
        p = ex.minimum(p, period - p)
    return _clamped(p, extent)


def weighted(
    x: Expr, rows: At, columns: At, border: str, fill: Expr | None, interp: DALIInterpType
) -> Expr:
    """Weighted sum of 1, 2 x 2 or 4 x 4 pixels around a position, as float32.

    Pixel centres are at integers. The border rule applies to each pixel separately, as in OpenCV.
    For INTERP_NN the position must be an integer, and the result is the pixel in its own type.
    """
    weights = {NN: _point, LINEAR: _tent, CUBIC: _cubic}[interp]
    taps = [[(axis, q, w) for q, w in weights(p)] for axis, p in (rows, columns)]

    def pixel(*at: tuple[int, Expr]) -> Expr:
        fetched = [(axis, at_border(q, ex.extent(x, axis), border)) for axis, q in at]
        value = ex.fetch(x, *fetched)
        if interp is not NN:
            value = ex.convert(value, dt.float32)
        if fill is None:
            return value
        inside = [(q >= 0.0) & (q < f32(ex.extent(x, axis))) for axis, q in at]
        return ex.select(reduce(and_, inside), value, fill)

    def line(column: tuple[int, Expr, Expr | None]) -> Expr:
        axis, q, _ = column
        return _sum([(pixel((a, r), (axis, q)), w) for a, r, w in taps[0]])

    return _sum([(line(c), c[2]) for c in taps[1]])


def _sum(terms: Sequence[tuple[Expr, Expr | None]]) -> Expr:
    return reduce(add, [v if w is None else v * w for v, w in terms])


def _point(p: Expr) -> list[tuple[Expr, Expr | None]]:
    return [(p, None)]


def _tent(p: Expr) -> list[tuple[Expr, Expr | None]]:
    base = ex.floor(p)
    part = _part(p, base)
    return [(base, 1.0 - part), (base + 1.0, part)]


def _cubic(p: Expr) -> list[tuple[Expr, Expr | None]]:
    """OpenCV's cubic filter (a = -3/4)."""
    a = -0.75
    base = ex.floor(p)
    t = _part(p, base)

    def far(d: Expr) -> Expr:  # 1 ≤ d ≤ 2
        return ((d - 5.0) * d + 8.0) * d * a - 4.0 * a

    def near(d: Expr) -> Expr:  # d ≤ 1
        return (d * (a + 2.0) - (a + 3.0)) * d * d + 1.0

    middle = [far(t + 1.0), near(t), near(1.0 - t)]
    last = 1.0 - middle[0] - middle[1] - middle[2]
    return [(base + k, w) for k, w in zip((-1.0, 0.0, 1.0, 2.0), [*middle, last], strict=True)]


def _part(p: Expr, base: Expr) -> Expr:
    """Distance from the previous pixel; 0 if the position is nan or infinite."""
    part = p - base
    return ex.select((part >= 0.0) & (part <= 1.0), part, 0.0)
