"""What a renderer of a core must offer to the writer of a GPU kernel (see ir/core.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ..ir.expr import Expr, walk
from ..ir.spec import KernelSpec

if TYPE_CHECKING:
    from .render import Writer


class GpuCore(ABC):
    """Writes the lines of one core; works for one `Writer`. Every lane computes its own value."""

    # Points of one program; None: as many as without a core.
    block: ClassVar[int | None] = None

    def __init__(self, writer: Writer) -> None:
        core = writer.spec.core
        assert core is not None
        self.writer = writer
        self.spec = writer.spec
        self.value = core.value
        self.uses = frozenset(walk([core.value]))

    @abstractmethod
    def lines(self) -> Iterable[str]:
        """Lines that compute what `name` names."""

    @abstractmethod
    def name(self, e: Expr) -> str:
        """The variable of a `core` leaf."""

    @classmethod
    def options(cls, spec: KernelSpec) -> dict[str, int]:
        """Options for Triton's compiler."""
        return {}

    def element(
        self, positions: list[str], lane: str = "0", prefix: str = "v"
    ) -> tuple[list[str], str]:
        """Lines that compute the core's `value` at one position of its dimensions, and its name."""
        writer, rank = self.writer, self.spec.rank
        names = dict(writer.names)  # of what has been computed outside of the loops
        lines: list[str] = []
        for e in walk([self.value]):
            if e.op == "const" or e in names:
                continue
            name = f"{prefix}{lane}_{len(lines)}"
            if e.op == "load":
                access = self.spec.loads[e.attr]
                at = [*positions, lane][: max(len(access.strides) - rank, 0)]
                pointer = writer.pointer("in", e.attr, access, (), True, at)
                loaded = f"tl.load({pointer}, mask=inside, other=0)"
                lines.append(f"{name} = {loaded}" + (" != 0" if e.dtype.name == "bool" else ""))
            else:
                writer.names[e] = name
                lines += writer.assign(e, masked=True)
            writer.names[e] = name
        value = writer.typed(self.value)
        writer.names = names
        return lines, value
