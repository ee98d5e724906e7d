"""Renders a `Reduction` as source of a CPU kernel.

See NOTE [order of summation] in ir/reduction.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..ir import dtypes as dt
from ..ir.core import Array, Column
from ..ir.dtypes import DType
from ..ir.expr import Expr, walk
from ..ir.reduction import DIVISOR, FOLD, Reduction, bits_of
from ..ir.spec import KernelSpec
from .cores import CpuCore, indented

# Up to this many 16-bit values are summed in 32 bits: vectors hold twice as many sums as with 64
# bits, and LLVM turns sums of squares of bytes into multiply-add instructions (46 GB/s).
NARROW_RUN = 1 << 15
# Integers are combined in a block of lanes that LLVM keeps in registers. 256 bytes are eight
# vectors of 32 bytes; three channels need a multiple of three. Bytes in lanes of 16 bits are summed
# at 77 GB/s, as fast as they are read, and in lanes of 32 bits at 37 (znver4, 600 KB in L2).
BLOCK_BYTES = {1: 256, 2: 256, 3: 384, 4: 256}  # by the number of channels
STACK_BYTES = 512  # of the block, the next size that `primitives` offers


def _reduction(spec: KernelSpec) -> Reduction:
    assert isinstance(spec.core, Reduction)
    return spec.core


def _sum_type(core: Reduction, value: Expr) -> DType:
    """The type of partial results: for sums of short integers one of twice their bits."""
    if core.combine != "add" or core.acc.is_float:
        return core.acc
    is_signed = value.dtype.kind is DType.Kind.signed
    bits = bits_of(value)
    if bits > 16:
        return core.acc
    if bits > 8:
        return dt.int32 if is_signed else dt.uint32
    return dt.int16 if is_signed else dt.uint16


def _in_blocks(core: Reduction) -> bool:
    """Whether integers are combined in a block of lanes.

    Integers of one channel are combined in one variable, because LLVM vectorizes that loop itself;
    but not with sums of 16 bits, which would overflow.
    """
    if core.acc.is_float:
        return False
    kinds = [_sum_type(core, value) for value in core.summands]
    return core.channels > 0 or any(k.bits == 16 and k is not core.acc for k in kinds)


class ReductionLines(CpuCore):
    """Writes a `Reduction`; the result of channel c is `total_<c>`.

    If it sums values and their squares, it computes both totals in the same loops.
    """

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("lanes",) if _reduction(spec).acc.is_float else ()

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        core = _reduction(spec)
        return [numbers(("run_lanes",)) * (core.lanes * core.acc.bytes)]

    def prepare(self) -> Iterator[str]:
        core = _reduction(self.spec)
        if core.acc.is_float:
            yield "lanes = scratch + area_lanes"
        elif _in_blocks(core):
            for k in range(len(core.summands)):
                yield f"lanes_{k} = stack_{STACK_BYTES}()"
        yield from self.hoist()

    def read(self, e: Expr) -> str:
        return "run_divisor" if e.attr == DIVISOR else f"total_{e.attr}"

    def line(self) -> Iterator[str]:
        core = _reduction(self.spec)
        assert core.lane_axis is None, "CPU kernels combine all lanes"
        powers = [self._power_of_bytes(core, value) for value in core.summands]
        if all(powers):
            yield from self._of_bytes(core, powers)
            return
        if _in_blocks(core):
            yield from self._by_blocks(core)
        elif not core.acc.is_float:
            yield from self._in_registers(core)
        elif core.channels:
            yield from self._in_lanes(core)
        else:
            yield "if run_lanes == 1:"
            yield from indented(self._one_by_one(core))
            yield "else:"
            yield from indented(self._in_lanes(core))

    # -- bytes in memory -----------------------------------------------------------------------

    def _power_of_bytes(self, core: Reduction, value: Expr) -> int:
        """1 or 2 if bytes or their squares are summed from contiguous memory; else 0."""
        if core.combine != "add" or core.acc is not dt.uint64 or core.channels:
            return 0
        e, power = value, 1
        if e.op == "mul" and e.args[0] is e.args[1] and e.dtype.bits > 8:
            e, power = e.args[0], 2
        while e.op == "cast" and e.dtype.kind is DType.Kind.unsigned:
            e = e.args[0]
        if e.op != "load" or e.dtype is not dt.uint8 or self.spec.loads[e.attr].guarded:
            return 0
        tail = self.spec.loads[e.attr].strides[self.spec.rank :]
        self._bytes_slot = e.attr
        return power if len(tail) == len(core.axes) and tail[-1] == 1 else 0

    def _of_bytes(self, core: Reduction, powers: list[int]) -> Iterator[str]:
        """Sum bytes by instructions for that, see native/byte_sums.py. (LLVM's own loops take 16 µs
        instead of 9 for 600 KB in the L2 cache, and 27 instead of 14 for squares.)"""
        both = len(powers) > 1
        helper = "sums_of_powers" if both else ("sum_of_bytes", "sum_of_squares")[powers[0] - 1]
        self.writer.imports.add(helper)

        def body() -> Iterator[str]:
            at = self._offset(self._bytes_slot, self._positions(core, "0"))
            found = f"{helper}(in_{self._bytes_slot} + {at}, run_n_{len(core.axes) - 1})"
            if both:
                yield f"powers = {found}"
            for k, power in enumerate(powers):
                more = f"powers[{power - 1}]" if both else found
                yield f"total_{k} = u64(total_{k} + u64({more}))"

        yield from self._start_totals(core)
        yield from self._rows(core, body())

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
            lines, values = self.elements(core.summands, self._positions(core, "q"))
            yield from indented(lines)
            for k, value in enumerate(values):
                yield f"    total_{k} = {_combined(core, core.acc, f'total_{k}', value)}"

        yield from self._start_totals(core)
        yield from self._rows(core, body())

    def _in_registers(self, core: Reduction) -> Iterator[str]:
        """Combine integers in registers; their order does not matter."""
        last = len(core.axes) - 1
        narrow = [_sum_type(core, value) for value in core.summands]
        if all(kind is core.acc for kind in narrow):
            yield from self._one_by_one(core)
            return

        def body() -> Iterator[str]:
            yield f"for first in range(0, run_n_{last}, {NARROW_RUN}):"
            for k, kind in enumerate(narrow):
                yield f"    part_{k} = {self._start(core, kind)}"
            yield f"    for q in range(first, min(first + {NARROW_RUN}, run_n_{last})):"
            lines, values = self.elements(core.summands, self._positions(core, "q"))
            yield from indented(lines, 2)
            for k, (kind, value) in enumerate(zip(narrow, values, strict=True)):
                yield f"        part_{k} = {_combined(core, kind, f'part_{k}', value)}"
            for k in range(len(narrow)):
                yield f"    total_{k} = {_combined(core, core.acc, f'total_{k}', f'part_{k}')}"

        yield from self._start_totals(core)
        yield from self._rows(core, body())

    def _start_totals(self, core: Reduction) -> Iterator[str]:
        for k in range(core.lanes * len(core.summands)):
            yield f"total_{k} = {self.writer.ref(core.start)}"

    def _by_blocks(self, core: Reduction) -> Iterator[str]:
        """Combine integers in blocks of lanes, channels innermost; their order does not matter.

        A turn adds one value to each lane. Before a lane can overflow, the blocks are emptied.
        """
        n, c = f"run_n_{len(core.axes) - 1}", core.lanes
        kinds = [_sum_type(core, value) for value in core.summands]
        widest = max(kind.bytes for kind in kinds)
        values = BLOCK_BYTES[c] // widest // c  # per turn and channel
        narrow = [kind.bits for kind in kinds if kind is not core.acc]
        turns = 1 << min(narrow) // 2 if narrow else 0

        def body() -> Iterator[str]:
            yield "first = 0"
            yield f"while first < {n}:"
            if turns:
                yield f"    if turn == {turns}:"
                yield from indented(self._empty_blocks(core, kinds, values), 2)
                yield "        turn = 0"
            whole = f"({n} - first) // {values}"
            yield f"    blocks = {f'min({whole}, {turns} - turn)' if turns else whole}"
            yield "    for _ in range(blocks):"
            yield from indented(self._add_run(core, kinds, str(values), "0"), 2)
            yield f"        first += {values}"
            yield "    turn += blocks"
            full = f" and turn < {turns}" if turns else ""
            yield f"    if {n} - first < {values}{full}:"
            yield f"        left = {n} - first"
            yield from indented(self._add_run(core, kinds, "left", "0"), 2)
            yield "        first += left"
            yield "        turn += 1"

        yield from self._start_totals(core)
        yield f"for j in range({values * c}):"
        for k, kind in enumerate(kinds):
            yield f"    store_{kind}_7(lanes_{k}, j, {self._start(core, kind)})"
        yield "turn = 0"
        yield from self._rows(core, body())
        yield from self._empty_blocks(core, kinds, values)

    def _empty_blocks(self, core: Reduction, kinds: list[DType], values: int) -> Iterator[str]:
        """Combine the lanes of all blocks into the totals."""
        c = core.lanes
        yield f"for j in range({values}):"
        for k, kind in enumerate(kinds):
            for channel in range(c):
                lane = f"lanes_{k}, j * {c} + {channel}"
                yield f"    {self._into_total(core, k * c + channel, f'row_{kind}({lane})')}"
                yield f"    store_{kind}_7({lane}, {self._start(core, kind)})"

    def _start(self, core: Reduction, kind: DType) -> str:
        return self.writer.ref(core.start) if kind is core.acc else f"{kind}(0)"

    def _into_total(self, core: Reduction, channel: int, value: str) -> str:
        total = f"total_{channel}"
        return f"{total} = {_combined(core, core.acc, total, value)}"

    def _in_lanes(self, core: Reduction) -> Iterator[str]:
        """Combine floats in lanes, which lie side by side in scratch memory, channels innermost."""
        last, c = len(core.axes) - 1, core.lanes
        kind = core.acc

        def body() -> Iterator[str]:
            yield "first = 0"
            yield f"while first < run_n_{last}:"
            yield f"    count = min(run_lanes - turn, run_n_{last} - first)"
            yield from indented(self._add_run(core, [kind], "count", "turn"))
            yield "    first += count"
            yield "    turn += count"
            yield "    if turn == run_lanes:"
            yield "        turn = 0"

        start = self.writer.ref(core.start)
        yield f"for j in range(run_lanes * {c}):"
        yield f"    store_{kind}_7(lanes, j, {start})"
        yield "turn = 0"
        yield from self._rows(core, body())
        yield f"for fold in range({FOLD * c}, run_lanes * {c}, {FOLD * c}):"
        yield f"    for j in range({FOLD * c}):"
        yield from indented(
            [_into_lane(core, kind, "lanes", "j", f"row_{kind}(lanes, fold + j)")], 2
        )
        for channel in range(c):
            yield f"total_{channel} = {start}"
        yield f"for j in range(min(run_lanes, {FOLD})):"
        for channel in range(c):
            lane = f"row_{kind}(lanes, j * {c} + {channel})"
            yield f"    {self._into_total(core, channel, lane)}"

    def _add_run(self, core: Reduction, kinds: list[DType], count: str, lane: str) -> Iterator[str]:
        """Combine `count` values from `first` on into the lanes from `lane` on."""
        c = core.lanes
        if core.channels and self._is_packed(core):
            yield f"for j in range({count} * {c}):"
            places = [*self._positions(core, "first"), "j"]
            yield from indented(self._into_lanes(core, kinds, f"{lane} * {c} + j", places))
            return
        yield f"for j in range({count}):"
        for channel in range(c):
            places = [*self._positions(core, "(first + j)"), str(channel)]
            own = f"({lane} + j) * {c} + {channel}" if c > 1 else f"{lane} + j"
            yield from indented(self._into_lanes(core, kinds, own, places))

    def _into_lanes(
        self, core: Reduction, kinds: list[DType], lane: str, places: list[str]
    ) -> Iterator[str]:
        """Combine the values at one position into their lanes."""
        lines, values = self.elements(core.summands, places)
        yield from lines
        for k, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            block = "lanes" if core.acc.is_float else f"lanes_{k}"
            yield _into_lane(core, kind, block, lane, value)

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


def _into_lane(core: Reduction, kind: DType, block: str, lane: str, value: str) -> str:
    both = _combined(core, kind, f"row_{kind}({block}, {lane})", value)
    return f"store_{kind}_7({block}, {lane}, {both})"


def _combined(core: Reduction, kind: DType, a: str, b: str) -> str:
    """Source that combines two values into one of type `kind`; `b` may be narrower."""
    if core.combine != "add":
        return f"choose({b} {'<' if core.combine == 'min' else '>'} {a}, {b}, {a})"
    if kind is dt.int64:  # in Numba, overflow of signed integers is undefined
        return f"i64(u64({a}) + u64(i64({b})))"
    return f"{a} + {kind}({b})" if kind.is_float else f"{kind}({a} + {kind}({b}))"
