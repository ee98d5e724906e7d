"""Renders a `SincSum` as source of a GPU kernel, in which each lane computes one result.

See NOTE [positions of a signal] in ir/sinc.py, and NOTE [order of taps] in cpu/native/sincs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.expr import Expr
from ..ir.sinc import BLOCK, KNOTS, TAP_GROUP, SincSum
from .cores import GpuCore


class SincLoop(GpuCore):
    """Writes a `SincSum`."""

    block = 128

    def name(self, e: Expr) -> str:
        return "total"

    def lines(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, SincSum)
        o = "0" if core.axes[0] is None else f"o_{core.axes[0]}"
        yield f"place = (signal_step * {o} + signal_at).to(tl.int64) + lane * 0"
        yield "scale = signal_scale.to(tl.float64, bitcast=True)"
        yield f"number = place // {BLOCK}"
        yield f"start = (number * {BLOCK}).to(tl.float64) * scale"
        yield "base = tl.floor(start)"
        yield "at = (start - base).to(tl.float32)"
        yield "by = scale.to(tl.float32)"
        yield f"later = (place - number * {BLOCK}).to(tl.int32)"
        yield f"for k in range({BLOCK - 1}):"
        yield "    at = tl.where(k < later, at + by, at)"
        yield "whole = tl.floor(at)"
        yield f"knots = (1.0 - (at - whole)) * {float(KNOTS)}"
        yield "knot = knots.to(tl.int32)"
        yield "between = knots - knot.to(tl.float32)"
        yield "first = (base.to(tl.int64) + whole.to(tl.int64) + 1 - signal_lobes).to(INDEX)"
        yield f"row = in_{core.table} + knot * signal_taps"
        for k in range(TAP_GROUP):
            yield f"low_{k} = tl.full((BLOCK,), 0.0, tl.float32)"
            yield f"high_{k} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield from self.hoist()
        yield "everywhere = inside"
        yield f"for turn in range((signal_taps // {TAP_GROUP}).to(tl.int32)):"
        for k in range(TAP_GROUP):
            yield from ("    " + line for line in self._tap(k))
        yield "inside = everywhere"
        for k in range(TAP_GROUP):
            yield f"low_{k} = low_{k} + between * (high_{k} - low_{k})"
        yield f"total = {_sum([f'low_{k}' for k in range(TAP_GROUP)])}"

    def _tap(self, k: int) -> Iterator[str]:
        yield f"tap = turn * {TAP_GROUP} + {k}"
        yield "p = first + tap"
        yield "inside = everywhere & (p >= 0) & (p < signal_samples)"
        lines, value = self.element(["p"])
        yield from lines
        yield f"sample = tl.where(inside, {value}.to(tl.float32), 0.0)"
        yield f"low_{k} = low_{k} + tl.load(row + tap) * sample"
        yield f"high_{k} = high_{k} + tl.load(row + signal_taps + tap) * sample"


def _sum(lanes: list[str]) -> str:
    """The sum of all lanes, by halves."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [f"({a} + {b})" for a, b in zip(lanes[:half], lanes[half:])]
    return lanes[0]
