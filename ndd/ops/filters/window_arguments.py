"""Helpers of all filters: they choose axes and types, check arguments and convert results."""

from __future__ import annotations

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr

DTYPE_DOC = "Element type of the result: float32, or the input's (if omitted)."
MAX_AXES = 3


def spatial_axes(x: Node) -> list[int]:
    """The spatial axes: all except leading frames and channels, and trailing channels."""
    if x.layout is None:
        axes, rest = list(range(x.rank)), ""
    else:
        begin = len(x.layout) - len(x.layout.lstrip("FC"))
        end = len(x.layout) - x.layout.endswith("C")
        axes, rest = list(range(begin, end)), x.layout[begin:end]
    if not 1 <= len(axes) <= MAX_AXES or set(rest) & set("FC"):
        of = f"{x.rank} dimensions" if x.layout is None else f"the layout {x.layout!r}"
        raise ValueError(
            "the input must have one to three spatial dimensions, side by side, with frames and "
            f"channels before them or channels behind them (HWC, FCHW, DHW, …), got {of}"
        )
    return axes


def result_type(x: Node, dtype: DType | None) -> DType:
    if dtype not in (None, x.dtype, dt.float32):
        raise TypeError(f"`dtype` must be the input's ({x.dtype}) or float32, got {dtype}")
    return dtype or x.dtype


def check_per_axis(name: str, values: Array, axes: int) -> None:
    """Require one number, or one per axis."""
    if values.shape[1] not in (1, axes):
        raise ValueError(
            f"`{name}` must have {' or '.join(sorted({'1', str(axes)}))} values, "
            f"got {values.shape[1]}"
        )


def per_axis(name: str, values: Array, axes: int) -> Array:
    """Numbers as [samples or 1, axes]; a single number applies to all axes."""
    check_per_axis(name, values, axes)
    if values.shape[1] == axes:
        return values
    return np.broadcast_to(values, (len(values), axes))


def refuse(bad: Array, message: str, values: Array) -> None:
    """Raise an error for the first bad sample and axis; `{}` in the message becomes its value."""
    if bad.any():
        s, axis = np.argwhere(bad)[0]
        where = f" for axis {axis}" + (f" of sample {s}" if len(bad) > 1 else "")
        raise ValueError(message.format(f"{values[s, axis]:g}") + where)


def converted(name: str, x: Node, dtype: DType, rounding: str = "away") -> Node:
    """Convert `x` to another type, with rounding and saturation."""
    if x.dtype is dtype:
        return x
    places = [tuple(range(x.rank))]
    return build.pointwise(name, _to, [x], places, x.shapes, x.layout, (dtype, rounding))


def _to(x: Expr, dtype: DType, rounding: str) -> Expr:
    return ex.convert(x, dtype, rounding)
