"""Pointwise: an expression computes each output element from one element of each input.

The expression may also read inputs at other positions: at a pinned one (`at_axis`), at a computed
one (`fetch`, `bilinear`), or as a table (`lookup`). So random numbers, warps and colour ops are all
of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...kernels.common.memo import Memo, memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ..graph.node import Node
from ..graph.shapes import Shapes
from .base import Kind, Reads, Request, Term, Terms, Work, interned, made_of
from .opaque import alias

if TYPE_CHECKING:
    from ..plan.lowering import Lowering

ELSEWHERE = ("fetch", "bilinear")
_FIRST: Term = (None, 0, ())  # the only position along a dimension of extent 1
_bodies: Memo[tuple[Any, ...], Expr] = Memo("bodies of pointwise ops", 1 << 14)


@dataclass(frozen=True)
class Pointwise(Kind):
    expr: Expr
    axes: tuple[tuple[int, ...], ...]  # output axis of every dimension of every input
    same: tuple[tuple[bool, ...], ...]  # dimensions that have exactly the output's extent
    # Dimensions of extent 1 in every sample, repeated along the output: a kernel never moves there.
    still: tuple[tuple[bool, ...], ...]

    may_store_on_the_way = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return self.expr.dtype

    def reads(self, i: int) -> Reads:
        if i in _looked_up(self.expr):
            return Reads.TABLE
        if i in _scattered(self.expr):
            return Reads.SCATTERED if _is_read_often(self.expr, i) else Reads.ELSEWHERE
        return Reads.OWN if all(self.same[i]) else Reads.MOVED

    def cost(self) -> int:
        return _cost(self.expr)

    def cost_anywhere(self) -> int | None:
        return _cost(self.expr) if _is_local(self.expr) else None

    def cost_moved(self, axes: frozenset[int] | None) -> int | None:
        if axes is None:
            return self.cost_anywhere()
        if any(e.op in ("lookup", "extent", *ELSEWHERE) for e in ex.walk([self.expr])):
            return None
        return None if axes & {a % self.rank for a in _positions(self.expr)} else _cost(self.expr)

    def moved_axes(self, i: int) -> frozenset[int] | None:
        reads = [e for e in _reads_of(self.expr) if e.op in ELSEWHERE and e.attr[0] == i]
        return frozenset(axis % self.rank for e in reads for axis in e.attr[2])

    def passed_on(self, i: int, axes: frozenset[int] | None) -> frozenset[int] | None:
        if axes is None:
            return None
        return frozenset(d for d, a in enumerate(self.axes[i]) if a in axes)

    def can_loop(self) -> bool:
        return not any(e.op in ("lookup", *ELSEWHERE) for e in ex.walk([self.expr]))

    def tells_apart(self, axis: int) -> bool:
        if any(axis in axes and len(axes) < self.rank for axes in self.axes):
            return True  # an operand that has a number per channel
        return any(axis - self.rank * (a < 0) == a for a in _told_apart(self.expr))

    def cost_in_rows(self) -> int | None:
        return _cost(self.expr) if _is_in_place(self.expr) else None

    @property
    def stores_its_users(self) -> bool:
        return True

    def check(self, node: Node) -> None:
        super().check(node)
        assert len(self.axes) == len(self.same) == len(node.inputs), f"{node}: inputs"
        for x, axes, same in zip(node.inputs, self.axes, self.same, strict=True):
            assert len(axes) == len(same) and (not axes or len(axes) == x.rank), f"{node}: {axes}"
        for e in _reads_of(self.expr):
            self._check_read(node, e)

    def _check_read(self, node: Node, e: Expr) -> None:
        """Assert that an input has the pinned positions, and fits the output along other axes."""
        i, pins, *computed = e.attr
        x, given = node.inputs[i], {axis % self.rank: k for axis, k in pins}
        elsewhere = {axis % self.rank for axes in computed for axis in axes}
        for d, a in enumerate(self.axes[i]):
            mine, out = x.shapes.rows[:, d], node.shapes.rows[:, a]
            assert not self.still[i][d] or (mine == 1).all(), f"{node}: axis {a} of {x}"
            if a in given:
                fits = (mine > given[a]) | (node.shapes.volumes == 0)
            else:
                fits = (mine == out) | ((mine == 1) & (not self.same[i][d]))
            assert a in elsewhere or fits.all(), f"{node}: axis {a} of {x}"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        memo: dict[Expr, Expr] = {}

        def leaf(e: Expr) -> Expr | None:
            if e.op == "index":
                return lowering.index(terms[e.attr])
            if e.op == "extent":
                return self._extent(lowering, position, *e.attr)
            if e.op == "lookup":
                slot = lowering.slot(lowering.inputs[position][e.attr], ((None, 0, ()),), None)
                index = memo[e.args[0]]
                if guard is not None and index.op != "const":
                    index = ex.select(guard, index, 0)  # outside of the window it is meaningless
                return Expr("lookup", e.dtype, (index,), slot)
            return None

        for e in _reads_of(self.expr):
            if e.op == "input":
                memo[e] = yield self._input(lowering, position, e, terms, guard)
            else:
                args = tuple(ex.rewrite(a, leaf, memo) for a in e.args)
                memo[e] = yield from self._computed(lowering, position, e, args, terms)
        return ex.rewrite(self.expr, leaf, memo)

    def _input(
        self, lowering: Lowering, position: int, e: Expr, terms: Terms, guard: Expr | None
    ) -> Request:
        i, pins = e.attr
        pinned: dict[int, Term] = {axis % self.rank: (None, k, ()) for axis, k in pins}
        source = lowering.inputs[position][i]
        own = tuple(
            pinned.get(a, _FIRST if still else terms[a])
            for a, still in zip(self.axes[i], self.still[i], strict=True)
        )
        return source, lowering.broadcast(source, own, self.same[i]), guard

    def _computed(
        self, lowering: Lowering, position: int, e: Expr, args: tuple[Expr, ...], terms: Terms
    ) -> Work:
        """Read a value at positions that the kernel computes.

        The value is lowered to a template over extra axes behind those of the output; then the
        positions are put into the template. Bodies keep positions in range, so no guard is needed.
        """
        i, pins, axes = e.attr
        at = {axis % self.rank: lowering.rank + k for k, axis in enumerate(axes)}
        plain = ex.body_input(i, e.dtype, pins)
        source, given, _ = self._input(lowering, position, plain, terms, None)
        own = tuple(
            (at[a], 0, ()) if a in at else term for a, term in zip(self.axes[i], given, strict=True)
        )
        template = yield source, own, None
        if e.op == "fetch":
            return lowering.placed(template, args)
        y, x, *fill = args
        h, w = (self._extent(lowering, position, i, axis) for axis in axes)
        load = lowering.plain_load(template, len(axes))
        if load is not None:
            return Expr("bilinear", dt.float32, (y, x, h, w, *fill), load.attr)

        def tap(row: Expr, column: Expr) -> Expr:
            return ex.cast(lowering.placed(template, (row, column)), dt.float32)

        return ex.bilinear_of(tap, y, x, h, w, fill[0] if fill else None)

    def _extent(self, lowering: Lowering, position: int, i: int, axis: int) -> Expr:
        source = lowering.inputs[position][i]
        dimension = self.axes[i].index(axis % self.rank)
        return lowering.index((None, 0, (("extent", source, dimension),)))


def pointwise(
    op: str,
    body: Callable[..., Expr],
    inputs: Sequence[Node],
    axes: Sequence[tuple[int, ...]],
    shapes: Shapes,
    layout: str | None,
    key: tuple[Any, ...] = (),
    batch: bool | None = None,
) -> Node:
    """Each output element is `body(*inputs, *key)` of one element of each input.

    `axes[i]` gives the output axis of every dimension of input i; dimensions of extent 1 broadcast.
    It is () for a table, which the body reads with `expr.lookup`. The body runs on expressions,
    once per combination of types and key.
    """
    axes = tuple(axes)
    dtypes = tuple([n.dtype for n in inputs])
    same = tuple([_same(n.shapes, shapes, a) for n, a in zip(inputs, axes, strict=True)])
    still = tuple([_still(n.shapes, s) for n, s in zip(inputs, same, strict=True)])
    kind = interned(Pointwise, shapes.rank, _expression(body, dtypes, key), axes, same, still)
    if batch is None:
        batch = True in [n.batch for n in inputs]
    return made_of(kind, op, inputs, shapes, layout, batch)


def _expression(body: Callable[..., Expr], dtypes: tuple[DType, ...], key: tuple[Any, ...]) -> Expr:
    found = _bodies.get((body, dtypes, key))
    if found is None:
        arguments = [ex.body_input(i, t) for i, t in enumerate(dtypes)]
        found = _bodies.setdefault((body, dtypes, key), body(*arguments, *key))
    return found


def _same(mine: Shapes, out: Shapes, axes: tuple[int, ...]) -> tuple[bool, ...]:
    if mine is out:
        return (True,) * len(axes)
    if not axes:
        return ()
    known, wanted = mine.facts, out.facts
    if known and wanted:  # uniform: Python's integers are faster than NumPy
        return tuple([n == wanted[1 + a] for n, a in zip(known[1:], axes, strict=True)])
    equal = mine.rows == out.rows[:, list(axes)]
    return tuple(equal.all(axis=0).tolist())


def _still(mine: Shapes, same: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which of an operand's dimensions are repeated in every sample."""
    if all(same):
        return (False,) * len(same)
    known = mine.facts
    if known:
        return tuple([n == 1 and not s for n, s in zip(known[1:], same, strict=True)])
    ones = (mine.rows == 1).all(axis=0).tolist()
    return tuple([one and not s for one, s in zip(ones, same, strict=True)])


