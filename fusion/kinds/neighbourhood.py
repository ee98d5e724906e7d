"""Neighbourhood: a weighted sum over a window around each element, with a rule for the border."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.windows import BORDERS, LINES, MAX_TILED_TAPS, TiledSum, WindowSum
from ..graph.node import Node
from ..graph.shapes import Array, Number, Shapes
from .base import DEAR, Kind, Reads, Terms, Work, interned, made_of
from .tabled import NUMBERS

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder

# Limit along one dimension of a window; a wider one is a mistake, such as a huge sigma.
MAX_WINDOW = 1 << 20


class Windows(NamedTuple):
    """The windows of all samples, as arrays [samples or 1, parts, axes].

    Along each axis, element p of the result reads elements p - anchor … p - anchor + count - 1;
    their weights begin at index `start` of the second input.
    """

    count: Array  # type: ignore[assignment]  # hides a method of tuples
    anchor: Array
    start: Array
    scale: Array | None = None  # float32 [samples, parts]: a factor for each part


@dataclass(frozen=True)
class Windowed(Kind):
    """A kind that reads a window around each element; params have a `count` and an `anchor`."""

    axes: tuple[int, ...]
    border: str

    has_core = True
    keeps_rows = True

    def reads(self, i: int) -> Reads:
        return Reads.TABLE if i else Reads.SCATTERED

    def cost(self) -> int:
        return DEAR

    def bound_by(self, node: Node) -> Hashable | None:
        """The windows, if all samples have the same ones (a table per set of windows that differ
        between samples would hardly ever be used again)."""
        numbers = [n for n in node.params if n is not None]
        return tuple(n.tobytes() for n in numbers) if all(len(n) == 1 for n in numbers) else None

    def bias(self, n: Array, before: Array) -> Number:
        """A multiple of the border's period that makes all positions positive."""
        if self.border in ("clamp", "constant"):
            return 0
        period = {"reflect_101": 2 * n - 2, "reflect_1001": 2 * n, "wrap": n}[self.border]
        period = np.maximum(period, 1)
        bias: Array = -(-before // period) * period
        return bias

    def ring(self, n: Array, windows: Any, k: int) -> Array:
        """How many rows a CPU kernel keeps to compute some lines at once, a power of two."""
        anchor = windows.anchor[:, :, k]
        reach = anchor.max(axis=1) + (windows.count[:, :, k] - anchor).max(axis=1)
        reach = reach + LINES - 1
        rows = reach if self.border == "wrap" else np.minimum(reach, n)
        power: Array = 1 << np.ceil(np.log2(np.maximum(rows, 1))).astype(np.int64)
        return power

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        """The lowest and the highest element read along a dimension, including those that the
        border mirrors or repeats."""
        count, anchor = node.params.count[:, :, k], node.params.anchor[:, :, k]
        highest = node.inputs[0].shapes.rows[:, self.axes[k]] - 1
        limit = node.shapes.rows[:, self.axes[k]] - 1
        low = _within(low, limit) - anchor.max(axis=1)
        high = _within(high, limit) + (count - anchor).max(axis=1) - 1
        first, last = _within(low, highest), _within(high, highest)
        if self.border.startswith("reflect"):
            last = np.where(low < 0, np.maximum(last, np.minimum(-low, highest)), last)
            mirrored = np.maximum(2 * highest - high, 0)
            first = np.where(high > highest, np.minimum(first, mirrored), first)
        elif self.border == "wrap":
            is_outside = (low < 0) | (high > highest)
            first, last = np.where(is_outside, 0, first), np.where(is_outside, highest, last)
        return first, last


@dataclass(frozen=True)
class Neighbourhood(Windowed):
    """Sums `x` over weighted windows, as float32; params = `Windows`.

    Inputs: `x`, the weights, and the fill value outside of `x` if `border` is "constant".
    """

    parts: int  # separable sums that are added up; 0: one window spans all axes
    is_scaled: bool
    is_symmetric: bool = False  # whether weights are the same from both ends of every window
    is_tiled: bool = False  # whether a GPU sums along both axes in one kernel

    takes_rows = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return dt.float32

    def check(self, node: Node) -> None:
        super().check(node)
        assert 1 <= len(self.axes) <= 3 and self.border in BORDERS, f"{node}: {self}"
        assert all(x.dtype is dt.float32 for x in node.inputs[1:]), f"{node}: weights"
        count, anchor, start, scale = node.params
        assert (scale is not None) == self.is_scaled, f"{node}: scale"
        assert count.shape == anchor.shape == start.shape, f"{node}: windows"
        assert count.shape[1:] == (max(self.parts, 1), len(self.axes)), f"{node}: windows"
        assert ((anchor >= 0) & (anchor < count)).all(), f"{node}: anchors"
        weights = node.inputs[1].shapes.volumes
        last = count[:, 0].prod(axis=-1) if not self.parts else (start + count).max(axis=(1, 2))
        assert (last <= weights).all(), f"{node}: weights"
        if self.is_tiled:
            is_separable = self.parts == 1 and not self.is_scaled and self.border != "constant"
            assert is_separable and len(self.axes) == 2, f"{node}: not for tiles"
            assert (count <= MAX_TILED_TAPS).all(), f"{node}: windows larger than a tile"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source, weights, *fill = lowering.inputs[position]
        own, count, which = lowering.in_core(position, terms, self.axes)
        tap = yield source, own, None
        where = tuple(terms[a] for a in self.axes)
        if self.is_tiled:
            lowering.keep_neighbours(position, where)
        core = (TiledSum if self.is_tiled else WindowSum)(
            ex.cast(tap, dt.float32), tuple(axis for axis, _, _ in where), count, self.border,
            lowering.slot(weights, NUMBERS, None),
            lowering.slot(fill[0], NUMBERS, None) if fill else None,
            self.parts, self.is_scaled, self.is_symmetric,
        )  # fmt: skip
        return lowering.claim(position, where, core, which)

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node = binder.nodes[position]
        windows: Windows = node.params
        place, source = spec.columns, node.inputs[0].shapes.rows
        for k, axis in enumerate(self.axes):
            step, at = binder.numbers(terms[k])
            n = source[:, axis]
            before = windows.anchor[:, :, k].max(axis=1)
            for name, number in (
                ("step", step), ("at", at), ("n", node.shapes.rows[:, axis]), ("in", n),
                ("bias", self.bias(n, before)), ("ring", self.ring(n, windows, k)),
            ):  # fmt: skip
                rows[:, place[f"win_{name}", k]] = number
            for p in range(max(self.parts, 1)):
                for name, numbers in zip(Windows._fields[:3], windows[:3], strict=True):
                    rows[:, place[f"win_{name}", p, k]] = numbers[:, p, k]
        if windows.scale is not None:
            for p in range(max(self.parts, 1)):
                rows[:, place["win_scale", p]] = windows.scale[:, p].view(np.int32)


def _within(values: Number, highest: Array) -> Array:
    # np.clip takes three times as long for short arrays.
    return np.minimum(np.maximum(values, 0), highest)


def neighbourhood(
    op: str, x: Node, axes: Sequence[int], shapes: Shapes, border: str, weights: Node,
    windows: Windows, parts: int = 1, fill: Node | None = None, is_symmetric: bool = False,
    is_tiled: bool = False,
) -> Node:  # fmt: skip
    """Sum `x` over windows along `axes`, as float32."""
    widest = int(windows.count.max(initial=0))
    if widest > MAX_WINDOW:
        raise ValueError(
            f"the window is too large: {widest} elements, and at most {MAX_WINDOW} are possible"
        )
    is_scaled = windows.scale is not None
    kind = interned(
        Neighbourhood, x.rank, tuple(axes), border, parts, is_scaled, is_symmetric, is_tiled
    )
    inputs = [x, weights] if fill is None else [x, weights, fill]
    return made_of(kind, op, inputs, shapes, x.layout, x.batch, windows)
