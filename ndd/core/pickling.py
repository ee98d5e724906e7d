"""Pickling: the value of a handle leaves as one NumPy array, and comes back as a handle.

A pending value is computed first: values travel, graphs do not. The array is pickled as NumPy does
it, so with protocol 5 its memory can travel beside the pickle, without a copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.doubts import doubted, valid_samples
from ..fusion.graph.node import source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Held, Storage, nothing
from ..kernels.ir.dtypes import DType
from . import convert
from .batch import Batch
from .handle import Handle, evaluate_node, hand_out
from .tensor import Tensor


class Pickled(NamedTuple):
    """The value of a handle, without its graph."""

    is_batch: bool
    elements: Array  # of all samples, one after the other
    shapes: Array  # a row for each sample
    dtype: DType
    layout: str | None
    device: int | None  # ordinal of the GPU
    bad: frozenset[int]  # samples that `Batch.valid` calls bad


def reduced(handle: Handle) -> tuple[Any, tuple[Any, ...]]:
    """What `__reduce__` of a handle returns."""
    node = handle._node
    evaluate_node(node)
    host = handle.cpu()._node
    evaluate_node(host)
    rows = np.array(node.shapes.rows)
    is_batch = isinstance(handle, Batch)
    elements = np.empty(0, node.dtype.np)
    if node.count:
        hand_out(host)
        whole = convert.dense_array(host)
        elements = _joined(convert.arrays_of(host)) if whole is None else whole.reshape(-1)
    bad = frozenset(np.flatnonzero(~valid_samples(node.doubts, node.count)).tolist())
    value = Pickled(is_batch, elements, rows, node.dtype, node.layout, node.device, bad)
    return restored, tuple(value)


def _joined(arrays: list[Array]) -> Array:
    return np.concatenate([array.reshape(-1) for array in arrays])


def restored(*fields: Any) -> Handle:
    """The handle of a pickled value, over the memory of its array."""
    value = Pickled(*fields)
    shapes = Shapes(value.shapes)
    storage = _storage(value.elements, shapes) if len(value.shapes) else nothing()
    doubts = doubted(value.bad, len(value.shapes)) if value.bad else ()
    node = source(storage, shapes, value.dtype, value.layout, value.is_batch, doubts=doubts)
    made: Handle = (Batch if value.is_batch else Tensor)._of(node)
    return made if value.device is None else made.gpu(value.device)


def _storage(elements: Array, shapes: Shapes) -> Storage:
    ends = np.cumsum(shapes.volumes)
    starts = np.concatenate([[0], ends[:-1]])
    first = elements.__array_interface__["data"][0]
    addresses = first + starts.astype(np.int64) * elements.itemsize
    storage = Storage(addresses, Held([elements]), None, dense=shapes.uniform)
    storage.readonly = not elements.flags.writeable
    return storage
