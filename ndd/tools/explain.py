"""`ndd.explain(x)`: a handle enters, the plan of its value leaves as text, fields or drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ..core.handle import Handle, lock_of
from ..fusion.graph.shapes import Shapes
from ..fusion.graph.sites import Site
from ..fusion.plan.planner import PLANNER
from ..fusion.plan.program import Facts, Program, Report, collect
from ..fusion.plan.steps import DecodeStep, KernelStep, Plan, Step
from ..fusion.run.binder import Binder
from ..fusion.run.executor import fusion_enabled
from ..fusion.run.regions import regions_of
from ..fusion.run.tiers import TIERS
from ..kernels.common.disk_cache import cache_dir
from ..kernels.cpu.runtime import kernel_file
from ..kernels.ir.spec import KernelSpec


@dataclass
class Value:
    """One value of the program: an input, or the result of an op."""

    op: str
    text: str  # type, layout, shape
    nbytes: int
    made_bytes: int  # less than `nbytes` if only a region of a picture is decoded
    inputs: tuple[int, ...]
    is_input: bool
    is_constant: bool


@dataclass
class Group:
    """One step of a plan. Numbers are positions in `Explanation.values`."""

    kind: str  # kernel | opaque
    ops: tuple[str, ...]
    kernel: str
    source: Path | None
    read_bytes: int
    written_bytes: int
    reason: str  # why the group ends here
    outputs: tuple[int, ...]
    tabulated: bool = False
    members: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()  # in the user's program, if known
    spec: KernelSpec | None = field(default=None, repr=False)
    on_gpu: bool = False
    whole_bytes: int = 0  # of the whole pictures, if it decodes only regions
    # If its result exists only while a sample goes through several groups: the last of these.
    stays_until: int | None = None

    @property
    def moved(self) -> str:
        """Bytes that the group reads and writes, as text."""
        if not self.read_bytes + self.written_bytes:
            return "moves no bytes"
        text = f"reads {size_text(self.read_bytes)}, writes {size_text(self.written_bytes)}"
        if self.whole_bytes:
            text += f" (of {size_text(self.whole_bytes)}: only what is read is decoded)"
        return f"{text}, tabulated over 256 bytes" if self.tabulated else text

    @property
    def code(self) -> str:
        """The generated source, also of a kernel that has not been compiled yet."""
        if self.spec is None:
            return ""
        if self.on_gpu:
            from ..kernels.gpu import render as gpu

            return gpu.render(self.spec, self.kernel)
        from ..kernels.cpu import render as cpu

        return cpu.render(self.spec, self.kernel)


@dataclass(repr=False)
class Explanation:
    """The plan of a value: print it, read its fields, or draw it with `svg()`. A notebook shows the
    drawing with the generated source below it."""

    nodes: list[str]
    groups: list[Group] = field(default_factory=list)
    fused_bytes: int = 0
    unfused_bytes: int = 0
    promises: tuple[int, ...] = ()
    values: list[Value] = field(default_factory=list)
    tier: str = ""  # whether fused kernels run or those of single ops, and why

    @property
    def kernels(self) -> list[str]:
        """Names of all kernels, in order."""
        return [g.kernel for g in self.groups if g.kind == "kernel"]

    @property
    def summary(self) -> str:
        """How many operations became how many groups."""
        return f"{counted(len(self.nodes), 'operation')} in {counted(len(self.groups), 'group')}"

    @property
    def savings(self) -> str:
        """Bytes moved, compared with running op by op; empty if nothing moves."""
        if not self.unfused_bytes:
            return ""
        saved = 1 - self.fused_bytes / self.unfused_bytes
        fused, unfused = size_text(self.fused_bytes), size_text(self.unfused_bytes)
        return f"bytes moved: {fused} fused, {unfused} op by op ({saved:.0%} saved)"

    def svg(self) -> str:
        """The graph as a drawing: groups as boxes, with ops, bytes and kernel names."""
        from .diagram import svg

        return svg(self)

    def _repr_html_(self) -> str:
        from .diagram import html

        return html(self)

    def __str__(self) -> str:
        lines = [self.summary, *([f"tier: {self.tier}"] if self.tier else [])]
        for k, g in enumerate(self.groups):
            lines.append(f"[{k}] {g.kernel or g.kind}: {_chain(g.ops)}")
            lines.append(f"    {g.moved}")
            if g.stays_until is not None:
                lines.append(f"    each sample stays in scratch memory until group {g.stays_until}")
            merged = sorted({op for op in g.ops if "+" in op})
            if merged:
                lines.append(f"    merged by fusion_options, sampled once: {', '.join(merged)}")
            lines.append(f"    ends because {g.reason}")
            if g.lines:
                lines.append(f"    called at {', '.join(g.lines)}")
            if g.source is not None:
                lines.append(f"    source {g.source}")
        if self.savings:
            lines.append(self.savings)
        return "\n".join(lines)

    __repr__ = __str__


def explain(*values: Any) -> Explanation:
    """Show what runs for these values: groups, kernels, bytes, and why each group ends.

    This computes nothing. For a value that is computed already, it shows what ran. A notebook shows
    the result as a drawing; `svg()` returns that drawing.

    >>> import ndd
    >>> with ndd.EvalMode.deferred:
    ...     x = ndd.flip(ndd.brightness(ndd.zeros(shape=[4, 4, 3], layout="HWC"), brightness=2.0))
    ...     e = ndd.explain(x)
    >>> len(e.kernels)
    1
    >>> e.svg().startswith("<svg")
    True
    """
    if not values:
        raise TypeError("explain: wanted a Tensor or a Batch, got nothing")
    for v in values:
        if not isinstance(v, Handle):
            raise TypeError(f"explain: wanted a Tensor or a Batch, got {type(v).__name__}")
    nodes = [v._node for v in values if v._node.count]
    if not nodes:
        raise ValueError("explain: nothing runs for a batch without samples")
    with lock_of(nodes[0]):
        if len(nodes) == 1 and nodes[0].storage is not None and nodes[0].result.report is not None:
            return describe(nodes[0].result.report)
        program = collect(nodes)
        plan, _ = PLANNER.plan_for(program, fusion_enabled())
        binder = Binder(
            program.nodes, [n.storage for n in program.nodes], lambda _array, _device: 0
        )
        report = program.report(plan, regions_of(plan.regional, binder))
        return describe(report._replace(tier=TIERS.outlook(program, plan)), program)


def describe(report: Report, program: Program | None = None) -> Explanation:
    """Explain a plan for the sizes in a report; with the program, also name the lines of the user's
    code."""
    plan, nodes, inputs, promises, made, tier = report
    values = [_value(plan, p, facts, inputs[p], made.get(p)) for p, facts in enumerate(nodes)]
    pending = [p for p, v in enumerate(values) if not v.is_input]
    texts = [f"{values[p].op} {values[p].text}" for p in pending]
    result = Explanation(texts, promises=promises, values=values, tier=tier)
    sites = [n.result.site for n in program.nodes] if program is not None else []
    stays = {
        step.root: segment.steps[-1].number
        for segment in plan.segments
        for step in segment.steps
        if isinstance(step, DecodeStep) and step.root in segment.slots
    }
    for step in plan.steps:
        group = _group(plan, step, values)
        group.lines = _lines(sites[p] for p in group.members) if sites else ()
        group.stays_until = stays.get(step.root)
        result.groups.append(group)
        result.fused_bytes += group.read_bytes + group.written_bytes
    for p in pending:
        if p not in plan.renames:
            result.unfused_bytes += values[p].nbytes + _total(values, inputs[p])
    return result


def _value(
    plan: Plan, position: int, facts: Facts, inputs: tuple[int, ...], made: Shapes | None
) -> Value:
    op, dtype, layout, shapes = facts
    count = f"{shapes.count} × " if shapes.count > 1 else ""
    more = "" if shapes.uniform else " …"
    kind = f"{dtype} {layout}" if layout else f"{dtype}"
    text = f"{kind} {count}{shapes.tuples[0]}{more}"
    nbytes = int(shapes.volumes.sum()) * dtype.bytes
    made_bytes = nbytes if made is None else int(made.volumes.sum()) * dtype.bytes
    is_input = plan.keep.get(position) == "input"
    return Value(op, text, nbytes, made_bytes, inputs, is_input, op == "const")


def _group(plan: Plan, step: Step, values: list[Value]) -> Group:
    reads = tuple(dict.fromkeys(step.reads))
    reason = plan.keep.get(step.root, "")
    read, written = _moved(values, reads), _moved(values, step.writes)
    if not isinstance(step, KernelStep):
        op, whole = values[step.root].op, _total(values, step.writes)
        if written == whole:
            whole = 0
        if step.root in plan.renames:
            read = written = 0
        return Group("opaque", (op,), "", None, read, written, reason, step.writes,
                     members=(step.root,), reads=reads, whole_bytes=whole)  # fmt: skip
    on_gpu = step.device is not None
    name = kernel_file(step.spec, on_gpu)
    source = cache_dir() / ("gpu" if on_gpu else "cpu") / f"{name}.py"
    ops = tuple(values[p].op for p in step.members)
    return Group("kernel", ops, name, source, read, written, reason, step.writes,
                 step.spec.is_tabulated, step.members, reads,
                 spec=step.spec, on_gpu=on_gpu)  # fmt: skip


def _total(values: list[Value], positions: Sequence[int]) -> int:
    return sum(values[p].nbytes for p in dict.fromkeys(positions))


def _moved(values: list[Value], positions: Sequence[int]) -> int:
    return sum(values[p].made_bytes for p in dict.fromkeys(positions))


def _chain(ops: Sequence[str]) -> str:
    """The ops of a group; an op that is made of several operations appears once."""
    return " → ".join(op for op, _ in groupby(ops))


def _lines(sites: Any) -> tuple[str, ...]:
    found: list[Site] = sorted({s for s in sites if s is not None})
    return tuple(map(str, found))


def counted(number: int, what: str) -> str:
    """A number with its noun, in the plural if needed."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def size_text(nbytes: int) -> str:
    """A number of bytes with a unit."""
    for unit in ("B", "KB", "MB"):
        if nbytes < 10_000:
            return f"{nbytes} {unit}"
        nbytes //= 1000
    return f"{nbytes} GB"
