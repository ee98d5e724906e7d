"""View: an exact gather, which reads each input dimension at `step * o[axis] + offset`.

Flips, crops, slices, padding, transposes and new axes are views. In a kernel they only rewrite
positions, so a chain of them costs nothing: it becomes one address and one stride per axis.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.common.memo import memoized
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ..graph.node import Node, static_channels
from ..graph.shapes import Array, Shapes
from ..graph.storage import Storage
from .base import Kind, Reads, Request, Term, Terms, Work, interned, made_of
from .opaque import renamed

if TYPE_CHECKING:
    from ..plan.lowering import Lowering


@dataclass(frozen=True)
class View(Kind):
    """params = (step, offset): int64 [samples or 1, input rank]; step is None if all are 1.

    A dimension in `checked` may leave the input; outside, the value is that of input 1 (the fill).
    """

    axes: tuple[int | None, ...]
    unit: tuple[bool, ...]  # the step is known to be 1
    still: tuple[bool, ...]  # the step is known to be 1 and the offset to be 0
    checked: tuple[int, ...] = ()
    fill_axes: tuple[int, ...] = ()
    onto: bool = False  # every input element is read exactly once
    relabel: bool = False  # only axes of extent 1 are added or dropped: the memory is the same
    fill_fits: bool = False  # the fill has the extents of the result, so none of them is broadcast

    may_store_on_the_way = True

    def reads(self, i: int) -> Reads:
        return Reads.OWN if all(self.unit) and all(self.still) else Reads.MOVED

    def cost_anywhere(self) -> int | None:
        return None if self.checked else 0

    def passed_on(self, i: int, axes: frozenset[int] | None) -> frozenset[int] | None:
        if axes is None or i:
            return None
        return frozenset(d for d, a in enumerate(self.axes) if a in axes)

    @property
    def is_rename(self) -> bool:
        return self.relabel

    @property
    def is_onto(self) -> bool:
        return self.onto

    def is_unit(self, dimension: int) -> bool:
        return self.unit[dimension]

    @property
    def is_part(self) -> bool:
        return bool(self.checked) and not self.has_fill

    @property
    def has_fill(self) -> bool:
        return bool(self.checked) and self.fill_axes != PART

    def move(self, node: Node, dimension: int) -> tuple[Array | None, Array]:
        steps, offsets = node.params
        return None if steps is None else steps[:, dimension], offsets[:, dimension]

    def compute(self, node: Node, inputs: list[Node], gpu: object) -> Storage:
        return renamed(inputs[0])

    def check(self, node: Node) -> None:
        super().check(node)
        x = node.inputs[0]
        assert len(self.axes) == len(self.unit) == len(self.still) == x.rank, f"{node} of {x}"
        # A view without checked dimensions may have a fill value, which is never read.
        wanted = (2,) if self.has_fill else (1,) if self.is_part else (1, 2)
        assert len(node.inputs) in wanted, f"{node}: inputs"
        if self.fill_fits and len(node.inputs) == 2:
            fill = node.inputs[1].shapes.rows
            assert (fill == node.shapes.rows).all(), f"{node}: the fill has other extents"
        if not self.relabel:
            self._check_positions(node, x)

    def _check_positions(self, node: Node, x: Node) -> None:
        """Assert that dimensions that the kernel does not check stay inside of the input."""
        some = node.shapes.volumes > 0
        for d, a in enumerate(self.axes):
            step, offset = self.move(node, d)
            last = 0 if a is None else np.where(some, node.shapes.rows[:, a] - 1, 0)
            step = np.ones(1, np.int64) if step is None else step
            assert not self.unit[d] or (step == 1).all(), f"{node}: dimension {d} has steps"
            assert not self.still[d] or not offset.any(), f"{node}: dimension {d} moves"
            if d not in self.checked:
                ends = np.stack(np.broadcast_arrays(offset, offset + step * last))
                inside = (ends >= 0) & (ends < x.shapes.rows[:, d])
                assert (inside | ~some).all(), f"{node}: dimension {d} leaves {x}"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        window, value = yield from self.placed(lowering, position, terms, guard)
        if window is None:
            return value
        fill = lowering.inputs[position][1]
        fill_terms = tuple(terms[a] for a in self.fill_axes)
        if not self.fill_fits:
            fill_terms = lowering.broadcast(fill, fill_terms)
        outside = yield fill, fill_terms, guard
        return ex.select(window, value, outside)

    def placed(
        self,
        lowering: Lowering,
        position: int,
        terms: Terms,
        guard: Expr | None,
        check: bool = True,
    ) -> Generator[Request, Expr, tuple[Expr | None, Expr]]:
        """The window in which the value is defined (None if it is everywhere), and the value."""
        source = lowering.inputs[position][0]
        own: list[Term] = []
        for d, a in enumerate(self.axes):
            axis, k, path = (None, 0, ()) if a is None else terms[a]
            stays = self.unit[d] and self.still[d]
            own.append((axis, k, path) if stays else (axis, k, (*path, ("view", position, d))))
        window = None
        if self.checked and check:
            tests = tuple((d, own[d]) for d in self.checked)
            window = lowering.window(source, tests, is_padding=self.has_fill)
            guard = window if guard is None else guard & window
        value = yield source, tuple(own), guard
        return window, value


PART = (-1,)  # as `fill_axes`: there is no fill, because `Merge` provides the value outside


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
    fill_fits: bool = False,
) -> Node:
    """Read `x` at other positions; `moved` are the dimensions whose offset may differ from 0."""
    rank = x.rank
    if moved is None:
        moved = range(rank) if offset is not None else ()
    unit = tuple(d not in stepped for d in range(rank))
    still = tuple(d not in moved and u for d, u in zip(range(rank), unit, strict=True))
    kind = interned(
        View, shapes.rank, axes, unit, still, checked, fill_axes, onto, relabel, fill_fits
    )
    params = _moves_nothing(rank) if offset is None else (step, offset)
    inputs = (x,) if fill is None or not checked else (x, fill)
    return made_of(kind, op, inputs, shapes, layout, x.batch if batch is None else batch, params)


@memoized(64)
def _moves_nothing(rank: int) -> tuple[None, Array]:
    """Params of views that move nothing; one object per rank, so duplicates merge by identity."""
    return None, np.zeros((1, rank), np.int64)


def flip(op: str, x: Node, axes: Sequence[int], flags: Sequence[Array], batch: bool) -> Node:
    """Mirror each axis where its flag (one for all samples, or one per sample) is set."""
    count = max(x.count, *map(len, flags))
    rows = x.shapes.rows
    if len(rows) != count:
        rows = np.broadcast_to(rows, (count, x.rank))
    step = np.ones((count, x.rank), np.int64)
    offset = np.zeros((count, x.rank), np.int64)
    for axis, flag in zip(axes, flags, strict=True):
        if np.count_nonzero(flag):  # most calls leave most axes alone
            on = flag != 0
            step[:, axis] -= 2 * on
            offset[:, axis] = on * (rows[:, axis] - 1)
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
    fill_fits: bool = False,
) -> Node:
    """The part of `x` that begins at `start` (all dimensions, per sample) and has extents `size`.

    With `fill` it may leave the input; without, the caller has checked that it does not.
    """
    identity = tuple(range(x.rank))
    axes = [a for a in axes if not _keeps_channels(x, a, start, size, step)]
    checked = tuple(axes) if fill is not None else ()
    stepped = tuple(axes) if step is not None else ()
    return view(op, x, identity, Shapes(np.ascontiguousarray(size)), x.layout, start, step,
                moved=tuple(axes), stepped=stepped, checked=checked, fill=fill,
                fill_axes=fill_axes, batch=batch, fill_fits=fill_fits)  # fmt: skip


def _keeps_channels(x: Node, axis: int, start: Array, size: Array, step: Array | None) -> bool:
    """Whether a window keeps the whole small channel axis; then no kernel needs to test it."""
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
    order = list(perm)
    if order == list(range(x.rank)):
        return relabel(op, x, layout)
    axes = tuple([order.index(d) for d in range(x.rank)])
    return view(op, x, axes, x.shapes.keeping(tuple(order)), layout, onto=True)


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
    """Basic indexing as in NumPy: a start and a step per dimension; `dropped` ones are removed."""
    kept = [d for d in range(x.rank) if d not in dropped]
    mapping = tuple(kept.index(d) if d in kept else None for d in range(x.rank))
    shapes = Shapes(np.ascontiguousarray(size[:, kept]))
    return view(op, x, mapping, shapes, layout, start, step if stepped else None, moved=moved,
                stepped=stepped, batch=batch)  # fmt: skip


def part(
    op: str, x: Node, mapping: tuple[int | None, ...], axis: int | None, offset: Array,
    shapes: Shapes, batch: bool,
) -> Node:  # fmt: skip
    """`x` placed into a larger output; outside of it the value is undefined (see `merge`)."""
    checked = tuple(d for d in range(x.rank) if mapping[d] == axis)
    return view(op, x, mapping, shapes, None, offset, moved=checked, checked=checked,
                fill_axes=PART, batch=batch)  # fmt: skip
