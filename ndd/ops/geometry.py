"""Exact geometry: every op here is a view, which costs a fused kernel nothing."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import numpy as np

from .. import convert
from ..fusion import build
from ..fusion.graph import Node, Shapes
from ..kernels import dtypes as dt
from ..kernels import expr as ex
from ..kernels.dtypes import DALIImageType, DType
from ..kernels.expr import Expr
from ..schema import arg, data, geometry, op, static
from .window import (
    axis_rows,
    beside,
    c_cast,
    check_extents,
    check_numbers,
    checked_axes,
    crop_bounds,
    named_axes,
    round_away,
    take_window,
    truncated,
)

CROPPED = "HWC CHW DHWC CDHW FHWC FCHW CFHW FDHWC FCDHW CFDHW"
_POLICY = "What to do with a window that leaves the input: error, pad or trim_to_shape."
_FILL = "Value of padding, or one per channel; for out_of_bounds_policy='pad'."
_POSITION = "Relative position of the window: 0 at the beginning, 1 at the end."
_OLD = "Deprecated and without effect."


@op.graph(
    layouts="FDHWC FHWC DHWC HWC FCDHW FCHW CDHW CHW",
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
    layouts=CROPPED, rejects="bool",
    sample="image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout='HWC')\n"
    "ndd.crop(image, crop=[4, 6]).shape\n=(4, 6, 3)",
)  # fmt: skip
def crop(
    input=data("Images, sequences or volumes."),
    crop=geometry(float, None, "Size of the window: (H, W) or (D, H, W).", vector=True),
    crop_d=geometry(float, None, "Depth of the window (frames of a sequence)."),
    crop_h=geometry(float, None, "Height of the window; 0 for all."),
    crop_pos_x=geometry(float, 0.5, _POSITION),
    crop_pos_y=geometry(float, 0.5, _POSITION),
    crop_pos_z=geometry(float, 0.5, _POSITION),
    crop_w=geometry(float, None, "Width of the window; 0 for all."),
    dtype=static(DType, None, "Element type of the result (cut toward zero, saturated)."),
    fill_values=static("floats", (0.0,), _FILL),
    image_type=static(DALIImageType, None, _OLD),
    out_of_bounds_policy=static(str, "error", _POLICY),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    rounding=static(str, "round", "How the position becomes pixels: round or truncate."),
):
    """Cut a window of a given size at a relative position."""
    axes, start, size = crop_bounds(
        input, crop, crop_w, crop_h, crop_d, crop_pos_x, crop_pos_y, crop_pos_z, rounding
    )
    x = truncated("crop", input, dtype or output_dtype)
    return take_window("crop", x, axes, start, size, out_of_bounds_policy, fill_values, x.layout)


@op.graph(
    rejects="bool",
    sample="image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout='HWC')\n"
    "ndd.slice(image, start=[1, 2], shape=[4, 3]).shape\n=(3, 4, 3)",
)  # fmt: skip
def slice(
    data=data("Any tensor."),
    anchor=geometry(None, None, "Start of the window per axis.", vector=True, positional=True),
    shape_input=geometry(None, None, "Extent of the window.", vector=True, positional=True),
    axes=geometry(int, None, "Axes of the window's numbers; W, H if omitted.", vector=True),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    dtype=static(DType, None, "Element type of the result (cut toward zero, saturated)."),
    end=geometry(int, None, "End of the window.", vector=True),
    fill_values=static("floats", (0.0,), _FILL),
    image_type=static(DALIImageType, None, _OLD),
    normalized_anchor=static(bool, True, "Whether a float `anchor` is relative to the extents."),
    normalized_shape=static(bool, True, "Whether a float `shape_input` is relative."),
    out_of_bounds_policy=static(str, "error", _POLICY),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    rel_end=geometry(float, None, "End of the window, relative to the extents.", vector=True),
    rel_shape=geometry(float, None, "Extent of the window, relative.", vector=True),
    rel_start=geometry(float, None, "Start of the window, relative.", vector=True),
    shape=geometry(int, None, "Extent of the window.", vector=True),
    start=geometry(int, None, "Start of the window.", vector=True),
):
    """Cut a window given by start and end or extent along chosen axes."""
    x = data
    layout = x.layout or {2: "HW", 3: "HWC", 4: "DHWC"}.get(x.rank)
    chosen = axis_rows(x, axes, axis_names, layout, default="WH")
    extents = np.take_along_axis(x.shapes.rows, chosen, axis=1)
    named = (start, rel_start, end, rel_end, shape, rel_shape)
    if anchor is None and shape_input is None:
        first, last = _named_bounds(*named, extents)
    elif any(v is not None for v in named):
        raise ValueError("named bounds cannot be combined with positional anchor and shape")
    elif anchor is None or shape_input is None:
        raise ValueError("the positional anchor needs a positional shape as well")
    else:
        relative = (normalized_anchor, normalized_shape)
        first, last = _positional_bounds(anchor, shape_input, extents, *relative)
    if bool((last < first).any()):
        s = int(np.flatnonzero((last < first).any(axis=1))[0])
        raise ValueError(
            f"the end of the window lies before its start in sample {s}: start "
            f"{tuple(first[s].tolist())}, end {tuple(last[s].tolist())}"
        )
    low = np.zeros((x.count, x.rank), np.int64)
    size = np.array(x.shapes.rows)
    np.put_along_axis(low, chosen, round_away(first), axis=1)
    np.put_along_axis(size, chosen, round_away(last) - round_away(first), axis=1)
    x = truncated("slice", x, dtype or output_dtype)
    moved = np.unique(chosen).tolist()
    return take_window("slice", x, moved, low, size, out_of_bounds_policy, fill_values, layout)


def _spread(name: str, values, extents):
    """One value for all axes, or one per axis; for every sample."""
    if values.shape[1] not in (1, extents.shape[1]):
        raise ValueError(f"`{name}` has {values.shape[1]} values for {extents.shape[1]} axes")
    return np.broadcast_to(check_numbers(name, values), extents.shape)


def _named_bounds(start, rel_start, end, rel_end, shape, rel_shape, extents):
    if start is not None and rel_start is not None:
        raise ValueError("`start` and `rel_start` exclude each other")
    ends = {"end": end, "rel_end": rel_end, "shape": shape, "rel_shape": rel_shape}
    given = {n: v for n, v in ends.items() if v is not None}
    if len(given) > 1:
        raise ValueError("`end`, `rel_end`, `shape` and `rel_shape` exclude each other")
    if start is None and rel_start is None and not given:
        raise ValueError("bounds are missing: give start/end, start/shape or anchor and shape")
    sizes = extents.astype(np.float32)
    if rel_start is not None:
        first = (_spread("rel_start", rel_start, extents) * sizes).astype(np.float64)
    elif start is not None:
        first = _spread("start", start, extents).astype(np.float64)
    else:
        first = np.zeros(extents.shape)
    name, value = next(iter(given.items()), (None, None))
    if name is None:
        return first, extents.astype(np.float64)
    value = _spread(name, value, extents)
    if name in ("shape", "rel_shape") and bool((value < 0).any()):
        raise ValueError(f"`{name}` must not be negative, got {value.min():g}")
    if name == "end":
        return first, value.astype(np.float64)
    if name == "rel_end":
        return first, (value * sizes).astype(np.float64)
    if name == "shape":
        return first, first + value
    if rel_start is not None:
        # both relative: one product in double precision, so that start + shape = 1 is the very end
        exact = (_spread("rel_start", rel_start, extents).astype(np.float64) + value) * extents
        return first, np.maximum(exact, np.where(value == 0, first, exact))
    return first, first + (value * sizes).astype(np.float64)


def _positional_bounds(anchor, shape, extents, normalized_anchor, normalized_shape):
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
    sample="ndd.pad(ndd.batch([[1, 2, 3], [4]])).shape\n=[(3,), (3,)]",
)  # fmt: skip
def pad(
    input=data("Any tensor of at least one dimension."),
    align=geometry(int, None, "Extents become multiples of this.", vector=True),
    axes=geometry(int, None, "Axes to pad; all if omitted.", vector=True),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
    fill_value=geometry(float, 0.0, "Value of the padding."),
    shape=geometry(int, None, "Least extents; -1 for the largest of the batch.", vector=True),
):
    """Extend samples at the end: to a shape, to an alignment, or to the largest of the batch."""
    x = input
    if x.rank == 0:
        raise ValueError("a scalar cannot be padded")
    chosen = axis_rows(x, axes, axis_names, x.layout)
    extents = np.take_along_axis(x.shapes.rows, chosen, axis=1)
    want = x.shapes.rows.max(axis=0)[chosen]
    if shape is not None:
        given = _spread("shape", shape, extents)
        want = np.maximum(np.where(given > 0, given, want), extents)
    if align is not None:
        multiple = _spread("align", align, extents)
        if bool((multiple <= 0).any()):
            raise ValueError(f"`align` must be positive, got {int(multiple.min())}")
        want = -(-want // multiple) * multiple
    size = np.array(x.shapes.rows)
    np.put_along_axis(size, chosen, want, axis=1)
    fill = _fill_per_sample(fill_value, x)
    start = np.zeros((1, x.rank), np.int64)
    padded = np.unique(chosen).tolist()
    return build.window("pad", x, padded, start, check_extents(size), x.batch, fill)


def _fill_per_sample(values, x: Node) -> Node:
    """Fill values in the type of `x`, one or one per sample."""
    numbers = [c_cast(float(v), x.dtype) for v in values]
    if len(numbers) == 1:
        return beside(convert.const_scalar(numbers[0], x.dtype), x)
    arrays = [convert.stored(np.asarray(n), x.dtype) for n in numbers]
    return beside(convert.copy_arrays(arrays, x.dtype, None, batch=True), x)


@op.graph(sample="ndd.transpose(ndd.zeros(shape=[2, 3, 4]), perm=[2, 0, 1]).shape\n=(4, 2, 3)")
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


# -- joining -------------------------------------------------------------------------------------


def _same_kind(inputs: tuple[Node, ...]) -> None:
    first = inputs[0]
    for i, x in enumerate(inputs):
        if x.dtype != first.dtype or x.rank != first.rank:
            raise ValueError(
                f"all inputs must have one type and rank: input 0 is {first.dtype} {first.rank}-D, "
                f"input {i} is {x.dtype} {x.rank}-D"
            )


def _join(op_name, inputs, mapping, axis, starts, shapes, layout):
    """Tile the output with the inputs; input k begins at starts[k] on `axis`."""
    batch = inputs[0].batch
    parts = []
    for x, start in zip(inputs, starts, strict=True):
        offset = np.zeros((len(start), x.rank), np.int64)
        for d, a in enumerate(mapping):
            if a == axis:
                offset[:, d] = -start
        parts.append(build.part(op_name, x, mapping, axis, offset, shapes, batch))
    return build.merge(op_name, parts, shapes, layout, batch)


def _concatenate(name: str, inputs: tuple[Node, ...], axis: int, layout: str | None) -> Node:
    first = inputs[0]
    extents = [x.shapes.rows[:, axis] for x in inputs]
    rows = np.array(first.shapes.rows)
    rows[:, axis] = np.sum(extents, axis=0)
    starts = np.cumsum([np.zeros_like(extents[0]), *extents[:-1]], axis=0)
    return _join(name, inputs, tuple(range(first.rank)), axis, starts, Shapes(rows), layout)


# More parts than this are joined in several rounds: each part adds a test to every element.
MAX_PARTS = 8


def _concatenate_all(name: str, inputs: tuple[Node, ...], axis: int, layout: str | None) -> Node:
    while len(inputs) > MAX_PARTS:
        rounds = range(0, len(inputs), MAX_PARTS)
        inputs = tuple(_concatenate(name, inputs[i : i + MAX_PARTS], axis, layout) for i in rounds)
    return _concatenate(name, inputs, axis, layout)


@op.graph(sample="ndd.cat(ndd.zeros(shape=[2, 3]), ndd.ones(shape=[1, 3])).shape\n=(3, 3)")
def cat(
    inputs=data("Tensors that differ only along the joined axis.", variadic=True),
    axis=static(int, None, "Axis along which to join; 0 if omitted."),
    axis_name=static(str, None, "Letter of this axis, instead of `axis`."),
):
    """Join along an existing axis."""
    _same_kind(inputs)
    first = inputs[0]
    if axis is not None and axis_name is not None:
        raise ValueError("`axis` and `axis_name` exclude each other")
    if axis_name is not None:
        if len(axis_name) != 1:
            raise ValueError(f"`axis_name` must be one letter, got {axis_name!r}")
        axis = named_axes(axis_name, first.layout)[0]
    if first.rank == 0:
        raise ValueError("scalars cannot be joined with cat; use stack")
    (axis,) = checked_axes([axis or 0], first.rank)
    return _concatenate_all("cat", _fitting(inputs, axis), axis, first.layout)


def _fitting(inputs: tuple[Node, ...], axis: int) -> tuple[Node, ...]:
    """The inputs, checked to differ only along `axis`; one without any elements fits everywhere."""
    filled = tuple(x for x in inputs if x.shapes.volumes.any()) or inputs
    first = filled[0]
    for x in filled[1:]:
        differs = x.shapes.rows != first.shapes.rows
        differs[:, axis] = False
        if differs.any():
            s = int(np.flatnonzero(differs.any(axis=1))[0])
            places = (next(i for i, other in enumerate(inputs) if other is n) for n in (first, x))
            raise ValueError(
                f"inputs may differ only along axis {axis}: sample {s} of input {next(places)} has "
                f"shape {first.shapes.tuples[s]}, of input {next(places)} {x.shapes.tuples[s]}"
            )
    return filled


@op.graph(sample="ndd.stack(ndd.zeros(shape=[3]), ndd.ones(shape=[3])).shape\n=(2, 3)")
def stack(
    inputs=data("Tensors of equal shape.", variadic=True),
    axis=static(int, 0, "Place of the new axis; negative ones count from the end."),
    axis_name=static(str, None, "Letter of the new axis in the result's layout."),
):
    """Join along a new axis."""
    _same_kind(inputs)
    first = inputs[0]
    rank = first.rank
    if not -rank <= axis <= rank:
        raise ValueError(f"`axis` must lie in [{-rank}, {rank}] for {rank}-D inputs, got {axis}")
    axis = axis if axis >= 0 else axis + rank + 1
    layout = None
    if axis_name is not None:
        if len(axis_name) != 1:
            raise ValueError(f"`axis_name` must be one letter, got {axis_name!r}")
        if rank and not first.layout:
            raise ValueError("`axis_name` needs an input with a layout")
        old = first.layout or ""
        layout = old[:axis] + axis_name + old[axis:]
    for i, x in enumerate(inputs):
        if not x.shapes.same_as(first.shapes):
            s = next(s for s in range(x.count) if x.shapes.tuples[s] != first.shapes.tuples[s])
            raise ValueError(
                f"inputs must have equal shapes: sample {s} of input 0 has "
                f"{first.shapes.tuples[s]}, of input {i} {x.shapes.tuples[s]}"
            )
    expanded = tuple(build.add_axes("stack", x, [axis], None) for x in inputs)
    return _concatenate_all("stack", expanded, axis, layout)


# -- shapes --------------------------------------------------------------------------------------


def _wildcards(shape, total, x: Node):
    """Extents with at most one negative one replaced, so that the volume is `total`."""
    shape = np.array(np.broadcast_to(shape, (x.count, shape.shape[1])))
    wild = shape < 0
    if bool((wild.sum(axis=1) > 1).any()):
        raise ValueError(f"only one extent may be negative, got {tuple(shape[0].tolist())}")
    known = np.where(wild, 1, shape).astype(np.float64).prod(axis=1)
    rest = np.where(known > 0, total // np.maximum(known, 1), 0).astype(np.int64)
    shape = np.where(wild, rest[:, None], shape)
    # as floats, since extents may be absurd; exact for every volume that exists
    bad = (shape.astype(np.float64).prod(axis=1) != total) | (wild.any(axis=1) & (known == 0))
    if bad.any():
        s = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"sample {s} of shape {x.shapes.tuples[s]} has {int(total[s])} elements to place, "
            f"which do not fill the shape {tuple(shape[s].tolist())}"
        )
    return shape


def _new_shape(x: Node, shape_input, shape, rel_shape, src_dims, bytes_from: int, bytes_to: int):
    """The extents that reshape and reinterpret ask for."""
    given = [v for v in (shape_input, shape, rel_shape) if v is not None]
    if len(given) > 1:
        raise ValueError("a positional shape, `shape` and `rel_shape` exclude each other")
    total = x.shapes.volumes * bytes_from
    if bool((total % bytes_to).any()):
        raise ValueError(f"the sample's bytes do not divide into elements of {bytes_to} bytes")
    if rel_shape is not None:
        want = _relative_shape(x, rel_shape, src_dims)
    elif given:
        want = check_numbers("shape", given[0])
    else:
        want = _taken_extents(x, src_dims)
        if bytes_from != bytes_to:
            want = _inner_in_bytes(want, bytes_from, bytes_to)
    return Shapes(_wildcards(want, total // bytes_to, x))


def _taken_extents(x: Node, src_dims):
    """Extents of the input's axes `src_dims` (one row, or one per sample); 1 for -1."""
    rows = np.array(x.shapes.rows)
    if src_dims is None:
        return rows
    if bool(((src_dims < -1) | (src_dims >= x.rank)).any()):
        got = tuple(src_dims[0].tolist())
        raise ValueError(f"`src_dims` must lie in [-1, {x.rank - 1}], got {got}")
    with_one = np.concatenate([rows, np.ones((x.count, 1), np.int64)], axis=1)
    dims = np.broadcast_to(src_dims % (x.rank + 1), (x.count, src_dims.shape[1]))
    return np.take_along_axis(with_one, dims, axis=1)


