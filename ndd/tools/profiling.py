"""Shows where time goes: `profile` records stages, `report` sums them up, `nvtx` marks them."""

from __future__ import annotations

import json
import os
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..kernels.common import nvtx_ranges, trace
from ..kernels.cpu import runtime as cpu_runtime
from ..kernels.gpu import kernel as gpu_kernel
from ..kernels.gpu import runtime as gpu_runtime
from .outputs import write_output

# About 440 MB (measured with launches) and a file of 230 MB; later events are only counted.
MAX_EVENTS = 1_000_000
# A consumer that waits for less than this part of its time is itself the bottleneck.
STALL_MATTERS = 0.05

# The name prefix of our threads. A thread with another name that waits for values is a consumer.
OUR_THREADS = "ndd-"

Interval = tuple[int, int]


class StageEvent(NamedTuple):
    """A stage that has ended; times in nanoseconds since the profile began."""

    category: str
    name: str
    thread: int
    start: int
    end: int
    group: int
    samples: int
    run: int
    about: dict[str, Any] | None


class Profile:
    """The stages that ran while it was active; made by `ndd.profile`."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.events: list[StageEvent] = []
        self.threads: dict[int, str] = {}  # names by native thread id
        self.dropped = 0  # events beyond MAX_EVENTS
        self._began = 0
        self._ended: int | None = None

    def __enter__(self) -> Profile:
        global _last
        if self._began:
            raise RuntimeError("profile: it has been used; make another one")
        _last = self
        self._began = time.perf_counter_ns()
        trace.watch(self)
        return self

    def __exit__(self, *_: object) -> None:
        trace.unwatch(self)
        self._ended = time.perf_counter_ns()
        if self.path is not None:
            self.save(self.path)

    # -- from kernels.common.trace -------------------------------------------------------------

    def begin(self, stage: trace.Stage) -> None:
        stage.start = time.perf_counter_ns()

    def end(self, stage: trace.Stage) -> None:
        now = time.perf_counter_ns()
        if self._ended is not None:
            return  # the stage outlasted the profile
        if len(self.events) >= MAX_EVENTS:
            self.dropped += 1
            return
        thread = threading.get_native_id()
        if thread not in self.threads:
            self.threads[thread] = threading.current_thread().name
        start, end = stage.start - self._began, now - self._began
        facts = (stage.group, stage.samples, stage.run, stage.about)
        self.events.append(StageEvent(stage.category, stage.name, thread, start, end, *facts))

    # -- results --------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """How long the profile recorded, or has recorded so far."""
        end = time.perf_counter_ns() if self._ended is None else self._ended
        return (end - self._began) / 1e9

    def report(self) -> Summary:
        """Time and rate of each stage, how long the consumer waited, and for what."""
        return summarise(self.events[:], dict(self.threads), self.seconds, self.dropped)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that https://ui.perfetto.dev and chrome://tracing open."""
        write_output(path, json.dumps(self._trace()))

    def _trace(self) -> dict[str, Any]:
        process = os.getpid()
        told: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "ndd"}}
        ]
        for thread, name in self.threads.items():
            told.append(
                {"ph": "M", "name": "thread_name", "pid": process, "tid": thread,
                 "args": {"name": name}}
            )  # fmt: skip
        for e in sorted(self.events[:], key=lambda e: (e.start, -e.end)):
            facts: dict[str, Any] = {"samples": e.samples} if e.samples else {}
            if e.group >= 0:
                facts["group"] = e.group
            if e.run:
                facts["run"] = e.run
            told.append(
                {"ph": "X", "name": e.name, "cat": e.category, "pid": process, "tid": e.thread,
                 "ts": e.start / 1e3, "dur": (e.end - e.start) / 1e3,
                 "args": {**facts, **(e.about or {})}}
            )  # fmt: skip
        about = {"seconds": self.seconds, "dropped": self.dropped}
        return {"traceEvents": told, "displayTimeUnit": "ms", "otherData": about}


