"""Finds rows of bytes that are looked up in tables of bytes, and writes a call for each row.

LLVM does not vectorise lookups, but `native/byte_tables.py` does: equalizing 400×500 grey pixels
looks them up in 5 µs instead of 63.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..ir import dtypes as dt
from ..ir.expr import Expr

if TYPE_CHECKING:
    from .render import Stores, Writer

CHANNELS = (1, 3)  # that a row may interleave, each with a table of its own


class Lookup(NamedTuple):
    """One result of the innermost loop: a byte that is looked up."""

    point: dict[int, int]  # of the unrolled axes
    store: int
    load: Expr  # the byte
    table: str  # source of the address of its table


def lookups_of(writer: Writer, stores: Stores) -> list[Lookup] | None:
    """The stored values as lookups of bytes; None if one of them is something else."""
    found = []
    for point, k, value in stores:
        if value.op != "lookup" or value.dtype is not dt.uint8:
            return None
        parts = _byte_and_base(writer, value.args[0])
        if parts is None:
            return None
        load, base = parts
        table = f"in_{value.attr}" + (f" + i64({writer.ref(base)})" if base is not None else "")
        found.append(Lookup(point, k, load, table))
    return found


def _byte_and_base(writer: Writer, index: Expr) -> tuple[Expr, Expr | None] | None:
    """The byte that is looked up, and the position at which its table begins in a row of tables."""
    base: Expr | None = None
    if index.op == "add":
        index, base = index.args[1], index.args[0]
        if writer.depths[base] >= len(writer.spec.loop_axes):
            return None
    if index.op != "cast" or index.args[0].op != "load" or index.args[0].dtype is not dt.uint8:
        return None
    load = index.args[0]
    return None if load.args else (load, base)


def row_call(writer: Writer, axis: int, found: Sequence[Lookup] | None) -> str | None:
    """A call that looks up one row along `axis`; None if its bytes are not side by side."""
    if not found or len(found) not in CHANNELS:
        return None
    slot, pinned = found[0].load.attr
    if writer.operand(slot) != (slot, 0):
        return None
    if any(f.load.attr[0] != slot or f.store != found[0].store for f in found):
        return None
    channels = len(found)
    for k, f in enumerate(found):
        if _places(writer, "in", axis, *f.load.attr) != (channels, k):
            return None
        if _places(writer, "out", axis, f.store, tuple(f.point.items())) != (channels, k):
            return None
    source = writer.offset("in", slot, writer.spec.loads[slot], (*pinned, (axis, 0)))
    store, point = found[0].store, tuple(found[0].point.items())
    target = writer.offset("out", store, writer.spec.stores[store], (*point, (axis, 0)))
    tables = [found[min(k, channels - 1)].table for k in range(3)]
    name = f"look_up_bytes_{channels}"
    writer.helpers.add(name)
    places = f"in_{slot} + {source}, out_{store} + {target}"
    return f"{name}({places}, n_{axis}, {', '.join(tables)})"


def _places(
    writer: Writer, kind: str, axis: int, k: int, pinned: tuple[tuple[int, int], ...]
) -> tuple[int, int] | None:
    """Stride along `axis`, and the offset of a point of the unrolled axes; None if not known."""
    access = (writer.spec.loads if kind == "in" else writer.spec.stores)[k]
    if len(access.strides) > writer.spec.rank:
        return None
    stride = access.strides[axis]
    if kind == "in":
        stride = writer.fixed.get((k, axis), stride)
    steps = [(access.strides[a], at) for a, at in pinned]
    if stride is None or any(step is None for step, at in steps if at):
        return None
    return stride, sum(step * at for step, at in steps if step is not None)
