"""Stress tests: 100,000 deferred calls, a million eager calls, 16 threads.

CI runs small numbers; `NDD_STRESS=1` runs the full ones.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.kernels.common.buffers import POOL
from tests import programs
from tests.helpers import arrays, assert_same, counted_runs

FULL = os.environ.get("NDD_STRESS") == "1"
CHAIN = 100_000 if FULL else 10_000
CALLS = 1_000_000 if FULL else 20_000
THREAD_SECONDS = float(os.environ.get("NDD_THREAD_SECONDS") or (60 if FULL else 4))


def resident_kb() -> int:
    """Memory of this process that is not shared, in kB."""
    pages = [int(n) for n in Path("/proc/self/statm").read_text().split()]
    return (pages[1] - pages[2]) * os.sysconf("SC_PAGE_SIZE") // 1024


# -- long chains ---------------------------------------------------------------------------------


def timed_chain(length: int) -> tuple[float, np.ndarray]:
    with ndd.EvalMode.deferred:
        x = ndd.tensor(np.arange(8, dtype=np.float32))
        for _ in range(length):
            x = x + 1.0
        start = time.process_time()  # not wall time: the machine may be busy with other tests
        result = np.array(x)
        return time.process_time() - start, result


@pytest.mark.slow
def test_a_deferred_chain_of_many_calls() -> None:
    timed_chain(300)  # compiles
    short, _ = timed_chain(CHAIN // 4)
    long, result = timed_chain(CHAIN)
    np.testing.assert_array_equal(result, np.arange(8, dtype=np.float32) + CHAIN)
    print(f"chain of {CHAIN} calls: {long:.2f} s")
    # 4 times as many calls take 4 times as long; quadratic behaviour would take 16 times
    assert long < 10 * short + 0.5
    assert long < CHAIN * 1e-3


@pytest.mark.slow
def test_a_long_chain_of_views() -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    with ndd.EvalMode.deferred:
        x = ndd.tensor(data, layout="HWC")
        for _ in range(CHAIN // 10 + 1):
            x = ndd.flip(x)
        np.testing.assert_array_equal(x, data[:, ::-1])


@pytest.mark.slow
def test_a_long_chain_that_uses_values_twice() -> None:
    with ndd.EvalMode.deferred:
        x = ndd.tensor(np.ones((2, 3, 3), np.float32), layout="HWC")
        for _ in range(CHAIN // 10):
            x = (ndd.flip(x) + x) * 0.5
        np.testing.assert_array_equal(x, np.ones((2, 3, 3), np.float32))


@pytest.mark.slow
def test_a_long_chain_of_named_values_that_are_all_read() -> None:
    with ndd.EvalMode.deferred:
        values = [ndd.tensor([0.0, 1.0])]
        for _ in range(CHAIN // 20):
            values.append(values[-1] + 1.0)
        with counted_runs() as runs:
            for k in range(len(values) - 1, 0, -1):
                np.testing.assert_array_equal(values[k], [k, k + 1])
    assert len(runs) == 1 + runs[0]  # the last value, then the rest of each group


# -- memory --------------------------------------------------------------------------------------


def eager_loop(calls: int) -> None:
    x = ndd.tensor(np.zeros((4, 4, 3), np.uint8), layout="HWC")
    for k in range(calls // 4):
        y = ndd.flip(x, horizontal=k % 2)
        y = ndd.brightness(y, brightness=k % 1000 / 100.0)
        z = ndd.cast(y, dtype=ndd.float32)
        w = z * 2.0  # `z` keeps its name: a promise
        if k % 8 == 0:
            w.evaluate()
        if k % 64 == 0:
            z.evaluate()


@pytest.mark.slow
def test_memory_of_many_eager_calls_does_not_grow() -> None:
    eager_loop(CALLS // 4)
    ndd.EvalContext.current().evaluate_all()
    gc.collect()
    before, buffers = resident_kb(), POOL.live_bytes
    for part in range(4):
        eager_loop(CALLS // 4)
        print(f"after {(part + 2) * CALLS // 4} calls: {resident_kb() - before:+} kB", flush=True)
    ndd.EvalContext.current().evaluate_all()
    gc.collect()
    assert POOL.live_bytes <= buffers
    # a leak of 100 bytes per call would be 2 MB in CI and 100 MB in full
    assert resident_kb() - before < 2000 + (8000 if FULL else 0)


# -- threads -------------------------------------------------------------------------------------


def fixed_programs(count: int) -> list[tuple[programs.Program, list[list[np.ndarray]]]]:
    """A few programs with their values, so that threads share kernels and plans instead of only compiling."""
    rng = random.Random(5)
    made = [programs.make(lambda n: rng.randrange(n), 1 + k % 8) for k in range(count)]
    with ndd.EvalMode.sync_full:
        wanted = [programs.run(p) for p in made]
    for mode in (ndd.EvalMode.deferred, ndd.EvalMode.deferred, ndd.EvalMode.eager):
        with mode:
            for p in made:
                programs.run(p)
    return list(zip(made, wanted, strict=True))


@pytest.mark.slow(seconds=60)
def test_sixteen_threads() -> None:
    known = fixed_programs(12)
    shared = ndd.math.sin(ndd.tensor(np.linspace(0, 9, 1000, dtype=np.float32))) * 2.0
    shared_wanted = np.array(shared)
    errors: list[BaseException] = []
    done = [0] * 16
    sizes: list[int] = []
    stop = threading.Event()

    def work(me: int) -> None:
        rng = random.Random(me)
        modes = list(ndd.EvalMode)
        try:
            with ndd.EvalContext(num_threads=1 + me % 2):
                while not stop.is_set():
                    program, wanted = known[rng.randrange(len(known))]
                    with modes[rng.randrange(4)]:
                        for got, want in zip(programs.run(program), wanted, strict=True):
                            assert_same(got, want, repr(program))
                        mixed = shared * float(me) + 1.0
                        np.testing.assert_array_equal(mixed, shared_wanted * np.float32(me) + 1)
                    done[me] += 1
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=work, args=(me,), daemon=True) for me in range(16)]
    for t in threads:
        t.start()
    for k in range(10):
        stop.wait(THREAD_SECONDS / 10)
        if k >= 4:
            sizes.append(resident_kb())
    stop.set()
    for t in threads:
        t.join(60)
    stuck = [t.name for t in threads if t.is_alive()]
    print(f"{sum(done)} programs in 16 threads, {min(done)} to {max(done)} each; kB {sizes}")
    assert not stuck, f"deadlock: {stuck}"
    if errors:
        raise errors[0]
    assert min(done) > 0
    assert sizes[-1] - sizes[0] < 20_000


def test_threads_make_one_kernel_of_one_program() -> None:
    # sixteen threads meet a program that nobody has planned or compiled
    data = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    ready = threading.Barrier(16)
    found: list[np.ndarray] = []

    def work() -> None:
        ready.wait()
        x = ndd.tensor(data, layout="HWC")
        found.append(np.array(ndd.flip(x * 1.25) - ndd.math.abs(x) * 0.75))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    wanted = data[:, ::-1] * np.float32(1.25) - np.abs(data) * np.float32(0.75)
    assert len(found) == 16
    for a in found:
        assert_same([a], [wanted])


# -- many results --------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_independent_results_in_one_flush(mode: str) -> None:
    x = ndd.tensor(np.arange(4, dtype=np.float32))
    results = [x * float(k) for k in range(300)]
    for k, y in enumerate(results):
        np.testing.assert_array_equal(y, np.arange(4, dtype=np.float32) * k)


def test_a_batch_of_many_samples(mode: str) -> None:
    data = [np.full((1 + k % 7, 3), k % 250, np.uint8) for k in range(3000)]
    y = ndd.batch(data, layout="HW") + 1
    for a, d in zip(arrays(y), data, strict=True):
        np.testing.assert_array_equal(a, d.astype(np.int32) + 1)
