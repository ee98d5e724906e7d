"""Builders: the vocabulary in which ops are written. Each takes nodes and gives a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.taps import Taps
from .node import (
    Alias,
    Array,
    Decode,
    Host,
    Merge,
    Node,
    Pointwise,
    Resample,
    Samples,
    Shapes,
    Transfer,
    View,
    intern,
    static_channels,
)

_bodies: dict[tuple[Any, ...], Expr] = {}


def pointwise(
    op: str,
    body: Callable[..., Expr],
    inputs: Sequence[Node],
    axes: Sequence[tuple[int, ...]],
    shapes: Shapes,
    layout: str | None,
    key: tuple[Any, ...] = (),
) -> Node:
    """Each output element is `body(*inputs, *key)` of one element of each input.

    `axes[i]` names the output axis of every dimension of input i; extents of 1 repeat. It is ()
    for a table, which the body reads with `expr.lookup`. The body runs once per combination of
    types and key, on expressions.
    """
    dtypes = tuple(n.dtype for n in inputs)
    body_key = (body, dtypes, key)
    expr = _bodies.get(body_key)
    if expr is None:
        arguments = [ex.body_input(i, t) for i, t in enumerate(dtypes)]
        expr = _bodies[body_key] = body(*arguments, *key)
    rank = shapes.rank
    same = tuple(_same(n.shapes, shapes, a) for n, a in zip(inputs, axes, strict=True))
    static = intern(Pointwise(expr, tuple(map(tuple, axes)), same, rank))
    batch = any(n.batch for n in inputs)
    return Node(op, static, tuple(inputs), shapes, expr.dtype, layout, batch, _device(inputs))


def _same(mine: Shapes, out: Shapes, axes: tuple[int, ...]) -> tuple[bool, ...]:
    if mine is out:
        return (True,) * len(axes)
    if not axes:
        return ()
    equal = mine.rows == out.rows[:, list(axes)]
    return tuple(equal.all(axis=0).tolist())


def _device(inputs: Sequence[Node]) -> Any:
    return inputs[0].device if inputs else None


def view(
    op: str,
    x: Node,
    axes: tuple[int | None, ...],
    shapes: Shapes,
    layout: str | None,
    offset: Array | None = None,
    step: Array | None = None,
    moved: Sequence[int] | None = None,
    stepped: Sequence[int] = (),
    checked: tuple[int, ...] = (),
    fill: Node | None = None,
    fill_axes: tuple[int, ...] = (),
    onto: bool = False,
    relabel: bool = False,
    batch: bool | None = None,
) -> Node:
    """Read `x` at other positions. `moved`: dimensions whose offset may differ from 0."""
    rank = x.rank
    if moved is None:
        moved = range(rank) if offset is not None else ()
    unit = tuple(d not in stepped for d in range(rank))
    still = tuple(d not in moved and u for d, u in zip(range(rank), unit, strict=True))
    static = intern(View(axes, unit, still, shapes.rank, checked, fill_axes, onto, relabel))
    params = (step, offset)
    if offset is None:
        # one object for all: views that move nothing can be merged by identity
        still_offset = np.zeros((1, rank), np.int64)
        params = _no_params.setdefault(rank, (None, still_offset))
    inputs = (x,) if fill is None else (x, fill)
    is_batch = x.batch if batch is None else batch
    return Node(op, static, inputs, shapes, x.dtype, layout, is_batch, x.device, params)


_no_params: dict[int, tuple[Array | None, Array | None]] = {}


def _rows(x: Node, *arrays: Array) -> int:
    """How many samples a result has when numbers per sample meet a node."""
    return max(x.count, *map(len, arrays))


def flip(op: str, x: Node, axes: Sequence[int], flags: Sequence[Array], batch: bool) -> Node:
    """Mirror `axes`, each where its flag (one, or one per sample) is set."""
    count = _rows(x, *flags)
    rows = np.broadcast_to(x.shapes.rows, (count, x.rank))
    step = np.ones((count, x.rank), np.int64)
    offset = np.zeros((count, x.rank), np.int64)
    for axis, flag in zip(axes, flags, strict=True):
        on = np.asarray(flag) != 0
        step[:, axis] = np.where(on, -1, 1)
        offset[:, axis] = np.where(on, rows[:, axis] - 1, 0)
    shapes = x.shapes if count == x.count else Shapes(rows)
    identity = tuple(range(x.rank))
    return view(op, x, identity, shapes, x.layout, offset, step, moved=tuple(axes),
                stepped=tuple(axes), onto=True, batch=batch)  # fmt: skip


def window(
    op: str,
    x: Node,
    axes: Sequence[int],
    start: Array,
    size: Array,
    batch: bool,
    fill: Node | None = None,
    fill_axes: tuple[int, ...] = (),
    step: Array | None = None,
) -> Node:
    """The part of `x` that begins at `start` (all dimensions, per sample) and has extents `size`.

    With `fill` the window may leave the input; without, the caller has checked that it does not.
    """
    identity = tuple(range(x.rank))
    axes = [a for a in axes if not _keeps_channels(x, a, start, size, step)]
    checked = tuple(axes) if fill is not None else ()
    stepped = tuple(axes) if step is not None else ()
    return view(op, x, identity, Shapes(np.ascontiguousarray(size)), x.layout, start, step,
                moved=tuple(axes), stepped=stepped, checked=checked, fill=fill,
                fill_axes=fill_axes, batch=batch)  # fmt: skip


def _keeps_channels(x: Node, axis: int, start: Array, size: Array, step: Array | None) -> bool:
    """Whether a window leaves the small channel axis as it is; then no kernel needs to test it."""
    channels = static_channels(x)
    return (
        channels is not None
        and channels[0] == axis
        and step is None
        and not start[:, axis].any()
        and bool((size[:, axis] == channels[1]).all())
    )


def permute(op: str, x: Node, perm: Sequence[int], layout: str | None) -> Node:
    """Reorder axes: output axis k is input axis perm[k]."""
    if list(perm) == list(range(x.rank)):
        return relabel(op, x, layout)
    axes = tuple(list(perm).index(d) for d in range(x.rank))
    shapes = Shapes(np.ascontiguousarray(x.shapes.rows[:, list(perm)]))
    return view(op, x, axes, shapes, layout, onto=True)


def relabel(op: str, x: Node, layout: str | None) -> Node:
    """The same value under another layout."""
    identity = tuple(range(x.rank))
    return view(op, x, identity, x.shapes, layout, onto=True, relabel=True)


def drop_axes(op: str, x: Node, axes: Sequence[int], layout: str | None) -> Node:
    """Remove axes of extent 1."""
    kept = [d for d in range(x.rank) if d not in axes]
    mapping = tuple(kept.index(d) if d in kept else None for d in range(x.rank))
    return view(op, x, mapping, Shapes(x.shapes.rows[:, kept]), layout, relabel=True)


def add_axes(op: str, x: Node, axes: Sequence[int], layout: str | None) -> Node:
    """Insert axes of extent 1 at these positions of the result."""
    rank = x.rank + len(axes)
    kept = [a for a in range(rank) if a not in axes]
    rows = np.ones((x.count, rank), np.int64)
    rows[:, kept] = x.shapes.rows
    return view(op, x, tuple(kept), Shapes(rows), layout, relabel=True)


def index_axes(
    op: str,
    x: Node,
    start: Array,
    step: Array,
    size: Array,
    dropped: Sequence[int],
    moved: Sequence[int],
    stepped: Sequence[int],
    layout: str | None,
    batch: bool,
) -> Node:
    """NumPy-like basic indexing: a start and a step per dimension; `dropped` ones vanish."""
    kept = [d for d in range(x.rank) if d not in dropped]
    mapping = tuple(kept.index(d) if d in kept else None for d in range(x.rank))
    shapes = Shapes(np.ascontiguousarray(size[:, kept]))
    return view(op, x, mapping, shapes, layout, start, step if stepped else None, moved=moved,
                stepped=stepped, batch=batch)  # fmt: skip


def broadcast_to(op: str, x: Node, shapes: Shapes, layout: str | None, batch: bool) -> Node:
    """`x` repeated along leading axes and along its axes of extent 1."""
    lead = shapes.rank - x.rank
    axes = tuple(range(lead, shapes.rank))
    return _with_batch(pointwise(op, _copy, [x], [axes], shapes, layout), batch)


def _with_batch(node: Node, batch: bool) -> Node:
    node.batch = batch
    return node


def _copy(x: Expr) -> Expr:
    return x


def copy(op: str, x: Node) -> Node:
    """A value of its own."""
    return pointwise(op, _copy, [x], [tuple(range(x.rank))], x.shapes, x.layout)


def merge(op: str, parts: Sequence[Node], shapes: Shapes, layout: str | None, batch: bool) -> Node:
    """One value from windowed views (made by `part`) that tile the output."""
    first = parts[0]
    static = intern(Merge(len(parts), shapes.rank))
    return Node(op, static, tuple(parts), shapes, first.dtype, layout, batch, first.device)


def part(
    op: str, x: Node, mapping: tuple[int | None, ...], axis: int | None, offset: Array,
    shapes: Shapes, batch: bool,
) -> Node:  # fmt: skip
    """`x` placed into a larger output; outside of it the value is undefined (see `merge`)."""
    checked = tuple(d for d in range(x.rank) if mapping[d] == axis)
    return view(op, x, mapping, shapes, None, offset, moved=checked, checked=checked, batch=batch)


def resample(
    op: str, x: Node, axes: Sequence[int], shapes: Shapes, taps: Sequence[Taps], batch: bool
) -> Node:
    """`x` interpolated along `axes`, as float32; `taps[k]` tells how along axes[k]."""
    empty = x.shapes.rows[:, list(axes)] == 0
    if empty.any() and (bad := np.flatnonzero(empty.any(axis=1) & (shapes.volumes > 0))).size:
        s = int(bad[0])
        raise ValueError(f"sample {s} of shape {x.shapes.tuples[s]} has no pixels to interpolate")
    extents = shapes.rows[:, list(axes)].T
    weights = max(int((t.count * n).max(initial=0)) for t, n in zip(taps, extents, strict=True))
    if weights > MAX_WEIGHTS:
        raise ValueError(
            f"the region is too large: {weights} weights along one axis, at most {MAX_WEIGHTS} "
            "can be"
        )
    static = intern(Resample(tuple(axes), shapes.rank))
    return Node(op, static, (x,), shapes, dt.float32, x.layout, batch, x.device, tuple(taps))


# Weights of all outputs along one axis: 1 GiB. Beyond lie mistakes, such as a region of interest of
# a billion pixels.
MAX_WEIGHTS = 1 << 28


def alias(op: str, x: Node, shapes: Shapes, dtype: DType, layout: str | None) -> Node:
    """The memory of `x` under another shape or type."""
    static = intern(Alias(shapes.rank))
    return Node(op, static, (x,), shapes, dtype, layout, x.batch, x.device)


def choose(op: str, x: Node, indices: Array, batch: bool) -> Node:
    """Other samples of the same batch."""
    shapes = Shapes(x.shapes.rows[indices])
    static = intern(Samples(shapes.rank))
    chosen = Node(op, static, (x,), shapes, x.dtype, x.layout, batch, x.device, indices)
    if x.source_info is not None:
        chosen.source_info = [x.source_info[i] for i in indices]
    return chosen


def transfer(x: Node, device: Any) -> Node:
    """A copy of `x` on another device."""
    static = intern(Transfer(x.rank))
    return Node("copy", static, (x,), x.shapes, x.dtype, x.layout, x.batch, device)


def host(
    op: str, function: Callable[..., Any], inputs: Sequence[Node], shapes: Shapes, dtype: DType,
    layout: str | None, batch: bool, params: Any = None,
) -> Node:  # fmt: skip
    """A value that a Python function computes when the graph is flushed."""
    static = intern(Host(function, shapes.rank))
    return Node(op, static, tuple(inputs), shapes, dtype, layout, batch, _device(inputs), params)


def decode(
    op: str, function: Callable[..., None], x: Node, shapes: Shapes, dtype: DType,
    layout: str | None, params: Any, has_regions: bool = False,
) -> Node:  # fmt: skip
    """A value that `function(params, sample, out)` writes, sample by sample, on many threads."""
    static = intern(Decode(function, shapes.rank, has_regions))
    return Node(op, static, (x,), shapes, dtype, layout, x.batch, None, params)
