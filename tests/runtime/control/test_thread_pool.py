"""The thread pool: every chunk once, errors, interrupts, forks, exits, numbers of threads."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndd.kernels.common import threads
from ndd.kernels.common.threads import ThreadPool, cgroup_cpu_quota, default_num_threads
from ndd.runtime.context import (
    EvalContext,
    get_num_threads,
    set_num_threads,
)
from tests.runtime.control.helpers import (
    fail,
    has_real_gpu,
    run_python,
    wait_until,
)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("n_chunks", [0, 1, 2, 7, 500])
def test_every_chunk_runs_once(num_threads: int, n_chunks: int) -> None:
    pool = ThreadPool(num_threads)
    counts = np.zeros(max(n_chunks, 1), dtype=int)
    workers: set[int] = set()

    def work(chunk: int, worker: int) -> None:
        counts[chunk] += 1
        workers.add(worker)

    for _ in range(20):
        pool.parallel_for(n_chunks, work)
    assert (counts[:n_chunks] == 20).all() and counts.sum() == 20 * n_chunks
    assert workers <= set(range(num_threads))


def test_work_is_shared_and_the_caller_is_worker_zero() -> None:
    pool = ThreadPool(3)
    barrier = threading.Barrier(3, timeout=10)
    seen: dict[int, int] = {}

    def work(chunk: int, worker: int) -> None:
        seen[worker] = threading.get_ident()
        barrier.wait()  # passes only if three threads are here at once

    pool.parallel_for(3, work)
    assert sorted(seen) == [0, 1, 2] and len(set(seen.values())) == 3
    assert seen[0] == threading.get_ident()


def test_one_chunk_or_one_thread_starts_no_thread() -> None:
    n_before = threading.active_count()
    idents: set[int] = set()
    ThreadPool(4).parallel_for(1, lambda chunk, worker: idents.add(threading.get_ident()))
    ThreadPool(1).parallel_for(9, lambda chunk, worker: idents.add(threading.get_ident()))
    assert idents == {threading.get_ident()} and threading.active_count() == n_before


@pytest.mark.parametrize("num_threads", [1, 3])
def test_lowest_failing_chunk_is_reported_after_all_ran(num_threads: int) -> None:
    pool = ThreadPool(num_threads)
    for _ in range(20):
        ran: list[int] = []

        def work(chunk: int, worker: int, ran: list[int] = ran) -> None:
            ran.append(chunk)
            if chunk in (3, 8, 11):
                time.sleep(0.002 if chunk == 3 else 0)
                raise ValueError(f"chunk {chunk}")

        with pytest.raises(ValueError, match=r"^chunk 3$"):
            pool.parallel_for(16, work)
        assert sorted(ran) == list(range(16))
    pool.parallel_for(2, lambda chunk, worker: None)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_interrupt_leaves_the_pool_usable(num_threads: int) -> None:
    pool = ThreadPool(num_threads)

    def work(chunk: int, worker: int) -> None:
        if chunk == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.parallel_for(8, work)
    ran: list[int] = []
    pool.parallel_for(8, lambda chunk, worker: ran.append(chunk))
    assert sorted(ran) == list(range(8))


def test_pool_is_reentrant() -> None:
    pool, other = ThreadPool(3), ThreadPool(2)
    counts: list[tuple[int, int]] = []

    def inner(chunk: int, worker: int) -> None:
        counts.append((chunk, worker))

    def outer(chunk: int, worker: int) -> None:
        pool.parallel_for(4, lambda c, w: inner(c, w) if w == worker else fail())
        other.parallel_for(2, lambda c, w: pool.parallel_for(2, inner))

    pool.parallel_for(12, outer)
    assert len(counts) == 12 * (4 + 2 * 2)


def test_many_callers_share_a_pool_and_no_worker_index() -> None:
    pool = ThreadPool(3)
    in_use = [threading.Lock() for _ in range(3)]
    counts = np.zeros((4, 5), dtype=int)

    def call(caller: int) -> None:
        def work(chunk: int, worker: int) -> None:
            assert in_use[worker].acquire(blocking=False), "two threads use one worker index"
            counts[caller, chunk] += 1
            in_use[worker].release()

        for n_chunks in [1, 2, 5] * 20:
            pool.parallel_for(n_chunks, work)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
        assert not caller.is_alive()
    assert counts.tolist() == [[60, 40, 20, 20, 20]] * 4


@pytest.mark.parametrize("slow_worker", [0, 1])
def test_the_next_call_does_not_wait_for_the_last_chunk(slow_worker: int) -> None:
    pool = ThreadPool(2)
    begun, slow_goes_on, second_ran = threading.Barrier(3), threading.Event(), threading.Event()
    workers: list[int] = []

    def first(chunk: int, worker: int) -> None:
        begun.wait(10)  # each thread has one of the two chunks
        if worker == slow_worker:
            assert slow_goes_on.wait(10)

    def second(chunk: int, worker: int) -> None:
        workers.append(worker)
        second_ran.set()

    slow = threading.Thread(target=pool.parallel_for, args=(2, first))
    slow.start()
    begun.wait(10)
    fast = threading.Thread(target=pool.parallel_for, args=(2, second))
    fast.start()
    assert second_ran.wait(10), "the thread that has nothing to do does nothing"
    assert set(workers) == {1 - slow_worker}
    slow_goes_on.set()
    for thread in (slow, fast):
        thread.join(10)
        assert not thread.is_alive()
    assert len(workers) == 2


def worker_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("ndd-worker")]


def test_threads_end_with_the_pool() -> None:
    EvalContext.default().thread_pool.parallel_for(2, lambda chunk, worker: None)
    gc.collect()
    time.sleep(0.05)  # let threads of earlier tests end
    n_before = len(worker_threads())
    pool = ThreadPool(3)
    big = np.zeros(10)
    pool.parallel_for(3, lambda chunk, worker: big.sum() and None)
    assert len(worker_threads()) == n_before + 2
    del pool
    gc.collect()
    assert wait_until(lambda: len(worker_threads()) == n_before)


def test_a_finished_job_keeps_nothing_alive() -> None:
    class Buffer:
        pass

    pool = ThreadPool(3)
    buffer = Buffer()
    gone = weakref.ref(buffer)

    def work(chunk: int, worker: int, buffer: Buffer = buffer) -> None:
        if chunk == 1:
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        pool.parallel_for(3, work)
    del work, buffer
    assert wait_until(lambda: gone() is None, 2.0)


def test_pool_after_fork_and_at_exit() -> None:
    code = """
