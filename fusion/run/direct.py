"""Runs segments of kernels on the caller's thread, for batches that are no work for a second one.

Programs on small data are bound by Python. Such a run only has to allocate memory, fill the tables
and call the kernels. A pipeline, which divides samples among threads and keeps values in scratch
memory, takes Python 20 µs to prepare.
"""

from __future__ import annotations

from ...kernels.common import trace
from ...kernels.common.buffers import POOL
from ..graph.node import Node
from ..graph.storage import Storage, address_of, allocate
from ..plan.steps import KernelStep, Segment
from .binder import Binder
from .flat import PARALLEL_MIN_BYTES

# Intermediate values up to this size stay in the L2 cache anyway. Beyond it, each sample goes
# through all kernels of its segment before the next one starts, in scratch memory of its thread.
PIPELINE_MIN_BYTES = 1 << 20
# Samples that kernels read again go through all kernels together, up to this size: then they are
# still in the L2 cache, and calls, which take about 3 µs, are few. Variance of 32×224²×3 and of
# 256×64²×3 bytes, by this limit: one sample 515 and 893 µs, 128 KB 532 and 433, 512 KB 467 and 390,
# all samples 550 and 359.
HOT_BYTES = 1 << 19


def run_directly(
    segment: Segment, nodes: list[Node], values: list[Storage | None], binder: Binder, threads: int
) -> bool:
    """Compute the values of a segment into `values`; False if it needs a pipeline."""
    steps: list[KernelStep] = []
    count = nodes[segment.steps[0].root].count
    written = inner = 0
    for step in segment.steps:
        if not isinstance(step, KernelStep) or nodes[step.root].count != count:
            return False
        for p in step.writes:
            nbytes = nbytes_of(nodes[p])
            written += nbytes
            if p in segment.slots:
                inner += nbytes
        steps.append(step)
    if inner >= PIPELINE_MIN_BYTES or trace.active:
        return False
    if threads > 1 and count > 1 and written >= PARALLEL_MIN_BYTES:
        return False
    for step in steps:
        for p in step.writes:
            values[p] = allocate(nodes[p].shapes, nodes[p].dtype.bytes)
    bound = [binder.bound(step) for step in steps]
    room = max(needed for _, needed in bound)
    scratch = POOL.take(room) if room else None
    calls = []
    for step, (table, _) in zip(steps, bound, strict=True):
        if scratch is not None and step.scratch.column is not None:
            table[:, step.scratch.column] = scratch.address
        calls.append((step.kernel.run, address_of(table), table))
    at_once = samples_at_once(steps, nodes, count)
    for begin in range(0, count, at_once):
        end = min(begin + at_once, count)
        for run, address, _ in calls:
            run(address, begin, end)
    return True


def nbytes_of(node: Node) -> int:
    """Bytes of a whole batch in memory of its own."""
    return node.shapes.packed(node.dtype.bytes)[1]


def samples_at_once(kernels: list[KernelStep], nodes: list[Node], count: int) -> int:
    """How many samples to take through all kernels before the next ones: all of them, unless
    kernels read much of what kernels before them read."""
    if len(kernels) == 1:
        return max(count, 1)
    seen: set[int] = set()
    again: set[int] = set()
    for step in kernels:
        reads = {p for p in step.reads if nodes[p].count == count}
        again |= reads & seen
        seen |= reads
    nbytes = sum(nbytes_of(nodes[p]) for p in again)
    if nbytes < PIPELINE_MIN_BYTES:
        return max(count, 1)
    return max(HOT_BYTES * count // nbytes, 1)
