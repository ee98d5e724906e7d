"""Renders a `Reduction` as source of a CPU kernel.

See NOTE [order of summation] in ir/reduction.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..ir import dtypes as dt
from ..ir.core import Array, Column
from ..ir.dtypes import DType
from ..ir.expr import Expr, walk
from ..ir.reduction import DIVISOR, FOLD, Reduction
from ..ir.spec import KernelSpec
from .cores import CpuCore, indented

# Up to this many 8- and 16-bit values are summed in 32 bits: vectors hold twice as many sums as
# with 64 bits (bytes: 47 GB/s instead of 24).
NARROW_RUN = 1 << 15


def _reduction(spec: KernelSpec) -> Reduction:
    assert isinstance(spec.core, Reduction)
    return spec.core


def _has_lanes(core: Reduction) -> bool:
    """Whether lanes are kept in scratch memory.

    Integers of one channel are combined in registers, because LLVM vectorizes that loop itself.
    """
    return core.acc.is_float or core.channels > 0


def _lane_type(core: Reduction) -> DType:
    """The type of a lane's partial result."""
    if core.combine != "add" or core.acc.is_float or core.value.dtype.bits > 16:
        return core.acc
    return dt.int32 if core.value.dtype.kind is DType.Kind.signed else dt.uint32


class ReductionLines(CpuCore):
    """Writes a `Reduction`; the result of channel c is `total_<c>`."""

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("lanes",) if _has_lanes(_reduction(spec)) else ()

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        core = _reduction(spec)
        if not _has_lanes(core):
            return []
        return [numbers(("run_lanes",)) * (core.lanes * _lane_type(core).bytes)]

    def prepare(self) -> Iterator[str]:
        if _has_lanes(_reduction(self.spec)):
            yield "lanes = scratch + area_lanes"
        yield from self.hoist()

    def read(self, e: Expr) -> str:
        return "run_divisor" if e.attr == DIVISOR else f"total_{e.attr}"

    def line(self) -> Iterator[str]:
        core = _reduction(self.spec)
        assert core.lane_axis is None, "CPU kernels combine all lanes"
        if not _has_lanes(core):
            yield from self._in_registers(core)
        elif core.channels:
            yield from self._in_lanes(core)
        else:
            yield "if run_lanes == 1:"
            yield from indented(self._one_by_one(core))
            yield "else:"
            yield from indented(self._in_lanes(core))

    # -- loops ---------------------------------------------------------------------------------

    def _rows(self, core: Reduction, body: Iterator[str]) -> Iterator[str]:
        """Loops over all dimensions but the last."""
        depth = len(core.axes) - 1
        for k in range(depth):
            yield "    " * k + f"for q_{k} in range(run_n_{k}):"
        yield from indented(body, depth)

    def _positions(self, core: Reduction, last: str) -> list[str]:
        return [*(f"q_{k}" for k in range(len(core.axes) - 1)), last]

    def _one_by_one(self, core: Reduction) -> Iterator[str]:
        """Combine values in order, in one lane, because they are few."""
        last = len(core.axes) - 1

        def body() -> Iterator[str]:
            yield f"for q in range(run_n_{last}):"
            lines, value = self.element(self._positions(core, "q"))
            combined = _combined(core, core.acc, "total_0", value)
            yield from indented([*lines, f"total_0 = {combined}"])

        yield f"total_0 = {self.writer.ref(core.start)}"
        yield from self._rows(core, body())

    def _in_registers(self, core: Reduction) -> Iterator[str]:
        """Combine integers in registers; their order does not matter."""
        last = len(core.axes) - 1
        narrow = _lane_type(core)
        if narrow is core.acc:
            yield from self._one_by_one(core)
            return

        def body() -> Iterator[str]:
            yield f"for first in range(0, run_n_{last}, {NARROW_RUN}):"
            yield f"    part = {narrow}(0)"
            yield f"    for q in range(first, min(first + {NARROW_RUN}, run_n_{last})):"
            lines, value = self.element(self._positions(core, "q"))
            yield from indented([*lines, f"part = {_combined(core, narrow, 'part', value)}"], 2)
            yield f"    total_0 = {_combined(core, core.acc, 'total_0', 'part')}"

        yield f"total_0 = {self.writer.ref(core.start)}"
        yield from self._rows(core, body())

    def _in_lanes(self, core: Reduction) -> Iterator[str]:
        """Combine values in lanes, which lie side by side in scratch memory, channels innermost."""
        last, c = len(core.axes) - 1, core.lanes
        kind = _lane_type(core)

        def body() -> Iterator[str]:
            yield "first = 0"
            yield f"while first < run_n_{last}:"
            yield f"    count = min(run_lanes - turn, run_n_{last} - first)"
            yield from indented(self._add_run(core, kind))
            yield "    first += count"
            yield "    turn += count"
            yield "    if turn == run_lanes:"
            yield "        turn = 0"

        start = self.writer.ref(core.start)
        zero = start if kind is core.acc else f"{kind}(0)"
        yield f"for j in range(run_lanes * {c}):"
        yield f"    store_{kind}_7(lanes, j, {zero})"
        yield "turn = 0"
        yield from self._rows(core, body())
        yield f"for fold in range({FOLD * c}, run_lanes * {c}, {FOLD * c}):"
        yield f"    for j in range({FOLD * c}):"
        yield from indented([_into_lane(core, kind, "j", f"row_{kind}(lanes, fold + j)")], 2)
        for channel in range(c):
            yield f"total_{channel} = {start}"
        yield f"for j in range(min(run_lanes, {FOLD})):"
        for channel in range(c):
            lane = f"row_{kind}(lanes, j * {c} + {channel})"
            total = f"total_{channel}"
            yield f"    {total} = {_combined(core, core.acc, total, lane)}"

    def _add_run(self, core: Reduction, kind: DType) -> Iterator[str]:
        """Combine `count` values from `first` on into the lanes from `turn` on."""
        c = core.lanes
        if core.channels and self._is_packed(core):
            yield f"for j in range(count * {c}):"
            lines, value = self.element([*self._positions(core, "first"), "j"])
            yield from indented([*lines, _into_lane(core, kind, f"turn * {c} + j", value)])
            return
        yield "for j in range(count):"
        for channel in range(c):
            places = [*self._positions(core, "(first + j)"), str(channel)]
            lines, value = self.element(places)
            lane = f"(turn + j) * {c} + {channel}" if c > 1 else "turn + j"
            yield from indented([*lines, _into_lane(core, kind, lane, value)])

    def _is_packed(self, core: Reduction) -> bool:
        """Whether one loop can run over the last dimension and the channels together.

        All operands must have interleaved channels, or be a single number.
        """
        last = self.spec.rank + len(core.axes) - 1
        numbered = [e.attr for e in walk([core.value]) if e.op == "index"]
        if any((self.spec.indices[slot].axis or 0) >= last for slot in numbered):
            return False
        for access in self.spec.core_loads:
            strides = (*access.strides, 0, 0)[last : last + 2]
            strides = strides if len(access.strides) > last else (0, 0)
            if strides not in ((core.channels, 1), (0, 0)):
                return False
        return True


def _into_lane(core: Reduction, kind: DType, lane: str, value: str) -> str:
    both = _combined(core, kind, f"row_{kind}(lanes, {lane})", value)
    return f"store_{kind}_7(lanes, {lane}, {both})"


def _combined(core: Reduction, kind: DType, a: str, b: str) -> str:
    """Source that combines two values into one of type `kind`; `b` may be narrower."""
    if core.combine != "add":
        return f"choose({b} {'<' if core.combine == 'min' else '>'} {a}, {b}, {a})"
    if kind is dt.int64:  # in Numba, overflow of signed integers is undefined
        return f"i64(u64({a}) + u64(i64({b})))"
    return f"{a} + {kind}({b})" if kind.is_float else f"{kind}({a} + {kind}({b}))"