import os, threading
from ndd.kernels.common.threads import ThreadPool
pool = ThreadPool(3)
pool.parallel_for(6, lambda c, w: None)
pid = os.fork()
if pid == 0:
    barrier = threading.Barrier(3, timeout=20)
    pool.parallel_for(3, lambda c, w: barrier.wait() and None)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
pool.parallel_for(6, lambda c, w: None)
import atexit
atexit._run_exitfuncs()
pool.parallel_for(6, lambda c, w: None)  # after shutdown: inline
print("ok", [t.name for t in threading.enumerate()])
"""
    assert run_python(code) == "ok ['MainThread']\n"


def test_exit_while_a_daemon_thread_uses_the_pool() -> None:
    code = """
import threading, time
from ndd.kernels.common.threads import ThreadPool
pool = ThreadPool(4)
def forever():
    while True:
        pool.parallel_for(8, lambda c, w: time.sleep(0.001))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
print("ok")
"""
    assert run_python(code) == "ok\n"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ThreadPool(0), ValueError, "ThreadPool: `num_threads` must be positive, got 0"),
        (lambda: ThreadPool(-2), ValueError, "must be positive, got -2"),
        (lambda: ThreadPool("a"), TypeError, "must be an integer, got 'a'"),
        (lambda: ThreadPool(1, device_id=-2), ValueError, "`device_id` must not be negative"),
        (lambda: ThreadPool(1, device_id="x"), TypeError, "`device_id` must be an integer"),
        (lambda: set_num_threads(0), ValueError, "number of threads must be positive, got 0"),
        (lambda: set_num_threads("x"), TypeError, "number of threads must be an integer"),
        (lambda: set_num_threads(10**6), ValueError, "must not exceed 100 per CPU core"),
    ],
)
def test_thread_count_errors(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_pool_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ThreadPool(2).num_threads == 2 and ThreadPool().num_threads == get_num_threads()
    assert ThreadPool(2, device_id=None).device_id is None
    assert repr(ThreadPool(2)) == "ThreadPool(num_threads=2)"
    if not has_real_gpu():
        assert ThreadPool(2).device_id is None
        with pytest.raises(RuntimeError, match="NDD_GPU=simulate"):
            ThreadPool(2, device_id=0)
    monkeypatch.setenv("NDD_GPU", "simulate")
    assert ThreadPool(2).device_id == 0 and ThreadPool(2, device_id=1).device_id == 1


def test_num_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    n_cpus = len(os.sched_getaffinity(0))
    assert 1 <= default_num_threads() <= n_cpus
    monkeypatch.setenv("DALI_NUM_THREADS", "3")
    assert default_num_threads() == 3
    monkeypatch.setenv("NDD_NUM_THREADS", " 5 ")
    assert default_num_threads() == 5
    set_num_threads(None)
    assert get_num_threads() == 5
    set_num_threads(2)
    assert get_num_threads() == 2
    for bad in ("0", "-1", "abc", "1.5", "²"):
        monkeypatch.setenv("NDD_NUM_THREADS", bad)
        with pytest.raises(ValueError, match=f"NDD_NUM_THREADS.*positive.*'{bad}'"):
            default_num_threads()
    monkeypatch.delenv("NDD_NUM_THREADS")
    monkeypatch.setenv("DALI_NUM_THREADS", "-1")
    with pytest.raises(ValueError, match=r"DALI_NUM_THREADS.*positive.*'-1'"):
        default_num_threads()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "self"
    assert cgroup_cpu_quota(root, membership) is None

    write(membership, "0::/user/job\n")
    assert cgroup_cpu_quota(root, membership) is None
    write(root / "user/job/cpu.max", "max 100000\n")
    assert cgroup_cpu_quota(root, membership) is None
    write(root / "user/cpu.max", "150000 100000\n")
    assert cgroup_cpu_quota(root, membership) == 1.5
    write(root / "user/job/cpu.max", "50000 100000\n")
    assert cgroup_cpu_quota(root, membership) == 0.5
    write(root / "user/job/cpu.max", "garbage\n")
    assert cgroup_cpu_quota(root, membership) == 1.5

    # Version 1 in a container: the path is the host's, the files are at the mount.
    write(membership, "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n")
    write(root / "cpu,cpuacct/cpu.cfs_quota_us", "250000")
    write(root / "cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert cgroup_cpu_quota(root, membership) == 2.5
    write(root / "cpu,cpuacct/cpu.cfs_quota_us", "-1")
    assert cgroup_cpu_quota(root, membership) is None

    monkeypatch.setattr(threads, "_count_cpus", lambda: 8)
    for quota, expected in [(None, 8), (0.2, 1), (2.5, 3), (64.0, 8)]:
        monkeypatch.setattr(threads, "cgroup_cpu_quota", lambda quota=quota: quota)
        assert default_num_threads() == expected
