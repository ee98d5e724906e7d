"""The nodes of the graph: op calls build them, flushes compute them.

A `Node` describes one value and is frozen when it is made. Everything that changes lives beside it
in its `Result`: the definition until the value is computed, then the value or the error, the
user's handle, and notes of the loop and the planner.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...kernels.ir.dtypes import DType
from .doubts import Doubts, inherited
from .shapes import Shapes
from .sites import Site
from .storage import Storage

if TYPE_CHECKING:
    from ..kinds.base import Kind

# Kernels unroll channel axes up to this extent (grey, grey+alpha, RGB, RGBA).
MAX_STATIC_CHANNELS = 4


class Definition(NamedTuple):
    """How a value follows from others.

    `kind` is interned and part of the plan key, because it decides which kernel runs. `params`
    holds numbers per sample (a window, an order), which go into the kernel's table at launch.
    """

    kind: Kind
    inputs: tuple[Node, ...]
    params: Any = None


class Result:
    """Everything about a node that changes."""

    # Class-level defaults: most results never set most of these, and op calls are frequent.
    error: BaseException | None = None
    site: Site | None = None  # the user's line that made the call
    context: Any = None  # the EvalContext that the call belongs to
    handle: weakref.ref[Any] | None = None  # the user's Tensor or Batch
    promise: Any = None  # (record, position) in the plan that fused through this value
    report: Any = None  # the plan that produced the value, for explain()
    origin: Any = None  # the recorded call that produced the value, see ndd.loop
    export: Any = None  # a torch tensor of the value, made in advance for the caller
    sampling: Any = None  # see ndd.ops.resample.merging
    scaling: Any = None  # see ndd.ops.resample.scaling
    token: tuple[bool, int] | None = None  # see fusion.plan.program.token

    def __init__(self, definition: Definition | None, storage: Storage | None) -> None:
        # A computed value needs no definition; dropping it frees the node's ancestors.
        self.definition = definition
        self.storage = storage

    def deliver(self, storage: Storage) -> None:
        """Set the computed value."""
        self.storage = storage
        self.definition = None
        self.promise = None


class Node:
    """One value: its frozen metadata, and a `result` with everything that changes."""

    __slots__ = (
        "__weakref__", "batch", "count", "device", "doubts", "dtype", "layout", "op", "rank",
        "result", "shapes", "source_info",
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
        doubts: Doubts | None = None,
    ) -> None:
        self.op: Final = op
        self.shapes: Final = shapes
        self.rank: Final = shapes.rank
        self.count: Final = shapes.count
        self.dtype: Final = dtype
        self.layout: Final = layout
        self.batch: Final = batch
        self.device: Final = device  # the ordinal of a GPU, or None for host memory
        self.source_info: Final = source_info  # names of the files that the samples came from
        if doubts is None:
            doubts = () if definition is None else inherited(definition, shapes.count)
        self.doubts: Final = doubts  # which samples may be bad
        self.result: Final = Result(definition, storage)

    @property
    def definition(self) -> Definition:
        """How the value is computed; only a pending node has a definition."""
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
        """The value's memory, or None while the node is pending."""
        return self.result.storage

    @property
    def stored(self) -> Storage:
        """The memory of a value that is known to be computed."""
        storage = self.result.storage
        assert storage is not None, f"{self.op} has no value yet"
        return storage

    def like(self, **facts: Any) -> Node:
        """A copy of this node (same definition, same memory) with some fields replaced."""
        old = {
            "op": self.op, "shapes": self.shapes, "dtype": self.dtype, "layout": self.layout,
            "batch": self.batch, "device": self.device, "source_info": self.source_info,
            "doubts": self.doubts,
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
    doubts: Doubts = (),
) -> Node:
    """A node that already has its value."""
    return Node(op, None, shapes, dtype, layout, batch, device, storage, source_info, doubts)


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
