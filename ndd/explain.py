"""`ndd.explain(x)`: what would run, or what ran, for a value: groups, kernels, bytes, reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .fusion.executor import fusion_enabled
from .fusion.plan import KernelStep, plan_for
from .fusion.program import Report, collect
from .handle import Handle, lock_of
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
            merged = sorted({op for op in g.ops if "+" in op})
            if merged:
                lines.append(f"    merged by fusion_options, sampled once: {', '.join(merged)}")
            lines.append(f"    ends because {g.reason}")
            if g.source is not None:
                lines.append(f"    source {g.source}")
        if self.unfused_bytes:
            saved = 1 - self.fused_bytes / self.unfused_bytes
            fused, unfused = _size(self.fused_bytes), _size(self.unfused_bytes)
            lines.append(f"bytes moved: {fused} fused, {unfused} op by op ({saved:.0%} saved)")
        return "\n".join(lines)

    __repr__ = __str__


def explain(*values: Any) -> Explanation:
    """Tell what runs for these values: groups, kernels, bytes and why each fusion stopped.

    Nothing is computed. For a value that exists already it tells what ran to make it.

    >>> import ndd
    >>> with ndd.EvalMode.deferred:
    ...     x = ndd.flip(ndd.brightness(ndd.zeros(shape=[4, 4, 3], layout="HWC"), brightness=2.0))
    ...     e = ndd.explain(x)
    >>> len(e.kernels)
    1
    """
    for v in values:
        if not isinstance(v, Handle):
            raise TypeError(f"explain: wanted a Tensor or a Batch, got {type(v).__name__}")
    nodes = [v._node for v in values]
    with lock_of(nodes[0]):
        if len(nodes) == 1 and nodes[0].storage is not None and nodes[0].report is not None:
            return describe(nodes[0].report)
        program = collect(nodes)
        plan, _ = plan_for(program, fusion_enabled())
        return describe(program.report(plan))


def describe(report: Report) -> Explanation:
    """An Explanation of a plan for the sizes of a program."""
    plan, nodes, inputs, promises = report
    nbytes = [int(shapes.volumes.sum()) * dtype.bytes for _, dtype, _, shapes in nodes]
    pending = [p for p in range(len(nodes)) if plan.keep.get(p) != "input"]
    texts = [
        f"{op} {dtype} {layout or ''} {shapes.tuples[0]}" for op, dtype, layout, shapes in nodes
    ]
    result = Explanation([texts[p] for p in pending], promises=promises)
    for step in plan.steps:
        reason = plan.keep.get(step.root, "")
        if not isinstance(step, KernelStep):
            op = nodes[step.root][0]
            result.groups.append(Group("opaque", (op,), "", None, 0, 0, reason, (step.root,)))
            continue
        name = kernel_file(step.spec, step.device is not None)
        folder = "cpu" if step.device is None else "gpu"
        reads = sum(nbytes[p] for p in dict.fromkeys(step.reads))
        writes = sum(nbytes[p] for p in step.writes)
        ops = tuple(nodes[p][0] for p in step.members)
        result.groups.append(
            Group(
                "kernel",
                ops,
                name,
                cache_dir() / folder / f"{name}.py",
                reads,
                writes,
                reason,
                step.writes,
                step.device is None and _tabulated(step),
            )
        )
        result.fused_bytes += reads + writes
    for p in pending:
        result.unfused_bytes += nbytes[p]
        result.unfused_bytes += sum(nbytes[i] for i in dict.fromkeys(inputs[p]))
    return result


def _tabulated(step: KernelStep) -> bool:
    from .kernels.cpu import is_tabulated

    return is_tabulated(step.spec)


def _size(nbytes: int) -> str:
    for unit in ("B", "KB", "MB"):
        if nbytes < 10_000:
            return f"{nbytes} {unit}"
        nbytes //= 1000
    return f"{nbytes} GB"
