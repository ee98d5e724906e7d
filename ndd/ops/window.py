"""Windows of samples: where crop and slice begin, how large they are, what lies outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import convert
from ..fusion import build
from ..fusion.graph import Array, Node
from ..kernels import expr as ex
from ..kernels.dtypes import DType
from ..kernels.expr import Expr

POLICIES = ("error", "pad", "trim_to_shape")


def round_away(x: Array) -> Array:
    """Nearest integers; halves away from zero."""
    return np.trunc(x + np.copysign(0.5, x)).astype(np.int64)


def per_sample(count: int, *values: Array) -> list[Array]:
    """Values [1 or count, …] for every sample."""
    return [np.broadcast_to(v, (count, *v.shape[1:])) for v in values]


def named_axes(names: str, node: Node, layout: str | None = None) -> list[int]:
    """Positions of axis letters."""
    layout = layout or node.layout or ""
    for name in names:
        if name not in layout:
            shown = repr(layout) if layout else "none"
            raise ValueError(f"axis {name!r} is not present in the layout of the input ({shown})")
    return [layout.index(name) for name in names]


def checked_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Axis numbers, negative ones counted from the end."""
    result = []
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is out of range [{-rank}, {rank - 1}] for {rank}-D input")
        if axis % rank in result:
            raise ValueError(f"axis {axis} occurs more than once")
        result.append(int(axis) % rank)
    return result


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}")


def fill_node(values: Sequence[float], dtype: DType, x: Node, channels: int | None) -> tuple[Node, tuple[int, ...]]:
    """Fill values as a node in the result's type, and the axis they run along."""
    numbers = tuple(c_cast(v, dtype) for v in (values or (0.0,)))
    if len(numbers) == 1:
        return convert.const_scalar(numbers[0], dtype), ()
    if not x.layout or "C" not in x.layout:
        raise ValueError("several `fill_values` were given, but the input has no channel axis C")
    axis = x.layout.index("C")
    extents = x.shapes.rows[:, axis] if channels is None else np.array([channels])
    if bool((extents != len(numbers)).any()):
        raise ValueError(
            f"`fill_values` has {len(numbers)} values, but the result has {int(extents[0])} channels"
        )
    return convert.const_vector(numbers, dtype), (axis,)


def c_cast(value: float, dtype: DType) -> Any:
    """How C converts a float: cut toward zero, wrapped around."""
    number = float(np.float32(value))
    if dtype.is_float:
        return number
    if not np.isfinite(number):
        number = 0.0
    return ex.wrap(int(number), dtype) if dtype.is_integer else number != 0


def truncated(op: str, x: Node, dtype: DType | None) -> Node:
    """`x` in another type: cut toward zero, saturated."""
    if dtype is None or dtype == x.dtype:
        return x
    return build.pointwise(op, _truncate, [x], [tuple(range(x.rank))], x.shapes, x.layout, (dtype,))


def _truncate(x: Expr, dtype: DType) -> Expr:
    return ex.convert(x, dtype, "trunc")


def take_window(
    op: str,
    x: Node,
    axes: Sequence[int],
    start: Array,
    size: Array,
    policy: str,
    fill_values: Sequence[float],
) -> Node:
    """The window [start, start + size) of every sample; both [samples, rank]."""
    check_choice("out_of_bounds_policy", policy, POLICIES)
    extents = x.shapes.rows
    if policy == "pad":
        fill, fill_axes = fill_node(fill_values, x.dtype, x, None)
        if x.device is not None:
            from ..call import _on

            fill = _on(fill, x.device)
        return build.window(op, x, axes, start, size, x.batch, fill, fill_axes)
    if policy == "trim_to_shape":
        first = np.clip(start, 0, extents)
        size = np.clip(start + size, 0, extents) - first
        start = first
    else:
        outside = (start < 0) | (start + size > extents) | (size < 0)
        if outside.any():
            s = int(np.flatnonzero(outside.any(axis=1))[0])
            raise ValueError(
                f"the window of sample {s} leaves the input: shape {tuple(extents[s].tolist())}, start "
                f"{tuple(start[s].tolist())}, size {tuple(size[s].tolist())}; "
                f"out_of_bounds_policy='pad' or 'trim_to_shape' allow that"
            )
    return build.window(op, x, axes, start, size, x.batch)


def crop_bounds(
    x: Node,
    crop: Array | None,
    crop_w: Array | None,
    crop_h: Array | None,
    crop_d: Array | None,
    pos_x: Array,
    pos_y: Array,
    pos_z: Array,
    rounding: str,
) -> tuple[list[int], Array, Array]:
    """(axes, start, size) of a crop window, by the rules of `crop`."""
    check_choice("rounding", rounding, ("round", "truncate"))
    layout = x.layout or ""
    depth = "D" if "D" in layout else "F"
    wanted = _crop_sizes(crop, crop_w, crop_h, crop_d)
    count = x.count
    rows = x.shapes.rows
    start = np.zeros((count, x.rank), np.int64)
    size = np.array(np.broadcast_to(rows, (count, x.rank)))
    axes = []
    for letter, position, name in (
        ("H", pos_y, "crop_pos_y"), ("W", pos_x, "crop_pos_x"), (depth, pos_z, "crop_pos_z"),
    ):  # fmt: skip
        extent = wanted.get("D" if letter == depth else letter)
        if letter not in layout or extent is None:
            continue
        axis = layout.index(letter)
        bad = ~((position >= 0) & (position <= 1))
        if bad.any():
            s = int(np.flatnonzero(bad)[0])
            raise ValueError(f"`{name}` must lie in [0, 1], got {float(position[s]):g} for sample {s}")
        cut = np.trunc(extent).astype(np.int64)
        full = rows[:, axis]
        length = np.where(cut > 0, cut, full)
        place = position.astype(np.float64) * (full - length)
        anchor = round_away(place) if rounding == "round" else np.trunc(place).astype(np.int64)
        start[:, axis], size[:, axis] = anchor, length
        axes.append(axis)
    return axes, start, size


def _crop_sizes(
    crop: Array | None, crop_w: Array | None, crop_h: Array | None, crop_d: Array | None
) -> dict[str, Array]:
    given = {n: v for n, v in (("W", crop_w), ("H", crop_h), ("D", crop_d)) if v is not None}
    if given and not {"W", "H"} <= set(given):
        raise ValueError("crop_w and crop_h must be given together")
    if crop is None:
        return given
    if given:
        raise ValueError("`crop` cannot be combined with crop_h, crop_w or crop_d")
    if crop.shape[1] not in (2, 3):
        raise ValueError(f"`crop` must have 2 or 3 values, got {crop.shape[1]}")
    sizes = {"H": crop[:, -2], "W": crop[:, -1]}
    if crop.shape[1] == 3:
        sizes["D"] = crop[:, 0]
    return sizes