_last: Profile | None = None


def profile(path: str | os.PathLike[str] | None = None) -> Profile:
    """Record what the library does inside a `with`, and write it to a file if `path` is given.

    >>> import ndd
    >>> with ndd.profile() as p:
    ...     x = ndd.math.exp(ndd.zeros(shape=[2, 2])).evaluate()
    >>> p.report().stages["call"].count
    2

    The file is a Chrome trace: open it at https://ui.perfetto.dev. It has the threads, a slice for
    each stage (call, plan, compile, launch, decode, read, stall), and for each kernel its group in
    `ndd.explain`, its samples, its ops and the lines of your program that called them.
    """
    return Profile(path)


def report() -> Summary | Counters:
    """Show where time went, in the running profile or else in the last one.

    >>> import ndd
    >>> with ndd.profile():
    ...     x = ndd.flip(ndd.zeros(shape=[2, 2, 3], layout="HWC")).evaluate()
    >>> "call" in str(ndd.report())
    True

    Without any profile it returns the numbers of plans, compiled kernels and GPU launches so far.
    """
    return Counters.now() if _last is None else _last.report()


def nvtx(enabled: bool = True) -> None:
    """Mark every stage with an NVTX range, for Nsight Systems and Nsight Compute.

    >>> import ndd
    >>> ndd.nvtx(False)

    The environment variable ``NDD_NVTX=1`` does the same from the start. The ranges are in the
    domain "ndd"; their categories are call, plan, compile, launch, decode and read; the payload is
    the kernel's group in `ndd.explain` (-1 if there is none), and the message of a launch is the
    kernel's name. Needs the package nvtx, which comes with the extra "gpu".
    """
    nvtx_ranges.switch(enabled)


# -- summing up ------------------------------------------------------------------------------------


@dataclass
class StageTime:
    """All stages of a kind, or of one kernel."""

    count: int = 0
    samples: int = 0
    seconds: float = 0.0  # summed over threads, without nested stages
    busy: float = 0.0  # seconds in which at least one thread was in the stage
    threads: int = 0

    @property
    def rate(self) -> float | None:
        """Samples per second of `busy`."""
        return self.samples / self.busy if self.samples and self.busy else None


@dataclass
class KernelTime(StageTime):
    """All launches of one kernel."""

    groups: tuple[int, ...] = ()
    ops: str = ""
    lines: tuple[str, ...] = ()  # in the user's program
    source: Path | None = None


@dataclass
class Summary:
    """The result of a profile: print it, or read its fields."""

    seconds: float
    stages: dict[str, StageTime] = field(default_factory=dict)
    kernels: dict[str, KernelTime] = field(default_factory=dict)
    stalled: float = 0.0  # seconds that consumers waited, summed over threads
    stall_share: float = 0.0  # of the time of all consumers
    # Seconds of work while consumers waited, by stage.
    waited_for: dict[str, float] = field(default_factory=dict)
    bottleneck: str = "consumer"
    dropped: int = 0
    tiers: dict[str, int] = field(default_factory=dict)  # tier and why → number of programs

    def __str__(self) -> str:
        head = f"{'stage':9s}{'count':>8s}{'samples':>9s}{'time':>11s}{'threads':>9s}"
        lines = [f"profile of {self.seconds:.3f} s", f"{head}{'busy':>8s}{'samples/s':>11s}"]
        for name, t in self.stages.items():
            share = t.busy / self.seconds if self.seconds else 0.0
            lines.append(
                f"{name:9s}{t.count:8d}{t.samples or '-':>9}{_time(t.seconds):>11s}"
                f"{t.threads:9d}{share:8.1%}{_rate(t):>11s}"
            )
        lines.append(f"stall: consumers waited {self.stall_share:.1%} of their time")
        lines.append(f"bottleneck: {self._verdict()}")
        if any(tier != "fused" for tier in self.tiers):
            lines += [f"tier of {_programs(n)}: {tier}" for tier, n in self.tiers.items()]
        for name, k in sorted(self.kernels.items(), key=lambda item: -item[1].seconds):
            lines += _kernel_text(name, k)
        if self.dropped:
            lines.append(f"{self.dropped} stages were not recorded: there was no room for them")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.bottleneck == "consumer":
            return "the consumer (your code and its calls); what it asks for is there in time"
        if self.bottleneck == "elsewhere":
            return "between stages: handing over work, a GPU's work, or another process"
        share = self.waited_for[self.bottleneck] / sum(self.waited_for.values())
        return f"{self.bottleneck} ({share:.0%} of what was done while consumers waited)"

    __repr__ = __str__


