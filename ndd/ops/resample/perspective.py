"""Projective warps and free coordinate maps: experimental.warp_perspective, experimental.remap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import convert
from ...core.schema import arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIInterpType
from ...kernels.ir.expr import At, Expr
from ..geometry.window import beside
from .sampling import (
    BORDERS,
    CUBIC,
    LINEAR,
    NEAREST_ONLY,
    NN,
    affine_row,
    check_filter,
    check_pixels,
    f32,
    resized,
    weighted,
)
from .warp import checked_matrix, given_matrix, inverse, spatial_axes

ORIGINS = ("corner", "center")
_INTERP_DOC = "INTERP_NN, INTERP_LINEAR or INTERP_CUBIC."
_BORDER_NAMES = ", ".join(BORDERS)
_ORIGIN_DOC = "Where coordinates begin: the corner or the center (as OpenCV) of the first pixel."


def _sampled(
    x: Expr, at: Sequence[At], border: str, fill: Expr | None, interp: DALIInterpType
) -> Expr:
    """`x` at a position (y, x) in its own type; pixel centres are at integers."""
    rows, columns = at
    outside = None if fill is None else ex.convert(fill, x.dtype, _FILL_ROUNDING)
    if interp is NN:
        return weighted(x, rows, columns, border, outside, interp)
    if outside is not None:  # the fill value is interpolated like a pixel
        outside = ex.convert(outside, dt.float32)
    if interp is LINEAR and border in ("constant", "replicate"):
        return ex.convert(ex.bilinear(x, rows, columns, outside), x.dtype)
    return ex.convert(weighted(x, rows, columns, border, outside, interp), x.dtype)


_FILL_ROUNDING = "even"  # as OpenCV


# -- warp_perspective ----------------------------------------------------------------------------


def _projected(x: Expr, matrix: Expr, origin: Expr, *rest: Any) -> Expr:
    """Read `x` at projected positions; `rest` holds the fill value, if any, and the key."""
    *fill, axes, frame, border, interp = rest
    rows, columns = axes

    def number(k: int) -> Expr:
        place = ex.const(k, dt.int32)
        if frame is not None:
            place = ex.index(frame) * 9 + place
        return ex.convert(ex.lookup(matrix, place), dt.float32)

    point = [f32(ex.index(a)) + origin for a in (columns, rows)]
    x_, y, w = (affine_row([number(3 * k + j) for j in range(3)], point) for k in range(3))
    at = [(rows, y / w - origin), (columns, x_ / w - origin)]
    if interp is NN:
        at = [(axis, ex.unary("rint", p)) for axis, p in at]
    return _sampled(x, at, border, fill[0] if fill else None, interp)


@op.graph(
    name="experimental.warp_perspective", layouts="HW HWC FHWC CHW FCHW FHW",
    nearest_only=NEAREST_ONLY,
    sample="""image = ndd.zeros(shape=[4, 6, 3], dtype=ndd.uint8, layout='HWC')
ndd.experimental.warp_perspective(image, matrix=[1, 0, 0, 0, 1, 0, 0, 0.1, 1], size=[5, 5]).shape
=(5, 5, 3)""",
)  # fmt: skip
def warp_perspective(
    input=data("Images or sequences."),
    matrix_input=arg(
        float, None, "The matrix, by position.", matrix=True, positional=True, per_frame=True
    ),
    border_mode=static(BORDERS, "constant", f"Values outside the input: {_BORDER_NAMES}."),
    fill_value=static("floats", (), "Value outside the input, or one per channel; 0 if omitted."),
    interp_type=static(DALIInterpType, LINEAR, _INTERP_DOC),
    inverse_map=static(bool, True, "Whether the matrix maps the result to the input."),
    matrix=arg(
        float, None, "Matrix 3x3 or its values row by row; may differ per frame.",
        matrix=True, per_frame=True,
    ),
    pixel_origin=static(ORIGINS, "corner", _ORIGIN_DOC),
    size=geometry(float, None, "Size (H, W) of the result; the input's if omitted.", vector=True),
):  # fmt: skip
    """Move pixels by a projective map: result(x, y) = input(u / w, v / w), (u, v, w) = M (x, y, 1).

    With `inverse_map=False` the matrix maps the input to the result; the call reads it at once.
    """
    x = input
    check_filter(x, "interp_type", interp_type, (NN, LINEAR, CUBIC))
    axes = tuple(spatial_axes(x.layout))
    node, frame = checked_matrix(given_matrix(matrix_input, matrix), x, 3, 3)
    if not inverse_map:
        node = inverse(node, x, 2, affine=False)
    if size is not None and size.shape[1] == 1:
        size = np.repeat(size, 2, axis=1)
    shapes = resized(x, axes, size)
    check_pixels(x, axes, shapes)
    inputs, places = [x, node, _origin(pixel_origin, x)], [tuple(range(x.rank)), (), ()]
    if border_mode == "constant":
        values, channel = _fill(fill_value, x)
        inputs.append(values)
        places.append(channel)
    key = (axes, frame, border_mode, interp_type)
    return build.pointwise(
        "experimental.warp_perspective", _projected, inputs, places, shapes, x.layout, key, x.batch
    )


def _origin(name: str, x: Node) -> Node:
    """The coordinate of the first pixel's centre."""
    return beside(convert.const_scalar(0.5 if name == "corner" else 0.0, dt.float32), x)


