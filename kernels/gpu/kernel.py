"""KernelSpec → a Triton kernel: its source, its compiled variants, and its launch over a table."""

from __future__ import annotations

import linecache
import os
from typing import Any, NamedTuple

import numpy as np

from ..common import background, forks, trace
from ..common.disk_cache import cache_dir, digest, write_atomically
from ..common.memo import Memo, made_once
from ..cpu.runtime import kernel_name
from ..ir import dtypes as dt
from ..ir.expr import op_cost, walk
from ..ir.spec import KernelSpec
from . import render, triton_cache
from .cores import NUM_WARPS, GpuCore, Preparation
from .marks import MarkTables, marks_of
from .triton_cache import import_triton

Array = np.ndarray[Any, Any]

# Points of one program. In a flat kernel each thread loads 8 bytes at once. A kernel that unrolls
# channels computes several values per point, and twice the points only lower its occupancy
# (gpu/cubin.py, HWC u8 → CHW f32 on sm_90: 278 instructions and occupancy .75 at 512 points,
# 528 and .56 at 1024).
FLAT_BLOCK = 1024
UNROLLED_BLOCK = 512
# Kernels that compute positions have one pixel per thread: a bilinear warp takes 32 registers at
# 128 points, 48 at 256 and 72 at 512 (modelled occupancy on sm_90: 1.0, .63, .44). Random numbers
# need many registers too: normal noise on three channels takes 58 at 128 points and 100 at 512.
COMPUTED_BLOCK = 128
# Maths in float64 takes two registers per number. log(exp(x) + 1) takes 100, 60 and 39 registers at
# 1024, 512 and 256 points (modelled occupancy on sm_80: .25, .50, .75); sin, cos and atan2 in one
# kernel take 128, 68 and 44; `box_encoder(offset=True)` 160 and 62 at 1024 and 256. With two points
# per thread, float32 is still loaded 8 bytes at once.
DOUBLE_BLOCK, DOUBLE_COST = 256, 16
# Samples of equal size share programs if each would fill less than this part of a program.
PACKED_FILL = 0.5

_lock = forks.foreign_lock()  # held while Triton compiles, so a fork waits for it
_kernels: Memo[KernelSpec, GpuKernel] = Memo("GPU kernels", 4096)
_plans: Memo[tuple[Any, ...], Any] = Memo("GPU launches", 1024)  # Launch, or None
_UNPLANNED = object()
_REACHING = ("_stride", "_first", "_reach")  # columns that say how far offsets go
compile_count = 0  # kernels compiled by this process; tests assert on it


