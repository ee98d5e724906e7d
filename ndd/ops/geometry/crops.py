"""Exact geometry (flip, crop, slice, pad, transpose): views that cost a fused kernel nothing."""

from __future__ import annotations

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...kernels.ir.dtypes import DALIImageType, DType
from .axis_groups import groups
from .borders import POLICIES, POLICY_DOC
from .window import (
    CROP_ROUNDINGS,
    CROPPED,
    FILL_DOC,
    OLD_DOC,
    POSITION_DOC,
    ROUNDING_DOC,
    axis_rows,
    check_numbers,
    crop_bounds,
    fill_per_sample,
    round_away,
    take_window,
    truncated,
)


@op.graph(
    layouts="FDHWC FHWC DHWC HWC FCDHW FCHW CDHW CHW HW DHW FHW FDHW",
    sample="ndd.flip(ndd.zeros(shape=[2, 3, 1], layout='HWC')).shape\n=(2, 3, 1)",
)
def flip(
    input=data("Images, sequences or volumes."),
    depthwise=geometry(int, 0, "Mirror the axis D."),
    horizontal=geometry(int, 1, "Mirror the axis W."),
    vertical=geometry(int, 0, "Mirror the axis H."),
):
    """Mirror along width, height or depth."""
    chosen = [("W", horizontal), ("H", vertical), ("D", depthwise)]
    present = [(input.layout.index(n), flag) for n, flag in chosen if n in input.layout]
    axes, flags = zip(*present, strict=True)
    return build.flip("flip", input, axes, flags, input.batch)


@op.graph(
    layouts=CROPPED,
    sample="image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout='HWC')\n"
    "ndd.crop(image, crop=[4, 6]).shape\n=(4, 6, 3)",
)  # fmt: skip
def crop(
    input=data("Images, sequences or volumes."),
    crop=geometry(float, None, "Size of the window: (H, W) or (D, H, W).", vector=True),
    crop_d=geometry(float, None, "Depth of the window (frames of a sequence)."),
    crop_h=geometry(float, None, "Height of the window; 0 for the full height."),
    crop_pos_x=geometry(float, 0.5, POSITION_DOC),
    crop_pos_y=geometry(float, 0.5, POSITION_DOC),
    crop_pos_z=geometry(float, 0.5, POSITION_DOC),
    crop_w=geometry(float, None, "Width of the window; 0 for the full width."),
    dtype=static(DType, None, "Element type of the result (truncated toward zero, saturated)."),
    fill_values=static("floats", (0.0,), FILL_DOC),
    image_type=static(DALIImageType, None, OLD_DOC),
    out_of_bounds_policy=static(POLICIES, "error", POLICY_DOC),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    rounding=static(CROP_ROUNDINGS, "round", ROUNDING_DOC),
):
    """Cut a window of a given size at a relative position."""
    axes, start, size = crop_bounds(
        input, crop, crop_w, crop_h, crop_d, crop_pos_x, crop_pos_y, crop_pos_z, rounding
    )
    x = truncated("crop", input, dtype or output_dtype)
    return take_window("crop", x, axes, start, size, out_of_bounds_policy, fill_values, x.layout)


