"""Program → Plan: which kernels run, in which order, and what each reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...kernels.ir.spec import KernelSpec
from ..graph.node import Decode, Pointwise, Transfer, View
from .lowering import Lowering, Recipe, SamplerConflictError, Terms
from .passes import FUSIBLE, MAX_GROUP_NODES, choose_kept
from .program import Program


@dataclass(eq=False)
class KernelStep:
    """One generated kernel over all samples of a batch."""

    root: int
    spec: KernelSpec
    recipe: Recipe
    members: tuple[int, ...]
    device: Any
    kernel: Any = None  # compiled on first use
    number: int = -1  # its place in the plan

    @property
    def reads(self) -> Iterable[int]:
        return (p for p, _ in self.recipe.loads)

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(p for p, _ in self.recipe.stores)


@dataclass(eq=False)
class OpaqueStep:
    """Anything that is not a generated kernel: aliases, sample choices, copies, host functions."""

    root: int
    reads: tuple[int, ...]
    number: int = -1  # its place in the plan

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.root,)


class DecodeStep(OpaqueStep):
    """Samples made one by one in host memory: a part of the kernels' pipeline that follows."""


Step = KernelStep | OpaqueStep


@dataclass(eq=False)
class Segment:
    """A run of decoders and kernels over the same samples, or one opaque step."""

    steps: list[Step]
    # Values that only this segment sees, and the slot of scratch memory of each: those that are
    # never needed at the same time share one.
    slots: dict[int, int] = field(default_factory=dict)
    last: tuple[int, ...] = ()  # values that nothing after this segment needs


class Regional(NamedTuple):
    """A decoded value of which only a part may be needed: that which these kernels read."""

    root: int
    copies: tuple[int, ...]  # on other devices
    readers: tuple[KernelStep, ...]


@dataclass(eq=False)
class Plan:
    """What to run for a program shape; valid for every size, batch size and argument value."""

    steps: list[Step]
    keep: dict[int, str]
    outputs: tuple[int, ...]
    statics: tuple[Any, ...] = ()  # keeps interned statics alive while the key names their ids
    segments: list[Segment] = field(default_factory=list)
    regional: list[Regional] = field(default_factory=list)
    was_extended: bool = False  # later programs began with its results


class Record:
    """All plans of one program shape, and which of its promises were read after it ran."""

    __slots__ = ("plans", "read", "runs")

    def __init__(self) -> None:
        self.read: frozenset[int] = frozenset()
        self.plans: dict[frozenset[int], Plan] = {}
        self.runs = 0

    def mark_read(self, position: int) -> None:
        self.read |= {position}


# Plans are forgotten, all at once, when they cover more nodes than this: some 100 MB of them.
MAX_RECORDED_NODES = 1 << 18
_records: dict[tuple[Any, ...], Record] = {}
_recorded_nodes = 0
plan_count = 0  # how often planning really happened; tests assert on it


def plan_for(program: Program, fuse: bool) -> tuple[Plan, Record]:
    """The plan of a program, made once per program shape."""
    global _recorded_nodes
    key = (fuse, program.key)
    record = _records.get(key)
    if record is None:
        if _recorded_nodes > MAX_RECORDED_NODES:
            _records.clear()
            _recorded_nodes = 0
        _recorded_nodes += len(program.nodes)
        record = _records.setdefault(key, Record())
    also = record.read.intersection(program.promises) if record.read else record.read
    plan = record.plans.get(also)
    if plan is None:
        plan = record.plans[also] = make_plan(program, fuse, also)
    record.runs += 1
    return plan, record


def known_plan(program: Program, fuse: bool) -> Plan | None:
    """What `plan_for` would give, if it has nothing to do for it."""
    record = _records.get((fuse, program.key))
    return None if record is None else record.plans.get(record.read.intersection(program.promises))


