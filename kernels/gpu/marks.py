"""Running sums of a warp → their values at every 16th position, by a small kernel.

NOTE [marks] A thread that computes a running sum from the start of its row takes about eight leaps
(NOTE [running sums] in ir/expr.py), for each dimension of the input. So a kernel that runs before
takes the leaps to every 16th position of each row and stores the sums there, the marks. Threads
begin at the mark before their position, and add the remaining steps one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir import dtypes as dt
from ..ir.core import Array, Column
from ..ir.expr import Expr, const, inlined, rewrite, stepped, walk
from ..ir.spec import Access, Index, KernelSpec

if TYPE_CHECKING:
    from .runtime import GpuRuntime

# Positions from one mark to the next; it divides the length of a run. Threads issue 3 instructions
# per position for each sum, and the marks of an image take half a byte per pixel.
APART = 16
_FLOAT_BYTES = 4


class Marks(NamedTuple):
    """The running sums of a kernel, and the kernel that computes their marks."""

    sums: tuple[Expr, ...]
    x: Index  # the position to which the sums go, and the slot of its numbers
    slot: int
    rows: tuple[int, ...]  # axes on which the starts of the sums depend
    loads: tuple[int, ...]  # what the kernel of the marks reads: slots of the other one
    indices: tuple[int, ...]
    spec: KernelSpec

    @property
    def columns(self) -> tuple[Column, ...]:
        """Addresses of the marks of each sum, and the number of marks in a row."""
        return (*(("marks", k) for k in range(len(self.sums))), ("n_marks",))

    def lines(self, k: int, name: str, x: str, step: str) -> Iterator[str]:
        """Lines that compute a sum: its last mark, and the steps from there.

        Positions outside of the result are possible if another op pads it.
        """
        row = "0"
        for axis in self.rows:
            row = f"o_{axis}" if row == "0" else f"({row}) * n_{axis} + o_{axis}"
        yield f"{name}_x = tl.maximum({x}, 0)"
        yield f"{name}_at = ({row}) * n_marks.to(INDEX) + ({name}_x // {APART}).to(INDEX)"
        address = f"marks_{k}.to(tl.pointer_type(tl.float32)) + ({name}_at + lane * 0)"
        yield f"{name} = tl.load({address}, mask=inside, other=0)"
        yield f"{name}_left = {name}_x % {APART}"
        yield f"for k in tl.static_range({APART - 1}):"
        yield f"    {name} = tl.where(k < {name}_left, {name} + {step}, {name})"


def marks_of(spec: KernelSpec) -> Marks | None:
    """The marks of a kernel's running sums; None if it has none, or if they are no rows' sums."""
    calls: dict[Expr, Expr] = {}
    if spec.core is not None or not _sums([inlined(v, calls) for v in spec.values]):
        return None
    sums = _sums([inlined(v, calls) for p in spec.static_points for v in spec.at_point(p)])
    if len({e.args[2] for e in sums}) > 1 or sums[0].args[2].op != "index":
        return None
    slot, _ = sums[0].args[2].attr
    leaves = [
        e for e in walk([a for e in sums for a in e.args[:2]]) if not e.args or e.op == "lookup"
    ]
    loads = _slots(leaves, "load", "lookup")
    indices = _slots(leaves, "index")
    rows = tuple(sorted({a for k in indices if (a := spec.indices[k].axis) is not None}))
    is_plain = {e.op for e in leaves} <= {"load", "lookup", "index", "const"}
    is_plain &= all(spec.loads[k].is_scalar for k in loads)
    is_plain &= all(spec.extents[a] is None for a in rows)
    x = spec.indices[slot]
    if not is_plain or x.axis is None or x.axis in rows:
        return None
    made = _spec_of_marks(spec, sums, loads, indices, rows)
    return Marks(sums, x, slot, rows, loads, indices, made)


def _sums(values: list[Expr]) -> tuple[Expr, ...]:
    return tuple(e for e in walk(values) if e.op == "stepped")


def _slots(leaves: Sequence[Expr], *ops: str) -> tuple[int, ...]:
    found = {e.attr if e.op == "lookup" else e.attr[0] for e in leaves if e.op in ops}
    return tuple(sorted(found))


def _spec_of_marks(
    spec: KernelSpec, sums: Sequence[Expr], loads: Sequence[int], indices: Sequence[int],
    rows: Sequence[int],
) -> KernelSpec:  # fmt: skip
    """The kernel that computes the marks: its axes are the rows', and that of the marks."""

    def moved(e: Expr) -> Expr | None:
        if e.op == "load":
            return Expr("load", e.dtype, (), loads.index(e.attr[0]))
        if e.op == "lookup":
            return Expr("lookup", e.dtype, tuple(memo[a] for a in e.args), loads.index(e.attr))
        if e.op == "index":
            return Expr("index", e.dtype, (), indices.index(e.attr[0]))
        return None

    memo: dict[Expr, Expr] = {}
    at = Expr("index", dt.int32, (), len(indices)) * const(APART, dt.int32)
    starts_and_steps = [[rewrite(a, moved, memo) for a in e.args[:2]] for e in sums]
    own = [spec.indices[k] for k in indices]
    axes = [None if i.axis is None else rows.index(i.axis) for i in own]
    rank = len(rows) + 1
    return KernelSpec(
        ops=("marks",),
        extents=(None,) * rank,
        loads=tuple(Access(spec.loads[k].dtype, (0,) * rank) for k in loads),
        stores=(Access(dt.float32, (*(None for _ in rows), 1)),) * len(sums),
        values=tuple(stepped(start, step, at) for start, step in starts_and_steps),
        indices=(*(Index(a, i.identity) for a, i in zip(axes, own)), Index(rank - 1, True)),
    )


