"""The interface between a core's renderer and the writer of a GPU kernel (see kernels/ir/core.py).

A KernelSpec enters; the core's lines of source and its compiler options leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..ir.core import Array, Column, constant_parts
from ..ir.expr import Expr, inlined, walk
from ..ir.spec import KernelSpec

if TYPE_CHECKING:
    from .render import Writer
    from .runtime import GpuRuntime

# Takes a table and the runtime of the launch. Computes what all threads need, by a small kernel on
# the same stream. Returns the numbers of `prepared_columns` for each row, and the memory to keep.
Preparation = Callable[[Array, "GpuRuntime"], tuple[Array, Any]]

NUM_WARPS = 4  # of one program


class GpuCore(ABC):
    """Writes the lines of one core, for one `Writer`. Every lane computes its own value."""

    # Points of one program. None: as many as in a kernel without a core.
    block: ClassVar[int | None] = None
    num_warps: ClassVar[int] = NUM_WARPS
    has_fixed_block: ClassVar[bool] = False  # the source relies on `block`, also if simulated
    # Whether it reads legal addresses for every position of the output. Threads beyond the end then
    # repeat the last point, and loads need no mask.
    reads_within: ClassVar[bool] = False

    def __init__(self, writer: Writer) -> None:
        core = writer.spec.core
        assert core is not None
        self.writer = writer
        self.spec = writer.spec
        self.value = inlined(core.value, {})
        self.uses = frozenset(walk([self.value]))

    @abstractmethod
    def lines(self) -> Iterable[str]:
        """Lines that compute the variables that `name` refers to."""

    @abstractmethod
    def name(self, e: Expr) -> str:
        """The variable of a `core` leaf."""

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        """Options for Triton's compiler."""
        return {}

    @classmethod
    def prepared_columns(cls, spec: KernelSpec) -> tuple[Column, ...]:
        """Addresses of what `preparation` computes, behind all other columns of the table."""
        return ()

    @classmethod
    def preparation(cls, spec: KernelSpec) -> Preparation:
        """What computes `prepared_columns` before each launch."""
        raise NotImplementedError(f"{cls.__name__} prepares nothing")

    @classmethod
    def sizes(cls, spec: KernelSpec) -> tuple[Column, ...]:
        """The columns that `points` depends on."""
        return tuple(("n", a) for a in spec.loop_axes)

    @classmethod
    def points(cls, spec: KernelSpec, table: Array) -> Array:
        """How many points each row has: as many as its result, or those of whole tiles."""
        points: Array = table[:, [spec.columns[c] for c in cls.sizes(spec)]].prod(axis=1)
        return points

    def positions(self) -> Iterable[str]:
        """Lines that compute the position of each lane, if that is not its place in a row."""
        return ()

    def element(
        self, positions: list[str], lane: str = "0", prefix: str = "v"
    ) -> tuple[list[str], str]:
        """Lines that compute the core's `value` at one position, and the name of that value."""
        writer, rank = self.writer, self.spec.rank
        names = dict(writer.names)  # names of values computed outside of the loops
        lines: list[str] = []
        for e in walk([self.value]):
            if e.op == "const" or e in names:
                continue
            name = f"{prefix}{lane}_{len(lines)}"
            if e.op == "load":
                access = self.spec.loads[e.attr]
                at = [*positions, lane][: max(len(access.strides) - rank, 0)]
                pointer = writer.pointer("in", e.attr, access, (), True, at)
                masked = "" if self.reads_within else ", mask=inside, other=0"
                loaded = f"tl.load({pointer}{masked})"
                lines.append(f"{name} = {loaded}" + (" != 0" if e.dtype.name == "bool" else ""))
            elif e.op == "index":
                lines.append(f"{name} = {self._index(e.attr, [*positions, lane])}")
            else:
                writer.names[e] = name
                lines += writer.assign(e, masked=True)
            writer.names[e] = name
        value = writer.typed(self.value)
        writer.names = names
        return lines, value

    def hoist(self) -> list[str]:
        """Lines that compute, before the loops, the parts of `value` that are the same everywhere.

        They keep their names: `element` does not compute them again.
        """
        writer = self.writer
        lines: list[str] = []
        for k, e in enumerate(constant_parts(self.spec, self.value)):
            if e in writer.names and self.is_computed(e):
                continue
            name = writer.names[e] = f"h{k}"
            if e.op == "load":
                text = f"tl.load(in_{e.attr})"
                lines.append(f"{name} = {text}" + (" != 0" if e.dtype.name == "bool" else ""))
            elif e.op == "index":
                lines.append(f"{name} = {self._index(e.attr, ())}")
            else:
                lines += writer.assign(e, masked=True)
        return lines

    def is_computed(self, e: Expr) -> bool:
        """Whether the writer has computed an expression of its own before the core's lines."""
        return e in self.writer.depths and self.writer.depths[e] == 0

    def _index(self, slot: int, positions: Sequence[str]) -> str:
        """A position along an axis of the output or along a dimension of the core."""
        index, rank = self.spec.indices[slot], self.spec.rank
        if index.axis is None:
            return f"offset_{slot}"
        o = f"o_{index.axis}" if index.axis < rank else positions[index.axis - rank]
        return (
            f"{o}.to(tl.int32)"
            if index.identity
            else (f"step_{slot} * {o}.to(tl.int32) + offset_{slot}")
        )


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Lines of source, one level further in."""
    return ("    " + line for line in lines)
