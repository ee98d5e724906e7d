"""The interface between a core's renderer and the writer of a CPU kernel (see kernels/ir/core.py).

A KernelSpec enters; the core's lines of source and the layout of its scratch memory leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.core import Column, constant_parts
from ..ir.expr import Expr, walk
from ..ir.spec import KernelSpec
from . import streamed_rows

if TYPE_CHECKING:
    from .render import Writer

Array = np.ndarray[Any, Any]
AREA_ALIGNMENT = 64  # bytes
# Kernels may read or write a whole vector for one element, so each area has spare room at its end.
SPARE_BYTES = 32


class CpuCore(ABC):
    """Writes the lines of one core, for one `Writer`.

    A core that needs scratch memory names its areas. This back-end appends a column for each area
    to the columns of the spec; a kernel reads the offset of area `x` as `area_x`.
    """

    stores_line = False  # whether `line` also stores the results, so that no loop must follow

    def __init__(self, writer: Writer) -> None:
        assert writer.spec.core is not None
        self.writer = writer
        self.spec = writer.spec
        self.hoisted: dict[Expr, None] = {}  # parts of `value` that `hoist` has computed
        # Source of a number that is negative if lines are asked for in descending order.
        self.row_step = "1"

    @property
    def line_depth(self) -> int:
        """How many loops enclose `line`."""
        return len(self.spec.loop_axes)

    def prepare(self) -> Iterable[str]:
        """Lines that run once per sample."""
        return ()

    @abstractmethod
    def line(self) -> Iterable[str]:
        """Lines that compute the values that `read` refers to, for all positions of inner loops."""

    @abstractmethod
    def read(self, e: Expr) -> str:
        """Source of a `core` leaf."""

    def outer_number(self) -> str:
        """The position along all axes that the core does not follow, as one flat number."""
        core, number = self.spec.core, "0"
        assert core is not None
        for axis in self.spec.loop_axes:
            if axis not in core.axes:
                number = f"o_{axis}" if number == "0" else f"({number} * n_{axis} + o_{axis})"
        return number

    def element(self, positions: Sequence[str]) -> tuple[list[str], str]:
        """Lines that compute the core's `value` at one position, and the name of that value."""
        core = self.spec.core
        assert core is not None
        lines, names = self.elements((core.value,), positions)
        return lines, names[0]

    def elements(
        self, values: tuple[Expr, ...], positions: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """The same for several values that the core combines."""
        writer = self.writer
        lines: list[str] = []
        for e in walk(values):
            if e.op == "const" or e in self.hoisted:
                continue
            text = None
            if e.op == "load":
                text = f"load_{e.dtype}(in_{e.attr}, {self._offset(e.attr, positions)})"
            elif e.op == "index":
                text = self._index(e.attr, positions)
            lines.append(writer.assign(e, text))
        return lines, [writer.ref(v) for v in values]

    def hoist(self) -> list[str]:
        """Lines that compute, once per sample, the parts of `value` that no position changes."""
        assert self.spec.core is not None
        self.hoisted = constant_parts(self.spec)
        return [self.writer.assign(e, self._number(e)) for e in self.hoisted]

    def _number(self, e: Expr) -> str | None:
        if e.op == "load":
            return f"load_{e.dtype}(in_{e.attr}, 0)"
        return self._index(e.attr, ()) if e.op == "index" else None

    def _index(self, slot: int, positions: Sequence[str]) -> str:
        """A position along an axis of the output or along a dimension of the core."""
        index, rank = self.spec.indices[slot], self.spec.rank
        o = "0"
        if index.axis is not None:
            o = f"o_{index.axis}" if index.axis < rank else positions[index.axis - rank]
        return f"i32({o})" if index.identity else f"i32(step_{slot} * {o} + offset_{slot})"

    def _offset(self, slot: int, positions: Sequence[str]) -> str:
        """Offset of an operand at positions along the dimensions of the core."""
        access, rank = self.spec.loads[slot], self.spec.rank
        terms = [self.writer.outer_offset(slot, {})]
        for k, stride in enumerate(access.strides[rank:]):
            by = f"in_stride_{slot}_{rank + k}" if stride is None else str(stride)
            terms.append(f"{positions[k]} * {by}")
        return " + ".join(terms)

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        """Names of the areas of scratch memory."""
        return ()

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        """Bytes of each area for each sample, given the columns of the table."""
        return []


def columns_of(spec: KernelSpec) -> dict[Column, int]:
    """Columns of a CPU kernel's table: those of the spec, then those of this back-end."""
    areas = _areas(spec)
    own: list[Column] = [("scratch",), *(("area", name) for name in areas)] if areas else []
    own += [streamed_rows.COLUMN] if streamed_rows.streamed_runs(spec) else []
    return {**spec.columns, **{name: len(spec.columns) + k for k, name in enumerate(own)}}


def _areas(spec: KernelSpec) -> tuple[str, ...]:
    """Names of all areas of scratch memory, those of the core inside of the core included."""
    if spec.core is None:
        return ()
    own = spec.core.cpu_renderer().areas(spec)
    return own if spec.core.inner is None else (*own, *_areas(spec.of_inner))


def _area_bytes(spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
    """Bytes of each of these areas for each sample."""
    core, rank = spec.core, spec.rank
    assert core is not None
    own = core.cpu_renderer().area_bytes(spec, numbers)
    if core.inner is None:
        return own
    extents: dict[Column, Column] = {("n", rank + k): core.extent(k) for k in range(len(core.axes))}
    return own + _area_bytes(spec.of_inner, lambda c: numbers(extents.get(c, c)))


class Scratch:
    """Lays out the scratch memory of a CPU kernel, for each sample."""

    def __init__(self, spec: KernelSpec) -> None:
        self._spec = spec
        self._areas = _areas(spec)
        self._first = len(spec.columns)
        columns = columns_of(spec)
        self.width = len(columns)  # columns of the kernel's table
        # Column that says whether to store the results past the caches. None: they never are.
        self.streams = columns.get(streamed_rows.COLUMN)
        # Each thread writes the address of its scratch memory into this column. None: not needed.
        self.column = self._first if self._areas else None
        # What the last layout was made from (columns, their bytes), and that layout.
        self._last: tuple[list[int], bytes, tuple[Array, int]] | None = None

    def divide(self, table: Array) -> int:
        """Fill in where the areas begin, and return how many bytes the largest sample needs.

        Batches in a loop often have the same sizes, so the last layout is kept.
        """
        if not self._areas:
            return 0
        last = self._last
        if last is not None and table[:, last[0]].tobytes() == last[1]:
            begins, nbytes = last[2]
        else:
            begins, nbytes = self._layout(table)
        first = self._first + 1
        table[:, first : first + begins.shape[1]] = begins
        return nbytes

    def _layout(self, table: Array) -> tuple[Array, int]:
        """Where the areas of each sample begin, and how many bytes the largest sample needs."""
        used: dict[int, None] = {}

        def column(c: Column) -> Array:
            used[self._spec.columns[c]] = None
            numbers: Array = table[:, self._spec.columns[c]]
            return numbers

        sizes = _area_bytes(self._spec, column)
        spare = SPARE_BYTES + AREA_ALIGNMENT - 1
        ends = ((np.array(sizes) + spare) // AREA_ALIGNMENT * AREA_ALIGNMENT).cumsum(axis=0)
        begins = np.zeros((len(table), len(ends)), np.int64)
        begins[:, 1:] = ends[:-1].T
        found = begins, int(ends[-1].max(initial=0))
        columns = list(used)
        self._last = columns, table[:, columns].tobytes(), found
        return found


def indented(lines: Iterable[str], by: int = 1) -> Iterator[str]:
    """Lines of source, indented by some levels."""
    return ("    " * by + line for line in lines)
