"""SeparableSum: the core that interpolates along up to three dimensions, one after the other.

It computes a weighted sum over a few neighbours (taps) along one dimension of sums along the next.
The table gives the order of the dimensions, the neighbours and their weights (taps.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .core import Array, Column, Core
from .expr import cost
from .taps import CELLS

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

# The columns of each dimension in the table.
TAPS = ("step", "at", "n", "in", *CELLS)
READ = {"table": "i64", "step": "index", "at": "index", "nearest": "index"} | dict.fromkeys(
    ("origin", "scale", "stretch"), "f32"
)

# Operations to find the weight and the pixel of a tap: `_tap_weight` in kernels/gpu/separable.py.
TAP_OPERATIONS = 16


@dataclass(frozen=True)
class SeparableSum(Core):
    """Weighted sums over taps; see the module docstring."""

    @property
    def gives_rows(self) -> bool:
        return len(self.axes) == 2

    def columns(self) -> dict[Column, str]:
        return {
            (f"tap_{what}", k): READ.get(what, "i32")
            for k in range(len(self.axes))
            for what in TAPS
        }

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        dimensions = range(len(self.axes))
        taps: Array = table[:, [spec.columns["tap_count", k] for k in dimensions]].prod(axis=1)
        return taps * (self.lanes * (cost(self.value) + 2) + TAP_OPERATIONS)

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.separable import SeparableLines

        return SeparableLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.separable import SeparableTaps

        return SeparableTaps
