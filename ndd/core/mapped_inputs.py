"""Inputs of ops that lie in mapped files: a node enters, a node over a copy leaves.

Another process may change a mapped file while we look at it. A decoder that reads a length, checks
it and reads it again could then write outside of its memory, so ops get a copy. It takes 4 µs for
a picture whose decoding takes 500. Without an op, nothing is copied: the user gets the map itself.
"""

from __future__ import annotations

import numpy as np

from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array
from ..fusion.graph.storage import Storage, allocate, contiguous
from ..kernels.cpu.bus_errors import copy_parts


def copied_node(node: Node) -> Node:
    """The value of a node in memory that nobody else writes to. It is copied once."""
    storage = node.stored
    made = storage.copied
    if made is None:
        storage.owner.mapped.protect()
        made = _copied(node, storage)
        check_mapped(node)  # after copying: what was lost before is lost now
        storage.copied = made
    copy = source(made, node.shapes, node.dtype, node.layout, node.batch)
    copy = copy.like(op=node.op, source_info=node.source_info, doubts=node.doubts)
    copy.result.site, copy.result.context = node.result.site, node.result.context
    return copy


def check_mapped(node: Node) -> None:
    """Raise an error if the files of a value have lost some of it."""
    storage = node.stored
    storage.owner.mapped.protect()
    storage.owner.mapped.check(storage.addresses, _sizes(node))


def _copied(node: Node, storage: Storage) -> Storage:
    if storage.strides is not None:
        return contiguous(node)
    made = allocate(node.shapes, node.dtype.bytes)
    copy_parts(np.stack([storage.addresses, made.addresses, _sizes(node)], 1))
    return made


def _sizes(node: Node) -> Array:
    sizes = node.shapes.sizes(node.dtype.bytes)
    return np.broadcast_to(sizes, node.stored.addresses.shape)
