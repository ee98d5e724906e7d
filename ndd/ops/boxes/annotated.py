"""Annotations that native code reads: values of a node in host memory, sample by sample."""

from __future__ import annotations

from ...fusion.graph.node import Node, source
from ...fusion.graph.storage import contiguous


def packed_on_host(node: Node) -> Node:
    """The node in host memory with its values computed, and every sample contiguous."""
    from ...core.call import on_host

    held = on_host(node)
    if held.stored.strides is None:
        return held
    return source(contiguous(held), held.shapes, held.dtype, held.layout, held.batch)
