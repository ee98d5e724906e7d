"""Helpers of several test files: batches, comparison bit by bit, fresh processes, counters."""

from __future__ import annotations

import contextlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.core import convert
from ndd.core.call import wrap
from ndd.core.handle import executor_of, finish_call
from ndd.fusion.graph import build
from ndd.fusion.graph.sites import Site
from ndd.fusion.plan.planner import PLANNER
from ndd.fusion.plan.steps import KernelStep
from ndd.fusion.run import executor as executors
from ndd.fusion.run.execution import Run
from ndd.fusion.run.executor import Executor
from ndd.kernels.cpu import runtime as cpu_runtime

ROOT = Path(__file__).parents[1]
SHAPES = ((5, 7, 3), (4, 9, 3), (8, 3, 3))


def samples(
    shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: Any = np.uint8, seed: int = 0
) -> list[Any]:
    """Arrays of random values: all bytes, integers of both signs, floats of all magnitudes."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return [(rng.standard_normal(s) * 100).astype(kind) for s in shapes]
    if kind.kind == "b":
        return [rng.random(s) < 0.5 for s in shapes]
    low = 0 if kind.kind == "u" else -120
    return [
        rng.integers(low, 256 if kind.itemsize > 1 or low == 0 else 120, s).astype(kind)
        for s in shapes
    ]


def ragged(
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtype: Any = np.uint8,
    layout: str | None = "HWC",
    seed: int = 0,
) -> ndd.Batch:
    """A batch of our own memory with random values."""
    return ndd.batch(samples(shapes, dtype, seed), layout=layout)


def arrays(x: Any) -> list[np.ndarray[Any, Any]]:
    """Copies of all samples of a Batch, or of the only one of a Tensor, as arrays."""
    x = x.cpu()
    tensors = list(x.tensors) if isinstance(x, ndd.Batch) else [x]
    return [np.array(t) for t in tensors]


def assert_same(got: Any, wanted: Any, what: str = "") -> None:
    """Equal shapes, types and bits (any nan equals any nan)."""
    got = got if isinstance(got, list) else arrays(got)
    wanted = wanted if isinstance(wanted, list) else arrays(wanted)
    assert len(got) == len(wanted), what
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        where = f"{what} sample {k}"
        assert a.dtype == b.dtype, f"{where}: {a.dtype} {b.dtype}"
        assert a.shape == b.shape, f"{where}: {a.shape} {b.shape}"
        if a.tobytes() == b.tobytes():
            continue
        # assert_array_equal takes nan for equal, but -0.0 for 0.0 as well
        np.testing.assert_array_equal(a, b, err_msg=where)
        if a.dtype.kind == "f":
            number = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number], where)


def ulps(got: Any, wanted: Any) -> int:
    """The largest distance of two float arrays, in units of the last place."""
    a, b = np.asarray(got), np.asarray(wanted)
    assert a.dtype == b.dtype and a.dtype.kind == "f"
    both = np.isnan(a) & np.isnan(b)
    kind = {2: np.int16, 4: np.int32, 8: np.int64}[a.dtype.itemsize]

    def ordered(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        i = x.view(kind).astype(object)
        return np.where(i < 0, -(i & np.iinfo(kind).max), i)

    gap = np.abs(ordered(a) - ordered(b))
    return int(np.where(both, 0, gap).max(initial=0))


def kernels(*values: Any) -> int:
    """The number of generated kernels that compute these values."""
    return len(ndd.explain(*values).kernels)


@contextlib.contextmanager
def nothing_compiled() -> Iterator[None]:
    """Fails if a kernel is compiled inside of the block."""
    before = cpu_runtime.compile_count
    yield
    assert cpu_runtime.compile_count == before, f"{cpu_runtime.compile_count - before} compiled"


@contextlib.contextmanager
def nothing_planned() -> Iterator[None]:
    """Fails if a plan is made or a kernel is compiled inside of the block."""
    before = PLANNER.count
    with nothing_compiled():
        yield
    assert PLANNER.count == before, f"{PLANNER.count - before} plans made"


def run_python(code: str, **env: str) -> str:
    """The output of a fresh Python process that runs this code with these environment variables."""
    done = start_python(code, **env)
    try:
        out, err = done.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        done.kill()
        out, err = done.communicate()
        pytest.fail(f"the process hangs\n{out}\n{err}")
    assert done.returncode == 0, f"exit code {done.returncode}\n{out}\n{err}"
    return out.strip()


def start_python(code: str, **env: str) -> subprocess.Popen[str]:
    """A fresh Python process; the caller waits for it."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", inspect.cleandoc(code)],
        cwd=ROOT, env={**os.environ, **env}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def line_of(error: BaseException) -> str:
    """The `file.py:line` that an error's message names."""
    return str(error).rpartition("(called at ")[2].rstrip(")").rpartition(os.sep)[2]


# -- calls of Python functions, until there are ops that make some ------------------------------


def host_call(function: Any, x: Any, dtype: Any = ndd.float32) -> Any:
    """An opaque op that runs `function(array) -> array of the same shape` at the flush."""
    caller = inspect.currentframe().f_back  # type: ignore[union-attr]
    node = build.host("host_call", _run_host, [x._node], x._node.shapes, dtype, x.layout,
                      isinstance(x, ndd.Batch), function)  # fmt: skip
    finish_call([node], Site(caller.f_code.co_filename, caller.f_lineno))  # type: ignore[union-attr]
    return wrap(node)


def _run_host(node: Any, inputs: Sequence[Any], function: Any) -> Any:
    results = [function(a) for a in convert.arrays_of(inputs[0])]
    made = convert.copy_arrays(results, node.dtype, None, node.batch)
    return made.storage


@contextlib.contextmanager
def worker_held() -> Iterator[None]:
    """Keeps the background thread from taking nodes, so that the test controls which are pending."""
    with executor_of(ndd.EvalContext.current())._running:
        yield


@contextlib.contextmanager
def counted_runs() -> Iterator[list[int]]:
    """A list that collects the number of kernels of every plan executed inside of the block."""
    runs: list[int] = []
    execute = Run.execute

    def counting(self: Run) -> None:
        runs.append(sum(isinstance(s, KernelStep) for s in self.plan.steps))
        execute(self)

    again = Executor._run_again

    def counting_again(*arguments: Any) -> bool:
        before = len(runs)
        done = again(*arguments)
        if done and len(runs) == before:
            runs.append(1)
        return done

    Run.execute = counting  # type: ignore[method-assign]
    Executor._run_again = counting_again  # type: ignore[method-assign]
    try:
        yield runs
    finally:
        Run.execute = execute  # type: ignore[method-assign]
        Executor._run_again = again  # type: ignore[method-assign]


def forget_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the plans of earlier programs, and drop the plans made now at the end of the test."""
    monkeypatch.setattr(PLANNER, "records", {})
    monkeypatch.setattr(executors, "_known_calls", {})
