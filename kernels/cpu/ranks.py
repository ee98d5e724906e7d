"""Renders a `WindowRank` as source of a CPU kernel, which computes the result line by line.

A line needs the rows that its windows span. If the kernel reads plain memory, these rows stay where
they are; otherwise a ring in scratch memory keeps computed rows. The rows are joined column by
column: by their lowest or highest values, or sorted for a median. Only joined rows are padded with
the image's border; then windows are completed along them. Channels stay as they are in memory,
side by side or in planes. A kernel that does nothing else stores its lines directly. The most
frequent windows of bytes need no joined rows, if lines are as long as the image's rows: see
native/whole_windows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir.core import Column
from ..ir.expr import Expr
from ..ir.networks import SIDES
from ..ir.ranks import WindowRank
from ..ir.spec import KernelSpec
from ..ir.windows import period
from .cores import Array, CpuCore, indented
from .native.block_sizes import RANK_BYTES, least_row, suits

if TYPE_CHECKING:
    from .render import Writer

# Rows in scratch memory begin at cache lines, and helpers may write a vector more than they need.
_LINE_BYTES = 64
_SLACK_BYTES = _LINE_BYTES + RANK_BYTES
# Runs of more elements are joined in spans that double (`join_spans`): per run of k elements, the
# loop over all of them loads k vectors, and spans load 2 and store 1 for each power of two.
_MAX_TAPS = 8


class RankLines(CpuCore):
    """Writes a `WindowRank`."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = _core(self.spec)
        self.core = core
        self.axes = core.axes
        self.lanes = core.lanes
        self.dtype = core.value.dtype
        self.is_middle = core.rank == "middle"
        self.slot = self._plain_load()
        # Values of one position that lie side by side; the other channels are in planes.
        self.column = self.lanes if self._is_interleaved() else 1
        self.planes = self.lanes // self.column
        self.stores_line = self._is_stored_as_is()
        # Sizes of windows for which there is a faster way, if lines are whole rows.
        self.sides: tuple[int, ...] = ()
        if core.border == "clamp":
            facts = [(self.dtype, core.rank, side, self.column) for side in SIDES]
            self.sides = tuple(f[2] for f in facts if suits(*f))

    @property
    def line_depth(self) -> int:
        return len(self.spec.loop_axes) - (self.axes[1] is not None)

    # -- scratch memory ------------------------------------------------------------------------

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("line", "turned", "joined", "rows", "across", "taps", "ring", "kept")

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        core = _core(spec)
        down, across = (numbers(("win_count", k)) for k in (0, 1))
        one = np.ones_like(down)
        n = one if core.axes[1] is None else numbers(("n", core.axes[1]))
        pitch = numbers(("win_in", 1)) + across
        row = core.lanes * np.maximum(pitch, n) * core.value.dtype.bytes + _SLACK_BYTES
        row = row + _LINE_BYTES  # each row begins at a cache line
        is_middle = core.rank == "middle"
        joined = np.maximum(down, 2 * max(SIDES)) if is_middle else 2 * one
        taps = down * across if is_middle else 0 * one
        ring = numbers(("win_ring", 0))
        return [
            2 * row, 2 * row, joined * row + _LINE_BYTES, 8 * (down + 1), 8 * across, 8 * taps,
            ring * row, 8 * ring,
        ]  # fmt: skip

    # -- names and places ----------------------------------------------------------------------

    def read(self, e: Expr) -> str:
        if self.planes == 1:
            return f"row_{self.dtype}(line, {self._o(1)} * {self.column} + {e.attr})"
        return f"row_{self.dtype}(line, {e.attr} * room + {self._o(1)})"

    def _n(self, k: int) -> str:
        """Positions of the kernel's loop along a dimension."""
        return "1" if self.axes[k] is None else f"n_{self.axes[k]}"

    def _o(self, k: int) -> str:
        return "0" if self.axes[k] is None else f"o_{self.axes[k]}"

    def _call(self, helper: str, *choice: str | int) -> str:
        name = "_".join(map(str, (f"{helper}__{self.dtype}", *choice)))
        self.writer.helpers.add(name)
        return name

    def _plain_load(self) -> int | None:
        """The slot of the operand if a row of the core's values is a row of memory; else None."""
        e = self.core.value
        if e.op != "load" or self.spec.loads[e.attr].guarded:
            return None
        tail = self.spec.loads[e.attr].strides[self.spec.rank + 1 :]
        slot: int = e.attr
        return slot if tail[:1] == (1,) or tail == (self.lanes, 1) else None

    def _is_interleaved(self) -> bool:
        tails = [access.strides[self.spec.rank + 1 :] for access in self.spec.core_loads]
        return self.lanes > 1 and (self.lanes, 1) in tails

    def _is_stored_as_is(self) -> bool:
        """Whether the kernel only stores the core's values, in rows like those of the core."""
        if len(self.spec.stores) > 1 or self.planes > 1 or self.axes[1] is None:
            return False
        access = self.spec.stores[0]
        if access.dtype is not self.dtype or access.strides[self.axes[1]] != self.column:
            return False
        for point, _, value in self.writer.stores:
            lane = sum(k for a, k in point.items() if access.strides[a] == 1)
            if value.op != "core" or value.attr != lane:
                return False
        return len(self.writer.stores) == self.lanes

    def _stored_row(self, row: str) -> str:
        """The address at which a row of the result is stored."""
        at: dict[int, int | str] = {a: 0 for a in self.writer.stores[0][0]}
        assert self.axes[1] is not None
        at[self.axes[1]] = 0
        if self.axes[0] is not None:
            at[self.axes[0]] = row
        offset = self.writer.offset("out", 0, self.spec.stores[0], tuple(at.items()))
        return f"out_0 + ({offset}) * {self.dtype.bytes}"

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        for name in self.areas(self.spec):
            if name != "joined":
                yield f"{name} = scratch + area_{name}"
        yield f"around_0 = max({period(self.core.border, 'win_in_0')}, 1)"
        yield "last_of_ring = win_ring_0 - 1"
        yield "made = -1"  # number of the line that is already in `line_1`
        if self.slot is None:
            yield "for slot in range(win_ring_0):"
            yield "    put_i64(kept, slot, -1)"
        if self.core.frames is None:
            yield "down, above, wide, left = win_count_0, win_anchor_0, win_count_1, win_anchor_1"
            yield from self._measures()

    def _measures(self) -> Iterator[str]:
        """The columns that are needed, the part of a row that they read, and sizes of rows."""
        nbytes, column, planes = self.dtype.bytes, self.column, self.planes
        yield "from_0 = min(max(win_at_1, 0), win_n_1 - 1)"
        yield f"from_1 = min(max(win_at_1 + win_step_1 * ({self._n(1)} - 1), 0), win_n_1 - 1)"
        yield "lowest = min(from_0, from_1)"
        yield "columns = max(from_0, from_1) - lowest + 1"
        yield "begin = lowest - left"
        yield "end = begin + columns - 1 + wide"
        yield from self._span()
        yield "origin = min(begin, low)"
        yield "pitch = max(end, high) - origin"
        yield f"room = max(pitch, {self._n(1)})"
        yield f"is_straight = (win_step_1 == 1) & (columns == {self._n(1)})"
        for name, width in (("size", "pitch"), ("line_size", "room")):
            nbits = f"{width} * {self.lanes * nbytes} + {_SLACK_BYTES}"
            yield f"{name} = ({nbits}) // {_LINE_BYTES} * {_LINE_BYTES}"
        yield f"count = {planes - 1} * pitch + columns * {column}"  # elements of a joined row
        if not self.stores_line:
            # `line` moves on to the second line, so windows per frame begin anew each time.
            base = "line" if self.core.frames is None else "scratch + area_line"
            yield f"line_0, line_1 = {base}, {base} + line_size"
        else:  # helpers may write a vector more than they need
            yield f"is_straight = is_straight & (count >= {RANK_BYTES // nbytes})"
        if self.sides:
            yield from self._test_whole()
        yield f"start = (low - origin) * {column * nbytes}"
        # Writes that begin at cache lines are faster, so column `low` of joined rows does.
        yield f"joined = scratch + area_joined + (-start) % {_LINE_BYTES}"
        yield f"first = joined + (begin - origin) * {column * nbytes}"
        if not self.is_middle:
            yield "for tap in range(wide):"
            yield f"    put_i64(across, tap, first + tap * {column * nbytes})"

    def _span(self) -> Iterator[str]:
        """The range of input columns to read, `low` to `high`, including those that the border
        mirrors or repeats."""
        border = self.core.border
        yield "low = min(max(begin, 0), win_in_1 - 1)"
        yield "high = max(min(end, win_in_1), low + 1)"
        if border == "wrap":
            yield "if (begin < 0) | (end > win_in_1):"
            yield "    low, high = 0, win_in_1"
        elif border.startswith("reflect"):
            yield "if begin < 0:"
            yield "    high = max(high, min(win_in_1, 1 - begin))"
            yield "if end > win_in_1:"
            yield "    low = min(low, max(2 * win_in_1 - 1 - end, 0))"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        if self.core.frames is not None:
            yield from self._frame(self.core.frames)
            yield from self._measures()
        place = f"win_step_0 * {self._o(0)} + win_at_0"
        yield f"at_0 = min(max({place}, 0), win_n_0 - 1)"
        if self.stores_line:
            yield f"line_0 = {self._stored_row(self._o(0))}"
            yield f"line_1 = {self._stored_row(f'({self._o(0)} + 1)')}"
        # Two neighbouring lines share all rows but two, so they are computed together.
        yield f"number = {self.outer_number()} * {self._n(0)} + {self._o(0)}"
        yield "if number == made:"
        yield "    line = line_1"
        yield "else:"
        yield "    line, more = line_0, 0"
        pair = f"has_next(win_step_0, win_at_0, {self._o(0)}, {self._n(0)}, win_n_0)"
        self.writer.imports.add("has_next")
        is_small = " | ".join(f"(down == {side})" for side in SIDES)
        test = f"(down == wide) & ({is_small})" if self.is_middle else "down > 1"
        yield f"    if ({test}) and {pair}:"
        yield "        made, more = number + 1, 1"
        yield "        at_0 += min(win_step_0, 0)"
        yield from indented(self._line())

    def _frame(self, slot: int) -> Iterator[str]:
        """The window of the current frame."""
        offset = self.writer.outer_offset(slot, {})
        for k, name in enumerate(("down", "above", "wide", "left")):
            yield f"{name} = i64(load_i32(in_{slot}, {offset} + {k}))"

    def _line(self) -> Iterator[str]:
        """Compute the current line and, if `more`, the next one."""
        yield from self._list_rows()
        yield "to_0 = line_0 if is_straight else turned"
        yield "to_1 = line_1 if is_straight else turned + size"
        yield "if more and win_step_0 < 0:"
        yield "    to_0, to_1 = to_1, to_0"
        for k, side in enumerate(self.sides):
            yield f"{'elif' if k else 'if'} is_whole and wide == {side}:"
            yield from indented(self._whole(side))
        parts = self._middle() if self.is_middle else self._extremes()
        if self.sides:
            yield "else:"
            yield from indented(parts)
        else:
            yield from parts
        turn, by = self._call("turn_row"), "win_step_1, win_at_1 - lowest, columns"
        planes = f"{self.planes}, {self.column}, {self._n(1)}"
        yield "if not is_straight:"
        yield f"    {turn}(turned, pitch, line_0, room, {planes}, {by})"
        yield "    if more:"
        yield f"        {turn}(turned + size, pitch, line_1, room, {planes}, {by})"

    def _list_rows(self) -> Iterator[str]:
        """List the addresses of the rows, and compute those that memory does not hold."""
        t, v, s = (self.writer.fresh(stem) for stem in "tvs")
        yield f"for {t} in range(down + more):"
        yield f"    {v} = at_0 - above + {t}"
        yield from indented(self._place(v, s))
        if self.slot is not None:
            at = self._offset(self.slot, [s, "low", "0"])
            yield f"    put_i64(rows, {t}, in_{self.slot} + ({at}) * {self.dtype.bytes})"
            yield from self._ask_ahead(s)
            return
        slot, base, number = (self.writer.fresh(stem) for stem in ("slot", "b", "number"))
        # A window that wraps around reads rows that are far apart, but positions side by side.
        own, extent = s, "win_in_0"
        if self.core.border == "wrap":
            own, extent = f"({v} + win_bias_0)", "(win_in_0 + win_bias_0 + win_count_0)"
        yield f"    {slot} = {own} & last_of_ring"
        yield f"    {base} = ring + {slot} * size"
        yield f"    {number} = {self.outer_number()} * {extent} + {own}"
        yield f"    if get_i64(kept, {slot}) != {number}:"
        yield f"        put_i64(kept, {slot}, {number})"
        yield from indented(self._values(s, base), 2)
        yield f"    put_i64(rows, {t}, {base} + start)"

    def _ask_ahead(self, s: str) -> Iterator[str]:
        """Prefetch the two rows that the next two lines read first.

        The CPU does not foresee them, because two rows are read at a time (32 images of 224×224×3
        bytes, 3 × 3: 34 instead of 48 µs an image). Medians compute for longer and do not gain.
        """
        assert self.slot is not None
        if self.is_middle:
            return
        ask, nbytes = self._call("ask_row"), self.dtype.bytes
        for ahead in (1, 2):
            at = self._offset(self.slot, [f"({s} + {ahead})", "low", "0"])
            size = f"(high - low) * {self.column * nbytes}"
            yield f"{ask}(in_{self.slot} + ({at}) * {nbytes}, {size})"

    def _place(self, v: str, s: str) -> Iterator[str]:
        """The row `s` that is read at position `v`."""
        if self.core.border == "clamp":
            yield f"{s} = min(max({v}, 0), win_in_0 - 1)"
            return
        yield f"{s} = {v}"
        yield f"if ({v} < 0) | ({v} >= win_in_0):"
        yield f"    {s} = {v} % around_0"
        if self.core.border != "wrap":
            mirror = f"around_0 - {s}" + (" - 1" if self.core.border == "reflect_1001" else "")
            yield f"    {s} = min({s}, {mirror})"

    def _values(self, s: str, base: str) -> Iterator[str]:
        """Compute columns `low` to `high` of row `s`."""
        column = self.writer.fresh("e")
        yield f"for {column} in range(low, high):"
        for lane in range(self.lanes):
            lines, value = self.element([s, column, str(lane)])
            place = f"({column} - origin) * {self.column} + {lane}"
            if self.planes > 1:
                place = f"{lane} * pitch + {column} - origin"
            yield from indented([*lines, f"store_{self.dtype}_7({base}, {place}, {value})"])

    def _by_plane(self) -> Iterator[tuple[str, str]]:
        """For each plane, its offset in the listed rows and in scratch rows, in bytes."""
        nbytes = self.dtype.bytes
        for plane in range(self.planes):
            own = f"{plane * nbytes} * pitch"
            source = own
            if self.slot is not None:
                stride = self._lane_stride(self.slot)
                source = f"{plane * nbytes} * {stride}"
            yield (source, own) if plane else ("0", "0")

    def _lane_stride(self, slot: int) -> str:
        axis = self.spec.rank + 2
        strides = self.spec.loads[slot].strides
        stride = strides[axis] if axis < len(strides) else 0
        return f"in_stride_{slot}_{axis}" if stride is None else str(stride)

    def _pad(self, rows: str) -> Iterator[str]:
        """Pad joined rows."""
        pad = self._call("pad_ends", self.core.border)
        where = "origin, begin, low, high, end, win_in_1"
        yield "if (begin < low) | (high < end):"
        yield f"    {pad}(joined, {rows}, size, {self.planes}, pitch, {self.column}, {where})"

    # -- windows of whole rows -----------------------------------------------------------------

    def _test_whole(self) -> Iterator[str]:
        """Whether all columns are computed, so that windows read no more than whole rows."""
        least = max(least_row(self.dtype, side, self.column) for side in self.sides)
        yield "is_whole = (columns == win_in_1) & (down == wide) & (left == wide // 2)"
        yield f"is_whole = is_whole & (win_in_1 * {self.column} >= {least})"

    def _whole(self, side: int) -> Iterator[str]:
        """Compute two lines together; if only one is needed, the other one is thrown away."""
        whole = self._call("whole_rows", self.core.rank, side, self.column)
        yield "to = to_1 if more else turned + size"
        yield "if not more:"
        yield f"    put_i64(rows, {side}, get_i64(rows, {side - 1}))"
        n = f"win_in_1 * {self.column}"
        for plane, (source, _) in enumerate(self._by_plane()):
            own = f" + {plane * self.dtype.bytes} * pitch" if plane else ""
            yield f"{whole}(rows, {source}, {n}, to_0{own}, to{own})"

    # -- extremes ------------------------------------------------------------------------------

    def _extremes(self) -> Iterator[str]:
        rank = self.core.rank
        join, spans = self._call("join_rows", rank), self._call("join_spans", rank)
        n = f"(high - low) * {self.column}"
        for source, own in self._by_plane():
            to = f"joined + start + {own}"
            yield f"{join}(rows, {source}, down, {n}, {to}, ({to} + size) * more)"
        yield from self._pad("1 + more")
        yield "for k in range(1 + more):"
        yield "    to = to_1 if k else to_0"
        yield f"    if wide <= {_MAX_TAPS}:"
        yield f"        {join}(across, k * size, wide, count, to, 0)"
        yield "    else:"
        yield f"        {spans}(first + k * size, {self.column}, wide, count, to)"

    # -- medians -------------------------------------------------------------------------------

    def _middle(self) -> Iterator[str]:
        for k, side in enumerate(SIDES):
            yield f"{'elif' if k else 'if'} (down == {side}) & (wide == {side}):"
            yield from indented(self._small_middle(side))
        yield "else:"
        yield from indented(self._any_middle())

    def _small_middle(self, side: int) -> Iterator[str]:
        """Sort the columns, then select with a network."""
        sort, middle = (self._call(name, side) for name in ("sort_rows", "middle_of"))
        n = f"(high - low) * {self.column}"
        yield "for k in range(1 + more):"
        for source, own in self._by_plane():
            to = f"joined + k * {side} * size + start + {own}"
            yield f"    {sort}(rows + k * 8, {source}, {n}, {to}, size)"
        yield from self._pad(f"{side} * (1 + more)")
        yield f"{middle}(first, size, {self.column}, count, to_0)"
        yield "if more:"
        yield f"    {middle}(first + {side} * size, size, {self.column}, count, to_1)"

    def _any_middle(self) -> Iterator[str]:
        """Copy and pad all rows, then select bit by bit."""
        copy, select = self._call("join_rows", "lowest"), self._call("select_middle")
        n = f"(high - low) * {self.column}"
        yield "for k in range(down):"
        for source, own in self._by_plane():
            to = f"joined + k * size + start + {own}"
            yield f"    {copy}(rows + k * 8, {source}, 1, {n}, {to}, 0)"
        yield "    for tap in range(wide):"
        address = f"first + k * size + tap * {self.column * self.dtype.bytes}"
        yield f"        put_i64(taps, k * wide + tap, {address})"
        yield from self._pad("down")
        yield f"{select}(taps, down * wide, down * wide // 2, count, to_0)"


def _core(spec: KernelSpec) -> WindowRank:
    assert isinstance(spec.core, WindowRank)
    return spec.core
