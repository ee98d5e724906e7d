"""Spectrum: the core that computes the power of the frequencies of frames of a signal.

Frame t begins at sample `t * step - pad`. A position outside of the signal is mirrored without
repeating the border, or reads 0. The frame is multiplied by a window and padded with zeros to the
length of the transform.
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

# A transform reads the window in groups of this many samples; the list ends with zeros.
WINDOW_GROUP = 8


@dataclass(frozen=True)
class Spectrum(Core):
    """Its only dimension are the samples; `axes` is the output axis of the frequencies."""

    time_axis: int | None = None
    window: int = 0  # slot of the window
    # Slots of the transform's tables: the numbers and roots of a plan (ir/fourier.py) on a CPU, all
    # roots of unity of the transform's length on a GPU.
    tables: tuple[int, ...] = ()
    is_mirrored: bool = True
    is_magnitude: bool = False  # not squared

    @property
    def gives_frames(self) -> bool:
        return True

    def columns(self) -> dict[Column, str]:
        names = ("step", "pad", "length", "size", "samples")
        placed = ("frequency_step", "frequency_at", "time_step", "time_at")
        numbers: dict[Column, str] = {("frame", name): "index" for name in names}
        return {**numbers, **{(name,): "index" for name in placed}}

    def operations(self, spec: KernelSpec, table: Array) -> Array:
        size = table[:, spec.columns["frame", "size"]]
        # A transform of n samples takes about 5 / 2 n log2 n operations and gives n / 2 numbers.
        each = 5 * np.log2(np.maximum(size, 2)).astype(np.int64) + 2 * cost(self.value)
        operations: Array = each
        return operations

    def cpu_renderer(self) -> type[CpuCore]:
        from ..cpu.spectrum import SpectrumLines

        return SpectrumLines

    def gpu_renderer(self) -> type[GpuCore]:
        from ..gpu.spectrum import SpectrumLoop

        return SpectrumLoop
