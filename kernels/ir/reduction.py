"""Reduction: the core that computes the sum, minimum or maximum along some dimensions.

NOTE [order of summation] We sum floats as float64, in an order that depends only on the number of
values n, so threads, eval modes, fusion and devices do not change a bit of the result:
1. Each of `lane_count(n)` lanes sums its values: lane k sums values k, k + lanes, k + 2 * lanes, …
   in this order. Values are numbered in the order of the dimensions, the last one fastest.
2. If there are more than `FOLD` lanes, they are folded: lane k of `FOLD` sums lanes k, k + FOLD, …
3. The remaining lanes are summed in order.
One CPU kernel does all three steps, with lanes side by side in vectors. On a GPU each step is a
kernel of its own, and each lane is a thread (fusion/kinds/reduce.py). Sums of integers are exact
(modulo 2**64), so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes as dt
from .core import Array, Column, Core
from .dtypes import DType
from .expr import Expr, const, cost, limits

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

# A lane has at least half this many values, so on a GPU the lanes take a few per cent of the memory
# of an image. On a CPU, 1024 lanes of float64 (8 KB) stay in the L1 cache: float32 is summed at
# 48 GB/s, the speed of a copy.
LANE_VALUES = 64
MAX_LANES = 1024
FOLD = 32


_POWERS: Array = 1 << np.arange(MAX_LANES.bit_length())
_LANES = np.append(_POWERS, MAX_LANES)  # of as many groups of `LANE_VALUES` values, rounded up


def lane_count(n: int | Array) -> Any:
    """How many lanes sum `n` values: a power of two; one count, or one per sample."""
    return _LANES[_POWERS.searchsorted(-(-n // LANE_VALUES))]


def folded_count(lanes: Array) -> Array:
    """How many lanes are left after folding."""
    left: Array = np.minimum(lanes, FOLD)
    return left


def bits_of(e: Expr) -> int:
    """How many bits an integer value needs, as far as casts and products tell."""
    bits = e.dtype.bits
    if e.op == "mul":
        a, b = map(bits_of, e.args)
        return min(a + b, bits)
    if e.op != "cast" or e.args[0].dtype.is_float:
        return bits
    signed, source = DType.Kind.signed, e.args[0].dtype.kind
    if source is signed and e.dtype.kind is not signed:
        return bits  # a negative value wraps around
    sign = e.dtype.kind is signed and source is not signed
    return min(bits_of(e.args[0]) + sign, bits)


def _is_square(square: Expr, of: Expr) -> bool:
    """Whether `square` is the square of another value, which may have been converted first."""
    if square.op != "mul" or square.args[0] is not square.args[1]:
        return False
    root = square.args[0]
    while root is not of and root.op == "cast":
        root = root.args[0]
    return root is of


@dataclass(frozen=True)
class Reduction(Core):
    """Combines `value`, which may be an integer narrower than `acc`, to a result of type `acc`."""

    combine: str = "add"  # add, min or max
    acc: DType = dt.float64
    # The output axis of the lanes, if each lane is a result of its own; None: combine all lanes.
    lane_axis: int | None = None
    # The squares of `value`, or what `value` is the square of, if the same loops sum them; their
    # sums are numbered after those of `value`. Only CPU kernels do that, for integers.
    second: Expr | None = None

    @property
    def summands(self) -> tuple[Expr, ...]:
        """What is combined, in the order of the results."""
        return (self.value,) if self.second is None else (self.value, self.second)

    def columns(self) -> dict[Column, str]:
        extents: dict[Column, str] = {("run_n", k): "index" for k in range(len(self.axes))}
        return {
            **extents, ("run_lanes",): "index", ("run_divisor",): "i64",
            ("lane_step",): "index", ("lane_at",): "index",
        }  # fmt: skip

    def beside(self, other: Core) -> Core | None:
        if not isinstance(other, Reduction) or self.acc.is_float:
            return None
        second = other.value
        is_square = _is_square(second, self.value) or _is_square(self.value, second)
        if not is_square or replace(self, value=second) != other:
            return None
        return replace(self, second=second)

    @property
    def start(self) -> Expr:
        """The result of no values."""
        if self.combine == "add":
            return const(0, self.acc)
        if self.acc.is_float:
            # As upstream, the start is finite, so NaN and infinities of the other sign are ignored.
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


DIVISOR = -1  # a `core` leaf with this number reads the divisor of a mean, an int64