def _relative_shape(x: Node, rel_shape, src_dims):
    check_numbers("rel_shape", rel_shape)
    base = _taken_extents(x, src_dims)
    count = rel_shape.shape[1]
    extra = count - base.shape[1]
    if src_dims is not None and extra:
        raise ValueError(f"`src_dims` has {base.shape[1]} values, `rel_shape` {count}")
    if extra > 0 and not (extra == 1 and bool((rel_shape[:, -1] < 0).all())):
        raise ValueError(f"`rel_shape` has {count} values, the input has {x.rank} dimensions")
    base = np.concatenate([base, np.ones((x.count, max(extra, 0)), np.int64)], axis=1)[:, :count]
    return np.where(rel_shape < 0, -1, round_away(rel_shape * base.astype(np.float32)))


def _inner_in_bytes(rows, bytes_from: int, bytes_to: int):
    """Extents with the innermost one counted in elements of another size."""
    if rows.shape[1] == 0:
        raise ValueError("a scalar cannot become another size of type")
    inner = rows[:, -1] * bytes_from
    if bool((inner % bytes_to).any()):
        raise ValueError(
            f"the innermost extent {int(rows[0, -1])} x {bytes_from} bytes does not divide into "
            f"elements of {bytes_to} bytes"
        )
    rows[:, -1] = inner // bytes_to
    return rows


