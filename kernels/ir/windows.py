"""WindowSum: the core that computes a weighted sum over a window around each element.

A separable window sums along one dimension after the other, the last one first, each with its own
weights; several such parts may be added up, each with a factor. Alternatively one window of weights
spans all dimensions. The weights are an operand; the table holds how many there are and where they
begin. Both back-ends compute in float32, tap by tap in the same order, so they give the same bits.
As upstream, separable sums round each product before adding it, and a window that spans all
dimensions does not (fma).

NOTE [folded sums] If a separable window is symmetric, both elements at a distance from its middle
have the same weight, and a sum adds them before it multiplies: it starts at -0.0, and for each pair
of taps, the outermost first, total = fma(weight, first + last, total); last comes the element in
the middle. This takes half of the multiplications, and fewer roundings. The sums of a CPU kernel
are bound by multiplications and loads, so a blur takes two thirds of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .core import Array, Column, Core
from .expr import cost

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

# Values read outside of the elements a b c d. reflect_101: c b [a b c d] c b; reflect_1001:
# b a [a b c d] d c; clamp: a a [a b c d] d d; wrap: c d [a b c d] a b; constant: a fill value.
BORDERS = ("reflect_101", "reflect_1001", "clamp", "wrap", "constant")

# The most lines of a result that a CPU kernel computes at once, from rows that it keeps.
LINES = 4

# The side of a tile, which is the number of threads of a warp: see kernels/gpu/tiles.py.
TILE = 32
# Longer windows leave too few results in a tile. An emulated sm_90 executes 13, 20, 35, 56, 68, 94
# million instructions for an image of 224×224×3 in tiles, if windows have 3, 7, 11, 15, 17, 19
# taps; 30, 43, 55, 68, 75, 81 in a kernel per axis, which also moves three times as many bytes.
MAX_TILED_TAPS = 17

# Operations that find the element of a tap: `_place` in gpu/windows.py.
TAP_OPERATIONS = 6


def period(border: str, n: str) -> str:
    """Source of the distance after which `n` elements repeat."""
    return {"reflect_101": f"2 * {n} - 2", "reflect_1001": f"2 * {n}", "wrap": n}.get(border, "1")


@dataclass(frozen=True)
class WindowSum(Core):
    """Position p of the result reads elements p - anchor … p - anchor + count - 1.

    The kernel adds `bias`, a multiple of the period, so no position is negative. A CPU kernel keeps
    `ring` rows along a dimension; `ring` is a power of two.
    """

    border: str = "reflect_101"
    weights: int = 0  # slot of the weights
    fill: int | None = None  # slot of the fill value, if the border is constant
    parts: int = 1  # separable sums that are added up; 0: one window spans all dimensions
    is_scaled: bool = False  # whether each part has a factor
    is_symmetric: bool = False  # whether all windows are symmetric: see NOTE [folded sums]

    @property
    def takes_rows(self) -> bool:
        return len(self.axes) == 2

    def extent(self, k: int) -> Column:
        return "win_in", k

    def columns(self) -> dict[Column, str]:
        dims, parts = range(len(self.axes)), range(max(self.parts, 1))
        found: dict[Column, str] = {}
        for k in dims:
            found |= {("win_step", k): "index", ("win_at", k): "index"}
            found |= {(f"win_{what}", k): "i32" for what in ("n", "in", "bias", "ring")}
            for p in parts:
                found |= {(f"win_{what}", p, k): "i32" for what in ("count", "anchor", "start")}
        return found | {("win_scale", p): "f32" for p in parts if self.is_scaled}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        taps = np.zeros(len(table), np.int64)
        for p in range(max(self.parts, 1)):
            counts = [spec.columns["win_count", p, k] for k in range(len(self.axes))]
            taps += table[:, counts].prod(axis=1)
        return taps * (self.lanes * (cost(self.value) + 2) + TAP_OPERATIONS)

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.windows import WindowLines

        return WindowLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.windows import WindowTaps

        return WindowTaps


@dataclass(frozen=True)
class TiledSum(WindowSum):
    """A separable sum along two dimensions, of which a GPU computes one tile after the other."""

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        counts = table[:, [spec.columns["win_count", 0, k] for k in (0, 1)]]
        each = self.lanes * (cost(self.value) + 2 * counts.sum(axis=1))
        wanted = (TILE + 1 - counts).prod(axis=1)  # of the cells of a tile
        return each * TILE * TILE // wanted

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.tiles import TileSums

        return TileSums
