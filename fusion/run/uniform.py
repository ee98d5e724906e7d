"""Runs segments of kernels over uniform batches whose tables were filled before.

Such a run only has to allocate memory, put addresses into the tables and call the kernels. Working
out again where values go and how samples are divided takes Python twice as long (a sum of one small
image: 57 µs in all, 43 this way).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...kernels.common import trace
from ...kernels.common.buffers import POOL
from ...kernels.common.memo import Memo
from ..graph.node import Node
from ..graph.storage import Storage, address_of, allocate
from ..plan.steps import KernelStep, Segment
from .binder import Binder, Template


class Arrangement(NamedTuple):
    """How a segment runs on one thread, without values in scratch memory."""

    templates: tuple[Template, ...]  # of the tables of its kernels, in order
    samples: int
    at_once: int  # samples that go through all kernels before the next ones


_arrangements: Memo[tuple[Any, ...], Arrangement] = Memo("segments of uniform batches", 512)


def arrangement_key(
    segment: Segment, nodes: list[Node], regions: Any, binder: Binder, threads: int
) -> tuple[Any, ...] | None:
    """What the arrangement of a segment depends on; None if there can be none."""
    if regions or trace.active:
        return None
    key: list[Any] = [threads]
    for step in segment.steps:
        own = binder.template_key(step) if isinstance(step, KernelStep) else None
        if own is None or nodes[step.root].count != nodes[segment.steps[0].root].count:
            return None
        key += own
    return tuple(key)


def run_again(
    key: tuple[Any, ...], segment: Segment, nodes: list[Node], values: list[Storage | None]
) -> bool:
    """Run a segment that `remember` knows; False if it does not."""
    known = _arrangements.get(key)
    if known is None:
        return False
    for step in segment.steps:
        for p in step.writes:
            values[p] = allocate(nodes[p].shapes, nodes[p].dtype.bytes)
    scratch = POOL.take(max(t.room for t in known.templates))
    calls = []
    for step, template in zip(segment.steps, known.templates, strict=True):
        assert isinstance(step, KernelStep)
        rows = template.filled(values)
        if step.scratch.column is not None:
            rows[:, step.scratch.column] = scratch.address
        calls.append((step.kernel.run, address_of(rows), rows))
    for begin in range(0, known.samples, known.at_once):
        end = min(begin + known.at_once, known.samples)
        for run, address, _ in calls:
            run(address, begin, end)
    return True


def remember(key: tuple[Any, ...], templates: list[Template | None], count: int, size: int) -> None:
    """Note how a segment was run, if all of its tables have templates."""
    if all(t is not None for t in templates):
        _arrangements[key] = Arrangement(tuple(templates), count, size)  # type: ignore[arg-type]
