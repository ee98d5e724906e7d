"""Runs the steps of a segment on the CPU, sample by sample: decoders, then generated kernels.

Values that only the segment uses live in scratch memory of the thread that works on a sample. They
are still in its caches when the next step reads them, and no batch of them ever exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.common import trace
from ...kernels.common.buffers import POOL, Buffer
from ...kernels.common.threads import ThreadPool
from ...kernels.cpu import runtime as cpu_runtime
from ...kernels.cpu.cores import AREA_ALIGNMENT, Scratch
from ...kernels.cpu.decode_loop.job import DecodeJob, sample_kernel
from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from ..graph.sites import at_site
from ..graph.storage import Storage, address_of, allocate, array_at, as_array
from ..plan.steps import DecodeStep, KernelStep, Segment, Step
from .binder import Binder
from .direct import PIPELINE_MIN_BYTES, run_directly, samples_at_once
from .flat import PARALLEL_MIN_BYTES
from .frame_pipeline import FramePipeline, split_frames
from .regions import Region
from .watch import watched

# Runs a step on samples [begin, end). Values in scratch memory have addresses relative to the first
# of two places. A decoded image that may stay in its decoder's memory is relative to the second.
Places = list[int]
Work = Callable[[int, int, Places], None]


def run_segment(
    segment: Segment,
    nodes: list[Node],
    values: list[Storage | None],
    regions: dict[int, Region],
    binder: Binder,
    pool: ThreadPool,
) -> None:
    """Compute the values of a segment, and put them into `values` for later segments."""
    for step in segment.steps:
        if isinstance(step, KernelStep) and step.kernel is None:
            step.kernel, step.scratch = cpu_runtime.get_kernel(step.spec), Scratch(step.spec)
    if not regions and run_directly(segment, nodes, values, binder, pool.num_threads):
        return
    # Independent results of one program may be batches of different sizes.
    by_count: dict[int, list[Step]] = {}
    for step in segment.steps:
        by_count.setdefault(nodes[step.root].count, []).append(step)
    for count, steps in by_count.items():
        videos, steps = split_frames(steps, segment.slots, nodes, regions, binder)
        Pipeline(steps, segment.slots, nodes, values, regions, binder, pool).run(count)
        for work in videos:
            FramePipeline(work, segment.slots, nodes, values, binder, pool).run()


class Pipeline:
    """The steps of a segment that have the same number of samples."""

    def __init__(
        self,
        steps: list[Step],
        slots: dict[int, int],
        nodes: list[Node],
        values: list[Storage | None],
        regions: dict[int, Region],
        binder: Binder,
        pool: ThreadPool,
    ) -> None:
        self.steps = steps
        self.kernels = [s for s in steps if isinstance(s, KernelStep)]
        self.decodes = [s for s in steps if isinstance(s, DecodeStep)]
        self.slots = slots
        self.nodes = nodes
        self.values = values
        self.binder = binder
        self.pool = pool
        self.regions = regions
        self.shapes = {p: self._made(p) for s in steps for p in s.writes}
        self.scratch: dict[int, int] = {}  # offsets of values in scratch memory
        self.memory: dict[int, Array] = {}  # addresses of the samples of all values
        self.held: int | None = None  # a value that may stay in its decoder's memory
        self.between = 0  # bytes of scratch memory for values between steps
        self.room = 0  # bytes of scratch memory that the kernels need for themselves
        self.buffers: dict[int, Buffer] = {}  # scratch memory of each worker

    def run(self, count: int) -> None:
        if not self.steps:
            return
        self._place()
        bound = [self.binder.bound(s) for s in self.kernels]
        tables = [table for table, _ in bound]
        self.room = max((room for _, room in bound), default=0)
        if self.decodes and not trace.active and self._run_native(count, tables):
            return
        works = self._works(tables)
        bounds = self._chunks(count)
        size = 1 if self.scratch else samples_at_once(self.kernels, self.nodes, count)

        def chunk(c: int, worker: int) -> None:
            begin, end = bounds[c], bounds[c + 1]
            for sample in range(begin, end, size):
                self._do(works, sample, min(sample + size, end), worker)

        if len(bounds) == 2:
            chunk(0, 0)
        else:
            self.pool.parallel_for(len(bounds) - 1, chunk)

    def _scratch_of(self, worker: int) -> int:
        buffer = self.buffers.get(worker)
        if buffer is None:
            buffer = self.buffers[worker] = POOL.take(self.between + self.room)
        return buffer.address

    def _works(self, tables: list[Array]) -> list[Work]:
        """The work of every step on samples."""
        calls = iter(zip(self.kernels, tables, strict=True))
        works = [
            self._decode(s) if isinstance(s, DecodeStep) else self._kernel(*next(calls))
            for s in self.steps
        ]
        return watched(works, self.steps, self.nodes, self.binder.run) if trace.active else works

    def _run_native(self, count: int, tables: list[Array]) -> bool:
        """Run the native loop; samples it does not support fall back to Python.

        Returns False if it cannot be used.
        """
        job = self._native_job(tables)
        if job is None:
            return False
        threads = min(self.pool.num_threads, count)
        job.prepare(threads)
        self.pool.parallel_for(threads, lambda _, worker: job.run(self._scratch_of(worker)))
        left = job.left()
        if left:
            works = self._works(tables)
            self.pool.parallel_for(
                len(left), lambda k, worker: self._do(works, left[k], left[k] + 1, worker)
            )
        return True

    def _do(self, works: list[Work], begin: int, end: int, worker: int) -> None:
        """Run all steps on samples [begin, end)."""
        address = self._scratch_of(worker)
        places = [address, address]
        for work in works:
            work(begin, end, places)

    # -- memory --------------------------------------------------------------------------------

    def _made(self, p: int) -> Shapes:
        """The shapes that a step really writes: those of the region, if only a region is needed."""
        region = self.regions.get(p)
        return self.nodes[p].shapes if region is None else region.shapes(self.nodes[p])

    def _place(self) -> None:
        """Assign memory to every value of the segment: scratch memory, or a batch of its own."""
        inner = [p for p in self.shapes if p in self.slots]
        if self.decodes or sum(map(self._nbytes, inner)) >= PIPELINE_MIN_BYTES:
            self._place_in_scratch(inner)
            pictures = [s.root for s in self.decodes if self._has_regions(s.root)]
            if len(self.decodes) == 1:  # a decoder keeps only its last image
                self.held = next((p for p in pictures if p in self.scratch), None)
        for p, shapes in self.shapes.items():
            if p in self.scratch:
                # These addresses are relative to the start of the scratch memory.
                made = Storage(np.full(shapes.count, self.scratch[p], np.int64), None)
            else:
                made = allocate(shapes, self.nodes[p].dtype.bytes)
            self.memory[p] = made.addresses
            region = self.regions.get(p)
            self.values[p] = made if region is None else region.placed(made, self.nodes[p])

    def _nbytes(self, p: int) -> int:
        return self.shapes[p].packed(self.nodes[p].dtype.bytes)[1]

    def _place_in_scratch(self, inner: list[int]) -> None:
        sizes = [0] * (max((self.slots[p] for p in inner), default=-1) + 1)
        for p in inner:
            slot = self.slots[p]
            largest = int(self.shapes[p].sizes(self.nodes[p].dtype.bytes).max(initial=0))
            sizes[slot] = max(sizes[slot], -(-largest // AREA_ALIGNMENT) * AREA_ALIGNMENT)
        ends = np.cumsum(sizes)
        self.between = int(ends[-1]) if sizes else 0
        for p in inner:
            self.scratch[p] = int(ends[self.slots[p]]) - sizes[self.slots[p]]

    # -- work ----------------------------------------------------------------------------------

    def _chunks(self, count: int) -> list[int]:
        """Bounds of chunks of about equal volume, four per thread so that a slow one evens out."""
        threads = self.pool.num_threads
        if self.decodes and threads > 1:
            return [*range(count + 1)]  # a sample takes long, and its time is unknown
        written = sum(self._nbytes(p) for p in self.shapes)
        small = written < PARALLEL_MIN_BYTES and not self.scratch
        if threads == 1 or count <= 1 or small:
            return [0, count]
        work = np.cumsum(sum(self._volume(s) for s in self.kernels))
        pieces = min(count, 4 * threads)
        marks = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces) + 1
        return [0, *sorted({int(m) for m in marks if 0 < m < count}), count]

    def _volume(self, step: KernelStep) -> Array:
        """Elements that a kernel reads or writes for each sample, roughly."""
        work = self.nodes[step.root].shapes.volumes + 1
        for position, _ in step.recipe.cores:
            work = work + self.nodes[position].inputs[0].shapes.volumes
        return work

    def _kernel(self, step: KernelStep, table: Array) -> Work:
        """Run a kernel on samples, after making the addresses in their rows absolute."""
        run, address = step.kernel.run, address_of(table)
        width = table.shape[1]
        moved = [(column, int(p == self.held)) for column, p in self._moved(step)]
        own = step.scratch.column
        if not moved and own is None:
            return lambda begin, end, _places: run(address, begin, end)
        between = self.between
        cells = table.reshape(-1).data  # faster than NumPy for single numbers

        def work(begin: int, end: int, places: Places) -> None:
            for first in range(begin * width, end * width, width):
                for column, which in moved:
                    cells[first + column] += places[which]
                if own is not None:
                    cells[first + own] = places[0] + between
            run(address, begin, end)

        return work

    def _moved(self, step: KernelStep) -> list[tuple[int, int]]:
        """Columns with addresses relative to scratch memory, and the values they belong to."""
        operands = [("in", step.recipe.loads), ("out", step.recipe.stores)]
        return [
            (step.spec.columns[kind, k], p)
            for kind, found in operands
            for k, (p, _) in enumerate(found)
            if p in self.scratch
        ]

    def _native_job(self, tables: list[Array]) -> DecodeJob | None:
        """The job of the native loop for the whole batch; None if the loop cannot be used."""
        if len(self.decodes) != 1 or self.steps[0] is not self.decodes[0]:
            return None
        p = self.steps[0].root
        node = self.nodes[p]
        encoded = node.inputs[0].storage
        if not self._has_regions(p) or encoded is None or encoded.strides is not None:
            return None
        pictures = self._params(p).native(encoded.addresses, self.shapes[p], node.dtype)
        if pictures is None:
            return None
        kernels = []
        for step, table in zip(self.kernels, tables, strict=True):
            moved, own = self._moved(step), step.scratch.column
            others, pixels = [[c for c, q in moved if (q == p) == k] for k in (False, True)]
            kernels.append(sample_kernel(step.kernel, table, others, pixels, own))
        arguments = pictures, self.memory[p], p in self.scratch, kernels, self.between
        job: DecodeJob = pictures.job(*arguments)
        return job

    def _has_regions(self, p: int) -> bool:
        return self.nodes[p].definition.kind.has_regions

    def _params(self, p: int) -> Any:
        """The decoder's parameters of a value, restricted to its region if there is one."""
        params, region = self.nodes[p].params, self.regions.get(p)
        return params if region is None else params.windowed(*region)

    def _decode(self, step: DecodeStep) -> Work:
        p = step.root
        node, params = self.nodes[p], self._params(p)
        function = node.definition.kind.function  # type: ignore[attr-defined]
        shapes, dtype = self.shapes[p].tuples, node.dtype.np
        addresses = self.memory[p].tolist()
        is_relative, is_held = p in self.scratch, p == self.held
        takes_arrays = node.definition.kind.takes_arrays
        sources = [self._samples(i) for i in step.reads] if takes_arrays else []

        def work(begin: int, end: int, places: Places) -> None:
            for s in range(begin, end):
                try:
                    if is_held:
                        held = params.held(s, shapes[s], dtype)
                        if held is not None:
                            places[1] = held - addresses[s]
                            continue
                    address = addresses[s] + (places[0] if is_relative else 0)
                    given = [sample(s, places) for sample in sources]
                    function(params, s, *given, array_at(address, shapes[s], dtype))
                except Exception as error:
                    raise at_site(error, node.op, node.result.site) from error.__cause__

        return work

    def _samples(self, p: int) -> Callable[[int, Places], Array]:
        """The samples of a value as arrays, by number."""
        node, storage = self.nodes[p], self.values[p]
        assert storage is not None
        if p not in self.scratch:
            return lambda s, _places: as_array(storage, node, s)
        shapes, dtype, address = node.shapes.tuples, node.dtype.np, self.scratch[p]
        return lambda s, places: array_at(places[0] + address, shapes[s], dtype)
