"""Merge: each element comes from the first input whose part contains its position (cat, stack)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ..graph.node import Node
from ..graph.shapes import Shapes
from .base import Kind, Terms, Work, make
from .view import View

if TYPE_CHECKING:
    from ..plan.lowering import Lowering


# If there are so many parts before it, the last one has a window of its own as a guard. Then no
# part depends on the windows of others, and a CPU kernel that only moves elements copies a run of
# pixels per part and row.
MANY = 3


@dataclass(frozen=True)
class Merge(Kind):
    """Every input is a `View` with checked dimensions (`view.part`); the last is the fallback."""

    parts: int

    is_join = True

    def check(self, node: Node) -> None:
        super().check(node)
        assert len(node.inputs) == self.parts > 0, f"{node}: parts"
        assert all(i.kind is None or i.kind.is_part for i in node.inputs), f"{node}: no parts"

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        *parts, last = lowering.inputs[position]
        placed: list[tuple[Expr, Expr]] = []
        rest = guard
        for p in parts:
            window, value = yield from _part(lowering, p).placed(lowering, p, terms, guard)
            assert window is not None
            placed.append((window, value))
            rest = ~window if rest is None else rest & ~window
        # The parts tile the output, so a position in no other part lies in the last one.
        kind, is_one_of_many = _part(lowering, last), len(parts) >= MANY
        outer = guard if is_one_of_many else rest
        _, value = yield from kind.placed(lowering, last, terms, outer, check=is_one_of_many)
        for window, part_value in reversed(placed):
            value = ex.select(window, part_value, value)
        return value


def _part(lowering: Lowering, position: int) -> View:
    lowering.members[position] = None
    kind = lowering.nodes[position].kind
    assert isinstance(kind, View)
    return kind


def merge(op: str, parts: Sequence[Node], shapes: Shapes, layout: str | None, batch: bool) -> Node:
    """One value from windowed views (made by `part`) that tile the output."""
    return make(op, Merge(shapes.rank, len(parts)), parts, shapes, layout, batch)
