"""Makes and keeps plans: a program goes in, its plan comes out, made once per program shape."""

from __future__ import annotations

from typing import Any

from ...kernels.common.memo import Memo
from .draft import Draft
from .passes import PASSES
from .program import Program
from .steps import Plan


class Record:
    """All plans of one program shape, and which of its promises were read after it ran."""

    __slots__ = ("plans", "read", "runs", "stepwise")

    def __init__(self) -> None:
        self.read: frozenset[int] = frozenset()
        self.plans: dict[frozenset[int], Plan] = {}
        # Plans that run some values op by op, by what is stored and by these values (`Draft`).
        self.stepwise: dict[tuple[frozenset[int], frozenset[int]], Plan] = {}
        self.runs = 0

    def mark_read(self, position: int) -> None:
        self.read |= {position}


class Planner:
    """Owns all plans; drops them all at once when they cover too many nodes."""

    MAX_NODES = 1 << 18  # about 100 MB of plans

    def __init__(self) -> None:
        self.records: Memo[tuple[Any, ...], Record] = Memo("plans", 1 << 16)
        self.nodes = 0  # number of nodes that the records cover
        self.count = 0  # number of plans made; tests assert on it

    def plan_for(self, program: Program, fuse: bool) -> tuple[Plan, Record]:
        """The plan of a program, made once per program shape."""
        key = (fuse, program.key)
        record = self.records.get(key)
        if record is None:
            if self.nodes > self.MAX_NODES:
                self.records.clear()
            if not self.records:
                self.nodes = 0
            self.nodes += len(program.nodes)
            record = self.records.setdefault(key, Record())
        also = record.read.intersection(program.promises) if record.read else record.read
        plan = record.plans.get(also)
        if plan is None:
            plan = record.plans[also] = self.make_plan(program, fuse, also)
        record.runs += 1
        return plan, record

    def known_plan(self, program: Program, fuse: bool) -> Plan | None:
        """The plan that `plan_for` would return, or None if it would have to make one."""
        record = self.records.get((fuse, program.key))
        if record is None:
            return None
        return record.plans.get(record.read.intersection(program.promises))

    def make_plan(
        self,
        program: Program,
        fuse: bool,
        also: frozenset[int] = frozenset(),
        apart: frozenset[int] = frozenset(),
    ) -> Plan:
        """Run all passes."""
        self.count += 1
        draft = Draft(program, fuse, also, apart)
        for apply in PASSES:
            apply(draft)
        return draft.plan()


PLANNER = Planner()