def _new_layout(x: Node, shapes: Shapes, layout: str | None) -> str | None:
    if layout is not None:
        if layout and len(layout) != shapes.rank:
            raise ValueError(f"layout {layout!r} does not fit a shape of {shapes.rank} dimensions")
        return layout or None
    return x.layout if shapes.rank == x.rank else None


_SHAPE = "Extents of the result; one negative extent is computed from the others."
_REL_SHAPE = "Extents relative to those of the input; one negative extent is computed."
_SRC_DIMS = "Input axis of every extent; -1 inserts an extent of 1."


@op.graph(sample="ndd.reshape(ndd.zeros(shape=[2, 6]), shape=[3, -1]).shape\n=(3, 4)")
def reshape(
    data=data("Any tensor."),
    shape_input=geometry(int, None, _SHAPE, vector=True, positional=True),
    layout=static(str, None, "Layout of the result; kept if omitted and the rank is the same."),
    rel_shape=geometry(float, None, _REL_SHAPE, vector=True),
    shape=geometry(int, None, _SHAPE, vector=True),
    src_dims=geometry(int, None, _SRC_DIMS, vector=True),
):
    """Change shape and layout without moving data."""
    if all(v is None for v in (shape_input, shape, rel_shape, src_dims, layout)):
        raise ValueError("nothing to do: give a shape, `rel_shape`, `src_dims` or `layout`")
    shapes = _new_shape(data, shape_input, shape, rel_shape, src_dims, 1, 1)
    return build.alias("reshape", data, shapes, data.dtype, _new_layout(data, shapes, layout))


