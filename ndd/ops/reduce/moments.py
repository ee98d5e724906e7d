"""Helpers of reductions and `normalize`: they choose axes and types, build sums and variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...core import convert
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Number
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ..geometry.window import beside, checked_axes, named_axes

# A mean (or a deviation), and the axes of the input that its own axes correspond to.
Part = tuple[Node, tuple[int, ...]]


def chosen_axes(x: Node, axes: Sequence[int] | None, names: str | None) -> list[int]:
    """The axes that a call names, in ascending order; all axes if it names none."""
    if axes is not None and names is not None:
        raise ValueError("`axes` and `axis_names` exclude each other")
    if axes is not None:
        return sorted(checked_axes(axes, x.rank))
    if names is not None:
        return sorted(named_axes(names, x.layout))
    return list(range(x.rank))


def value_counts(x: Node, axes: Sequence[int], pooled: bool = False) -> Number:
    """How many values are combined into each result, of one sample or of all samples together."""
    counts = math.prod(x.shapes.along(a) for a in axes)
    if not pooled:
        return counts
    return counts * x.count if isinstance(counts, int) else int(counts.sum())


def total_type(dtype: DType) -> DType:
    """The type of sums: 64-bit integers, which are exact, or float64, rounded once at the end."""
    if dtype.is_float:
        return dt.float64
    return dt.int64 if dtype.kind is DType.Kind.signed else dt.uint64


def mean_type(dtype: DType) -> DType:
    """The type of sums for means: float64 for 64-bit integers, whose sum might overflow."""
    return dt.float64 if dtype.bits == 64 else total_type(dtype)


def pixelwise(op: str, body, x: Node, *more: tuple[Node, tuple[int, ...]], key=()) -> Node:
    """Apply `body` to each element of `x` and to values that correspond to some of its axes."""
    inputs = [x, *(node for node, _ in more)]
    axes = [tuple(range(x.rank)), *(a for _, a in more)]
    return build.pointwise(op, body, inputs, axes, x.shapes, x.layout, key, batch=x.batch)


def as_type(x: Expr, dtype: DType) -> Expr:
    """Convert a float64 to another type; integers are truncated and saturate."""
    return ex.convert(x, dtype, "trunc")


def kept_of(x: Node, axes: Sequence[int]) -> tuple[tuple[int, ...], str | None]:
    """The axes that are not reduced, and their layout, by which kernels find the channels."""
    kept = tuple(d for d in range(x.rank) if d not in axes)
    letters = [x.layout[d] for d in kept] if x.layout else []
    return kept, "".join(letters) or None


def squared(x: Expr) -> Expr:
    """The square of `x`: an exact integer for up to 16 bits, else a float64."""
    if not is_short(x.dtype):
        wide = dt.float64
    else:
        wide = dt.int32 if x.dtype.kind is DType.Kind.signed else dt.uint32
    x = ex.cast(x, wide)
    return x * x


def is_short(dtype: DType) -> bool:
    """Whether sums of squares of this type are exact integers."""
    return not dtype.is_float and dtype.bits <= 16


def total(op: str, x: Node, axes: Sequence[int], acc: DType, layout: str | None, pooled: bool):
    """The sum of each sample, or of all samples together if `pooled`."""
    made = build.reduce(op, x, axes, "add", acc, layout)
    return build.reduce(op, build.pool(op, made), [0], "add", acc, layout) if pooled else made


def exact_mean(
    op: str, x: Node, axes: Sequence[int], layout: str | None, counts: Number,
    finish: Callable[[Expr, DType], Expr], dtype: DType, is_guarded: bool, pooled: bool = False,
) -> Node:  # fmt: skip
    """The mean of short integers after `finish`. A guarded mean of no values is 0.

    It divides the same sum that `variance_around` needs, so values are added up only once.
    """
    sums = total(op, x, axes, total_type(x.dtype), layout, pooled)
    more = numbers_beside(counts, x), ()
    return pixelwise(op, _quotient, sums, more, key=(finish, dtype, is_guarded))


def _quotient(
    total: Expr, n: Expr, finish: Callable[[Expr, DType], Expr], dtype: DType, is_guarded: bool
) -> Expr:
    mean = ex.cast(total, dt.float64) / ex.cast(n, dt.float64)
    return finish(ex.select(n > 0, mean, 0.0) if is_guarded else mean, dtype)


def numbers_beside(values: Number, x: Node) -> Node:
    """A node of integers on the device of `x`: one per sample, or a single one for all samples."""
    if isinstance(values, int):
        return beside(convert.const_scalar(values, dt.int64), x)
    arrays = [np.asarray(v, np.int64) for v in values]
    return beside(convert.copy_arrays(arrays, dt.int64, None, batch=True), x)


def variance_around(
    op: str, x: Node, mean: Part, axes: Sequence[int], ddof: int, layout: str | None,
    is_guarded: bool = False, pooled: bool = False,
) -> Node:  # fmt: skip
    """The sum of squared differences from a mean, divided by their number - `ddof`, as float64.

    NOTE [exact squares] For short integers we sum values and squares, which is exact and fast: u8
    at 77 and 46 GB/s, instead of 8 GB/s for differences in float64. From these sums, wrapping
    integers give the exact sum of squares around an integer q near the mean. Moving from q to the
    mean hardly cancels digits, because the mean is less than one away from q.
    """
    counts = value_counts(x, axes, pooled)
    divisors = counts - ddof
    if not is_short(x.dtype):
        y = pixelwise(op, _squared_difference, x, mean)
        if not pooled:
            return build.reduce(op, y, axes, "add", dt.float64, layout, divisors, is_guarded)
        sums = build.pool(op, build.reduce(op, y, axes, "add", dt.float64, layout))
        return build.reduce(op, sums, [0], "add", dt.float64, layout, divisors, is_guarded)
    squares = pixelwise(op, squared, x)
    sums = total(op, x, axes, total_type(x.dtype), layout, pooled)
    more = total(op, squares, axes, total_type(squares.dtype), layout, pooled)
    numbers = [numbers_beside(v, x) for v in (counts, divisors)]
    center, place = mean
    if len(place) == x.rank and len(axes):
        center = build.drop_axes(op, center, axes, None)
    whole = tuple(range(sums.rank))
    places = [whole, whole, whole if center.rank else (), (), ()]
    inputs = [sums, more, center, *numbers]
    return build.pointwise(
        op, _around, inputs, places, sums.shapes, layout, (is_guarded,), batch=sums.batch
    )


def _squared_difference(x: Expr, mean: Expr) -> Expr:
    d = ex.cast(x, dt.float64) - ex.cast(mean, dt.float64)
    return d * d


def _around(s1: Expr, s2: Expr, mean: Expr, n: Expr, divisor: Expr, is_guarded: bool) -> Expr:
    """See NOTE [exact squares]."""
    m = ex.cast(mean, dt.float64)
    near = ex.minimum(ex.maximum(m, -(2.0**16)), 2.0**16)
    q = ex.cast(ex.unary("rint", near), dt.int64)
    s1, s2 = ex.cast(s1, dt.int64), ex.cast(s2, dt.int64)
    first = ex.cast(s1 - n * q, dt.float64)
    second = ex.cast(s2 - (q + q) * s1 + n * q * q, dt.float64)
    d = ex.cast(q, dt.float64) - m
    around = second + (d + d) * first + ex.cast(n, dt.float64) * d * d
    around = ex.select(around < 0.0, 0.0 * d, around)
    around = ex.select(ex.fabs(m) < 1e300, around, m * m)  # the mean is infinite or NaN
    result = around / ex.cast(divisor, dt.float64)
    return ex.select(divisor > 0, result, 0.0) if is_guarded else result
