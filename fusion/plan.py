"""Program → Plan: which kernels run, in which order, and what each reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..kernels.spec import KernelSpec
from .graph import Pointwise, View
from .lower import Lowering, Recipe, Terms
from .passes import FUSIBLE, choose_kept
from .program import Program


@dataclass
class KernelStep:
    """One generated kernel over all samples of a batch."""

    root: int
    spec: KernelSpec
    recipe: Recipe
    members: tuple[int, ...]
    device: Any
    kernel: Any = None  # compiled on first use

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(p for p, _ in self.recipe.stores)


@dataclass
class OpaqueStep:
    """Anything that is not a generated kernel: aliases, sample choices, copies, host functions."""

    root: int


Step = KernelStep | OpaqueStep


@dataclass
class Plan:
    """What to run for a program shape; valid for every size, batch size and argument value."""

    steps: list[Step]
    keep: dict[int, str]
    outputs: tuple[int, ...]
    statics: tuple[Any, ...] = ()  # keeps interned statics alive while the key names their ids
    segments: list[list[Step]] = field(default_factory=list)


class Record:
    """All plans of one program shape, and which of its promises were read after it ran."""

    __slots__ = ("plans", "read", "runs")

    def __init__(self) -> None:
        self.read: frozenset[int] = frozenset()
        self.plans: dict[frozenset[int], Plan] = {}
        self.runs = 0

    def mark_read(self, position: int) -> None:
        self.read |= {position}


MAX_RECORDS = 4096
_records: dict[tuple[Any, ...], Record] = {}
plan_count = 0  # how often planning really happened; tests assert on it


def plan_for(program: Program, fuse: bool) -> tuple[Plan, Record]:
    """The plan of a program, made once per program shape."""
    key = (fuse, program.key)
    record = _records.get(key)
    if record is None:
        if len(_records) >= MAX_RECORDS:
            _records.clear()
        record = _records[key] = Record()
    also = record.read.intersection(program.promises) if record.read else record.read
    plan = record.plans.get(also)
    if plan is None:
        plan = record.plans[also] = make_plan(program, fuse, also)
    record.runs += 1
    return plan, record


def make_plan(program: Program, fuse: bool, also: frozenset[int] = frozenset()) -> Plan:
    """Passes choose what is kept; every kept value becomes a step, in order."""
    global plan_count
    plan_count += 1
    keep = choose_kept(program, fuse, also)
    kept = set(keep)
    absorbed = _absorb(program, keep, kept) if fuse else {}
    stored_with: dict[int, set[int]] = {}
    for p in absorbed:
        stored_with.setdefault(_final(absorbed, p), set()).add(p)
    steps: list[Step] = []
    for p in sorted(keep):
        node = program.nodes[p]
        if node.storage is not None or p in absorbed:
            continue
        if not isinstance(node.static, FUSIBLE) or _is_rename(program, keep, p):
            steps.append(OpaqueStep(p))
            continue
        steps.append(_kernel(program, kept, p, stored_with.get(p, set())))
    outputs = tuple(sorted({*program.outputs, *also}))
    plan = Plan(steps, keep, outputs, tuple(n.static for n in program.nodes))
    plan.segments = _segments(program, steps)
    return plan


def _is_rename(program: Program, keep: dict[int, str], p: int) -> bool:
    static = program.nodes[p].static
    return isinstance(static, View) and static.relabel and program.inputs[p][0] in keep


def _kernel(program: Program, kept: set[int], root: int, inline: set[int]) -> KernelStep:
    lowering = Lowering(program.nodes, program.inputs, kept, inline)
    spec, recipe = lowering.group(root)
    assert inline <= set(lowering.stores), "an absorbed result is not stored"
    return KernelStep(root, spec, recipe, tuple(sorted(lowering.members)), program.nodes[root].device)


# -- several results from one kernel -------------------------------------------------------------


def _absorb(program: Program, keep: dict[int, str], kept: set[int]) -> dict[int, int]:
    """Results that the kernel of their first reader can store on the way: {result: reader}."""
    absorbed: dict[int, int] = {}
    readers = _first_readers(program, kept)
    for p, (reader, terms) in readers.items():
        node, into = program.nodes[p], program.nodes[reader]
        if node.storage is not None or not isinstance(node.static, (Pointwise, View)):
            continue
        if _is_rename(program, keep, p) or _is_rename(program, keep, reader):
            continue
        together = node.batch == into.batch and node.device == into.device
        if together and is_onto(program, terms, into.rank):
            absorbed[p] = reader
    return absorbed


def _final(absorbed: dict[int, int], p: int) -> int:
    while p in absorbed:
        p = absorbed[p]
    return p


def _first_readers(program: Program, kept: set[int]) -> dict[int, tuple[int, Terms]]:
    """For each kept value the first kernel that loads it, and how, if all its loads are alike."""
    found: dict[int, tuple[int, Terms]] = {}
    spoiled: set[int] = set()
    for root in sorted(kept):
        node = program.nodes[root]
        if node.storage is not None:
            continue
        if not isinstance(node.static, FUSIBLE):
            for i in program.inputs[root]:
                if i not in found:
                    spoiled.add(i)
            continue
        lowering = Lowering(program.nodes, program.inputs, kept, set())
        _, recipe = lowering.group(root)
        for position, terms in recipe.loads:
            first = found.setdefault(position, (root, terms))
            if first[0] == root and first[1] != terms:
                spoiled.add(position)
    return {p: r for p, r in found.items() if p not in spoiled}


def is_onto(program: Program, terms: Terms, rank: int) -> bool:
    """Whether every element of the operand is visited exactly once over the output domain."""
    axes = [axis for axis, _, _ in terms]
    if None in axes or len(set(axes)) != len(axes) or len(axes) != rank:
        return False
    return all(
        kind == "view" and program.nodes[p].static.onto for _, _, path in terms for kind, p, _ in path
    )


def _segments(program: Program, steps: list[Step]) -> list[list[Step]]:
    """Runs of kernels over the same samples: each sample goes through all of them while hot."""
    segments: list[list[Step]] = []
    for step in steps:
        last = segments[-1][-1] if segments else None
        if (
            isinstance(step, KernelStep)
            and isinstance(last, KernelStep)
            and step.device == last.device
            and program.nodes[step.root].batch == program.nodes[last.root].batch
        ):
            segments[-1].append(step)
        else:
            segments.append([step])
    return segments


