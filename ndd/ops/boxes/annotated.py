"""Annotations that native code reads: values of a node in host memory, sample by sample."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.inputs import on_host
from ...fusion.graph.node import Node, source
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Held, Storage, address_of, contiguous
from ...kernels.ir.dtypes import DType

_NOTHING = np.zeros(64, np.uint8)


def packed_on_host(node: Node) -> Node:
    """The node in host memory with its values computed, and every sample contiguous."""
    held = on_host(node)
    if held.stored.strides is None:
        return held
    return source(contiguous(held), held.shapes, held.dtype, held.layout, held.batch)


def joined_rows(node: Node) -> Array:
    """The rows of all samples of a node in host memory with its values computed, as one array."""
    whole = convert.dense_array(node)
    if whole is not None:
        return whole.reshape(-1, *whole.shape[2:])
    return np.concatenate(convert.arrays_of(node))


def split_rows(rows: Array, counts: Array, dtype: DType, batch: bool) -> Node:
    """A node whose samples are runs of so many rows of a contiguous array, over its memory."""
    shapes = np.empty((len(counts), rows.ndim), np.int64)
    shapes[:, 0], shapes[:, 1:] = counts, rows.shape[1:]
    base = address_of(rows) if rows.size else address_of(_NOTHING)
    # A sample without rows must not lie behind the memory: a guarded load reads one element there.
    steps = np.where(counts > 0, (counts.cumsum() - counts) * rows.strides[0], 0)
    storage = Storage(base + steps, Held([rows, _NOTHING]), None, len(counts) == 1)
    return source(storage, Shapes(shapes), dtype, None, batch)
