"""The interface between a kind of computation and the planner.

A kind is one frozen class. It defines the type of its result (`infer`), where it reads its inputs
(`reads`), what an element costs to compute again (`cost`), which part of an input is needed
(`region`), how it becomes an expression in a kernel (`lower`) or is computed without one
(`compute`), which numbers per sample go into the kernel's table (`bind`), and what is legal
(`check`). The planner calls these methods and never tests for a particular kind, so a new kind is
just a new file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from ...kernels.common.memo import Memo, memoized
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ..graph.node import Definition, Node
from ..graph.shapes import Array, Shapes
from ..graph.storage import Storage

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder

# A term says how a position follows from the group's output position: (axis, constant, path). It
# starts at o[axis], or at the constant if there is no axis, and applies each step of the path:
# ("view", position, dimension), ("broadcast", position, dimension), or ("extent", position,
# dimension), which yields the extent of that dimension. An axis number from the group's rank on
# stands for a position that the kernel computes.
Step = tuple[str, int, int]
Term = tuple[int | None, int, tuple[Step, ...]]
Terms = tuple[Term, ...]
# Asks for a value at a position: the node's position in the program, the terms, and the guard.
Request = tuple[int, Terms, Expr | None]
Work = Generator[Request, Expr, Expr]

DEAR = 1000  # the cost of a value that is never computed twice


class Reads(Enum):
    """Where a kind reads an input, for one element of its result."""

    OWN = "at the same position"
    MOVED = "at one other position"
    ELSEWHERE = "at one position that the kernel computes"
    SCATTERED = "at several positions that the kernel computes"
    ONCE = "all of its elements, each of them once"
    TABLE = "anywhere: it is looked up by position"
    MEMORY = "all of it, in memory"


_numbers = itertools.count()


@dataclass(frozen=True)
class Kind:
    """One kind of computation, with all its choices that may change a plan or a kernel."""

    rank: int  # rank of the result
    # Identifies the object in plan keys. Unlike an `id`, a number is never reused.
    number: int = field(default_factory=_numbers.__next__, init=False, compare=False, repr=False)

    is_fused: ClassVar[bool] = True  # becomes part of a generated kernel
    has_core: ClassVar[bool] = False  # needs the kernel's core, of which there is only one
    # An element summarises many of the input, so it is stored if more elements than it has use it.
    is_summary: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = False  # on CPUs it computes what it reads once, row by row
    takes_rows: ClassVar[bool] = False  # a core inside of its own may compute these rows
    gives_rows: ClassVar[bool] = False  # its core can be that core
    takes_frames: ClassVar[bool] = False  # a core inside of its own may compute blocks of frames
    gives_frames: ClassVar[bool] = False  # its core can be that core
    may_store_on_the_way: ClassVar[bool] = False  # a kernel that uses the value may also store it
    is_join: ClassVar[bool] = False  # selects one of its inputs for every element, by tests
    by_sample: ClassVar[bool] = True  # a sample depends only on the same sample of the inputs
    takes_arrays: ClassVar[bool] = False  # its function gets the sample that it works on
    takes_long: ClassVar[bool] = False  # is slow on the host, whatever its size
    picks_samples: ClassVar[bool] = False  # only selects samples of its input's memory
    is_copy: ClassVar[bool] = False  # copies to another device

    # -- for the planner -----------------------------------------------------------------------

    def infer(self, inputs: Sequence[Node]) -> DType:
        """The element type of the result."""
        return inputs[0].dtype

    def reads(self, i: int) -> Reads:
        """Where input `i` is read."""
        return Reads.MOVED

    def cost(self) -> int:
        """The cost of computing one element from elements of the inputs, in float additions."""
        return 1

    def cost_anywhere(self) -> int | None:
        """The cost of one element at a position that another kind requests; None if impossible."""
        return None

    def cost_moved(self, axes: frozenset[int] | None) -> int | None:
        """Like `cost_anywhere`, if only positions along these axes are requested (None: all)."""
        return self.cost_anywhere()

    def moved_axes(self, i: int) -> frozenset[int] | None:
        """The output axes whose positions it computes to read input `i`; None for all of them."""
        return None

    def passed_on(self, i: int, axes: frozenset[int] | None) -> frozenset[int] | None:
        """The dimensions of input `i` that are read elsewhere if this value is, along `axes`."""
        return None

    def can_loop(self) -> bool:
        """Whether an element can be computed at every position of the loops of a core."""
        return self.cost_anywhere() is not None

    def loops_over(self, dimension: int) -> bool:
        """Whether its core has a loop over a dimension of its input."""
        return False

    def tells_apart(self, axis: int) -> bool:
        """Whether elements along an axis are computed from different operands, such as the channels
        of a colour transform. A loop over such an axis is slow."""
        return False

    def shares_loops(self, own: Node, other: Node) -> bool:
        """Whether the kernel that computes node `own` may also compute `other`, in the same loops
        of a core. If lowering finds that it cannot, one of them is stored."""
        return False

    def cost_in_rows(self) -> int | None:
        """The cost of an element of a row, for a kind that `keeps_rows`; None if impossible."""
        return self.cost_anywhere()

    @property
    def stores_its_users(self) -> bool:
        """Whether to store the result of cheap work on this value instead of the value itself.

        The planner asks if that result is read anywhere and this value cannot be computed there.
        """
        return False

    @property
    def is_rename(self) -> bool:
        """Whether the result is the input's memory, only described differently."""
        return False

    @property
    def is_onto(self) -> bool:
        """Whether a ("view", …) step of a term reads every element of the input exactly once."""
        return False

    def is_unit(self, dimension: int) -> bool:
        """Whether a ("view", …) step of a term is known to advance by 1 along a dimension."""
        return False

    @property
    def is_part(self) -> bool:
        """Whether the result is undefined outside of a window, so it is never stored."""
        return False

    @property
    def has_regions(self) -> bool:
        """Whether a region of the result can be computed alone (see fusion/run/regions.py)."""
        return False

    def chosen(self, definition: Definition, i: int) -> Array | None:
        """The sample of input `i` that each sample of the result comes from; None if it is the one
        with the same number."""
        return None

    @property
    def by_frame(self) -> bool:
        """Whether single frames can be computed (see fusion/run/frame_pipeline.py)."""
        return False

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        """Return the value at a position as an expression; yields requests for input values."""
        raise NotImplementedError(f"{type(self).__name__} has no part in kernels")

    def move(self, node: Node, dimension: int) -> tuple[Array | None, Array]:
        """(step, offset) per sample of an input dimension, for a ("view", …) step of a term."""
        raise NotImplementedError(f"{type(self).__name__} moves nothing")

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        """Fill the columns of the kernel's core; `terms` is where its value is requested."""
        raise NotImplementedError(f"{type(self).__name__} has no core")

    def bound_by(self, node: Node) -> Hashable | None:
        """What `bind` depends on besides the shapes of the node and of its inputs; None if that is
        not known, so that tables of its kernels are filled anew in every run."""
        return None

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        """The lowest and the highest position that the core reads along its dimension `k`, if
        positions `low` to `high` of its result are needed."""
        raise NotImplementedError(f"{type(self).__name__} has no core")

    # -- without a kernel ----------------------------------------------------------------------

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        """Compute the value from inputs in memory, for kinds that are not part of kernels."""
        raise NotImplementedError(f"there is no way to compute {node.op}")

    # -- what is legal -------------------------------------------------------------------------

    def check(self, node: Node) -> None:
        """Assert that a pending node of this kind is valid. Runs in tests."""
        inputs = node.inputs
        assert node.rank == self.rank, f"{node}: rank {node.rank}, its kind says {self.rank}"
        assert node.dtype is self.infer(inputs), f"{node}: not of type {self.infer(inputs)}"
        assert node.layout is None or len(node.layout) == node.rank, f"{node}: layout"
        for i in inputs:
            assert not self.by_sample or i.count in (1, node.count), f"{node} of {i}"
            assert self.is_copy or i.device == node.device or not self.is_fused, f"{node} of {i}"


_interned: Memo[Kind, Kind] = Memo("kinds", 1 << 16)


def intern(kind: Kind) -> Kind:
    """The one object for all equal kinds, so that plan keys can compare their numbers."""
    return _interned.setdefault(kind, kind)


@memoized(1 << 15, typed=False)
def interned(make: Callable[..., Kind], *facts: Hashable) -> Kind:
    """`intern(make(*facts))`; making and hashing a known kind again would take 3 µs."""
    return intern(make(*facts))


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
    """Make a pending node, on the device of its inputs unless another one is given."""
    return made_of(intern(kind), op, inputs, shapes, layout, batch, params, device, source_info)


def made_of(
    kind: Kind,
    op: str,
    inputs: Sequence[Node],
    shapes: Shapes,
    layout: str | None,
    batch: bool,
    params: Any = None,
    device: Any = ...,
    source_info: Any = None,
) -> Node:
    """Like `make`, of an interned kind."""
    if device is ...:
        device = inputs[0].device if inputs else None
    definition = Definition(kind, tuple(inputs), params)
    dtype = kind.infer(inputs)
    shapes.checked()
    return Node(op, definition, shapes, dtype, layout, batch, device, None, source_info)
