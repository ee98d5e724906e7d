"""Resampling of signals: windowed sincs along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.sinc import BLOCK, SincSum, tap_count
from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from .base import Terms, Work, make
from .tabled import NUMBERS, Tabled

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder


@dataclass(frozen=True)
class Sinc(Tabled):
    """A signal at other positions, as float32; params = distance of results in samples, float64.

    Inputs: the signal, and the table of weights (see `sinc_table`).
    """

    axis: int
    lobes: int

    def check(self, node: Node) -> None:
        super().check(node)
        assert node.params.dtype == np.float64 and (node.params > 0).all(), f"{node}: distances"
        assert node.inputs[1].dtype is dt.float32, f"{node}: table"

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source, table = lowering.inputs[position]
        own, where = list(terms), terms[self.axis]
        own[self.axis] = (lowering.rank, 0, ())
        value = yield source, tuple(own), None
        slot = lowering.slot(table, NUMBERS, None)
        core = SincSum(ex.cast(value, dt.float32), (where[0],), 0, slot)
        return lowering.claim(position, (where,), core, ("at", 0))

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node, place = binder.nodes[position], spec.columns
        step, at = binder.numbers(terms[0])
        for name, number in (
            ("step", step), ("at", at), ("samples", node.inputs[0].shapes.rows[:, self.axis]),
            ("lobes", self.lobes), ("taps", tap_count(self.lobes)),
            ("scale", node.params.view(np.int64)),
            ("reach", self._reach(node)),
        ):  # fmt: skip
            rows[:, place[f"signal_{name}",]] = number

    def _reach(self, node: Node) -> Array:
        """How many samples the results of a block need; no more than the signal has, about."""
        results = np.clip(node.shapes.rows[:, self.axis], 1, BLOCK)
        # Positions are added up in float32, which rounds each sum by a part of 2**-24.
        last = np.ceil((results - 1) * node.params * (1 + BLOCK * 2.0**-23))
        reach: Array = last.astype(np.int64) + tap_count(self.lobes) + 4
        return reach

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        n = node.inputs[0].shapes.rows[:, self.axis]
        first = np.floor(low * node.params).astype(np.int64) - self.lobes - 1
        last = np.ceil(high * node.params).astype(np.int64) + self.lobes + 1
        return np.clip(first, 0, np.maximum(n - 1, 0)), np.clip(last, 0, np.maximum(n - 1, 0))


def sinc(op: str, x: Node, axis: int, counts: Array, steps: Array, lobes: int, table: Node) -> Node:
    """`x` resampled along an axis: `counts` results, `steps` samples apart."""
    rows = np.array(np.broadcast_to(x.shapes.rows, (len(counts), x.rank)))
    rows[:, axis] = counts
    steps = np.where(counts > 1, steps, 1.0)  # a single result lies at 0, however large its step is
    kind = Sinc(x.rank, axis, lobes)
    return make(op, kind, (x, table), Shapes(rows), x.layout, x.batch, steps)