@op.graph(
    enums="moved",
    sample="image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout='HWC')\n"
    "ndd.slice(image, start=[1, 2], shape=[4, 3]).shape\n=(3, 4, 3)",
)  # fmt: skip
def slice(
    data=data("Any tensor."),
    anchor=geometry(
        None, None, "Start of the window per axis.", vector=True, uneven=True, positional=True
    ),
    shape_input=geometry(
        None, None, "Extent of the window.", vector=True, uneven=True, positional=True
    ),
    axes=geometry(
        int, None, "Axes that the bounds apply to; W, H if omitted.", vector=True, uneven=True
    ),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    dtype=static(DType, None, "Element type of the result (truncated toward zero, saturated)."),
    end=geometry(int, None, "End of the window.", vector=True, uneven=True),
    fill_values=static("floats", (0.0,), FILL_DOC),
    image_type=static(DALIImageType, None, OLD_DOC),
    normalized_anchor=static(bool, True, "Whether a float `anchor` is relative to the extents."),
    normalized_shape=static(bool, True, "Whether a float `shape_input` is relative."),
    out_of_bounds_policy=static(POLICIES, "error", POLICY_DOC),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    rel_end=geometry(
        float, None, "End of the window, relative to the extents.", vector=True, uneven=True
    ),
    rel_shape=geometry(float, None, "Extent of the window, relative.", vector=True, uneven=True),
    rel_start=geometry(float, None, "Start of the window, relative.", vector=True, uneven=True),
    shape=geometry(int, None, "Extent of the window.", vector=True, uneven=True),
    start=geometry(int, None, "Start of the window.", vector=True, uneven=True),
):
    """Cut a window, given by its start and its end or extent along chosen axes."""
    x = data
    layout = x.layout or {2: "HW", 3: "HWC", 4: "DHWC"}.get(x.rank)
    chosen = axis_rows(x, axes, axis_names, layout, default="WH")
    named = {
        "start": start, "rel_start": rel_start, "end": end, "rel_end": rel_end, "shape": shape,
        "rel_shape": rel_shape,
    }  # fmt: skip
    if anchor is None and shape_input is None:
        if all(v is None for v in named.values()):
            raise ValueError("bounds are missing: give start/end, start/shape or anchor and shape")
    elif any(v is not None for v in named.values()):
        raise ValueError("named bounds cannot be combined with positional anchor and shape")
    elif anchor is None or shape_input is None:
        raise ValueError("the positional anchor needs a positional shape as well")
    low = np.zeros((x.count, x.rank), np.int64)
    size = np.array(x.shapes.rows)
    given = {"anchor": anchor, "shape_input": shape_input, **named}
    for group, (anchors, lengths, *bounds) in groups(x.count, chosen, given):
        extents = group.of(x.shapes.rows)
        if anchor is None:
            first, last = _named_bounds(*bounds, extents)
        else:
            relative = (normalized_anchor, normalized_shape)
            first, last = _positional_bounds(anchors, lengths, extents, *relative)
        _check_order(first, last, group)
        begin = round_away(first)
        group.put(low, begin)
        group.put(size, round_away(last) - begin)
    x = truncated("slice", x, dtype or output_dtype)
    return take_window(
        "slice", x, _union(chosen), low, size, out_of_bounds_policy, fill_values, layout
    )


def _union(axes) -> list[int]:
    """All axes that some sample has."""
    return sorted({axis for row in axes for axis in row.tolist()})


def _check_order(first, last, group) -> None:
    if bool((last < first).any()):
        first, last = np.broadcast_arrays(first.astype(np.float64), last.astype(np.float64))
        k = int(np.flatnonzero((last < first).any(axis=1))[0])
        raise ValueError(
            f"the end of the window lies before its start in sample {group.number(k)}: start "
            f"{tuple(first[k].tolist())}, end {tuple(last[k].tolist())}"
        )


def _spread(name: str, values, extents):
    """Check one value for all axes, or one per axis, of one sample or of all."""
    if values.shape[1] not in (1, extents.shape[1]):
        raise ValueError(f"`{name}` has {values.shape[1]} values for {extents.shape[1]} axes")
    return check_numbers(name, values)


def _named_bounds(start, rel_start, end, rel_end, shape, rel_shape, extents):
    if start is not None and rel_start is not None:
        raise ValueError("`start` and `rel_start` exclude each other")
    ends = {"end": end, "rel_end": rel_end, "shape": shape, "rel_shape": rel_shape}
    given = {n: v for n, v in ends.items() if v is not None}
    if len(given) > 1:
        raise ValueError("`end`, `rel_end`, `shape` and `rel_shape` exclude each other")
    sizes = extents.astype(np.float32)
    if rel_start is not None:
        first = (_spread("rel_start", rel_start, extents) * sizes).astype(np.float64)
    elif start is not None:
        first = _spread("start", start, extents)
    else:
        first = np.zeros((1, 1), np.int64)
    name, value = next(iter(given.items()), (None, None))
    if name is None:
        return first, extents
    value = _spread(name, value, extents)
    if name in ("shape", "rel_shape") and bool((value < 0).any()):
        raise ValueError(f"`{name}` must not be negative, got {value.min():g}")
    if name == "end":
        return first, value
    if name == "rel_end":
        return first, (value * sizes).astype(np.float64)
    if name == "shape":
        return first, first + value
    if rel_start is not None:
        # both are relative: add first and multiply in float64, so that start + shape = 1 is the end
        exact = (_spread("rel_start", rel_start, extents).astype(np.float64) + value) * extents
        return first, np.maximum(exact, np.where(value == 0, first, exact))
    return first, first + (value * sizes).astype(np.float64)


