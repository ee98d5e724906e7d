"""Renders a `Mosaic` as source of a CPU kernel, which computes the colours row by row.

A ring in scratch memory keeps the rows that a line reads, with room for a border on both sides. The
line is computed in pairs of columns, the first of which sees green, so the innermost loop has no
tests and LLVM vectorises it. Each colour gets a plane; the kernel's own loop reads the planes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir.core import Column
from ..ir.expr import Expr, walk
from ..ir.mosaic import SMALL, Mosaic, Sensors
from ..ir.spec import KernelSpec
from .cores import Array, CpuCore, indented

if TYPE_CHECKING:
    from .render import Writer

# A pair may begin before the first column and end after the last one, so each side has room for the
# elements that these two read, and rows have room for a vector more.
_SLACK = 64
# Planes are written in alias scopes of their own; the last scope is that of the rows.
_PLANE_SCOPES = (4, 5, 6)


def _core(spec: KernelSpec) -> Mosaic:
    assert isinstance(spec.core, Mosaic)
    return spec.core


def _ring(core: Mosaic) -> int:
    return 2 * core.reach + 1


class MosaicLines(CpuCore):
    """Writes a `Mosaic`."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self.core = _core(self.spec)
        self.dtype = self.core.value.dtype
        self.margin = self.core.reach + 1  # elements before the first one of a row

    @property
    def line_depth(self) -> int:
        return len(self.spec.loop_axes) - (self.core.axes[1] is not None)

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("rows", "kept", "planes", "line")

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        core = _core(spec)
        n, nbytes = numbers(("mosaic", "columns")), core.value.dtype.bytes
        axis = core.axes[1]
        shown = np.ones_like(n) if axis is None else numbers(("n", axis))
        pitch = n + 2 * (core.reach + 1) + _SLACK
        rows, lanes = _ring(core), core.lanes
        return [
            rows * pitch * nbytes, 0 * n + 8 * rows, lanes * pitch * nbytes,
            lanes * (shown + _SLACK) * nbytes,
        ]  # fmt: skip

    def _o(self, k: int) -> str:
        axis = self.core.axes[k]
        return "0" if axis is None else f"o_{axis}"

    def _n(self) -> str:
        axis = self.core.axes[1]
        return "1" if axis is None else f"n_{axis}"

    def read(self, e: Expr) -> str:
        # Without an alias scope: the planes are written in other scopes.
        return f"get_{self.dtype}(shown, {e.attr} * shown_pitch + {self._o(1)})"

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        for name in self.areas(self.spec):
            yield f"{name} = scratch + area_{name}"
        yield f"pitch = mosaic_columns + {2 * self.margin + _SLACK}"
        yield f"for slot in range({_ring(self.core)}):"
        yield "    put_i64(kept, slot, -1)"
        last = f"mosaic_at_1 + mosaic_step_1 * ({self._n()} - 1)"
        yield "lowest = min(max(min(mosaic_at_1, " + last + "), 0), mosaic_columns - 1)"
        yield "highest = min(max(max(mosaic_at_1, " + last + "), 0), mosaic_columns - 1)"
        yield "lowest = min(lowest, max(mosaic_columns - 2, 0))"
        yield "highest = max(highest, min(1, mosaic_columns - 1))"
        reach = self.core.reach
        yield f"low = max(lowest - {reach}, 0)"
        yield f"high = min(highest + {reach} + 1, mosaic_columns)"
        inside = f"(mosaic_at_1 >= 0) & ({last} < mosaic_columns)"
        yield f"is_straight = (mosaic_step_1 == 1) & {inside}"
        yield from self.hoist()

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        core = self.core
        yield f"y = min(max(mosaic_step_0 * {self._o(0)} + mosaic_at_0, 0), mosaic_rows - 1)"
        if core.small is None:
            yield from self._line_of(core.sensors, core.reach, core.is_mirrored)
        else:
            yield f"if (mosaic_rows < {SMALL}) | (mosaic_columns < {SMALL}):"
            yield from indented(self._line_of(core.small, 1, False))
            yield "else:"
            yield from indented(self._line_of(core.sensors, core.reach, core.is_mirrored))
        yield from self._arranged()

    def _line_of(self, sensors: Sensors, reach: int, is_mirrored: bool) -> Iterator[str]:
        """All columns of row y."""
        if not is_mirrored:
            yield "if (mosaic_rows <= 2) | (mosaic_columns <= 2):"
            yield from indented(self._zeros())
            yield "else:"
            yield "    y = min(max(y, 1), mosaic_rows - 2)"
        yield from indented(self._pairs(sensors, reach, is_mirrored), 0 if is_mirrored else 1)

    def _zeros(self) -> Iterator[str]:
        yield f"for q in range({self.core.lanes} * pitch):"
        yield f"    put_{self.dtype}(planes, q, {self.dtype}(0))"

    def _pairs(self, sensors: Sensors, reach: int, is_mirrored: bool) -> Iterator[str]:
        yield from self._rows(reach, is_mirrored)
        nbytes, margin = self.dtype.bytes, self.margin
        yield "blue_row = (y + mosaic_blue_0 + 1) & 1 == 0"
        yield "x0 = lowest"
        yield "if ((y + mosaic_blue_0) ^ (x0 + mosaic_blue_1)) & 1 == 0:"
        yield "    x0 -= 1"  # pairs begin with a sensor that sees green
        yield "pairs = (highest + 2 - x0) // 2"
        for d in range(-reach, reach + 1):
            yield f"tap_{d + reach} = row_{d + reach} + (x0 + {margin}) * {nbytes}"
        lanes = self.core.lanes
        for k in range(lanes):
            yield f"plane_{k} = planes + ({k} * pitch + x0 + {margin}) * {nbytes}"
        if len(sensors) == 4:
            yield "if blue_row:"
            yield from indented(self._loop(sensors[:2], reach))
            yield "else:"
            yield from indented(self._loop(sensors[2:], reach))
        else:
            yield "if not blue_row:"
            yield f"    plane_0, plane_{lanes - 1} = plane_{lanes - 1}, plane_0"
            yield from self._loop(sensors, reach)
        if not is_mirrored:
            yield from self._edges()

    def _loop(self, sensors: Sensors, reach: int) -> Iterator[str]:
        chroma, green = sensors
        yield "for j in range(pairs):"
        for shift, colours in ((0, green), (1, chroma)):
            for e in walk(colours):
                if e.op == "const":
                    continue
                text = None
                if e.op == "tap":
                    down, right = e.attr
                    text = f"row_{self.dtype}(tap_{down + reach}, 2 * j + {right + shift})"
                yield f"    {self.writer.assign(e, text)}"
            for k, colour in enumerate(colours):
                store = f"store_{self.dtype}_{_PLANE_SCOPES[k]}"
                yield f"    {store}(plane_{k}, 2 * j + {shift}, {self.writer.ref(colour)})"

    def _edges(self) -> Iterator[str]:
        """The outermost columns get the colours of those next to them."""
        get, put = f"get_{self.dtype}", f"put_{self.dtype}"
        last = f"{self.margin} + mosaic_columns - 1"
        for k in range(self.core.lanes):
            plane = f"planes + {k} * pitch * {self.dtype.bytes}"
            for to, of in ((f"{self.margin}", f"{self.margin + 1}"), (last, f"{last} - 1")):
                yield f"{put}({plane}, {to}, {get}({plane}, {of}))"

    # -- rows ----------------------------------------------------------------------------------

    def _rows(self, reach: int, is_mirrored: bool) -> Iterator[str]:
        """The rows around row y, computed unless the ring has them."""
        outer = self.outer_number()
        size = _ring(self.core)
        for d in range(-reach, reach + 1):
            name = self.writer.fresh("r")
            if is_mirrored:
                yield from _mirrored(name, f"y + {d}", "mosaic_rows")
            else:
                yield f"{name} = min(y + {d}, mosaic_rows - 1)"
            yield f"slot = {name} % {size}"
            yield f"row_{d + reach} = rows + slot * pitch * {self.dtype.bytes}"
            yield f"if get_i64(kept, slot) != {outer} * mosaic_rows + {name}:"
            yield f"    put_i64(kept, slot, {outer} * mosaic_rows + {name})"
            yield from indented(self._fill(f"row_{d + reach}", name))

    def _fill(self, row: str, y: str) -> Iterator[str]:
        """Columns `low` to `high` of a row, and the mirrored ones beyond its ends."""
        kind, margin = self.dtype, self.margin
        yield "for q in range(low, high):"
        lines, value = self.element([y, "q"])
        yield from indented([*lines, f"store_{kind}_7({row}, q + {margin}, {value})"])
        if not self.core.is_mirrored:
            return
        yield "if low == 0:"
        for d in range(1, self.core.reach + 1):
            name = self.writer.fresh("r")
            yield from indented(_mirrored(name, f"-{d}", "mosaic_columns"))
            yield f"    store_{kind}_7({row}, {margin - d}, row_{kind}({row}, {name} + {margin}))"
        yield "if high == mosaic_columns:"
        for d in range(self.core.reach):
            name = self.writer.fresh("r")
            yield from indented(_mirrored(name, f"high + {d}", "mosaic_columns"))
            place = f"high + {margin + d}"
            yield f"    store_{kind}_7({row}, {place}, row_{kind}({row}, {name} + {margin}))"

    def _arranged(self) -> Iterator[str]:
        """The columns in the order in which the kernel's loop reads them."""
        kind, nbytes, margin = self.dtype, self.dtype.bytes, self.margin
        yield f"shown, shown_pitch = planes + (mosaic_at_1 + {margin}) * {nbytes}, pitch"
        yield "if not is_straight:"
        yield f"    shown, shown_pitch = line, {self._n()}"
        yield f"    for q in range({self._n()}):"
        yield "        x = min(max(mosaic_step_1 * q + mosaic_at_1, 0), mosaic_columns - 1)"
        for k in range(self.core.lanes):
            value = f"get_{kind}(planes, {k} * pitch + x + {margin})"
            yield f"        put_{kind}(line, {k} * shown_pitch + q, {value})"


def _mirrored(name: str, place: str, n: str) -> Iterator[str]:
    """A position mirrored at both ends; a third time if there are two elements."""
    yield f"{name} = abs({place})"
    yield f"{name} = abs(min({name}, ({n} - 1) * 2 - {name}))"
