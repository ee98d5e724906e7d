"""Effects that displace pixels: water, sphere and jitter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import convert
from ...core.schema import arg, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.dtypes import DALIInterpType
from ...kernels.ir.expr import Expr
from ...kernels.ir.philox import philox
from ...runtime.rng import draw_of
from ..geometry.window import beside, c_cast
from ..random.crop import RNG_DOC
from .sampling import (
    INTERP_DOC,
    LINEAR,
    NEAREST_ONLY,
    NN,
    centre,
    check_filter,
    f32,
    linear,
    nearest,
    rows_node,
)
from .warp import spatial_axes

LAYOUTS = "HWC FHWC CHW FCHW HW FHW"  # upstream takes only the first
_FILL_DOC = "Value outside the input, converted to its type."
_MASK_DOC = "Samples with mask 0 are not changed."
_IMAGE = "image = ndd.zeros(shape=[4, 6, 3], dtype=ndd.uint8, layout='HWC')\n"

# (input, axis of rows, axis of columns, *numbers) → position (y, x), pixel edges at integers
Displacement = Callable[..., tuple[Expr, Expr]]


def _displaced(x: Expr, fill: Expr, mask: Expr, *rest: Any) -> Expr:
    """Read `x` at the position that `place` returns; `rest` holds its numbers, then the key."""
    *numbers, place, axes, interp, masked = rest
    at = list(zip(axes, place(x, *axes, *numbers), strict=True))
    if interp is NN:
        value = nearest(x, at, fill, x.dtype)
    else:
        shifted = [(axis, p - 0.5) for axis, p in at]
        value = ex.convert(linear(x, shifted, ex.convert(fill, dt.float32)), x.dtype)
    if not masked:
        return value
    return ex.select(ex.ne(ex.convert(mask, dt.int32), 0), value, x)


def _displace(
    name: str, place: Displacement, x: Node, numbers: Sequence[Node], fill_value: float,
    interp: DALIInterpType, mask: Node,
) -> Node:  # fmt: skip
    check_filter(x, "interp_type", interp, (NN, LINEAR))
    fill = beside(convert.const_scalar(c_cast(fill_value, x.dtype), x.dtype), x)
    always = beside(convert.const_scalar(1, dt.int32), x)
    inputs = [x, fill, mask, *numbers]
    places = [tuple(range(x.rank)), *[()] * (len(inputs) - 1)]
    key = (place, tuple(spatial_axes(x.layout or "")), interp, mask is not always)
    return build.pointwise(name, _displaced, inputs, places, x.shapes, x.layout, key)


def _waves(x: Expr, rows: int, columns: int, *numbers: Expr) -> tuple[Expr, Expr]:
    """As upstream, waves count pixel centres at integers, but reading has pixel edges there."""
    ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y = (ex.convert(n, dt.float32) for n in numbers)
    row, column = f32(ex.index(rows)), f32(ex.index(columns))
    return (
        row + ampl_y * ml.cos(freq_y * column + phase_y),
        column + ampl_x * ml.sin(freq_x * row + phase_x),
    )


@op.graph(
    layouts=LAYOUTS, nearest_only=NEAREST_ONLY, sample=_IMAGE + "ndd.water(image).shape\n=(4, 6, 3)"
)
def water(
    input=data("Images."),
    ampl_x=arg(float, 10.0, "Amplitude of the wave in x, in pixels."),
    ampl_y=arg(float, 10.0, "Amplitude of the wave in y."),
    fill_value=static(float, 0.0, _FILL_DOC),
    freq_x=arg(float, 2 * math.pi / 128, "Frequency of the wave in x, in radians per pixel."),
    freq_y=arg(float, 2 * math.pi / 128, "Frequency of the wave in y."),
    interp_type=static(DALIInterpType, NN, INTERP_DOC),
    mask=arg(int, 1, _MASK_DOC),
    phase_x=arg(float, 0.0, "Phase of the wave in x, in radians."),
    phase_y=arg(float, 0.0, "Phase of the wave in y."),
):
    """Look through waves: result(x, y) = input(x + ax sin(fx y + px), y + ay cos(fy x + py))."""
    numbers = [ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y]
    return _displace("water", _waves, input, numbers, fill_value, interp_type, mask)


def _bulge(x: Expr, rows: int, columns: int) -> tuple[Expr, Expr]:
    """Square the distance from the centre, in units of the larger half extent."""
    middle = [f32(ex.extent(x, axis)) * 0.5 for axis in (rows, columns)]
    radius = ex.floor(ex.maximum(middle[0], middle[1]))
    radius = ex.maximum(radius, 1.0)
    dy, dx = centre(rows) - middle[0], centre(columns) - middle[1]
    distance = ex.sqrt(dx * dx + dy * dy)
    return middle[0] + dy * distance / radius, middle[1] + dx * distance / radius


@op.graph(
    layouts=LAYOUTS,
    nearest_only=NEAREST_ONLY,
    sample=_IMAGE + "ndd.sphere(image).shape\n=(4, 6, 3)",
)
def sphere(
    input=data("Images."),
    fill_value=static(float, 0.0, _FILL_DOC),
    interp_type=static(DALIInterpType, NN, INTERP_DOC),
    mask=arg(int, 1, _MASK_DOC),
):
    """Distort images as a glass ball in front of them would."""
    return _displace("sphere", _bulge, input, [], fill_value, interp_type, mask)


def _shaken(x: Expr, rows: int, columns: int, table: Expr, degree: Expr) -> tuple[Expr, Expr]:
    """Move pixels at random; all channels and frames of a pixel move together."""
    numbers = [ex.lookup(table, ex.const(k, dt.int32)) for k in range(5)]
    row, column = (ex.cast(ex.index(axis), dt.uint32) for axis in (rows, columns))
    pixel = row * ex.cast(ex.extent(x, columns), dt.uint32) + column
    words = philox((pixel, *numbers[2:]), numbers[:2])
    moved = [(ex.cast(w >> 8, dt.float32) * 2.0**-24 - 0.5) * degree for w in words[:2]]
    return centre(rows) + moved[0], centre(columns) + moved[1]


@op.graph(
    layouts=LAYOUTS, nearest_only=NEAREST_ONLY,
    sample=_IMAGE + "ndd.jitter(image, rng=ndd.random.RNG(seed=1)).shape\n=(4, 6, 3)",
)  # fmt: skip
def jitter(
    input=data("Images."),
    fill_value=static(float, 0.0, _FILL_DOC),
    interp_type=static(DALIInterpType, NN, INTERP_DOC),
    mask=arg(int, 1, _MASK_DOC),
    nDegree=static(int, 2, "Pixels move by up to half of this, in x and in y."),
    rng=static("RNG", None, RNG_DOC),
):
    """Move every pixel by a random amount; the frames of a sequence move alike."""
    check_filter(input, "interp_type", interp_type, (NN, LINEAR))
    draw = draw_of(rng)
    table = np.empty((input.count, 5), np.uint32)
    table[:] = (*draw.key, 0, *draw.lane)
    table[:, 2] = np.arange(input.count)
    degree = beside(convert.const_scalar(float(nDegree), dt.float32), input)
    numbers = [rows_node(table, input, dt.uint32), degree]
    return _displace("jitter", _shaken, input, numbers, fill_value, interp_type, mask)
