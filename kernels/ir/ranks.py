"""WindowRank: the core that selects the lowest, middle or highest value of a window.

The values are integers; floats enter as keys of the same order (`order_key`). So every way of
selecting gives the same bits, and both back-ends treat nan, infinities and zeros alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import dtypes as dt
from . import expr as ex
from .core import Array, Column, Core
from .dtypes import DType
from .expr import Expr, cost
from .windows import TAP_OPERATIONS

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

RANKS = ("lowest", "middle", "highest")
_KEYS = {dt.float32: dt.int32, dt.float64: dt.int64}
_NANS = {dt.float32: 0x7FC00000, dt.float64: 0x7FF8000000000000}


def order_key(x: Expr, rank: str) -> Expr:
    """An integer for `x` such that keys are ordered as values are, and -0.0 is below 0.0.

    The highest value of a window with a nan is nan, and so is the lowest: they propagate it. For a
    median, nan is larger than all numbers.
    """
    if x.dtype is dt.bool_:
        return ex.cast(x, dt.uint8)
    if not x.dtype.is_float:
        return x
    if x.dtype not in _KEYS:
        x = ex.cast(x, dt.float32)
    key = _flipped(ex.bits(x, _KEYS[x.dtype]))
    at_nan = _NANS[x.dtype]
    # The key of a nan with its sign bit set is lower than that of minus infinity.
    return ex.select(ex.ne(x, x), ~at_nan if rank == "lowest" else at_nan, key)


def key_value(key: Expr, dtype: DType) -> Expr:
    """The value of a key; the inverse of `order_key`."""
    if not dtype.is_float:
        return ex.cast(key, dtype)
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    return ex.cast(ex.bits(_flipped(key), wide), dtype)


def _flipped(word: Expr) -> Expr:
    """The word with all bits but the sign inverted if it is negative."""
    bits = word.dtype.bits
    return word ^ ((word >> (bits - 1)) & ((1 << (bits - 1)) - 1))


@dataclass(frozen=True)
class WindowRank(Core):
    """Position p of the result reads elements p - anchor … p - anchor + count - 1 along both axes.

    The columns are those of a `WindowSum`. If windows differ between frames, the counts and anchors
    in the table are large enough for all frames, and an operand lists those of each frame.
    """

    rank: str = "highest"
    border: str = "clamp"
    frames: int | None = None  # slot of the operand with the windows of each frame

    def columns(self) -> dict[Column, str]:
        found: dict[Column, str] = {}
        for k in range(len(self.axes)):
            found |= {("win_step", k): "index", ("win_at", k): "index"}
            names = ("n", "in", "bias", "ring", "count", "anchor")
            found |= {(f"win_{what}", k): "i32" for what in names}
        return found

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        counts = [spec.columns["win_count", k] for k in range(len(self.axes))]
        taps: Array = table[:, counts].prod(axis=1)
        return taps * (self.lanes * (cost(self.value) + 1) + TAP_OPERATIONS)

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.ranks import RankLines

        return RankLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.ranks import RankTaps

        return RankTaps
