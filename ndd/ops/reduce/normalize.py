"""normalize: subtracts a mean and divides by a deviation, each either given or computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.schema import arg, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from .axis_reductions import NAMES_DOC
from .moments import (
    Part,
    as_type,
    chosen_axes,
    exact_mean,
    is_short,
    kept_of,
    mean_type,
    pixelwise,
    value_counts,
    variance_around,
)

_NAME = "normalize"


def _normalized(x: Expr, mean: Expr, factor: Expr, shift: Expr, dtype: DType) -> Expr:
    mean, shift = (ex.convert(v, dt.float32) for v in (mean, shift))
    return ex.convert((ex.cast(x, dt.float32) - mean) * factor + shift, dtype)


def _factor_of_variance(variance: Expr, epsilon: Expr, scale: Expr) -> Expr:
    """scale / deviation, or 0 if the deviation is 0."""
    total = variance + ex.cast(ex.convert(epsilon, dt.float32), dt.float64)
    factor = ex.cast(ex.convert(scale, dt.float32), dt.float64) / ex.sqrt(total)
    return ex.cast(ex.select(ex.eq(total, 0.0), 0.0 * total, factor), dt.float32)


def _factor_of_deviation(deviation: Expr, epsilon: Expr, scale: Expr, is_tensor: bool) -> Expr:
    """scale / a given deviation. A 0 in a tensor gives 0; a single number is used as it is."""
    d, e, k = (ex.cast(ex.convert(v, dt.float32), dt.float64) for v in (deviation, epsilon, scale))
    factor = k / ex.select(ex.eq(e, 0.0), d, ex.sqrt(d * d + e))
    if is_tensor:
        factor = ex.select(ex.eq(d, 0.0) & ex.eq(e, 0.0), 0.0 * e, factor)
    return ex.cast(factor, dt.float32)


@op.graph(
    name=_NAME,
    by_facts=True,
    sample="""image = ndd.tensor([[1.0, 3.0], [1.0, 3.0]])
