"""Ranking: the lowest, middle or highest value of a window around each element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...kernels.ir import dtypes as dt
from ...kernels.ir.expr import Expr
from ...kernels.ir.ranks import RANKS, WindowRank, key_value, order_key
from ...kernels.ir.windows import BORDERS
from ..graph.node import Node
from ..graph.shapes import Array
from .base import Terms, Work, make
from .neighbourhood import Windowed

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder

# A constant border is no case of its own: what it adds must not win, and neither does a repeated
# edge, because windows contain their own element.
RANK_BORDERS = tuple(b for b in BORDERS if b != "constant")


class Spans(NamedTuple):
    """The windows of all samples, as arrays [samples or 1, 1, axes].

    Along each axis, element p of the result reads elements p - anchor … p - anchor + count - 1.
    """

    count: Array  # type: ignore[assignment]  # hides a method of tuples
    anchor: Array


@dataclass(frozen=True)
class Ranking(Windowed):
    """Selects a value of each window; params = `Spans`.

    Inputs: `x` and, if `frames` is the axis of frames, the windows of each frame: int32 rows of
    (count, anchor) along the first axis, then along the second. `Spans` then covers all frames.
    """

    rank_of_value: str
    frames: int | None

    def check(self, node: Node) -> None:
        super().check(node)
        assert len(self.axes) == 2 and self.border in RANK_BORDERS, f"{node}: {self}"
        assert self.rank_of_value in RANKS, f"{node}: {self}"
        assert self.rank_of_value != "middle" or self.border == "clamp", f"{node}: {self}"
        count, anchor = node.params
        assert count.shape == anchor.shape and count.shape[1:] == (1, 2), f"{node}: windows"
        assert ((anchor >= 0) & (anchor < count)).all(), f"{node}: anchors"
        if self.frames is not None:
            frames = node.inputs[1]
            assert frames.dtype is dt.int32 and frames.rank == 2, f"{node}: windows of frames"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source, *frames = lowering.inputs[position]
        own, channels, which = lowering.in_core(position, terms, self.axes)
        tap = yield source, own, None
        where = tuple(terms[a] for a in self.axes)
        listed = None
        if self.frames is not None:
            listed = lowering.slot(frames[0], (terms[self.frames], (None, 0, ())), None)
        core = WindowRank(
            order_key(tap, self.rank_of_value), tuple(axis for axis, _, _ in where), channels,
            self.rank_of_value, self.border, listed,
        )  # fmt: skip
        found = lowering.claim(position, where, core, which)
        key = Expr("core", core.value.dtype, (), found.attr)
        return key_value(key, lowering.nodes[position].dtype)

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node = binder.nodes[position]
        spans: Spans = node.params
        source = node.inputs[0].shapes.rows
        for k, axis in enumerate(self.axes):
            step, at = binder.numbers(terms[k])
            n, anchor = source[:, axis], spans.anchor[:, 0, k]
            for name, number in (
                ("step", step), ("at", at), ("n", node.shapes.rows[:, axis]), ("in", n),
                ("bias", self.bias(n, anchor)), ("ring", 1 if k else self.ring(n, spans, k)),
                ("count", spans.count[:, 0, k]), ("anchor", anchor),
            ):  # fmt: skip
                rows[:, spec.columns[f"win_{name}", k]] = number


def ranking(
    op: str, x: Node, axes: Sequence[int], border: str, rank: str, spans: Spans,
    frames: tuple[int, Node] | None = None,
) -> Node:  # fmt: skip
    """Select the lowest, middle or highest value of each window along two axes of `x`.

    `frames`: the axis of frames, and the windows of each frame.
    """
    axis, windows = frames or (None, None)
    kind = Ranking(x.rank, tuple(axes), border, rank, axis)
    inputs = [x] if windows is None else [x, windows]
    return make(op, kind, inputs, x.shapes, x.layout, x.batch, spans)
