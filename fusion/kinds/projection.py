"""Projection: weighted sums of runs of elements along one axis, such as filters of a mel scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.bands import BAND, BandSums
from ...kernels.ir.expr import Expr
from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from .base import Terms, Work, make
from .tabled import NUMBERS, Tabled

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder


class Bands(NamedTuple):
    """How many sums there are for each sample, and how long the longest of them is."""

    counts: Array
    longest: Array


@dataclass(frozen=True)
class Projection(Tabled):
    """Sums along one axis, as float32; params = `Bands`.

    Inputs: `x`, the bands (three numbers each, see `BandSums`) and their weights.
    """

    axis: int

    takes_frames = True

    def check(self, node: Node) -> None:
        super().check(node)
        x, bands, weights = node.inputs
        assert bands.dtype is dt.int32 and weights.dtype is dt.float32, f"{node}: tables"
        counts = node.shapes.rows[:, self.axis]
        assert (bands.shapes.volumes >= BAND * counts).all(), f"{node}: bands"
        others = [a for a in range(self.rank) if a != self.axis]
        assert (node.shapes.rows[:, others] == x.shapes.rows[:, others]).all(), f"{node}: shape"

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source, bands, weights = lowering.inputs[position]
        own, where = list(terms), terms[self.axis]
        own[self.axis] = (lowering.rank, 0, ())
        value = yield source, tuple(own), None
        core = BandSums(
            ex.cast(value, dt.float32), (None,), 0, where[0],
            lowering.slot(bands, NUMBERS, None), lowering.slot(weights, NUMBERS, None),
        )  # fmt: skip
        return lowering.claim(position, (where,), core, ("at", 0))

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node, place = binder.nodes[position], spec.columns
        step, at = binder.numbers(terms[0])
        for name, number in (
            ("elements", node.inputs[0].shapes.rows[:, self.axis]),
            ("longest", node.params.longest), ("step", step), ("at", at),
        ):  # fmt: skip
            rows[:, place["band", name]] = number

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        n = node.inputs[0].shapes.rows[:, self.axis]
        return np.zeros_like(n), np.maximum(n - 1, 0)


def projection(op: str, x: Node, axis: int, bands: Node, weights: Node, sizes: Bands) -> Node:
    """Weighted sums of runs of elements of `x` along an axis."""
    rows = np.array(np.broadcast_to(x.shapes.rows, (x.count, x.rank)))
    rows[:, axis] = sizes.counts
    kind = Projection(x.rank, axis)
    return make(op, kind, (x, bands, weights), Shapes(rows), x.layout, x.batch, sizes)