@op.graph(sample="ndd.reinterpret(ndd.zeros(shape=[2, 3]), dtype=ndd.uint8).shape\n=(2, 12)")
def reinterpret(
    data=data("Any tensor."),
    shape_input=geometry(int, None, _SHAPE, vector=True, positional=True),
    dtype=static(DType, None, "Element type of the result."),
    layout=static(str, None, "Layout of the result; kept if omitted and the rank is the same."),
    rel_shape=geometry(float, None, _REL_SHAPE, vector=True),
    shape=geometry(int, None, _SHAPE, vector=True),
    src_dims=geometry(int, None, _SRC_DIMS, vector=True),
):
    """Read the same bytes as another element type or shape."""
    if all(v is None for v in (shape_input, shape, rel_shape, src_dims, layout, dtype)):
        raise ValueError("nothing to do: give a shape, `src_dims`, `layout` or `dtype`")
    kind = dtype or data.dtype
    shapes = _new_shape(data, shape_input, shape, rel_shape, src_dims, data.dtype.bytes, kind.bytes)
    return build.alias("reinterpret", data, shapes, kind, _new_layout(data, shapes, layout))


@op.graph(sample="ndd.squeeze(ndd.zeros(shape=[1, 3]), axes=[0]).shape\n=(3,)")
def squeeze(
    data=data("Any tensor."),
    axes=static("ints", None, "Axes of extent 1 to remove."),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
):
    """Remove axes of extent 1."""
    if (axes is None) == (axis_names is None):
        raise ValueError("give either `axes` or `axis_names`")
    if axes is not None:
        chosen = checked_axes(axes, data.rank)
    else:
        chosen = named_axes(axis_names, data.layout)
    for axis in chosen:
        extents = data.shapes.rows[:, axis]
        bad = np.flatnonzero(extents != 1)
        if len(bad):
            s = int(bad[0])
            raise ValueError(f"axis {axis} of sample {s} has extent {int(extents[s])}, not 1")
    layout = data.layout and "".join(n for d, n in enumerate(data.layout) if d not in chosen)
    return build.drop_axes("squeeze", data, chosen, layout or None)


