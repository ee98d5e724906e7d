"""Runs small segments that consist of one kernel over all elements of its operands.

Programs on small data are bound by Python. Such a segment has no intermediate values, no scratch
memory and no work for a second thread, so its kernel runs directly, on a table that is reused.
"""

from __future__ import annotations

from ..graph.node import Node
from ..graph.storage import Storage, allocate
from ..plan.steps import KernelStep
from .binder import Tables, flat_columns

# Handing work to another thread costs 70-90 µs; below this many bytes of results the caller is
# faster alone.
PARALLEL_MIN_BYTES = 512 << 10


def run_flat(step: KernelStep, node: Node, values: list[Storage | None], tables: Tables) -> bool:
    """Run a flat segment (`Segment.flat`) that computes `node` into `values`.

    Returns False if it is large or its kernel has not been compiled yet.
    """
    shapes, itemsize = node.shapes, node.dtype.bytes
    if step.kernel is None or shapes.packed(itemsize)[1] >= PARALLEL_MIN_BYTES:
        return False
    values[step.root] = allocate(shapes, itemsize)
    columns = step.columns
    if columns is None:
        columns = step.columns = flat_columns(step.spec, step.recipe)
    table = tables.take(len(step.spec.columns), node.count)
    table.fill(columns, shapes.volumes, values)
    step.kernel.run(table.address, 0, node.count)
    return True
