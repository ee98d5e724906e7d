"""Mosaic: the core that computes the colours of an image whose sensors each see one colour.

Sensors lie in tiles of 2 × 2. So there are four kinds of them, and each kind has its own
expressions over the sensors around it, leaves "tap" with their distance (down, to the right). CPU
kernels compute pairs of columns with them; no element asks which kind it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .core import Array, Column, Core
from .dtypes import DType
from .expr import Expr, cost

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

# The colours of the four kinds of sensors, in this order: those that see the chroma of their row
# and those that see green, in rows with blue; then the same in rows with red. Rows with red are
# left out if red and blue are merely exchanged there.
Sensors = tuple[tuple[Expr, ...], ...]
SMALL = 8  # with fewer rows or columns than this, a core uses its sensors for small images


def tap(dtype: DType, down: int, right: int) -> Expr:
    """What the sensor at some distance sees."""
    return Expr("tap", dtype, (), (down, right))


@dataclass(frozen=True)
class Mosaic(Core):
    """The colours of each element, from elements up to `reach` away.

    Beyond the border the image is mirrored without repeating its outermost elements, if
    `is_mirrored`. Otherwise the outermost elements get the colours of those next to them, or 0 if
    there are none. Small images have `small` sensors, if given; these are not mirrored.
    """

    sensors: Sensors = ()
    reach: int = 1
    is_mirrored: bool = False
    small: Sensors | None = None

    def columns(self) -> dict[Column, str]:
        names = ("rows", "columns", "step_0", "at_0", "step_1", "at_1", "blue_0", "blue_1")
        return {("mosaic", name): "index" for name in names}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        each: Array = 0 * table[:, 0] + sum(cost(*s) for s in self.sensors) // len(self.sensors)
        return each

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.mosaic import MosaicLines

        return MosaicLines

    def gpu_renderer(self) -> type[GpuCore]:
        # A GPU computes every element by itself, with a pointwise expression.
        raise NotImplementedError("a mosaic is pointwise work on a GPU")