@op.graph(sample="ndd.expand_dims(ndd.zeros(shape=[3]), axes=[0]).shape\n=(1, 3)")
def expand_dims(
    data=data("Any tensor."),
    axes=static("ints", None, "Places of the new axes in the result."),
    new_axis_names=static(str, "", "Letters of the new axes; without them the layout is dropped."),
):
    """Add axes of extent 1."""
    if axes is None:
        raise TypeError("argument `axes` is required")
    rank = data.rank + len(axes)
    if any(a < 0 for a in axes):
        raise ValueError(f"`axes` must not be negative, got {axes}")
    if len(set(axes)) != len(axes):
        raise ValueError(f"`axes` must differ from each other, got {axes}")
    if any(a >= rank for a in axes):
        raise ValueError(f"`axes` {axes} leave gaps: the result has {rank} dimensions")
    layout = data.layout if not axes else None
    if new_axis_names:
        if len(new_axis_names) != len(axes):
            raise ValueError(f"`new_axis_names` {new_axis_names!r} must name {len(axes)} axes")
        if data.rank and not data.layout:
            raise ValueError("`new_axis_names` needs an input with a layout")
        old = iter(data.layout or "")
        new = dict(zip(axes, new_axis_names, strict=True))
        layout = "".join(new.get(a) or next(old) for a in range(rank))
    return build.add_axes("expand_dims", data, list(axes), layout)


