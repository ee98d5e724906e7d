"""Forks with busy threads, and where locks may be made."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.faults.child import counts_of
from tests.helpers import ROOT, run_python
from tests.test_house import sources

TIMES = int(os.environ.get("NDD_FAULTS", "1"))
# Conditions, events and the like are Python code, which an interrupt can break: there is Bell and Latch.
FORBIDDEN = {
    "Lock",
    "RLock",
    "Condition",
    "Event",
    "Semaphore",
    "BoundedSemaphore",
    "Barrier",
    "Queue",
}
HOOKS = {"register_at_fork", "allocate_lock", "start_new_thread", "Thread"}
HOMES = {"kernels/common/forks.py", "kernels/common/background.py"}
# A mark of a simulated stream is a lock that one thread takes and another releases; a child needs it as it is.
ALSO = {("kernels/gpu/streams.py", "allocate_lock")}
# Threads that ask servers for sizes, or index video files, live within one call; a child does not know the pool of another thread's call.
POOLS = {"ndd/readers/stores/remote.py", "ndd/readers/stores/video_clips.py"}
POOLS |= {"ndd/runtime/lineage.py"}  # asks multiprocessing which child it is


@pytest.mark.slow
@pytest.mark.parametrize("what", ["decode", "eager", "epoch"])
@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_children_of_a_busy_process_work_and_end(what: str, cache: str, tmp_path: Path) -> None:
    folder = {"NDD_CACHE_DIR": str(tmp_path)} if cache == "cold" else {}
    assert counts_of("forks", what, 1, 5 * TIMES, 150 * TIMES, **folder)["forks"] == 5 * TIMES


def test_a_fork_waits_for_calls_of_llvm() -> None:
    """A thread that has left our lock may still free an object of LLVM, under LLVM's own lock."""
    told = run_python(
        """
        import os, signal, threading, time, warnings
        import ndd, llvmlite.binding as llvm
        from llvmlite.binding import ffi
        warnings.simplefilter("ignore")
        inside = threading.Event()
        def free():
            with ffi.lib._lock:
                inside.set()
                time.sleep(0.3)
        for _ in range(3):
            inside.clear()
            thread = threading.Thread(target=free)
            thread.start()
            inside.wait()
            child = os.fork()
            if not child:
                signal.alarm(20)
                llvm.parse_assembly("")
                os._exit(0)
            thread.join()
            print(os.waitpid(child, 0)[1], end=" ")
        llvm.parse_assembly("")
        """
    )
    assert told.split() == ["0", "0", "0"]


def test_a_fork_leaves_no_property_locked() -> None:
    """`functools.cached_property` of Python 3.11 holds a lock of the class while it computes."""
    told = run_python(
        """
        import os, signal, threading, time, warnings
        from ndd.kernels.ir import spec
        warnings.simplefilter("ignore")
        inside = threading.Event()
        def slow(axes):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                time.sleep(1.0)
            return enumerate(axes)
        spec.enumerate = slow
        one, other = (spec.KernelSpec((), (None, k), (), (), ()) for k in (2, 3))
        thread = threading.Thread(target=lambda: one.loop_axes)
        thread.start()
        inside.wait()
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if other.loop_axes == (0,) and other.__dict__["loop_axes"] == (0,) else 1)
        thread.join()
        print(os.waitpid(child, 0)[1], one.loop_axes)
        """
    )
    assert told == "0 (0,)"


def test_locks_and_threads_are_made_in_one_place() -> None:
    for path in sources():
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and name not in HOMES:
                of_threading = isinstance(node.value, ast.Name) and node.value.id in (
                    "threading",
                    "queue",
                )
                found = node.attr in HOOKS or (of_threading and node.attr in FORBIDDEN)
                is_type = node.attr == "Thread"  # in annotations
                assert not found or is_type or (name, node.attr) in ALSO, (
                    f"{name}:{node.lineno} {node.attr}"
                )
            if isinstance(node, ast.ImportFrom) and name not in HOMES:
                names = {alias.name for alias in node.names}
                is_of_threads = node.module in ("threading", "queue", "_thread")
                assert "cached_property" not in names, f"{name}:{node.lineno}"  # see `made_once`
                assert not (is_of_threads and names & (FORBIDDEN | HOOKS)), f"{name}:{node.lineno}"
                is_pool = str(node.module).startswith(("concurrent", "multiprocessing"))
                assert not is_pool or name in POOLS, f"{name}:{node.lineno} {node.module}"
            if isinstance(node, ast.Import):
                modules = {alias.name.partition(".")[0] for alias in node.names}
                assert not modules & {"concurrent", "multiprocessing"}, f"{name}:{node.lineno}"
            if isinstance(node, ast.Call) and name not in HOMES:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                assert called != "Thread", f"{name}:{node.lineno} starts a thread"
