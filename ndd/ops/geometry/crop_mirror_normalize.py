"""Views with arithmetic on top: crop_mirror_normalize and erase."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import numpy as np

from ...core import convert
from ...core.schema import arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIImageType, DType
from ...kernels.ir.expr import Expr
from .borders import CONSTANT_POLICIES, CONSTANT_POLICY_DOC, rule_of
from .window import (
    CROP_ROUNDINGS,
    CROPPED,
    FILL_DOC,
    OLD_DOC,
    POSITION_DOC,
    ROUNDING_DOC,
    beside,
    c_cast,
    checked_axes,
    crop_bounds,
    fill_per_sample,
    named_axes,
    take_window,
)

# -- crop, mirror, normalise ---------------------------------------------------------------------


def _normalized(x: Expr, mean: Expr, std: Expr, scale: Expr, shift: Expr, dtype: DType) -> Expr:
    """(x - mean) * scale / std + shift, with the shift folded into the mean in float64."""
    mean, std, scale, shift = (ex.convert(v, dt.float32) for v in (mean, std, scale, shift))
    m, d, k, t = (ex.cast(v, dt.float64) for v in (mean, std, scale, shift))
    center = ex.cast(m - t * d / k, dt.float32)
    return ex.convert((ex.cast(x, dt.float32) - center) * (scale / std), dtype)


@op.graph(
    layouts=CROPPED, rejects="bool",
    sample="""image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout='HWC')
