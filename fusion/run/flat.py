"""Runs small segments that consist of one kernel over all elements of its operands.

Programs on small data are bound by Python. Such a segment has no intermediate values, no scratch
memory and no work for a second thread, so its kernel runs directly, on a table that is reused.
"""

from __future__ import annotations

from ...kernels.common import trace
from ..graph.node import Node
from ..graph.storage import Storage, allocate
from ..plan.steps import KernelStep
from . import watch
from .binder import FlatColumns, Tables

# Handing work to another thread costs 70-90 µs; below this many bytes of results the caller is
# faster alone.
PARALLEL_MIN_BYTES = 512 << 10


def run_flat(
    step: KernelStep, nodes: list[Node], values: list[Storage | None], tables: Tables
) -> bool:
    """Run a flat segment (`Segment.flat`); False if it is large or its kernel is not compiled."""
    root = step.root
    node = nodes[root]
    nbytes = node.shapes.packed(node.dtype.bytes)[1]
    if step.kernel is None or nbytes >= PARALLEL_MIN_BYTES:
        return False
    values[root] = allocate(node.shapes, node.dtype.bytes)
    columns = step.columns
    if columns is None:
        columns = step.columns = FlatColumns.of(step.spec, step.recipe)
    rows, address = tables.take(len(step.spec.columns), node.count)
    columns.fill(rows, node.shapes.volumes, values)
    if trace.active:
        stage = watch.begin(step, nodes, next(trace.runs))
        trace.during(stage, step.kernel.run, address, 0, node.count)
    else:
        step.kernel.run(address, 0, node.count)
    return True
