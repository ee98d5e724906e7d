"""Reduction: the sum, the smallest or the largest of the values along some dimensions.

NOTE [order of summation] Floats are summed as float64, in an order that the number of values n
alone decides, so that no thread, mode, fusion or device changes a bit. `lane_count(n)` lanes take
turns: lane k sums values k, k + lanes, k + 2 * lanes, … one after the other. More than `FOLD` lanes
are folded in the same way: lane k of `FOLD` sums lanes k, k + FOLD, … The lanes that are left are
summed one after the other. A CPU kernel does all of it, lanes side by side in vectors; on a GPU
each of the three is a kernel, and each lane a thread (fusion/kinds/reduce.py). Positions count in
the order of the dimensions, the last one fastest. Sums of integers are exact (modulo 2**64), so
their order is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import dtypes as dt
from .core import Array, Column, Core
from .dtypes import DType
from .expr import Expr, const, cost, limits

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

# A lane has at least half as many values as this, so that on a GPU the lanes of an image are a few
# per cent of it. On a CPU 1024 lanes of float64 (8 KB) stay in the L1 cache: sums of float32 run at
# 48 GB/s, the speed of a copy.
LANE_VALUES = 64
MAX_LANES = 1024
FOLD = 32


def lane_count(n: Array) -> Array:
    """How many lanes sum `n` values: a power of two."""
    wanted = np.minimum(-(-n // LANE_VALUES), MAX_LANES)
    powers: Array = 1 << np.arange(MAX_LANES.bit_length())
    found: Array = powers[np.searchsorted(powers, np.maximum(wanted, 1))]
    return found


def folded_count(lanes: Array) -> Array:
    """How many lanes are left when they have been folded."""
    left: Array = np.minimum(lanes, FOLD)
    return left


@dataclass(frozen=True)
class Reduction(Core):
    """See above. `acc` is the type of what is summed up; `value` may be a narrower integer."""

    combine: str = "add"  # add, min or max
    acc: DType = dt.float64
    # The output axis along which lanes lie, each of them a result; None: all of them are combined.
    lane_axis: int | None = None

    def columns(self) -> dict[Column, str]:
        extents: dict[Column, str] = {("run_n", k): "index" for k in range(len(self.axes))}
        return {
            **extents, ("run_lanes",): "index", ("run_divisor",): "i64",
            ("lane_step",): "index", ("lane_at",): "index",
        }  # fmt: skip

    @property
    def start(self) -> Expr:
        """The result of no values."""
        if self.combine == "add":
            return const(0, self.acc)
        if self.acc.is_float:
            # finite, as upstream: not-a-number and infinities of the other sign are passed over
            largest = float(np.finfo(self.acc.np).max)
            return const(largest if self.combine == "min" else -largest, self.acc)
        return const(limits(self.acc)[self.combine == "min"], self.acc)

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        extents = [spec.columns["run_n", k] for k in range(len(self.axes))]
        values: Array = table[:, extents].prod(axis=1)
        lanes = table[:, spec.columns["run_lanes",]] if self.lane_axis is not None else 1
        each: Array = -(-values // np.maximum(lanes, 1)) * (cost(self.value) + 1)
        return each

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.reduce import ReductionLines

        return ReductionLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.reduce import ReductionLoop

        return ReductionLoop


DIVISOR = -1  # as the number of a `core` leaf: what a mean is divided by, an int64
