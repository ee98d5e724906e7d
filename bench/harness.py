"""Interleaved timing of several contestants, and the table of results."""

from __future__ import annotations

import csv
import gc
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

RESULTS = Path(__file__).with_name("results.csv")
MIN_SAMPLE_SECONDS = 0.25
ROUNDS = 7


@dataclass
class Row:
    """One contestant of one workload."""

    workload: str
    name: str
    seconds: float
    spread: float  # (max - min) / median over rounds
    busy: bool  # another process took more than a tenth of a core meanwhile


def calibrate(fn: Callable[[], object]) -> int:
    """Calls per sample, so that a sample lasts long enough to be timed."""
    fn()
    start = time.perf_counter()
    fn()
    once = time.perf_counter() - start
    return max(1, int(MIN_SAMPLE_SECONDS / max(once, 1e-7)))


def compare(
    workload: str, contestants: dict[str, Callable[[], object]], rounds: int = ROUNDS
) -> list[Row]:
    """Time all contestants in turn, the order rotated every round."""
    calls = {name: calibrate(fn) for name, fn in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    busy = dict.fromkeys(contestants, False)
    names = list(contestants)
    for r in range(rounds):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            gc.collect()
            other = _other_cpu_seconds()
            start = time.perf_counter()
            for _ in range(calls[name]):
                contestants[name]()
            elapsed = time.perf_counter() - start
            busy[name] |= _other_cpu_seconds() - other > 0.1 * elapsed
            times[name].append(elapsed / calls[name])
    return [
        Row(workload, n, median(t), (max(t) - min(t)) / median(t), busy[n])
        for n, t in times.items()
    ]


def _other_cpu_seconds() -> float:
    total = psutil.cpu_times()
    mine = psutil.Process().cpu_times()
    used = total.user + total.system + total.nice
    return used - (mine.user + mine.system + mine.children_user + mine.children_system)


def show(rows: list[Row], base: str, unit: float = 1e3, name: str = "ms") -> None:
    """Print a workload's table; ratios against `base` (how many times faster than it)."""
    reference = next((r.seconds for r in rows if r.name == base), None)
    print(f"\n{rows[0].workload}")
    for r in sorted(rows, key=lambda r: r.seconds):
        ratio = f"{reference / r.seconds:7.2f}x {base}" if reference else ""
        flag = "  (machine busy)" if r.busy else ""
        print(f"  {r.name:28s} {r.seconds * unit:10.3f} {name}  ±{r.spread:4.0%} {ratio}{flag}")


def machine() -> str:
    """What the times were taken on."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def record(rows: list[Row]) -> None:
    """Append rows to bench/results.csv."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if new:
            out.writerow(
                ["date", "commit", "machine", "workload", "name", "seconds", "spread", "busy"]
            )
        for r in rows:
            day = time.strftime("%Y-%m-%d")
            out.writerow([day, commit, machine(), r.workload, r.name, f"{r.seconds:.6g}",
                          f"{r.spread:.3f}", int(r.busy)])  # fmt: skip


def optional(name: str) -> object | None:
    """A peer, or None and one line that says it is missing."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"peer {name} is not installed: left out")
        return None