# -- crop, mirror, normalise ---------------------------------------------------------------------


def _normalized(x: Expr, mean: Expr, std: Expr, scale: Expr, shift: Expr, dtype: DType) -> Expr:
    """(x - centre) * scale / std; the centre takes up the shift, in double precision."""
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
    crop_h=geometry(float, None, "Height of the window; 0 for all."),
    crop_pos_x=geometry(float, 0.5, _POSITION),
    crop_pos_y=geometry(float, 0.5, _POSITION),
    crop_pos_z=geometry(float, 0.5, _POSITION),
    crop_w=geometry(float, None, "Width of the window; 0 for all."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    fill_values=static("floats", (0.0,), _FILL + " Written as it is."),
    image_type=static(DALIImageType, None, _OLD),
    mean=arg(float, (0.0,), "Subtracted from each channel.", vector=True),
    mirror=geometry(int, 0, "Mirror the window horizontally."),
    out_of_bounds_policy=static(str, "error", _POLICY),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    output_layout=static(str, "CHW", "Layout of the result: a permutation of the input's."),
    pad_output=static(bool, False, "Pad the channels to a power of two."),
    rounding=static(str, "round", "How the position becomes pixels: round or truncate."),
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
    if pad_output:
        y, fill_values = _pad_channels(name, y, fill_values, out_of_bounds_policy)
        size[:, _channel_axis(x)] = y.shapes.rows[:, _channel_axis(x)]
    y = take_window(name, y, axes, start, size, out_of_bounds_policy, fill_values, x.layout)
    y = build.flip(name, y, [x.layout.index("W")], [mirror], y.batch)
    return build.permute(name, y, [x.layout.index(letter) for letter in target], target)


def _output_layout(layout: str, wanted: str) -> str:
    if not wanted:
        return layout
    if sorted(wanted) == sorted(layout):
        return wanted
    if wanted == "CHW":
        # the default, for sequences and volumes: channels before the spatial axes
        rest = layout.replace("C", "")
        first = min(rest.index(n) for n in "DHW" if n in rest)
        return rest[:first] + "C" + rest[first:]
    raise ValueError(
        f"`output_layout` {wanted!r} is not a permutation of the input's layout {layout!r}"
    )


def _normalize(x: Node, mean: Node, std: Node, scale: Node, shift: Node, dtype: DType) -> Node:
    channel = _channel_axis(x)
    _check_per_channel("mean", mean.shapes.rows, x, channel)
    _check_per_channel("std", std.shapes.rows, x, channel)
    inputs = [x, mean, std, scale, shift]
    axes = [tuple(range(x.rank)), *((channel,) * v.rank for v in inputs[1:])]
    return build.pointwise(
        "crop_mirror_normalize", _normalized, inputs, axes, x.shapes, x.layout, (dtype,)
    )


def _check_per_channel(name: str, lengths, x: Node, axis: int) -> None:
    """Numbers of values [samples or 1, 1], or [.., 0] for a number, against the channels."""
    wrong = ((lengths != 1) & (lengths != x.shapes.rows[:, axis : axis + 1])).any(axis=1)
    if wrong.any():
        s = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"`{name}` has {int(lengths[s % len(lengths), 0])} values, but sample {s} of shape "
            f"{x.shapes.tuples[s]} has {x.shapes.tuples[s][axis]} channels"
        )


