"""Exchanges memory with other libraries: torch, DLPack and the CUDA array interface."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Storage, as_array
from ..kernels.gpu.env import simulating
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType

_KDL_CPU, _KDL_CUDA = 1, 2


@functools.cache
def need_torch() -> Any:
    """Import torch; if it is missing, the error says how to install it."""
    try:
        import torch
    except ImportError:
        raise ImportError('torch is not installed: pip install "ndd-fusion[torch]"') from None
    return torch


def to_torch(node: Node, shape: tuple[int, ...], copy: bool) -> Any:
    """A torch tensor over the memory of a materialised node, or a copy of it."""
    if node.device is not None and not simulating():
        return _finished(need_torch().from_dlpack(_CudaExport(node)), node.dtype, copy)
    if node.device is not None:
        _synchronize(node)
    assert node.storage is not None
    return array_to_torch(as_array(node.storage, node, 0), node.dtype, copy)


def array_to_torch(array: Array, dtype: DType, copy: bool) -> Any:
    """A torch tensor over the memory of a host array, or a copy of it."""
    if not array.flags.c_contiguous and min(array.strides) < 0:
        array = np.ascontiguousarray(array)
    if not array.flags.writeable:
        array = array.copy()
    return _finished(need_torch().from_numpy(array), dtype, copy)


def _finished(tensor: Any, dtype: DType, copy: bool) -> Any:
    """Restore bfloat16, which arrives as its bits, and copy if asked to."""
    if dtype is dt.bfloat16:
        tensor = tensor.view(need_torch().bfloat16)
    return tensor.clone() if copy else tensor


def _synchronize(node: Node) -> None:
    from .handle import synchronize

    synchronize([node])


class _CudaExport:
    """A node in device memory as torch and cupy see it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.__cuda_array_interface__ = cuda_array_interface(node)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_KDL_CUDA, int(self.node.device))

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        return gpu_dlpack(self.node, stream, kwargs)


def gpu_dlpack_device(ordinal: int) -> tuple[int, int]:
    # Simulated device memory is host memory, and consumers must read it as such.
    return (_KDL_CPU, 0) if simulating() else (_KDL_CUDA, ordinal)


def gpu_dlpack(node: Node, stream: Any, kwargs: dict[str, Any]) -> Any:
    """DLPack capsule of device memory, ordered after our stream and before the consumer's."""
    assert node.storage is not None
    if simulating():
        _synchronize(node)
        return as_array(node.storage, node, 0).__dlpack__(**kwargs)
    import cupy

    from ..runtime.gpu_runtimes import runtime_of

    if stream != -1:
        ours = runtime_of(node.result.context, node.device).stream
        consumer = cupy.cuda.ExternalStream(0 if stream in (None, 0, 1) else int(stream))
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.ExternalStream(ours.handle))
        consumer.wait_event(event)
    return cupy.asarray(_Holder(node)).toDlpack()


class _Holder:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.__cuda_array_interface__ = cuda_array_interface(node)


def cuda_array_interface(node: Node) -> dict[str, Any]:
    """Version 3 of the interface: address, shape, type, and the stream to wait for."""
    from ..runtime.gpu_runtimes import runtime_of

    assert node.storage is not None
    if simulating():
        _synchronize(node)
    strides = node.storage.strides
    item = node.dtype.bytes
    return {
        "version": 3,
        "shape": node.shapes.tuples[0],
        "typestr": node.dtype.np.str,
        "data": (int(node.storage.addresses[0]), False),
        "strides": None if strides is None else tuple(int(s) * item for s in strides[0]),
        "stream": runtime_of(node.result.context, node.device).stream.handle or 1,
    }


def wrap_gpu(data: Any, layout: str | None) -> Node:
    """A node over another library's device memory."""
    from .convert import check_layout

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        data = data.detach()
        ordinal = int(data.device.index or 0)
    elif hasattr(data, "__dlpack_device__"):
        ordinal = int(data.__dlpack_device__()[1])
    else:
        ordinal = int(getattr(getattr(data, "device", None), "id", 0) or 0)
    interface = data.__cuda_array_interface__
    found = dt.from_numpy(np.dtype(interface["typestr"]))
    if found is None:
        raise TypeError(f"element type {interface['typestr']} is not supported")
    shape = tuple(interface["shape"])
    shapes = Shapes.of([shape], len(shape))
    strides = interface.get("strides")
    rows = None if strides is None else np.array([[s // found.bytes for s in strides]], np.int64)
    if rows is not None and bool((rows == shapes.strides).all()):
        rows = None
    storage = Storage(
        np.array([interface["data"][0]], np.int64), data, rows, rows is None, external=True
    )
    storage.readonly = bool(interface["data"][1])
    return source(storage, shapes, found, check_layout(layout, len(shape)), False, ordinal)
