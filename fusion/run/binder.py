"""Fills kernel tables: recipes and numbers per sample go in, rows of int64 come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...kernels.common import trace
from ...kernels.common.memo import Memo
from ...kernels.cpu.streamed_rows import is_streamed
from ..graph.node import Node
from ..graph.shapes import Array, Number
from ..graph.storage import Storage, address_of
from ..kinds.base import Term
from ..plan.lowering import WindowRecipe
from ..plan.steps import KernelStep
from .table_layout import AddressColumns, Operand, TableLayout, layout_of


def layout(step: KernelStep) -> TableLayout:
    """The layout of a step's table, made on first use."""
    found: TableLayout | None = step.layout
    if found is None:
        found = step.layout = layout_of(step.spec, step.recipe)
    return found


class FlatTable:
    """A table of a small kernel that is filled again and again."""

    __slots__ = ("_filled", "_rows", "address")

    def __init__(self, width: int, count: int) -> None:
        self._rows = np.zeros((count, width), np.int64)  # small results are not streamed
        self.address = address_of(self._rows)
        # What each column holds. Most columns keep their values from call to call, and writing one
        # takes 0.3 µs.
        self._filled: list[Array | None] = [None] * width

    def fill(self, columns: AddressColumns, volumes: Array, values: list[Storage | None]) -> None:
        """Fill all columns of a flat kernel."""
        filled = self._filled
        if filled[0] is not volumes:
            self._rows[:, 0] = filled[0] = volumes
        for column, position in columns:
            addresses = values[position].addresses  # type: ignore[union-attr]
            if filled[column] is not addresses:
                self._rows[:, column] = filled[column] = addresses


class Template(NamedTuple):
    """A table of a uniform batch without the addresses of its operands."""

    rows: Array
    columns: AddressColumns
    room: int  # bytes of scratch memory that the kernel needs

    def filled(self, values: list[Storage | None]) -> Array:
        """The table for these operands."""
        rows = self.rows.copy()
        for column, position in self.columns:
            rows[:, column] += values[position].addresses  # type: ignore[union-attr]
        return rows


# Step and shapes → the template of its table. Filling a small table anew takes 20 to 40 µs, as long
# as a core needs to read 1 MB.
_templates: Memo[tuple[Any, ...], Template] = Memo("tables of uniform batches", 512)


