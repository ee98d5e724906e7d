"""Renders a `SincSum` as source of a CPU kernel, which computes a block of results at a time.

The samples that a block reads are copied to scratch memory, as float32 with silence around them; a
native helper computes the block (native/sincs.py), and the kernel's innermost loop runs over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir.core import Array, Column
from ..ir.expr import Expr
from ..ir.sinc import BLOCK, SincSum
from ..ir.spec import KernelSpec
from .cores import CpuCore, indented

if TYPE_CHECKING:
    from .render import Writer


class SincLines(CpuCore):
    """Writes a `SincSum`, and the loop that stores it."""

    stores_line = True

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        assert isinstance(self.spec.core, SincSum)
        self.core = self.spec.core
        self.axis = self.core.axes[0]
        writer.helpers.add("resample_block")
        writer.imports.add("block_start")

    @property
    def line_depth(self) -> int:
        return len(self.spec.loop_axes) - (self.axis is not None)

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("samples", "results")

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        reach = numbers(("signal_reach",))
        return [4 * reach, np.full_like(reach, 4 * BLOCK)]

    def prepare(self) -> Iterator[str]:
        for name in self.areas(self.spec):
            yield f"{name} = scratch + area_{name}"
        n = "1" if self.axis is None else f"n_{self.axis}"
        yield f"last_result = signal_step * ({n} - 1) + signal_at"
        yield f"first_block = min(signal_at, last_result) // {BLOCK}"
        yield f"end_block = max(signal_at, last_result) // {BLOCK} + 1"
        yield from self.hoist()

    def read(self, e: Expr) -> str:
        o = "0" if self.axis is None else f"o_{self.axis}"
        return f"row_f32(results, signal_step * {o} + signal_at - block * {BLOCK})"

    def line(self) -> Iterator[str]:
        yield "for block in range(first_block, end_block):"
        yield from indented(self._block())
        if self.axis is None:
            yield from indented(self.writer.point())
            return
        yield from indented(_span(f"n_{self.axis}"))
        yield f"    for o_{self.axis} in range(begin, end):"
        yield from indented(self.writer.point(), 2)

    def _block(self) -> Iterator[str]:
        """Resample a block."""
        yield "base, fraction = block_start(block, signal_scale)"
        # The first tap lies up to a sample more than `lobes` before the result.
        yield "origin = base + 1 - signal_lobes"
        yield "low = min(max(origin, 0), signal_samples)"
        yield "high = min(max(origin + signal_reach, low), signal_samples)"
        yield "for p in range(min(max(low - origin, 0), signal_reach)):"
        yield "    store_f32_7(samples, p, f32(0.0))"
        yield "for q in range(low, high):"
        lines, value = self.element(["q"])
        yield from indented([*lines, f"store_f32_7(samples, q - origin, f32({value}))"])
        yield "for r in range(max(high - origin, 0), signal_reach):"
        yield "    store_f32_7(samples, r, f32(0.0))"
        numbers = "signal_scale, signal_taps, signal_reach"
        yield f"resample_block(samples, block, {numbers}, in_{self.core.table}, results)"


def _span(n: str) -> Iterator[str]:
    """The positions of the loop whose results lie in the block, `begin` to `end`."""
    yield f"past = signal_at - block * {BLOCK}"
    yield "begin, end = 0, 0"
    yield "if signal_step > 0:"
    yield f"    begin, end = -(past // signal_step), -((past - {BLOCK}) // signal_step)"
    yield "elif signal_step < 0:"
    yield f"    begin = -(({BLOCK - 1} - past) // -signal_step)"
    yield "    end = past // -signal_step + 1"
    yield "else:"
    yield f"    end = {n}"
    yield f"begin, end = max(begin, 0), min(end, {n})"
