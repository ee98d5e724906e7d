"""The graph: what calls build and flushes run.

A `Node` says what a value is, and is frozen when it is made. What changes lives beside it, in its
`Result`: how the value is made until it is made, then the value or the error, who holds it, and
what the loop and the planner have noted about it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...kernels.ir.dtypes import DType
from .shapes import Shapes
from .sites import Site
from .storage import Storage

if TYPE_CHECKING:
    from ..kinds.base import Kind

# Channel axes up to this extent are unrolled in kernels (grey, grey+alpha, RGB, RGBA).
MAX_STATIC_CHANNELS = 4


class Definition(NamedTuple):
    """How a value follows from others.

    `kind` is interned and goes into plan keys (which kernel); `params` holds numbers per sample
    (which window, which order) and goes into the kernel's table at launch.
    """

    kind: Kind
    inputs: tuple[Node, ...]
    params: Any = None


class Result:
    """What becomes of a node: everything about it that changes."""

    # Defaults of the class: most results never need most of these, and calls are frequent.
    error: BaseException | None = None
    site: Site | None = None  # where the user made the call
    context: Any = None  # the EvalContext that the call belongs to
    handle: weakref.ref[Any] | None = None  # the user's Tensor or Batch, if it lives
    promise: Any = None  # (record, position) of the plan that fused through this value
    report: Any = None  # the plan that produced it, for explain()
    origin: Any = None  # the recorded call that it came from, see ndd.loop
    export: Any = None  # a torch tensor of its value, made in advance for the caller
    sampling: Any = None  # see ndd.ops.resample.merging
    token: tuple[bool, int] | None = None  # see fusion.plan.program.token

    def __init__(self, definition: Definition | None, storage: Storage | None) -> None:
        # A value that exists needs no definition: dropping it lets the node's ancestors go.
        self.definition = definition
        self.storage = storage

    def deliver(self, storage: Storage) -> None:
        """The value is there."""
        self.storage = storage
        self.definition = None
        self.promise = None


class Node:
    """One value: its metadata and, in `result`, how it is made and what became of it."""

    __slots__ = (
        "__weakref__", "batch", "count", "device", "dtype", "layout", "op", "rank", "result",
        "shapes", "source_info",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        definition: Definition | None,
        shapes: Shapes,
        dtype: DType,
        layout: str | None,
        batch: bool,
        device: Any = None,
        storage: Storage | None = None,
        source_info: Any = None,
    ) -> None:
        self.op: Final = op
        self.shapes: Final = shapes
        self.rank: Final = shapes.rank
        self.count: Final = shapes.count
        self.dtype: Final = dtype
        self.layout: Final = layout
        self.batch: Final = batch
        self.device: Final = device  # None: host memory; else the ordinal of a GPU
        self.source_info: Final = source_info  # names of the files that the samples came from
        self.result: Final = Result(definition, storage)

    @property
    def definition(self) -> Definition:
        """How the value is made; only a pending node has one."""
        found = self.result.definition
        assert found is not None, f"{self.op} has been computed"
        return found

    @property
    def kind(self) -> Kind | None:
        found = self.result.definition
        return None if found is None else found.kind

    @property
    def inputs(self) -> tuple[Node, ...]:
        found = self.result.definition
        return () if found is None else found.inputs

    @property
    def params(self) -> Any:
        found = self.result.definition
        return None if found is None else found.params

    @property
    def storage(self) -> Storage | None:
        """The value, once it is there."""
        return self.result.storage

    @property
    def stored(self) -> Storage:
        """The value of a node that is known to have it."""
        storage = self.result.storage
        assert storage is not None, f"{self.op} has no value yet"
        return storage

    def like(self, **facts: Any) -> Node:
        """A new node that is made in the same way, or has the same memory, with other facts."""
        old = {
            "op": self.op, "shapes": self.shapes, "dtype": self.dtype, "layout": self.layout,
            "batch": self.batch, "device": self.device, "source_info": self.source_info,
        }  # fmt: skip
        result = self.result
        made = Node(definition=result.definition, storage=result.storage, **{**old, **facts})
        made.result.site, made.result.context = result.site, result.context
        return made

    def is_live(self) -> bool:
        """Whether the user can still ask for this value."""
        handle = self.result.handle
        return handle is not None and handle() is not None

    def __repr__(self) -> str:
        state = "done" if self.storage is not None else "pending"
        return f"<{self.op} {self.dtype} {self.layout or ''} {self.shapes.tuples} {state}>"


def source(
    storage: Storage,
    shapes: Shapes,
    dtype: DType,
    layout: str | None = None,
    batch: bool = False,
    device: Any = None,
    op: str = "source",
    source_info: Any = None,
) -> Node:
    """A node that already has its value."""
    return Node(op, None, shapes, dtype, layout, batch, device, storage, source_info)


def static_channels(node: Node) -> tuple[int, int] | None:
    """(axis, extent) of the channel axis if it is small and equal in all samples."""
    layout, rank = node.layout, node.rank
    if layout:
        axis = layout.find("C")
        if axis < 0:
            return None
    elif rank >= 3:
        axis = rank - 1
    else:
        return None
    extent = node.shapes.extent(axis)
    return (axis, extent) if extent is not None and 0 < extent <= MAX_STATIC_CHANNELS else None
