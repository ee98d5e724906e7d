"""The measurements behind tuned constants of fusion/run/executor.py, fusion/plan/keep.py and
fusion/plan/repeats.py.

`python -m bench constants` runs all of them, `python -m bench.constants window` one. Variants of a
constant take turns, in an order that rotates every round, and medians are compared: on a busy
machine only the ratios within one table mean something. Work on a single thread is measured in CPU
time. bench/tabulate.py measures the constants of kernels/cpu/render.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np

import ndd
from ndd.fusion.plan import keep, repeats
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.run import executor

ROUNDS = 9


def interleaved(
    variants: dict[Any, Callable[[], None]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Any, float]:
    """Median seconds of one call of each variant."""
    times: dict[Any, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for run in variants.values():
        run()
    for r in range(ROUNDS):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            start = clock()
            for _ in range(repeats):
                variants[name]()
            times[name].append((clock() - start) / repeats)
    return {name: median(t) for name, t in times.items()}


def forget_plans() -> None:
    PLANNER.records.clear()


# -- fusion/run/executor.py: WINDOW_SECONDS, NEW_PROGRAM_SECONDS ---------------------------------


def chain(x: Any, between: Callable[[], None]) -> Any:
    """Make six op calls, and call `between` after each."""
    steps: Sequence[Callable[[Any], Any]] = (
        lambda v: ndd.flip(v, horizontal=1),
        lambda v: ndd.brightness_contrast(v, brightness=1.1, contrast=0.9),
        lambda v: ndd.hue(v, hue=20.0),
        lambda v: ndd.saturation(v, saturation=1.2),
        lambda v: ndd.crop(v, crop=[200, 200]),
        lambda v: ndd.crop_mirror_normalize(v, mean=[120.0], std=[60.0]),
    )
    for step in steps:
        x = step(x)
        between()
    return x


def spin(seconds: float) -> None:
    """Stand in for the caller's own Python code, which holds the GIL."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def window() -> None:
    """A shorter window starts work earlier, beside the caller's, but cuts programs into pieces."""
    images = np.random.default_rng(0).integers(0, 256, (8, 224, 224, 3), dtype=np.uint8)
    batch = ndd.batch(list(images), layout="HWC")
    before = executor.WINDOW_SECONDS
    windows = (25e-6, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1600e-6)
    print("\nexecutor window: ms of an iteration (and flushes in it), eager, by window in µs")
    print("  six calls, Python in between" + "".join(f"{w * 1e6:9.0f}    " for w in windows))
    flushes = [0]
    run_together = executor.Executor._run_together

    def counted(self: Any, roots: Any) -> None:
        flushes[0] += 1
        run_together(self, roots)

    def iteration(w: float, between: float, after: Callable[[], None], seen: list[int]) -> None:
        executor.WINDOW_SECONDS = w
        flushes[0] = 0
        result = chain(batch, partial(spin, between))
        after()
        result.evaluate()
        seen.append(flushes[0])

    executor.Executor._run_together = counted  # type: ignore[method-assign]
    pauses = {
        "nothing": lambda: None,
        "wait 2 ms": lambda: time.sleep(2e-3),
        "wait 8 ms": lambda: time.sleep(8e-3),
        "work 8 ms": lambda: spin(8e-3),
    }
    try:
        for between, then in product((0.0, 50e-6, 200e-6), pauses):
            counts: dict[float, list[int]] = {w: [] for w in windows}
            variants = {w: partial(iteration, w, between, pauses[then], counts[w]) for w in windows}
            with ndd.EvalMode.eager:
                seconds = interleaved(variants, repeats=20)
            cells = (f"{seconds[w] * 1e3:7.2f} ({np.mean(counts[w]):.1f})" for w in windows)
            print(f"  {between * 1e6:4.0f} µs, then {then:12s}" + " ".join(cells))
    finally:
        executor.WINDOW_SECONDS = before
        executor.Executor._run_together = run_together  # type: ignore[method-assign]


