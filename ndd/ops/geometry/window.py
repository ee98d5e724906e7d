"""Windows of samples: turns arguments of crop and slice into starts, sizes and fill values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import convert
from ...core.inputs import on_gpu
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import MAX_EXTENT, Array, are_within
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from .axis_groups import Uneven
from .borders import bordered, rule_of

CROPPED = "HWC CHW DHWC CDHW FHWC FCHW CFHW FDHWC FCDHW CFDHW HW DHW FHW FDHW"
FILL_DOC = "Value of padding, or one per channel; for out_of_bounds_policy='constant'."
POSITION_DOC = "Relative position of the window: 0 at the beginning, 1 at the end."
OLD_DOC = "Deprecated and without effect."
ROUNDING_DOC = "How the position becomes pixels: round or truncate."
CROP_ROUNDINGS = ("round", "truncate")


def check_numbers(name: str, values: Array) -> Array:
    """Reject values that cannot be a position or an extent: infinite, nan or huge ones."""
    if not are_within(values, -MAX_EXTENT, MAX_EXTENT):
        fits = (values >= -MAX_EXTENT) & (values <= MAX_EXTENT)
        raise ValueError(f"`{name}` is out of range: {values[~fits].flat[0]:g}")
    return values


def round_away(x: Array) -> Array:
    """Nearest integers; halves away from zero."""
    check_numbers("window", x)
    return x if x.dtype.kind == "i" else _rounded(x)


def _rounded(x: Array) -> Array:
    whole = np.trunc(x)
    return (whole + np.copysign(np.abs(x - whole) >= 0.5, x)).astype(np.int64)


def axis_rows(
    x: Node, axes: Uneven | None, names: str | None, layout: str | None, default: str = ""
) -> Uneven:
    """Axis numbers: from `axes` (one row, or one per sample) or from their letters.

    If a row is empty, all axes are meant, in order.
    """
    if axes is not None and names is not None:
        raise ValueError("`axes` and `axis_names` exclude each other")
    if axes is None:
        given = [named_axes(default if names is None else names, layout)]
    else:
        given = [checked_axes(row.tolist(), x.rank) for row in axes]
    rows = [np.array(row or range(x.rank), np.int64) for row in given]
    if len(rows) == 1:
        return rows[0][None]
    return rows if len({len(row) for row in rows}) > 1 else np.stack(rows)


def named_axes(names: str, layout: str | None) -> list[int]:
    """Axis numbers of the letters `names` in a layout."""
    layout = layout or ""
    for name in names:
        if name not in layout:
            shown = repr(layout) if layout else "none"
            raise ValueError(f"axis {name!r} is not present in the layout of the input ({shown})")
    return checked_axes([layout.index(name) for name in names], len(layout))


def checked_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Check axis numbers and resolve negative ones, which count from the end."""
    result: list[int] = []
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(
                f"axis {axis} is out of range [{-rank}, {rank - 1}] for {rank}-D input"
            )
        if axis % rank in result:
            raise ValueError(f"axis {axis} occurs more than once")
        result.append(int(axis) % rank)
    return result


def fill_node(
    values: Sequence[float], x: Node, layout: str | None, size: Array
) -> tuple[Node, tuple[int, ...]]:
    """Fill values in the type of `x`, and the axis they run along; `size`: the result's extents."""
    numbers = tuple(c_cast(v, x.dtype) for v in (values or (0.0,)))
    if len(numbers) == 1:
        return beside(convert.const_scalar(numbers[0], x.dtype), x), ()
    if not layout or "C" not in layout:
        raise ValueError("several `fill_values` were given, but the input has no channel axis C")
    axis = layout.index("C")
    bad = np.flatnonzero(size[:, axis] != len(numbers))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"`fill_values` has {len(numbers)} values, but sample {s} of the result has "
            f"{int(size[s, axis])} channels"
        )
    return beside(convert.const_vector(numbers, x.dtype), x), (axis,)


def on_device(node: Node, ordinal: int | None) -> Node:
    """Move a small host value to the device that needs it."""
    if ordinal is None:
        return node
    return on_gpu(node, ordinal)


def beside(node: Node, x: Node) -> Node:
    """Move a small host value to the device of `x`."""
    return on_device(node, x.device)


def c_cast(value: float, dtype: DType) -> Any:
    """Convert a float as compiled C does: truncate toward zero, then wrap around.

    A value outside the machine's integer (32 bits; 64 for u32, i64, u64) becomes its lowest value.
    """
    if abs(value) < 2.0**127:
        number = float(np.float32(value))
    else:
        with np.errstate(over="ignore"):
            number = float(np.float32(value))
    if dtype.is_float:
        return number
    if not dtype.is_integer:
        return number != 0
    bits = 32 if dtype.bits <= 16 or dtype is dt.int32 else 64
    if dtype is dt.uint64 and number >= 2.0**63:
        return int(number) if number < 2.0**64 else 0
    fits = -(2.0 ** (bits - 1)) <= number < 2.0 ** (bits - 1)
    return ex.wrap(int(number) if fits else -(2 ** (bits - 1)), dtype)


