"""Fills a kernel's table: from recipes and the samples' numbers to rows of int64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from ...kernels.common import trace
from ...kernels.ir.spec import BAND_COLUMNS, BAND_ROWS, GROUP, TAPS, KernelSpec
from ...kernels.ir.taps import Taps
from ..graph.node import Array, Node, Storage
from ..plan.lowering import Recipe, Term, Terms, WindowRecipe

Number = int | Array  # one for all samples, or one each
ROW_ALIGN = 64  # of areas in scratch memory


class Binder:
    """Evaluates recipes for one run of a program."""

    def __init__(
        self, nodes: list[Node], values: list[Storage | None], filters: Callable[[Any], int]
    ) -> None:
        self.nodes = nodes
        self.filters = filters  # address of the filter tables on a device
        self.values = values  # what is in memory by now, by position
        self._numbers: dict[Term, tuple[Number, Number]] = {}
        self.run = next(trace.runs)

    def table(self, spec: KernelSpec, recipe: Recipe) -> Array:
        """The table of one kernel: a row per sample."""
        root = self.nodes[recipe.root]
        rows = np.empty((root.count, len(spec.columns)), np.int64)
        place = spec.columns
        if recipe.flat:
            rows[:, 0] = root.shapes.volumes
            for k, (position, _) in enumerate(recipe.stores):
                rows[:, place["out", k]] = self._addresses(position)
            for k, (position, _) in enumerate(recipe.loads):
                rows[:, place["in", k]] = self._addresses(position)
            return rows
        for a in spec.loop_axes:
            rows[:, place["n", a]] = root.shapes.rows[:, a]
        for kind, accesses, operands in (
            ("out", spec.stores, recipe.stores),
            ("in", spec.loads, recipe.loads),
        ):
            for k, (position, terms) in enumerate(operands):
                self._operand(rows, place, kind, k, position, terms, accesses[k].guarded)
        for w, window in enumerate(recipe.windows):
            for a, (lo, hi) in self._bounds(window, root.count).items():
                rows[:, place["lo", w, a]] = lo
                rows[:, place["hi", w, a]] = hi
        for i, term in enumerate(recipe.indices):
            if ("step", i) in place:
                step, offset = self.numbers(term)
                rows[:, place["step", i]] = step
                rows[:, place["offset", i]] = offset
        if recipe.sampler is not None:
            self._sampler(rows, spec, *recipe.sampler)
        return rows

    def _sampler(self, rows: Array, spec: KernelSpec, position: int, terms: Terms) -> None:
        """Columns of the interpolated value, and how it divides the scratch memory of a kernel."""
        node = self.nodes[position]
        source = node.inputs[0].shapes.rows
        place = spec.columns
        assert spec.sampler is not None
        lanes = spec.sampler.lanes
        areas: list[Array] = []  # bytes
        n_in = n_out = source[:, 0]  # of the last dimension, after the loop
        for k, (axis, taps) in enumerate(zip(node.static.axes, node.params, strict=True)):
            first = place["tap_step", k]
            step, at = self.numbers(terms[k])
            n_in, out = source[:, axis], terms[k][0]
            rows[:, first], rows[:, first + 1] = step, at
            rows[:, first + 2], rows[:, first + 3] = node.shapes.rows[:, axis], n_in
            rows[:, first + 4 : first + len(TAPS)] = taps.cells
            rows[:, place["tap_table", k]] += self.filters(node.device)
            n_out = np.ones_like(n_in) if out is None else rows[:, place["n", out]]
            if k == len(terms) - 1:
                n_out = -(-n_out // GROUP) * GROUP
            areas += [4 * n_out + 8, 4 * n_out * taps.count]  # first taps, weights
        # of the last dimension: sums of rows, with the border repeated, and pixels of the result
        areas += [4 * lanes * (n_in + 2 * taps.count + 2), 4 * lanes * n_out]
        areas += _areas_of_rows(node.params, source[:, node.static.axes], lanes, *areas[-2:])
        # a vector may be read or written where one element is meant
        ends = (np.array(areas) + (32 + ROW_ALIGN - 1)) // ROW_ALIGN * ROW_ALIGN
        ends = ends.cumsum(axis=0)
        at_areas = place["area", spec.sampler_areas[0]]
        rows[:, at_areas] = 0
        rows[:, at_areas + 1 : at_areas + len(ends)] = ends[:-1].T
        rows[:, place["scratch",]] = ends[-1]

    def numbers(self, term: Term) -> tuple[Number, Number]:
        """(step, offset) of a term, per sample where samples differ."""
        found = self._numbers.get(term)
        if found is not None:
            return found
        axis, k, path = term
        step: Number = 0 if axis is None else 1
        offset: Number = k
        for kind, position, d in path:
            if kind == "broadcast":
                moves = (self.nodes[position].shapes.rows[:, d] != 1).astype(np.int64)
                step, offset = step * moves, offset * moves
            elif kind == "extent":
                offset = self.nodes[position].shapes.rows[:, d]
            else:
                steps, offsets = self.nodes[position].params
                if steps is not None:
                    step, offset = step * steps[:, d], offset * steps[:, d]
                offset = offset + offsets[:, d]
        self._numbers[term] = (step, offset)
        return step, offset

    def _addresses(self, position: int) -> Array:
        storage = self.values[position]
        assert storage is not None
        return storage.addresses

    def _operand(
        self,
        rows: Array,
        place: dict[tuple[str | int, ...], int],
        kind: str,
        k: int,
        position: int,
        terms: Terms,
        guarded: bool,
    ) -> None:
        node, storage = self.nodes[position], self.values[position]
        assert storage is not None
        strides = storage.strides
        if strides is None:
            strides = node.shapes.strides
        first: Number = 0
        by_axis: dict[int, Number] = {}
        for d, term in enumerate(terms):
            step, offset = self.numbers(term)
            axis = term[0]
            if axis is not None and (f"{kind}_stride", k, axis) in place:
                by_axis[axis] = by_axis.get(axis, 0) + strides[:, d] * step
            if not (isinstance(offset, int) and offset == 0):
                first = first + strides[:, d] * offset
        for axis, stride in by_axis.items():
            rows[:, place[f"{kind}_stride", k, axis]] = stride
        if (f"{kind}_reach", k) in place:
            rows[:, place[f"{kind}_reach", k]] = (abs(strides) * node.shapes.rows).sum(axis=1)
        if guarded:
            rows[:, place[kind, k]] = self._addresses(position)
            rows[:, place[f"{kind}_first", k]] = first
        else:
            rows[:, place[kind, k]] = self._addresses(position) + first * node.dtype.bytes

    def _bounds(self, window: WindowRecipe, count: int) -> dict[int, tuple[Array, Array]]:
        """Per output axis, the half-open range in which all tests hold."""
        lowest, highest = np.int64(-(2**62)), np.int64(2**62)
        bounds = {a: (np.full(count, lowest), np.full(count, highest)) for a in window.axes}
        never = np.zeros(count, bool)
        extents = self.nodes[window.position].shapes.rows
        for d, term in window.tests:
            step, offset = (np.broadcast_to(v, count) for v in self.numbers(term))
            n = extents[:, d]
            moves = step != 0
            never |= ~moves & ((offset < 0) | (offset >= n))
            if term[0] is None:
                continue
            lo, hi = bounds[term[0]]
            s = np.where(moves, step, 1)
            # 0 <= s * o + offset < n, solved for o
            first = np.where(s > 0, -(offset // s), -((n - 1 - offset) // -s))
            last = np.where(s > 0, (n - 1 - offset) // s, offset // -s)
            np.maximum(lo, np.where(moves, first, lo), out=lo)
            np.minimum(hi, np.where(moves, last + 1, hi), out=hi)
        lo, hi = bounds[window.axes[0]]
        lo[never], hi[never] = 1, 0
        return bounds


def _areas_of_rows(
    dims: Sequence[Taps], extents: Array, lanes: int, sums: Array, line: Array
) -> list[Array]:
    """Bytes of the parts of a scratch memory that `SCRATCH` names."""
    *rows, columns = dims
    if not rows:
        return []
    more = BAND_ROWS - 1 if len(rows) == 1 else 0
    kept = (np.minimum(d.count + more, n) for d, n in zip(rows, extents.T, strict=False))
    slots = reduce(mul, kept)
    is_first = columns.turn < np.min([d.turn for d in rows], axis=0)
    slots = slots * is_first
    areas = [8 * lanes * slots, slots * line]
    # as floats and as bytes, and eight pixels of it
    band = lanes * BAND_ROWS * (5 * BAND_COLUMNS + 4 * GROUP) * is_first
    return [*areas, band if len(rows) == 1 else np.maximum(sums, line)]
