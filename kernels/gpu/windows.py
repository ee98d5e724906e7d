"""Renders a `WindowSum` as source of a GPU kernel: every lane sums the taps of its own window.

The loops run over the taps of all dimensions, the last one innermost, so they add in the same order
as CPU kernels. Positions outside of the image follow the rule of the border.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..ir.expr import Expr
from ..ir.spec import KernelSpec
from ..ir.windows import WindowSum, period
from .cores import GpuCore, indented

if TYPE_CHECKING:
    from .render import Writer


class WindowTaps(GpuCore):
    """Writes a `WindowSum`."""

    block = 128  # one point per thread, as for interpolation
    reads_within = True

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = self.spec.core
        assert isinstance(core, WindowSum)
        self.core = core
        self.dims = range(len(core.axes))
        self.lanes = range(core.lanes)

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        # By default ptxas spills 32 bytes in the laplacian of a volume on sm_120, and 8 bytes in
        # that of an image; with an explicit limit of 128 registers it spills none.
        core = spec.core
        assert isinstance(core, WindowSum)
        return {"maxnreg": 128} if len(core.axes) == 3 or core.parts > 1 else {}

    def name(self, e: Expr) -> str:
        return f"windowed_{e.attr}"

    def lines(self) -> Iterator[str]:
        core = self.core
        if core.fill is not None:
            yield f"outside = tl.load(in_{core.fill})"
        yield from positions_of(core.axes, core.border)
        for p in range(max(core.parts, 1)):
            if core.border.startswith("reflect"):
                yield from self._near(p)
            yield from self._start("total")
            yield from self._sum(p, 0)
            for lane in self.lanes:
                total = f"total_{lane}"
                if core.is_scaled:
                    total = f"win_scale_{p} * {total}"
                before = f"windowed_{lane} + " if p else ""
                yield f"windowed_{lane} = {before}{total}"

    def _near(self, p: int) -> Iterator[str]:
        """Whether no window reaches further than one image beyond a border, as nearly always.

        Then its positions need no remainder, which takes about 20 instructions.
        """
        for k in self.dims:
            fits = f"(win_bias_{k} <= around_{k}) & (win_count_{p}_{k} <= win_in_{k})"
            yield f"near_{k} = {fits}"

    def _start(self, name: str) -> Iterator[str]:
        for lane in self.lanes:
            yield start_of(f"{name}_{lane}", "(BLOCK,)")

    def _sum(self, p: int, k: int) -> Iterator[str]:
        """The loop over the taps along dimension k, which contains the loops along later ones."""
        is_last, is_direct = k == self.dims[-1], self.core.parts == 0
        own = "total" if k == 0 or is_direct else f"sum_{k}"
        if self.core.is_symmetric:
            yield from self._folded(p, k, own)
            return
        yield f"for tap_{k} in range(win_count_{p}_{k}):"
        body: list[str] = list(self._place(p, k))
        if not is_direct:
            body.append(f"w_{k} = tl.load(in_{self.core.weights} + (win_start_{p}_{k} + tap_{k}))")
        if not is_last:
            if is_direct:
                body.append(self._row(p, k))
            else:
                body += self._start(f"sum_{k + 1}")
            body += self._sum(p, k + 1)
            if not is_direct:
                body += [f"{own}_{c} = {own}_{c} + w_{k} * sum_{k + 1}_{c}" for c in self.lanes]
        else:
            if is_direct:
                body.append(self._row(p, k))
                weight = f"in_{self.core.weights} + (win_start_{p}_0 + number_{k})"
                body.append(f"w_{k} = tl.load({weight})")
            for c in self.lanes:
                lines, value = self._value(c)
                total = f"{own}_{c} + w_{k} * {value}"
                if is_direct:
                    total = f"tl.fma(w_{k}, {value}, {own}_{c})"
                body += [*lines, f"{own}_{c} = {total}"]
        yield from indented(body)

    def _folded(self, p: int, k: int, own: str) -> Iterator[str]:
        """The loop over pairs of taps along dimension k: NOTE [folded sums] in ir/windows.py."""
        count = f"win_count_{p}_{k}"
        yield f"for tap_{k} in range(({count} + 1) // 2):"
        yield f"    w_{k} = tl.load(in_{self.core.weights} + (win_start_{p}_{k} + tap_{k}))"
        yield f"    apart_{k} = {count} - 1 - 2 * tap_{k}"  # 0 for the tap in the middle
        pair = self._pair if k == self.dims[-1] else self._pair_of_sums
        yield from indented(pair(p, k))
        for c in self.lanes:
            yield f"    {own}_{c} = tl.fma(w_{k}, pair_{k}_{c}, {own}_{c})"

    def _pair_of_sums(self, p: int, k: int) -> Iterator[str]:
        """The sums over the later dimensions at both taps, in a loop, so that they are written
        once. It runs once for the tap in the middle."""
        yield from self._start(f"pair_{k}")
        yield f"for side_{k} in range(tl.minimum(apart_{k}, 1) + 1):"
        body = list(self._place(p, k, f"(tap_{k} + side_{k} * apart_{k})"))
        body += [*self._start(f"sum_{k + 1}"), *self._sum(p, k + 1)]
        body += [f"pair_{k}_{c} = pair_{k}_{c} + sum_{k + 1}_{c}" for c in self.lanes]
        yield from indented(body)

    def _pair(self, p: int, k: int) -> Iterator[str]:
        """The elements at both taps. Without a loop, which made ptxas spill registers."""
        yield from self._place(p, k)
        for c in self.lanes:
            lines, value = self._value(c)
            yield from [*lines, f"pair_{k}_{c} = {value}"]
        yield from self._place(p, k, f"(tap_{k} + apart_{k})")
        for c in self.lanes:
            lines, value = self._value(c)
            yield from lines
            yield f"pair_{k}_{c} = pair_{k}_{c} + tl.where(apart_{k} > 0, {value}, -0.0)"

    def _value(self, c: int) -> tuple[list[str], str]:
        """Lines that compute the element of a tap, and its name."""
        lines, value = self.element([f"p_{d}" for d in self.dims], str(c))
        if self.core.border == "constant":
            inside = " & ".join(f"inside_{d}" for d in self.dims)
            lines.append(f"value_{c} = tl.where({inside}, {value}, outside)")
            value = f"value_{c}"
        return lines, value

    def _row(self, p: int, k: int) -> str:
        """The index of a tap's weight in a window that spans several dimensions."""
        before = f"number_{k - 1} * win_count_{p}_{k} + " if k else ""
        return f"number_{k} = {before}tap_{k}"

    def _place(self, p: int, k: int, tap: str = "") -> Iterator[str]:
        """The element that a tap reads; by default that of the loop."""
        near = f"near_{k}" if self.core.border.startswith("reflect") else ""
        return place_of(k, self.core.border, f"win_anchor_{p}_{k}", tap or f"tap_{k}", near)