def _fill(values: Sequence[float], x: Node) -> tuple[Node, tuple[int, ...]]:
    """Fill values as float32, and the axis they run along."""
    if len(values) <= 1:
        return beside(convert.const_scalar(values[0] if values else 0.0, dt.float32), x), ()
    layout = x.layout or ""
    axis = layout.index("C") if "C" in layout else None
    channels = x.shapes.rows[:, axis] if axis is not None else np.ones(x.count, np.int64)
    wrong = np.flatnonzero(channels != len(values))
    if len(wrong):
        s = int(wrong[0])
        raise ValueError(
            f"`fill_value` has {len(values)} values, but sample {s} of shape {x.shapes.tuples[s]} "
            f"has {int(channels[s])} channels"
        )
    assert axis is not None
    return beside(convert.const_vector(tuple(values), dt.float32), x), (axis,)


# -- remap ---------------------------------------------------------------------------------------


def _remapped(
    x: Expr, mapx: Expr, mapy: Expr, origin: Expr, axes: tuple[int, int], interp: DALIInterpType
) -> Expr:
    at = [
        (axis, ex.convert(p, dt.float32) - origin)
        for axis, p in zip(axes, (mapy, mapx), strict=True)
    ]
    if interp is NN:  # the pixel that contains the point
        at = [(axis, ex.floor(p + 0.5)) for axis, p in at]
    return _sampled(x, at, "constant", ex.const(0.0, dt.float32), interp)


@op.graph(
    name="experimental.remap", layouts="HWC FHWC HW FHW", nearest_only=NEAREST_ONLY,
    sample="""image = ndd.zeros(shape=[4, 6, 3], dtype=ndd.uint8, layout='HWC')
ndd.experimental.remap(image, ndd.zeros(shape=[5, 7]), ndd.zeros(shape=[5, 7])).shape
=(5, 7, 3)""",
)  # fmt: skip
def remap(
    input=data("Images or sequences."),
    mapx=data("Column to read for every pixel of the result: HW or HWC with one channel."),
    mapy=data("Row to read."),
    interp=static(DALIInterpType, LINEAR, _INTERP_DOC),
    pixel_origin=static(ORIGINS, "corner", _ORIGIN_DOC),
):
    """Read each pixel of the result from the position that two maps give; 0 outside the input.

    Sequences take one map per frame (FHW, FHWC), or one for all frames.
    """
    x = input
    check_filter(x, "interp", interp, (NN, LINEAR, CUBIC))
    places = [_map_axes("mapx", mapx, x), _map_axes("mapy", mapy, x)]
    if places[0] != places[1] or not mapx.shapes.same_as(mapy.shapes):
        s = _first_different(mapx, mapy)
        raise ValueError(
            f"mapx and mapy must have the same shape, got {mapx.shapes.tuples[s]} and "
            f"{mapy.shapes.tuples[s]} in sample {s}"
        )
    axes = tuple(spatial_axes(x.layout))
    rows = np.array(x.shapes.rows)
    for dimension, axis in enumerate(places[0]):
        if axis in axes:
            rows[:, axis] = mapx.shapes.rows[:, dimension]
    shapes = Shapes.known(rows)
    check_pixels(x, axes, shapes)
    inputs = [x, mapx, mapy, _origin(pixel_origin, x)]
    return build.pointwise(
        "experimental.remap", _remapped, inputs, [tuple(range(x.rank)), *places, ()],
        shapes, x.layout, (axes, interp),
    )  # fmt: skip


def _first_different(a: Node, b: Node) -> int:
    if a.rank != b.rank:
        return 0
    return int(np.argmax((a.shapes.rows != b.shapes.rows).any(axis=1)))


def _map_axes(name: str, node: Node, x: Node) -> tuple[int, ...]:
    """The axis of the image that each dimension of a map runs along."""
    sequence = "F" in (x.layout or "")
    known = {2: "HW", 3: "FHW" if sequence else "HWC", 4: "FHWC"}
    layout = node.layout if node.layout in known.values() else known.get(node.rank)
    if node.dtype is dt.bool_:
        raise TypeError(f"`{name}` must hold numbers, got bool")
    if layout is None or not set(layout) <= set(x.layout or ""):
        raise ValueError(
            f"`{name}` must be a map of rows and columns, got {node.rank} dimensions for images "
            f"of layout {x.layout}"
        )
    if len(layout) != node.rank:
        layout = known[node.rank]
    for letter, need in (("C", np.ones(1, np.int64)), ("F", x.shapes.rows[:, 0])):
        if letter in layout:
            got = node.shapes.rows[:, layout.index(letter)]
            wrong = np.flatnonzero((got != need) & (got != 1))
            if len(wrong):
                s = int(wrong[0])
                what = "frames" if letter == "F" else "channels"
                raise ValueError(
                    f"`{name}` of shape {node.shapes.tuples[s]} has {int(got[s])} {what} in "
                    f"sample {s}, wanted {int(need[s % len(need)])}"
                )
    return tuple((x.layout or "").index(letter) for letter in layout)
