"""Annotations that native code reads: values of a node in host memory, sample by sample."""

from __future__ import annotations

import math

import numpy as np

from ...core.inputs import on_host
from ...fusion.graph.node import Node, source
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, contiguous
from ...kernels.common.buffers import Buffer
from ...kernels.ir.dtypes import DType


def packed_on_host(node: Node) -> Node:
    """The node in host memory with its values computed, and every sample contiguous."""
    held = on_host(node)
    if held.stored.strides is None:
        return held
    return source(contiguous(held), held.shapes, held.dtype, held.layout, held.batch)


def kept_rows(
    memory: Buffer, base: int, first: Array, kept: Array, inner: tuple[int, ...], dtype: DType,
    batch: bool,
) -> Node:  # fmt: skip
    """A node over memory with room for all rows: what remains of the rows of each sample.

    `first` says how many rows lie before those of a sample.
    """
    shapes = np.empty((len(kept), 1 + len(inner)), np.int64)
    shapes[:, 0], shapes[:, 1:] = kept, inner
    # A sample without rows must not lie behind the memory: a guarded load reads one element there.
    steps = np.where(kept > 0, first, 0) * (dtype.bytes * math.prod(inner))
    storage = Storage(base + steps, memory, None, len(kept) == 1)
    return source(storage, Shapes(shapes), dtype, None, batch)
