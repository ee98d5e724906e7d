"""Where device memory comes from: the driver's stream-ordered pool, PyTorch, CuPy, or the user.

With PyTorch's or CuPy's allocator one pool serves both libraries: memory that one of them has freed
is used by the other.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

from . import driver
from .streams import Stream

NAMES = ("cuda", "torch", "cupy")


class DeviceBlock:
    """Device memory and its address; it is freed with this object."""

    __slots__ = ("_owner", "address", "handed_out", "nbytes")

    def __init__(self, owner: Any, address: int, nbytes: int) -> None:
        self._owner = owner
        self.address = address
        self.nbytes = nbytes
        self.handed_out = False  # see `Buffer` in kernels/common/buffers.py


class Allocator(Protocol):
    """Memory in stream order: used after it was taken, freed after all earlier work."""

    def take(self, nbytes: int) -> DeviceBlock: ...


def checked_allocator(allocator: Any) -> Any:
    """The `allocator` argument of a context, or the error that says what it may be."""
    if allocator is None or allocator in NAMES or callable(getattr(allocator, "allocate", None)):
        return allocator
    raise ValueError(
        f"EvalContext: `allocator` must be one of {', '.join(map(repr, NAMES))}, or an object with "
        f"`allocate(nbytes, stream=...)` such as a MemoryResource of cuda.core; got {allocator!r}"
    )


def make_allocator(wanted: Any, device_id: int, stream: Stream) -> Allocator:
    """The allocator of a device and a stream; by default PyTorch's, if it is there with CUDA."""
    if wanted is None:
        wanted = "torch" if _torch_has_cuda() else "cuda"
    if wanted == "torch":
        return _TorchAllocator(device_id, stream)
    if wanted == "cupy":
        return _CupyAllocator(device_id, stream)
    return _ResourceAllocator(None if wanted == "cuda" else wanted, device_id, stream)


def _torch_has_cuda() -> bool:
    """Whether the program has imported a PyTorch that works on a GPU; a CPU build does not."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "cuda") and bool(torch.cuda.is_available())


class _ResourceAllocator:
    """A memory resource of cuda.core; by default the device's own pool."""

    def __init__(self, resource: Any, device_id: int, stream: Stream) -> None:
        self._stream = stream
        with driver.OnDevice(device_id):
            device = driver.core().Device(device_id)
            self._resource = device.memory_resource if resource is None else resource

    def take(self, nbytes: int) -> DeviceBlock:
        with driver.OnDevice(self._stream.device_id):
            memory = self._resource.allocate(max(nbytes, 1), stream=self._stream._native)
        return DeviceBlock(memory, int(memory.handle), nbytes)


class _TorchMemory:
    """Memory of PyTorch's caching allocator, given back with this object."""

    __slots__ = ("_free", "address")

    def __init__(self, torch: Any, nbytes: int, device_id: int, stream: int) -> None:
        self.address = int(torch.cuda.caching_allocator_alloc(nbytes, device_id, stream))
        self._free = torch.cuda.caching_allocator_delete

    def __del__(self) -> None:
        if hasattr(self, "_free"):  # not if the allocation has failed
            self._free(self.address)


class _TorchAllocator:
    def __init__(self, device_id: int, stream: Stream) -> None:
        import torch

        self._torch = torch
        self._where = device_id, stream.handle

    def take(self, nbytes: int) -> DeviceBlock:
        memory = _TorchMemory(self._torch, max(nbytes, 1), *self._where)
        return DeviceBlock(memory, memory.address, nbytes)


class _CupyAllocator:
    def __init__(self, device_id: int, stream: Stream) -> None:
        import cupy

        self._cupy = cupy
        self._device_id = device_id
        self._stream = cupy.cuda.Stream.from_external(stream)

    def take(self, nbytes: int) -> DeviceBlock:
        with self._cupy.cuda.Device(self._device_id), self._stream:
            memory = self._cupy.cuda.alloc(max(nbytes, 1))
        return DeviceBlock(memory, int(memory.ptr), nbytes)