@dataclass
class Counters:
    """Numbers that are counted even without a profile."""

    plans: int
    compiled_cpu: int
    compiled_gpu: int
    launches_gpu: int
    op_by_op: int = 0  # programs that ran before their fused kernels were compiled

    @classmethod
    def now(cls) -> Counters:
        from ..fusion.plan.planner import PLANNER
        from ..fusion.run.tiers import TIERS

        return cls(
            PLANNER.count, cpu_runtime.compile_count, gpu_kernel.compile_count,
            gpu_runtime.launch_count, TIERS.stepwise_runs,
        )  # fmt: skip

    def __str__(self) -> str:
        return (
            'profiling is off; switch it on with: with ndd.profile("trace.json"): …\n'
            f"so far: {self.plans} programs planned, {self.compiled_cpu} CPU and "
            f"{self.compiled_gpu} GPU kernels compiled, {self.launches_gpu} GPU launches, "
            f"{_programs(self.op_by_op)} run before their fused kernels were compiled"
        )

    __repr__ = __str__


def _programs(number: int) -> str:
    return "1 program" if number == 1 else f"{number} programs"


def summarise(
    events: Sequence[StageEvent], threads: dict[int, str], seconds: float, dropped: int = 0
) -> Summary:
    """Sum up the stages of a profile."""
    pieces = own_pieces(events)
    result = Summary(seconds, dropped=dropped)
    for category in trace.CATEGORIES:
        chosen = [k for k, e in enumerate(events) if e.category == category]
        if chosen and category != "stall":
            _fill(result.stages.setdefault(category, StageTime()), chosen, events, pieces)
    for e in events:
        if e.category == "plan" and e.about and "tier" in e.about:
            tier = e.about["tier"]
            result.tiers[tier] = result.tiers.get(tier, 0) + 1
    by_kernel: dict[str, list[int]] = defaultdict(list)
    for k, e in enumerate(events):
        if e.category == "launch" and e.about and "source" in e.about:
            by_kernel[e.name].append(k)
    for name, chosen in by_kernel.items():
        result.kernels[name] = _kernel_time(chosen, events, pieces)
    _stalls(result, events, pieces, threads)
    return result


def _nest(order: Sequence[int], events: Sequence[StageEvent], pieces: list[list[Interval]]) -> None:
    """Assign each moment of a thread to its innermost stage; `order` sorts stages by start."""
    stack: list[int] = []
    now = 0

    def until(end: int) -> None:
        nonlocal now
        if end > now:
            pieces[stack[-1]].append((now, end))
            now = end

    def leave(before: int) -> None:
        while stack and events[stack[-1]].end <= before:
            until(events[stack[-1]].end)
            stack.pop()

    for k in order:
        start = events[k].start
        leave(start)
        if stack:
            until(start)
        now = start
        stack.append(k)
    leave(max(events[k].end for k in order))