ndd.crop_mirror_normalize(image, crop=[4, 6], mean=[124], std=[58]).shape
=(3, 4, 6)""",
)  # fmt: skip
def crop_mirror_normalize(
    input=data("Images, sequences or volumes."),
    crop=geometry(float, None, "Size of the window: (H, W) or (D, H, W).", vector=True),
    crop_d=geometry(float, None, "Depth of the window (frames of a sequence)."),
    crop_h=geometry(float, None, "Height of the window; 0 for the full height."),
    crop_pos_x=geometry(float, 0.5, POSITION_DOC),
    crop_pos_y=geometry(float, 0.5, POSITION_DOC),
    crop_pos_z=geometry(float, 0.5, POSITION_DOC),
    crop_w=geometry(float, None, "Width of the window; 0 for the full width."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    fill_values=static("floats", (0.0,), FILL_DOC + " It is not normalised."),
    image_type=static(DALIImageType, None, OLD_DOC),
    mean=arg(float, (0.0,), "Subtracted from each channel.", vector=True),
    mirror=geometry(int, 0, "Mirror the window horizontally."),
    out_of_bounds_policy=static(CONSTANT_POLICIES, "error", CONSTANT_POLICY_DOC),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    output_layout=static(str, "CHW", "Layout of the result: a permutation of the input's."),
    pad_output=static(bool, False, "Pad the channels to a power of two."),
    rounding=static(CROP_ROUNDINGS, "round", ROUNDING_DOC),
    scale=arg(float, 1.0, "Multiplier after normalisation."),
    shift=arg(float, 0.0, "Added after normalisation."),
    std=arg(float, (1.0,), "Divisor of each channel.", vector=True),
):
    """Cut a window, mirror it, normalise its values and change the layout, all in one pass."""
    x, name = input, "crop_mirror_normalize"
    axes, start, size = crop_bounds(
        x, crop, crop_w, crop_h, crop_d, crop_pos_x, crop_pos_y, crop_pos_z, rounding
    )
    target = _output_layout(x.layout, output_layout)
    y = _normalize(x, mean, std, scale, shift, output_dtype or dtype)
    if pad_output and "C" in x.layout:
        y, fill_values = _pad_channels(name, y, fill_values, out_of_bounds_policy)
        size[:, _channel_axis(x)] = y.shapes.rows[:, _channel_axis(x)]
    if axes or pad_output or out_of_bounds_policy != "error":
        y = take_window(name, y, axes, start, size, out_of_bounds_policy, fill_values, x.layout)
    y = build.flip(name, y, [x.layout.index("W")], [mirror], y.batch)
    return build.permute(name, y, [x.layout.index(letter) for letter in target], target)


def _output_layout(layout: str, wanted: str) -> str:
    if not wanted or (wanted == "CHW" and "C" not in layout):
        return layout
    if sorted(wanted) == sorted(layout):
        return wanted
    if wanted == "CHW":
        # the default also serves sequences and volumes: channels go before the spatial axes
        rest = layout.replace("C", "")
        first = min(rest.index(n) for n in "DHW" if n in rest)
        return rest[:first] + "C" + rest[first:]
    raise ValueError(
        f"`output_layout` {wanted!r} is not a permutation of the input's layout {layout!r}"
    )


def _normalize(x: Node, mean: Node, std: Node, scale: Node, shift: Node, dtype: DType) -> Node:
    channel = _channel_axis(x)
    for name, given in (("mean", mean), ("std", std)):
        if channel is not None:
            _check_per_channel(name, given.shapes, x, channel)
        elif bool((given.shapes.volumes != 1).any()):
            raise ValueError(
                f"`{name}` has {given.shapes.rows.max()} values, but the layout {x.layout} has no "
                f"channels"
            )
    inputs = [x, mean, std, scale, shift]
    axes = [tuple(range(x.rank)), *((channel or 0,) * v.rank for v in inputs[1:])]
    return build.pointwise(
        "crop_mirror_normalize", _normalized, inputs, axes, x.shapes, x.layout, (dtype,)
    )


def _check_per_channel(name: str, given: Shapes, x: Node, axis: int) -> None:
    """Require one value or one per channel; `given`: shapes of a scalar or a list."""
    if given.facts and all(n in (1, x.shapes.extent(axis)) for n in given.facts[1:]):
        return  # found without NumPy, which took longer than the rest of the call's checks
    lengths = given.rows
    wrong = ((lengths != 1) & (lengths != x.shapes.rows[:, axis : axis + 1])).any(axis=1)
    if wrong.any():
        s = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"`{name}` has {int(lengths[s % len(lengths), 0])} values, but sample {s} of shape "
            f"{x.shapes.tuples[s]} has {x.shapes.tuples[s][axis]} channels"
        )


def _pad_channels(name: str, x: Node, fill: tuple[float, ...], policy: str):
    """Pad channels to a power of two; returns the node and fill values for all its channels.

    The new channels hold these values only if the window is padded as well, else 0.
    """
    axis = _channel_axis(x)
    assert axis is not None
    size = np.array(x.shapes.rows)
    size[:, axis] = [c and 1 << (c - 1).bit_length() for c in size[:, axis].tolist()]
    if len(fill) == x.shapes.extent(axis) != 1:
        fill = (*fill, *(0.0,) * (int(size[0, axis]) - len(fill)))
    start = np.zeros((1, x.rank), np.int64)
    own = fill if rule_of(policy) == "constant" else ()
    return take_window(name, x, [axis], start, size, "pad", own, x.layout), fill


def _channel_axis(x: Node) -> int | None:
    return x.layout.index("C") if x.layout and "C" in x.layout else None


# -- erase ---------------------------------------------------------------------------------------


def _erased(x: Expr, bounds: Expr, fill: Expr, regions: int, axes: tuple[int, ...]) -> Expr:
    """`fill` inside any region, else `x`; `bounds` holds (low, high) of each region and axis."""
    entries = iter(range(2 * regions * len(axes)))
    inside = []
    for _ in range(regions):
        tests = []
        for axis in axes:
            low, high = (ex.lookup(bounds, ex.const(next(entries), dt.int32)) for _ in range(2))
            tests.append((ex.index(axis) >= low) & (ex.index(axis) < high))
        inside.append(reduce(and_, tests))
    return ex.select(reduce(or_, inside), fill, x)


@op.graph(
    rejects="bool",
    sample="""image = ndd.ones(shape=[8, 8, 3], layout='HWC')