def make_plan(program: Program, fuse: bool, also: frozenset[int] = frozenset()) -> Plan:
    """Passes choose what is kept; every kept value becomes a step, in order."""
    global plan_count
    plan_count += 1
    outputs = tuple(sorted({*program.outputs, *also}))
    groups, keep = _grouped(program, fuse, also, outputs)
    steps = groups.steps()
    for number, step in enumerate(steps):
        step.number = number
    plan = Plan(steps, keep, outputs, tuple(n.static for n in program.nodes))
    plan.segments = _segments(program, steps)
    plan.regional = _regional(program, steps, {*outputs})
    _allot(plan)
    return plan


def _grouped(
    program: Program, fuse: bool, also: frozenset[int], outputs: tuple[int, ...]
) -> tuple[_Groups, dict[int, str]]:
    """Kernels for what the passes keep; and for interpolated values that one kernel would need at
    two places at once, which only lowering sees."""
    keep = choose_kept(program, fuse, also)
    stored: dict[int, str] = {}
    while True:
        groups = _Groups(program, {**keep, **stored}, outputs)
        try:
            groups.lower()
            if fuse:
                groups.merge()
            return groups, groups.keep
        except SamplerConflictError as conflict:
            stored[conflict.position] = "a kernel interpolates at one place"


class _Groups:
    """The kernels of a plan: first one for every kept value, then several results from one.

    `keep` loses the values that turn out to be needed inside of one kernel only.
    """

    def __init__(self, program: Program, keep: dict[int, str], outputs: tuple[int, ...]) -> None:
        self.program = program
        self.keep = keep
        self.outputs = frozenset(outputs)
        self.kernels: dict[int, KernelStep] = {}
        self.opaque: dict[int, OpaqueStep] = {}
        self.readers: dict[int, set[int]] = {p: set() for p in keep}  # roots of what loads it

    def lower(self) -> None:
        """A kernel for every kept value."""
        program = self.program
        for p in sorted(self.keep):
            node = program.nodes[p]
            if node.storage is not None:
                continue
            if isinstance(node.static, FUSIBLE) and not self._is_rename(p):
                self._add(self._lower(p, frozenset())[1])
            else:
                kind = DecodeStep if isinstance(node.static, Decode) else OpaqueStep
                self.opaque[p] = kind(p, program.inputs[p])
                for i in program.inputs[p]:
                    self.readers[i].add(p)

    def steps(self) -> list[Step]:
        """All steps, in the order of their results."""
        found: dict[int, Step] = {**self.kernels, **self.opaque}
        return [found[p] for p in sorted(found)]

    def merge(self) -> None:
        """Let kernels store, on the way, results that they need; the last ones first, so that the
        readers of a result are settled when its turn comes."""
        for p in sorted(self.kernels, reverse=True):
            # Every reader must run after the value is stored, so only the first one can store it.
            first = min(self.readers[p], default=None)
            if first in self.kernels and isinstance(
                self.program.nodes[p].static, (Pointwise, View)
            ):
                self._absorb(p, self.kernels[first])

    def _absorb(self, p: int, reader: KernelStep) -> None:
        node, into = self.program.nodes[p], self.program.nodes[reader.root]
        if node.batch != into.batch or node.device != into.device:
            return
        if len({*reader.members, *self.kernels[p].members}) > MAX_GROUP_NODES:
            return
        if not all(is_onto(self.program, t, into.rank) for q, t in reader.recipe.loads if q == p):
            return  # which lowering would find, too, but it may be a value read at many positions
        if reader.spec.sampler is not None and self.kernels[p].spec.sampler is not None:
            return
        inline = {p, *reader.writes} - {reader.root}
        try:
            lowering, merged = self._lower(reader.root, frozenset(inline))
        except SamplerConflictError:
            return
        where = lowering.places(p)
        if len(where) != 1 or where[0][2] is not None:
            return
        if not is_onto(self.program, where[0][1], into.rank):
            return
        self.readers[p].discard(reader.root)
        if not self.readers[p] and p not in self.outputs:
            # nobody else wants it: it stays in registers
            del self.keep[p]
            _, merged = self._lower(reader.root, frozenset(inline - {p}))
        self._remove(p)
        self._remove(reader.root)
        self._add(merged)

    def _lower(self, root: int, inline: frozenset[int]) -> tuple[Lowering, KernelStep]:
        program = self.program
        lowering = Lowering(program.nodes, program.inputs, self.keep, inline)
        spec, recipe = lowering.group(root)
        if not spec.has_whole_lines:
            lowering = Lowering(program.nodes, program.inputs, self.keep, inline, lines=False)
            spec, recipe = lowering.group(root)
        members = tuple(sorted(lowering.members))
        return lowering, KernelStep(root, spec, recipe, members, program.nodes[root].device)

    def _add(self, kernel: KernelStep) -> None:
        self.kernels[kernel.root] = kernel
        for p in kernel.reads:
            self.readers[p].add(kernel.root)

    def _remove(self, root: int) -> None:
        for p in self.kernels.pop(root).reads:
            self.readers[p].discard(root)

    def _is_rename(self, p: int) -> bool:
        static = self.program.nodes[p].static
        return (
            isinstance(static, View) and static.relabel and self.program.inputs[p][0] in self.keep
        )


