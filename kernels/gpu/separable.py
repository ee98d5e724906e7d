"""`SeparableSum` → source of the interpolating part of a GPU kernel: each thread sums its own taps.

Nested loops run over the taps of all dimensions, in the order in which CPU kernels add: the
outermost loop is the dimension that is summed last. The weights and the positions of the taps of
each row and column come from a table that a small kernel fills before (kernels/ir/tap_table.py): a
thread that computed them itself would issue 1.5 to 1.8 times as many instructions (docs/gpu.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ir.core import Column
from ..ir.expr import Expr, cost
from ..ir.spec import KernelSpec
from .cores import GpuCore, Preparation, indented
from .tap_entries import TapTables

if TYPE_CHECKING:
    from .render import Writer

CHEAP = 32  # cost of rounding to an integer type, which takes few registers: 26


class SeparableTaps(GpuCore):
    """Writes a `SeparableSum`."""

    # One pixel per thread: a resize of 3 channels takes 40 registers at 128 points, 53 at 256 and
    # 96 at 512 (modelled occupancy on sm_90: .75, .56, .31).
    block = 128
    reads_within = True

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = self.spec.core
        assert core is not None
        self.axes = core.axes
        self.lanes = range(core.lanes)

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        # By default ptxas aims at 40 registers, and spills 24 to 32 bytes if colours or a
        # normalisation follow; with a higher limit it uses 64 (occupancy .5 on sm_90) or, for
        # volumes, 80, and spills nothing. A resize alone stays at 40 (.75). With a single channel
        # ptxas aims at 32 and spills 24 bytes; 40 are enough.
        assert spec.core is not None
        if len(spec.core.axes) == 3:
            return {"maxnreg": 128}
        if max(map(cost, spec.values)) > CHEAP:
            return {"maxnreg": 64}
        return {"maxnreg": 40} if spec.core.lanes == 1 else {}

    @classmethod
    def prepared_columns(cls, spec: KernelSpec) -> tuple[Column, ...]:
        assert spec.core is not None
        return tuple(("prepared_taps", k) for k in range(len(spec.core.axes)))

    @classmethod
    def preparation(cls, spec: KernelSpec) -> Preparation:
        return TapTables(spec)

    def name(self, e: Expr) -> str:
        return f"sampled_{e.attr}"

    def lines(self) -> Iterator[str]:
        dims = [str(k) for k in range(len(self.axes))]
        for k, axis in zip(dims, self.axes, strict=True):
            yield from self._dimension(k, axis)
        if len(dims) > 1:
            yield from self._order(dims)
        yield from self._sum(len(dims) - 1)
        for lane in self.lanes:
            yield f"sampled_{lane} = sum_{len(dims) - 1}_{lane}"

    def _order(self, dims: list[str]) -> Iterator[str]:
        """Assign dimensions to passes, because the order depends on the sample.

        See NOTE [order of sums]. `x_pass_0` is the value of `x` for the dimension summed first.
        """
        if len(dims) == 2:
            yield "turned = tap_turn_1 < tap_turn_0"
        else:
            for k in dims:
                before = (f"(tap_turn_{j} < tap_turn_{k}).to(tl.int32)" for j in dims if j != k)
                yield f"turn_{k} = {' + '.join(before)}"
        for name in ("tap_count", "n_taps", "taps"):
            for turn in dims:
                yield f"{name}_pass_{turn} = {self._chosen({k: f'{name}_{k}' for k in dims}, turn)}"

    def _sum(self, turn: int) -> Iterator[str]:
        """The loop over the taps of a pass, which contains the loop of the previous pass."""
        k = f"pass_{turn}" if len(self.axes) > 1 else "0"
        for lane in self.lanes:
            yield f"sum_{turn}_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield f"for tap_{k} in range(tap_count_{k}):"
        yield from indented(self._tap_weight(k))
        yield from indented(self._sum(turn - 1) if turn else self._positions())
        for lane in self.lanes:
            text, value = self._tap(lane) if turn == 0 else ([], f"sum_{turn - 1}_{lane}")
            yield from indented([*text, f"sum_{turn}_{lane} = sum_{turn}_{lane} + w_{k} * {value}"])

    def _positions(self) -> Iterator[str]:
        """Positions by dimension, from positions by pass."""
        dims = [str(k) for k in range(len(self.axes))]
        for k in dims if len(dims) > 1 else ():
            yield f"p_{k} = {self._chosen({t: f'p_pass_{t}' for t in dims}, k, of_pass=False)}"

    def _chosen(self, values: dict[str, str], which: str, of_pass: bool = True) -> str:
        """Select one of several values at run time.

        `of_pass`: the values are keyed by dimension, and `which` is a pass. Otherwise they are
        keyed by pass, and `which` is a dimension.
        """
        if len(values) == 2:
            other = "1" if which == "0" else "0"
            return f"tl.where(turned, {values[other]}, {values[which]})"
        *cases, (_, found) = values.items()
        for k, value in reversed(cases):
            test = f"turn_{k} == {which}" if of_pass else f"turn_{which} == {k}"
            found = f"tl.where({test}, {value}, {found})"
        return found

    def _tap_weight(self, k: str) -> Iterator[str]:
        """Load the normalised weight of a tap, and the position of its pixel."""
        yield f"entry_{k} = tl.load(taps_{k} + tap_{k} * n_taps_{k})"
        yield f"w_{k} = entry_{k}.to(tl.int32).to(tl.float32, bitcast=True)"
        yield f"p_{k} = (entry_{k} >> 32).to(INDEX)"

    def _dimension(self, k: str, axis: int | None) -> Iterator[str]:
        """Compute the address of the first tap of this thread's position along a dimension."""
        entries = f"prepared_taps_{k}.to(tl.pointer_type(tl.int64))"
        if axis is None:
            yield f"taps_{k} = {entries} + lane * 0"
            yield f"n_taps_{k} = lane * 0 + 1"
        else:
            yield f"taps_{k} = {entries} + o_{axis}"
            yield f"n_taps_{k} = n_{axis}"

    def _tap(self, lane: int) -> tuple[list[str], str]:
        """Lines that compute the value of one tap, and the name of that value."""
        return self.element([f"p_{k}" for k in range(len(self.axes))], str(lane))
