"""Runs a plan: binds tables, allocates results, and takes samples through the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels import cpu_runtime
from ..kernels.memory import POOL, Buffer
from ..kernels.threads import ThreadPool
from .bind import Binder
from .graph import Array, Node, Shapes, Storage
from .plan import KernelStep, OpaqueStep, Plan, Step
from .program import Program

# Handing work to another thread costs 70-90 µs (FACTS.md); below this many bytes of results the
# caller is done sooner alone.
PARALLEL_MIN_BYTES = 512 << 10
# Intermediates up to this size stay in the L2 cache anyway; beyond it each sample goes through all
# kernels of its segment before the next one starts, in scratch memory of its thread.
PIPELINE_MIN_BYTES = 1 << 20
ROW_ALIGN = 64


def allocate(shapes: Shapes, itemsize: int, take: Callable[[int], Any] = POOL.take) -> Storage:
    """Fresh memory for a batch: dense if all samples are alike, else each sample aligned."""
    offsets, nbytes, dense = shapes.packed(itemsize)
    buffer = take(nbytes)
    return Storage(buffer.address + offsets, buffer, dense=dense)


class Run:
    """One execution of a plan for the nodes of one program."""

    def __init__(self, plan: Plan, program: Program, pool: ThreadPool, gpu: Any) -> None:
        self.plan = plan
        self.program = program
        self.nodes = program.nodes
        self.pool = pool
        self.gpu = gpu  # the runtime of kernels/gpu_runtime.py, or None
        self.binder = Binder(self.nodes)
        self.temporary = [p for p in plan.keep if self.nodes[p].storage is None]

    def execute(self) -> None:
        try:
            for segment in self.plan.segments:
                first = segment[0]
                if isinstance(first, OpaqueStep):
                    self._opaque(first)
                elif first.device is None:
                    self._on_cpu(segment)  # type: ignore[arg-type]
                else:
                    self._on_gpu(segment)  # type: ignore[arg-type]
        except BaseException:
            for p in self.temporary:
                self.nodes[p].storage = None
            raise
        self._hand_over()

    def _hand_over(self) -> None:
        """Give results to merged duplicates; forget what nobody asked for."""
        outputs = set(self.plan.outputs)
        for p in self.temporary:
            node = self.nodes[p]
            if p in outputs:
                release_inputs(node)
                for twin in self.program.twins.get(p, ()):
                    twin.storage = node.storage
                    release_inputs(twin)
            else:
                node.storage = None

    # -- opaque steps --------------------------------------------------------------------------

    def _opaque(self, step: OpaqueStep) -> None:
        node = self.nodes[step.root]
        inputs = [self.nodes[i] for i in self.program.inputs[step.root]]
        node.storage = run_opaque(node, inputs, self)

    # -- CPU -----------------------------------------------------------------------------------

    def _on_cpu(self, segment: list[KernelStep]) -> None:
        for step in segment:
            if step.kernel is None:
                step.kernel = cpu_runtime.get_kernel(step.spec)
        count = self.nodes[segment[0].root].count
        scratch = self._scratch(segment) if len(segment) > 1 else {}
        outputs = 0
        for step in segment:
            for p in step.writes:
                node = self.nodes[p]
                if p not in scratch:
                    node.storage = allocate(node.shapes, node.dtype.bytes)
                outputs += node.shapes.packed(node.dtype.bytes)[1]
        tables = [self.binder.table(s.spec, s.recipe) for s in segment]
        if scratch:
            self._pipelined(segment, tables, scratch, count)
        elif outputs < PARALLEL_MIN_BYTES or self.pool.num_threads == 1 or count == 1:
            for step, table in zip(segment, tables, strict=True):
                step.kernel.run(_address(table), 0, count)
        else:
            self._parallel(segment, tables, count)

    def _parallel(self, segment: list[KernelStep], tables: list[Array], count: int) -> None:
        calls = [(s.kernel.run, _address(t)) for s, t in zip(segment, tables, strict=True)]
        bounds = self._chunks(segment, count)

        def chunk(c: int, _worker: int) -> None:
            for run, address in calls:
                run(address, bounds[c], bounds[c + 1])

        self.pool.parallel_for(len(bounds) - 1, chunk)

    def _chunks(self, segment: list[KernelStep], count: int) -> list[int]:
        """Runs of samples of about equal volume, four per thread so that a slow one evens out."""
        work = np.cumsum(sum(self.nodes[s.root].shapes.volumes + 1 for s in segment))
        pieces = min(count, 4 * self.pool.num_threads)
        marks = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces) + 1
        return [0, *sorted({int(m) for m in marks if 0 < m < count}), count]

    def _scratch(self, segment: list[KernelStep]) -> dict[int, int]:
        """Intermediates of this segment alone, if they are large: {position: offset in scratch}."""
        inside = {p for s in segment for p in s.writes} - set(self.plan.outputs)
        for step in self.plan.steps:
            reads = (
                {p for p, _ in step.recipe.loads}
                if isinstance(step, KernelStep)
                else set(self.program.inputs[step.root])
            )
            if step not in segment:
                inside -= reads
        total = sum(self.nodes[p].shapes.packed(self.nodes[p].dtype.bytes)[1] for p in inside)
        if total < PIPELINE_MIN_BYTES:
            return {}
        offsets, end = {}, 0
        for p in sorted(inside):
            node = self.nodes[p]
            offsets[p] = end
            largest = int(node.shapes.volumes.max(initial=0)) * node.dtype.bytes
            end += -(-largest // ROW_ALIGN) * ROW_ALIGN
            node.storage = Storage(np.full(node.count, offsets[p], np.int64), None)
        offsets[-1] = end
        return offsets

    def _pipelined(
        self, segment: list[KernelStep], tables: list[Array], scratch: dict[int, int], count: int
    ) -> None:
        """Every sample through all kernels of the segment; scratch belongs to the worker."""
        moved = [_scratch_columns(s, scratch) for s in segment]
        calls = [(s.kernel.run, _address(t)) for s, t in zip(segment, tables, strict=True)]
        bounds = self._chunks(segment, count)
        buffers: dict[int, Buffer] = {}

        def chunk(c: int, worker: int) -> None:
            begin, end = bounds[c], bounds[c + 1]
            buffer = buffers.get(worker)
            if buffer is None:
                buffer = buffers[worker] = POOL.take(scratch[-1])
            for table, columns in zip(tables, moved, strict=True):
                table[begin:end, columns] += buffer.address
            for sample in range(begin, end):
                for run, address in calls:
                    run(address, sample, sample + 1)

        self.pool.parallel_for(len(bounds) - 1, chunk)

    # -- GPU -----------------------------------------------------------------------------------

    def _on_gpu(self, segment: list[KernelStep]) -> None:
        for step in segment:
            if step.kernel is None:
                step.kernel = self.gpu.get_kernel(step.spec)
            for p in step.writes:
                node = self.nodes[p]
                node.storage = allocate(node.shapes, node.dtype.bytes, self.gpu.take)
            table = self.binder.table(step.spec, step.recipe)
            self.gpu.launch(step.kernel, step.spec, table, self._alive(step))

    def _alive(self, step: KernelStep) -> list[Any]:
        """Owners of all memory that a launch touches; they must outlive it."""
        operands = (*step.recipe.loads, *step.recipe.stores)
        return [self.nodes[p].storage.owner for p, _ in operands]  # type: ignore[union-attr]


def release_inputs(node: Node) -> None:
    """A value that exists needs no recipe any more: let its ancestors go."""
    node.inputs = ()
    node.params = None
    node.static = None
    node.promise = None


def _address(table: Array) -> int:
    return table.__array_interface__["data"][0]  # type: ignore[no-any-return]


def _scratch_columns(step: KernelStep, scratch: dict[int, int]) -> list[int]:
    place = step.spec.columns
    columns = [place["in", k] for k, (p, _) in enumerate(step.recipe.loads) if p in scratch]
    return columns + [place["out", k] for k, (p, _) in enumerate(step.recipe.stores) if p in scratch]


def run_opaque(node: Node, inputs: list[Node], run: Run) -> Storage:
    """Value of a node that is not a generated kernel."""
    from . import opaque

    return opaque.compute(node, inputs, run.gpu)


__all__ = ["Run", "Step", "allocate", "release_inputs"]