def sized_by(step: KernelStep, nodes: list[Node]) -> tuple[int, ...]:
    """Positions whose shapes decide everything in a step's table but addresses; () if there is more
    that decides, such as the offsets of a crop."""
    recipe = step.recipe
    operands = (*recipe.loads, *recipe.stores)
    terms = [t for _, own in operands for t in own] + [*recipe.indices]
    terms += [t for window in recipe.windows for _, t in window.tests]
    found = {recipe.root, *(p for p, _ in operands), *(w.position for w in recipe.windows)}
    for position, where in recipe.cores:
        terms += where
        found.update((position, *step.members))
    path = [s for _, _, steps in terms for s in steps]
    return () if any(what == "view" for what, _, _ in path) else (*found, *(p for _, p, _ in path))


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
        # Strides of the loads of the table that is being filled, by slot and axis.
        self.strides: dict[tuple[int, int], Number] = {}
        self.run = next(trace.runs)

    def bound(self, step: KernelStep) -> tuple[Array, int]:
        """The table of a CPU kernel, and how many bytes of scratch memory it needs."""
        key = self.template_key(step)
        found = None if key is None else _templates.get(key)
        if found is not None:
            return found.filled(self.values), found.room
        rows = self.table(step, step.scratch.width)
        room = step.scratch.divide(rows)
        if step.scratch.streams is not None:
            rows[:, step.scratch.streams] = self._streams(step)
        if key is not None:
            _templates[key] = self._template(step, rows, room)
        return rows, room

    def _streams(self, step: KernelStep) -> bool:
        """Whether the results of a step are stored past the caches. Those in scratch memory, which
        have no owner, are not: the next step reads them while they are hot."""
        nbytes = 0
        for p, _ in step.recipe.stores:
            node, value = self.nodes[p], self.values[p]
            if value is None or value.owner is None:
                return False
            nbytes += node.shapes.packed(node.dtype.bytes)[1]
        return is_streamed(nbytes)

    def template_key(self, step: KernelStep) -> tuple[Any, ...] | None:
        """What the template of a step depends on; None if its table cannot be made from one."""
        if step.sized is None:
            step.sized = () if step.recipe.flat else sized_by(step, self.nodes)
        if not step.sized:
            return None
        key: list[Any] = [step]
        for p, _ in step.recipe.cores:
            node = self.nodes[p]
            numbers = node.definition.kind.bound_by(node)
            if numbers is None:
                return None
            key.append(numbers)
        for p in step.sized:
            facts, storage = self.nodes[p].shapes.facts, self.values[p]
            if not facts or (storage is not None and storage.strides is not None):
                return None
            key.append(facts)
        return tuple(key)

    def _template(self, step: KernelStep, rows: Array, room: int) -> Template:
        columns, rows = layout(step).addresses, rows.copy()
        for column, position in columns:
            rows[:, column] -= self.values[position].addresses  # type: ignore[union-attr]
        return Template(rows, columns, room)

    def table(self, step: KernelStep, width: int | None = None) -> Array:
        """The table of one kernel: a row per sample.

        `width`: the width of a row, if the back-end appends columns to those of the spec.
        """
        places, root = layout(step), self.nodes[step.recipe.root]
        rows = np.empty((root.count, width or places.width), np.int64)
        if step.recipe.flat:
            rows[:, 0] = root.shapes.volumes
            for column, position in places.addresses:
                rows[:, column] = self.values[position].addresses  # type: ignore[union-attr]
            return rows
        along = root.shapes.along
        for axis, column in places.extents:
            rows[:, column] = along(axis)
        self.strides.clear()
        for operand in places.operands:
            self._operand(rows, operand)
        for window, columns in places.bounds:
            bounds = self._bounds(window, root.count)
            for axis, lowest, highest in columns:
                rows[:, lowest], rows[:, highest] = bounds[axis]
        for term, step_column, offset_column in places.indices:
            rows[:, step_column], rows[:, offset_column] = self.numbers(term)
        for position, terms in step.recipe.cores:
            self.nodes[position].definition.kind.bind(self, rows, step.spec, position, terms)
        return rows

    def numbers(self, term: Term) -> tuple[Number, Number]:
        """(step, offset) of a term; arrays with one number per sample where samples differ."""
        axis, k, path = term
        step: Number = 0 if axis is None else 1
        offset: Number = k
        if not path:
            return step, offset
        found = self._numbers.get(term)
        if found is not None:
            return found
        for kind, position, d in path:
            if kind == "broadcast":
                moves = self.nodes[position].shapes.along(d) != 1
                moves = int(moves) if isinstance(moves, bool) else moves.astype(np.int64)
                step, offset = step * moves, offset * moves
            elif kind == "extent":
                offset = self.nodes[position].shapes.along(d)
            else:
                node = self.nodes[position]
                steps, offsets = node.definition.kind.move(node, d)
                if steps is not None:
                    step, offset = _product(steps, step), _product(steps, offset)
                offset = _sum(offset, offsets)
        self._numbers[term] = (step, offset)
        return step, offset

    def _operand(self, rows: Array, operand: Operand) -> None:
        position = operand.position
        node, storage = self.nodes[position], self.values[position]
        assert storage is not None
        shapes, given = node.shapes, storage.strides
        first: Number = 0
        strides: dict[int, Number] = {}  # that several dimensions add up to
        for d, term, column, axis in operand.dimensions:
            stride = shapes.stride(d) if given is None else given[:, d]
            step, offset = self.numbers(term)
            first = _sum(first, _product(stride, offset))
            if column is None or axis is None:
                continue
            stride = _product(stride, step)
            if axis in operand.added:
                stride = strides[axis] = _sum(strides.get(axis, 0), stride)
            rows[:, column] = stride
            if operand.is_load:
                self.strides[operand.slot, axis] = stride
        if operand.reach is not None:
            every = range(node.rank)
            by: list[Any] = [shapes.stride(d) if given is None else given[:, d] for d in every]
            rows[:, operand.reach] = sum([abs(by[d]) * shapes.along(d) for d in every])
        addresses = storage.addresses
        if operand.first is not None:
            rows[:, operand.first] = first
        elif not (type(first) is int and first == 0):
            addresses = addresses + _product(first, node.dtype.bytes)
        rows[:, operand.address] = addresses

    def _bounds(self, window: WindowRecipe, count: int) -> dict[int, tuple[Number, Number]]:
        """Per output axis, the half-open range in which all tests hold."""
        bounds: dict[int, tuple[Number, Number]] = {}
        never: Array | None = None
        shapes = self.nodes[window.position].shapes
        for d, term in window.tests:
            step, offset = self.numbers(term)
            if term[0] is not None and isinstance(step, int) and step == 1:
                # Pads and parts of joins have many of these; the general case takes four times as
                # long.
                low, high = -offset, _sum(shapes.along(d), -offset)
            else:
                n = shapes.rows[:, d]
                step, offset = np.broadcast_to(step, count), np.broadcast_to(offset, count)
                moves = step != 0
                outside = ~moves & ((offset < 0) | (offset >= n))
                never = outside if never is None else never | outside
                if term[0] is None:
                    continue
                s = np.where(moves, step, 1)
                # 0 <= s * o + offset < n, solved for o
                first = np.where(s > 0, -(offset // s), -((n - 1 - offset) // -s))
                last = np.where(s > 0, (n - 1 - offset) // s, offset // -s)
                low, high = np.where(moves, first, LOWEST), np.where(moves, last + 1, HIGHEST)
            known = bounds.get(term[0])
            if known is not None:
                low, high = np.maximum(known[0], low), np.minimum(known[1], high)
            bounds[term[0]] = low, high
        for axis in window.axes:
            bounds.setdefault(axis, (LOWEST, HIGHEST))
        if never is not None and never.any():
            low, high = bounds[window.axes[0]]
            bounds[window.axes[0]] = np.where(never, 1, low), np.where(never, 0, high)
        return bounds


# Bounds of an axis that no test of a window limits.
LOWEST, HIGHEST = -(2**62), 2**62


def _sum(a: Number, b: Number) -> Number:
    """a + b. Adding to a short array takes 0.5 µs, so nothing is added if one of them is 0."""
    if type(a) is int and a == 0:
        return b
    return a if type(b) is int and b == 0 else a + b


def _product(a: Number, b: Number) -> Number:
    """a * b, and no array if one of them is 0 or 1."""
    if type(b) is not int:
        a, b = b, a
    if type(b) is int and b in (0, 1):
        return a if b else 0
    return a * b