class Variant(NamedTuple):
    """The properties of a launch that are compiled into the kernel; none of them is a size."""

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
    """A generated kernel: its source, its functions for compiler and interpreter, its launches."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = kernel_name(spec, render.render(spec, "kernel"))
        self.source = render.render(spec, self.name)
        self.source_path = cache_dir() / "gpu" / f"{self.name}.py"
        core = None if spec.core is None else spec.core.gpu_renderer()
        self._renderer = core or GpuCore
        # Computes what a launch needs besides its table.
        marks = marks_of(spec)
        self.prepare: Preparation | None = None
        if core is not None and core.prepared_columns(spec):
            self.prepare = core.preparation(spec)
        elif marks is not None:
            self.prepare = MarkTables(spec, marks)
        self.block = block_of(spec)
        sizes = self._renderer.sizes(spec)
        # What a plan depends on, besides the alignment of addresses.
        self._deciding = [
            k for c, k in spec.columns.items() if c in sizes or str(c[0]).endswith(_REACHING)
        ]
        self._compiled: dict[tuple[Any, ...], Any] = {}
        if "codegen" in os.environ.get("NDD_DEBUG", ""):
            print(self.source)
        if not self.source_path.exists():
            write_atomically(self.source_path, self.source.encode())
        # Triton reads the source through linecache, so this works even if the file is missing.
        path = str(self.source_path)
        lines = self.source.splitlines(keepends=True)
        linecache.cache[path] = (len(self.source), None, lines, path)

    @made_once
    def jit(self) -> Any:
        """The function for Triton's compiler, even if TRITON_INTERPRET is set."""
        triton = import_triton()
        found = self._function()
        if isinstance(found, triton.JITFunction):
            return found
        integers = ["table", "tiles", "n_rows", "n_points", "tiles_per_row"]
        return triton.JITFunction(found.fn, do_not_specialize=integers)

    @made_once
    def interpreted(self) -> Any:
        """The function for the interpreter, with its own namespace: the interpreter modifies it."""
        import_triton()
        from triton.runtime.interpreter import InterpretedFunction

        return InterpretedFunction(self._function().fn)

    def _function(self) -> Any:
        namespace: dict[str, Any] = {"__name__": f"ndd_generated.{self.name}"}
        exec(compile(self.source, str(self.source_path), "exec"), namespace)
        return namespace[self.name]

    def compile(self, variant: Variant, target: Any, block: int) -> Any:
        """The compiled kernel of a variant: from memory, from Triton's disk cache, or made now."""
        key = (variant, target.arch, block)
        found = self._compiled.get(key)
        if found is not None:
            return found
        how = self._made, key, variant, target, block
        if trace.active:
            return trace.during(trace.begin("compile", self.name), background.uninterrupted, *how)
        return background.uninterrupted(*how)

    def _made(self, key: tuple[Any, ...], *how: Any) -> Any:
        """The compiled kernel of a variant, made by the first thread that asks for it."""
        with _lock:
            found = self._compiled.get(key)
            if found is None:
                found = self._compiled[key] = self._compile(*how)
            return found

    def _compile(self, variant: Variant, target: Any, block: int) -> Any:
        global compile_count
        compile_count += 1
        triton = import_triton()
        from triton.compiler import ASTSource

        types = {"table": "i64", "tiles": "i64", "n_rows": "i32", "n_points": "i64"}
        names = ("BLOCK", "GRID", "WIDE", "ALIGNED")
        signature = {**types, "tiles_per_row": "i32", **dict.fromkeys(names, "constexpr")}
        constants = dict(zip(names, (block, *variant)))
        source = ASTSource(self.jit, signature, constants)
        # No fusion: contraction to fma would change the last bits of results. No flushing either:
        # by default, compiled `floor` and `ceil` turn denormals into zeros (cvt.rmi.ftz).
        options = {"num_warps": warps_of(self.spec), "enable_fp_fusion": False}
        options["enable_reflect_ftz"] = False
        if self.spec.core is not None:
            options |= self.spec.core.gpu_renderer().options(self.spec)
        name = f"{self.name}.{digest(repr((variant, target, block, options)))}"
        return triton_cache.call(triton.compile, source, target, options, name=name)

    # -- how to launch -------------------------------------------------------------------------

    def plan(self, table: Array, block: int) -> Launch | None:
        """How to launch over the rows of a table; None if there is nothing to do.

        A table of the same sizes and strides, as the next batch often has, has the same plan.
        """
        aligned = self._is_aligned(table)
        key = (self, block, aligned, len(table), table[:, self._deciding].tobytes())
        found = _plans.get(key, _UNPLANNED)
        if found is _UNPLANNED:
            found = _plans[key] = self._plan(table, block, aligned)
        planned: Launch | None = found
        return planned

    def _plan(self, table: Array, block: int, aligned: bool) -> Launch | None:
        count = len(table)
        sizes = self.points(table)
        largest = int(sizes.max(initial=0))
        if largest == 0:
            return None
        positions = largest + block
        tiles = None
        tiles_per_row = -(-largest // block)
        if count == 1 or bool((sizes == largest).all()):
            small = not self.spec.loop_axes or (count > 1 and largest < PACKED_FILL * block)
            # A core reads the numbers of one sample, so its programs must not span several.
            if small and self.spec.core is None:
                grid, positions = "packed", count * largest + block
                programs = -(-count * largest // block)
            else:
                grid, programs = "uniform", count * tiles_per_row
        else:
            grid, tiles = "ragged", tile_map(sizes, block)
            programs = len(tiles)
        wide = positions >= 1 << 31 or self._reach(table) >= 1 << 31
        variant = Variant(grid, wide, grid != "packed" and aligned)
        return Launch(variant, block, programs, largest, tiles_per_row, tiles)

    def points(self, table: Array) -> Array:
        """How many points each row of a table has."""
        return self._renderer.points(self.spec, table)

    @made_once
    def _aligned_columns(self) -> list[int] | None:
        if not render.is_flat(self.spec):
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
                if len(access.strides) > len(extents):  # an operand read at computed positions
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
    if any(e.op in ("fetch", "call", "stepped") for e in walk(spec.values)):
        return COMPUTED_BLOCK
    if len(spec.static_points) > 1:
        return UNROLLED_BLOCK
    return DOUBLE_BLOCK if _computes_in_double(spec) else FLAT_BLOCK


def _computes_in_double(spec: KernelSpec) -> bool:
    """Whether values need more than a few operations in float64, as remainders of floats do."""
    found = [e for e in walk(spec.values) if e.op == "fmod" or (e.args and e.dtype is dt.float64)]
    return sum(map(op_cost, found)) >= DOUBLE_COST


def warps_of(spec: KernelSpec) -> int:
    """Warps of one program on a real GPU."""
    return NUM_WARPS if spec.core is None else spec.core.gpu_renderer().num_warps


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
