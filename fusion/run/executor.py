"""The executor of an EvalContext: decides when to flush, and runs pending calls in order.

An op call only adds nodes. A flush takes all pending nodes together, plans them and runs them. A
thread that needs a value flushes by itself if no other thread has begun, so that small programs do
not pay for a hand-off.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ...kernels.common import background, forks, trace
from ...kernels.common.background import Bell
from ...kernels.common.memo import Memo
from ..graph.node import Node
from ..graph.sites import at_site
from ..plan.planner import PLANNER, Record
from ..plan.program import Call, Order, Program, Report, collect, one_call, order_of_inputs
from ..plan.steps import Plan
from .binder import Tables
from .execution import Run
from .flat import run_flat
from .tiers import TIERS

# The background thread looks for work this often, and flushes if nothing was added since its last
# look. Op calls follow each other within 10-20 µs, so a burst of calls becomes one program; a
# consumer does not wait for the background thread. bench/constants.py, 25 µs to 1.6 ms on a busy
# machine: from 25 to 400 µs there is no difference above the noise (10 %), but below 200 µs some
# programs were cut in two; with 1.6 ms, a caller that waits for something else in the meantime gets
# its result 1.2 ms later.
WINDOW_SECONDS = 200e-6
# A program that was never planned may be only the beginning of the caller's program, and compiling
# kernels for it would be wasted. So it waits this much longer for the rest. On a busy machine
# (bench/constants.py), the longest pause between first calls was 3 to 12 ms in most runs. Shorter
# waits often led to two plans; the time to the first result differed by less than the noise.
NEW_PROGRAM_SECONDS = 10e-3
# A program whose results were used by later programs before may be only a beginning, too, and waits
# this long. Consecutive calls take up to 1 ms each (headers of a batch of images, geometry).
EXTENDED_PROGRAM_SECONDS = 2e-3
# While there is no work, the pauses double up to this; then the thread sleeps until it is woken.
LONGEST_PAUSE_SECONDS = 25e-3

# Called with every program that has run, and its report.
observers: list[Callable[[Program, Report], None]] = []


def fusion_enabled() -> bool:
    """False if `NDD_FUSION=0`: then ops run one by one, for comparison."""
    return os.environ.get("NDD_FUSION", "1") != "0"


class Executor:
    """Runs the pending calls of one context, in order."""

    def __init__(self, pool: Callable[[], Any], gpu: Callable[[int], Any]) -> None:
        self._pool = pool
        self._gpu = gpu
        self._pending: list[Node] = []
        self._added = 0
        self._running = forks.lock()
        background.stay_at_exit()
        self._worker: _Worker | None = None
        self._tables = Tables()
        _executors.add(self)

    # -- from op calls -------------------------------------------------------------------------

    def submit(self, node: Node) -> None:
        """Queue a node in eager mode; the background thread runs it together with later ones."""
        self._pending.append(node)
        self._added += 1
        worker = self._worker
        if worker is None or not worker.usable():
            if background.is_exiting():
                return  # whoever needs the value computes it
            worker = background.uninterrupted(self._hire)
        if worker.asleep:
            worker.wake()

    def _hire(self) -> _Worker:
        worker = self._worker
        if worker is None or not worker.usable():
            worker = self._worker = _Worker(self)
        return worker

    def evaluate(self, node: Node) -> None:
        """Make sure that `node` has its value, or raise the error of its call."""
        result = node.result
        if result.storage is None:
            if trace.active:
                trace.during(trace.begin("stall", node.op), self._wait_for, node)
            else:
                self._wait_for(node)
        if result.error is not None:
            # Drop the frames of earlier raises.
            raise result.error.with_traceback(None)

    def evaluate_argument(self, node: Node) -> None:
        """Like `evaluate`, for a value that a call needs as a number.

        A cheap value is computed alone, so that the pending calls can still be fused with the call
        that is being made.
        """
        if node.storage is None and is_cheap(node):
            with self._running:
                if node.storage is None and node.result.error is None:
                    self._run([node])
        self.evaluate(node)

    def _wait_for(self, node: Node) -> None:
        result = node.result
        with self._running:
            if result.storage is None and result.error is None:
                self._flush(node)

    def evaluate_all(self, nodes: list[Node], then: Callable[[], None]) -> None:
        """Compute these values together, then call `then`; errors stay with the nodes. A thread
        that waits for one of the values also waits for `then`."""
        with self._running:
            pending = [n for n in nodes if n.storage is None and n.result.error is None]
            if pending:
                self._run(pending)
            then()

    def flush_all(self) -> None:
        """Run everything that is pending."""
        with self._running:
            self._flush(None)

    def flush_quiet(self, quiet_seconds: float) -> None:
        """Run pending calls if nothing was added for long enough; for the background thread."""
        with self._running:
            if quiet_seconds >= NEW_PROGRAM_SECONDS or quiet_seconds >= self._patience():
                self._flush(None)

    def _patience(self) -> float:
        """How many seconds the pending calls should wait for more calls."""
        try:
            roots = live_sinks(self._pending[:])
            plan = (
                PLANNER.known_plan(collect(unpicked(roots)[0]), fusion_enabled()) if roots else None
            )
        except Exception:
            return 0.0  # the flush will report the error
        if roots and plan is None:
            return NEW_PROGRAM_SECONDS
        return EXTENDED_PROGRAM_SECONDS if plan is not None and plan.was_extended else 0.0

    # -- flushing ------------------------------------------------------------------------------

    def _flush(self, wanted: Node | None) -> None:
        roots: list[Node] = []
        if self._pending:
            # Two steps, each atomic, because other threads keep adding to the list.
            pending = self._pending[:]
            del self._pending[: len(pending)]
            # The value of a single call that is wanted at once needs no search.
            roots = pending if pending == [wanted] else live_sinks(pending)
        if wanted is not None and wanted not in roots:
            roots.append(wanted)
        if roots:
            self._run(roots)

    def settle(self, nodes: list[Node]) -> None:
        """Compute those of these nodes that are still pending; errors stay with the nodes."""
        with self._running:
            roots = live_sinks(nodes)
            picks = [r for r in roots if _picks(r)]
            # One by one: a plan must not depend on how many samples the user looks at.
            for some in (*([pick] for pick in picks), [r for r in roots if r not in picks]):
                if some:
                    self._run(some)

    def _run(self, roots: list[Node]) -> None:
        try:
            self._run_together(roots)
        except Exception as error:
            if len(roots) == 1:
                root = roots[0]
                root.result.error = at_site(error, root.op, root.result.site)
                return
            # One result that fails must not make the others fail, so run each alone.
            for root in roots:
                if root.storage is None and root.result.error is None:
                    self._run([root])

    def _run_together(self, roots: list[Node]) -> None:
        call = one_call(roots[0]) if len(roots) == 1 and not observers else None
        if call is not None and self._run_again(roots[0], call):
            return
        roots, picked = unpicked(roots)
        if trace.active:
            about: dict[str, Any] = {}
            stage = trace.begin("plan", roots[0].op, about=about)
            planned = trace.during(stage, program_and_plan, roots, about)
        else:
            planned = program_and_plan(roots)
        program, plan, record = planned
        for node in program.nodes:
            earlier = node.result.report
            if earlier is not None and node.result.storage is not None:
                earlier.plan.was_extended = True
        run = Run(plan, program, self._pool, self._gpu, self._tables)
        run.execute()
        report = program.report(plan, run.regions)
        for observe in observers:
            observe(program, report)
        if call is not None:
            _remember(call, program, report)
        for p in (*program.outputs, *program.promises):
            for node in (program.nodes[p], *program.twins.get(p, ())):
                node.result.report = report
                if node.result.storage is None:
                    node.result.promise = (record, p)
        for node in reversed(picked):
            kind, inputs, _ = node.definition
            node.result.deliver(kind.compute(node, list(inputs), None))
            node.result.report = report

    def _run_again(self, node: Node, call: Call) -> bool:
        """Run a call with the plan of an equal earlier one; False if that is impossible.

        Programs that evaluate op by op on small data are bound by Python, and collecting and
        planning again would take most of the time (bench/overhead.py).
        """
        known = _known_calls.get(call)
        if known is None or trace.active:
            return False
        program, order, report = known
        plan, result = report.plan, node.result
        sources = node.definition.inputs
        step = plan.segments[0].flat
        values = [None if k < 0 else sources[k].result.storage for k in order]
        if step is not None and run_flat(step, node, values, self._tables):
            result.deliver(values[step.root])
        else:
            nodes = [node if k < 0 else sources[k] for k in order]
            Run(plan, program.of(nodes), self._pool, self._gpu, self._tables).execute()
        if report.nodes[program.outputs[0]][3] is not node.shapes:
            report = report.of([node if k < 0 else sources[k] for k in order])
        result.report = report
        return True


# Single calls on values in memory → an equal program without its values, the order of operands, the
# report, whose plan it is.
_known_calls: Memo[Call, tuple[Program, Order, Report]] = Memo("single calls", 4096)


def _remember(call: Call, program: Program, report: Report) -> None:
    if len(report.plan.segments) != 1 or report.plan.regional or program.promises:
        return
    order = order_of_inputs(program)
    if order is not None:
        _known_calls[call] = program.of([]), order, report


def unpicked(roots: list[Node]) -> tuple[list[Node], list[Node]]:
    """Replace roots that only pick samples by the values that they pick from.

    Also returns the replaced nodes, outermost first. Picking is no work, and a plan must not depend
    on how many samples the user looks at.
    """
    if not any(map(_picks, roots)):
        return roots, []
    wanted: list[Node] = []
    picked: dict[int, Node] = {}
    for root in roots:
        while _picks(root) and root.inputs[0].storage is None:
            picked.pop(id(root), None)  # move it behind all nodes that pick from it
            picked[id(root)] = root
            root = root.inputs[0]
        wanted.append(root)
    return wanted, list(picked.values())


def _picks(node: Node) -> bool:
    return node.kind is not None and node.kind.picks_samples


def program_and_plan(
    roots: list[Node], about: dict[str, Any] | None = None
) -> tuple[Program, Plan, Record]:
    """The program that computes these values, and its plan; notes its tier in `about`."""
    program = collect(roots)
    again = read_again(program)
    if again:
        program = collect([*roots, *again])
    plan, record = TIERS.plan_for(program, fusion_enabled())
    if about is not None and plan.tier:
        about["tier"] = plan.tier
    return program, plan, record


# A pending value is cheap if it and everything it needs have at most this many elements: computing
# them takes less time than a launch.
CHEAP_ELEMENTS = 1 << 14


def is_cheap(node: Node) -> bool:
    """Whether a pending value takes almost no time to compute."""
    left = CHEAP_ELEMENTS
    stack = [node]
    while stack and left >= 0:
        n = stack.pop()
        if n.storage is None:
            kind = n.kind  # read once: another thread may compute the node and drop it meanwhile
            if kind is not None and kind.takes_long:
                return False
            left -= int(n.shapes.volumes.sum()) + 1
            stack.extend(n.inputs)
    return left >= 0


def read_again(program: Program) -> list[Node]:
    """The live values of a program that an earlier plan fused through.

    The record of the earlier plan notes which of them was read, for the next iteration. This time
    all of them are stored, so that reading one after the other computes nothing twice.
    """
    fused = {
        p for p, n in enumerate(program.nodes) if n.result.promise is not None and n.storage is None
    }
    if not fused:
        return []
    new = (inputs for p, inputs in enumerate(program.inputs) if p not in fused)
    for p in fused & {*program.outputs, *(i for inputs in new for i in inputs)}:
        record, position = program.nodes[p].result.promise
        record.mark_read(position)
    return [program.nodes[p] for p in sorted(fused) if program.nodes[p].is_live()]


def live_sinks(pending: list[Node]) -> list[Node]:
    """Live pending nodes that no other live pending node needs: those that must be computed."""
    # A node without a handle is live, too: its call has not returned yet.
    alive = [
        n for n in pending
        if n.storage is None and n.result.error is None
        and (n.result.handle is None or n.is_live())
    ]  # fmt: skip
    if len(alive) <= 1:
        return alive
    inner: set[int] = set()
    for node in reversed(alive):
        if id(node) in inner:
            continue
        stack = list(node.inputs)
        while stack:
            n = stack.pop()
            if n.storage is None and id(n) not in inner:
                inner.add(id(n))
                stack.extend(n.inputs)
    return [n for n in alive if id(n) not in inner]


class _Worker:
    """The background thread of an executor. Its reference to the executor is weak, so that dropping
    a context ends its thread."""

    def __init__(self, executor: Executor) -> None:
        self._bell = Bell()
        self._executor = weakref.ref(executor, self._bell.ring)
        self._is_stopped = False
        self._process = os.getpid()
        self.asleep = False
        self.threads: list[threading.Thread] = []
        background.start(self, (self._loop, "ndd-executor"))

    def usable(self) -> bool:
        # After a fork the thread exists only in the parent.
        return not self._is_stopped and self._process == os.getpid()

    def wake(self) -> None:
        self.asleep = False
        self._bell.ring(None)

    def stop(self) -> None:
        self._is_stopped = True
        self._bell.ring(None)

    def _loop(self) -> None:
        seen = -1
        since = 0.0
        pause = WINDOW_SECONDS
        while not self._is_stopped:
            time.sleep(pause)
            executor = self._executor()
            if executor is None:
                return
            if executor._pending:
                pause = WINDOW_SECONDS
                if executor._added != seen:
                    seen, since = executor._added, time.monotonic()
                else:
                    now = time.monotonic()
                    executor.flush_quiet(now - since)
                    if time.monotonic() - now > NEW_PROGRAM_SECONDS:
                        # The flush had to wait for a caller that was computing (and may have
                        # compiled) and that now goes on with its calls, so start counting again.
                        since = time.monotonic()
            elif pause < LONGEST_PAUSE_SECONDS:
                # Consumers flush by themselves. Look less often: each look takes the GIL from them.
                pause *= 2
            else:
                self.asleep = True
                if not executor._pending:
                    del executor
                    self._bell.wait()
                self.asleep = False
                pause = WINDOW_SECONDS


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


@background.before_exit
def _keep_out() -> None:
    """Keep daemon threads of the user from computing while the interpreter shuts down.

    The main thread waits until none of them computes, and keeps the locks. It can still compute.
    """
    deadline = time.monotonic() + background.EXIT_COMPILE_SECONDS
    for executor in list(_executors):
        executor._running.acquire(timeout=max(0.0, deadline - time.monotonic()))
