"""Renders `BinCounts` and `ToneCurve` as source of a CPU kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..ir.core import Array, Column, Core
from ..ir.expr import Expr
from ..ir.histogram import BINS, BinCounts, ToneCurve
from ..ir.spec import KernelSpec
from .cores import CpuCore, indented

# Neighbouring values are often equal. Each of them counts in a bank of its own, because a count
# that was just stored takes several cycles to be read again. A blurred image of 400×500 bytes takes
# 73, 62, 59 and 54 µs with 1, 2, 4 and 8 banks; 8 banks need 8 KB of the cache for each channel.
BANKS = 4


class _BinLines(CpuCore):
    """Computes all bins at once, before the loop over the bins, in scratch memory."""

    bytes_per_bin = 0

    @property
    def line_depth(self) -> int:
        inner = (self.spec.rank - 2, self.spec.rank - 1)[0 if self._core.channels else 1 :]
        assert self.spec.loop_axes[-len(inner) :] == inner, "the bins are the innermost loop"
        return len(self.spec.loop_axes) - len(inner)

    @property
    def _core(self) -> Core:
        assert self.spec.core is not None
        return self.spec.core

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("bins",)

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        assert spec.core is not None
        size = cls.bytes_per_bin * BINS * spec.core.lanes
        return [np.full_like(numbers(next(iter(spec.core.columns()))), size)]

    def prepare(self) -> Iterator[str]:
        yield "bins = scratch + area_bins"
        yield from self.hoist()


class CountLines(_BinLines):
    """Writes a `BinCounts`; the counts are in the first bank, channel by channel."""

    bytes_per_bin = BANKS * 4

    def read(self, e: Expr) -> str:
        rank = self.spec.rank
        channel = f"o_{rank - 2} * {BINS} + " if self._core.channels else ""
        return f"row_i32(bins, {channel}o_{rank - 1})"

    def line(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, BinCounts)
        bins = BINS * core.lanes  # of a bank
        yield f"for j in range({BANKS * bins}):"
        yield "    store_i32_7(bins, j, i32(0))"
        yield f"top = (o_{core.tile_axis} // grid_tiles_across) * grid_tile_rows"
        yield f"left = (o_{core.tile_axis} % grid_tiles_across) * grid_tile_columns"
        yield "right = min(left + grid_tile_columns, image_columns)"
        yield f"whole = left + max(right - left, 0) // {BANKS} * {BANKS}"
        bottom = "top + grid_tile_rows"
        if not core.is_mirrored:
            bottom = f"min({bottom}, image_rows)"
        yield f"for p_0 in range(top, {bottom}):"
        yield from indented(self._row(core))
        yield f"for j in range({bins}):"
        banks = " + ".join(f"row_i32(bins, {k * bins} + j)" for k in range(BANKS))
        yield f"    store_i32_7(bins, j, i32({banks}))"

    def _row(self, core: BinCounts) -> Iterator[str]:
        row = "p_0"
        if core.is_mirrored:
            yield from _mirrored("q_0", "p_0", "image_rows")
            row = "q_0"
        yield f"for q in range(left, whole, {BANKS}):"
        for k in range(BANKS):
            yield from indented(self._count([row, f"(q + {k})"], k))
        yield "for q in range(whole, right):"
        yield from indented(self._count([row, "q"], 0))
        if core.is_mirrored:
            yield "for p_1 in range(max(left, right), left + grid_tile_columns):"
            yield from indented(_mirrored("q_1", "p_1", "image_columns"))
            yield from indented(self._count([row, "q_1"], 0))

    def _count(self, positions: list[str], bank: int) -> Iterator[str]:
        lanes = self._core.lanes
        for channel in range(lanes):
            lines, value = self.element([*positions, str(channel)])
            place = self.writer.fresh("b")
            yield from lines
            yield f"{place} = i64({value}) + {(bank * lanes + channel) * BINS}"
            yield f"store_i32_7(bins, {place}, i32(row_i32(bins, {place}) + 1))"


def _mirrored(name: str, place: str, n: str) -> Iterator[str]:
    """A position that may lie beyond the last one, mirrored there as often as needed."""
    yield f"{name} = {place}"
    yield f"if {place} >= {n}:"
    yield f"    {name} = {place} % max(2 * {n} - 2, 1)"
    yield f"    {name} = min({name}, 2 * {n} - 2 - {name})"


class CurveLines(_BinLines):
    """Writes a `ToneCurve`: sums of counts, as int32, and behind them the levels, as bytes."""

    bytes_per_bin = 4 + 1

    def read(self, e: Expr) -> str:
        return f"row_u8(bins, {BINS * 4} + o_{self.spec.rank - 1})"

    def line(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, ToneCurve)
        lines, value = self.element(["p"])
        yield from self._limited(lines, value) if core.is_limited else self._plain(lines, value)
        yield f"for p in range({BINS}):"
        yield "    level = rint_f32(f32(row_i32(bins, p)) * scale)"
        yield f"    store_u8_7(bins, {BINS * 4} + p, u8(i32(min(level, f32(255.0)))))"
        if not core.is_limited:
            yield "if lowest == curve_total:"
            yield f"    for p in range({BINS}):"
            yield f"        store_u8_7(bins, {BINS * 4} + p, u8(p))"

    def _plain(self, lines: list[str], value: str) -> Iterator[str]:
        yield "lowest = i64(0)"  # how often the lowest byte occurs
        yield "total = i64(0)"
        yield f"for p in range({BINS}):"
        yield from indented(lines)
        yield "    if total == 0:"
        yield f"        lowest = i64({value})"
        yield f"    total += i64({value})"
        yield "    store_i32_7(bins, p, i32(max(total - lowest, 0)))"
        yield "scale = f32(255.0) / f32(max(curve_total - lowest, 1))"

    def _limited(self, lines: list[str], value: str) -> Iterator[str]:
        yield "excess = i64(0)"
        yield f"for p in range({BINS}):"
        yield from indented(lines)
        yield f"    over = max(i64({value}) - curve_limit, 0)"
        yield "    excess += over"
        yield f"    store_i32_7(bins, p, i32(i64({value}) - over))"
        yield f"share = excess // {BINS}"
        yield f"rest = excess % {BINS}"
        yield f"apart = {BINS} // max(rest, 1)"
        yield "for k in range(rest):"
        yield "    store_i32_7(bins, k * apart, i32(row_i32(bins, k * apart) + 1))"
        yield "total = i64(0)"
        yield f"for p in range({BINS}):"
        yield "    total += row_i32(bins, p) + share"
        yield "    store_i32_7(bins, p, i32(total))"
        yield "scale = f32(255.0) / f32(curve_total)"
