"""Histogram: counts of bytes in tiles of an image; and Curve, the table that equalizes them.

A histogram computes its input on the fly, like a reduction. Its table is small, is stored, and is
read by position: looking it up is pointwise work, which fuses with what follows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.histogram import BINS, BinCounts, ToneCurve
from ..graph.node import Node, static_channels
from ..graph.shapes import Array, Shapes
from .base import DEAR, Kind, Reads, Terms, Work, make
from .reduce import reduce

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder

# A GPU program counts one tile, so it needs several tiles to be busy: a whole image is counted in
# bands of about this many values. An estimate: 64 values for each of the 256 lanes of a program.
BAND_VALUES = 1 << 14
MAX_BANDS = 64


@dataclass(frozen=True, eq=False)
class Grid:
    """The tiles of each sample: how many, and how large; [samples, (rows, columns)].

    Compared by identity, because a kernel's table that was filled from one object can be used again
    for the same object.
    """

    counts: Array
    extents: Array


@dataclass(frozen=True)
class ByteTable(Kind):
    """A kind with a core whose last axis has one element for each byte."""

    has_core = True
    is_summary = True

    def reads(self, i: int) -> Reads:
        return Reads.ONCE

    def cost(self) -> int:
        return DEAR

    def bound_by(self, node: Node) -> Hashable | None:
        numbers: Hashable = node.params
        return numbers


@dataclass(frozen=True)
class Histogram(ByteTable):
    """Counts the bytes of each tile: int32 [… tiles … 256], where the tiles replace the rows and
    columns of the input; params = `Grid`."""

    row_axis: int  # of the input; columns come next
    is_mirrored: bool  # what tiles contain beyond the image, see `BinCounts`

    def infer(self, inputs: Sequence[Node]) -> DType:
        return dt.int32

    def check(self, node: Node) -> None:
        super().check(node)
        x, a = node.inputs[0], self.row_axis
        assert x.dtype is dt.uint8, f"{node}: counts {x.dtype}"
        tiles = node.params.counts.prod(axis=1)
        wanted = _replaced(x.shapes.rows, a, tiles)
        assert (node.shapes.rows == wanted).all(), f"{node} of {x}"
        covered = node.params.counts * node.params.extents
        assert (covered >= x.shapes.rows[:, a : a + 2]).all(), f"{node}: tiles miss a part of {x}"

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source, a = lowering.inputs[position][0], self.row_axis
        own = [*terms[:a], (lowering.rank, 0, ()), (lowering.rank + 1, 0, ()), *terms[a + 1 : -1]]
        channels = self._channels(lowering.nodes[source])
        if channels:
            own[-1] = (lowering.rank + 2, 0, ())
        value = yield source, tuple(own), None
        _check_whole(lowering, terms)
        core = BinCounts(value, (None, None), channels, a, self.is_mirrored)
        return lowering.claim(position, (), core, ("at", 0))

    def _channels(self, x: Node) -> int:
        """How many channels are counted together: on a CPU all, if they are few and interleaved."""
        found = static_channels(x)
        is_last = found is not None and found[0] == x.rank - 1 > self.row_axis + 1
        return found[1] if found is not None and is_last and x.device is None else 0

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node, a = binder.nodes[position], self.row_axis
        image, grid = node.inputs[0].shapes.rows[:, a : a + 2], node.params
        for name, numbers in (
            (("image", "rows"), image[:, 0]), (("image", "columns"), image[:, 1]),
            (("grid", "tile_rows"), grid.extents[:, 0]),
            (("grid", "tile_columns"), grid.extents[:, 1]),
            (("grid", "tiles_across"), grid.counts[:, 1]),
        ):  # fmt: skip
            rows[:, spec.columns[name]] = numbers

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        n = node.inputs[0].shapes.rows[:, self.row_axis + k]
        return np.zeros_like(n), np.maximum(n - 1, 0)


@dataclass(frozen=True, eq=False)
class Limits:
    """The numbers per sample that a curve needs; compared by identity, like `Grid`."""

    totals: Array  # how many values a histogram counts
    limits: Array  # the largest count of a bin, if the curve is limited


@dataclass(frozen=True)
class Curve(ByteTable):
    """Turns histograms into tables of bytes; params = `Limits`."""

    is_limited: bool  # see `ToneCurve`

    def infer(self, inputs: Sequence[Node]) -> DType:
        return dt.uint8

    def check(self, node: Node) -> None:
        super().check(node)
        assert node.inputs[0].dtype is dt.int32, f"{node}: counts"
        assert (node.shapes.rows == node.inputs[0].shapes.rows).all(), f"{node}: shape"
        assert (node.shapes.rows[:, -1] == BINS).all(), f"{node}: bins"

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source = lowering.inputs[position][0]
        value = yield source, (*terms[:-1], (lowering.rank, 0, ())), None
        _check_whole(lowering, terms)
        core = ToneCurve(value, (None,), 0, self.is_limited)
        return lowering.claim(position, (), core, ("at", 0))

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        numbers = binder.nodes[position].params
        rows[:, spec.columns["curve_total",]] = numbers.totals
        rows[:, spec.columns["curve_limit",]] = numbers.limits

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        return np.zeros_like(low), np.full_like(high, BINS - 1)


def _check_whole(lowering: Lowering, terms: Terms) -> None:
    """Assert that a table is the result of its kernel: it is stored, because it is looked up."""
    whole = tuple((a, 0, ()) for a in range(lowering.rank))
    assert terms == whole, f"a table is computed as a whole, not at {terms}"


def _replaced(rows: Array, axis: int, tiles: Array) -> Array:
    """Shapes of histograms: the tiles in place of the rows and columns, and an axis of bins."""
    made = np.empty_like(rows)
    made[:, :axis], made[:, axis] = rows[:, :axis], tiles
    made[:, axis + 1 : -1], made[:, -1] = rows[:, axis + 2 :], BINS
    return made


def _histogram(op: str, x: Node, row_axis: int, grid: Grid, is_mirrored: bool) -> Node:
    shapes = Shapes(_replaced(x.shapes.rows, row_axis, grid.counts.prod(axis=1)))
    kind = Histogram(x.rank, row_axis, is_mirrored)
    return make(op, kind, (x,), shapes, None, x.batch, grid)


def equalizing_tables(op: str, x: Node, row_axis: int) -> Node:
    """The table that equalizes each image of bytes, image by image in memory."""
    facts, in_bands = x.shapes.facts, x.device is not None
    if facts:  # all samples have the same shape
        grid, limits, has_bands = _whole_images(facts, row_axis, in_bands)
    else:
        image = x.shapes.rows[:, row_axis : row_axis + 2]
        grid, limits, has_bands = _in_one_table(image, in_bands)
    made = _histogram(op, x, row_axis, grid, False)
    if has_bands:
        made = reduce(op, made, [row_axis], "add", dt.int32, None)
    return make(op, Curve(made.rank, False), (made,), made.shapes, None, x.batch, limits)


@memoized(256)
def _whole_images(
    facts: tuple[int, ...], row_axis: int, in_bands: bool
) -> tuple[Grid, Limits, bool]:
    """`_in_one_table` of uniform shapes; working it out again takes 25 µs."""
    image = np.broadcast_to(facts[1 + row_axis : 3 + row_axis], (facts[0], 2))
    return _in_one_table(image, in_bands)


def _in_one_table(image: Array, in_bands: bool) -> tuple[Grid, Limits, bool]:
    """The tiles of images of these rows and columns, the numbers of their curves, and whether there
    are several tiles."""
    totals = image.prod(axis=1)
    bands = np.ones_like(totals)
    if in_bands:
        bands = np.minimum(np.clip(totals // BAND_VALUES, 1, MAX_BANDS), np.maximum(image[:, 0], 1))
    counts = np.stack([bands, np.ones_like(bands)], axis=1)
    return Grid(counts, -(-image // counts)), Limits(totals, totals), bool((bands > 1).any())


def limited_tables(op: str, x: Node, row_axis: int, grid: Grid, limits: Array) -> Node:
    """The table that equalizes each tile of images of bytes, with counts up to a limit per sample:
    [… tiles … 256]."""
    made = _histogram(op, x, row_axis, grid, True)
    totals = grid.extents.prod(axis=1)
    return make(op, Curve(made.rank, True), (made,), made.shapes, None, x.batch,
                Limits(totals, limits))  # fmt: skip
