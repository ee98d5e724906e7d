"""Triton source → launches on a stream: of a real GPU, or of a simulated one.

NOTE [simulation] The same generated text runs in both worlds. A real launch compiles it; a
simulated one interprets it on the stream's thread, on host memory that stands for device memory.
Triton, CuPy and PyTorch are imported at first use, never when this module is.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import linecache
import os
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..common import trace
from ..common.buffers import POOL
from ..common.disk_cache import cache_dir, write_atomically
from ..common.memo import Memo
from ..cpu.runtime import kernel_name
from ..ir import dtypes as dt
from ..ir.dtypes import DType
from ..ir.expr import Expr, walk
from ..ir.spec import Access, KernelSpec
from . import env as gpu_env
from . import render as gpu
from .streams import Event, Stream

Array = np.ndarray[Any, Any]

# Points of one program and its warps. A flat kernel loads 8 bytes a thread at once; one that
# unrolls channels computes several values per point, and twice the points only cost occupancy
# (gpu/cubin.py, HWC u8 → CHW f32 on sm_90: 278 instructions and occupancy .75 at 512 points,
# 528 and .56 at 1024).
FLAT_BLOCK = 1024
UNROLLED_BLOCK = 512
# One pixel for each thread where positions are computed: a bilinear warp takes 32 registers at 128
# points, 48 at 256 and 72 at 512 (modelled occupancy on sm_90 1.0, .63, .44). Random numbers take
# many, too: normal noise on three channels 58 at 128 points, and 100 at 512.
COMPUTED_BLOCK = 128
NUM_WARPS = 4
# The interpreter takes milliseconds per program whatever its size: it gets large ones.
SIMULATED_BLOCK = 65536
# Samples of one size that fill less than this part of a program share programs.
PACKED_FILL = 0.5
ROW_ALIGN = 64
# Sources that lie in one block are copied at once if at most this part of it is not theirs.
MAX_GAPS = 0.25

_lock = threading.Lock()
_interpreting = threading.Lock()  # the interpreter patches triton.language while it runs
_kernels: Memo[KernelSpec, GpuKernel] = Memo("GPU kernels", 4096)
launch_count = 0  # launches since import, and
compile_count = 0  # kernels compiled by this process; tests assert on both


def _after_fork() -> None:
    global _lock, _interpreting
    _lock, _interpreting = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Memory(Protocol):
    """A block of device memory, kept by whoever holds the object."""

    address: int
    nbytes: int


# -- kernels ---------------------------------------------------------------------------------------


class Variant(NamedTuple):
    """What of a launch is compiled into the kernel; none of it is a size."""

    grid: str  # uniform, ragged or packed
    wide: bool
    aligned: bool


class Launch(NamedTuple):
    """One launch of a kernel over a table."""

    variant: Variant
    block: int
    programs: int
    n_points: int
    tiles_per_row: int
    tiles: Array | None


class GpuKernel:
    """A generated kernel: its source, and the ways to run it."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = kernel_name(spec, gpu.render(spec, "kernel"))
        self.source = gpu.render(spec, self.name)
        self.source_path = cache_dir() / "gpu" / f"{self.name}.py"
        self._compiled: dict[tuple[Any, ...], Any] = {}
        if "codegen" in os.environ.get("NDD_DEBUG", ""):
            print(self.source)
        if not self.source_path.exists():
            write_atomically(self.source_path, self.source.encode())
        # Triton reads the text through linecache, even if the file could not be written.
        path = str(self.source_path)
        lines = self.source.splitlines(keepends=True)
        linecache.cache[path] = (len(self.source), None, lines, path)

    @cached_property
    def jit(self) -> Any:
        """The function for the compiler, whatever TRITON_INTERPRET says."""
        triton = import_triton()
        found = self._function()
        if isinstance(found, triton.JITFunction):
            return found
        integers = ["table", "tiles", "n_rows", "n_points", "tiles_per_row"]
        return triton.JITFunction(found.fn, do_not_specialize=integers)

    @cached_property
    def interpreted(self) -> Any:
        """The function for the interpreter, which writes into the namespace of what it runs."""
        import_triton()
        from triton.runtime.interpreter import InterpretedFunction

        return InterpretedFunction(self._function().fn)

    def _function(self) -> Any:
        namespace: dict[str, Any] = {"__name__": f"ndd_generated.{self.name}"}
        exec(compile(self.source, str(self.source_path), "exec"), namespace)
        return namespace[self.name]

    def compile(self, variant: Variant, target: Any, block: int, num_warps: int) -> Any:
        """Triton's compiled kernel of a variant, from memory, from its disk cache, or made now."""
        key = (variant, target.arch, block, num_warps)
        found = self._compiled.get(key)
        if found is None:
            with _lock:
                found = self._compiled.get(key)
                if found is None:
                    found = self._compiled[key] = self._make(variant, target, block, num_warps)
        return found

    def _make(self, *how: Any) -> Any:
        if trace.active:
            return trace.during(trace.begin("compile", self.name), self._compile, *how)
        return self._compile(*how)

    def _compile(self, variant: Variant, target: Any, block: int, num_warps: int) -> Any:
        global compile_count
        compile_count += 1
        triton = import_triton()
        from triton.compiler import ASTSource

        types = {"table": "i64", "tiles": "i64", "n_rows": "i32", "n_points": "i64"}
        names = ("BLOCK", "GRID", "WIDE", "ALIGNED")
        signature = {**types, "tiles_per_row": "i32", **dict.fromkeys(names, "constexpr")}
        constants = dict(zip(names, (block, *variant)))
        source = ASTSource(self.jit, signature, constants)
        # Contraction to fma would change bits.
        options = {"num_warps": num_warps, "enable_fp_fusion": False}
        if self.spec.core is not None:
            options |= self.spec.core.gpu_renderer().options(self.spec)
        with _interpreting, triton.knobs.cache.scope():
            if triton.knobs.getenv("TRITON_CACHE_DIR") is None:
                triton.knobs.cache.dir = str(self.source_path.parent / "triton")
            return triton.compile(source, target=target, options=options)

    # -- what a table asks for -----------------------------------------------------------------

    def plan(self, table: Array, block: int) -> Launch | None:
        """How to launch over the rows of a table; None if there is nothing to do."""
        count = len(table)
        sizes = table[:, self._size_columns].prod(axis=1)
        largest = int(sizes.max(initial=0))
        if largest == 0:
            return None
        positions = largest + block
        tiles = None
        tiles_per_row = -(-largest // block)
        if count == 1 or bool((sizes == largest).all()):
            small = not self.spec.loop_axes or (count > 1 and largest < PACKED_FILL * block)
            # a core works with numbers of one sample: a program must not span several
            if small and self.spec.core is None:
                grid, positions = "packed", count * largest + block
                programs = -(-count * largest // block)
            else:
                grid, programs = "uniform", count * tiles_per_row
        else:
            grid, tiles = "ragged", tile_map(sizes, block)
            programs = len(tiles)
        wide = positions >= 1 << 31 or self._reach(table) >= 1 << 31
        aligned = grid != "packed" and self._is_aligned(table)
        return Launch(Variant(grid, wide, aligned), block, programs, largest, tiles_per_row, tiles)

    @cached_property
    def _size_columns(self) -> list[int]:
        return [self.spec.columns["n", a] for a in self.spec.loop_axes]

    @cached_property
    def _aligned_columns(self) -> list[int] | None:
        if not gpu.is_flat(self.spec):
            return None
        place = self.spec.columns
        operands = [(("out", k), a) for k, a in enumerate(self.spec.stores)]
        operands += [(("in", k), a) for k, a in enumerate(self.spec.loads)]
        return [place[column] for column, a in operands if not a.is_scalar]

    def _is_aligned(self, table: Array) -> bool:
        columns = self._aligned_columns
        return columns is not None and not (table[:, columns] & 15).any()

    def _reach(self, table: Array) -> int:
        """A bound for the largest offset, in elements, that the kernel computes."""
        place, extents = self.spec.columns, self.spec.extents
        reach = 0
        for kind, accesses in (("out", self.spec.stores), ("in", self.spec.loads)):
            for k, access in enumerate(accesses):
                total: Any = np.abs(table[:, place[f"{kind}_first", k]]) if access.guarded else 0
                if len(access.strides) > len(extents):  # read at computed positions
                    reach = max(reach, int(table[:, place[f"{kind}_reach", k]].max(initial=0)))
                    continue
                for a, stride in enumerate(access.strides):
                    if stride == 0:
                        continue
                    n = table[:, place["n", a]] if extents[a] is None else extents[a]
                    by = table[:, place[f"{kind}_stride", k, a]] if stride is None else stride
                    total = total + np.abs(by) * n
                reach = max(reach, int(np.max(total, initial=0)))
        return reach


def block_of(spec: KernelSpec) -> int:
    """Points of one program on a real GPU."""
    own = None if spec.core is None else spec.core.gpu_renderer().block
    if own is not None:
        return own
    if any(e.op in ("fetch", "call") for e in walk(spec.values)):
        return COMPUTED_BLOCK
    return FLAT_BLOCK if len(spec.static_points) == 1 else UNROLLED_BLOCK


def tile_map(sizes: Array, block: int) -> Array:
    """Pairs (row, tile) for every tile of every row, int32."""
    counts = -(-sizes // block)
    tiles = np.empty((int(counts.sum()), 2), np.int32)
    tiles[:, 0] = np.repeat(np.arange(len(sizes)), counts)
    first = np.cumsum(counts) - counts
    tiles[:, 1] = np.arange(len(tiles)) - np.repeat(first, counts)
    return tiles


def get_kernel(spec: KernelSpec) -> GpuKernel:
    """The kernel of a spec, from memory or generated now."""
    found = _kernels.get(spec)
    if found is None:
        with _lock:
            found = _kernels.get(spec)
            if found is None:
                found = _kernels[spec] = GpuKernel(spec)
    return found


def import_triton() -> Any:
    """Triton, or the one error that says how to get it."""
    try:
        import triton
    except ImportError:
        raise RuntimeError(
            'device="gpu" needs Triton, also if simulated: pip install "ndd-fusion[gpu]"'
        ) from None
    return triton


# -- devices ---------------------------------------------------------------------------------------


class GpuRuntime:
    """Memory, copies and launches of one GPU on one stream."""

    def __init__(self, device_id: int, stream: Stream) -> None:
        self.device_id = device_id
        self.stream = stream
        self._constants: dict[int, tuple[Array, Memory]] = {}
        self._device: _Device = (
            _Simulated(stream) if stream.is_simulated else _Cuda(device_id, stream)
        )

    def get_kernel(self, spec: KernelSpec) -> GpuKernel:
        """The kernel of a spec; an error if this machine cannot run it."""
        import_triton()
        return get_kernel(spec)

    def take(self, nbytes: int) -> Memory:
        """Device memory with arbitrary content."""
        return self._device.take(nbytes)

    def constant(self, array: Array) -> int:
        """Address of a copy of a host array, made once."""
        found = self._constants.get(id(array))
        if found is None:
            memory = self.take(array.nbytes)
            self._device.copy([(memory.address, array.ctypes.data, array.nbytes)], [memory])
            self.synchronize()
            found = self._constants[id(array)] = (array, memory)
        return found[1].address

    def launch(self, kernel: GpuKernel, spec: KernelSpec, table: Array, alive: list[Any]) -> None:
        """Run a kernel over all rows of a table, in stream order; `alive` outlives the run."""
        global launch_count
        plan = kernel.plan(table, self._device.block_for(table, kernel))
        if plan is None:
            return
        launch_count += 1
        self._device.launch(kernel, plan, np.ascontiguousarray(table), alive)

    def copy(self, node: Any, source: Any, storage: Any) -> Any:
        """A packed copy of all samples in the memory of `node.device`; a host copy is complete.

        `node` and `source` are nodes of the graph, `storage` the source's (possibly packed) value.
        """
        to_host = node.device is None
        if storage.strides is not None:
            storage = self._packed(source, storage)
        sizes = source.shapes.volumes * source.dtype.bytes
        take = POOL.take if to_host else self.take
        runs, copied = _plan_copy(sizes, source.shapes.uniform, storage, take)
        self._device.copy(runs, [storage.owner, copied.owner])
        # memory that is not ours may change as soon as the call returns
        if to_host or storage.external:
            self.synchronize()
        return copied

    def _packed(self, source: Any, storage: Any) -> Any:
        """Strided device memory, gathered by a kernel of our own."""
        rank = source.shapes.rank
        spec = _gather(source.dtype, rank)
        sizes = source.shapes.volumes * source.dtype.bytes
        packed = _allocate(sizes, source.shapes.uniform, self.take, type(storage))
        table = np.empty((len(storage.addresses), len(spec.columns)), np.int64)
        place = spec.columns
        table[:, place["out", 0]] = packed.addresses
        table[:, place["in", 0]] = storage.addresses
        for a in range(rank):
            table[:, place["n", a]] = source.shapes.rows[:, a]
            table[:, place["in_stride", 0, a]] = storage.strides[:, a]
            table[:, place["out_stride", 0, a]] = source.shapes.strides[:, a]
        self.launch(self.get_kernel(spec), spec, table, [storage.owner, packed.owner])
        return packed

    def synchronize(self) -> None:
        """Wait for all work submitted so far; raise its error."""
        if trace.active:
            trace.during(trace.begin("stall", "synchronize"), self._device.synchronize)
        else:
            self._device.synchronize()


def _gather(dtype: DType, rank: int) -> KernelSpec:
    strides = (None,) * rank
    # bytes, so that a copy of booleans is exact too
    exact = dt.uint8 if dtype is dt.bool_ else dtype
    access = Access(exact, strides)
    value = Expr("load", exact, (), 0)
    return KernelSpec(("contiguous",), strides, (access,), (access,), (value,))


def _allocate(sizes: Array, uniform: bool, take: Callable[[int], Any], make: Any) -> Any:
    """Storage for samples of these sizes in bytes: dense if they are alike, else each aligned."""
    room = sizes if uniform else -(-sizes // ROW_ALIGN) * ROW_ALIGN
    ends = np.cumsum(room)
    memory = take(int(ends[-1]) if len(ends) else 0)
    return make(memory.address + ends - room, memory, dense=uniform)


def _plan_copy(
    sizes: Array, uniform: bool, storage: Any, take: Callable[[int], Any]
) -> tuple[list[tuple[int, int, int]], Any]:
    """(destination, source, bytes) of every run to copy, and the storage that they fill."""
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
    """Whether an owner is known to have the whole range, gaps between samples included."""
    start, size = getattr(owner, "address", None), getattr(owner, "nbytes", None)
    if not isinstance(start, int) or not isinstance(size, int):
        return False
    return start <= first and first + nbytes <= start + size


class _Device(Protocol):
    def take(self, nbytes: int) -> Memory: ...
    def block_for(self, table: Array, kernel: GpuKernel) -> int: ...
    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None: ...
    def copy(self, runs: list[tuple[int, int, int]], alive: list[Any]) -> None: ...
    def synchronize(self) -> None: ...


# -- simulation ------------------------------------------------------------------------------------


class _Simulated:
    """Host memory and Triton's interpreter, in the order of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def take(self, nbytes: int) -> Memory:
        return POOL.take(nbytes)

    def block_for(self, table: Array, kernel: GpuKernel) -> int:
        # A small batch need not fill a large tile with masked lanes.
        points = int(table[:, kernel._size_columns].prod(axis=1).sum())
        return min(SIMULATED_BLOCK, max(128, 1 << (max(points, 1) - 1).bit_length()))

    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None:
        interpreted = kernel.interpreted

        def run() -> None:
            interpret(interpreted, plan, table)
            alive.clear()

        alive = [*alive, table]
        self._stream.submit(run)

    def copy(self, runs: list[tuple[int, int, int]], alive: list[Any]) -> None:
        import ctypes

        def run() -> None:
            for to, source, nbytes in runs:
                ctypes.memmove(to, source, nbytes)
            alive.clear()

        self._stream.submit(run)

    def synchronize(self) -> None:
        self._stream.synchronize()


def interpret(function: Any, plan: Launch, table: Array) -> None:
    """Run a kernel in Triton's interpreter, here and now."""
    import triton.language as tl
    from triton.runtime import interpreter

    def scalar(value: int, dtype: Any, held: Any) -> Any:
        # made here, because the interpreter types a Python number by its value
        return tl.tensor(interpreter.TensorHandle(np.array([value], held), dtype), dtype)

    tiles = 0 if plan.tiles is None else plan.tiles.ctypes.data
    arguments = (
        scalar(table.ctypes.data, tl.int64, np.int64), scalar(tiles, tl.int64, np.int64),
        scalar(len(table), tl.int32, np.int32), scalar(plan.n_points, tl.int64, np.int64),
        scalar(plan.tiles_per_row, tl.int32, np.int32),
    )  # fmt: skip
    builder = interpreter.interpreter_builder

    def binary_op(lhs: Any, rhs: Any, op: Any) -> Any:
        # The interpreter types a comparison like its operands, so that a scalar one spread over
        # lanes became an integer, and no mask.
        result = type(builder).binary_op(builder, lhs, rhs, op)
        is_bool = result.data.dtype == np.bool_
        return interpreter.TensorHandle(result.data, tl.int1) if is_bool else result

    with _interpreting, np.errstate(all="ignore"):
        options = builder.options
        # Integers wrap here; the check would only cost time (it computes everything twice).
        builder.options = dataclasses.replace(options, sanitize_overflow=False)
        builder.binary_op = binary_op
        try:
            function[(plan.programs,)](*arguments, plan.block, *plan.variant)
        finally:
            builder.options = options
            del builder.binary_op


# -- CUDA ------------------------------------------------------------------------------------------


class _Cuda:
    """A real GPU. Memory comes from CuPy's pool, or else from PyTorch's."""

    def __init__(self, device_id: int, stream: Stream) -> None:
        self._device_id = device_id
        self._stream = stream
        self._memory = _memory_of(device_id, stream)
        self._running: collections.deque[tuple[Event, list[Any]]] = collections.deque()
        self._launching = threading.Lock()

    def take(self, nbytes: int) -> Memory:
        return self._memory.take(nbytes)

    def block_for(self, table: Array, kernel: GpuKernel) -> int:
        return block_of(kernel.spec)

    def launch(self, kernel: GpuKernel, plan: Launch, table: Array, alive: list[Any]) -> None:
        from triton.runtime import driver

        with self._launching, self._memory.current():
            target = driver.active.get_current_target()
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

    def _keep(self, alive: list[Any]) -> None:
        """Hold objects until the stream has passed this point."""
        while self._running and self._running[0][0].query():
            self._running.popleft()
        self._running.append((self._stream.record_event(), alive))


class _Block:
    """Memory of a framework's pool, with the address at hand."""

    __slots__ = ("_owner", "address", "array", "nbytes")

    def __init__(self, owner: Any, address: int, nbytes: int, array: Any = None) -> None:
        self._owner = owner
        self.address = address
        self.nbytes = nbytes
        self.array = array


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
    """PyTorch's caching allocator; copies through the CUDA runtime that PyTorch has loaded."""

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
        import ctypes

        # With unified addresses the driver knows on which side of the bus each one lies.
        driver = ctypes.CDLL("libcuda.so.1")
        status = driver.cuMemcpyAsync(
            ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(nbytes),
            ctypes.c_void_p(self._stream.cuda_stream),
        )  # fmt: skip
        if status != 0:
            raise RuntimeError(f"cuMemcpyAsync of {nbytes} bytes failed with CUDA error {status}")


def _memory_of(device_id: int, stream: Stream) -> _CupyMemory | _TorchMemory:
    gpu_env.cuda()  # the one error if neither is installed
    try:
        import cupy
    except ImportError:
        import torch

        return _TorchMemory(torch, device_id, stream)
    return _CupyMemory(cupy, device_id, stream)