NEW_PROGRAM = """
import sys, time
import numpy as np
import ndd
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.run import executor
from bench.constants import chain
executor.NEW_PROGRAM_SECONDS = float(sys.argv[1])
seen = []
submit = executor.Executor.submit
def noted(self, node):
    seen.append(time.perf_counter())
    submit(self, node)
executor.Executor.submit = noted
batch = ndd.batch(list(np.zeros((8, 224, 224, 3), np.uint8)), layout="HWC")
start = time.perf_counter()
with ndd.EvalMode.eager:
    chain(batch, lambda: time.sleep(float(sys.argv[2]))).evaluate()
print(np.diff([start, *seen]).max(), PLANNER.count, time.perf_counter() - start)
"""


def new_program() -> None:
    """Every piece of a new program that starts too early is planned and compiled for nothing."""
    windows = (0.0, 2e-3, 5e-3, 10e-3, 20e-3)
    print(
        "\nfirst run of a new program in a new process, median of 3: longest pause between calls,"
    )
    print("plans made (1 is best) and time to the result, by NEW_PROGRAM_SECONDS")
    for pause in (0.0, 4e-3):
        runs: dict[float, list[list[float]]] = {w: [] for w in windows}
        for _ in range(3):
            for w in windows:
                with tempfile.TemporaryDirectory() as folder:
                    out = subprocess.run(
                        [sys.executable, "-c", NEW_PROGRAM, str(w), str(pause)],
                        env={**os.environ, "NDD_CACHE_DIR": folder},
                        capture_output=True, text=True, check=True,
                    )  # fmt: skip
                runs[w].append([float(v) for v in out.stdout.split()])
        for w in windows:
            gap, plans, seconds = np.median(runs[w], axis=0)
            print(
                f"  {pause * 1e3:3.0f} ms of waiting a call, window {w * 1e3:4.0f} ms: "
                f"longest pause {gap * 1e3:5.1f} ms, {plans:3.0f} plans, {seconds:5.2f} s"
            )


# -- fusion/plan/keep.py: MAX_GROUP_NODES, RECOMPUTE_COST ---------------------------------------

GROUP = """
import sys, time
from statistics import median
import numpy as np
import ndd
from ndd.fusion.plan import keep, repeats
keep.MAX_GROUP_NODES = int(sys.argv[1])
x = ndd.batch(list(np.ones((32, 96, 96, 3), np.float32)))
def program():
    v = x
    for k in range(int(sys.argv[2])):
        v = v * 0.5 if k % 3 else ndd.math.abs(v + 1.0)
    return v
times = []
with ndd.EvalMode.deferred:
    for _ in range(16):
        v = program()
        start = time.process_time()
        v.evaluate()
        times.append(time.process_time() - start)
print(times[0], median(times[1:]))
"""


