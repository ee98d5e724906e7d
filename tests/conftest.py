"""Fixtures for all tests: a kernel cache per session, eval modes, fusion, devices."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MODES = ("deferred", "eager", "sync_cpu", "sync_full")
_own_cache = ""


def pytest_configure() -> None:
    """Every session starts with an empty kernel cache; workers of xdist inherit the variable."""
    global _own_cache
    os.environ.setdefault("NDD_COMPILE_AHEAD", "0")  # workers compile on all cores anyway
    gc.set_threshold(
        20_000, 20, 20
    )  # compilers make many objects; 4 % of all time with 700, 10, 10
    # Tests count compilations and look at fused kernels; tests/runtime/test_tiers.py enables tiers.
    os.environ.setdefault("NDD_TIERS", "0")
    if "NDD_CACHE_DIR" not in os.environ:
        _own_cache = os.environ["NDD_CACHE_DIR"] = tempfile.mkdtemp(prefix="ndd-test-cache-")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that no worker still runs one when the others have finished.

    xdist gives each worker a run of neighbouring tests, so every such run begins with its share of
    the long ones. Those of a file stay together, because they share fixtures.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            files.setdefault(item.path, []).append(item)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for tests in sorted(files.values(), key=_seconds, reverse=True):
        shares[min(range(workers), key=lambda k: _seconds(shares[k]))] += tests
    others = [item for item in items if not item.get_closest_marker("slow")]
    left = len(items)
    items.clear()
    for k, share in enumerate(shares):
        size = max(left // (workers - k) - len(share), 0)  # xdist divides them in this way
        items += share + others[:size]
        others = others[size:]
        left -= len(share) + size


def _seconds(tests: list[pytest.Item]) -> float:
    """How long tests take on a quiet machine, by their marks."""
    marks = (item.get_closest_marker("slow") for item in tests)
    return sum(float(mark.kwargs.get("seconds", 10)) for mark in marks if mark)


_was_collected = False


def _note_collection(phase: str, info: dict[str, int]) -> None:
    global _was_collected
    _was_collected = _was_collected or info["generation"] == 2


def pytest_collection_finish() -> None:
    """Freeze the objects that imports made, so that no collection walks through them (5 % of all time)."""
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_note_collection)


def pytest_runtest_logfinish() -> None:
    """After a test with a full collection, freeze what is left, which is what the compilers keep.

    In a process that has compiled much, each such collection would take more than a second.
    """
    global _was_collected
    if _was_collected:
        gc.collect()
        gc.freeze()
        _was_collected = False


def pytest_unconfigure() -> None:
    if _own_cache:
        shutil.rmtree(_own_cache, ignore_errors=True)


GUARD, GUARD_BYTE = 64, 0x3C
_overrun: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fill fresh memory with different garbage each time, so that unwritten values never compare equal,
    and put it between guard bytes, because kernels do not check bounds."""
    from ndd.kernels.common.buffers import Buffer, Pool

    take, free = Pool.take, Buffer.__del__
    rubbish = itertools.cycle(range(0x51, 0xF1))
    untouched = bytes([GUARD_BYTE]) * GUARD
    guarded: set[int] = set()

    def poisoned(self: Pool, nbytes: int) -> Buffer:
        buffer = take(self, nbytes + 2 * GUARD)
        ctypes.memset(buffer.address, GUARD_BYTE, GUARD)
        buffer.address, buffer.nbytes = buffer.address + GUARD, nbytes
        ctypes.memset(buffer.address, next(rubbish), nbytes)
        ctypes.memset(buffer.address + nbytes, GUARD_BYTE, GUARD)
        guarded.add(buffer.address)
        return buffer

    def checked(self: Buffer) -> None:
        # memory taken before the tests has no guard bytes
        is_guarded = self.address in guarded
        guarded.discard(self.address)
        for place, name in ((-GUARD, "before"), (self.nbytes, "behind")):
            if is_guarded and ctypes.string_at(self.address + place, GUARD) != untouched:
                _overrun.append(f"something wrote {name} a buffer of {self.nbytes} bytes")
        free(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "take", poisoned)
        patch.setattr(Buffer, "__del__", checked)
        yield


@pytest.fixture(autouse=True)
def intact_memory() -> Iterator[None]:
    """Check that no returned buffer was written beyond its ends."""
    yield
    found = _overrun.copy()
    _overrun.clear()
    assert not found, found[0]


@pytest.fixture(autouse=True)
def empty_ledger() -> None:
    """Forget the samples that earlier tests could not decode."""
    decoders = sys.modules.get("ndd.decoders")
    if decoders is not None:
        decoders.errors.clear()


@pytest.fixture(scope="session", autouse=True)
def checked_graph() -> Iterator[None]:
    """Check every program and every plan, and that no field of a node changes after it was made."""
    from ndd.fusion.graph.node import Node
    from ndd.fusion.plan import check
    from ndd.fusion.plan.planner import Planner

    plan_for, make_plan = Planner.plan_for, Planner.make_plan

    def checked_plan_for(self, program, fuse):
        check.check_program(program)
        return plan_for(self, program, fuse)

    def checked_make_plan(self, program, fuse, *stored):
        plan = make_plan(self, program, fuse, *stored)
        check.check_plan(program, plan)
        return plan

    def set_once(self, name, value):
        assert not hasattr(self, name), f"{name} of {self} is assigned again"
        object.__setattr__(self, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Planner, "plan_for", checked_plan_for)
        patch.setattr(Planner, "make_plan", checked_make_plan)
        patch.setattr(Node, "__setattr__", set_once, raising=False)
        yield


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once in each eval mode."""
    import ndd

    with ndd.EvalMode[request.param]:
        yield request.param


@pytest.fixture(params=["fused", "unfused"])
def fusion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs once as usual and once with `NDD_FUSION=0`."""
    if request.param == "unfused":
        monkeypatch.setenv("NDD_FUSION", "0")
    return str(request.param)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs once on the CPU and once on a simulated GPU."""
    if request.param == "gpu":
        monkeypatch.setenv("NDD_GPU", "simulate")
    return str(request.param)
