"""Runs small segments that consist of one kernel over all elements of its operands.

Programs on small data are bound by Python. Such a segment has no intermediate values, no scratch
memory and no work for a second thread, so its kernel runs directly, on a table that is reused.
"""

from __future__ import annotations

from ..graph.node import Node
from ..graph.storage import Storage, allocate
from ..plan.steps import KernelStep
from .binder import Tables, layout

# Handing work to another thread costs 70-90 µs; below this many bytes of results the caller is
# faster alone.
PARALLEL_MIN_BYTES = 512 << 10
# Up to this many bytes of results (some 5 µs, for costly functions 0.1 ms) a kernel keeps the
# interpreter's lock. Else the executor's thread may take it, and the caller wakes up late: in eager
# mode a call on 8 × 4×4×3 took 24.5 µs instead of 15.8.
BRIEF_BYTES = 4 << 10


def run_flat(step: KernelStep, node: Node, values: list[Storage | None], tables: Tables) -> bool:
    """Run a flat segment (`Segment.flat`) that computes `node` into `values`.

    Returns False if it is large or its kernel has not been compiled yet.
    """
    shapes, itemsize = node.shapes, node.dtype.bytes
    nbytes = shapes.packed(itemsize)[1]
    if step.kernel is None or nbytes >= PARALLEL_MIN_BYTES:
        return False
    values[step.root] = allocate(shapes, itemsize)
    table = tables.take(step.scratch.width, node.count)
    table.fill(layout(step).addresses, shapes.volumes, values)
    run = step.kernel.run_briefly if nbytes <= BRIEF_BYTES else step.kernel.run
    run(table.address, 0, node.count)
    return True