def _pad_channels(name: str, x: Node, fill: tuple[float, ...], policy: str):
    """Channels up to a power of two, and fill values for all of them; new channels hold these only
    if the window is padded as well."""
    axis = _channel_axis(x)
    size = np.array(x.shapes.rows)
    size[:, axis] = [c and 1 << (c - 1).bit_length() for c in size[:, axis].tolist()]
    if len(fill) == x.shapes.extent(axis) != 1:
        fill = (*fill, *(0.0,) * (int(size[0, axis]) - len(fill)))
    start = np.zeros((1, x.rank), np.int64)
    own = fill if policy == "pad" else ()
    return take_window(name, x, [axis], start, size, "pad", own, x.layout), fill


def _channel_axis(x: Node) -> int:
    return (x.layout or "").index("C")


# -- erase ---------------------------------------------------------------------------------------


def _erased(x: Expr, bounds: Expr, fill: Expr, regions: int, axes: tuple[int, ...]) -> Expr:
    """`fill` inside any region. `bounds` holds low and high of every axis of every region."""
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
    table = beside(convert.copy_arrays(list(bounds.astype(np.int32)), dt.int32, None, x.batch), x)
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
    """int [samples, regions * axes * 2]: low and high; the number of regions is a power of two."""
    count = x.count
    anchor = np.broadcast_to(anchor, (count, anchor.shape[1])).reshape(count, -1, len(axes))
    shape = np.broadcast_to(shape, (count, shape.shape[1])).reshape(count, -1, len(axes))
    if not (np.isfinite(anchor).all() and np.isfinite(shape).all()):
        raise ValueError("`anchor` and `shape` must be finite")
    extents = x.shapes.rows[:, axes].astype(np.float32)[:, None, :]
    low = anchor * extents if relative[0] else anchor
    size = shape * extents if relative[1] else shape
    if centered:
        low = low - size * np.float32(0.5)
    limit = np.float32(2**30)
    ends = [np.trunc(np.clip(v, -limit, limit)).astype(np.int64) for v in (low, low + size)]
    bounds = np.stack(ends, axis=-1)
    # a power of two, so that programs with other numbers of regions share few kernels
    regions = bounds.shape[1]
    empty = np.zeros((count, (1 << (regions - 1).bit_length()) - regions, len(axes), 2), np.int64)
    return np.concatenate([bounds, empty], axis=1).reshape(count, -1)


def _erase_fill(x: Node, values) -> tuple[Node, tuple[int, ...]]:
    if values.shape[1] <= 1:
        rows = values if values.shape[1] else np.zeros((1, 1), np.float32)
        return _fill_per_sample(rows[:, 0], x), ()
    if not x.layout or "C" not in x.layout:
        raise ValueError("several values of `fill_value` need an input with a channel axis C")
    axis = x.layout.index("C")
    _check_per_channel("fill_value", np.array([[values.shape[1]]]), x, axis)
    rows = [[c_cast(float(v), x.dtype) for v in row] for row in values]
    if len(rows) == 1:
        node = convert.const_vector(tuple(rows[0]), x.dtype)
    else:
        arrays = [convert.stored(np.asarray(row), x.dtype) for row in rows]
        node = convert.copy_arrays(arrays, x.dtype, None, batch=True)
    return beside(node, x), (axis,)
