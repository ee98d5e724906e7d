"""Resample: separable interpolation along some axes (resize and its family)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.separable import TAPS, SeparableSum
from ...kernels.ir.taps import NEAREST, NEAREST_SUM, Taps, filter_tables
from ..graph.node import Node
from ..graph.shapes import Array, Shapes, within
from .base import DEAR, Kind, Reads, Terms, Work, make

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder

# Limit for the weights of all outputs along one axis: 1 GiB. More than that is a mistake, such as a
# region of interest of a billion pixels.
MAX_WEIGHTS = 1 << 28
_FAR = 2.0**40  # beyond such positions, `region` assumes that every pixel may be read


@dataclass(frozen=True)
class Resample(Kind):
    """params is one `Taps` for each of the axes; the result is float32."""

    axes: tuple[int, ...]

    has_core = True
    gives_rows = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return dt.float32

    def reads(self, i: int) -> Reads:
        return Reads.SCATTERED

    def cost(self) -> int:
        return DEAR

    def check(self, node: Node) -> None:
        super().check(node)
        assert len(node.params) == len(self.axes) <= 3, f"{node}: taps"
        other = [d for d in range(self.rank) if d not in self.axes]
        same = node.shapes.rows[:, other] == node.inputs[0].shapes.rows[:, other]
        assert same.all(), f"{node}: axes that are not interpolated change"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        own, count, which = lowering.in_core(position, terms, self.axes)
        tap = yield lowering.inputs[position][0], own, None
        where = tuple(terms[a] for a in self.axes)
        follows = tuple(axis for axis, _, _ in where)
        core = SeparableSum(ex.cast(tap, dt.float32), follows, count)
        return lowering.claim(position, where, core, which)

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node = binder.nodes[position]
        source = node.inputs[0].shapes.rows
        place = spec.columns
        filters = binder.constant(filter_tables()[0], node.device)
        for k, (axis, taps) in enumerate(zip(self.axes, node.params, strict=True)):
            first = place["tap_step", k]
            step, at = binder.numbers(terms[k])
            rows[:, first], rows[:, first + 1] = step, at
            rows[:, first + 2], rows[:, first + 3] = node.shapes.rows[:, axis], source[:, axis]
            rows[:, first + 4 : first + len(TAPS)] = taps.cells
            rows[:, place["tap_table", k]] += filters

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        """The lowest and the highest input pixel read along a dimension, clamped to the input.

        The range has a pixel to spare, because sums of steps are rounded (see kernels/ir/taps.py).
        """
        dimension = self.axes[k]
        taps: Taps = node.params[k]
        n_in = node.inputs[0].shapes.rows[:, dimension]
        scale, begin = taps.scale.astype(np.float64), taps.origin
        is_nearest = (taps.kind == NEAREST) | (taps.kind == NEAREST_SUM)
        with np.errstate(invalid="ignore", over="ignore"):
            if is_nearest.any():
                begin = begin + is_nearest * (0.5 * scale)
            ends = low * scale + begin, high * scale + begin
            begin, end = np.minimum(*ends), np.maximum(*ends)
            is_known = bool(((begin > -_FAR) & (end < _FAR)).all())
        if not is_known:  # such positions may end up anywhere
            return np.zeros_like(n_in), n_in - 1
        rounding = 1 + (node.shapes.rows[:, dimension] * n_in >> 23)
        first = taps.base + np.floor(begin).astype(np.int64) - rounding
        last = taps.base + np.ceil(end).astype(np.int64) + taps.count + rounding
        return within(first, n_in - 1), within(last, n_in - 1)


def resample(
    op: str, x: Node, axes: Sequence[int], shapes: Shapes, taps: Sequence[Taps], batch: bool
) -> Node:
    """`x` interpolated along `axes`, as float32; `taps[k]` are the taps along axes[k]."""
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
    kind = Resample(shapes.rank, tuple(axes))
    return make(op, kind, (x,), shapes, x.layout, batch, tuple(taps))
