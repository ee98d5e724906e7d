"""Renders a `WindowRank` as source of a GPU kernel: every lane looks through its own window.

Extremes take one pass over the window. The median of 3 × 3 or 5 × 5 elements is selected by a
network in registers. For other windows its bits are found one by one, the highest first, each in a
pass that counts smaller elements. All values are integers, so CPU kernels give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ir import networks
from ..ir.dtypes import DType
from ..ir.expr import Expr, limits
from ..ir.ranks import WindowRank
from ..ir.spec import KernelSpec
from .cores import GpuCore, indented
from .windows import place_of, positions_of

if TYPE_CHECKING:
    from .render import Writer

_SPANS = ("count_0", "anchor_0", "count_1", "anchor_1")


class RankTaps(GpuCore):
    """Writes a `WindowRank`."""

    block = 128  # one point per thread, as for interpolation

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        core = self.spec.core
        assert isinstance(core, WindowRank)
        self.core = core
        self.lanes = range(core.lanes)
        self.dtype = core.value.dtype

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        # By default ptxas spills up to 208 bytes in the median of bytes with three channels, though
        # it uses only 40 to 64 registers; with an explicit limit of 128 it spills none.
        assert isinstance(spec.core, WindowRank)
        return {"maxnreg": 128} if spec.core.rank == "middle" else {}

    def name(self, e: Expr) -> str:
        return f"ranked_{e.attr}"

    def lines(self) -> Iterator[str]:
        yield from positions_of(self.core.axes, self.core.border)
        yield from self._windows()
        if self.core.rank == "middle":
            yield from self._middle(networks.SIDES)
        else:
            yield from self._extremes()

    def _windows(self) -> Iterator[str]:
        """The window of each lane; those of all frames fit into the window of the table."""
        slot = self.core.frames
        for k, what in enumerate(_SPANS):
            if slot is None:
                yield f"{what} = win_{what}"
            else:
                pointer = self.writer.pointer("in", slot, self.spec.loads[slot], (), True)
                yield f"{what} = tl.load({pointer} + {k}, mask=inside, other=1)"

    # -- extremes ------------------------------------------------------------------------------

    def _extremes(self) -> Iterator[str]:
        lowest, highest = limits(self.dtype)
        start, choose = (highest, "minimum") if self.core.rank == "lowest" else (lowest, "maximum")
        for c in self.lanes:
            yield f"ranked_{c} = {_full(start, self.dtype)}"
        body = [f"ranked_{c} = tl.{choose}(ranked_{c}, value_{c})" for c in self.lanes]
        yield from self._over_taps(body)

    def _over_taps(self, body: list[str], lanes: range | None = None) -> Iterator[str]:
        """Loops over the window around `body`, which finds the elements in `value_0`, …"""
        inner = [*self._place(1)]
        for c in self.lanes if lanes is None else lanes:
            lines, value = self.element(["p_0", "p_1"], str(c))
            inner += [*lines, f"value_{c} = {value}"]
        yield "for tap_0 in range(win_count_0):"
        yield from indented(self._place(0))
        yield "    for tap_1 in range(win_count_1):"
        yield from indented(indented([*inner, *body]))

    def _place(self, k: int) -> Iterator[str]:
        tap = f"tap_{k}"
        if self.core.frames is not None:  # reading an element again does not change an extreme
            tap = f"tl.minimum({tap}, count_{k} - 1)"
        return place_of(k, self.core.border, f"anchor_{k}", tap)

    # -- medians -------------------------------------------------------------------------------

    def _middle(self, sides: tuple[int, ...]) -> Iterator[str]:
        if not sides:
            for c in self.lanes:
                yield from self._search(c)
            return
        side = sides[0]
        yield f"if (count_0 == {side}) & (count_1 == {side}):"
        yield from indented(self._network(side))
        yield "else:"
        yield from indented(self._middle(sides[1:]))

    def _network(self, side: int) -> Iterator[str]:
        for k, name in enumerate(("row", "column")):
            for t in range(side):
                yield from place_of(k, self.core.border, f"anchor_{k}", str(t))
                yield f"{name}_{t} = p_{k}"
        for c in self.lanes:
            for i in range(side):
                for j in range(side):
                    lines, value = self.element([f"row_{i}", f"column_{j}"], str(c))
                    yield from lines
                    yield f"x_{i}_{j} = {value}"
            yield from _selection(side, f"ranked_{c}")

    def _search(self, c: int) -> Iterator[str]:
        """The bits of the median: one is set if at most half of the elements are smaller then."""
        word = DType.parse(f"u{self.dtype.bits}")
        sign = 1 << (word.bits - 1)
        has_sign = self.dtype.kind is DType.Kind.signed
        yield f"found = {_full(0, word)}"
        yield f"bit = {_full(sign, word)}"
        as_word = f"value_{c}.to({_type(word)}, bitcast=True)" if has_sign else f"value_{c}"
        yield f"flip = {_full(sign if has_sign else 0, word)}"
        yield f"for step in range({word.bits}):"
        yield "    tried = found | bit"
        yield "    below = tl.full((BLOCK,), 0, tl.int32)"
        body = [f"below += (({as_word} ^ flip) < tried).to(tl.int32)"]
        yield from indented(self._over_taps(body, range(c, c + 1)))
        yield "    found = tl.where(below <= count_0 * count_1 // 2, tried, found)"
        yield "    bit = bit >> 1"
        yield f"ranked_{c} = (found ^ flip).to({_type(self.dtype)}, bitcast=True)"


def _selection(side: int, result: str) -> Iterator[str]:
    """The operations of a network that the median of x_0_0 … depends on."""
    texts: dict[str, tuple[str, str, str]] = {}

    def operation(what: str, a: str, b: str) -> str:
        name = f"m_{len(texts)}"
        texts[name] = what, a, b
        return name

    def low(a: str, b: str) -> str:
        return operation("minimum", a, b)

    def high(a: str, b: str) -> str:
        return operation("maximum", a, b)

    columns = [
        networks.sort_values([f"x_{i}_{j}" for i in range(side)], low, high) for j in range(side)
    ]
    wanted = networks.middle_of_columns(columns, low, high)
    needed, stack = {wanted}, [wanted]
    while stack:
        for argument in texts.get(stack.pop(), ())[1:]:
            if argument not in needed:
                needed.add(argument)
                stack.append(argument)
    for name, (what, a, b) in texts.items():
        if name in needed:
            yield f"{name} = tl.{what}({a}, {b})"
    yield f"{result} = {wanted}"


def _type(dtype: DType) -> str:
    from .render import TRITON

    return TRITON[dtype]


def _full(value: int, dtype: DType) -> str:
    return f"tl.full((BLOCK,), {value}, {_type(dtype)})"