class MarkTables:
    """Computes the marks of a kernel's running sums before each of its launches."""

    def __init__(self, spec: KernelSpec, marks: Marks) -> None:
        self._marks = marks
        self._from, self._to = spec.columns, marks.spec.columns

    def __call__(self, table: Array, runtime: GpuRuntime) -> tuple[Array, Any]:
        """The columns of `Marks`, and the memory of the marks."""
        marks, place = self._marks, self._to
        rows = np.zeros((len(table), len(place)), np.int64)
        for mine, column in self._copied():
            rows[:, place[mine]] = table[:, self._from[column]]
        n_marks = self._last(table) // APART + 1
        rows[:, place["n", len(marks.rows)]] = n_marks
        stride = n_marks
        for a in reversed(range(len(marks.rows))):
            for k in range(len(marks.sums)):
                rows[:, place["out_stride", k, a]] = stride
            stride = stride * rows[:, place["n", a]]
        ends = np.cumsum(stride * len(marks.sums)) * _FLOAT_BYTES
        memory = runtime.take(int(ends[-1]))
        first = memory.address + ends - stride * len(marks.sums) * _FLOAT_BYTES
        more = np.empty((len(table), len(marks.columns)), np.int64)
        for k in range(len(marks.sums)):
            more[:, k] = rows[:, place["out", k]] = first + k * stride * _FLOAT_BYTES
        more[:, -1] = n_marks
        runtime.prepare(marks.spec, rows, [memory])
        return more, memory

    def _copied(self) -> Iterator[tuple[Column, Column]]:
        """Columns of the marks' kernel, and those of the other one that have the same values."""
        marks = self._marks
        for mine, axis in enumerate(marks.rows):
            yield ("n", mine), ("n", axis)
        for mine, slot in enumerate(marks.loads):
            yield ("in", mine), ("in", slot)
        for mine, slot in enumerate(marks.indices):
            if not marks.spec.indices[mine].identity:
                yield ("step", mine), ("step", slot)
                yield ("offset", mine), ("offset", slot)

    def _last(self, table: Array) -> Array:
        """The last position to which each row of the table sums."""
        last: Array = table[:, self._from["n", self._marks.x.axis]] - 1  # type: ignore[index]
        if not self._marks.x.identity:
            step, offset = (table[:, self._from[c, self._marks.slot]] for c in ("step", "offset"))
            last = offset + np.maximum(step * last, 0)
        return np.maximum(last, 0)