def truncated(op: str, x: Node, dtype: DType | None) -> Node:
    """`x` in another type, truncated toward zero and saturated."""
    if dtype is None or dtype == x.dtype:
        return x
    return build.pointwise(op, _truncate, [x], [tuple(range(x.rank))], x.shapes, x.layout, (dtype,))


def _truncate(x: Expr, dtype: DType) -> Expr:
    top = _LARGEST.get(dtype)
    if top is None or x.dtype.bits <= dtype.bits:
        return ex.convert(x, dtype, "trunc")
    # here floats saturate as well, even infinity; nan stays nan
    exact = x if x.dtype.is_float else ex.cast(x, dt.float32)
    exact = ex.select(exact > top, ex.const(top, exact.dtype), exact)
    return ex.convert(ex.select(exact < -top, ex.const(-top, exact.dtype), exact), dtype)


_LARGEST = {t: float(np.finfo(t.np).max) for t in (dt.float16, dt.float32)}


def take_window(
    op: str,
    x: Node,
    axes: Sequence[int],
    start: Array,
    size: Array,
    policy: str,
    fill_values: Sequence[float],
    layout: str | None,
) -> Node:
    """The window [start, start + size) of every sample; both [samples, rank].

    `layout` names the channel axis, along which several `fill_values` run.
    """
    extents = x.shapes.rows
    rule = rule_of(policy)
    if rule == "constant":
        fill, fill_axes = fill_node(fill_values, x, layout, size)
        return build.window(op, x, axes, start, size, x.batch, fill, fill_axes)
    if rule == "trim_to_shape":
        first = np.clip(start, 0, extents)
        size = np.clip(start + size, 0, extents) - first
        start = first
    elif rule == "error":
        outside = (start < 0) | (start + size > extents)
        if outside.any():
            s = int(np.flatnonzero(outside.any(axis=1))[0])
            raise ValueError(
                f"the window of sample {s} leaves the input: shape {tuple(extents[s].tolist())}, "
                f"start {tuple(start[s].tolist())}, size {tuple(size[s].tolist())}; "
                f"out_of_bounds_policy='pad' or 'trim_to_shape' allow that"
            )
    else:
        return bordered(op, x, axes, start, size, rule)
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
    layout = x.layout or ""
    depth = "D" if "D" in layout else "F"
    wanted = _crop_sizes(crop, crop_w, crop_h, crop_d)
    rows = x.shapes.rows
    start, size = np.zeros(rows.shape, np.int64), rows.copy()
    axes: list[int] = []
    cut: list[tuple[Array, Array]] = []  # extents and relative positions, in the order of `axes`
    for letter, position, name in (
        ("H", pos_y, "crop_pos_y"), ("W", pos_x, "crop_pos_x"), (depth, pos_z, "crop_pos_z"),
    ):  # fmt: skip
        extent = wanted.get("D" if letter == depth else letter)
        if letter not in layout or not wanted:
            continue
        if not are_within(position, 0, 1):
            s = int(np.flatnonzero(~((position >= 0) & (position <= 1)))[0])
            raise ValueError(
                f"`{name}` must lie in [0, 1], got {float(position[s]):g} for sample {s}"
            )
        if extent is not None:
            axes.append(layout.index(letter))
            cut.append((check_numbers("crop", extent), position))
    if not axes:
        return axes, start, size
    # All axes together: operations on short arrays take as long as those on shorter ones.
    length = np.empty((x.count, len(axes)), np.int64)
    place = np.empty((x.count, len(axes)))
    for k, (extent, position) in enumerate(cut):
        length[:, k], place[:, k] = extent, position  # truncates extents
    full = rows[:, axes]
    length = np.where(length > 0, length, full)
    place *= full - length
    start[:, axes] = _rounded(place) if rounding == "round" else place.astype(np.int64)
    size[:, axes] = length
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


def fill_per_sample(values, x: Node) -> Node:
    """Fill values in the type of `x`: one for all samples, or one per sample."""
    numbers = [c_cast(float(v), x.dtype) for v in values]
    if len(numbers) == 1:
        return beside(convert.const_scalar(numbers[0], x.dtype), x)
    arrays = [convert.stored(np.asarray(n), x.dtype) for n in numbers]
    return beside(convert.copy_arrays(arrays, x.dtype, None, batch=True), x)
