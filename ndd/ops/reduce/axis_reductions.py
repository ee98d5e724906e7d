"""Reductions over axes: sums, means, squares, deviations and extremes.

Each op makes up to three nodes: pointwise work on the values, the reduction itself, and pointwise
work on its result. They fuse with each other and with the ops around them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.schema import data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Number
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from .moments import (
    as_type,
    chosen_axes,
    exact_mean,
    is_short,
    kept_of,
    mean_type,
    pixelwise,
    squared,
    total_type,
    value_counts,
    variance_around,
)

AXES_DOC = "Axes to reduce, negative ones counted from the end; all if omitted, none if empty."
NAMES_DOC = "Letters of these axes, instead of `axes`."
KEEP_DOC = "Whether reduced axes stay in the result, with extent 1."
DDOF_DOC = "The divisor is the number of values minus this."


# -- the ops ---------------------------------------------------------------------------------------


def _reduced(
    name: str, x: Node, axes: list[int], keep: bool, combine: str, acc: DType,
    finish, dtype: DType, divisors: Number | None = None,
) -> Node:  # fmt: skip
    """Combine `x` along `axes`, apply `finish(value, dtype)`, and set axes and layout."""
    kept, layout = kept_of(x, axes)
    whole = x
    if not x.rank:
        x, axes = build.add_axes(name, x, [0], None), [0]
    if divisors is not None and is_short(x.dtype):
        y = exact_mean(name, x, axes, layout, divisors, finish, dtype, is_guarded=False)
    else:
        y = build.reduce(name, x, axes, combine, acc, layout, divisors)
        if y.dtype is not dtype or finish is _root:
            y = pixelwise(name, finish, y, key=(dtype,))
    return _with_dims(name, whole, y, axes) if keep and len(kept) < whole.rank else y


def _with_dims(name: str, x: Node, y: Node, axes: Sequence[int]) -> Node:
    """Insert the reduced axes of `x` into a result again, with extent 1."""
    return build.add_axes(name, y, axes, x.layout)


def _with_axes(x: Node, axes, names) -> list[int] | None:
    """Axes to reduce; None if the call gives an empty list."""
    found = chosen_axes(x, axes, names)
    return found if found or (axes is None and names is None) else None


def _wrapped(x: Expr, dtype: DType) -> Expr:
    """Convert a sum to another type; integers wrap around."""
    if x.dtype.is_float and dtype.is_integer:
        return as_type(x, dtype)
    return ex.cast(x, dtype)


def _root(x: Expr, dtype: DType) -> Expr:
    return as_type(ex.sqrt(x), dtype)


def _zero(x: Expr) -> Expr:
    return ex.const(0.0, dt.float32)


def _same(x: Expr, dtype: DType) -> Expr:
    return ex.cast(x, dtype)


def _default(x: Node) -> DType:
    """The default type of a mean."""
    return dt.float64 if x.dtype is dt.float64 else dt.float32


def _mean(
    name: str, x: Node, axes, names, keep: bool, dtype: DType | None, finish=as_type, square=True
) -> Node:
    """The mean of `x`, or of its squares, after `finish`."""
    chosen, to = _with_axes(x, axes, names), dtype or _default(x)
    if square:
        x = pixelwise(name, squared, x)
    if chosen is None:
        return pixelwise(name, _finished, x, key=(to, finish))
    counts = value_counts(x, chosen)
    return _reduced(name, x, chosen, keep, "add", mean_type(x.dtype), finish, to, counts)


def _finished(x: Expr, dtype: DType, finish) -> Expr:
    return finish(ex.cast(x, dt.float64), dtype)


def _sample(name: str, result: str, extra: str = "") -> str:
    return (
        "image = ndd.tensor([[1, 2], [3, 6]], dtype=ndd.uint8)\n"
        f"ndd.reductions.{name}(image{extra}).item()\n={result}"
    )


@op.graph(name="reductions.sum", by_facts=True, sample=_sample("sum", "12"))
def sum(
    input=data("Any tensor."),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    dtype=static(DType, None, "Element type of the result, where integers wrap around; "
                 "uint64, int64 or float32 if omitted (float64 of float64)."),
    keep_dims=static(bool, False, KEEP_DOC),
):  # fmt: skip
    """Add up the values along some axes. Sums of integers are exact."""
    x, name = input, "reductions.sum"
    acc = total_type(x.dtype)
    to = dtype or (_default(x) if acc.is_float else acc)
    chosen = _with_axes(x, axes, axis_names)
    if chosen is None:
        return pixelwise(name, _wrapped, x, key=(to,))
    return _reduced(name, x, chosen, keep_dims, "add", acc, _wrapped, to)


@op.graph(name="reductions.mean", by_facts=True, sample=_sample("mean", "3.0"))
def mean(
    input=data("Any tensor."),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    dtype=static(DType, None, "Element type of the result; float32 if omitted."),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Take the mean of the values along some axes; integer types are truncated."""
    return _mean("reductions.mean", input, axes, axis_names, keep_dims, dtype, square=False)


