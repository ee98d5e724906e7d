"""Launches and copies → work on a real GPU, with memory from CuPy's pool or else from PyTorch's.

This code has never run on a GPU so far: see docs/gpu.md. It imports CuPy, PyTorch and Triton's
driver on first use, not when this module is imported.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
from functools import partial
from typing import Any

import numpy as np

from ..common import background, forks
from . import env, triton_cache
from .kernel import NUM_WARPS, Array, GpuKernel, Launch, block_of
from .streams import Event, Stream
from .triton_cache import import_triton


class CudaGpu:
    """Memory, copies and launches on one stream."""

    def __init__(self, device_id: int, stream: Stream) -> None:
        self._device_id = device_id
        self._stream = stream
        self._memory = _memory_of(device_id, stream)
        self._running: collections.deque[tuple[Event, list[Any]]] = collections.deque()
        self._launching = forks.lock()

    def take(self, nbytes: int) -> _Block:
        return self._memory.take(nbytes)

    def block_for(self, table: Array, kernel: GpuKernel) -> int:
        return block_of(kernel.spec)

    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None:
        with self._launching, self._memory.current():
            target = _target()
            compiled = kernel.compile(plan.variant, target, plan.block, NUM_WARPS)
            head = table.nbytes
            tail = 0 if plan.tiles is None else plan.tiles.nbytes
            staged = self._memory.take_pinned(head + tail)
            staged.array[:head] = table.reshape(-1).view(np.uint8)
            if plan.tiles is not None:
                staged.array[head : head + tail] = plan.tiles.reshape(-1).view(np.uint8)
            device = self._memory.take(head + tail)
            self._memory.copy(device.address, staged.address, head + tail)
            arguments = (device.address, device.address + head, len(table), plan.n_points)
            constants = (plan.block, *plan.variant)
            compiled[(plan.programs, 1, 1)](
                *arguments, plan.tiles_per_row, *constants, stream=self._stream.handle
            )
            self._keep([*alive, staged, device])

    def copy(self, runs: list[tuple[int, int, int]], alive: list[Any]) -> None:
        with self._launching, self._memory.current():
            for to, source, nbytes in runs:
                self._memory.copy(to, source, nbytes)
            self._keep(alive)

    def synchronize(self) -> None:
        self._stream.synchronize()
        with self._launching:
            self._running.clear()

    def is_using(self, owners: list[Any]) -> bool:
        with self._launching:
            waiting = [alive for event, alive in self._running if not event.query()]
        return any(a is b for alive in waiting for a in alive for b in owners)

    def _keep(self, alive: list[Any]) -> None:
        """Keep objects alive until the stream has passed this point."""
        while self._running and self._running[0][0].query():
            self._running.popleft()
        self._running.append((self._stream.record_event(), alive))


def _target() -> Any:
    """The architecture to compile for. Triton's driver loads a library from its cache first."""
    global _has_driver
    import_triton()
    from triton.runtime import driver

    if not _has_driver:
        load = partial(triton_cache.call, lambda: driver.active.utils, name="driver")
        background.uninterrupted(load)
        _has_driver = True
    return driver.active.get_current_target()


_has_driver = False


class _Block:
    """Memory of a framework's pool, and its address."""

    __slots__ = ("_owner", "address", "array", "handed_out", "nbytes")

    def __init__(self, owner: Any, address: int, nbytes: int, array: Any = None) -> None:
        self._owner = owner
        self.address = address
        self.nbytes = nbytes
        self.array = array
        self.handed_out = False  # see `Buffer` in kernels/common/buffers.py


class _CupyMemory:
    """CuPy's stream-ordered pools; copies through the CUDA runtime."""

    def __init__(self, cupy: Any, device_id: int, stream: Stream) -> None:
        self._cupy = cupy
        self._device_id = device_id
        self._stream = cupy.cuda.ExternalStream(stream.handle, device_id)

    @contextlib.contextmanager
    def current(self) -> Any:
        with self._cupy.cuda.Device(self._device_id), self._stream:
            yield

    def take(self, nbytes: int) -> _Block:
        with self.current():
            memory = self._cupy.cuda.alloc(max(nbytes, 1))
        return _Block(memory, int(memory.ptr), nbytes)

    def take_pinned(self, nbytes: int) -> _Block:
        memory = self._cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
        return _Block(memory, int(memory.ptr), nbytes, np.frombuffer(memory, np.uint8, nbytes))

    def copy(self, to: int, source: int, nbytes: int) -> None:
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(to, source, nbytes, runtime.memcpyDefault, self._stream.ptr)


class _TorchMemory:
    """PyTorch's caching allocator; copies through the CUDA driver."""

    def __init__(self, torch: Any, device_id: int, stream: Stream) -> None:
        self._torch = torch
        self._device = torch.device("cuda", device_id)
        self._stream = torch.cuda.ExternalStream(stream.handle, device=self._device)

    @contextlib.contextmanager
    def current(self) -> Any:
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
            yield

    def take(self, nbytes: int) -> _Block:
        with self.current():
            memory = self._torch.empty(max(nbytes, 1), dtype=self._torch.uint8, device=self._device)
        return _Block(memory, memory.data_ptr(), nbytes)

    def take_pinned(self, nbytes: int) -> _Block:
        memory = self._torch.empty(max(nbytes, 1), dtype=self._torch.uint8, pin_memory=True)
        return _Block(memory, memory.data_ptr(), nbytes, memory.numpy()[:nbytes])

    def copy(self, to: int, source: int, nbytes: int) -> None:
        # With unified addressing, the driver knows whether an address is on the host or the GPU.
        driver = ctypes.CDLL("libcuda.so.1")
        status = driver.cuMemcpyAsync(
            ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(nbytes),
            ctypes.c_void_p(self._stream.cuda_stream),
        )  # fmt: skip
        if status != 0:
            raise RuntimeError(f"cuMemcpyAsync of {nbytes} bytes failed with CUDA error {status}")


def _memory_of(device_id: int, stream: Stream) -> _CupyMemory | _TorchMemory:
    env.cuda()  # raises the usual error if neither is installed
    try:
        import cupy
    except ImportError:
        import torch

        return _TorchMemory(torch, device_id, stream)
    return _CupyMemory(cupy, device_id, stream)
