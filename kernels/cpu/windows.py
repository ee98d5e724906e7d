"""Renders a `WindowSum` as source of a CPU kernel, which computes one line of the result at a time.

The kernel computes each input row once, as float32 with its border, each channel in its own plane.
A ring in scratch memory keeps the rows that the next lines need. A separable window is summed along
each row before the row enters the ring, and a line is a weighted sum of rows in the ring. If one
window spans all dimensions, the ring keeps unsummed rows, and a line is a weighted sum of shifted
rows. Either way it is a weighted sum of runs of floats, given a list of their addresses
(native/window_sums.py, and native/folded_sums.py for symmetric windows). Up to four lines are
summed at once. Later ops of the group read the line, so no full-size intermediate exists.

NOTE [weights of zero] A window that spans all dimensions may be a line or a star, with zeros for
most of its weights. If half of them are zeros, those taps are left out. That keeps every bit if the
elements are unsigned integers: a product with +0 is +0, and adding it only changes a sum of -0. So
the first tap with a weight of +0 stays, after which no sum is -0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir import dtypes as dt
from ..ir.core import Column
from ..ir.expr import Expr
from ..ir.spec import KernelSpec
from ..ir.windows import LINES, WindowSum, period
from .byte_windows import ByteLines, sums_to_bytes
from .cores import Array, CpuCore, indented
from .native.block_sizes import GROUP
from .rows import Rows

if TYPE_CHECKING:
    from .render import Writer

LINE = 2 * GROUP  # floats in a cache line; rows of a ring are aligned to cache lines


class WindowLines(CpuCore):
    """Writes a `WindowSum`."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = _core(self.spec)
        self.core = core
        self.axes = core.axes
        self.last = len(core.axes) - 1
        self.rows = range(self.last)
        self.channels = core.lanes
        self.parts = range(max(core.parts, 1))
        self.is_direct = core.parts == 0
        self.source = Rows(writer, core)
        # Neighbouring lines read nearly the same rows, so we compute some of them together.
        self.has_groups = self.last == 1 and (self.is_direct or core.is_symmetric)
        self.may_skip = self.has_groups and self.is_direct and self._is_unsigned()
        self.bytes = ByteLines(self) if sums_to_bytes(self) else None
        self.stores_line = self.bytes is not None
        if self.source.inner is not None:
            self.source.inner.row_step = "win_step_0"

    def _is_unsigned(self) -> bool:
        """Whether all elements that windows read are unsigned integers of memory."""
        slot = self.source.plain_load()
        if slot is None or self.source.inner is not None or self.core.border == "constant":
            return False
        return self.spec.loads[slot].dtype in (dt.uint8, dt.uint16)

    @property
    def line_depth(self) -> int:
        return len(self.spec.loop_axes) - (self.axes[-1] is not None)

    @property
    def _column_bytes(self) -> int:
        """Bytes from one position of a row in the ring to the next."""
        return 4 if self.bytes is None else 4 * self.bytes.column

    @property
    def _sum_lines(self) -> str:
        return "sum_lines" if self.bytes is None else "sum_to_bytes"

    # -- scratch memory ------------------------------------------------------------------------

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        core = _core(spec)
        rings = [f"ring_{p}" for p in range(max(core.parts, 1))]
        lists = [f"{what}_{p}" for p in range(core.parts) for what in ("across", "down", "deep")]
        rows = ("line", "summed", "outs", "part", "raw", "kept", "layers")
        return (*rows, *rings, *(lists or ["taps", "chosen", "factors"]))

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        core = _core(spec)
        parts, last = range(max(core.parts, 1)), len(core.axes) - 1

        def counts(k: int) -> list[Array]:
            return [numbers(("win_count", p, k)) for p in parts]

        def reach(k: int) -> Array:
            """Elements that all windows together span along a dimension."""
            anchors = [numbers(("win_anchor", p, k)) for p in parts]
            after = [c - a for c, a in zip(counts(k), anchors, strict=True)]
            reached: Array = np.max(anchors, axis=0) + np.max(after, axis=0)
            return reached

        axis = core.axes[last]
        one = np.ones_like(reach(last))
        n = one if axis is None else numbers(("n", axis))
        row = numbers(("win_in", last)) + reach(last) + 2 * LINE
        line, raw = (4 * core.lanes * width for width in (np.maximum(row, n + LINE), row))
        slots = one
        for k in range(last):
            slots = slots * numbers(("win_ring", k))
        slots = slots + 1
        layers = raw * np.max(counts(0), axis=0) if last == 2 and core.parts else 0 * one
        areas = [line, LINES * raw, 8 * LINES * one, raw, raw, 8 * slots, layers]
        areas += [slots * raw for _ in parts]
        for p in range(core.parts):
            along = [numbers(("win_count", p, k)) for k in range(last + 1)]
            areas += [8 * along[-1], 8 * (along[max(last - 1, 0)] + LINES), 8 * along[0]]
        if not core.parts:
            sizes = [counts(k)[0] for k in range(last + 1)]
            taps = np.prod(sizes, axis=0)
            areas += [8 * LINES * (taps + sizes[-1]), 16 * taps, 4 * taps]
        return areas

    # -- once per sample -----------------------------------------------------------------------

    def read(self, e: Expr) -> str:
        o = "0" if self.axes[-1] is None else f"o_{self.axes[-1]}"
        return f"row_f32(line, {e.attr} * room + {o})"

    def _n(self, k: int) -> str:
        """Positions of the kernel's loop along a dimension."""
        return "1" if self.axes[k] is None else f"n_{self.axes[k]}"

    def _o(self, k: int) -> str:
        return "0" if self.axes[k] is None else f"o_{self.axes[k]}"

    def prepare(self) -> Iterator[str]:
        core, last = self.core, self.last
        for name in self.areas(self.spec):
            yield f"{name} = scratch + area_{name}"
        yield f"weights = in_{core.weights}"
        fill = "f32(0.0)" if core.fill is None else f"load_f32(in_{core.fill}, 0)"
        yield f"outside = {fill}"
        for k in range(last + 1):
            anchors = [f"win_anchor_{p}_{k}" for p in self.parts]
            after = [f"win_count_{p}_{k} - win_anchor_{p}_{k}" for p in self.parts]
            yield f"before_{k} = {_largest(anchors)}"
            yield f"reach_{k} = before_{k} + {_largest(after)}"
            if k < last:
                yield f"around_{k} = max({period(core.border, f'win_in_{k}')}, 1)"
                yield f"last_of_{k} = win_ring_{k} - 1"
        # Find the columns of the result that are needed, and the part of a row that they read.
        n = self._n(last)
        yield f"from_0 = min(max(win_at_{last}, 0), win_n_{last} - 1)"
        to = f"win_at_{last} + win_step_{last} * ({n} - 1)"
        yield f"from_1 = min(max({to}, 0), win_n_{last} - 1)"
        yield "lowest = min(from_0, from_1)"
        yield "columns = max(from_0, from_1) - lowest + 1"
        yield f"begin = lowest - before_{last}"
        yield f"end = begin + columns - 1 + reach_{last}"
        yield from self._span(f"win_in_{last}")
        yield "origin = min(begin, low)"
        yield "pitch = max(end, high) - origin"
        yield from self._sizes(n) if self.bytes is None else self.bytes.sizes()
        slots = " * ".join(f"win_ring_{k}" for k in self.rows) or "1"
        yield f"slots = {slots}"
        # The sums of lines `made` to `made + more` are known. There are none yet.
        yield f"made, more = -{LINES}, 0"
        yield "for slot in range(slots):"
        yield "    put_i64(kept, slot, -1)"
        for p in range(core.parts):
            yield f"across_at_{p} = raw + (lowest - win_anchor_{p}_{last} - origin) * 4"
            if not core.is_symmetric:
                yield f"for tap in range(win_count_{p}_{last}):"
                yield f"    put_i64(across_{p}, tap, across_at_{p} + tap * 4)"
        if core.is_scaled:
            self.writer.imports.add("as_f32")
        if self.may_skip:
            yield from self._choose_taps()
        if self.bytes is not None:
            yield from self.bytes.prepare()
        yield from self.source.prepare()
        if core.border == "constant":
            row = "ring_0 + slots * size * 4" if self.is_direct else "raw"
            edges = f"{self.channels}, pitch, origin, begin, end, end, end, 0, outside"
            yield f"{self._call('pad_edges_constant')}({row}, {edges})"
            yield from self._across("slots")

    def _sizes(self, n: str) -> Iterator[str]:
        """The sizes of rows; one loop sums all planes and the gaps between them."""
        lanes, last = self.channels, self.last
        yield f"size = {_in_lines(f'{lanes} * pitch')}"
        yield f"used = {lanes - 1} * pitch + columns"
        yield "across_used, mirrored, first_at = used, 0, 0"
        yield f"is_straight = (win_step_{last} == 1) & (columns == {n})"
        yield f"room = pitch if is_straight else {_in_lines(n)}"
        if self.has_groups and not self.is_direct:
            # Sums along a row are stored in reverse order, so the last plane comes first.
            yield f"whole = {lanes} * pitch"
            yield f"if (win_step_{last} == -1) & (columns == {n}) & (whole >= {LINE}):"
            yield "    is_straight, used, mirrored, room = True, whole, whole, -pitch"
            yield "    first_at = whole - columns"

    def _span(self, n: str) -> Iterator[str]:
        """The range of input columns to read, `low` to `high`, including those that the border
        mirrors or repeats."""
        border = self.core.border
        yield f"low = min(max(begin, 0), {n} - 1)"
        yield f"high = max(min(end, {n}), low + 1)"
        if border == "wrap":
            yield f"if (begin < 0) | (end > {n}):"
            yield f"    low, high = 0, {n}"
        elif border.startswith("reflect"):
            yield "if begin < 0:"
            yield f"    high = max(high, min({n}, 1 - begin))"
            yield f"if end > {n}:"
            yield f"    low = min(low, max(2 * {n} - 1 - end, 0))"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        for k in self.rows:
            place = f"win_step_{k} * {self._o(k)} + win_at_{k}"
            yield f"at_{k} = min(max({place}, 0), win_n_{k} - 1) + win_bias_{k}"
        if self.bytes is not None:
            yield from self.bytes.line()
            return
        yield f"ahead = {self._line_number()} - made"
        yield "if (ahead < 0) | (ahead > more):"
        yield "    made, ahead = made + ahead, 0"
        yield from indented(self._lines())
        yield from self._turned()

    def _line_number(self) -> str:
        """The number of the current line."""
        number = self.outer_number()
        for k in self.rows:
            number = f"({number} * {self._n(k)} + {self._o(k)})"
        return number

    def _turned(self) -> Iterator[str]:
        """Set `line` to the current line, with the columns that the kernel's loop asks for."""
        last, own = self.last, "summed + ahead * size * 4"
        yield "if is_straight:"
        yield f"    line = {own} + first_at * 4"
        yield "else:"
        yield "    line = scratch + area_line"
        given = f"line, room, {self.channels}, {self._n(last)}, win_step_{last}"
        turn = f"{self._call('turn_line')}({own}, pitch, {given}"
        yield f"    {turn}, win_at_{last} - lowest, columns)"

    def _lines(self) -> Iterator[str]:
        """Compute the sums of the current line and of some that follow it."""
        spans = {k: (f"before_{k}", f"reach_{k}") for k in self.rows}
        if self.has_groups:
            self.writer.imports.add("lines_ahead")
            place = f"win_step_0, win_at_0, {self._o(0)}, {self._n(0)}, win_n_0"
            yield f"more = lines_ahead({place}, win_count_0_0)"
            yield "if win_step_0 < 0:"
            yield "    at_0 -= more"
            yield "for tap in range(more + 1):"
            yield "    place = tap if win_step_0 >= 0 else more - tap"
            to = "summed + place * size * 4" if self.bytes is None else self.bytes.target("place")
            yield f"    put_i64(outs, tap, {to})"
            spans[0] = "before_0", "reach_0 + more"
        yield from self._over_rows(self._keep, spans, in_order=self.source.inner is not None)
        if self.is_direct:
            yield from self._direct()
        else:
            for p in self.parts:
                yield from self._part(p)

    def _sum_rows(self, taps: str, weights: str, count: str, by: str, to: str) -> Iterator[str]:
        """The weighted sum of a list of rows; the list of the next line begins `by` rows later."""
        if self.has_groups:
            for lines, test in ((4, "if more == 3:"), (2, "elif more == 1:"), (1, "else:")):
                yield test
                yield f"    {self._sum_group(lines, taps, weights, count, by)}"
        elif self.core.is_symmetric:
            yield f"put_i64(outs, 0, {to})"
            yield self._sum_group(1, taps, weights, count, by)
        else:
            helper = self._call("sum_taps_fma" if self.is_direct else "sum_taps")
            yield f"{helper}({taps}, 0, {weights}, {count}, used, {to})"

    def _sum_group(self, lines: int, taps: str, weights: str, count: str, by: str) -> str:
        """The call that sums some lines at once."""
        if self.is_direct:
            helper = self._call(f"{self._sum_lines}_{lines}")
            return f"{helper}({taps}, {weights}, {count}, {by}, used, outs)"
        return f"{self._call(f'sum_folded_{lines}')}({taps}, {weights}, {count}, used, outs)"

    def _over_rows(
        self,
        body: Callable[[str, str], Iterable[str]],
        spans: dict[int, tuple[str, str]],
        in_order: bool = False,
    ) -> Iterator[str]:
        """Loops over the rows of a window; `body` gets the slot and the number of the row.

        `spans`: per dimension, how far before the position the window begins, and its length.
        `in_order`: begin with the first row that exists, so that rows ascend.
        """
        number, slot, missing = self.outer_number(), "0", []
        border, by = self.core.border, 0
        places: dict[int, str] = {}
        for k, (before, count) in spans.items():
            t, v, s = (self.writer.fresh(stem) for stem in "tvs")
            yield from indented([f"for {t} in range({count}):"], by)
            by += 1
            tap = t
            if in_order:
                tap = self.writer.fresh("t")
                yield from indented([f"{tap} = {t} + max({before} + win_bias_{k} - at_{k}, 0)"], by)
                yield from indented([f"if {tap} >= {count}:", f"    {tap} -= {count}"], by)
            yield from indented(self._place(k, f"at_{k} - {before} + {tap}", v, s), by)
            places[k] = s
            own, extent = s, f"win_in_{k}"
            if border == "wrap":
                own, extent = v, f"(win_in_{k} + win_bias_{k} + reach_{k})"
            if border == "constant":
                missing.append(f"(({v} < 0) | ({v} >= win_in_{k}))")
            number = own if number == "0" else f"({number} * {extent} + {own})"
            ring = f"({own} & last_of_{k})"
            slot = ring if slot == "0" else f"{slot} * win_ring_{k} + {ring}"
        name = self.writer.fresh("slot")
        yield from indented([f"{name} = {slot}"], by)
        if missing:
            yield from indented([f"if {' | '.join(missing)}:", f"    {name} = slots"], by)
        self.places = places
        yield from indented(body(name, number), by)

    def _place(self, k: int, position: str, v: str, s: str) -> Iterator[str]:
        """Compute position `v`, and the row `s` that is read there."""
        yield f"{v} = {position}"
        border = self.core.border
        if border == "clamp" or border == "constant":
            yield f"{s} = min(max({v}, 0), win_in_{k} - 1)"
            return
        yield f"{s} = {v} - win_bias_{k}"
        # Test first, because a division takes as long as ten additions.
        yield f"if ({s} < 0) | ({s} >= win_in_{k}):"
        yield f"    {s} = {v} % around_{k}"
        if border != "wrap":
            mirror = f"around_{k} - {s}" + (" - 1" if border == "reflect_1001" else "")
            yield f"    {s} = min({s}, {mirror})"

    def _keep(self, slot: str, number: str) -> Iterator[str]:
        """Compute a row unless its slot holds it; `kept` lists the row number in each slot."""
        if not self.rows:
            yield from self._row("0")
            return
        test = f"(get_i64(kept, {slot}) != {number})"
        if self.core.border == "constant":
            test = f"({slot} < slots) and {test}"
        yield f"if {test}:"
        yield f"    put_i64(kept, {slot}, {number})"
        yield from indented(self._row(slot))

    def _row(self, slot: str) -> Iterator[str]:
        """Compute one row with its border; for a separable window, also sum along it."""
        row = f"ring_0 + {slot} * size * 4" if self.is_direct else "raw"
        base = self.writer.fresh("b")
        yield f"{base} = {row}"
        if self.bytes is not None:
            yield from self.bytes.keep(self.places[0], base)
            return
        yield from self.source.row([self.places[k] for k in self.rows], base)
        where = f"pitch, origin, begin, low, high, end, win_in_{self.last}, outside"
        pad = self._call(f"pad_edges_{self.core.border}")
        yield "if (begin < low) | (high < end):"
        yield f"    {pad}({base}, {self.channels}, {where})"
        yield from self._across(slot)

    def _across(self, slot: str) -> Iterator[str]:
        """Sum along a row, for all parts."""
        if self.is_direct or not self.rows:
            return
        for p in self.parts:
            yield from self._columns(p, f"ring_{p} + {slot} * size * 4")

    def _columns(self, p: int, to: str) -> Iterator[str]:
        """Sum along a row."""
        taps = f"weights + win_start_{p}_{self.last} * 4, win_count_{p}_{self.last}, across_used"
        if self.core.is_symmetric:
            yield f"{self._call('sum_folded_row')}(across_at_{p}, {taps}, {to}, mirrored)"
        else:
            yield f"{self._call('sum_taps')}(across_{p}, 0, {taps}, {to})"

    def _direct(self) -> Iterator[str]:
        """Sum a window that spans all dimensions, as a weighted sum of shifted rows."""
        if not self.may_skip:
            yield from self._sum_all()
            return
        keyword = "if"
        if self.bytes is not None:
            yield "if mean > 0:"
            yield from indented(self.bytes.means())
            keyword = "elif"
        yield f"{keyword} is_sparse:"
        sum_lines = (
            f"{self._call(f'{self._sum_lines}_1')}(taps, factors, few, 0, used, outs + {{}} * 8)"
        )
        yield from indented(self._sum_chosen(self._column_bytes, sum_lines))
        yield "else:"
        yield from indented(self._sum_all())

    def _sum_all(self) -> Iterator[str]:
        """Sum all taps of a window that spans all dimensions."""
        k, tap, column = self.last, *(self.writer.fresh(stem) for stem in "tc")
        yield f"{tap} = 0"

        def body(slot: str, number: str) -> Iterator[str]:
            by = self._column_bytes
            first = f"ring_0 + {slot} * size * 4 + (lowest - win_anchor_0_{k} - origin) * {by}"
            yield f"for {column} in range(win_count_0_{k}):"
            yield f"    put_i64(taps, {tap}, {first} + {column} * {by})"
            yield f"    {tap} += 1"

        spans = self._window(0)
        if self.has_groups:
            spans[0] = spans[0][0], f"{spans[0][1]} + more"
        yield from self._over_rows(body, spans)
        weights, row = "weights + win_start_0_0 * 4", f"win_count_0_{k}"
        more = f" - more * {row}" if self.has_groups else ""
        yield from self._sum_rows("taps", weights, f"{tap}{more}", row, "summed")

    def _choose_taps(self) -> Iterator[str]:
        """List row, column and weight of the taps that count: see NOTE [weights of zero]."""
        row, column, bits = (self.writer.fresh(stem) for stem in "tcb")
        yield "few, zeros = 0, 0"
        yield f"for {row} in range(win_count_0_0):"
        yield f"    for {column} in range(win_count_0_1):"
        place = f"win_start_0_0 + {row} * win_count_0_1 + {column}"
        yield f"        {bits} = load_i32(weights, {place})"
        yield f"        if ({bits} & 0x7FFFFFFF != 0) | (({bits} == 0) & (zeros == 0)):"
        yield f"            put_i64(chosen, 2 * few, {row})"
        yield f"            put_i64(chosen, 2 * few + 1, {column})"
        yield f"            put_i32(factors, few, {bits})"
        yield "            few += 1"
        yield f"        if {bits} == 0:"
        yield "            zeros += 1"
        yield "is_sparse = 2 * few <= win_count_0_0 * win_count_0_1"

    def _sum_chosen(self, by: int, call: str) -> Iterator[str]:
        """Sum the taps that count, line by line: lines share few of the rows that they read.

        `by`: bytes between the columns of a row in the ring; `call`: what sums line {}.
        """
        line, tap, v, s = (self.writer.fresh(stem) for stem in "ltvs")
        yield f"for {line} in range(more + 1):"
        yield f"    for {tap} in range(few):"
        place = f"at_0 - win_anchor_0_0 + {line} + get_i64(chosen, 2 * {tap})"
        yield from indented(self._place(0, place, v, s), 2)
        own = v if self.core.border == "wrap" else s
        first = f"(lowest - win_anchor_0_1 - origin) * {by}"
        row = f"ring_0 + ({own} & last_of_0) * size * 4 + {first}"
        yield f"        put_i64(taps, {tap}, {row} + get_i64(chosen, 2 * {tap} + 1) * {by})"
        yield f"    {call.format(line)}"

    def _window(self, p: int) -> dict[int, tuple[str, str]]:
        return {k: (f"win_anchor_{p}_{k}", f"win_count_{p}_{k}") for k in self.rows}

    def _part(self, p: int) -> Iterator[str]:
        """Sum a part along all dimensions and add it to the line."""
        target = "part" if self.core.is_scaled else "summed"
        if self.last == 0:
            yield from self._columns(p, target)
        elif self.last == 1:
            more = " + more" if self.has_groups else ""
            spans = {0: (f"win_anchor_{p}_0", f"win_count_{p}_0{more}")}
            yield from self._down(p, spans, target)
        else:
            yield from self._layers(p, target)
        if self.core.is_scaled:
            scale = f"as_f32(win_scale_{p})"
            yield f"{self._call('add_scaled')}(summed, part, used, {int(p > 0)}, {scale})"

    def _down(self, p: int, spans: dict[int, tuple[str, str]], to: str) -> Iterator[str]:
        """Sum kept rows along the dimension before the last."""
        tap, k = self.writer.fresh("t"), self.last - 1
        yield f"{tap} = 0"

        def body(slot: str, number: str) -> Iterator[str]:
            yield f"put_i64(down_{p}, {tap}, ring_{p} + {slot} * size * 4)"
            yield f"{tap} += 1"

        yield from self._over_rows(body, spans)
        weights = f"weights + win_start_{p}_{k} * 4"
        yield from self._sum_rows(f"down_{p}", weights, f"win_count_{p}_{k}", "1", to)

    def _layers(self, p: int, to: str) -> Iterator[str]:
        """Sum the layers of a volume, each of which is a sum of rows."""
        t, layer = self.writer.fresh("t"), self.writer.fresh("l")
        window = self._window(p)
        yield f"for {t} in range(win_count_{p}_0):"
        yield f"    {layer} = layers + {t} * size * 4"
        spans = {0: (f"(win_anchor_{p}_0 - {t})", "1"), 1: window[1]}
        yield from indented(self._down(p, spans, layer))
        yield f"    put_i64(deep_{p}, {t}, {layer})"
        weights = f"weights + win_start_{p}_0 * 4"
        yield from self._sum_rows(f"deep_{p}", weights, f"win_count_{p}_0", "1", to)

    def _call(self, helper: str) -> str:
        self.writer.helpers.add(helper)
        return helper


def _core(spec: KernelSpec) -> WindowSum:
    assert isinstance(spec.core, WindowSum)
    return spec.core


def _largest(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"max({', '.join(values)})"


def _in_lines(n: str) -> str:
    return f"({n} + {LINE - 1}) // {LINE} * {LINE}"
