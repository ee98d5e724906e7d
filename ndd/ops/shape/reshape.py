"""Joining and reshaping: cat, stack, reshape, reinterpret, squeeze, expand_dims."""

from __future__ import annotations

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.ir.dtypes import DType
from ..geometry.window import check_numbers, checked_axes, named_axes, round_away

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
    return _join(name, inputs, tuple(range(first.rank)), axis, starts, Shapes.known(rows), layout)


# Each part adds a test to every element, so more parts than this are joined in several rounds.
MAX_PARTS = 8


def _concatenate_all(name: str, inputs: tuple[Node, ...], axis: int, layout: str | None) -> Node:
    while len(inputs) > MAX_PARTS:
        rounds = range(0, len(inputs), MAX_PARTS)
        inputs = tuple(_concatenate(name, inputs[i : i + MAX_PARTS], axis, layout) for i in rounds)
    return _concatenate(name, inputs, axis, layout)


@op.graph(
    enums="moved", sample="ndd.cat(ndd.zeros(shape=[2, 3]), ndd.ones(shape=[1, 3])).shape\n=(3, 3)"
)
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
    """The inputs that have elements, checked to differ only along `axis`; empty ones always fit."""
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


@op.graph(
    enums="moved", sample="ndd.stack(ndd.zeros(shape=[3]), ndd.ones(shape=[3])).shape\n=(2, 3)"
)
def stack(
    inputs=data("Tensors of equal shape.", variadic=True),
    axis=static(int, 0, "Position of the new axis; negative ones count from the end."),
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
    """Replace at most one negative extent, so that the volume becomes `total`."""
    shape = np.array(np.broadcast_to(shape, (x.count, shape.shape[1])))
    wild = shape < 0
    if bool((wild.sum(axis=1) > 1).any()):
        raise ValueError(f"only one extent may be negative, got {tuple(shape[0].tolist())}")
    known = np.where(wild, 1, shape).astype(np.float64).prod(axis=1)
    rest = np.where(known > 0, total // np.maximum(known, 1), 0).astype(np.int64)
    shape = np.where(wild, rest[:, None], shape)
    # in float64, since extents may be absurd; exact for every volume that fits in memory
    bad = (shape.astype(np.float64).prod(axis=1) != total) | (wild.any(axis=1) & (known == 0))
    if bad.any():
        s = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"sample {s} of shape {x.shapes.tuples[s]} has {int(total[s])} elements to place, "
            f"which do not fill the shape {tuple(shape[s].tolist())}"
        )
    return shape


def _new_shape(x: Node, shape_input, shape, rel_shape, src_dims, bytes_from: int, bytes_to: int):
    """The extents that the arguments of reshape and reinterpret request."""
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
    """Convert the innermost extent to elements of another size."""
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


@op.graph(enums="kept", sample="ndd.reshape(ndd.zeros(shape=[2, 6]), shape=[3, -1]).shape\n=(3, 4)")
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


@op.graph(
    enums="kept", sample="ndd.reinterpret(ndd.zeros(shape=[2, 3]), dtype=ndd.uint8).shape\n=(2, 12)"
)
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


@op.graph(enums="moved", sample="ndd.squeeze(ndd.zeros(shape=[1, 3]), axes=[0]).shape\n=(3,)")
def squeeze(
    data=data("Any tensor."),
    axes=static("ints", None, "Axes of extent 1 to remove."),
    axis_names=static(str, None, "Letters of these axes, instead of `axes`."),
):
    """Remove axes of extent 1. A sample without elements may lose any axis, if it stays empty."""
    if (axes is None) == (axis_names is None):
        raise ValueError("give either `axes` or `axis_names`")
    if axes is not None:
        chosen = checked_axes(axes, data.rank)
    else:
        chosen = named_axes(axis_names, data.layout)
    rows = data.shapes.rows
    stays_empty = (np.delete(rows, chosen, axis=1) == 0).any(axis=1)
    for axis in chosen:
        bad = np.flatnonzero((rows[:, axis] != 1) & ~stays_empty)
        if len(bad):
            s = int(bad[0])
            raise ValueError(f"axis {axis} of sample {s} has extent {int(rows[s, axis])}, not 1")
    layout = data.layout and "".join(n for d, n in enumerate(data.layout) if d not in chosen)
    return build.drop_axes("squeeze", data, chosen, layout or None)


@op.graph(enums="moved", sample="ndd.expand_dims(ndd.zeros(shape=[3]), axes=[0]).shape\n=(1, 3)")
def expand_dims(
    data=data("Any tensor."),
    axes=static("ints", None, "Positions of the new axes in the result."),
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
