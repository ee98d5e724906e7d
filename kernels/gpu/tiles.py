"""Renders a `TiledSum` as source of a GPU kernel: a program sums the windows of one tile.

Each lane computes one element of the tile, and the windows read it from there: a tile is as wide as
a warp, so Triton makes a shuffle of each read (`tl.gather`), first along rows, then along columns.
So an element is computed and loaded once and not once per tap, and no sums go through memory. The
price is a border around the tile's results, as wide as the windows reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir.core import Array, Column
from ..ir.expr import Expr, cost
from ..ir.spec import KernelSpec
from ..ir.windows import TILE, TiledSum, period
from .cores import GpuCore, indented
from .separable import CHEAP
from .windows import start_of, within_border

if TYPE_CHECKING:
    from .render import Writer


class TileSums(GpuCore):
    """Writes a `TiledSum`."""

    block = TILE * TILE
    num_warps = 8
    has_fixed_block = True
    reads_within = True

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = self.spec.core
        assert isinstance(core, TiledSum)
        self.core = core
        self.lanes = range(core.lanes)

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        # By default ptxas aims at 64 registers on sm_80, and spills 8 bytes if colours of float16
        # follow; with a higher limit it spills none.
        return {"maxnreg": 128} if max(map(cost, spec.values)) > CHEAP else {}

    @classmethod
    def sizes(cls, spec: KernelSpec) -> tuple[Column, ...]:
        windows = [(f"win_{what}", 0, k) for what in ("count", "anchor") for k in (0, 1)]
        return (*super().sizes(spec), *windows)

    @classmethod
    def points(cls, spec: KernelSpec, table: Array) -> Array:
        core, place = spec.core, spec.columns
        assert isinstance(core, TiledSum)
        tiles = np.full(len(table), cls.block, np.int64)
        for axis in spec.loop_axes:
            n = table[:, place["n", axis]]
            if axis in core.axes:
                k = core.axes.index(axis)
                anchor = table[:, place["win_anchor", 0, k]]
                reach = np.maximum(anchor, table[:, place["win_count", 0, k]] - 1 - anchor)
                n = -(-n // (TILE - 2 * reach))
            tiles *= n
        return tiles

    def name(self, e: Expr) -> str:
        return f"windowed_{e.attr}"

    def positions(self) -> Iterator[str]:
        """The tile's place, and that of each lane; `inside`: a lane whose result is wanted."""
        for k in (0, 1):
            yield f"after_{k} = win_count_0_{k} - 1 - win_anchor_0_{k}"
            yield f"reach_{k} = tl.maximum(win_anchor_0_{k}, after_{k})"
            yield f"side_{k} = {TILE} - 2 * reach_{k}"
        yield "rest = tile.to(INDEX)"
        for axis in reversed(self.spec.loop_axes):
            n, o = f"n_{axis}", f"o_{axis}"
            if axis in self.core.axes:
                k = self.core.axes.index(axis)
                n, o = f"((n_{axis} + side_{k} - 1) // side_{k})", f"tile_{k}"
            yield f"{o} = rest % {n}"
            yield f"rest = rest // {n}"
        for k, cell in enumerate((f"lane // {TILE}", f"lane % {TILE}")):
            follows = self.core.axes[k]
            yield f"tile_{k} = tile_{k} * side_{k}"
            yield f"cell_{k} = {cell} - reach_{k}"
            yield f"o_{follows} = tile_{k} + cell_{k}"
            yield f"last_{k} = tl.minimum(side_{k}, n_{follows} - tile_{k})"
        yield "inside = (cell_0 >= 0) & (cell_0 < last_0) & (cell_1 >= 0) & (cell_1 < last_1)"

    def lines(self) -> Iterator[str]:
        yield from self.hoist()
        for k, axis in enumerate(self.core.axes):
            yield from self._place(k, axis)
        for c in self.lanes:
            lines, value = self.element(["p_0", "p_1"], str(c))
            yield from lines
            yield f"tile_1_{c} = tl.reshape({value}, ({TILE}, {TILE}))"
        for k, lanes in ((1, "[None, :]"), (0, "[:, None]")):
            yield f"cells = tl.broadcast_to(tl.arange(0, {TILE}){lanes}, ({TILE}, {TILE}))"
            yield from self._sums(k)
        for c in self.lanes:
            yield f"windowed_{c} = tl.reshape(sum_0_{c}, (BLOCK,))"

    def _place(self, k: int, axis: int | None) -> Iterator[str]:
        """The element of each lane along a dimension. A kernel may read the result in steps of 1
        or of -1. Lanes beyond the border of the result's windows repeat the last element."""
        yield f"turn_{k} = tl.where(win_step_{k} < 0, -1, 1)"
        yield f"at_{k} = tl.maximum(turn_{k} * o_{axis} + win_at_{k}, -win_anchor_0_{k})"
        yield f"p_{k} = tl.minimum(at_{k}, win_n_{k} - 1 + after_{k}).to(tl.int32) + win_bias_{k}"
        if self.core.border not in ("clamp", "constant"):
            yield f"around_{k} = tl.maximum({period(self.core.border, f'win_in_{k}')}, 1)"
        near = ""
        if self.core.border.startswith("reflect"):
            near = f"near_{k}"
            fits = f"(win_bias_{k} <= around_{k}) & (win_count_0_{k} <= win_in_{k})"
            yield f"{near} = {fits}"
        yield from within_border(k, self.core.border, near)

    def _sums(self, k: int) -> Iterator[str]:
        """The sums along a dimension, over taps in the order of CPU kernels."""
        for c in self.lanes:
            if k == 0:
                yield f"tile_0_{c} = sum_1_{c}"
            yield start_of(f"sum_{k}_{c}", f"({TILE}, {TILE})")
        if self.core.is_symmetric:
            yield from self._folded(k)
            return
        yield f"for tap in range(win_count_0_{k}):"
        yield from indented(self._read("first", k, "tap"))
        for c in self.lanes:
            yield f"    sum_{k}_{c} = sum_{k}_{c} + weight * tl.gather(tile_{k}_{c}, first, {k})"

    def _folded(self, k: int) -> Iterator[str]:
        """Pairs of taps, then the one in the middle: NOTE [folded sums] in ir/windows.py."""
        count = f"win_count_0_{k}"
        yield f"for tap in range({count} // 2):"
        yield from indented(self._read("first", k, "tap"))
        yield from indented(self._read("last", k, f"({count} - 1 - tap)", weighs=False))
        for c in self.lanes:
            tile = f"tile_{k}_{c}"
            yield f"    both = tl.gather({tile}, first, {k}) + tl.gather({tile}, last, {k})"
            yield f"    sum_{k}_{c} = tl.fma(weight, both, sum_{k}_{c})"
        yield f"if {count} % 2 == 1:"
        yield from indented(self._read("first", k, f"({count} // 2)"))
        for c in self.lanes:
            middle = f"tl.gather(tile_{k}_{c}, first, {k})"
            yield f"    sum_{k}_{c} = tl.fma(weight, {middle}, sum_{k}_{c})"

    def _read(self, name: str, k: int, tap: str, weighs: bool = True) -> Iterator[str]:
        """The cell that a tap reads; the results of cells whose windows leave the tile are not
        wanted, but `tl.gather` must not leave it."""
        if weighs:
            yield f"weight = tl.load(in_{self.core.weights} + (win_start_0_{k} + {tap}))"
        yield f"{name} = cells + turn_{k} * ({tap} - win_anchor_0_{k})"
        yield f"{name} = tl.minimum(tl.maximum({name}, 0), {TILE - 1})"
