"""`ndd.kernel_report(x)`: a handle enters, figures from the machine code of its kernels leave."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.handle import Handle, lock_of
from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..fusion.graph.storage import Storage
from ..fusion.plan.planner import PLANNER
from ..fusion.plan.program import Program, collect
from ..fusion.plan.steps import KernelStep, Plan
from ..fusion.run.binder import Binder
from ..fusion.run.executor import fusion_enabled
from ..fusion.run.regions import regions_of
from ..fusion.run.watch import lines_of
from ..kernels.gpu import cubin
from ..kernels.gpu.kernel import GpuKernel, Launch
from ..kernels.ir.expr import cost
from ..kernels.ir.spec import KernelSpec
from .explain import counted


class Gpu(NamedTuple):
    """A GPU as its data sheet describes it."""

    name: str
    arch: int
    gbytes_per_s: float  # of its memory
    tflops: float  # float32 at boost clock; a multiply-add counts as two

    @property
    def operations_per_s(self) -> float:
        """Half of the peak: our kernels use no multiply-adds, because these would change bits."""
        return self.tflops * 1e12 / 2

    @property
    def ridge(self) -> float:
        """Operations per byte at which memory and arithmetic take equally long."""
        return self.operations_per_s / (self.gbytes_per_s * 1e9)


# From NVIDIA's data sheets, and for GeForce from the architecture white papers.
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("A100", 80, 2039, 19.5),  # SXM, 80 GB
        Gpu("L4", 89, 300, 30.3),
        Gpu("RTX 4090", 89, 1008, 82.6),
        Gpu("H100", 90, 3350, 67),  # SXM, 80 GB
        Gpu("RTX 5090", 120, 1792, 104.8),
    )
}


@dataclass(frozen=True)
class Executed:
    """What a kernel did when it ran, as a profiler or an emulator has counted it."""

    thread_instructions: int  # of all threads
    warp_instructions: int  # of all warps: with divergence, more than a 32nd of those of threads
    requested_bytes: int  # in sectors of 32 bytes, once for each request of a warp
    touched_bytes: int  # in sectors of 32 bytes, each of them once

    @property
    def active_lanes(self) -> float:
        """The part of the lanes that work when a warp runs an instruction; 1 without divergence."""
        return self.thread_instructions / max(32 * self.warp_instructions, 1)


@dataclass(frozen=True)
class KernelFigures:
    """One kernel on one GPU."""

    gpu: Gpu
    ops: str
    lines: tuple[str, ...]  # where the ops were called
    source: Path
    code: cubin.CubinReport
    launch: Launch
    read_bytes: int
    written_bytes: int
    operations: int  # arithmetic of all points, by the kernel's expressions
    executed: Executed | None = None  # see `KernelReport.beside`

    @property
    def name(self) -> str:
        """Name of the kernel, and of its source file."""
        return self.code.name

    @property
    def intensity(self) -> float:
        """Operations for each byte moved."""
        return self.operations / max(self.read_bytes + self.written_bytes, 1)

    @property
    def bound(self) -> str:
        """The limit in the roofline model: memory or arithmetic."""
        return "memory" if self.intensity < self.gpu.ridge else "arithmetic"

    @property
    def best_seconds(self) -> float:
        """The roofline model's lower bound if all bytes come from memory; not a measurement."""
        moved = (self.read_bytes + self.written_bytes) / (self.gpu.gbytes_per_s * 1e9)
        return max(moved, self.operations / self.gpu.operations_per_s)

    def __str__(self) -> str:
        code, launch = self.code, self.launch
        mix = ", ".join(f"{name} {n / code.instructions:.0%}" for name, n in code.mix.items())
        lines = [
            self.name,
            f"    ops {self.ops}",
            f"    called at {', '.join(self.lines) or 'an unknown line'}",
            f"    source {self.source}",
            f"    grid {launch.variant.grid}: {launch.programs} programs of {launch.block} points, "
            f"{code.num_warps} warps each",
            f"    registers {code.registers}, spills {code.local_bytes} bytes, shared memory "
            f"{code.shared_bytes} bytes, occupancy {code.occupancy:.2f}",
            f"    SASS {code.instructions} instructions: {mix}",
            f"    global loads {_widths(code.loads)}; stores {_widths(code.stores)}",
            f"    reads {self.read_bytes / 1e6:.3f} MB, writes {self.written_bytes / 1e6:.3f} MB, "
            f"{self.operations / 1e6:.3f} M operations",
            f"    roofline: {self.intensity:.2f} operations per byte, {self.gpu.name} "
            f"turns at {self.gpu.ridge:.2f}: bound by {self.bound}, at best "
            f"{self.best_seconds * 1e6:.2f} µs",
        ]
        if self.executed is not None:
            lines.append(self._executed_line(self.executed))
        return "\n".join(lines)

    def _executed_line(self, counts: Executed) -> str:
        moved = max(self.read_bytes + self.written_bytes, 1)
        return (
            f"    executed: {counts.thread_instructions / moved:.1f} instructions per byte, "
            f"{counts.active_lanes:.0%} of lanes active, warps ask for "
            f"{counts.requested_bytes / 1e6:.3f} MB and touch {counts.touched_bytes / 1e6:.3f} MB, "
            f"{counts.touched_bytes / moved:.2f} × the model's"
        )