def is_onto(program: Program, terms: Terms, rank: int) -> bool:
    """Whether every element of the operand is visited exactly once over the output domain."""
    axes = [axis for axis, _, _ in terms]
    if sorted(-1 if a is None else a for a in axes) != list(range(rank)):
        return False
    return all(
        kind == "view" and program.nodes[p].static.onto
        for _, _, path in terms
        for kind, p, _ in path
    )


# -- when values come and go ---------------------------------------------------------------------


def _segments(program: Program, steps: list[Step]) -> list[Segment]:
    """Runs of steps over the same samples: each sample goes through all of them while hot."""
    segments: list[Segment] = []
    for step in steps:
        last = segments[-1].steps[-1] if segments else None
        if (
            last is not None
            and is_by_sample(step)
            and is_by_sample(last)
            and _device(step) == _device(last)
            and program.nodes[step.root].batch == program.nodes[last.root].batch
        ):
            segments[-1].steps.append(step)
        else:
            segments.append(Segment([step]))
    return segments


def is_by_sample(step: Step) -> bool:
    """Whether every sample of a step's result depends on its own inputs alone."""
    return isinstance(step, (KernelStep, DecodeStep))


def _device(step: Step) -> Any:
    return step.device if isinstance(step, KernelStep) else None


def _regional(program: Program, steps: list[Step], outputs: set[int]) -> list[Regional]:
    """Decoded values that nothing but kernels read, directly or as copies."""
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for p in step.reads:
            readers.setdefault(p, []).append(step)
    found: list[Regional] = []
    for step in steps:
        if not isinstance(step, DecodeStep) or not program.nodes[step.root].static.has_regions:
            continue
        places = [step.root]
        kernels: list[KernelStep] = []
        others = 0
        for p in places:  # grows
            others += p in outputs
            for reader in readers.get(p, ()):
                if isinstance(reader, KernelStep):
                    kernels.append(reader)
                elif isinstance(program.nodes[reader.root].static, Transfer):
                    places.append(reader.root)
                else:
                    others += 1
        if not others:
            found.append(Regional(step.root, tuple(places[1:]), tuple(kernels)))
    return found


def _allot(plan: Plan) -> None:
    """Find the last reader of every value that is not a result, and its slot of scratch memory."""
    made = {
        p: s for s, segment in enumerate(plan.segments) for t in segment.steps for p in t.writes
    }
    inner = made.keys() - set(plan.outputs)
    ends = {p: (s, t) for s, segment in enumerate(plan.segments)
            for t, step in enumerate(segment.steps) for p in step.reads if p in inner}  # fmt: skip
    for s, segment in enumerate(plan.segments):
        segment.last = tuple(p for p, (end, _) in ends.items() if end == s)
        free: list[int] = []
        count = 0
        for t, step in enumerate(segment.steps):
            for p in step.writes:
                if p in ends and ends[p][0] == s and is_by_sample(step):
                    if not free:
                        free.append(count)
                        count += 1
                    segment.slots[p] = free.pop()
            free += {
                segment.slots[p] for p in step.reads if p in segment.slots and ends[p] == (s, t)
            }
