"""Rows of what a core reads → the source that computes them, for cores that keep rows (windows.py).

A row is float32, each channel in its own plane. It comes from memory, from an expression over
operands, or from a core inside of this one, which computes one row at a time (ir/core.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..ir import dtypes as dt
from ..ir.core import Core
from ..ir.expr import Expr, const, rewrite, walk
from ..ir.rewrites import fold, without_detours
from .cores import CpuCore

if TYPE_CHECKING:
    from .render import Writer

# Native functions widen rows of these types to float32; a loop in the kernel does it for others.
_WIDENED = (dt.uint8, dt.int8, dt.uint16, dt.int16, dt.int32, dt.float32, dt.float64)


class Rows:
    """Writes the rows of one core, for one `Writer`."""

    def __init__(self, writer: Writer, core: Core) -> None:
        self.writer = writer
        self.spec = writer.spec
        self.core = core
        self.first = self.spec.rank  # axis of the core's first dimension
        self.last = self.spec.rank + len(core.axes) - 1
        self.values = [self._at_lane(lane) for lane in range(core.lanes)]
        self.constants = self._constants()
        self.inner: CpuCore | None = None
        if core.inner is not None:
            self.inner = core.inner.cpu_renderer()(writer.inside())

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        """Compute what all elements share."""
        if self.inner is not None:
            for k in range(len(self.core.axes)):
                extent = "_".join(map(str, self.core.extent(k)))
                yield f"n_{self.first + k} = {extent}"
            yield from self.inner.prepare()
        nowhere = ["0"] * len(self.core.axes)
        for e in self.constants:
            yield self.writer.assign(e, self._leaf(e, nowhere))

    # -- a row ---------------------------------------------------------------------------------

    def row(self, places: Sequence[str], to: str) -> Iterator[str]:
        """Compute columns `low` to `high` of the row at `places`, in memory that begins at `origin`
        and has planes `pitch` apart."""
        if self.inner is not None:
            for k, place in enumerate(places):
                yield f"o_{self.first + k} = {place}"
            yield from self.inner.line()
            yield from self._each_value(places, to)
            return
        at, lanes, slot = f"{to} + (low - origin) * 4", self.core.lanes, self.plain_load()
        if slot is None:
            yield from self._each_value(places, to)
            return
        access = self.spec.loads[slot]
        tail: tuple[int | None, ...] = access.strides[self.last :]
        if tail == ((lanes, 1) if lanes > 1 else (1,)):
            helper = self._call(f"widen_row_{access.dtype}_{lanes}")
            source = f"in_{slot} + ({self._offset(slot, [*places, 'low'])}) * {access.dtype.bytes}"
            yield f"{helper}({source}, high - low, {at}, pitch)"
        elif tail[:1] == (1,):
            helper, lane = self._call(f"widen_row_{access.dtype}_1"), self.writer.fresh("c")
            offset = self._offset(slot, [*places, "low", lane])
            source = f"in_{slot} + ({offset}) * {access.dtype.bytes}"
            yield f"for {lane} in range({lanes}):"
            yield f"    {helper}({source}, high - low, {at} + {lane} * pitch * 4, pitch)"
        else:
            yield from self._each_value(places, to)

    def _call(self, helper: str) -> str:
        self.writer.helpers.add(helper)
        return helper

    def _each_value(self, places: Sequence[str], to: str) -> Iterator[str]:
        """Compute the values of a row, all channels of a pixel together."""
        column = f"o_{self.last}"
        yield f"for {column} in range(low, high):"
        for e in walk(self.values):
            if e.op != "const" and e not in self.constants:
                yield f"    {self.writer.assign(e, self._leaf(e, [*places, column]))}"
        for lane, value in enumerate(self.values):
            # Planes never overlap, and only helpers read them, so each has an alias scope.
            store = f"store_f32_{lane}" if lane else "store_f32"
            place = f"{column} - origin + {lane} * pitch"
            yield f"    {store}({to}, {place}, {self.writer.ref(value)})"

    def plain_load(self) -> int | None:
        """The slot of the operand if an element is only a load (or its cast to float32)."""
        e = self.core.value
        while e.op == "cast" and e.dtype is dt.float32:
            e = e.args[0]
        if e.op != "load" or len(self.spec.loads[e.attr].strides) <= self.last:
            return None
        slot: int = e.attr
        access = self.spec.loads[slot]
        return slot if access.dtype in _WIDENED and not access.guarded else None

    # -- values --------------------------------------------------------------------------------

    def _at_lane(self, lane: int) -> Expr:
        """The value of one channel; what does not depend on the channel is the same for all."""
        memo: dict[Expr, Expr] = {}
        axis = self.last + 1

        def leaf(e: Expr) -> Expr | None:
            if e.op == "load":
                strides = self.spec.loads[e.attr].strides
                varies = len(strides) > axis and strides[axis] != 0
                return Expr("load", e.dtype, (), (e.attr, lane if varies else 0))
            if e.op == "index":
                index = self.spec.indices[e.attr]
                if index.axis == axis and index.identity:
                    return const(lane, e.dtype)
                return Expr("index", e.dtype, (), (e.attr, lane if index.axis == axis else 0))
            if e.op == "core":
                kind, number = e.attr
                return Expr("core", e.dtype, (), lane if kind == "axis" else number)
            return fold(e, memo)

        return without_detours([rewrite(self.core.value, leaf, memo)])[0]

    def _constants(self) -> dict[Expr, None]:
        """The parts of the values that no position changes, in order."""
        found: dict[Expr, None] = {}
        for e in walk(self.values):
            if e.op == "load":
                strides = self.spec.loads[e.attr[0]].strides
                is_constant = all(s == 0 for s in strides[: self.last + 1])
            elif e.op == "index":
                is_constant = self.spec.indices[e.attr[0]].axis in (None, self.last + 1)
            else:
                is_constant = bool(e.args) and all(a in found or a.op == "const" for a in e.args)
            if is_constant:
                found[e] = None
        return found

    def _leaf(self, e: Expr, places: Sequence[str]) -> str | None:
        """Source of a leaf for the element at `places`; None if `e` is no leaf."""
        if e.op == "load":
            slot, lane = e.attr
            slot, shift = self.writer.operand(slot)
            offset = self._offset(slot, [*places, str(lane)])
            return f"load_{e.dtype}(in_{slot}, {offset}{f' + {shift}' if shift else ''})"
        if e.op == "core":
            assert self.inner is not None
            return self.inner.read(e)
        if e.op != "index":
            return None
        slot, lane = e.attr
        index = self.spec.indices[slot]
        o = "0"
        if index.axis is not None:
            at = [*places, str(lane)]
            o = f"o_{index.axis}" if index.axis < self.first else at[index.axis - self.first]
        return f"i32({o})" if index.identity else f"i32(step_{slot} * {o} + offset_{slot})"

    def _offset(self, slot: int, places: Sequence[str]) -> str:
        """Source of an operand's offset at positions along the core's dimensions and channels."""
        terms = [self.writer.outer_offset(slot, {})]
        strides = self.spec.loads[slot].strides[self.first :]
        for k, (place, stride) in enumerate(zip(places, strides)):
            if stride != 0 and place != "0":
                by = f"in_stride_{slot}_{self.first + k}" if stride is None else str(stride)
                terms.append(f"{place} * {by}")
        return " + ".join(t for t in terms if t != "0") or "0"
