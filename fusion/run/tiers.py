"""Decides which kernels a program runs on: fused ones, or those of its single ops for now.

A program that changes from iteration to iteration (two of twelve ops in random order, say) asks for
a new fused kernel each time, and compiling one takes as long as running it some hundred times. So
there are two tiers:

- **fused**: the plan of the planner. A program takes it if all of its kernels are in memory or on
  disk. The first programs of a process also take it if single ops would need more kernels that are
  not compiled (`AT_ONCE`): most processes run one program over and over.
- **op by op**: groups whose kernel is not compiled run as single ops; other groups stay fused. A
  kernel that was asked for `ASKED` times, or by an earlier process, is compiled beside
  (kernels/cpu/compile_beside.py), and the program is fused as soon as it is there.

Both give the same bits. NDD_TIERS=0 always takes the first. GPU kernels have no tiers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from enum import Enum

from ...kernels.common import forks
from ...kernels.common.memo import Memo
from ...kernels.cpu import compile_beside, functions, runtime
from ...kernels.cpu import render as cpu
from ...kernels.ir.spec import KernelSpec
from ..plan.planner import PLANNER, Record
from ..plan.program import Program
from ..plan.steps import KernelStep, Plan

# So many programs of a process wait while their fused kernels are compiled: the loop's program, and
# perhaps a part of it that was flushed alone. `bench dynamic` with an empty cache, CPU seconds of
# the process: 10.0 op by op, 11.0 with 2, of which the two kernels are 0.6 and planning 0.3.
AT_ONCE = 2
# A fused kernel is compiled beside when it is asked for this often. Compiling takes 0.2 to 1 s on
# another core, a run of a small program 10 ms, of which fusion saves about half: it pays after some
# hundred runs. Programs that come twice mostly come again; those that do not, cost only idle time.
ASKED = 2
# If there is no process beside (no folder to write to, say), a kernel is compiled at once when it
# is asked for this often: then its program is a loop.
ASKED_ALONE = 8
# The process beside compiles at most this many kernels for this one.
BUDGET = 256


class WishState(Enum):
    """What became of a fused kernel that was not compiled when it was asked for."""

    WANTED = "asked for {asked} of {needed} times"
    COMPILING = "is being compiled"
    FAILED = "could not be compiled beside"


class Wish:
    """A fused kernel that was asked for."""

    __slots__ = ("asked", "state")

    def __init__(self) -> None:
        self.asked = 0
        self.state = WishState.WANTED

    def text(self, needed: int) -> str:
        return self.state.value.format(asked=self.asked, needed=needed)


def tiers_enabled() -> bool:
    """False if `NDD_TIERS=0`: then every program waits for its fused kernels."""
    return os.environ.get("NDD_TIERS", "1") != "0"


class Tiers:
    """Chooses the tier of every program; `plan_for` is the only entry."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self.stepwise_runs = 0  # how many programs ran op by op; `ndd.report` says so
        self._wishes: Memo[KernelSpec, Wish] = Memo("kernels that were asked for", 4096)
        self.clear()

    def clear(self) -> None:
        """Start as a new process does."""
        self._waiting = 0
        self._at_once = AT_ONCE
        self._budget = BUDGET
        self._wishes.clear()
        self._beside: Wish | None = None  # what the process beside compiles now

    def plan_for(self, program: Program, fuse: bool) -> tuple[Plan, Record]:
        """The plan that a program takes now."""
        plan, record = PLANNER.plan_for(program, fuse)
        if plan.is_final or not fuse or self._waiting or not tiers_enabled():
            return plan, record
        with self._lock:
            return self._choose(program, plan, record), record

    @contextmanager
    def always_fused(self) -> Iterator[None]:
        """Make all programs wait for their fused kernels inside the `with` block."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _choose(self, program: Program, plan: Plan, record: Record) -> Plan:
        self._hear()
        missing = missing_kernels(program, plan)
        if not missing:
            plan.tier = plan.tier or "fused"
            plan.is_final = True
            record.stepwise.clear()
            return plan
        stepwise = _stepwise(program, plan, record, missing)
        why = self._reason_to_wait(missing, stepwise)
        if why is not None:
            plan.tier = f"fused, compiled at once: {why}"
            return plan
        self.stepwise_runs += 1
        stepwise.tier = self._text([self._ask(step) for step in missing])
        return stepwise

    # -- fused kernels that are not compiled ---------------------------------------------------

    def _reason_to_wait(self, missing: list[KernelStep], stepwise: Plan) -> str | None:
        """Why the program waits until its fused kernels are compiled; None if it does not."""
        wishes = [self._wish(step) for step in missing]
        if all(w.state is WishState.FAILED for w in wishes):
            return "the process beside could not compile for this one"
        if not compile_beside.COMPILER.is_possible():
            if all(w.asked >= ASKED_ALONE for w in wishes):
                return "asked for often, and no process beside can compile for this one"
        if self._at_once > 0:
            others = sum(not runtime.is_compiled(s.spec) for s in cpu_kernels(stepwise))
            if len(missing) < others:
                self._at_once -= 1
                return f"the single ops would need {others} kernels that are not compiled either"
        return None

    def _wish(self, step: KernelStep) -> Wish:
        return self._wishes.setdefault(step.spec, Wish())

    def _ask(self, step: KernelStep) -> Wish:
        """Note that a kernel was asked for, and have it compiled if that was often enough."""
        wish = self._wish(step)
        wish.asked += 1
        if wish.state is not WishState.WANTED:
            return wish
        if wish.asked == 1 and runtime.note_wish(step.spec):
            wish.asked = ASKED
        compiler = compile_beside.COMPILER
        is_due = wish.asked >= ASKED and self._budget > 0
        if is_due and compiler.is_free() and compiler.is_possible():
            name = runtime.kernel_file(step.spec, False)
            source = cpu.render(step.spec, name)
            if compiler.take(name, source, functions.used_by(source)):
                self._budget -= 1
                self._beside, wish.state = wish, WishState.COMPILING
        return wish

    def _hear(self) -> None:
        """Take note of what the process beside has finished."""
        if compile_beside.COMPILER.finished() is not None and self._beside is not None:
            # A kernel that was compiled is not missing any more. If it still is, nobody else can
            # make it for this process.
            self._beside.state, self._beside = WishState.FAILED, None

    def outlook(self, program: Program, plan: Plan) -> str:
        """What `explain` says about a plan that has not run; counts as no question for a kernel."""
        if not plan.is_final and tiers_enabled():
            missing = missing_kernels(program, plan)
            if missing:
                return f"fused when {_number(missing)} compiled; until then op by op, or it waits"
        return plan.tier

    def _text(self, wishes: list[Wish]) -> str:
        needed = ASKED if compile_beside.COMPILER.is_possible() else ASKED_ALONE
        why = ", ".join(dict.fromkeys(w.text(needed) for w in wishes))
        return f"op by op for now, fused when {_number(wishes)} compiled ({why})"


def _number(kernels: Sized) -> str:
    return "1 kernel is" if len(kernels) == 1 else f"{len(kernels)} kernels are"


def cpu_kernels(plan: Plan) -> list[KernelStep]:
    """The CPU kernels of a plan that have not been loaded."""
    kernels = (step for step in plan.steps if isinstance(step, KernelStep))
    return [step for step in kernels if step.device is None and step.kernel is None]


def missing_kernels(program: Program, plan: Plan) -> list[KernelStep]:
    """The CPU kernels of a plan that fuse several ops and are not compiled."""
    return [
        step
        for step in cpu_kernels(plan)
        if len({program.nodes[p].op for p in step.members}) > 1
        and not runtime.is_compiled(step.spec)
    ]


def _stepwise(program: Program, plan: Plan, record: Record, missing: list[KernelStep]) -> Plan:
    """The plan that runs the groups of missing kernels op by op, and fuses all others."""
    also = frozenset(plan.outputs).difference(program.outputs)
    apart: frozenset[int] = frozenset()
    while True:
        # Other groups may look different around single ops, and be missing for that reason.
        more = apart.union(*(step.members for step in missing))
        if more == apart:
            return plan
        apart = more
        found = record.stepwise.get((also, apart))
        if found is None:
            found = record.stepwise[also, apart] = PLANNER.make_plan(program, True, also, apart)
        plan, missing = found, missing_kernels(program, found)


TIERS = Tiers()
forks.in_child(TIERS.clear)  # what the parent's process compiles is not for its children
