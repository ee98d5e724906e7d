"""BandSums: the core that computes weighted sums of runs of elements along one dimension.

It multiplies by a matrix whose rows have few numbers other than 0, side by side: filters of a mel
scale, for example. Terms are added up in order, in float32, so threads, fusion and devices do not
change a bit.
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

BAND = 3  # numbers of a band: its first element, how many it has, and its first weight


@dataclass(frozen=True)
class BandSums(Core):
    """The sum of band k along its only dimension; k follows an output axis."""

    band_axis: int | None = None
    bands: int = 0  # slot of the list of bands
    weights: int = 0  # slot of their weights

    @property
    def takes_frames(self) -> bool:
        return True

    def extent(self, k: int) -> Column:
        return ("band", "elements")

    def columns(self) -> dict[Column, str]:
        names = ("elements", "longest", "step", "at")
        return {("band", name): "index" for name in names}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        each: Array = table[:, spec.columns["band", "longest"]] * (cost(self.value) + 2)
        return each

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.bands import BandLines

        return BandLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.bands import BandLoop

        return BandLoop