def broadcast_to(op: str, x: Node, shapes: Shapes, layout: str | None, batch: bool) -> Node:
    """`x` repeated along leading axes and along its axes of extent 1."""
    axes = tuple(range(shapes.rank - x.rank, shapes.rank))
    return pointwise(op, _copy, [x], [axes], shapes, layout, batch=batch)


def copy(op: str, x: Node, layout: str | None = None, shapes: Shapes | None = None) -> Node:
    """A copy of `x` in memory of its own, which is arranged as `shapes` (equal to its own) says."""
    if x.dtype.is_enum:  # kernels copy its numbers
        numbers = copy(op, alias(op, x, x.shapes, dt.int32, x.layout), layout, shapes)
        return alias(op, numbers, numbers.shapes, x.dtype, numbers.layout)
    return pointwise(op, _copy, [x], [tuple(range(x.rank))], shapes or x.shapes, layout or x.layout)


def _copy(x: Expr) -> Expr:
    return x


_cost = memoized(4096)(ex.cost)


@memoized(4096)
def _looked_up(expr: Expr) -> frozenset[int]:
    return frozenset(e.attr for e in ex.walk([expr]) if e.op == "lookup")


@memoized(4096)
def _scattered(expr: Expr) -> frozenset[int]:
    return frozenset(e.attr[0] for e in ex.walk([expr]) if e.op in ELSEWHERE)


