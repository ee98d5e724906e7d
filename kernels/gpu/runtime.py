"""Kernels and tables → memory, copies and launches of one GPU on one stream, real or simulated.

NOTE [simulation] A real and a simulated GPU run the same generated source. A real launch compiles
it (cuda.py). A simulated launch interprets it on the stream's thread, with host memory in place of
device memory (simulated.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..common import trace
from ..common.buffers import POOL
from ..ir import dtypes as dt
from ..ir.dtypes import DType
from ..ir.expr import Expr
from ..ir.spec import Access, KernelSpec
from .cuda import CudaGpu
from .kernel import Array, GpuKernel, Launch, get_kernel
from .simulated import SimulatedGpu
from .streams import Stream
from .triton_cache import import_triton

ROW_ALIGN = 64
# Samples within one block of memory are copied at once if the gaps between them are at most this
# fraction of their size.
MAX_GAPS = 0.25

# Launches of groups since import, each with the small kernel that prepares it; tests assert on it.
launch_count = 0


class Memory(Protocol):
    """A block of device memory, which lives as long as this object."""

    address: int
    nbytes: int


class GpuDevice(Protocol):
    """The interface of a real and of a simulated GPU."""

    def take(self, nbytes: int) -> Memory: ...
    def block_for(self, table: Array, kernel: GpuKernel) -> int: ...
    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None: ...
    def copy(self, runs: list[tuple[int, int, int]], alive: list[Any]) -> None: ...
    def synchronize(self) -> None: ...
    def is_using(self, owners: list[Any]) -> bool: ...


class GpuRuntime:
    """Memory, copies and launches of one GPU on one stream."""

    def __init__(self, device_id: int, stream: Stream, allocator: Any = None) -> None:
        self.device_id = device_id
        self.stream = stream
        self._constants: dict[int, tuple[Array, Memory]] = {}
        self._device: GpuDevice = (
            SimulatedGpu(stream) if stream.is_simulated else CudaGpu(device_id, stream, allocator)
        )

    def wait_for(self, other: GpuRuntime) -> None:
        """Let later work of this stream run after the work that `other` has submitted so far."""
        if other is not self:
            self.stream.wait_event(other.stream.record_event())

    def get_kernel(self, spec: KernelSpec) -> GpuKernel:
        """The kernel of a spec; raises an error if Triton is not installed."""
        import_triton()
        return get_kernel(spec)

    def take(self, nbytes: int) -> Memory:
        """Uninitialised device memory."""
        return self._device.take(nbytes)

    def constant(self, array: Array) -> int:
        """Address of a device copy of a host array, made on first use."""
        found = self._constants.get(id(array))
        if found is None:
            memory = self.take(array.nbytes)
            self._device.copy([(memory.address, array.ctypes.data, array.nbytes)], [memory])
            self.synchronize()
            found = self._constants[id(array)] = (array, memory)
        return found[1].address

    def launch(self, kernel: GpuKernel, spec: KernelSpec, table: Array, alive: list[Any]) -> None:
        """Run a kernel over all rows of a table, in stream order, and keep `alive` until then."""
        global launch_count
        plan = kernel.plan(table, self._device.block_for(table, kernel))
        if plan is None:
            return
        launch_count += 1
        if kernel.prepare is not None:
            more, memory = kernel.prepare(table, self)
            table, alive = np.hstack([table, more]), [*alive, memory]
        self._device.launch(kernel, plan, np.ascontiguousarray(table), alive)

    def prepare(self, spec: KernelSpec, table: Array, alive: list[Any]) -> None:
        """Run a small kernel that fills a table for the next launch, as a part of it."""
        kernel = get_kernel(spec)
        plan = kernel.plan(table, self._device.block_for(table, kernel))
        assert plan is not None, spec.ops
        self._device.launch(kernel, plan, np.ascontiguousarray(table), alive)

    def copy(self, node: Any, source: Any, storage: Any) -> Any:
        """A packed copy of all samples in the memory of `node.device`; blocks if that is the host.

        `node` and `source` are nodes of the graph; `storage` is the value of `source`.
        """
        to_host = node.device is None
        if storage.strides is not None:
            storage = self._packed(source, storage)
        sizes = source.shapes.sizes(source.dtype.bytes)
        take = POOL.take if to_host else self.take
        runs, copied = _plan_copy(sizes, source.shapes.uniform, storage, take)
        self._device.copy(runs, [*storage.owners(), copied.owner])
        # External memory may change as soon as this call returns.
        if to_host or storage.external:
            self.synchronize()
        return copied

    def move(self, copies: list[tuple[int, int, int]], alive: list[Any]) -> None:
        """Copy (target, source, bytes) in stream order, and keep `alive` until then."""
        self._device.copy(copies, alive)

    def _packed(self, source: Any, storage: Any) -> Any:
        """Gather strided device memory into packed memory, by a kernel."""
        rank = source.shapes.rank
        spec = _gather(source.dtype, rank)
        sizes = source.shapes.sizes(source.dtype.bytes)
        packed = _allocate(sizes, source.shapes.uniform, self.take, type(storage))
        table = np.empty((len(storage.addresses), len(spec.columns)), np.int64)
        place = spec.columns
        table[:, place["out", 0]] = packed.addresses
        table[:, place["in", 0]] = storage.addresses
        for a in range(rank):
            table[:, place["n", a]] = source.shapes.rows[:, a]
            table[:, place["in_stride", 0, a]] = storage.strides[:, a]
            table[:, place["out_stride", 0, a]] = source.shapes.strides[:, a]
        self.launch(self.get_kernel(spec), spec, table, [*storage.owners(), packed.owner])
        return packed

    def is_using(self, owners: list[Any]) -> bool:
        """Whether work that was submitted and has not ended reads or writes memory of these."""
        return self._device.is_using(owners)

    def synchronize(self) -> None:
        """Wait for all work submitted so far, and raise its error if it failed."""
        if trace.active:
            trace.during(trace.begin("stall", "synchronize"), self._device.synchronize)
        else:
            self._device.synchronize()


def _gather(dtype: DType, rank: int) -> KernelSpec:
    strides = (None,) * rank
    # Booleans are copied as bytes, to keep their exact bits.
    exact = dt.uint8 if dtype is dt.bool_ else dtype
    access = Access(exact, strides)
    value = Expr("load", exact, (), 0)
    return KernelSpec(("contiguous",), strides, (access,), (access,), (value,))


def _allocate(sizes: Array, uniform: bool, take: Callable[[int], Any], make: Any) -> Any:
    """Storage for samples of `sizes` bytes: dense if they are `uniform`, else each aligned."""
    room = sizes if uniform else -(-sizes // ROW_ALIGN) * ROW_ALIGN
    ends = np.cumsum(room)
    memory = take(int(ends[-1]) if len(ends) else 0)
    return make(memory.address + ends - room, memory, dense=uniform)


def _plan_copy(
    sizes: Array, uniform: bool, storage: Any, take: Callable[[int], Any]
) -> tuple[list[tuple[int, int, int]], Any]:
    """The runs to copy, as (destination, source, bytes), and the storage that they fill."""
    total, make = int(sizes.sum()), type(storage)
    if total:
        filled = sizes > 0
        first = int(storage.addresses[filled].min())
        span = int((storage.addresses + sizes)[filled].max()) - first
        is_block = storage.dense or _covers(storage.owner, first, span)
        if is_block and span <= total * (1 + MAX_GAPS):
            memory = take(span)
            moved = np.where(filled, storage.addresses - first, 0) + memory.address
            copied = make(moved, memory, dense=storage.dense)
            return [(memory.address, first, span)], copied
    copied = _allocate(sizes, uniform, take, make)
    runs = zip(copied.addresses.tolist(), storage.addresses.tolist(), sizes.tolist())
    return [r for r in runs if r[2]], copied


def _covers(owner: Any, first: int, nbytes: int) -> bool:
    """Whether an owner is known to own the whole range, including the gaps between samples."""
    start, size = getattr(owner, "address", None), getattr(owner, "nbytes", None)
    if not isinstance(start, int) or not isinstance(size, int):
        return False
    return start <= first and first + nbytes <= start + size
