"""Runs a plan: binds tables, allocates results, and takes samples through the kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..kernels import cpu_runtime
from ..kernels.memory import POOL, Buffer
from ..kernels.spec import KernelSpec
from ..kernels.taps import filter_tables
from ..kernels.threads import ThreadPool
from .bind import ROW_ALIGN, Binder
from .errors import at_site
from .graph import Array, Decode, Node, Samples, Shapes, Storage, source
from .opaque import as_array, compute, contiguous
from .plan import KernelStep, OpaqueStep, Plan, Segment, Step
from .program import Program

# Handing work to another thread costs 70-90 µs (FACTS.md); below this many bytes of results the
# caller is done sooner alone.
PARALLEL_MIN_BYTES = 512 << 10
# Intermediates up to this size stay in the L2 cache anyway; beyond it each sample goes through all
# kernels of its segment before the next one starts, in scratch memory of its thread.
PIPELINE_MIN_BYTES = 1 << 20


def allocate(shapes: Shapes, itemsize: int, take: Callable[[int], Any] = POOL.take) -> Storage:
    """Fresh memory for a batch: dense if all samples are alike, else each sample aligned."""
    offsets, nbytes, dense = shapes.packed(itemsize)
    buffer = take(nbytes)
    return Storage(buffer.address + offsets, buffer, dense=dense)


class Run:
    """One execution of a plan for the nodes of one program.

    Values are collected here and given to the nodes when all is done: a node whose storage is set
    may be read by any thread at once.
    """

    def __init__(
        self, plan: Plan, program: Program, pool: ThreadPool, gpu: Callable[[Any], Any]
    ) -> None:
        self.plan = plan
        self.program = program
        self.nodes = program.nodes
        self.pool = pool
        self.gpu = gpu  # device → its runtime (kernels/gpu_runtime.py)
        self.values = [n.storage for n in program.nodes]
        # not a method of ours: a cycle would keep results alive until a garbage collection
        self.binder = Binder(self.nodes, self.values, partial(_filters, gpu))

    def execute(self) -> None:
        for segment in self.plan.segments:
            first = segment.steps[0]
            if isinstance(first, OpaqueStep):
                self._opaque(first)
            elif first.device is None:
                self._on_cpu(segment)
            else:
                self._on_gpu(segment)
            for p in segment.last:
                if p not in self.program.promises:
                    self.values[p] = None
        self._hand_over()

    def _hand_over(self) -> None:
        """Give results to their nodes and to merged duplicates."""
        for p in self.plan.outputs:
            if self.nodes[p].storage is None:
                self._give(p, self._owned(self.nodes[p], self._value(p)))
        for p in self.program.promises:
            # stored for another reason, and in memory of its own: its reader may have it
            storage = self.values[p]
            if storage is not None and storage.owner is not None and not storage.external:
                self._give(p, storage)

    def _give(self, p: int, storage: Storage) -> None:
        for node in (self.nodes[p], *self.program.twins.get(p, ())):
            node.storage = storage
            release_inputs(node)

    def _owned(self, node: Node, storage: Storage) -> Storage:
        """A result outlives its call, so it must not lie in memory that may change under us."""
        return self._packed(node, storage) if storage.external else storage

    def _packed(self, node: Node, storage: Storage) -> Storage:
        """A copy of a value, its samples contiguous."""
        held = source(storage, node.shapes, node.dtype, node.layout, node.batch, node.device)
        if node.device is None:
            return contiguous(held)
        copied: Storage = self.gpu(node.device).copy(held, held, storage)
        return copied

    def _value(self, p: int) -> Storage:
        storage = self.values[p]
        assert storage is not None, f"{self.nodes[p].op} has no value yet"
        return storage

    # -- opaque steps --------------------------------------------------------------------------

    def _opaque(self, step: OpaqueStep) -> None:
        node = self.nodes[step.root]
        inputs = [self._in_memory(i, isinstance(node.static, Samples)) for i in step.reads]
        device = next((n.device for n in (node, *inputs) if n.device is not None), None)
        gpu = None if device is None else self.gpu(device)
        try:
            is_decode = isinstance(node.static, Decode)
            self.values[step.root] = self._decode(node) if is_decode else compute(node, inputs, gpu)
        except Exception as error:
            raise at_site(error, node.op, node.site) from error.__cause__

    def _decode(self, node: Node) -> Storage:
        result = allocate(node.shapes, node.dtype.bytes)
        function = node.static.function
        self.pool.parallel_for(
            node.count, lambda s, _worker: function(node, s, as_array(result, node, s))
        )
        return result

    def _in_memory(self, p: int, packed: bool) -> Node:
        """A node that has its value; contiguous if `packed`, as plans assume of what they make."""
        node, storage = self.nodes[p], self._value(p)
        if packed and storage.strides is not None:
            storage = self._packed(node, storage)
        elif node.storage is not None:
            return node
        return source(storage, node.shapes, node.dtype, node.layout, node.batch, node.device)

    # -- CPU -----------------------------------------------------------------------------------

    def _on_cpu(self, segment: Segment) -> None:
        # Independent results of one program may be batches of different sizes.
        by_count: dict[int, list[KernelStep]] = {}
        for step in segment.steps:
            assert isinstance(step, KernelStep)
            if step.kernel is None:
                step.kernel = cpu_runtime.get_kernel(step.spec)
            by_count.setdefault(self.nodes[step.root].count, []).append(step)
        for count, steps in by_count.items():
            self._kernels(steps, segment.slots, count)

    def _kernels(self, steps: list[KernelStep], slots: dict[int, int], count: int) -> None:
        written = {p: self._nbytes(p) for step in steps for p in step.writes}
        scratch: dict[int, int] = {}
        if slots:
            inner = [p for p in written if p in slots]
            if sum(written[p] for p in inner) >= PIPELINE_MIN_BYTES:
                scratch = self._scratch({p: slots[p] for p in inner})
        for p in written:
            if p not in scratch:
                self.values[p] = allocate(self.nodes[p].shapes, self.nodes[p].dtype.bytes)
        tables = [self.binder.table(s.spec, s.recipe) for s in steps]
        small = sum(written.values()) < PARALLEL_MIN_BYTES or self.pool.num_threads == 1
        alone = small or count == 1
        rooms = [_room(s.spec, t) for s, t in zip(steps, tables, strict=True)]
        if scratch or any(rooms):
            self._pipelined(steps, tables, scratch, max(rooms), count, alone and not scratch)
        elif alone:
            for step, table in zip(steps, tables, strict=True):
                step.kernel.run(address_of(table), 0, count)
        else:
            self._parallel(steps, tables, count)

    def _nbytes(self, p: int) -> int:
        node = self.nodes[p]
        return node.shapes.packed(node.dtype.bytes)[1]

    def _parallel(self, segment: list[KernelStep], tables: list[Array], count: int) -> None:
        calls = [(s.kernel.run, address_of(t)) for s, t in zip(segment, tables, strict=True)]
        bounds = self._chunks(segment, count)

        def chunk(c: int, _worker: int) -> None:
            for run, address in calls:
                run(address, bounds[c], bounds[c + 1])

        self.pool.parallel_for(len(bounds) - 1, chunk)

    def _chunks(self, segment: list[KernelStep], count: int) -> list[int]:
        """Runs of samples of about equal volume, four per thread so that a slow one evens out."""
        work = np.cumsum(sum(self._work(s) for s in segment))
        pieces = min(count, 4 * self.pool.num_threads)
        marks = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces) + 1
        return [0, *sorted({int(m) for m in marks if 0 < m < count}), count]

    def _work(self, step: KernelStep) -> Array:
        """Elements that a kernel reads or writes for each sample, roughly."""
        work = self.nodes[step.root].shapes.volumes + 1
        if step.recipe.sampler is not None:
            work = work + self.nodes[step.recipe.sampler[0]].inputs[0].shapes.volumes
        return work

    def _scratch(self, slots: dict[int, int]) -> dict[int, int]:
        """Offsets of values in scratch memory; under the key -1 its size."""
        sizes = [0] * (max(slots.values()) + 1)
        for p, slot in slots.items():
            node = self.nodes[p]
            largest = int(node.shapes.volumes.max(initial=0)) * node.dtype.bytes
            sizes[slot] = max(sizes[slot], -(-largest // ROW_ALIGN) * ROW_ALIGN)
        ends = np.cumsum(sizes)
        offsets = {p: int(ends[slot]) - sizes[slot] for p, slot in slots.items()}
        for p, offset in offsets.items():
            self.values[p] = Storage(np.full(self.nodes[p].count, offset, np.int64), None)
        return {**offsets, -1: int(ends[-1])}

    def _pipelined(
        self,
        segment: list[KernelStep],
        tables: list[Array],
        scratch: dict[int, int],
        room: int,
        count: int,
        alone: bool,
    ) -> None:
        """Every sample through all kernels of the segment; scratch belongs to the worker.

        `room`: scratch memory that a kernel needs for itself.
        """
        moved = [_scratch_columns(s, scratch) for s in segment]
        own = [s.spec.columns.get(("scratch",)) for s in segment]
        calls = [(s.kernel.run, address_of(t)) for s, t in zip(segment, tables, strict=True)]
        bounds = [0, count] if alone else self._chunks(segment, count)
        buffers: dict[int, Buffer] = {}
        between = scratch.get(-1, 0)

        def chunk(c: int, worker: int) -> None:
            begin, end = bounds[c], bounds[c + 1]
            buffer = buffers.get(worker)
            if buffer is None:
                buffer = buffers[worker] = POOL.take(between + room)
            for table, columns, column in zip(tables, moved, own, strict=True):
                table[begin:end, columns] += buffer.address
                if column is not None:
                    table[begin:end, column] = buffer.address + between
            size = 1 if scratch else end - begin
            for sample in range(begin, end, size):
                for run, address in calls:
                    run(address, sample, sample + size)

        if alone:
            chunk(0, 0)
        else:
            self.pool.parallel_for(len(bounds) - 1, chunk)

    # -- GPU -----------------------------------------------------------------------------------

    def _on_gpu(self, segment: Segment) -> None:
        for step in segment.steps:
            assert isinstance(step, KernelStep)
            gpu = self.gpu(step.device)
            if step.kernel is None:
                step.kernel = gpu.get_kernel(step.spec)
            for p in step.writes:
                node = self.nodes[p]
                self.values[p] = allocate(node.shapes, node.dtype.bytes, gpu.take)
            table = self.binder.table(step.spec, step.recipe)
            # the owners of all memory that a launch touches must outlive it
            alive = [self._value(p).owner for p in (*step.reads, *step.writes)]
            gpu.launch(step.kernel, step.spec, table, alive)


def release_inputs(node: Node) -> None:
    """A value that exists needs no recipe any more: let its ancestors go."""
    node.inputs = ()
    node.params = None
    node.static = None
    node.promise = None


def address_of(table: Array) -> int:
    return table.__array_interface__["data"][0]  # type: ignore[no-any-return]


def _filters(gpu: Callable[[Any], Any], device: Any) -> int:
    """Address of the filter tables where a kernel runs."""
    if device is None:
        return address_of(filter_tables()[0])
    address: int = gpu(device).constant(filter_tables()[0])
    return address


def _room(spec: KernelSpec, table: Array) -> int:
    """Scratch memory that a kernel needs for the largest sample."""
    column = spec.columns.get(("scratch",))
    return 0 if column is None else int(table[:, column].max(initial=0))


def _scratch_columns(step: KernelStep, scratch: dict[int, int]) -> list[int]:
    place = step.spec.columns
    columns = [place["in", k] for k, (p, _) in enumerate(step.recipe.loads) if p in scratch]
    return columns + [
        place["out", k] for k, (p, _) in enumerate(step.recipe.stores) if p in scratch
    ]


__all__ = ["Run", "Step", "allocate", "release_inputs"]
