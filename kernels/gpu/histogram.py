"""Renders `BinCounts` and `ToneCurve` as source of a GPU kernel: a program computes all bins of one
tile, and each lane holds one bin.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.expr import Expr
from ..ir.histogram import BINS, BinCounts, ToneCurve
from .cores import GpuCore

_SUM = "tl.reduce({}, 0, tl.standard._sum_combine)"


class _BinLanes(GpuCore):
    block = BINS
    has_fixed_block = True

    def name(self, e: Expr) -> str:
        return "result"


class CountLoop(_BinLanes):
    """Writes a `BinCounts`. In each turn, every lane reads one value of the tile."""

    def lines(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, BinCounts)
        tile = f"o_{core.tile_axis}"
        yield from self.hoist()
        yield "result = tl.full((BLOCK,), 0, tl.int32)"
        yield "everywhere = inside"
        yield f"tile_row = {tile} // grid_tiles_across"
        yield f"tile_column = {tile} - tile_row * grid_tiles_across"
        yield "place = lane.to(INDEX)"
        yield "some = tl.maximum(grid_tile_columns, 1)"
        yield "values = grid_tile_rows * grid_tile_columns"
        yield "for turn in range(((values + BLOCK - 1) // BLOCK).to(tl.int32)):"
        yield from ("    " + line for line in self._turn(core))
        yield "inside = everywhere"

    def _turn(self, core: BinCounts) -> Iterator[str]:
        yield "down = place // some"
        yield "p_0 = tile_row * grid_tile_rows + down"
        yield "p_1 = tile_column * grid_tile_columns + place - down * some"
        yield "inside = place < values"
        if core.is_mirrored:
            for k, n in enumerate(("image_rows", "image_columns")):
                yield f"p_{k} = p_{k} % tl.maximum(2 * {n} - 2, 1)"
                yield f"p_{k} = tl.minimum(p_{k}, 2 * {n} - 2 - p_{k})"
        else:
            yield "inside = inside & (p_0 < image_rows) & (p_1 < image_columns)"
        lines, value = self.element(["p_0", "p_1"])
        yield from lines
        yield f"result += tl.histogram({value}.to(tl.int32), {BINS}, mask=inside)"
        yield "place = place + BLOCK"


class CurveScan(_BinLanes):
    """Writes a `ToneCurve`, with a prefix sum over the lanes."""

    def lines(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, ToneCurve)
        bins = f"o_{self.spec.rank - 1}"
        yield from self.hoist()
        lines, value = self.element([bins])
        yield from lines
        yield f"count = {value}"
        yield from self._limited() if core.is_limited else self._plain()
        yield "level = sums.to(tl.float32) * scale"
        # Round half to even. Levels are small and not negative, so no sign or magnitude matters.
        yield "level = (level + 8388608.0) - 8388608.0"
        yield "result = tl.minimum(level, 255.0).to(tl.int32).to(tl.uint8)"
        if not core.is_limited:
            yield "result = tl.where(lowest == curve_total, lane.to(tl.uint8), result)"

    def _plain(self) -> Iterator[str]:
        yield from self._scan()
        yield "is_lowest = (sums == count) & (count > 0)"
        yield f"lowest = {_SUM.format('tl.where(is_lowest, count, 0)')}"
        yield "sums = tl.maximum(sums - lowest, 0)"
        yield "rest = tl.maximum(curve_total - lowest, 1).to(tl.float32)"
        yield "scale = tl.div_rn(tl.full((), 255.0, tl.float32), rest)"

    def _limited(self) -> Iterator[str]:
        yield "over = tl.maximum(count - curve_limit, 0)"
        yield f"excess = {_SUM.format('over')}"
        yield f"rest = excess % {BINS}"
        yield f"apart = {BINS} // tl.maximum(rest, 1)"
        yield "is_more = (lane % apart == 0) & (lane // apart < rest)"
        yield f"count = count - over + excess // {BINS} + is_more.to(tl.int32)"
        yield from self._scan()
        yield "total = curve_total.to(tl.float32)"
        yield "scale = tl.div_rn(tl.full((), 255.0, tl.float32), total)"

    def _scan(self) -> Iterator[str]:
        yield "sums = tl.associative_scan(count, 0, tl.standard._sum_combine)"
