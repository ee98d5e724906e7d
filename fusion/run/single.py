"""The shortest way: one call whose inputs are in memory, like one that was planned before.

An op-by-op program on small data is bound by Python, and planning a single node anew is most of
it. What the plan said is kept under the tokens of the node and its inputs (bench/overhead.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...kernels.common import trace
from ...kernels.common.buffers import POOL
from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from ..graph.storage import Storage, address_of
from ..plan.program import Program, Report, facts_of, token
from ..plan.steps import KernelStep, Plan
from . import watch
from .pipeline import PARALLEL_MIN_BYTES

Key = tuple[int, ...]
MAX_KNOWN = 4096


class Single(NamedTuple):
    """A plan of one kernel that runs over all elements of its operands."""

    plan: Plan
    kernel: Any
    width: int  # of the table
    out: int  # column of the result's addresses
    loads: tuple[tuple[int, int], ...]  # (column, input)
    order: tuple[int, ...]  # input at each position of the program, -1 for the result
    inputs: list[tuple[int, ...]]
    report: Report
    shapes: Shapes


_known: dict[Key, Single] = {}


def key_of(node: Node) -> Key | None:
    """What the plan of a single node depends on; None if it is not such a node."""
    if node.device is not None or node.result.promise is not None:
        return None
    tokens = [token(node)]
    for i in node.inputs:
        if i.storage is None:
            return None
        tokens.append(token(i))
    return tuple(tokens)


def learn(
    key: Key, positions: tuple[int, ...], program: Program, plan: Plan, report: Report
) -> None:
    """Remember the plan of a program that was one node over `positions`."""
    if len(plan.steps) != 1 or len(program.nodes) != len(positions) + 1 or program.promises:
        return
    step = plan.steps[0]
    if not isinstance(step, KernelStep) or not step.recipe.flat or len(step.writes) != 1:
        return
    if len(set(positions)) != len(positions):
        return  # an input that is used twice has one position
    columns = step.spec.columns
    loads = tuple(
        (columns["in", k], positions.index(p)) for k, (p, _) in enumerate(step.recipe.loads)
    )
    order = tuple(positions.index(p) if p in positions else -1 for p in range(len(program.nodes)))
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    shapes = program.nodes[step.root].shapes
    _known[key] = Single(plan, step.kernel, len(columns), columns["out", 0], loads, order,
                         program.inputs, report, shapes)  # fmt: skip


def run(node: Node, key: Key, tables: dict[tuple[int, int], tuple[Array, int]]) -> bool:
    """Compute a node if a node like it is known and the work is small; `tables` are reused."""
    known = _known.get(key)
    if known is None:
        return False
    shapes = node.shapes
    offsets, nbytes, dense = shapes.packed(node.dtype.bytes)
    if nbytes >= PARALLEL_MIN_BYTES:
        return False
    found = tables.get((known.width, node.count))
    if found is None:
        if len(tables) > 64:
            tables.clear()
        empty = np.empty((node.count, known.width), np.int64)
        found = tables[known.width, node.count] = (empty, address_of(empty))
    rows, address = found
    inputs = node.inputs
    buffer = POOL.take(nbytes)
    addresses = buffer.address + offsets
    rows[:, 0] = shapes.volumes
    rows[:, known.out] = addresses
    for column, i in known.loads:
        rows[:, column] = inputs[i].storage.addresses  # type: ignore[union-attr]
    if trace.active:
        stage = watch.begin_single(known.plan.steps[0], node)
        trace.during(stage, known.kernel.run, address, 0, node.count)
    else:
        known.kernel.run(address, 0, node.count)
    node.result.report = known.report if shapes is known.shapes else _report(known, node)
    node.result.deliver(Storage(addresses, buffer, dense=dense))
    return True


def _report(known: Single, node: Node) -> Report:
    nodes = [node if i < 0 else node.inputs[i] for i in known.order]
    return Report(known.plan, facts_of(nodes), known.inputs, ())