def own_pieces(events: Sequence[StageEvent]) -> list[list[Interval]]:
    """For each stage, the times in which it was the innermost one of its thread."""
    pieces: list[list[Interval]] = [[] for _ in events]
    by_thread: dict[int, list[int]] = defaultdict(list)
    for k, e in enumerate(events):
        by_thread[e.thread].append(k)
    for own in by_thread.values():
        _nest(sorted(own, key=lambda k: (events[k].start, -events[k].end)), events, pieces)
    return pieces


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals, sorted and without overlaps."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def overlap(intervals: Iterable[Interval], among: Sequence[Interval]) -> list[Interval]:
    """The parts of intervals that lie inside `among`, a union of intervals."""
    ends = [end for _, end in among]
    parts: list[Interval] = []
    for start, end in intervals:
        k = bisect_right(ends, start)
        while k < len(among) and among[k][0] < end:
            parts.append((max(start, among[k][0]), min(end, among[k][1])))
            k += 1
    return parts


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals) / 1e9


def _fill(
    into: StageTime, chosen: list[int], events: Sequence[StageEvent], pieces: list[list[Interval]]
) -> None:
    own = [piece for k in chosen for piece in pieces[k]]
    into.count = len(chosen)
    into.samples = _samples([events[k] for k in chosen])
    into.seconds = _length(own)
    into.busy = _length(union(own))
    into.threads = len({events[k].thread for k in chosen})


def _samples(events: Iterable[StageEvent]) -> int:
    """The number of samples in some stages; a sample counts once even in several groups."""
    groups: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for e in events:
        groups[e.run][e.group if e.run else 0] += e.samples
    return sum(max(counts.values()) for counts in groups.values())


def _kernel_time(
    chosen: list[int], events: Sequence[StageEvent], pieces: list[list[Interval]]
) -> KernelTime:
    about = [events[k].about or {} for k in chosen]
    lines = dict.fromkeys(line for a in about for line in a["lines"])
    groups = tuple(sorted({events[k].group for k in chosen}))
    found = KernelTime(groups=groups, ops=about[0]["ops"], lines=tuple(lines))
    found.source = Path(about[0]["source"])
    _fill(found, chosen, events, pieces)
    return found


def _stalls(
    into: Summary,
    events: Sequence[StageEvent],
    pieces: list[list[Interval]],
    threads: dict[int, str],
) -> None:
    """Find how long consumers waited, and what the other threads did meanwhile."""
    waits: dict[int, list[Interval]] = {
        t: [] for t, name in threads.items() if not name.startswith(OUR_THREADS)
    }
    for e in events:
        if e.category == "stall" and e.thread in waits:
            waits[e.thread].append((e.start, e.end))
    into.stalled = sum(_length(union(w)) for w in waits.values())
    if into.seconds and waits:
        into.stall_share = into.stalled / into.seconds / len(waits)
    stalls = union(interval for w in waits.values() for interval in w)
    meanwhile: dict[str, list[Interval]] = defaultdict(list)
    for e, own in zip(events, pieces, strict=True):
        if e.category != "stall":
            meanwhile[e.category] += overlap(own, stalls)
    covered = _length(union(part for parts in meanwhile.values() for part in parts))
    into.waited_for = {name: _length(parts) for name, parts in meanwhile.items() if parts}
    into.waited_for["elsewhere"] = max(_length(stalls) - covered, 0.0)
    if into.stall_share >= STALL_MATTERS:
        into.bottleneck = max(into.waited_for, key=lambda name: into.waited_for[name])


# -- as text ---------------------------------------------------------------------------------------


def _kernel_text(name: str, k: KernelTime) -> list[str]:
    groups = ", ".join(map(str, k.groups))
    return [
        f"kernel {name} [group {groups}]",
        f"    {k.samples} samples in {k.count} launches, {_time(k.seconds)}, {_rate(k)} samples/s",
        f"    ops {k.ops}",
        f"    called at {', '.join(k.lines)}",
        f"    source {k.source}",
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1e3:.3f} ms"


def _rate(t: StageTime) -> str:
    return "-" if t.rate is None else f"{t.rate:.0f}"