@dataclass(frozen=True)
class KernelReport:
    """The GPU kernels of a value: print it, or read its fields."""

    gpu: Gpu
    kernels: tuple[KernelFigures, ...]

    def beside(self, executed: Sequence[Executed]) -> KernelReport:
        """The same report with counts of execution, one for each kernel, beside the model."""
        if len(executed) != len(self.kernels):
            raise ValueError(
                f"kernel_report: counts of {len(executed)} launches "
                f"for {counted(len(self.kernels), 'kernel')}"
            )
        pairs = zip(self.kernels, executed, strict=True)
        return KernelReport(self.gpu, tuple(replace(k, executed=e) for k, e in pairs))

    def __str__(self) -> str:
        gpu = self.gpu
        head = (
            f"{counted(len(self.kernels), 'kernel')} on {gpu.name} "
            f"(sm_{gpu.arch}, {gpu.gbytes_per_s:g} GB/s, {gpu.tflops:g} TFLOP/s), "
            f"from machine code; nothing was run"
        )
        return "\n".join([head, *(f"[{k}] {kernel}" for k, kernel in enumerate(self.kernels))])

    __repr__ = __str__


def kernel_report(*values: Any, gpu: str = "H100") -> KernelReport:
    """Show what the GPU kernels of these values cost: registers, spills, occupancy, SASS, bytes.

    >>> import ndd
    >>> with ndd.EvalMode.deferred:
    ...     x = ndd.zeros(shape=[64, 64]) + 1.0
    ...     report = ndd.kernel_report(x, gpu="A100")
    >>> report.kernels[0].bound, report.kernels[0].code.local_bytes
    ('memory', 0)

    This computes nothing and needs no GPU: it compiles the kernels and reads their machine code, so
    Triton must be installed. Values on the CPU are reported as if they were on a GPU. Call it in
    `EvalMode.deferred`, because the values must not have been computed yet.

    Parameters
    ----------
    gpu : str
        The GPU to report on: A100, H100, L4, RTX 4090 or RTX 5090.
    """
    if gpu not in GPUS:
        raise ValueError(f"kernel_report: `gpu` must be one of {', '.join(GPUS)}, got {gpu!r}")
    nodes = [_pending(value) for value in values]
    if not nodes:
        raise TypeError("kernel_report: at least one value is needed")
    with lock_of(nodes[0]):
        program = collect(nodes)
        on_gpu = any(n.device is not None for n in program.nodes)
        if not on_gpu:
            program = _moved(program)
        plan = PLANNER.make_plan(program, fusion_enabled())
    return KernelReport(GPUS[gpu], tuple(_figures(plan, program, GPUS[gpu])))


def _pending(value: Any) -> Node:
    if not isinstance(value, Handle):
        raise TypeError(f"kernel_report: wanted a Tensor or a Batch, got {type(value).__name__}")
    if value._node.storage is not None:
        raise ValueError(
            "kernel_report: the value has been computed, and its plan is not kept; "
            "make it and ask inside of `with ndd.EvalMode.deferred:`"
        )
    return value._node


def _moved(program: Program) -> Program:
    """The same program with its values on a GPU, so that the planner makes GPU kernels."""
    moved = copy.copy(program)
    moved.nodes = [n.like(device=0) for n in program.nodes]
    return moved


def _figures(plan: Plan, program: Program, gpu: Gpu) -> Iterable[KernelFigures]:
    nodes = program.nodes
    binder = Binder(nodes, [_imagined(n) for n in nodes], lambda _array, _device: 0)
    made = program.report(plan, regions_of(plan.regional, binder)).made
    shapes = [made.get(p, n.shapes) for p, n in enumerate(nodes)]
    nbytes = [int(s.volumes.sum()) * n.dtype.bytes for s, n in zip(shapes, nodes, strict=True)]
    for step in plan.steps:
        if not isinstance(step, KernelStep) or step.device is None:
            continue
        kernel = GpuKernel(step.spec)
        table = binder.table(step)
        launch = kernel.plan(table, kernel.block)
        if launch is None:
            continue  # all samples are empty
        yield KernelFigures(
            gpu,
            step.spec.chain,
            tuple(lines_of(step, nodes)),
            kernel.source_path,
            cubin.compile_cubin(step.spec, gpu.arch, launch.variant),
            launch,
            sum(nbytes[p] for p in dict.fromkeys(step.reads)),
            sum(nbytes[p] for p in step.writes),
            _operations(step.spec, table),
        )


def _imagined(node: Node) -> Storage:
    """A storage with the layout that the node's memory would have, but no memory."""
    strides = None if node.storage is None else node.storage.strides
    return Storage(node.shapes.packed(node.dtype.bytes)[0], None, strides)


def _operations(spec: KernelSpec, table: Array) -> int:
    """Arithmetic of a launch: the expressions and the core's operations at every point."""
    points = table[:, [spec.columns["n", a] for a in spec.loop_axes]].prod(axis=1)
    each = cost(*(value for at in spec.static_points for value in spec.at_point(at)))
    of_cores = sum(core.operations(spec, table) for core in spec.cores)
    return int((points * (each + of_cores)).sum())


def _widths(accesses: dict[int, int]) -> str:
    return ", ".join(f"{n} × {bits} bits" for bits, n in accesses.items()) or "none"
