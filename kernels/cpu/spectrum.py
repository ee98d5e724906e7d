"""Renders a `Spectrum` as source of a CPU kernel, which computes eight frames at a time.

The samples of eight frames are copied to scratch memory, as float32 with what lies outside of the
signal. A native helper transforms them into a row for each frequency, with a number for each frame
(native/fourier.py). The loops of the kernel then run over this block, so there is never more than
a block of the spectrum, unless the kernel stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ..ir.core import Array, Column
from ..ir.expr import Expr
from ..ir.spec import KernelSpec
from ..ir.spectrum import WINDOW_GROUP, Spectrum
from .cores import CpuCore, indented
from .native.block_sizes import GROUP

if TYPE_CHECKING:
    from .render import Writer


class SpectrumLines(CpuCore):
    """Writes a `Spectrum`, and the loops that store it."""

    stores_line = True

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        assert isinstance(self.spec.core, Spectrum)
        self.core = self.spec.core
        writer.helpers.add("transform_frames")

    @property
    def line_depth(self) -> int:
        return outer_loops(self.spec, (self.core.axes[0], self.core.time_axis))

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        return ("samples", "numbers", "spare", "power")

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        size, length = numbers(("frame", "size")), numbers(("frame", "length"))
        apart = abs(numbers(("time_step",))) * numbers(("frame", "step"))
        row = 4 * GROUP
        # Odd sizes are transformed as complex numbers, two rows each; a window may end with zeros.
        work = row * (2 * size + WINDOW_GROUP)
        return [
            4 * ((GROUP - 1) * apart + length + WINDOW_GROUP), work, work, row * (size // 2 + 1),
        ]  # fmt: skip

    def prepare(self) -> Iterator[str]:
        for name in self.areas(self.spec):
            yield f"{name} = scratch + area_{name}"
        yield "apart = time_step * frame_step"
        yield f"reach = {GROUP - 1} * apart"
        whole = f"(frame_length + {WINDOW_GROUP - 1}) // {WINDOW_GROUP} * {WINDOW_GROUP}"
        yield f"window_samples = {whole}"
        yield from self.hoist()

    def read(self, e: Expr) -> str:
        return self.read_lane(f"{_o(self.core.time_axis)} - block")

    def read_lane(self, lane: str) -> str:
        """Source of a number of the block, for one of its frames."""
        f = f"frequency_step * {_o(self.core.axes[0])} + frequency_at"
        return f"row_f32(power, ({f}) * {GROUP} + {lane})"

    def line(self) -> Iterator[str]:
        time, axes = self.core.time_axis, sorted(self.spec.loop_axes[self.line_depth :])
        yield from blocks(time)
        yield from indented(self.block())
        if time is None:
            yield from indented(loops(axes, self.writer.point()))
            return
        k = axes.index(time)
        inner = loops(axes[k + 1 :], self.writer.point())
        yield from indented(loops(axes[:k], [*in_block(time), *indented(inner)]))

    def block(self) -> Iterator[str]:
        """Transform the frames of all positions from `block` on along the time axis."""
        core = self.core
        yield "first = (time_step * block + time_at) * frame_step - frame_pad"
        yield "begin = first + min(reach, 0)"
        yield "end = first + max(reach, 0) + window_samples"
        yield "low = min(max(begin, 0), frame_samples)"
        yield "high = min(max(end, low), frame_samples)"
        yield from self._copied("p", "low", "high", "p")
        for k, (here, there) in enumerate(
            (("begin", "min(low, end)"), ("max(high, begin)", "end"))
        ):
            yield from self._outside(f"p{k}", here, there)
        numbers, roots = (f"in_{slot}" for slot in core.tables)
        yield (
            f"transform_frames(samples + (first - begin) * 4, apart, in_{core.window}, "
            f"window_samples, {numbers}, {roots}, numbers, spare, {int(core.is_magnitude)}, power)"
        )

    def _copied(self, place: str, begin: str, end: str, source: str) -> Iterator[str]:
        """Compute the samples at some places."""
        yield f"for {place} in range({begin}, {end}):"
        lines, value = self.element([source])
        yield from indented([*lines, f"store_f32_7(samples, {place} - begin, f32({value}))"])

    def _outside(self, place: str, begin: str, end: str) -> Iterator[str]:
        """Fill places outside of the signal."""
        yield f"for {place} in range({begin}, {end}):"
        if not self.core.is_mirrored:
            yield f"    store_f32_7(samples, {place} - begin, f32(0.0))"
            return
        yield f"    q = {place} % max(2 * frame_samples - 2, 1)"
        yield "    q = min(q, max(2 * frame_samples - 2, 1) - q)"
        lines, value = self.element(["q"])
        store = f"store_f32_7(samples, {place} - begin, f32({value}))"
        yield from indented([*lines, store])


# -- loops over blocks of frames, also for a core around this one --------------------------------


def outer_loops(spec: KernelSpec, own: Iterable[int | None]) -> int:
    """How many of the kernel's loops are outside of the loops along the `own` axes."""
    places = [spec.loop_axes.index(a) for a in own if a in spec.loop_axes]
    return min(places, default=len(spec.loop_axes))


def blocks(time_axis: int | None) -> Iterator[str]:
    """The loop over blocks of eight frames."""
    n = "1" if time_axis is None else f"n_{time_axis}"
    yield f"for block in range(0, {n}, {GROUP}):"


def in_block(time_axis: int) -> Iterator[str]:
    """The loop over the frames of a block."""
    yield f"for o_{time_axis} in range(block, min(block + {GROUP}, n_{time_axis})):"


def loops(axes: Iterable[int], body: Iterable[str]) -> Iterator[str]:
    """Loops over all positions along some axes."""
    depth = 0
    for depth, axis in enumerate(axes, 1):
        yield "    " * (depth - 1) + f"for o_{axis} in range(n_{axis}):"
    yield from indented(body, depth)


def _o(axis: int | None) -> str:
    return "0" if axis is None else f"o_{axis}"