@op.graph(name="reductions.mean_square", by_facts=True, sample=_sample("mean_square", "12.5"))
def mean_square(
    input=data("Any tensor."),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    dtype=static(DType, None, "Element type of the result; float32 if omitted."),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Take the mean of the squares of the values along some axes."""
    return _mean("reductions.mean_square", input, axes, axis_names, keep_dims, dtype)


@op.graph(name="reductions.rms", by_facts=True, sample=_sample("rms", "3.535533905029297"))
def rms(
    input=data("Any tensor."),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    dtype=static(DType, None, "Element type of the result; float32 if omitted."),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Take the root of the mean of the squares of the values along some axes."""
    return _mean("reductions.rms", input, axes, axis_names, keep_dims, dtype, _root)


def _extreme(name: str, combine: str, x: Node, axes, names, keep: bool) -> Node:
    chosen = _with_axes(x, axes, names)
    if chosen is None:
        return build.copy(name, x)
    acc = {dt.bool_: dt.uint8, dt.float16: dt.float32, dt.bfloat16: dt.float32}
    found = acc.get(x.dtype, x.dtype)
    return _reduced(name, x, chosen, keep, combine, found, _same, x.dtype)


@op.graph(name="reductions.min", by_facts=True, sample=_sample("min", "1"))
def min(
    input=data("Any tensor."),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Find the smallest value along some axes. NaN is ignored."""
    return _extreme("reductions.min", "min", input, axes, axis_names, keep_dims)


@op.graph(name="reductions.max", by_facts=True, sample=_sample("max", "6"))
def max(
    input=data("Any tensor."),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Find the largest value along some axes. NaN is ignored."""
    return _extreme("reductions.max", "max", input, axes, axis_names, keep_dims)


def _variance(name: str, x: Node, mean: Node, axes, names, ddof: int, keep: bool, finish) -> Node:
    chosen = _with_axes(x, axes, names)
    place = _place_of_mean(x, mean, range(0) if chosen is None else chosen)
    if chosen is None:
        return pixelwise(name, _zero, x)  # as upstream: the variance of a single value is 0
    kept, layout = kept_of(x, chosen)
    if not x.rank:
        x, chosen = build.add_axes(name, x, [0], None), [0]
    y = variance_around(name, x, (mean, place), chosen, ddof, layout)
    y = pixelwise(name, finish, y, key=(dt.float32,))
    return _with_dims(name, x, y, chosen) if keep and len(kept) < x.rank else y


def _place_of_mean(x: Node, mean: Node, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes of `x` that the axes of its mean correspond to."""
    kept = tuple(d for d in range(x.rank) if d not in axes)
    rows = x.shapes.rows.copy()
    rows[:, list(axes)] = 1
    forms = {0: ((), rows[:, :0]), len(kept): (kept, rows[:, kept]), x.rank: (None, rows)}
    place, wanted = forms.get(mean.rank, ((), None))
    if wanted is not None:
        wrong = (wanted != mean.shapes.rows).any(axis=1)
        if not wrong.any():
            return tuple(range(x.rank)) if place is None else place
        s = int(np.flatnonzero(wrong)[0])
    else:
        s = 0
    shapes = dict.fromkeys(
        ["()", str(tuple(rows[s, list(kept)].tolist())), str(tuple(rows[s].tolist()))]
    )
    raise ValueError(
        f"`mean` of sample {s} has shape {mean.shapes.tuples[s % mean.count]}, it must be one of "
        f"{', '.join(shapes)}"
    )


_STD_INPUT = ", ndd.reductions.mean(image)"
_MEAN_DOC = "The mean: a number, or as `reductions.mean` gives it for the same axes."


@op.graph(name="reductions.variance", by_facts=True, sample=_sample("variance", "3.5", _STD_INPUT))
def variance(
    data=data("Any tensor."),
    mean=data(_MEAN_DOC),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    ddof=static(int, 0, DDOF_DOC),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Take the mean of the squared differences between the values and a given mean."""
    return _variance("reductions.variance", data, mean, axes, axis_names, ddof, keep_dims, as_type)


@op.graph(
    name="reductions.std_dev",
    by_facts=True,
    sample=_sample("std_dev", "1.8708287477493286", _STD_INPUT),
)
def std_dev(
    data=data("Any tensor."),
    mean=data(_MEAN_DOC),
    axes=static("ints", None, AXES_DOC),
    axis_names=static(str, None, NAMES_DOC),
    ddof=static(int, 0, DDOF_DOC),
    keep_dims=static(bool, False, KEEP_DOC),
):
    """Take the standard deviation of the values from a given mean."""
    return _variance("reductions.std_dev", data, mean, axes, axis_names, ddof, keep_dims, _root)
