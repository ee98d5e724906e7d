"""TapTable: the core that computes a table of filter taps, one entry for each tap of each position.

A GPU has no place in which the threads of a kernel could share the weights of a row or a column, so
a small kernel computes them once per sample and dimension, and the threads of the resampling kernel
load them. (CPU kernels fill such tables themselves, in scratch memory.)

An entry is an int64: the pixel that the tap reads in the upper half, the bits of its normalised
float32 weight in the lower half. Entries of one tap lie side by side, because neighbouring threads
read neighbouring positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from . import dtypes as dt
from .core import Array, Column, Core
from .expr import Expr, const
from .separable import READ, TAPS
from .spec import Access, KernelSpec

if TYPE_CHECKING:
    from ..gpu.cores import GpuCore

# Operations to compute the weight of a tap: `_weight` in kernels/gpu/tap_entries.py.
_WEIGHT_OPERATIONS = 10


@dataclass(frozen=True)
class TapTable(Core):
    """The entry of a tap (output axis 0) of a position (output axis 1)."""

    def columns(self) -> dict[Column, str]:
        return {(f"tap_{what}",): READ.get(what, "i32") for what in TAPS if what != "turn"}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        # Each thread sums the weights of all taps of its position.
        return (table[:, spec.columns["tap_count",]] + 1) * _WEIGHT_OPERATIONS

    def cpu_renderer(self) -> NoReturn:
        raise NotImplementedError("CPU kernels fill their own tables of taps: fill_taps")

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.tap_entries import TapEntries

        return TapEntries


TAP_TABLE = KernelSpec(
    ops=("taps",),
    extents=(None, None),
    loads=(),
    stores=(Access(dt.int64, (None, 1)),),
    values=(Expr("core", dt.int64, (), ("lane", 0)),),
    core=TapTable(const(0, dt.int64), (0, 1)),
)
