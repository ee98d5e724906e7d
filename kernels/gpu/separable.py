"""`SeparableSum` → source of the interpolating part of a GPU kernel: each thread sums its own taps.

Nested loops run over the taps of all dimensions, in the order in which CPU kernels add: the
outermost loop is the dimension that is summed last. The kernel computes each weight from the
filter's table when it needs it (kernels/ir/taps.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ir.expr import Expr
from ..ir.spec import KernelSpec
from .cores import GpuCore

if TYPE_CHECKING:
    from .render import Writer


class SeparableTaps(GpuCore):
    """Writes a `SeparableSum`."""

    # One pixel per thread: a resize of 3 channels takes 40 registers at 128 points, 53 at 256 and
    # 96 at 512 (modelled occupancy on sm_90: .75, .56, .31).
    block = 128

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = self.spec.core
        assert core is not None
        self.axes = core.axes
        self.lanes = range(core.lanes)

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        # Volumes: by default ptxas uses 72 registers and spills 8 to 24 bytes in most kernels. With
        # a higher limit it uses 80 and spills nothing.
        assert spec.core is not None
        return {"maxnreg": 128} if len(spec.core.axes) == 3 else {}

    def name(self, e: Expr) -> str:
        return f"sampled_{e.attr}"

    def lines(self) -> Iterator[str]:
        dims = [str(k) for k in range(len(self.axes))]
        # One address and small offsets take fewer registers than an address per dimension.
        yield "filters = tap_table_0.to(tl.pointer_type(tl.float32))"
        for k, axis in zip(dims, self.axes, strict=True):
            yield f"tap_filter_{k} = ((tap_table_{k} - tap_table_0) // 4).to(tl.int32)"
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
        names = [f"tap_{what}" for what in ("count", "base", "in", "filter", "stretch")]
        for name in (*names, "first", "at", "total"):
            for turn in dims:
                yield f"{name}_pass_{turn} = {self._chosen({k: f'{name}_{k}' for k in dims}, turn)}"

    def _sum(self, turn: int) -> Iterator[str]:
        """The loop over the taps of a pass, which contains the loop of the previous pass."""
        k = f"pass_{turn}" if len(self.axes) > 1 else "0"
        for lane in self.lanes:
            yield f"sum_{turn}_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield f"for tap_{k} in range(tap_count_{k}):"
        yield from _indent(self._tap_weight(k))
        yield from _indent(self._sum(turn - 1) if turn else self._positions())
        for lane in self.lanes:
            text, value = self._tap(lane) if turn == 0 else ([], f"sum_{turn - 1}_{lane}")
            yield from _indent([*text, f"sum_{turn}_{lane} = sum_{turn}_{lane} + w_{k} * {value}"])

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
        """Compute the normalised weight of a tap, and the position of its pixel."""
        yield from self._weight(k, f"tap_{k}")
        yield f"w_{k} = tl.div_rn(w_{k}, total_{k})"
        yield f"p_{k} = tl.maximum(tap_base_{k} + first_{k} + tap_{k}, 0)"
        yield f"p_{k} = tl.minimum(p_{k}, tap_in_{k} - 1).to(INDEX)"

    def _dimension(self, k: str, axis: int | None) -> Iterator[str]:
        """Compute the first tap of a dimension, and the sum of the weights of all its taps."""
        o = "lane * 0" if axis is None else f"o_{axis}"
        yield f"out_{k}_ = tl.maximum(tap_step_{k} * ({o}) + tap_at_{k}, 0)"
        yield f"out_{k}_ = tl.minimum(out_{k}_, tap_n_{k} - 1).to(tl.int32)"
        yield f"half_{k} = tl.where(tap_nearest_{k} == 0, 0.0, 0.5)"
        yield f"at_{k} = (out_{k}_.to(tl.float32) + half_{k}) * tap_scale_{k} + tap_origin_{k}"
        yield f"if tap_nearest_{k} == 2:"
        yield f"    at_{k} = tap_origin_{k} + 0.5 * tap_scale_{k} + out_{k}_.to(tl.float32) * 0.0"
        yield f"    for step in range(tap_n_{k}):"
        yield f"        at_{k} = tl.where(step < out_{k}_, at_{k} + tap_scale_{k}, at_{k})"
        # Beyond this bound all taps read the border pixel; clamped, a position fits an integer.
        yield f"far_{k} = (tap_in_{k} + tap_count_{k} + 1).to(tl.float32)"
        yield f"at_{k} = tl.minimum(tl.maximum(at_{k}, 0.0 - far_{k}), far_{k})"
        yield f"first_{k} = tl.where(tap_nearest_{k} != 0, tl.floor(at_{k}), tl.ceil(at_{k}))"
        yield f"first_{k} = first_{k}.to(tl.int32)"
        yield f"total_{k} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield f"for tap in range(tap_count_{k}):"
        yield from _indent(self._weight(k, "tap"))
        yield f"    total_{k} = total_{k} + w_{k}"

    def _weight(self, k: str, tap: str) -> Iterator[str]:
        """Read the filter's table at the distance of a tap, and interpolate between entries."""
        yield f"d_{k} = ((first_{k} + {tap}).to(tl.float32) - at_{k}) * tap_stretch_{k}"
        yield f"j_{k} = d_{k}.to(tl.int32)"
        yield f"knot_{k} = filters + (tap_filter_{k} + j_{k})"
        yield f"w_{k} = tl.load(knot_{k})"
        yield f"next_{k} = tl.load(knot_{k} + 1)"
        yield f"w_{k} = w_{k} + (d_{k} - j_{k}.to(tl.float32)) * (next_{k} - w_{k})"

    def _tap(self, lane: int) -> tuple[list[str], str]:
        """Lines that compute the value of one tap, and the name of that value."""
        return self.element([f"p_{k}" for k in range(len(self.axes))], str(lane))


def _indent(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return ("    " + line for line in lines)
