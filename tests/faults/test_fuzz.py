"""The runner: it sees every kind of failure, shrinks it, keeps it, repeats it, and counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.common import replacing
from ndd.tools.outputs import write_output
from tests.faults import fuzz, generators, jobs, op_calls, shrinking
from tests.faults.arguments import structure
from tests.faults.child import Clock, environment, waited_for_a_core
from tests.faults.generators import GENERATORS, Generator
from tests.faults.jobs import Case, Job, Outcome
from tests.helpers import ROOT

BAD = {
    "crash": Generator("misbehaving_cases", "crash", 20, size=8),
    "wrong": Generator("misbehaving_cases", "wrong", 20, size=8),
    "leak": Generator("misbehaving_cases", "leak", 20, size=8),
    "error": Generator("misbehaving_cases", "error", 20, size=8),
    "memory": Generator("misbehaving_cases", "memory", 20, size=8, megabytes=150),
    "hang": Generator("misbehaving_cases", "hang", 20, size=8),
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generators that fail at case 13, if the case has at least three parts."""
    monkeypatch.setattr(generators, "GENERATORS", (*GENERATORS, *BAD.values()))


@pytest.mark.parametrize("kind", BAD)
def test_every_kind_of_failure_is_seen_and_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SLACK_SECONDS", -56.0)  # a child hangs after 4 of 60 seconds
    results = tmp_path / "results"
    totals = fuzz.Totals(results)
    case = Case(BAD[kind], 5, 0, 20)
    outcome = Job(case, 60.0).finished()
    totals.add(case, outcome)
    assert outcome.kind == kind and outcome.number == 13, outcome
    assert totals.rows[BAD[kind].name][:2] == [14, 1]
    assert json.loads(results.read_text())["kind"] == kind
    assert kind != "hang" or "in attack" in outcome.detail  # where it hangs
    path = fuzz.keep(case, outcome, tmp_path / "past")
    assert fuzz.kept(path) == case


def test_a_failure_is_shrunk_and_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(BAD["wrong"], 5, 0, 20)
    fuzz.report(case, Job(case).finished(), tmp_path, 60.0)
    (path,) = tmp_path.glob("*.json")
    assert fuzz.kept(path) == Case(BAD["wrong"], 5, 13, 1, 3)
    assert f"--again {path}" in capsys.readouterr().out
    assert fuzz.main(["--again", str(path)]) == 1
    totals = fuzz.Totals()
    fuzz.run_past(tmp_path, totals)
    assert totals.failed == 1 and totals.rows["past failures"][:2] == [1, 1]


@pytest.mark.parametrize("needed", [1, 7, 20])
def test_cases_that_need_others_before_them(needed: int) -> None:
    """The last case alone does not fail: then as few as possible of those before it are kept."""

    def run(case: Case) -> Outcome:
        fails = case.first == 0 and case.count >= needed
        return Outcome("wrong" if fails else "", case.count, 0.0, number=19 if fails else None)

    case = Case(Generator("any", "all", 20), 1, 0, 20)
    found, outcome = shrinking.shrunk(case, Outcome("wrong", 20, 0.0, number=19), 60.0, run)
    assert (found.first, found.count, outcome.kind) == (0, needed, "wrong")


def test_hangs_are_not_repeated() -> None:
    case, outcome = Case(Generator("any", "all", 20), 1, 0, 20), Outcome("hang", 20, 0.0, number=7)
    found, _ = shrinking.shrunk(case, outcome, 60.0, lambda case: pytest.fail("it hangs again"))
    assert (found.first, found.count) == (7, 1)


