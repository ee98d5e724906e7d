"""Steps without a kernel of their own: renamed memory, chosen samples, copies, host functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.node import Alias, Array, Host, Node, Samples, Storage, Transfer, View


def compute(node: Node, inputs: list[Node], gpu: Any) -> Storage:
    """The value of an opaque node; its inputs are in memory."""
    static = node.static
    if isinstance(static, (Alias, View)):
        return _rename(inputs[0])
    if isinstance(static, Samples):
        return _choose(inputs[0], node.params)
    if isinstance(static, Transfer):
        return _transfer(node, inputs[0], gpu)
    assert isinstance(static, Host), f"no way to compute {node.op}"
    result: Storage = static.function(node, inputs, node.params)
    return result


def _stored(node: Node) -> Storage:
    assert node.storage is not None
    return node.storage


def _rename(source: Node) -> Storage:
    storage = _stored(source)
    if storage.strides is not None:
        storage = contiguous(source)
    return _shared(Storage(storage.addresses, storage.owner, dense=storage.dense), storage)


def _choose(source: Node, indices: Array) -> Storage:
    storage = _stored(source)
    strides = None if storage.strides is None else storage.strides[indices]
    # a run of neighbours of a dense batch is dense itself
    run = len(indices) == 1 or bool((np.diff(indices) == 1).all())
    chosen = Storage(storage.addresses[indices], storage.owner, strides, storage.dense and run)
    return _shared(chosen, storage)


def _shared(result: Storage, source: Storage) -> Storage:
    """A storage over the memory of another one: what holds for that memory holds for both."""
    result.external, result.readonly = source.external, source.readonly
    return result


def _transfer(node: Node, source: Node, gpu: Any) -> Storage:
    if _stored(source).strides is not None and source.device is None:
        storage = contiguous(source)
    else:
        storage = _stored(source)
    copied: Storage = gpu.copy(node, source, storage)
    return copied


def contiguous(source: Node) -> Storage:
    """A packed copy of strided host memory."""
    from .pipeline import allocate

    storage = _stored(source)
    result = allocate(source.shapes, source.dtype.bytes)
    for s in range(source.count):
        as_array(result, source, s)[...] = as_array(storage, source, s)
    return result


def as_array(storage: Storage, node: Node, sample: int) -> Array:
    """A NumPy view of one sample in host memory; it keeps the memory alive."""
    shape = node.shapes.tuples[sample if node.count > 1 else 0]
    dtype = node.dtype.np
    strides = None
    if storage.strides is not None:
        strides = tuple(int(s) * dtype.itemsize for s in storage.strides[sample])
    return array_at(int(storage.addresses[sample]), shape, dtype, strides, storage)


def array_at(
    address: int, shape: Any, dtype: Any, strides: Any = None, of: Storage | None = None
) -> Array:
    """A NumPy view of memory; with `of` it keeps that alive."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(_Memory(address, shape, dtype, strides, of))


class _Memory:
    """Address, shape and owner in the form NumPy understands."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(
        self, address: int, shape: Any, dtype: Any, strides: Any, of: Storage | None
    ) -> None:
        self.owner = None if of is None else of.owner
        readonly = of is not None and of.readonly
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": dtype.str, "data": (address, readonly),
            "strides": strides,
        }  # fmt: skip