@memoized(4096)
def _is_read_often(expr: Expr, i: int) -> bool:
    """Whether an input is read at more than one place."""
    reads = [e for e in _reads_of(expr) if e.attr[0] == i]
    return len(reads) > 1 or reads[0].op != "fetch"


@memoized(4096)
def _positions(expr: Expr) -> frozenset[int]:
    """Axes along which a body depends on the position."""
    return frozenset(e.attr for e in ex.walk([expr]) if e.op == "index")


@memoized(4096)
def _told_apart(expr: Expr) -> frozenset[int]:
    """Axes along which a body reads fixed positions or depends on the position."""
    pinned = (axis for e in _reads_of(expr) for axis, _ in e.attr[1])
    return _positions(expr).union(pinned)


@memoized(4096)
def _is_local(expr: Expr) -> bool:
    """Whether a body only reads elements of its inputs, so it can be computed at any position."""
    return not any(e.op in ("index", "lookup", "extent", *ELSEWHERE) for e in ex.walk([expr]))


@memoized(4096)
def _is_in_place(expr: Expr) -> bool:
    """Whether a body reads its inputs at the position that it is asked for, or as tables."""
    return not any(e.op in ELSEWHERE for e in ex.walk([expr]))


@memoized(4096)
def _reads_of(expr: Expr) -> tuple[Expr, ...]:
    return tuple(e for e in ex.walk([expr]) if e.op in ("input", *ELSEWHERE))
