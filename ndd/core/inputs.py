"""Inputs of an op call → nodes that the op accepts, on the device where it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.node import Node
from ..kernels.common.memo import Memo
from ..runtime.context import current_context
from ..runtime.device import device as as_device
from .encoded_inputs import encoded_node
from .handle import Handle, evaluate_argument, evaluate_node, input_of
from .schema import OpDef, Param
from .tensor import tensor_node


def input_node(p: Param, value: Any) -> Node:
    if isinstance(value, Handle):
        return input_of(value)
    if value is None:
        raise TypeError(f"`{p.name}` is missing: got None, wanted a Tensor, a Batch or an array")
    if p.files and (node := encoded_node(value)) is not None:
        return node
    is_list = isinstance(value, (list, tuple)) and len(value) > 0
    item = value[0] if is_list else value
    if isinstance(item, (str, bytes, os.PathLike)):
        what = (
            f"{type(value).__name__} of {type(item).__name__}" if is_list else type(item).__name__
        )
        hint = ""
        if p.files:
            hint = "; give the bytes of a file, as pathlib.Path(path).read_bytes() reads them"
        elif isinstance(item, bytes):
            hint = "; the bytes of a file are np.frombuffer(data, np.uint8)"
        raise TypeError(f"`{p.name}` must be a Tensor, a Batch or an array, got {what}{hint}")
    return tensor_node(value, None, None, None, copy=False)


def check_data(op: OpDef, node: Node) -> Node:
    facts = node.dtype.name, node.layout, node.rank
    if facts in op.accepted.entries:
        return node
    checked = _checked_data(op, node)
    if checked is node and op.needs_channels is None:  # then `facts` decide alone
        op.accepted[facts] = True
    return checked


def _checked_data(op: OpDef, node: Node) -> Node:
    if node.dtype in op.rejects:
        raise TypeError(f"element type {node.dtype} is not supported")
    if not op.layouts:
        return node
    layout = resolve_layout(op.layouts, node)
    if op.needs_channels is not None:
        axis = layout.index("C")
        extents = node.shapes.rows[:, axis]
        bad = np.flatnonzero(extents != op.needs_channels)
        if len(bad):
            s = int(bad[0])
            raise ValueError(
                f"`{op.data[0].name}` must have {op.needs_channels} channels, sample {s} of shape "
                f"{node.shapes.tuples[s]} ({layout}) has {extents[s]}"
            )
    return node if node.layout == layout else build.relabel("layout", node, layout)


def resolve_layout(layouts: Sequence[str], node: Node) -> str:
    """The node's layout if it is allowed; the first allowed one of its rank if it has none."""
    if node.layout is not None:
        if node.layout not in layouts:
            raise ValueError(
                f"the layout {node.layout!r} does not match any of the allowed layouts: "
                f"{', '.join(layouts)}"
            )
        return node.layout
    for layout in layouts:
        if len(layout) == node.rank:
            return layout
    raise ValueError(
        f"the number of dimensions {node.rank} does not match any of the allowed layouts: "
        f"{', '.join(layouts)}"
    )


def place(nodes: Sequence[Node], device: Any) -> int | None:
    """Ordinal of the GPU to run on, or None for the CPU."""
    ordinals = {n.device for n in nodes if n.device is not None}
    if len(ordinals) > 1:
        raise ValueError(f"the inputs are on different GPUs: {sorted(ordinals)}")
    follow = next(iter(ordinals), None)
    if device is None:
        return follow
    target = as_device(device)
    assert target is not None
    if target.device_type == "cpu":
        if follow is not None:
            raise ValueError(
                f"an input is on gpu:{follow}, but device='cpu'; use .cpu() to copy it"
            )
        return None
    if follow is not None and follow != target.device_id:
        raise ValueError(f"an input is on gpu:{follow}, but device={str(target)!r}")
    ordinal: int | None = target.device_id
    return ordinal


def on_gpu(node: Node, ordinal: int) -> Node:
    if node.device == ordinal:
        return node
    if node.op == "const":
        return const_on_gpu(node, ordinal)
    return build.transfer(node, ordinal)


_gpu_consts: Memo[tuple[Node, int], Node] = Memo("constants on GPUs", 8192)


def const_on_gpu(node: Node, ordinal: int) -> Node:
    """A constant in device memory, uploaded once."""
    found = _gpu_consts.get((node, ordinal))
    if found is None:
        moved = build.transfer(node, ordinal)
        moved.result.context = current_context()
        evaluate_node(moved)
        found = _gpu_consts.setdefault((node, ordinal), moved.like(op="const"))
    return found


def repeat(node: Node, count: int) -> Node:
    """A single tensor as a batch of `count` equal samples."""
    if node.batch:
        return node
    return build.choose("repeat", node, np.zeros(count, np.int64), True)


def on_host(node: Node) -> Node:
    """The node, or its copy in host memory, with its values computed."""
    evaluate_argument(node)
    if node.device is not None:
        node = build.transfer(node, None)
        node.result.context = current_context()
        evaluate_argument(node)
    return node
