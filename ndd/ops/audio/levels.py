"""to_decibels and preemphasis_filter: pointwise work on signals and spectra."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import convert
from ...core.schema import arg, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ..geometry.window import beside
from ..reduce.moments import pixelwise
from .spectra import NOT_F32

BORDERS = ("clamp", "zero", "reflect")


@op.graph(
    rejects=NOT_F32,
    sample="ndd.to_decibels(ndd.tensor([1.0, 10.0, 100.0])).torch().round().tolist()\n"
    "=[-20.0, -10.0, 0.0]",
)  # fmt: skip
def to_decibels(
    input=data("Magnitudes or powers, float32."),
    cutoff_db=static(float, -200.0, "The lowest level; anything below it is raised to it."),
    multiplier=static(float, 10.0, "Factor of the logarithm: 10 for powers, 20 for magnitudes."),
    reference=static(float, 0.0, "The level of 0 dB; the largest value of each sample if 0."),
):
    """Convert magnitudes to decibels: `multiplier * log10(input / reference)`."""
    x, name = input, "to_decibels"
    with np.errstate(all="ignore"):
        least = np.power(np.float64(10.0), np.float64(cutoff_db) / np.float64(multiplier))
        least = np.maximum(least.astype(np.float32), np.finfo(np.float32).smallest_subnormal)
    key = float(least), float(multiplier)
    if reference:
        level = beside(convert.const_scalar(reference, dt.float32), x), ()
    elif not x.rank:
        level = x, ()
    else:
        level = build.reduce(name, x, range(x.rank), "max", dt.float32, None), ()
    return pixelwise(name, _decibels, x, level, key=(*key, not reference))


def _decibels(x: Expr, level: Expr, least: float, multiplier: float, is_largest: bool) -> Expr:
    if is_largest:  # of negative numbers it is 0, as upstream's
        level = ex.select(level > 0.0, level, ex.const(0.0, dt.float32))
    ratio = x / level
    ratio = ex.select(ratio > least, ratio, ex.const(least, dt.float32))
    return ml.log10(ratio) * multiplier


@op.graph(
    rejects="bool f16 bfloat16",
    sample="signal = ndd.tensor([1.0, 2.0, 4.0])\n"
    "ndd.preemphasis_filter(signal, preemph_coeff=0.5).torch().tolist()\n=[0.5, 1.5, 3.0]",
)  # fmt: skip
def preemphasis_filter(
    input=data("Signals of any type."),
    border=static(
        BORDERS, "clamp",
        'What comes before the first sample: that sample ("clamp"), 0 ("zero"), or the second '
        'sample ("reflect").',
    ),
    dtype=static(DType, dt.float32, "Element type of the result."),
    preemph_coeff=arg(float, 0.97, "The factor c."),
):  # fmt: skip
    """Emphasise high frequencies: `y[t] = x[t] - c * x[t - 1]`.

    Samples of several dimensions are read as one signal, in the order of their memory.
    """
    x, name = input, "preemphasis_filter"
    flat = x
    if x.rank != 1:
        flat = build.alias(name, x, Shapes(x.shapes.volumes[:, None]), x.dtype, None)
    inputs = [flat, _shifted(flat, -1)]
    if border == "reflect":
        inputs.append(_shifted(flat, 1))
    axes: list[tuple[int, ...]] = [(0,)] * len(inputs)
    y = build.pointwise(
        name, _emphasised, [*inputs, preemph_coeff], [*axes, ()], flat.shapes, flat.layout,
        (border, dtype), batch=x.batch,
    )  # fmt: skip
    if x.rank == 1:
        return y
    return build.alias(name, y, x.shapes, y.dtype, x.layout)


def _shifted(x: Node, by: int) -> Node:
    """`x[t + by]`, or 0 outside."""
    zero = beside(convert.const_scalar(0, x.dtype), x)
    start = np.full((x.count, 1), by, np.int64)
    return build.window("preemphasis_filter", x, [0], start, x.shapes.rows, x.batch, zero)


def _emphasised(x: Expr, before: Expr, *more: Any) -> Expr:
    *after, factor, border, dtype = more
    own, before = ex.cast(x, dt.float32), ex.cast(before, dt.float32)
    if border != "zero":
        at_border = own if border == "clamp" else ex.cast(after[0], dt.float32)
        before = ex.select(ex.eq(ex.index(0), 0), at_border, before)
    return ex.convert(own - factor * before, dtype)
