"""Which columns of a kernel's table hold what: a spec and a recipe go in, a layout comes out.

A layout is made once per step. Looking all columns up in every run took a third of the time that a
crop of small photos needs.
"""

from __future__ import annotations

from typing import NamedTuple

from ...kernels.ir.core import Column
from ...kernels.ir.spec import Access, KernelSpec
from ..kinds.base import Term, Terms
from ..plan.lowering import Recipe, WindowRecipe

# (column, position in the program) of the operands' addresses in a table.
AddressColumns = tuple[tuple[int, int], ...]


class Dimension(NamedTuple):
    """A dimension of an operand that moves along with an axis of the loops, or has an offset."""

    number: int
    term: Term
    column: int | None  # of the stride along the term's axis; None if the table does not hold it
    axis: int | None  # that axis, if the table holds its stride


class Operand(NamedTuple):
    """What a kernel loads or stores."""

    position: int
    slot: int
    is_load: bool
    address: int  # column
    first: int | None  # column of the first element's offset, if it is apart from the address
    reach: int | None  # column of the number of elements that can be read
    dimensions: tuple[Dimension, ...]
    added: frozenset[int]  # axes that several dimensions follow, whose strides add up


class Bounds(NamedTuple):
    """The range of an axis in which the tests of a window hold."""

    window: WindowRecipe
    columns: tuple[tuple[int, int, int], ...]  # axis, column of its begin, of its end


class TableLayout(NamedTuple):
    """The columns of a table."""

    width: int
    extents: tuple[tuple[int, int], ...]  # axis, column
    operands: tuple[Operand, ...]
    bounds: tuple[Bounds, ...]
    indices: tuple[tuple[Term, int, int], ...]  # term, columns of its step and offset
    # Of all addresses. The table of a flat kernel, which runs over all elements of its operands,
    # has one more column: 0, the number of elements.
    addresses: AddressColumns


def layout_of(spec: KernelSpec, recipe: Recipe) -> TableLayout:
    """The layout of a step's table."""
    place = spec.columns
    stores = [(place["out", k], p) for k, (p, _) in enumerate(recipe.stores)]
    loads = [(place["in", k], p) for k, (p, _) in enumerate(recipe.loads)]
    addresses = (*stores, *loads)
    if recipe.flat:
        return TableLayout(len(place), (), (), (), (), addresses)
    operands = [
        *(
            _operand(place, False, k, p, terms, spec.stores[k])
            for k, (p, terms) in enumerate(recipe.stores)
        ),
        *(
            _operand(place, True, k, p, terms, spec.loads[k])
            for k, (p, terms) in enumerate(recipe.loads)
        ),
    ]
    bounds = tuple(
        Bounds(window, tuple((a, place["lo", w, a], place["hi", w, a]) for a in window.axes))
        for w, window in enumerate(recipe.windows)
    )
    indices = tuple(
        (term, place["step", i], place["offset", i])
        for i, term in enumerate(recipe.indices)
        if ("step", i) in place
    )
    extents = tuple((a, place["n", a]) for a in spec.loop_axes)
    return TableLayout(len(place), extents, tuple(operands), bounds, indices, addresses)


def _operand(
    place: dict[Column, int], is_load: bool, slot: int, position: int, terms: Terms, access: Access
) -> Operand:
    kind = "in" if is_load else "out"
    dimensions: list[Dimension] = []
    for d, term in enumerate(terms):
        axis, constant, path = term
        column = None if axis is None else place.get((f"{kind}_stride", slot, axis))
        if column is not None or constant or path:
            dimensions.append(Dimension(d, term, column, axis if column is not None else None))
    axes = [d.axis for d in dimensions if d.axis is not None]
    return Operand(
        position,
        slot,
        is_load,
        place[kind, slot],
        place[f"{kind}_first", slot] if access.guarded else None,
        place.get((f"{kind}_reach", slot)),
        tuple(dimensions),
        frozenset(a for a in axes if axes.count(a) > 1),
    )
