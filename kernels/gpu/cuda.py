"""Launches and copies → work on a GPU, through the CUDA driver (driver.py).

Triton only compiles: kernels are loaded from its cubins and launched here. A loaded kernel serves
all GPUs of its architecture, because the driver loads it into each of them when it is first used.
"""

from __future__ import annotations

import collections
import ctypes
from typing import Any

import numpy as np

from ..common import forks
from ..common.memo import Memo
from . import driver
from .allocators import DeviceBlock, make_allocator
from .kernel import Array, GpuKernel, Launch, Variant
from .streams import Stream
from .triton_cache import import_triton

# More shared memory than this must be asked for, kernel by kernel.
DEFAULT_SHARED_BYTES = 48 << 10
MIN_STAGED = 4096  # bytes: most tables are smaller

_loaded: Memo[tuple[Any, ...], LoadedKernel] = Memo("loaded GPU kernels", 4096)
_loading = forks.lock()


class CudaGpu:
    """Memory, copies and launches on one stream."""

    def __init__(self, device_id: int, stream: Stream, allocator: Any = None) -> None:
        self._device_id = device_id
        self._stream = stream
        self._memory = make_allocator(allocator, device_id, stream)
        self._capability = driver.compute_capability(device_id)
        self._staging = _Staging(device_id)
        self._launching = forks.lock()
        # What each piece of submitted work uses, with an event behind it.
        self._running: collections.deque[tuple[Any, list[Any]]] = collections.deque()
        self._free_events: list[Any] = []

    def take(self, nbytes: int) -> DeviceBlock:
        return self._memory.take(nbytes)

    def block_for(self, table: Array, kernel: GpuKernel) -> int:
        return kernel.block

    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None:
        loaded = load(kernel, plan.variant, self._capability, plan.block)
        head = table.nbytes
        tail = 0 if plan.tiles is None else plan.tiles.nbytes
        device = self._memory.take(head + tail)
        with self._launching, driver.OnDevice(self._device_id):
            staged = self._staging.take(head + tail)
            staged.array[:head] = table.reshape(-1).view(np.uint8)
            if plan.tiles is not None:
                staged.array[head : head + tail] = plan.tiles.reshape(-1).view(np.uint8)
            driver.copy(device.address, staged.address, head + tail, self._stream.handle)
            numbers = (device.address, device.address + head, len(table), plan.n_points)
            loaded.launch(
                self._device_id, self._stream, plan.programs, *numbers, plan.tiles_per_row
            )
            self._keep([*alive, staged, device])

    def copy(self, runs: list[tuple[int, int, int]], alive: list[Any]) -> None:
        with self._launching, driver.OnDevice(self._device_id):
            for to, source, nbytes in runs:
                driver.copy(to, source, nbytes, self._stream.handle)
            self._keep(alive)

    def synchronize(self) -> None:
        self._stream.synchronize()
        with self._launching:
            self._drop_finished()

    def is_using(self, owners: list[Any]) -> bool:
        with self._launching:
            waiting = [alive for event, alive in self._running if not event.is_done]
        return any(a is b for alive in waiting for a in alive for b in owners)

    def _keep(self, alive: list[Any]) -> None:
        """Keep objects alive until the stream has passed this point."""
        self._drop_finished()
        event = self._free_events.pop() if self._free_events else None
        self._running.append((self._stream._native.record(event), alive))

    def _drop_finished(self) -> None:
        while self._running and self._running[0][0].is_done:
            event, alive = self._running.popleft()
            self._free_events.append(event)
            for each in alive:
                if isinstance(each, _Staged):
                    self._staging.give_back(each)


class LoadedKernel:
    """A kernel in the driver, ready to be launched on any GPU of its architecture."""

    def __init__(self, compiled: Any) -> None:
        code = driver.core().ObjectCode.from_cubin(compiled.asm["cubin"])
        self._kernel = code.get_kernel(compiled.metadata.name)
        self._handle = driver.api().CUfunction(int(self._kernel.handle))
        self._threads = 32 * compiled.metadata.num_warps
        self._shared = compiled.metadata.shared
        self._prepared: set[int] = set()
        # After our arguments Triton adds pointers to scratch memory, which our kernels do not use.
        self._extra = (0,) * (self._kernel.num_arguments - 5)

    def launch(self, device_id: int, stream: Stream, programs: int, *arguments: int) -> None:
        """Launch on a stream of a GPU, which is the current one."""
        if self._shared > DEFAULT_SHARED_BYTES and device_id not in self._prepared:
            self._ask_for_shared_memory(device_id)
        values = (*arguments, *self._extra)
        driver.checked(
            driver.api().cuLaunchKernel(
                self._handle, programs, 1, 1, self._threads, 1, 1, self._shared, stream.handle,
                (values, _TYPES[: len(values)]), 0,
            )
        )  # fmt: skip

    def _ask_for_shared_memory(self, device_id: int) -> None:
        names = driver.api().CUfunction_attribute
        wanted = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        kernel = driver.api().CUkernel(int(self._kernel.handle))
        driver.checked(driver.api().cuKernelSetAttribute(wanted, self._shared, kernel, device_id))
        self._prepared.add(device_id)


# table, tiles, n_rows, n_points, tiles_per_row, and two pointers of Triton's.
_TYPES = (
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32,
    ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip


def load(kernel: GpuKernel, variant: Variant, capability: int, block: int) -> LoadedKernel:
    """A variant of a kernel for an architecture: from memory, or compiled and loaded now."""
    key = (kernel, variant, capability, block)
    found = _loaded.get(key)
    if found is None:
        import_triton()
        from triton.backends.compiler import GPUTarget

        compiled = kernel.compile(variant, GPUTarget("cuda", capability, 32), block)
        with _loading:
            found = _loaded.get(key)
            if found is None:
                found = _loaded[key] = LoadedKernel(compiled)
    return found


class _Staged:
    """A piece of pinned host memory from which the GPU copies."""

    __slots__ = ("_owner", "address", "array")

    def __init__(self, nbytes: int) -> None:
        self._owner = driver.core().LegacyPinnedMemoryResource().allocate(nbytes)
        self.address = int(self._owner.handle)
        self.array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(self.address))


class _Staging:
    """Pinned memory that is used again: the driver takes long to pin some."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._free: dict[int, list[_Staged]] = {}

    def take(self, nbytes: int) -> _Staged:
        size = 1 << (max(nbytes, MIN_STAGED) - 1).bit_length()
        free = self._free.setdefault(size, [])
        return free.pop() if free else _Staged(size)

    def give_back(self, staged: _Staged) -> None:
        self._free[len(staged.array)].append(staged)
