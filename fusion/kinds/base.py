"""What every kind of computation can tell the planner.

A kind is one frozen class: what type it gives (`infer`), where it reads its inputs (`reads`), what
an element costs to compute again (`cost`), which part of an input is needed (`region`), how it
becomes an expression in a kernel (`lower`) or is computed without one (`compute`), which numbers
per sample the kernel's table holds (`bind`), and what is legal (`check`). The planner asks kinds;
it never tests for a particular one. So a new kind is a new file.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from ...kernels.common.memo import Memo
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ..graph.node import Definition, Node
from ..graph.shapes import Array, Shapes
from ..graph.storage import Storage

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder, Number

# How a position follows from the group's output position: (axis, constant, path). Start at o[axis]
# (or at the constant), then apply each step of the path: ("view", position, dimension),
# ("broadcast", position, dimension), or ("extent", …), which is the extent of that dimension. Axes
# from the group's rank on are positions that the kernel computes.
Step = tuple[str, int, int]
Term = tuple[int | None, int, tuple[Step, ...]]
Terms = tuple[Term, ...]
# A value at a place: position in the program, terms, and the window in which it is defined.
Request = tuple[int, Terms, Expr | None]
Work = Generator[Request, Expr, Expr]

DEAR = 1000  # the cost of what is never computed twice


class Reads(Enum):
    """Where a kind reads an input, for one element of its result."""

    OWN = "at the same position"
    MOVED = "at one other position"
    SCATTERED = "at several positions, or at computed ones"
    TABLE = "anywhere: it is looked up by position"
    MEMORY = "all of it, in memory"


_numbers = itertools.count()


@dataclass(frozen=True)
class Kind:
    """One kind of computation, with its choices: everything that may change a plan or a kernel."""

    rank: int  # of the result
    # Names the object in plan keys. It is never used again, unlike an `id`.
    number: int = field(default_factory=_numbers.__next__, init=False, compare=False, repr=False)

    is_fused: ClassVar[bool] = True  # becomes a part of a generated kernel
    has_core: ClassVar[bool] = False  # fills the one slot of a kernel for more than an expression
    keeps_rows: ClassVar[bool] = False  # on CPUs it computes what it reads once, row by row
    may_store_on_the_way: ClassVar[bool] = False  # a kernel that needs it may store it, too
    is_join: ClassVar[bool] = False  # picks one of its inputs for every element, by tests
    by_sample: ClassVar[bool] = True  # every sample depends on its own inputs alone
    takes_long: ClassVar[bool] = False  # on the host, whatever its size
    picks_samples: ClassVar[bool] = False  # is no work: other samples of its input's memory
    is_copy: ClassVar[bool] = False  # to another device

    # -- what the planner asks -----------------------------------------------------------------

    def infer(self, inputs: Sequence[Node]) -> DType:
        """The element type of the result."""
        return inputs[0].dtype

    def reads(self, i: int) -> Reads:
        """Where input `i` is read."""
        return Reads.MOVED

    def cost(self) -> int:
        """Of computing an element from elements of the inputs, in additions of floats."""
        return 1

    def cost_anywhere(self) -> int | None:
        """Of computing an element at a position that another kind asks for; None if impossible."""
        return None

    def cost_in_rows(self) -> int | None:
        """Of computing an element of a row, for a kind that `keeps_rows`; None if impossible."""
        return self.cost_anywhere()

    @property
    def stores_its_users(self) -> bool:
        """If it must be stored to be read anywhere: whether cheap work on it is stored with it."""
        return False

    @property
    def is_rename(self) -> bool:
        """Whether the result is the input's memory under other names."""
        return False

    @property
    def is_onto(self) -> bool:
        """Whether ("view", …) of a term reads every element of the input exactly once."""
        return False

    def is_unit(self, dimension: int) -> bool:
        """Whether ("view", …) of a term is known to make single steps along a dimension."""
        return False

    @property
    def is_part(self) -> bool:
        """Whether the result is undefined outside of a window, so that it is never stored."""
        return False

    @property
    def has_regions(self) -> bool:
        """Whether a part of the result can be made by itself (see fusion/plan/regions.py)."""
        return False

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        """The value at a place as an expression; yields requests for values of inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no part in kernels")

    def move(self, node: Node, dimension: int) -> tuple[Array | None, Array]:
        """(step, offset) of a dimension of the input per sample, for ("view", …) of a term."""
        raise NotImplementedError(f"{type(self).__name__} moves nothing")

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        """Fill the columns of the kernel's core; `terms` tell where its value is asked for."""
        raise NotImplementedError(f"{type(self).__name__} has no core")

    def region(
        self, binder: Binder, root: Node, position: int, terms: Terms, k: int
    ) -> tuple[Number, Number]:
        """The first and the last position that the core reads along its dimension `k`."""
        raise NotImplementedError(f"{type(self).__name__} has no core")

    # -- without a kernel ----------------------------------------------------------------------

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        """The value, from inputs in memory; of kinds that are no part of kernels."""
        raise NotImplementedError(f"there is no way to compute {node.op}")

    # -- what is legal -------------------------------------------------------------------------

    def check(self, node: Node) -> None:
        """Assert that a pending node of this kind makes sense. Runs in tests."""
        inputs = node.inputs
        assert node.rank == self.rank, f"{node}: rank {node.rank}, its kind says {self.rank}"
        assert node.dtype is self.infer(inputs), f"{node}: not of type {self.infer(inputs)}"
        assert node.layout is None or len(node.layout) == node.rank, f"{node}: layout"
        for i in inputs:
            assert not self.by_sample or i.count in (1, node.count), f"{node} of {i}"
            assert self.is_copy or i.device == node.device or not self.is_fused, f"{node} of {i}"


_interned: Memo[Kind, Kind] = Memo("kinds", 1 << 16)


def intern(kind: Kind) -> Kind:
    """The one object for equal kinds, so that plan keys can compare their numbers."""
    return _interned.setdefault(kind, kind)


def make(
    op: str,
    kind: Kind,
    inputs: Sequence[Node],
    shapes: Shapes,
    layout: str | None,
    batch: bool,
    params: Any = None,
    device: Any = ...,
    source_info: Any = None,
) -> Node:
    """A pending node of a kind, on the device of its inputs unless another one is given."""
    kind = intern(kind)
    if device is ...:
        device = inputs[0].device if inputs else None
    definition = Definition(kind, tuple(inputs), params)
    dtype = kind.infer(inputs)
    return Node(op, definition, shapes, dtype, layout, batch, device, source_info=source_info)
