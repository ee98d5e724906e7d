"""`ndd.explain(x)`: what would run, or what ran, for a value: groups, kernels, bytes, reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .fusion.executor import fusion_enabled
from .fusion.graph import Node
from .fusion.plan import KernelStep, Plan, plan_for
from .fusion.program import Program, collect
from .handle import Handle
from .kernels.cache import cache_dir
from .kernels.cpu_runtime import kernel_file


@dataclass
class Group:
    """One step of a plan."""

    kind: str  # kernel | opaque
    ops: tuple[str, ...]
    kernel: str
    source: Path | None
    read_bytes: int
    written_bytes: int
    reason: str  # why the group ends here
    outputs: tuple[int, ...]
    tabulated: bool = False


@dataclass
class Explanation:
    """The plan of a value; `str()` of it is for people, the fields are for programs."""

    nodes: list[str]
    groups: list[Group] = field(default_factory=list)
    fused_bytes: int = 0
    unfused_bytes: int = 0
    promises: tuple[int, ...] = ()

    @property
    def kernels(self) -> list[str]:
        """Names of all kernels, in order."""
        return [g.kernel for g in self.groups if g.kind == "kernel"]

    def __str__(self) -> str:
        lines = [f"{len(self.nodes)} operations in {len(self.groups)} groups"]
        for k, g in enumerate(self.groups):
            lines.append(f"[{k}] {g.kernel or g.kind}: {' → '.join(g.ops)}")
            table = ", tabulated over 256 bytes" if g.tabulated else ""
            lines.append(f"    reads {_size(g.read_bytes)}, writes {_size(g.written_bytes)}{table}")
            lines.append(f"    ends because {g.reason}")
            if g.source is not None:
                lines.append(f"    source {g.source}")
        if self.unfused_bytes:
            saved = 1 - self.fused_bytes / self.unfused_bytes
            lines.append(
                f"bytes moved: {_size(self.fused_bytes)} fused, {_size(self.unfused_bytes)} op by op "
                f"({saved:.0%} saved)"
            )
        return "\n".join(lines)

    __repr__ = __str__


def explain(*values: Any) -> Explanation:
    """Tell what runs for these values: groups, kernels, bytes and why each fusion stopped.

    Nothing is computed. For a value that exists already, the plan that made it is not kept: build
    it in deferred mode, or ask before it is consumed.

    >>> import ndd
    >>> with ndd.EvalMode.deferred:
    ...     x = ndd.flip(ndd.brightness(ndd.zeros(shape=[4, 4, 3], layout="HWC"), brightness=2.0))
    ...     e = ndd.explain(x)
    >>> len(e.kernels)
    1
    """
    roots = [v._node for v in values]
    for v in values:
        if not isinstance(v, Handle):
            raise TypeError(f"explain: wanted a Tensor or a Batch, got {type(v).__name__}")
    program = collect(roots)
    plan, _ = plan_for(program, fusion_enabled())
    return describe(plan, program)


def describe(plan: Plan, program: Program) -> Explanation:
    """An Explanation of a plan for the sizes of a program."""
    nodes = program.nodes
    pending = [p for p, n in enumerate(nodes) if n.storage is None]
    result = Explanation([_node_text(nodes[p]) for p in pending], promises=program.promises)
    for step in plan.steps:
        reason = plan.keep.get(step.root, "")
        if not isinstance(step, KernelStep):
            op = nodes[step.root].op
            result.groups.append(Group("opaque", (op,), "", None, 0, 0, reason, (step.root,)))
            continue
        name = kernel_file(step.spec, step.device is not None)
        folder = "cpu" if step.device is None else "gpu"
        reads = sum(_nbytes(nodes[p]) for p in dict.fromkeys(p for p, _ in step.recipe.loads))
        writes = sum(_nbytes(nodes[p]) for p in step.writes)
        ops = tuple(nodes[p].op for p in step.members)
        result.groups.append(
            Group("kernel", ops, name, cache_dir() / folder / f"{name}.py", reads, writes, reason,
                  step.writes, step.device is None and _tabulated(step))  # fmt: skip
        )
        result.fused_bytes += reads + writes
    for p in pending:
        inputs = dict.fromkeys(program.inputs[p])
        result.unfused_bytes += _nbytes(nodes[p]) + sum(_nbytes(nodes[i]) for i in inputs)
    return result


def _tabulated(step: KernelStep) -> bool:
    from .kernels.cpu import is_tabulated

    return is_tabulated(step.spec)


def _node_text(node: Node) -> str:
    return f"{node.op} {node.dtype} {node.layout or ''} {node.shapes.tuples[0]}"


def _nbytes(node: Node) -> int:
    return int(node.shapes.volumes.sum()) * node.dtype.bytes


def _size(nbytes: int) -> str:
    for unit in ("B", "KB", "MB"):
        if nbytes < 10_000:
            return f"{nbytes} {unit}"
        nbytes //= 1000
    return f"{nbytes} GB"
