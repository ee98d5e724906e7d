"""Reports steps of a plan as stages to watchers (kernels/common/trace.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...kernels.common import trace
from ..graph.node import Node
from ..plan.steps import DecodeStep, KernelStep, Step

Work = Callable[[int, int, list[int]], None]


def lines_of(step: Step, nodes: list[Node]) -> list[str]:
    """The user's lines that called the ops of a step."""
    sites = (nodes[p].result.site for p in step.members)
    return list(dict.fromkeys(str(site) for site in sites if site))


def begin(step: Step, nodes: list[Node], run: int) -> trace.Stage:
    """Begin the stage of a step over all its samples."""
    category, name, about = _facts(step, nodes[step.root], lines_of(step, nodes))
    return trace.begin(category, name, step.number, nodes[step.root].count, run, about)


def watched(works: list[Work], steps: list[Step], nodes: list[Node], run: int) -> list[Work]:
    """Wrap the work of each step, so that every run on samples [begin, end) is a stage."""
    return [_watched(w, s, nodes, run) for w, s in zip(works, steps, strict=True)]


def _watched(work: Work, step: Step, nodes: list[Node], run: int) -> Work:
    category, name, about = _facts(step, nodes[step.root], lines_of(step, nodes))

    def stage(begin: int, end: int, places: list[int]) -> None:
        facts = {"first": begin, **about}
        begun = trace.begin(category, name, step.number, end - begin, run, facts)
        trace.during(begun, work, begin, end, places)

    return stage


def _facts(step: Step, node: Node, lines: list[str]) -> tuple[str, str, dict[str, Any]]:
    """Category and name of a step's stages, and the facts that a trace shows about them."""
    if isinstance(step, KernelStep):
        kernel = step.kernel
        about = {"ops": step.spec.chain, "lines": lines, "source": str(kernel.source_path)}
        return "launch", kernel.name, about
    category = "decode" if isinstance(step, DecodeStep) else "launch"
    return category, node.op, {"ops": node.op, "lines": lines}
