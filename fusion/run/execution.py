"""Runs the segments of a plan in order, on the CPU or a GPU, and gives the results to nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...kernels.common import trace
from ...kernels.common.threads import ThreadPool
from ..graph.node import Node, source
from ..graph.shapes import Array
from ..graph.sites import at_site
from ..graph.storage import Storage, address_of, allocate, contiguous
from ..plan.program import Program
from ..plan.steps import KernelStep, Plan, Segment, Step
from . import watch
from .binder import Binder, Tables
from .flat import run_flat
from .pipeline import run_segment
from .regions import regions_of


class Run:
    """One execution of a plan for the nodes of one program.

    Values are collected here and given to the nodes at the end, because any thread may read a node
    as soon as its storage is set.
    """

    def __init__(
        self,
        plan: Plan,
        program: Program,
        pool: Callable[[], ThreadPool],
        gpu: Callable[[Any], Any],
        tables: Tables,
    ) -> None:
        self.plan = plan
        self.program = program
        self.nodes = program.nodes
        self.pool = pool
        self.gpu = gpu  # device → its runtime (kernels/gpu/runtime.py)
        self.tables = tables
        self.values = [n.result.storage for n in program.nodes]
        # Not a bound method: its reference cycle would keep results alive until a collection.
        self.binder = Binder(self.nodes, self.values, partial(_constant, gpu))
        self.regions = regions_of(plan.regional, self.binder) if plan.regional else {}

    def execute(self) -> None:
        for segment in self.plan.segments:
            first = segment.steps[0]
            if segment.flat is not None and self._run_flat(segment.flat):
                pass
            elif not first.by_sample:
                self._staged(first, self._opaque, first)
            elif first.device is not None:
                self._on_gpu(segment)
            else:
                self._on_cpu(segment)
            for p in segment.last:
                if p not in self.program.promises and p not in self.program.lent:
                    self.values[p] = None
        self._hand_over()

    def _hand_over(self) -> None:
        """Give results to their nodes and to merged duplicates."""
        for p in self.plan.outputs:
            if self.nodes[p].storage is None:
                self._give(p, self._owned(self.nodes[p], self._value(p)))
        for p in (*self.program.promises, *self.program.lent):
            # One that was stored for another reason, in memory of its own, can be delivered.
            storage = None if p in self.regions or self.nodes[p].storage else self.values[p]
            if storage is not None and storage.owner is not None and not storage.external:
                self._give(p, storage)

    def _give(self, p: int, storage: Storage) -> None:
        for node in (self.nodes[p], *self.program.twins.get(p, ())):
            node.result.deliver(storage)

    def _owned(self, node: Node, storage: Storage) -> Storage:
        """A copy of external memory, else the storage itself: a result must not change later."""
        return self._packed(node, storage) if storage.external else storage

    def _packed(self, node: Node, storage: Storage) -> Storage:
        """A copy of a value with contiguous samples."""
        held = source(storage, node.shapes, node.dtype, node.layout, node.batch, node.device)
        if node.device is None:
            return contiguous(held)
        copied: Storage = self.gpu(node.device).copy(held, held, storage)
        return copied

    def _value(self, p: int) -> Storage:
        storage = self.values[p]
        assert storage is not None, f"{self.nodes[p].op} has no value yet"
        return storage

    def _staged(self, step: Step, work: Callable[..., None], *arguments: Any) -> None:
        """Run the work of a step, as a stage if there are watchers."""
        if trace.active:
            trace.during(watch.begin(step, self.nodes, self.binder.run), work, *arguments)
        else:
            work(*arguments)

    # -- opaque steps --------------------------------------------------------------------------

    def _opaque(self, step: Step) -> None:
        node = self.nodes[step.root]
        if step.root in self.regions:
            self._copy_region(node, step.root, *step.reads)
            return
        kind = node.definition.kind
        inputs = [self._in_memory(i, kind.picks_samples) for i in step.reads]
        device = next((n.device for n in (node, *inputs) if n.device is not None), None)
        gpu = None if device is None else self.gpu(device)
        for k, (n, p) in enumerate(zip(inputs, step.reads, strict=True)):
            if gpu is not None and n.device not in (None, device):
                # Only a GPU's own kernels read strided memory, and each GPU has its own stream.
                inputs[k] = self._in_memory(p, packed=True)
                gpu.wait_for(self.gpu(n.device))
        try:
            self.values[step.root] = kind.compute(node, inputs, gpu)
        except Exception as error:
            raise at_site(error, node.op, node.result.site) from error.__cause__

    def _copy_region(self, node: Node, p: int, of: int) -> None:
        """Copy the region of a decoded value that is needed on another device."""
        region = self.regions[p]
        windows = region.held(self._value(of), node)
        facts = (region.shapes(node), node.dtype, node.layout, node.batch)
        there, here = source(windows, *facts, node.device), source(windows, *facts)
        self.values[p] = region.placed(self.gpu(node.device).copy(there, here, windows), node)

    def _in_memory(self, p: int, packed: bool) -> Node:
        """A node with its value in memory; `packed` makes it contiguous, as plans assume."""
        node, storage = self.nodes[p], self._value(p)
        if packed and storage.strides is not None:
            storage = self._packed(node, storage)
        elif node.storage is not None:
            return node
        return source(storage, node.shapes, node.dtype, node.layout, node.batch, node.device)

    # -- CPU -----------------------------------------------------------------------------------

    def _on_cpu(self, segment: Segment) -> None:
        run_segment(segment, self.nodes, self.values, self.regions, self.binder, self.pool())

    def _run_flat(self, step: KernelStep) -> bool:
        if trace.active:
            return False  # the pipeline tells the trace about every step
        return run_flat(step, self.nodes[step.root], self.values, self.tables)

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
            table = self.binder.table(step)
            # The owners of all memory that a launch touches must outlive the launch.
            values = [self._value(p) for p in (*step.reads, *step.writes)]
            alive = [owner for value in values for owner in value.owners()]
            self._staged(step, gpu.launch, step.kernel, step.spec, table, alive)


def _constant(gpu: Callable[[Any], Any], array: Array, device: Any) -> int:
    """The address of an array of constants on the device where a kernel runs."""
    if device is None:
        return address_of(array)
    address: int = gpu(device).constant(array)
    return address
