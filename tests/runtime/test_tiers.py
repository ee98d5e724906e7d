"""Tiers: a program whose fused kernel is missing runs op by op until a process beside has compiled it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.run import tiers as tiers_module
from ndd.fusion.run.tiers import TIERS
from ndd.kernels.cpu import render as cpu
from ndd.kernels.cpu import runtime
from ndd.kernels.cpu.compile_beside import COMPILER, IDLE_SECONDS
from ndd.tools.profiling import Counters

PHOTO = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
DEADLINE = 120.0  # of a compilation on a busy machine


@pytest.fixture(scope="module")
def single_ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the kernels of the single ops."""
    folder = tmp_path_factory.mktemp("tiers")
    before = os.environ["NDD_CACHE_DIR"]
    os.environ["NDD_CACHE_DIR"] = str(folder)
    forget()
    try:
        image = ndd.tensor(PHOTO, layout="HWC")
        for op in (brightness, mirror, scaled):
            np.asarray(op(image).evaluate())
    finally:
        os.environ["NDD_CACHE_DIR"] = before
    return folder


@pytest.fixture
def cache(single_ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process without memory, with tiers, and a copy of the cache of single ops."""
    folder = tmp_path / "cache"
    subprocess.run(["cp", "-r", str(single_ops), str(folder)], check=True)
    monkeypatch.setenv("NDD_CACHE_DIR", str(folder))
    monkeypatch.setenv("NDD_TIERS", "1")
    forget()
    yield folder
    forget()


def forget() -> None:
    """Forget all plans and kernels, as a new process would."""
    COMPILER.close()
    TIERS.clear()
    PLANNER.records.clear()
    runtime._kernels.clear()
    runtime._missed.clear()
    runtime.kernel_file.cache_clear()


def brightness(x: Any) -> Any:
    return ndd.brightness(x, brightness=1.25)


def mirror(x: Any) -> Any:
    return ndd.flip(x)


def scaled(x: Any) -> Any:
    return ndd.contrast(x, contrast=0.75)


def run(*ops: Callable[[Any], Any]) -> tuple[np.ndarray[Any, Any], Any]:
    """The result of a chain of ops, and its explanation."""
    with ndd.EvalMode.deferred:
        x = ndd.tensor(PHOTO, layout="HWC")
        for op in ops:
            x = op(x)
        x.evaluate()
        return np.asarray(x), ndd.explain(x)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# -- which tier ------------------------------------------------------------------------------------


def test_a_missing_kernel_is_compiled_beside_and_taken_when_it_is_there(cache: Path) -> None:
    count = runtime.compile_count
    first, explained = run(brightness, mirror)
    assert (
        explained.tier
        == "op by op for now, fused when 1 kernel is compiled (asked for 1 of 2 times)"
    )
    assert len(explained.kernels) == 2
    assert f"tier: {explained.tier}" in str(explained)
    assert explained.groups[0].reason == "the kernel that fuses it is not compiled yet"
    second, explained = run(brightness, mirror)
    assert "is being compiled" in explained.tier
    until(lambda: len(run(brightness, mirror)[1].kernels) == 1)
    third, explained = run(brightness, mirror)
    assert explained.tier == "fused"
    assert runtime.compile_count == count, "this process compiled something"
    assert first.tobytes() == second.tobytes() == third.tobytes()


def test_the_source_of_a_kernel_is_written_when_it_is_asked_for_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing it takes as long as planning; most programs that change never come back."""
    written: list[tuple[str, ...]] = []
    render = cpu.render
    monkeypatch.setattr(
        cpu, "render", lambda spec, name: written.append(spec.ops) or render(spec, name)
    )
    run(brightness, mirror)
    assert set(written) == {("brightness",), ("flip",)}
    run(brightness, mirror)
    assert ("brightness", "flip") in written


def test_tiers_give_the_same_bits_in_all_modes(
    cache: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    chain = (scaled, mirror, brightness)

    def result() -> bytes:
        with getattr(ndd.EvalMode, mode):
            x = ndd.batch([PHOTO, PHOTO[2:]], layout="HWC")
            for op in chain:
                x = op(x)
            return b"".join(np.asarray(t).tobytes() for t in x.tensors)

    monkeypatch.setattr(tiers_module, "ASKED", 1 << 30)
    stepwise, explained = result(), run(*chain)[1]
    assert explained.tier.startswith("op by op") and len(explained.kernels) == 3
    monkeypatch.setenv("NDD_TIERS", "0")
    monkeypatch.setenv("NDD_CACHE_DIR", os.environ["NDD_CACHE_DIR"] + "/fused")
    assert result() == stepwise
    explained = run(*chain)[1]
    assert explained.tier == "" and len(explained.kernels) == 1


def test_the_first_programs_wait_if_single_ops_would_take_longer(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NDD_CACHE_DIR", str(cache / "empty"))
    made: list[str] = []
    monkeypatch.setattr(runtime, "_make", lambda spec, name: made.append(name) or real(spec, name))
    _, explained = run(mirror, scaled)
    assert explained.tier == (
        "fused, compiled at once: the single ops would need 2 kernels that are not compiled either"
    )
    assert len(made) == len(explained.kernels) == 1
    monkeypatch.setattr(TIERS, "_at_once", 0)
    _, explained = run(scaled, mirror)
    assert explained.tier.startswith("op by op") and len(made) == 3


real = runtime._make


def test_a_kernel_that_an_earlier_process_asked_for_is_due_at_once(cache: Path) -> None:
    run(mirror, brightness)
    forget()
    _, explained = run(mirror, brightness)
    assert "is being compiled" in explained.tier


def test_profile_and_report_say_which_tier_ran(cache: Path) -> None:
    before = Counters.now().op_by_op
    with ndd.profile() as profile:
        _, explained = run(mirror, brightness)
    assert profile.report().tiers == {explained.tier: 1}
    assert f"tier of 1 program: {explained.tier}" in str(profile.report())
    assert Counters.now().op_by_op == before + 1


def test_warmup_compiles_fused_kernels(cache: Path) -> None:
    image = ndd.tensor(PHOTO, layout="HWC")
    assert ndd.warmup(lambda x: mirror(brightness(x)), image) == 1
    assert run(brightness, mirror)[1].tier == "fused"


def test_the_budget_bounds_what_is_compiled_beside(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIERS, "_budget", 0)
    before = COMPILER.started
    for _ in range(4):
        _, explained = run(brightness, mirror)
    assert explained.tier.endswith("(asked for 4 of 2 times)") and COMPILER.started == before


def test_without_a_folder_to_write_to_a_loop_compiles_by_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIERS, "_at_once", 0)
    monkeypatch.setattr(COMPILER, "is_possible", lambda: False)
    texts = [run(brightness, mirror)[1].tier for _ in range(10)]
    assert all(t.startswith("op by op") for t in texts[:8])
    assert "asked for 8 of 8 times" in texts[7]
    assert texts[8].startswith("fused, compiled at once: asked for often")


def test_a_kernel_that_cannot_be_compiled_beside_is_compiled_here(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COMPILER, "take", lambda *request: True)
    texts = [run(brightness, mirror)[1].tier for _ in range(2)]
    assert "is being compiled" in texts[1]
    monkeypatch.setattr(COMPILER, "finished", lambda: "its name")
    _, explained = run(brightness, mirror)
    assert (
        explained.tier
        == "fused, compiled at once: the process beside could not compile for this one"
    )
    assert len(explained.kernels) == 1


def test_other_groups_stay_fused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the group whose kernel is missing runs op by op."""
    monkeypatch.setenv("NDD_TIERS", "0")
    run(brightness, mirror)
    monkeypatch.setenv("NDD_TIERS", "1")
    with ndd.EvalMode.deferred:
        x = mirror(brightness(ndd.tensor(PHOTO, layout="HWC")))
        y = scaled(mirror(ndd.tensor(PHOTO[1:], layout="HWC")))
        both = ndd.explain(x, y)
        assert both.tier == "fused when 1 kernel is compiled; until then op by op, or it waits"
        context = ndd.EvalContext.current()
        context._executor.evaluate_all([x._node, y._node], lambda: None)
        explained = ndd.explain(x)
    assert [len(g.members) > 1 for g in explained.groups].count(True) == 1
    assert len(explained.kernels) == 3


# -- processes -------------------------------------------------------------------------------------

START = """
import os, signal, sys, time
import numpy as np, ndd
from ndd.kernels.cpu.compile_beside import COMPILER
photo = np.zeros((9, 7, 3), np.uint8)
def run():
    with ndd.EvalMode.deferred:
        x = ndd.flip(ndd.brightness(ndd.tensor(photo, layout="HWC"), brightness=1.25))
        x.evaluate()
        return ndd.explain(x)
run(), run()
compiler = COMPILER._process.pid
print(compiler, flush=True)
"""


def script(text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", START + textwrap.dedent(text)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, start_new_session=True
    )


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_a_process_that_ends_does_not_wait_and_leaves_no_compiler(cache: Path, end: str) -> None:
    done = script(end)
    assert done.stderr == ""
    compiler = int(done.stdout)
    until(lambda: not is_alive(compiler))


def test_a_fork_keeps_no_compiler(cache: Path) -> None:
    done = script("""
        idle = os.fork()
        if not idle:  # a child that never uses ndd, and outlives its parent
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1), os.dup2(null, 2)  # the test reads both to their end
            time.sleep(600)
        busy = os.fork()
        if not busy:
            right = run().tier.startswith(("op by op", "fused"))
            os._exit(0 if right and getattr(COMPILER._process, "pid", None) != compiler else 1)
        assert os.waitpid(busy, 0)[1] == 0
        while len(run().kernels) != 1:  # the parent still gets its kernel
            time.sleep(0.01)
        assert run().tier == "fused", run().tier
        print(idle)
    """)
    assert done.stderr == ""
    compiler, idle = map(int, done.stdout.split())
    try:
        assert is_alive(idle)
        end = time.monotonic() + IDLE_SECONDS / 2  # then it would end even if it waited for `idle`
        while is_alive(compiler):
            assert time.monotonic() < end, "it waits for the child"
            time.sleep(0.01)
    finally:
        os.kill(idle, 9)


def test_an_interrupt_is_not_for_the_compiler(cache: Path) -> None:
    done = script("""
        try:
            os.killpg(os.getpgid(0), signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
        while len(run().kernels) != 1:
            time.sleep(0.01)
        print(COMPILER.started, run().tier)
    """)
    assert (done.stderr, done.stdout.split()[1:]) == ("", ["1", "fused"])
