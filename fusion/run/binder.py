"""Fills kernel tables: recipes and numbers per sample go in, rows of int64 come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.common import trace
from ...kernels.ir.spec import KernelSpec
from ..graph.node import Node
from ..graph.shapes import Array
from ..graph.storage import Storage, address_of
from ..kinds.base import Term, Terms
from ..plan.lowering import Recipe, WindowRecipe

Number = int | Array  # one for all samples, or one per sample


# (column, position in the program) of the operands' addresses in the table of a flat kernel, one
# that runs over all elements of its operands. Column 0 is the number of elements.
FlatColumns = tuple[tuple[int, int], ...]


def flat_columns(spec: KernelSpec, recipe: Recipe) -> FlatColumns:
    """The columns of a flat kernel."""
    place = spec.columns
    stores = [(place["out", k], p) for k, (p, _) in enumerate(recipe.stores)]
    loads = [(place["in", k], p) for k, (p, _) in enumerate(recipe.loads)]
    return (*stores, *loads)


class FlatTable:
    """A table of a small kernel that is filled again and again."""

    __slots__ = ("_filled", "_rows", "address")

    def __init__(self, width: int, count: int) -> None:
        self._rows = np.empty((count, width), np.int64)
        self.address = address_of(self._rows)
        # What each column holds. Most columns keep their values from call to call, and writing one
        # takes 0.3 µs.
        self._filled: list[Array | None] = [None] * width

    def fill(self, columns: FlatColumns, volumes: Array, values: list[Storage | None]) -> None:
        """Fill all columns of a flat kernel."""
        filled = self._filled
        if filled[0] is not volumes:
            self._rows[:, 0] = filled[0] = volumes
        for column, position in columns:
            addresses = values[position].addresses  # type: ignore[union-attr]
            if filled[column] is not addresses:
                self._rows[:, column] = filled[column] = addresses


class Tables:
    """Reusable tables of small kernels; only one thread at a time may use them."""

    MAX_KEPT = 64

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], FlatTable] = {}

    def take(self, width: int, count: int) -> FlatTable:
        """A table with arbitrary content."""
        found = self._kept.get((width, count))
        if found is None:
            if len(self._kept) >= self.MAX_KEPT:
                self._kept.clear()
            found = self._kept[width, count] = FlatTable(width, count)
        return found


class Binder:
    """Evaluates recipes for one run of a program."""

    def __init__(
        self,
        nodes: list[Node],
        values: list[Storage | None],
        constant: Callable[[Array, Any], int],
    ) -> None:
        self.nodes = nodes
        self.constant = constant  # (host array, device) → address of its permanent copy there
        self.values = values  # values that are in memory so far, by position
        self._numbers: dict[Term, tuple[Number, Number]] = {}
        self.run = next(trace.runs)

    def table(self, spec: KernelSpec, recipe: Recipe, width: int | None = None) -> Array:
        """The table of one kernel: a row per sample.

        `width`: the width of a row, if the back-end appends columns to those of the spec.
        """
        root = self.nodes[recipe.root]
        place = spec.columns
        rows = np.empty((root.count, width or len(place)), np.int64)
        if recipe.flat:
            rows[:, 0] = root.shapes.volumes
            for column, position in flat_columns(spec, recipe):
                rows[:, column] = self._addresses(position)
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
        for position, terms in recipe.cores:
            self.nodes[position].definition.kind.bind(self, rows, spec, position, terms)
        return rows

    def numbers(self, term: Term) -> tuple[Number, Number]:
        """(step, offset) of a term; arrays with one number per sample where samples differ."""
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
                node = self.nodes[position]
                steps, offsets = node.definition.kind.move(node, d)
                if steps is not None:
                    step, offset = step * steps, offset * steps
                offset = offset + offsets
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