def _positional_bounds(anchor, shape, extents, normalized_anchor, normalized_shape):
    if anchor is None or shape is None:
        raise ValueError(f"anchor and shape need {extents.shape[1]} values, one of them is empty")
    kinds = {anchor.dtype.kind, shape.dtype.kind}
    if kinds == {"i", "f"}:
        raise TypeError("anchor and shape must both be integers or both be floats")
    for name, values in (("anchor", anchor), ("shape", shape)):
        if values.shape[1] != extents.shape[1]:
            raise ValueError(f"`{name}` needs {extents.shape[1]} values, got {values.shape[1]}")
        check_numbers(name, values)
    first = np.broadcast_to(anchor.astype(np.float64), extents.shape)
    length = np.broadcast_to(shape.astype(np.float64), extents.shape)
    if kinds == {"i"}:
        return first, first + length
    if normalized_anchor and normalized_shape:
        return first * extents, (first + length) * extents
    first = first * extents if normalized_anchor else first
    return first, first + (length * extents if normalized_shape else length)


@op.graph(
    enums="moved",
    sample="ndd.pad(ndd.batch([[1, 2, 3], [4]])).shape\n=[(3,), (3,)]",
)  # fmt: skip
def pad(
    input=data("Any tensor of at least one dimension."),
    align=geometry(int, None, "Extents become multiples of this.", vector=True, uneven=True),
    axes=geometry(int, None, "Axes to pad; all if omitted.", vector=True, uneven=True),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    fill_value=geometry(float, 0.0, "Value of the padding."),
    shape=geometry(
        int, None, "Minimum extents; -1 for the largest of the batch.", vector=True, uneven=True
    ),
):
    """Pad samples at the end: to a shape, an alignment, or the largest sample of the batch."""
    x = input
    if x.rank == 0:
        raise ValueError("a scalar cannot be padded")
    chosen = axis_rows(x, axes, axis_names, x.layout)
    largest = x.shapes.rows.max(axis=0)
    size = np.array(x.shapes.rows)
    for group, (least, multiple) in groups(x.count, chosen, {"shape": shape, "align": align}):
        extents = group.of(x.shapes.rows)
        group.put(size, _padded(largest[group.axes], extents, least, multiple))
    fill = fill_per_sample(fill_value, x)
    start = np.zeros((1, x.rank), np.int64)
    return build.window("pad", x, _union(chosen), start, size, x.batch, fill)


def _padded(largest, extents, shape, align):
    """The extents of padded axes."""
    want = largest
    if shape is not None:
        given = _spread("shape", shape, extents)
        want = np.maximum(np.where(given > 0, given, want), extents)
    if align is not None:
        multiple = _spread("align", align, extents)
        if bool((multiple <= 0).any()):
            raise ValueError(f"`align` must be positive, got {int(multiple.min())}")
        want = -(-want // multiple) * multiple
    return want


@op.graph(
    enums="moved",
    sample="ndd.transpose(ndd.zeros(shape=[2, 3, 4]), perm=[2, 0, 1]).shape\n=(4, 2, 3)",
)
def transpose(
    input=data("Any tensor."),
    output_layout=static(str, None, "Layout of the result; does not change the order of axes."),
    perm=static("ints", None, "Axis k of the result is input axis perm[k]; reversed if omitted."),
    transpose_layout=static(bool, True, "Whether the layout's letters move with their axes."),
):  # fmt: skip
    """Reorder the axes."""
    rank = input.rank
    order = list(perm) if perm is not None else list(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise ValueError(f"`perm` must be a permutation of the {rank} axes, got {tuple(order)}")
    layout = input.layout
    if layout and transpose_layout:
        layout = "".join(layout[k] for k in order)
    if output_layout is not None:
        if len(output_layout) != rank or not output_layout:
            raise ValueError(f"`output_layout` {output_layout!r} does not fit {rank} axes")
        layout = output_layout
    return build.permute("transpose", input, order, layout)
