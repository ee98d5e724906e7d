"""Demosaic: the colours of a raw image on a CPU, row by row; see kernels/ir/mosaic.py."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.mosaic import Mosaic, Sensors
from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from .base import DEAR, Kind, Reads, Terms, Work, make

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder


@dataclass(frozen=True, eq=False)
class Blue:
    """Row and column of blue for each sample, [samples or 1, 2], each 0 or 1, counted from the
    second row and column. Compared by identity: see `bound_by`."""

    at: Array


@dataclass(frozen=True)
class Demosaic(Kind):
    """Colours along a new last axis, from the last two axes of the input; params = `Blue`."""

    sensors: Sensors
    reach: int
    is_mirrored: bool
    small: Sensors | None

    has_core = True
    keeps_rows = True

    def reads(self, i: int) -> Reads:
        return Reads.SCATTERED

    def cost(self) -> int:
        return DEAR

    @property
    def channels(self) -> int:
        return len(self.sensors[0])

    def check(self, node: Node) -> None:
        super().check(node)
        x = node.inputs[0]
        assert node.device is None, f"{node}: a GPU has pointwise work instead"
        assert node.rank == x.rank + 1 and (node.shapes.rows[:, -1] == self.channels).all(), node
        assert (node.shapes.rows[:, :-1] == x.shapes.rows).all(), f"{node} of {x}"
        assert (x.shapes.rows[:, -2:] % 2 == 0).all(), f"{node}: odd extents"
        assert node.params.at.shape in ((1, 2), (node.count, 2)), f"{node}: positions of blue"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        *outer, row, column, channel = terms
        own = (*outer, (lowering.rank, 0, ()), (lowering.rank + 1, 0, ()))
        value = yield lowering.inputs[position][0], own, None
        where = (row, column)
        core = Mosaic(
            value, (row[0], column[0]), self.channels, self.sensors, self.reach, self.is_mirrored,
            self.small,
        )  # fmt: skip
        axis, k, path = channel
        if self.channels == 1:
            return lowering.claim(position, where, core, ("at", 0))
        if axis is None and not path:
            return lowering.claim(position, where, core, ("at", k))
        if axis is not None and lowering.channels == (axis, self.channels) and not path:
            return lowering.claim(position, where, core, ("axis", axis))
        # Channels that the kernel does not unroll: choose by the number of the channel.
        found = [lowering.claim(position, where, core, ("at", c)) for c in range(self.channels)]
        number = lowering.index(channel)
        chosen = found[-1]
        for c in range(self.channels - 2, -1, -1):
            chosen = ex.select(ex.eq(number, ex.const(c, dt.int32)), found[c], chosen)
        return chosen

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node, place = binder.nodes[position], spec.columns
        image = node.inputs[0].shapes.rows[:, -2:]
        rows[:, place["mosaic", "rows"]], rows[:, place["mosaic", "columns"]] = image.T
        for k, term in enumerate(terms):
            step, at = binder.numbers(term)
            rows[:, place["mosaic", f"step_{k}"]] = step
            rows[:, place["mosaic", f"at_{k}"]] = at
            rows[:, place["mosaic", f"blue_{k}"]] = node.params.at[:, k]

    def bound_by(self, node: Node) -> Hashable | None:
        blue: Array = node.params.at
        return tuple(blue[0].tolist()) if len(blue) == 1 else None

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        n = node.inputs[0].shapes.rows[:, k - 2]
        last = np.maximum(n - 1, 0)
        low = np.minimum(np.clip(low, 0, last), np.maximum(n - 2, 0))
        high = np.maximum(np.clip(high, 0, last), np.minimum(1, last))
        return np.maximum(low - self.reach, 0), np.minimum(high + self.reach, last)


def demosaic(
    op: str, x: Node, blue: Array, sensors: Sensors, reach: int, is_mirrored: bool,
    small: Sensors | None,
) -> Node:  # fmt: skip
    """The colours of raw images, on the CPU: of a chroma and a green sensor, see `Sensors`."""
    kind = Demosaic(x.rank + 1, sensors, reach, is_mirrored, small)
    rows = np.insert(x.shapes.rows, x.rank, kind.channels, axis=1)
    return make(op, kind, (x,), Shapes(rows), f"{x.layout}C" if x.layout else None, x.batch,
                Blue(blue))  # fmt: skip
