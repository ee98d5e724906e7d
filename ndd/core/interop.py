"""Exchanges memory with other libraries: torch, DLPack and the CUDA array interface."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Storage, as_array
from ..kernels.gpu import driver
from ..kernels.gpu.env import simulating
from ..kernels.gpu.streams import Stream
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from .dlpack import KDL_CPU, KDL_CUDA, Imported, export, export_host


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
    """A node in device memory as torch sees it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __dlpack_device__(self) -> tuple[int, int]:
        return (KDL_CUDA, int(self.node.device))

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        return gpu_dlpack(self.node, stream, kwargs)


def gpu_dlpack_device(ordinal: int) -> tuple[int, int]:
    # Simulated device memory is host memory, and consumers must read it as such.
    return (KDL_CPU, 0) if simulating() else (KDL_CUDA, ordinal)


def gpu_dlpack(node: Node, stream: Any, kwargs: dict[str, Any]) -> Any:
    """DLPack capsule of device memory, ordered after our stream and before the consumer's.

    `kwargs` are those of the array API's ``__dlpack__``: max_version, dl_device, copy.
    """
    assert node.storage is not None
    if simulating():
        _synchronize(node)
        return export_host(as_array(node.storage, node, 0), node.dtype, **kwargs)
    copy, wanted = kwargs.get("copy"), kwargs.get("dl_device")
    if wanted is not None and tuple(wanted) != (KDL_CUDA, node.device):
        return _other_device_dlpack(node, tuple(wanted), kwargs)
    from ..runtime.gpu_runtimes import runtime_of

    runtime = runtime_of(node.result.context, node.device)
    storage: Storage = runtime.copy(node, node, node.storage) if copy else node.storage
    if stream != -1:
        # None means the legacy default stream, which is also 1; 0 is the same handle in the driver.
        consumer = Stream(stream=1 if stream is None else int(stream), device_id=node.device)
        consumer.wait_event(runtime.stream.record_event())
    strides = None if storage.strides is None else [int(s) for s in storage.strides[0]]
    shape, address = node.shapes.tuples[0], int(storage.addresses[0])
    return export(
        storage, address, shape, strides, node.dtype, int(node.device),
        max_version=kwargs.get("max_version"), readonly=storage.readonly, copied=bool(copy),
    )  # fmt: skip


def _other_device_dlpack(node: Node, wanted: tuple[int, int], kwargs: dict[str, Any]) -> Any:
    """A capsule of a copy in host memory, if the consumer asks for that."""
    if wanted[0] != KDL_CPU or kwargs.get("copy") is False:
        raise BufferError(
            f"__dlpack__: the value is on GPU {node.device}; wanted DLPack device {wanted}, "
            f"which needs a copy; use .to_device(...) first"
        )
    from ..runtime.gpu_runtimes import runtime_of

    assert node.storage is not None
    host = source(node.storage, node.shapes, node.dtype, node.layout, node.batch)
    held = source(node.storage, node.shapes, node.dtype, node.layout, node.batch, node.device)
    copied = runtime_of(node.result.context, node.device).copy(host, held, node.storage)
    rest = {k: v for k, v in kwargs.items() if k not in ("copy", "dl_device")}
    return export_host(as_array(copied, host, 0), node.dtype, **rest)


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
    """A node over another library's device memory, ordered after the work that writes it."""
    from ..runtime.context import current_context
    from .convert import check_layout

    torch = sys.modules.get("torch")
    producer: int | None = None  # the stream to wait for
    ordinal = None
    if torch is not None and isinstance(data, torch.Tensor):
        data = data.detach()
        ordinal = int(data.device.index or 0)
        producer = None if simulating() else int(torch.cuda.current_stream(ordinal).cuda_stream)
    elif not hasattr(data, "__cuda_array_interface__"):
        data = _from_dlpack(data)
        ordinal = data.device_id
    interface = data.__cuda_array_interface__
    if producer is None:
        producer = interface.get("stream")
    if ordinal is None:
        ordinal = _ordinal_of(data, int(interface["data"][0]))
    found = dt.from_numpy(np.dtype(interface["typestr"]))
    if getattr(data, "is_bfloat16", False):
        found = dt.bfloat16
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
    node = source(storage, shapes, found, check_layout(layout, len(shape)), False, ordinal)
    # Our stream waits for the producer's; other contexts wait for ours when they read the node.
    node.result.context = current_context()
    if producer is not None and not simulating():
        _wait_for_producer(int(producer), ordinal)
    return node


def _wait_for_producer(handle: int, ordinal: int) -> None:
    from ..runtime.gpu_runtimes import runtime_of

    written = Stream(stream=handle, device_id=ordinal).record_event()
    runtime_of(None, ordinal).stream.wait_event(written)


def _from_dlpack(data: Any) -> Imported:
    """The memory of an object that offers DLPack only; its producer lets our stream wait."""
    from ..runtime.gpu_runtimes import runtime_of

    ordinal = int(data.__dlpack_device__()[1])
    return Imported(data.__dlpack__(stream=runtime_of(None, ordinal).stream.handle))


def _ordinal_of(data: Any, address: int) -> int:
    """The GPU of some memory: the driver knows best, then the object itself."""
    known = None if simulating() or not address else driver.device_of(address)
    if known is not None:
        return known
    if hasattr(data, "__dlpack_device__"):
        return int(data.__dlpack_device__()[1])
    return int(getattr(getattr(data, "device", None), "id", 0) or 0)
