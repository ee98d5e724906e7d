"""SincSum: the core that resamples a signal with a windowed sinc.

Result t lies at `t * scale` of the signal. Its value is the sum of the samples up to `lobes` away,
each multiplied by sinc(d) times Hann's window at the distance d. That function is tabulated at
`KNOTS` distances per sample and interpolated between them; samples are a whole distance apart, so
all taps of a result lie at the same fraction between knots. Outside of the signal there is silence.

NOTE [positions of a signal] Upstream works in blocks of `BLOCK` results. The position of the first
result of a block is exact; each next one adds the scale, as float32. The rounding errors add up to
about 1e-4 samples, so results equal upstream's only if positions are found the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common.memo import memoized
from .core import Array, Column, Core
from .expr import cost

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

KNOTS = 32  # of the table, per sample
BLOCK = 256
TAP_GROUP = 8  # a row of the table has a multiple of this many taps; the last ones are 0


def tap_count(lobes: int) -> int:
    """How many taps a row of the table has."""
    return -(-(2 * lobes + 1) // TAP_GROUP) * TAP_GROUP


@memoized(64)
def sinc_table(lobes: int) -> Array:
    """Weights [KNOTS + 2, taps]: tap m of row k lies at the distance k / KNOTS - lobes + m.

    Row KNOTS is interpolated with the one behind it, too, though with a weight of 0.
    """
    d = np.arange(KNOTS + 2)[:, None] / KNOTS + np.arange(tap_count(lobes)) - lobes
    # The window is a bit wider than the lobes, as upstream's.
    window = 0.5 + 0.5 * np.cos(np.pi * d / (lobes + 0.5 / KNOTS))
    weights = np.where(np.abs(d) <= lobes, np.sinc(d) * window, 0.0)
    return weights.astype(np.float32)


@dataclass(frozen=True)
class SincSum(Core):
    """Its only dimension are the samples; `axes` is the output axis of the results."""

    table: int = 0  # slot of the table

    def columns(self) -> dict[Column, str]:
        return {
            ("signal_step",): "index", ("signal_at",): "index", ("signal_samples",): "index",
            ("signal_lobes",): "index", ("signal_taps",): "index", ("signal_scale",): "i64",
            ("signal_reach",): "index",
        }  # fmt: skip

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        each: Array = table[:, spec.columns["signal_taps",]] * (cost(self.value) + 4)
        return each

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.sinc import SincLines

        return SincLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.sinc import SincLoop

        return SincLoop
