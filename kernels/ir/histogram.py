"""BinCounts and ToneCurve: the cores that count bytes, and turn counts into a table of bytes.

NOTE [tables from histograms] A histogram and its table have a last axis of 256 bins. Counts are
integers, so their order does not matter. A level of the table is a running sum of counts times a
scale, in float32, rounded half to even: the arithmetic of OpenCV, whose results upstream gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .core import Array, Column, Core
from .expr import cost

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

BINS = 256


@dataclass(frozen=True)
class BinCounts(Core):
    """How often each byte occurs in a tile of two dimensions, the rows and columns of an image."""

    tile_axis: int = 0  # output axis that numbers the tiles of a sample, row by row
    # Tiles may reach beyond the image. There it is mirrored, without repeating the border, or it
    # has no values at all.
    is_mirrored: bool = False

    def columns(self) -> dict[Column, str]:
        names = ("rows", "columns", "tile_rows", "tile_columns", "tiles_across")
        return {("image" if k < 2 else "grid", name): "index" for k, name in enumerate(names)}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        extents = [spec.columns["grid", f"tile_{name}"] for name in ("rows", "columns")]
        values: Array = table[:, extents].prod(axis=1)
        each: Array = -(-values * (cost(self.value) + 2) // BINS)
        return each

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.histogram import CountLines

        return CountLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.histogram import CountLoop

        return CountLoop


@dataclass(frozen=True)
class ToneCurve(Core):
    """The table that equalizes a histogram; its only dimension are the bins.

    A curve that is not limited maps the lowest byte that occurs to 0; if no other one occurs, it
    changes nothing. In a limited one, what a bin has beyond a limit is first spread over all bins.
    """

    is_limited: bool = False

    def columns(self) -> dict[Column, str]:
        return {("curve_total",): "i32", ("curve_limit",): "i32"}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        each: Array = 0 * table[:, 0] + 4
        return each

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.histogram import CurveLines

        return CurveLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.histogram import CurveScan

        return CurveScan
