"""Renders a `Spectrum` as source of a GPU kernel, in which each lane sums one frequency of a frame.

This is the transform by its definition, n operations for each number: lanes of one frame read the
same samples, and neighbouring roots. Its sums differ from those of the CPU in the last places.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.expr import Expr
from ..ir.spectrum import Spectrum
from .cores import GpuCore


class SpectrumLoop(GpuCore):
    """Writes a `Spectrum`."""

    block = 128

    def name(self, e: Expr) -> str:
        return "power"

    def lines(self) -> Iterator[str]:
        core = self.spec.core
        assert isinstance(core, Spectrum)
        (roots,) = core.tables
        yield f"frequency = (frequency_step * {_o(core.axes[0])} + frequency_at).to(INDEX)"
        yield f"first = (time_step * {_o(core.time_axis)} + time_at) * frame_step - frame_pad"
        yield "first = first + (lane * 0).to(INDEX)"
        yield "real = tl.full((BLOCK,), 0.0, tl.float32)"
        yield "imaginary = tl.full((BLOCK,), 0.0, tl.float32)"
        yield "turn = (lane * 0).to(INDEX)"
        yield "around = tl.maximum(2 * frame_samples - 2, 1)"
        yield from self.hoist()
        yield "everywhere = inside"
        yield "for j in range(frame_length.to(tl.int32)):"
        yield from ("    " + line for line in self._step(core, f"in_{roots}"))
        yield "inside = everywhere"
        yield "power = real * real + imaginary * imaginary"
        if core.is_magnitude:
            yield "power = tl.sqrt_rn(power)"

    def _step(self, core: Spectrum, roots: str) -> Iterator[str]:
        yield "p = first + j"
        if core.is_mirrored:
            # The remainder of a negative number is negative here, and mirrored all the same.
            yield "p = tl.abs(p % around)"
            yield "p = tl.minimum(p, around - p)"
        else:
            yield "inside = everywhere & (p >= 0) & (p < frame_samples)"
        lines, value = self.element(["p"])
        yield from lines
        yield f"sample = tl.where(inside, {value}.to(tl.float32), 0.0)"
        yield f"sample = sample * tl.load(in_{core.window} + j)"
        yield f"real = real + sample * tl.load({roots} + 2 * turn)"
        yield f"imaginary = imaginary + sample * tl.load({roots} + 2 * turn + 1)"
        yield "turn = turn + frequency"
        yield "turn = tl.where(turn >= frame_size, turn - frame_size, turn)"


def _o(axis: int | None) -> str:
    return "0" if axis is None else f"o_{axis}"