ndd.normalize(image).torch().tolist()
=[[-1.0, 1.0], [-1.0, 1.0]]""",
)
def normalize(
    input=data("Any tensor."),
    axes=static("ints", None, "Axes along which mean and deviation are computed. If omitted: those "
                "in which a given mean or deviation has extent 1, else all."),
    axis_names=static(str, None, NAMES_DOC),
    batch=static(bool, False, "Whether mean and deviation are those of all samples together."),
    ddof=static(int, 0, "The variance is divided by the number of values minus this."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    epsilon=arg(float, 0.0, "Added to the variance."),
    mean=arg(float, None, "The mean, a number or a tensor with extent 1 in the axes that are "
             "reduced; computed if omitted.", any_shape=True),
    scale=arg(float, 1.0, "Multiplier after normalisation."),
    shift=arg(float, 0.0, "Added after normalisation."),
    stddev=arg(float, None, "The deviation, like `mean`; measured around the mean if omitted.",
               any_shape=True),
):  # fmt: skip
    """Normalise values to a mean of 0 and a deviation of 1: (x - mean) / stddev * scale + shift.

    If the deviation is 0, values become 0 before the shift, unless `stddev` is given as a number.
    """
    if not input.rank:
        input = build.add_axes(_NAME, input, [0], None)
        made = _normalize(input, axes, axis_names, batch, ddof, dtype, epsilon, mean, scale, shift,
                          stddev)  # fmt: skip
        return build.drop_axes(_NAME, made, [0], None)
    return _normalize(
        input, axes, axis_names, batch, ddof, dtype, epsilon, mean, scale, shift, stddev
    )


def _normalize(
    x: Node, axes, axis_names, batch, ddof, dtype, epsilon, mean, scale, shift, stddev
) -> Node:
    is_given = axes is not None or axis_names is not None
    params = {k: v for k, v in (("mean", mean), ("stddev", stddev)) if v is not None}
    tensors = {k: v for k, v in params.items() if v.rank}
    if batch and params:
        raise ValueError(f"`batch` excludes `{next(iter(params))}`: both cannot be used together")
    if is_given and len(params) == 2 and not tensors:
        raise ValueError("no axes can be given if both `mean` and `stddev` are numbers")
    chosen = chosen_axes(x, axes, axis_names)
    if is_given and not chosen:
        raise ValueError("at least one axis must be given")
    if not is_given and tensors:
        chosen = _axes_of(x, *next(iter(tensors.items())))
    for name, v in tensors.items():
        _check_shape(x, name, v, chosen)
    pooled = batch and x.batch
    center = _place(x, mean) if mean is not None else _mean(x, chosen, pooled)
    numbers = [epsilon, scale]
    if stddev is not None:
        node, place = _place(x, stddev)
        factor = _small(_factor_of_deviation, node, numbers, key=(bool(place),)), place
    else:
        variance, place = _variance(x, center, chosen, pooled, ddof)
        factor = _small(_factor_of_variance, variance, numbers), place
    return pixelwise(_NAME, _normalized, x, center, factor, (shift, ()), key=(dtype,))


def _small(body, x: Node, numbers: Sequence[Node], key=()) -> Node:
    """Apply `body` to a mean or a deviation, and to numbers that may differ per sample."""
    whole = tuple(range(x.rank))
    batched = [n for n in numbers if n.count > x.count]
    shapes = x.shapes
    if batched:
        shapes = type(shapes)(np.broadcast_to(shapes.rows, (batched[0].count, x.rank)))
    is_batch = x.batch or any(n.batch for n in numbers)
    axes = [whole, *((),) * len(numbers)]
    return build.pointwise(_NAME, body, [x, *numbers], axes, shapes, x.layout, key, is_batch)


def _place(x: Node, v: Node) -> Part:
    return v, tuple(range(x.rank)) if v.rank else ()


def _axes_of(x: Node, name: str, v: Node) -> list[int]:
    """The axes along which a given mean or deviation was reduced."""
    _check_rank(x, name, v)
    return [d for d in range(x.rank) if (v.shapes.rows[:, d] == 1).all()]


def _check_rank(x: Node, name: str, v: Node) -> None:
    if v.rank != x.rank:
        raise ValueError(
            f"`{name}` must be a number or have as many dimensions as the input, {x.rank}; it has "
            f"{v.rank}"
        )


def _check_shape(x: Node, name: str, v: Node, axes: Sequence[int]) -> None:
    _check_rank(x, name, v)
    wanted = x.shapes.rows.copy()
    wanted[:, list(axes)] = 1
    wrong = (wanted != v.shapes.rows).any(axis=1)
    if wrong.any():
        s = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"`{name}` of sample {s} has shape {v.shapes.tuples[s % v.count]}, but the input of "
            f"shape {x.shapes.tuples[s]}, reduced, has shape {tuple(wanted[s].tolist())}"
        )


def _mean(x: Node, axes: list[int], pooled: bool) -> Part:
    kept, layout = kept_of(x, axes)
    counts = value_counts(x, axes, pooled)
    if pooled:
        _check_equal(x, kept)
    if is_short(x.dtype):
        made = exact_mean(
            _NAME, x, axes, layout, counts, as_type, dt.float32, is_guarded=True, pooled=pooled
        )
        return made, kept
    acc = mean_type(x.dtype)
    if pooled:
        x, axes = build.pool(_NAME, build.reduce(_NAME, x, axes, "add", acc, layout)), [0]
    made = build.reduce(_NAME, x, axes, "add", acc, layout, counts, is_guarded=True)
    return pixelwise(_NAME, as_type, made, key=(dt.float32,)), kept


def _variance(x: Node, center: Part, axes: list[int], pooled: bool, ddof: int) -> Part:
    kept, layout = kept_of(x, axes)
    if not axes:  # nothing is reduced, so reduce along a new axis of extent 1
        x = build.add_axes(_NAME, x, [x.rank], None)
        axes = [x.rank - 1]
        node, place = center
        center = (
            (build.add_axes(_NAME, node, axes, None), tuple(range(x.rank))) if place else center
        )
    made = variance_around(_NAME, x, center, axes, ddof, layout, True, pooled)
    return made, kept


def _check_equal(x: Node, kept: tuple[int, ...]) -> None:
    rows = x.shapes.rows[:, kept]
    wrong = (rows != rows[:1]).any(axis=1)
    if wrong.any():
        s = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            "with `batch` all samples must have the same extents in the axes that are not reduced; "
            f"sample 0 has shape {x.shapes.tuples[0]}, sample {s} has {x.shapes.tuples[s]}"
        )