def test_waiting_for_a_core_is_not_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one core: each waits about half of the time. A sleeping one does not."""
    spin = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nwhile True: pass"
    sleep = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spin!r}])"
    codes = (spin, sleep, "import time; time.sleep(600)")
    started = [
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True) for code in codes
    ]
    try:
        one, child_of_another, idle = (Clock(p.pid) for p in started)
        begin = time.monotonic()
        while waited_for_a_core(started[1].pid) < 3.0:
            time.sleep(0.1)
            clocks = [c.now() for c in (one, child_of_another, idle)]
        assert waited_for_a_core(started[0].pid) > 0.5
        passed = time.monotonic() - begin
        assert clocks[1] < passed - 1.5 and clocks[2] > clocks[1], (clocks, passed)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_all_generators_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Quick(Job):
        def start(self) -> Job:
            started.append(self)
            return self

        def poll(self) -> Outcome:
            return Outcome("", 1, self.seconds)

    monkeypatch.setattr(fuzz, "Job", Quick)
    clock = iter(np.arange(0.0, 1e4, 1.0).tolist())
    still = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: None)
    monkeypatch.setattr(fuzz, "time", still)  # not the module itself, which other threads use
    totals = fuzz.Totals()
    fuzz.run(GENERATORS, 3.0, 1, 2, 1.0, totals, lambda c, o: None)
    assert {j.case.generator for j in started} == set(GENERATORS)
    assert len({j.case.seed for j in started}) == len(started)
    assert totals.table().count("\n") == len(GENERATORS) + 1


def test_generators_exist() -> None:
    from importlib import import_module

    for generator in GENERATORS:
        module = import_module(f"tests.faults.{generator.module}")
        assert generator.what == "all" or generator.what in module.WHATS, generator
    with pytest.raises(ValueError, match="there is no generator 'nothing'"):
        list(fuzz.chosen("pictures,nothing"))


@pytest.mark.filterwarnings("ignore")
def test_every_op_is_called_in_a_way_that_it_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its calls between guard pages would only test that they are refused."""
    monkeypatch.chdir(tmp_path)  # `dump_image` writes files
    monkeypatch.setattr(op_calls, "HOSTILE", 0.0)
    monkeypatch.setattr(ndd, "as_batch", ndd.batch)  # copies, so that calls are deferred: nothing
    monkeypatch.setattr(ndd, "as_tensor", ndd.tensor)  # is compiled
    for op in op_calls.CALLED:
        assert any(_is_accepted(op, k, number) for k in range(5) for number in range(8)), op.name


def _is_accepted(op: Any, k: int, number: int) -> bool:
    call = op_calls.Call(1, number, structure(op, k))
    try:
        with ndd.EvalMode.deferred:
            call.result(lambda array: array)
    except op_calls.EXPECTED:
        return False
    return True


# -- what the generators found -------------------------------------------------------------------


def test_a_thousand_dimensions_are_refused(mode: str) -> None:
    for call in (
        lambda: ndd.ones(shape=[1] * 1000),
        lambda: ndd.random.coin_flip(shape=[1] * 65),
        lambda: ndd.reshape(ndd.ones(shape=[1]), shape=[1] * 100),
    ):
        with pytest.raises(ValueError, match=r"the result has \d+ dimensions, at most 64 are"):
            call().evaluate()
    assert ndd.ones(shape=[1] * 64).ndim == 64


def test_numpy_s_own_error_of_memory_stays_one(mode: str) -> None:
    """It cannot be made from a text, and became a RuntimeError."""
    image = ndd.batch([np.zeros((4, 4, 3), np.uint8)], layout="HWC")
    with pytest.raises(MemoryError, match="gaussian_blur: Unable to allocate"):
        ndd.gaussian_blur(image, window_size=2**50 - 1).evaluate()


def test_a_node_that_another_thread_computes_meanwhile() -> None:
    """Its definition goes away between two looks at it."""
    from ndd.fusion.run.executor import is_cheap

    with ndd.EvalMode.deferred:
        node = (ndd.tensor([1.0, 2.0]) + 1)._node

    class Fleeting(type(node)):  # type: ignore[misc]
        looks = 0

        @property
        def kind(self) -> Any:
            Fleeting.looks += 1
            return None if Fleeting.looks > 1 else super().kind

    fleeting = object.__new__(Fleeting)
    for name in node.__slots__:
        if hasattr(node, name) and name != "__weakref__":
            object.__setattr__(fleeting, name, getattr(node, name))
    assert is_cheap(fleeting) and Fleeting.looks == 1


def test_outputs_are_replaced_and_devices_are_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    (tmp_path / "link").symlink_to("page.html")
    write_output(tmp_path / "link", "new")
    assert target.read_text() == "new" and (tmp_path / "link").is_symlink()
    assert target.stat().st_mode & 0o777 == 0o644
    write_output("/dev/null", b"nothing")
    assert Path("/dev/null").is_char_device()

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replacing.os, "fchmod", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_output(target, "newer")
    assert target.read_text() == "new" and sorted(p.name for p in tmp_path.iterdir()) == [
        "link", "page.html"
    ]  # fmt: skip


def test_guarded_memory_outlives_buffers_in_cycles() -> None:
    """A collection of garbage may end the objects of a cycle in any order."""
    program = """
import gc
from ndd.kernels.common.buffers import POOL
from tests.faults import guarded
guarded.guard_the_pool()
gc.freeze()  # so that a collection takes no time
for k in range(20):
    cycle = [POOL.take(100 + k)]
    cycle.append(cycle)
    del cycle
    gc.collect()
assert not guarded.overruns
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment(), check=True)
