"""Renders `BandSums` as source of a CPU kernel.

If bands run along another axis than the innermost loop, the sums of a whole line are computed
together, band element by band element. If a `Spectrum` inside of this core computes what it reads,
the bands of eight frames are summed as soon as these are transformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..ir.bands import BAND, BandSums
from ..ir.core import Array, Column
from ..ir.expr import Expr, walk
from ..ir.spec import KernelSpec
from ..ir.spectrum import Spectrum
from .cores import CpuCore, indented
from .native.block_sizes import GROUP
from .spectrum import SpectrumLines, blocks, in_block, loops, outer_loops

if TYPE_CHECKING:
    from .render import Writer


class BandLines(CpuCore):
    """Writes `BandSums`; sums of a line are in scratch memory, a single sum is `total`."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        assert isinstance(self.spec.core, BandSums)
        self.core = self.spec.core
        self.frames: SpectrumLines | None = None
        if self.core.inner is not None:
            assert isinstance(self.core.inner, Spectrum)
            self.frames = SpectrumLines(writer.inside())
            self.stores_line = True
        axes = self.spec.loop_axes
        # The axis along which sums are computed together.
        self.along = axes[-1] if axes and axes[-1] != self.core.band_axis else None

    @property
    def line_depth(self) -> int:
        axes = self.spec.loop_axes
        if self.frames is not None:
            return outer_loops(self.spec, (self.core.band_axis, self.frames.core.time_axis))
        return len(axes) - (self.along is not None)

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("sums",)

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        room = np.full_like(numbers(("band", "step")), 4 * GROUP)
        if spec.loop_axes:
            room = room + 4 * numbers(("n", spec.loop_axes[-1]))
        return [room]

    def prepare(self) -> Iterator[str]:
        yield "sums = scratch + area_sums"
        if self.frames is not None:
            yield from self.frames.prepare()
        yield from self.hoist()

    def read(self, e: Expr) -> str:
        if self.frames is not None:
            axis = self.frames.core.time_axis
            return f"row_f32(sums, {'0' if axis is None else f'o_{axis} - block'})"
        return "total" if self.along is None else f"row_f32(sums, o_{self.along})"

    def line(self) -> Iterator[str]:
        if self.frames is not None:
            yield from self._from_frames(self.frames)
            return
        yield from self._band()
        if self.along is None:
            yield from self._single()
        else:
            yield from self._together(f"o_{self.along}", f"n_{self.along}")

    def _from_frames(self, frames: SpectrumLines) -> Iterator[str]:
        """Sum the bands of eight frames at a time, band by band, and store them."""
        time = frames.core.time_axis
        axes = [a for a in sorted(self.spec.loop_axes[self.line_depth :]) if a != time]
        body = [*self._band(), *self._bands_of_block(frames)]
        if time is None:
            body += self.writer.point()
        else:
            body += [*in_block(time), *indented(self.writer.point())]
        yield from blocks(time)
        yield from indented([*frames.block(), *loops(axes, body)])

    def _bands_of_block(self, frames: SpectrumLines) -> Iterator[str]:
        if self.core.value.op == "core":
            self.writer.helpers.add("sum_lanes")
            rows = f"power + (frequency_step * band_first + frequency_at) * {4 * GROUP}"
            weights = f"in_{self.core.weights} + band_weight * 4"
            yield "if frequency_step == 1:"
            yield f"    sum_lanes({rows}, {weights}, band_count, sums)"
            yield "else:"
            yield from indented(self._together("lane", str(GROUP)))
        else:
            yield from self._together("lane", str(GROUP))

    def element(self, positions: Sequence[str]) -> tuple[list[str], str]:
        if self.frames is None:
            return super().element(positions)
        writer, dimension = self.writer, f"o_{self.spec.rank}"
        lines = [f"{dimension} = {positions[0]}"]
        for e in walk([self.core.value]):
            if e.op == "core":
                lines.append(writer.assign(e, self.frames.read_lane("lane")))
            elif e.op != "const" and e not in self.hoisted:
                assert e.args, f"{e.op} beside the frames of a core"
                lines.append(writer.assign(e))
        return lines, writer.ref(self.core.value)

    def _band(self) -> Iterator[str]:
        """Find the band."""
        o = "0" if self.core.band_axis is None else f"o_{self.core.band_axis}"
        yield f"band = (band_step * {o} + band_at) * {BAND}"
        for name, k in (("first", 0), ("count", 1), ("weight", 2)):
            yield f"band_{name} = i64(load_i32(in_{self.core.bands}, band + {k}))"

    def _single(self) -> Iterator[str]:
        yield "total = f32(0.0)"
        yield "for j in range(band_count):"
        lines, value = self.element(["(band_first + j)"])
        weight = f"load_f32(in_{self.core.weights}, band_weight + j)"
        yield from indented([*lines, f"total = total + {weight} * {value}"])

    def _together(self, place: str, count: str) -> Iterator[str]:
        """The sums at `count` positions of a loop variable."""
        yield f"for {place} in range({count}):"
        yield f"    store_f32_7(sums, {place}, f32(0.0))"
        yield "for j in range(band_count):"
        yield f"    factor = load_f32(in_{self.core.weights}, band_weight + j)"
        yield f"    for {place} in range({count}):"
        lines, value = self.element(["(band_first + j)"])
        total = f"row_f32(sums, {place}) + factor * {value}"
        yield from indented([*lines, f"store_f32_7(sums, {place}, {total})"], 2)
