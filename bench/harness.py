"""Times contestants in turn, and keeps the results as rows of a CSV file."""

from __future__ import annotations

import csv
import gc
import importlib
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

RESULTS = Path(__file__).with_name("results.csv")
MIN_SAMPLE_SECONDS = 0.25
ROUNDS = 7
ATTEMPTS = 3  # to take a sample that no other process disturbs
SETTLE_SECONDS = 5.0  # longest wait for an idle machine
COLUMNS = ("date", "commit", "machine", "workload", "name", "value", "unit", "spread", "busy")
PACKAGES = (
    "ndd-fusion", "numpy", "numba", "nvidia-nvimgcodec-cu12", "nvidia-dali-cuda120", "torch",
    "torchvision", "albumentations", "albumentationsx",
    "opencv-python-headless", "simplejpeg", "pillow", "kornia", "kornia-rs", "spdl", "numexpr",
    "librosa", "torchaudio", "soxr", "soundfile",
    "tfrecord", "webdataset",
)  # fmt: skip


@dataclass
class Row:
    """One contestant of one workload: the median over rounds."""

    workload: str
    name: str
    value: float
    unit: str = "s"
    spread: float = 0.0  # (max - min) / median over rounds
    busy: bool = False  # other processes used more than a tenth of a core
    samples: list[float] = field(default_factory=list)  # one per round

    @classmethod
    def of(
        cls, workload: str, name: str, samples: Sequence[float], unit: str = "s", busy: bool = False
    ) -> Row:
        """A row from the samples of its rounds."""
        middle = median(samples)
        spread = (max(samples) - min(samples)) / middle if middle else 0.0
        return cls(workload, name, middle, unit, spread, busy, list(samples))


def ratio(a: Row, b: Row) -> float:
    """How many times faster `a` is than `b`: round by round, because the machine's speed drifts."""
    if len(a.samples) == len(b.samples) > 0:
        return median(y / x for x, y in zip(a.samples, b.samples))
    return b.value / a.value


def calibrate(fn: Callable[[], object], seconds: float | None = None) -> int:
    """Calls per sample, so that a sample lasts long enough to be timed."""
    fn()
    start = time.perf_counter()
    fn()
    once = time.perf_counter() - start
    return max(1, int((seconds or MIN_SAMPLE_SECONDS) / max(once, 1e-7)))


def rotated(names: list[str], r: int) -> list[str]:
    """The order of round `r`."""
    first = r % max(1, len(names))
    return names[first:] + names[:first]


def compare(
    workload: str,
    contestants: dict[str, Callable[[], object]],
    rounds: int = ROUNDS,
    divide: int = 1,
    seconds: float | None = None,
    cpu_time: bool = False,
) -> list[Row]:
    """Time all contestants in turn; `divide` is the number of items that one call handles,
    `seconds` the least duration of a sample. `cpu_time`: count the CPU time of this process, which
    other processes disturb little; for contestants with one thread."""
    calls = {name: calibrate(fn, seconds) for name, fn in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    busy = dict.fromkeys(contestants, False)
    for r in range(rounds):
        for name in rotated(list(contestants), r):
            clock = time.process_time if cpu_time else time.perf_counter
            take = partial(_seconds, contestants[name], calls[name], clock)
            sample, disturbed = (take(), False) if cpu_time else undisturbed(take, os.getpid())
            times[name].append(sample / divide)
            busy[name] |= disturbed
    return [Row.of(workload, n, t, busy=busy[n]) for n, t in times.items()]


def _seconds(
    fn: Callable[[], object], calls: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    gc.collect()
    start = clock()
    for _ in range(calls):
        fn()
    return (clock() - start) / calls


def undisturbed(take: Callable[[], float], process: int) -> tuple[float, bool]:
    """A sample, retaken if other processes used the machine, and whether they did until the end."""
    for _ in range(ATTEMPTS):
        _settle()
        before = _cpu_seconds(process)
        sample = take()
        after = _cpu_seconds(process)
        busy = after[1] - before[1] > 0.1 * (after[0] - before[0])
        if not busy:
            break
    return sample, busy


def _settle() -> None:
    """Wait until the machine is idle.

    The contestant measured last may still be making batches in advance (SPDL up to 16 of them), at
    the expense of the next contestant, which is always the same one.
    """
    deadline = time.perf_counter() + SETTLE_SECONDS
    used = _used_seconds()
    while time.perf_counter() < deadline:
        time.sleep(0.1)
        before, used = used, _used_seconds()
        if used - before <= 0.01:  # the resolution of the system's counters
            return


def _used_seconds() -> float:
    """CPU time of all processes, other virtual machines included."""
    total = psutil.cpu_times()
    return float(total.user + total.system + total.nice + total.steal)


def _cpu_seconds(process: int) -> tuple[float, float]:
    """Wall time, and the CPU time of all processes except `process` and its children."""
    used = _used_seconds()
    root = psutil.Process(process)
    for p in (root, *root.children(recursive=True)):
        times = p.cpu_times()
        used -= times.user + times.system
    return time.perf_counter(), used


def show(rows: list[Row], base: str, unit: float = 1e3, name: str = "ms") -> None:
    """Print a workload's table; ratios against `base` (how many times faster than it)."""
    if not rows:
        return
    reference = next((r for r in rows if r.name == base), None)
    print(f"\n{rows[0].workload}")
    for r in sorted(rows, key=lambda r: r.value):
        against = f"{ratio(r, reference):7.2f}x {base}" if reference else ""
        flag = "  (machine busy)" if r.busy else ""
        print(f"  {r.name:34s} {r.value * unit:10.3f} {name}  ±{r.spread:4.0%} {against}{flag}")


def machine() -> str:
    """The machine on which times are taken."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def versions() -> dict[str, str]:
    """Versions of Python, of our package and of the peers."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def commit() -> str:
    """The commit that was measured, with a + if files have changed since."""
    git = ["git", "-C", str(RESULTS.parent)]
    head = [*git, "rev-parse", "--short", "HEAD"]
    name = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return name + "+" * bool(changed)


def record(rows: Iterable[Row], path: Path = RESULTS) -> None:
    """Append rows to a CSV file, by default bench/results.csv."""
    new = not path.exists()
    where = (time.strftime("%Y-%m-%d"), commit(), machine())
    with path.open("a", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if new:
            out.writerow(COLUMNS)
        for r in rows:
            value, spread = f"{r.value:.6g}", f"{r.spread:.3f}"
            out.writerow([*where, r.workload, r.name, value, r.unit, spread, int(r.busy)])


def optional(name: str) -> Any:
    """A peer, or None and one line that says it is missing."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        # OSError: its library was built for another version of what it needs.
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else "does not load"
        print(f"peer {name} {reason}: left out")
        return None
