"""Kinds without a kernel: renamed memory, chosen samples, copies, host functions, decoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.ir.dtypes import DType
from ..graph.node import Definition, Node
from ..graph.shapes import Array, Shapes
from ..graph.storage import Storage, contiguous
from .base import Kind, Reads, make


@dataclass(frozen=True)
class Opaque(Kind):
    """Works on whole values in memory, so it ends every group."""

    is_fused = False
    by_sample = False

    def reads(self, i: int) -> Reads:
        return Reads.MEMORY


@dataclass(frozen=True)
class Alias(Opaque):
    """The same memory under another shape or type (reshape, reinterpret)."""

    dtype: DType

    def infer(self, inputs: Sequence[Node]) -> DType:
        return self.dtype

    @property
    def is_rename(self) -> bool:
        return True

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        return renamed(inputs[0])

    def check(self, node: Node) -> None:
        super().check(node)
        x = node.inputs[0]
        same = node.shapes.volumes * node.dtype.bytes == x.shapes.volumes * x.dtype.bytes
        assert same.all(), f"{node} has another size than {x}"


@dataclass(frozen=True)
class Choose(Opaque):
    """A selection of samples of the same batch; params are their indices."""

    picks_samples = True

    @property
    def is_rename(self) -> bool:
        return True

    def chosen(self, definition: Definition, i: int) -> Array:
        indices: Array = definition.params
        return indices

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        storage, indices = inputs[0].stored, node.params
        strides = None if storage.strides is None else storage.strides[indices]
        # Consecutive samples of a dense batch are dense, too.
        run = len(indices) == 1 or bool((np.diff(indices) == 1).all())
        chosen = Storage(storage.addresses[indices], storage.owner, strides, storage.dense and run)
        return chosen.share_flags(storage)

    def check(self, node: Node) -> None:
        super().check(node)
        assert len(node.params) == node.count, f"{node}: {len(node.params)} indices"
        inside = (node.params >= 0) & (node.params < node.inputs[0].count)
        assert inside.all(), f"{node}: no such sample of {node.inputs[0]}"
        own = node.inputs[0].shapes.volumes[node.params]
        assert (node.shapes.volumes <= own).all(), f"{node}: larger than {node.inputs[0]}"


@dataclass(frozen=True)
class Transfer(Opaque):
    """A copy to the node's device."""

    is_copy = True

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        source, storage = inputs[0], inputs[0].stored
        if storage.strides is not None and source.device is None:
            storage = contiguous(source)
        copied: Storage = gpu.copy(node, source, storage)
        return copied


@dataclass(frozen=True)
class Host(Opaque):
    """A Python function of the input values and of params."""

    function: Any
    dtype: DType

    takes_long = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return self.dtype

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        result: Storage = self.function(node, inputs, node.params)
        return result


@dataclass(frozen=True)
class Decode(Opaque):
    """A Python function that writes one sample at a time into the result's memory.

    `function(params, sample, out)` runs on threads of the pool, so it should release the GIL. If
    `can_decode_regions`, `params` has three more methods. `windowed(start, size)` restricts
    decoding to a region of every image. `held(sample, shape, dtype)` decodes into memory of the
    decoder and returns the address, or None if it cannot. `native(encoded, shapes, dtype)` returns
    the input of the native loop (kernels/cpu/decode_loop), or None if the loop cannot be used.

    If `can_decode_frames`, `params` has three more: `runs(samples, frames)` divides sorted frames
    into runs [begin, end) that one thread should decode; `expect(sample, frames)` tells it which
    frames follow; `decode_frame(sample, frame, out)` writes one.
    """

    function: Any
    dtype: DType
    can_decode_regions: bool
    can_decode_frames: bool = False

    by_sample = True
    takes_long = True

    @property
    def has_regions(self) -> bool:
        return self.can_decode_regions

    @property
    def by_frame(self) -> bool:
        return self.can_decode_frames

    def infer(self, inputs: Sequence[Node]) -> DType:
        return self.dtype


def renamed(source: Node) -> Storage:
    """The memory of a value, made contiguous, for a node that describes it differently."""
    storage = source.stored
    if storage.strides is not None:
        storage = contiguous(source)
    return Storage(storage.addresses, storage.owner, dense=storage.dense).share_flags(storage)


def alias(op: str, x: Node, shapes: Shapes, dtype: DType, layout: str | None) -> Node:
    """The memory of `x` under another shape or type."""
    return make(op, Alias(shapes.rank, dtype), (x,), shapes, layout, x.batch)


def choose(op: str, x: Node, indices: Array, batch: bool, shapes: Shapes | None = None) -> Node:
    """A selection of samples of the same batch; if `shapes` are given, only the elements at the
    beginning of each sample, under these shapes."""
    if shapes is None:
        shapes = Shapes(x.shapes.rows[indices])
    names = None if x.source_info is None else [x.source_info[i] for i in indices]
    kind = Choose(shapes.rank)
    return make(op, kind, (x,), shapes, x.layout, batch, indices, source_info=names)


def transfer(x: Node, device: Any) -> Node:
    """A copy of `x` on another device."""
    return make("copy", Transfer(x.rank), (x,), x.shapes, x.layout, x.batch, device=device)


def host(
    op: str, function: Callable[..., Any], inputs: Sequence[Node], shapes: Shapes, dtype: DType,
    layout: str | None, batch: bool, params: Any = None, device: Any = ...,
) -> Node:  # fmt: skip
    """A value that a Python function computes when the graph is flushed."""
    kind = Host(shapes.rank, function, dtype)
    return make(op, kind, inputs, shapes, layout, batch, params, device)


def decode(
    op: str, function: Callable[..., None], x: Node, shapes: Shapes, dtype: DType,
    layout: str | None, params: Any, has_regions: bool = False, has_frames: bool = False,
) -> Node:  # fmt: skip
    """A value that `function(params, sample, out)` writes sample by sample, on several threads."""
    kind = Decode(shapes.rank, function, dtype, has_regions, has_frames)
    return make(op, kind, (x,), shapes, layout, x.batch, params, device=None)
