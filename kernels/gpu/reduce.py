"""Renders a `Reduction` as source of a GPU kernel, in which every lane combines its own values.

See NOTE [order of summation] in ir/reduction.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.expr import Expr
from ..ir.reduction import DIVISOR, Reduction
from .cores import GpuCore
from .render import TRITON

_COMBINED = {
    "add": "combined + {v}",
    "min": "tl.where({v} < combined, {v}, combined)",
    "max": "tl.where({v} > combined, {v}, combined)",
}


class ReductionLoop(GpuCore):
    """Writes a `Reduction`. Neighbouring lanes read neighbouring values, step by step."""

    block = 128

    def name(self, e: Expr) -> str:
        return "run_divisor" if e.attr == DIVISOR else "combined"

    def lines(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, Reduction) and not core.channels
        dims = range(len(core.axes))
        kind = TRITON[core.acc]
        yield f"combined = tl.full((BLOCK,), 0, {kind}) + {self.writer.typed(core.start)}"
        yield f"run_length = {' * '.join(f'run_n_{k}' for k in dims)}"
        if core.lane_axis is None:
            yield "by = tl.full((), 1, INDEX)"
            yield "place = (lane * 0).to(INDEX)"
        else:
            yield "by = tl.maximum(run_lanes, 1)"
            yield f"place = lane_step * o_{core.lane_axis} + lane_at + (lane * 0).to(INDEX)"
        yield from self._begin(len(core.axes))
        yield from self.hoist()
        yield "everywhere = inside"
        yield "for turn in range(((run_length + by - 1) // by).to(tl.int32)):"
        lines, value = self.element([f"p_{k}" for k in dims])
        step = _COMBINED[core.combine].format(v="value")
        for line in (
            "inside = everywhere & (place < run_length)",
            *lines,
            f"value = {value}.to({kind})",
            f"combined = tl.where(inside, {step}, combined)",
            "place = place + by",
            *self._advance(len(core.axes)),
        ):
            yield "    " + line
        yield "inside = everywhere"

    def _begin(self, rank: int) -> Iterator[str]:
        """Compute the position along each dimension, and how far each turn of the loop moves it.

        All divisions happen here, before the loop; inside the loop a carry is enough.
        """
        rest, left = "place", "by"
        for k in range(rank - 1, 0, -1):
            yield f"some_{k} = tl.maximum(run_n_{k}, 1)"
            yield f"rest_of_{k} = {rest} // some_{k}"
            yield f"p_{k} = {rest} - rest_of_{k} * some_{k}"
            yield f"left_of_{k} = {left} // some_{k}"
            yield f"by_{k} = {left} - left_of_{k} * some_{k}"
            rest, left = f"rest_of_{k}", f"left_of_{k}"
        yield f"p_0 = {rest}"
        yield f"by_0 = {left}"

    def _advance(self, rank: int) -> Iterator[str]:
        carry = ""
        for k in range(rank - 1, 0, -1):
            yield f"p_{k} = p_{k} + by_{k}{carry}"
            yield f"over_{k} = p_{k} >= some_{k}"
            yield f"p_{k} = tl.where(over_{k}, p_{k} - some_{k}, p_{k})"
            carry = f" + over_{k}.to(INDEX)"
        yield f"p_0 = p_0 + by_0{carry}"