ndd.erase(image, anchor=[2, 2], shape=[3, 3]).shape
=(8, 8, 3)""",
)  # fmt: skip
def erase(
    input=data("Any tensor with a layout."),
    anchor=geometry(float, (), "Start of every region, a number per axis.", matrix=True),
    axes=static("ints", None, "Axes of the regions; all but C, in the layout's order, if omitted."),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    centered_anchor=static(bool, False, "Whether `anchor` is the middle of a region."),
    fill_value=geometry(float, (0.0,), "Value to write, or one per channel.", vector=True),
    normalized=static(bool, None, "Whether `anchor` and `shape` are relative to the extents."),
    normalized_anchor=static(bool, None, "Whether `anchor` is relative to the extents."),
    normalized_shape=static(bool, None, "Whether `shape` is relative to the extents."),
    shape=geometry(float, (), "Extents of every region, a number per axis.", matrix=True),
):
    """Overwrite rectangular regions with a constant."""
    x = input
    chosen = _erase_axes(x, axes, axis_names)
    if anchor.shape[1] != shape.shape[1] or anchor.shape[1] % len(chosen):
        raise ValueError(
            f"`anchor` has {anchor.shape[1]} and `shape` {shape.shape[1]} values; both need "
            f"{len(chosen)} (one per erased axis) for every region"
        )
    if normalized is not None and (normalized_anchor is not None or normalized_shape is not None):
        raise ValueError("`normalized` excludes `normalized_anchor` and `normalized_shape`")
    if not anchor.shape[1]:
        return build.copy("erase", x)
    relative = [bool(normalized if v is None else v) for v in (normalized_anchor, normalized_shape)]
    bounds = _region_bounds(x, chosen, anchor, shape, relative, centered_anchor)
    regions = bounds.shape[1] // (2 * len(chosen))
    table = beside(convert.rows_node(bounds, dt.int32, x.batch), x)
    fill, fill_axes = _erase_fill(x, fill_value)
    inputs = [x, table, fill]
    mapping = [tuple(range(x.rank)), (), fill_axes]
    key = (regions, tuple(chosen))
    return build.pointwise("erase", _erased, inputs, mapping, x.shapes, x.layout, key)


def _erase_axes(x: Node, axes, names) -> list[int]:
    if axes is not None and names is not None:
        raise ValueError("`axes` and `axis_names` exclude each other")
    if axes is not None:
        chosen = checked_axes(axes, x.rank)
    elif names is not None:
        chosen = named_axes(names, x.layout)
    elif x.layout is None:
        raise ValueError("an input without a layout needs `axes`")
    else:
        chosen = [d for d, n in enumerate(x.layout) if n != "C"]
    if not chosen:
        raise ValueError("no axes to erase along")
    return chosen


def _region_bounds(x: Node, axes, anchor, shape, relative, centered):
    """Bounds (low, high), int [samples, regions * axes * 2], padded to a power of two regions."""
    count = x.count
    anchor, shape = (v.reshape(len(v), -1, len(axes)) for v in (anchor, shape))
    if not (np.isfinite(anchor).all() and np.isfinite(shape).all()):
        raise ValueError("`anchor` and `shape` must be finite")
    extents = x.shapes.rows[:, axes].astype(np.float32)[:, None, :]
    low = anchor * extents if relative[0] else anchor
    size = shape * extents if relative[1] else shape
    if centered:
        low = low - size * np.float32(0.5)
    limit = np.float32(2**30)
    # pad to a power of two, so that programs with different numbers of regions share kernels
    regions = anchor.shape[1]
    bounds = np.zeros((count, 1 << (regions - 1).bit_length(), len(axes), 2), np.int32)
    for k, ends in enumerate((low, low + size)):
        bounds[:, :regions, :, k] = np.minimum(np.maximum(ends, -limit), limit)  # truncates
    return bounds.reshape(count, -1)


def _erase_fill(x: Node, values) -> tuple[Node, tuple[int, ...]]:
    if values.shape[1] <= 1:
        rows = values if values.shape[1] else np.zeros((1, 1), np.float32)
        return fill_per_sample(rows[:, 0], x), ()
    if not x.layout or "C" not in x.layout:
        raise ValueError("several values of `fill_value` need an input with a channel axis C")
    axis = x.layout.index("C")
    _check_per_channel("fill_value", Shapes(np.array([[values.shape[1]]])), x, axis)
    rows = [[c_cast(float(v), x.dtype) for v in row] for row in values]
    if len(rows) == 1:
        node = convert.const_vector(tuple(rows[0]), x.dtype)
    else:
        arrays = [convert.stored(np.asarray(row), x.dtype) for row in rows]
        node = convert.copy_arrays(arrays, x.dtype, None, batch=True)
    return beside(node, x), (axis,)