def start_of(name: str, shape: str) -> str:
    """A sum starts at -0.0, because adding it leaves every number as it is, even -0.0."""
    return f"{name} = tl.full({shape}, -0.0, tl.float32)"


def positions_of(axes: Sequence[int | None], border: str) -> Iterator[str]:
    """Lines that compute where the windows are: `at_0`, `at_1`, …"""
    for k, axis in enumerate(axes):
        o = "lane * 0" if axis is None else f"o_{axis}"
        yield f"at_{k} = tl.maximum(win_step_{k} * ({o}) + win_at_{k}, 0)"
        yield f"at_{k} = tl.minimum(at_{k}, win_n_{k} - 1).to(tl.int32) + win_bias_{k}"
        if border not in ("clamp", "constant"):
            yield f"around_{k} = tl.maximum({period(border, f'win_in_{k}')}, 1)"


def place_of(k: int, border: str, anchor: str, tap: str, near: str = "") -> Iterator[str]:
    """Lines that compute `p_k`, the element that a tap reads along a dimension.

    `near`: whether it lies at most one image beyond a border that reflects, if that is known.
    """
    yield f"p_{k} = at_{k} - {anchor} + {tap}"
    yield from within_border(k, border, near)


def within_border(k: int, border: str, near: str) -> Iterator[str]:
    """Lines that move `p_k` into the image, by the rule of the border."""
    if border == "constant":
        yield f"inside_{k} = (p_{k} >= 0) & (p_{k} < win_in_{k})"
    if border in ("clamp", "constant"):
        yield f"p_{k} = tl.minimum(tl.maximum(p_{k}, 0), win_in_{k} - 1).to(INDEX)"
        return
    remainder = f"p_{k} = p_{k} % around_{k}"
    if near:
        mirrored = f"-p_{k} - 1" if border == "reflect_1001" else f"-p_{k}"
        yield f"if {near}:"
        yield f"    p_{k} = p_{k} - win_bias_{k}"
        yield f"    p_{k} = tl.maximum(p_{k}, {mirrored})"
        yield "else:"
        remainder = f"    {remainder}"
    yield remainder
    if border != "wrap":
        mirror = f"around_{k} - p_{k}" + (" - 1" if border == "reflect_1001" else "")
        yield f"p_{k} = tl.minimum(p_{k}, {mirror})"
    yield f"p_{k} = p_{k}.to(INDEX)"
