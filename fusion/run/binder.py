"""Fills kernel tables: recipes and numbers per sample go in, rows of int64 come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...kernels.common import trace
from ...kernels.common.memo import Memo
from ...kernels.cpu.streamed_rows import is_streamed
from ...kernels.ir.spec import KernelSpec
from ..graph.node import Node
from ..graph.shapes import Array, Number
from ..graph.storage import Storage, address_of
from ..kinds.base import Term, Terms
from ..plan.lowering import Recipe, WindowRecipe
from ..plan.steps import KernelStep

# (column, position in the program) of the operands' addresses in a table.
AddressColumns = tuple[tuple[int, int], ...]


def address_columns(spec: KernelSpec, recipe: Recipe) -> AddressColumns:
    """The columns of the operands' addresses. The table of a flat kernel, which runs over all
    elements of its operands, has one more: column 0, the number of elements."""
    place = spec.columns
    stores = [(place["out", k], p) for k, (p, _) in enumerate(recipe.stores)]
    loads = [(place["in", k], p) for k, (p, _) in enumerate(recipe.loads)]
    return (*stores, *loads)


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
        rows = self.table(step.spec, step.recipe, step.scratch.width)
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

    def template_of(self, step: KernelStep) -> Template | None:
        """The template of a step's table, if it has one."""
        key = self.template_key(step)
        return None if key is None else _templates.get(key)

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
        columns, rows = address_columns(step.spec, step.recipe), rows.copy()
        for column, position in columns:
            rows[:, column] -= self.values[position].addresses  # type: ignore[union-attr]
        return Template(rows, columns, room)

    def table(self, spec: KernelSpec, recipe: Recipe, width: int | None = None) -> Array:
        """The table of one kernel: a row per sample.

        `width`: the width of a row, if the back-end appends columns to those of the spec.
        """
        root = self.nodes[recipe.root]
        place = spec.columns
        rows = np.empty((root.count, width or len(place)), np.int64)
        if recipe.flat:
            rows[:, 0] = root.shapes.volumes
            for column, position in address_columns(spec, recipe):
                rows[:, column] = self.values[position].addresses  # type: ignore[union-attr]
            return rows
        for a in spec.loop_axes:
            rows[:, place["n", a]] = root.shapes.along(a)
        self.strides.clear()
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
                moves = self.nodes[position].shapes.along(d) != 1
                moves = int(moves) if isinstance(moves, bool) else moves.astype(np.int64)
                step, offset = step * moves, offset * moves
            elif kind == "extent":
                offset = self.nodes[position].shapes.along(d)
            else:
                node = self.nodes[position]
                steps, offsets = node.definition.kind.move(node, d)
                if steps is not None:
                    step, offset = step * steps, offset * steps
                offset = offset + offsets
        self._numbers[term] = (step, offset)
        return step, offset

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
        shapes, given = node.shapes, storage.strides

        def stride(d: int) -> Any:
            return shapes.stride(d) if given is None else given[:, d]

        first: Number = 0
        by_axis: dict[int, Number] = {}
        for d, term in enumerate(terms):
            step, offset = self.numbers(term)
            axis = term[0]
            if axis is not None and (f"{kind}_stride", k, axis) in place:
                by_axis[axis] = by_axis.get(axis, 0) + stride(d) * step
            if not (isinstance(offset, int) and offset == 0):
                first = first + stride(d) * offset
        for axis, number in by_axis.items():
            rows[:, place[f"{kind}_stride", k, axis]] = number
            if kind == "in":
                self.strides[k, axis] = number
        if (f"{kind}_reach", k) in place:
            extents = [abs(stride(d)) * shapes.along(d) for d in range(node.rank)]
            rows[:, place[f"{kind}_reach", k]] = sum(extents)
        addresses = storage.addresses
        if guarded:
            rows[:, place[kind, k]] = addresses
            rows[:, place[f"{kind}_first", k]] = first
        elif isinstance(first, int) and first == 0:
            rows[:, place[kind, k]] = addresses
        else:
            rows[:, place[kind, k]] = addresses + first * node.dtype.bytes

    def _bounds(self, window: WindowRecipe, count: int) -> dict[int, tuple[Array, Array]]:
        """Per output axis, the half-open range in which all tests hold."""
        lowest, highest = np.int64(-(2**62)), np.int64(2**62)
        bounds = {a: (np.full(count, lowest), np.full(count, highest)) for a in window.axes}
        never = np.zeros(count, bool)
        extents = self.nodes[window.position].shapes.rows
        for d, term in window.tests:
            n, (step, offset) = extents[:, d], self.numbers(term)
            if term[0] is not None and isinstance(step, int) and step == 1:
                # Pads and parts of joins have many of these; the general case takes four times as
                # long.
                lo, hi = bounds[term[0]]
                np.maximum(lo, -offset, out=lo)
                np.minimum(hi, n - offset, out=hi)
                continue
            step, offset = np.broadcast_to(step, count), np.broadcast_to(offset, count)
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
