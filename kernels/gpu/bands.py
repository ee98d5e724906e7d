"""Renders `BandSums` as source of a GPU kernel, in which each lane sums one band."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.bands import BAND, BandSums
from ..ir.expr import Expr
from .cores import GpuCore


class BandLoop(GpuCore):
    """Writes `BandSums`."""

    block = 128

    def name(self, e: Expr) -> str:
        return "total"

    def lines(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, BandSums)
        o = "0" if core.band_axis is None else f"o_{core.band_axis}"
        yield f"band = in_{core.bands} + (band_step * {o} + band_at) * {BAND} + lane * 0"
        yield "band_first = tl.load(band, mask=inside, other=0).to(INDEX)"
        yield "band_count = tl.load(band + 1, mask=inside, other=0)"
        yield "band_weight = tl.load(band + 2, mask=inside, other=0)"
        yield "total = tl.full((BLOCK,), 0.0, tl.float32)"
        yield from self.hoist()
        yield "everywhere = inside"
        yield "for j in range(band_longest.to(tl.int32)):"
        yield "    inside = everywhere & (j < band_count)"
        lines, value = self.element(["(band_first + j)"])
        yield from ("    " + line for line in lines)
        yield f"    weight = tl.load(in_{core.weights} + band_weight + j, mask=inside, other=0)"
        yield f"    total = tl.where(inside, total + weight * {value}, total)"
        yield "inside = everywhere"