def groups() -> None:
    """Longer groups move fewer bytes, but compile more than proportionally longer."""
    limits = (16, 32, 64, 128, 256, 512)
    steps = 384  # every third step is two calls
    print(f"\na chain of {steps * 4 // 3} calls in kernels of at most so many operations:")
    runs: dict[int, list[list[float]]] = {n: [] for n in limits}
    for _ in range(3):
        for n in limits:
            with tempfile.TemporaryDirectory() as folder:
                out = subprocess.run(
                    [sys.executable, "-c", GROUP, str(n), str(steps)],
                    env={**os.environ, "NDD_CACHE_DIR": folder, "NDD_NUM_THREADS": "1"},
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
            runs[n].append([float(v) for v in out.stdout.split()])
    for n in limits:
        first, later = np.median(runs[n], axis=0)
        print(f"  {n:4d}: first run {first:6.2f} s, later runs {later * 1e3:6.2f} ms")


def recompute() -> None:
    """A value that is needed at two places: stored and read back, or computed twice."""
    before = keep.RECOMPUTE_COST
    print("\na value needed at two places (v + flipped v), ns per element: stored, computed twice")
    try:
        for shape in ((64, 64, 64, 3), (4, 512, 512, 3)):
            x = ndd.batch(list(np.ones(shape, np.float32)), layout="HWC")
            for name, body, steps in (
                ("multiply", lambda v: v * 0.9, (1, 2, 4, 8, 16, 32)),
                ("sqrt", ndd.math.sqrt, (1, 2)),
                ("exp", ndd.math.exp, (1,)),
            ):
                for n in steps:

                    def run(limit: int, body: Any = body, n: int = n, x: Any = x) -> None:
                        keep.RECOMPUTE_COST = limit
                        v = x
                        for _ in range(n):
                            v = body(v)
                        (v + ndd.flip(v, horizontal=1)).evaluate()

                    kernels, seconds = _two_ways(run)
                    stored, twice = (t / np.prod(shape) * 1e9 for t in seconds)
                    print(
                        f"  {shape[1]:3d}×{shape[2]:3d}, {n:2d} × {name:8s} "
                        f"{stored:6.3f} {twice:6.3f}  twice/stored {twice / stored:5.2f} {kernels}"
                    )
    finally:
        keep.RECOMPUTE_COST = before
        forget_plans()


def repeated() -> None:
    """A value per column of images: stored once, or computed in every row."""
    before = repeats.REPEATED_COST
    print("\na value per column (v + f(columns)), ns per element: stored, computed in every row")
    try:
        for shape in ((64, 64, 64, 3), (8, 375, 500, 3)):
            x = ndd.batch(list(np.ones(shape, np.float32)), layout="HWC")
            columns = ndd.batch([np.ones((1, shape[2], 1), np.float32)] * shape[0])
            for name, body, steps in (
                ("multiply", lambda v: v * 0.9, (2, 4, 8, 16, 32)),
                ("sqrt", ndd.math.sqrt, (1, 2)),
                ("sin", ndd.math.sin, (1,)),
            ):
                for n in steps:

                    def run(
                        limit: int, body: Any = body, n: int = n, x: Any = x, v: Any = columns
                    ) -> None:
                        repeats.REPEATED_COST = limit
                        for _ in range(n):
                            v = body(v)
                        (x + v).evaluate()

                    kernels, seconds = _two_ways(run)
                    stored, again = (t / np.prod(shape) * 1e9 for t in seconds)
                    print(
                        f"  {shape[1]:3d}×{shape[2]:3d}, {n:2d} × {name:8s} "
                        f"{stored:6.3f} {again:6.3f}  again/stored {again / stored:5.2f} {kernels}"
                    )
    finally:
        repeats.REPEATED_COST = before
        forget_plans()


def _two_ways(run: Callable[[int], None]) -> tuple[str, list[float]]:
    """Times of `run` if values are stored, and if they are recomputed; both keep their plans."""
    records: dict[int, dict[Any, Any]] = {}
    limits = (0, 10**9)

    def variant(limit: int) -> Callable[[], None]:
        def go() -> None:
            PLANNER.records.clear()
            PLANNER.records.entries.update(records.get(limit, {}))
            run(limit)
            records[limit] = dict(PLANNER.records.entries)

        return go

    with ndd.EvalMode.deferred, ndd.EvalContext(num_threads=1):
        seconds = interleaved({n: variant(n) for n in limits}, 40, time.process_time)
    steps = [
        max(len(p.steps) for r in records[n].values() for p in r.plans.values()) for n in limits
    ]
    return f"({steps[0]} and {steps[1]} kernels)", [seconds[n] for n in limits]


PARTS = {
    "window": window, "new_program": new_program, "groups": groups, "recompute": recompute,
    "repeated": repeated,
}  # fmt: skip


def main() -> list[object]:
    for name, part in PARTS.items():
        if name in sys.argv or not set(PARTS) & set(sys.argv):
            part()
    return []


if __name__ == "__main__":
    main()
