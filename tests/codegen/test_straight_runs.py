"""Straight runs of a kernel as single calls (kernels/cpu/native/straight.py): the same machine code."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndd.kernels.cpu import helpers as cpu_helpers
from ndd.kernels.cpu import runtime
from ndd.kernels.cpu.native import compile as native_compile
from ndd.kernels.cpu.native import straight

HEADER = """
from numpy import float32 as f32, float64 as f64, int32 as i32, int64 as i64, uint8 as u8
from ndd.kernels.cpu.native.primitives import *

K0 = f32(0.1)
K1 = i32(3)


def kernel(table, begin, end):
    source = load_i64(table, 0)
    target = load_i64(table, 1)
"""
# Each writes float64 values to `target`; `source` are int64 values.
BODIES = {
    "constants of all kinds": """
    a = load_i64(source, 0)
    b = a * K1 + 2
    c = f64(b) / 3.0 - f64(K0)
    put_f64(target, 0, c)
    put_f64(target, 1, f64(choose(a < 3, True, False)) + f64(~a) + f64(-a) + f64(a // 2 % 5))
    """,
    "a value that goes through a loop": """
    total = i64(K1)
    before, last = 0, 1
    for k in range(8):
        x = load_i64(source, k)
        last, before = before + x, last
        total = total + x * K1
        if x > 4:
            total -= 1
        else:
            other = x << 2
            total = total ^ other
    put_f64(target, 0, f64(total))
    put_f64(target, 1, f64(before))
    put_f64(target, 2, f64(last))
    """,
    "types that are unified": """
    x = i32(load_i64(source, 1))
    for k in range(5):
        x = x + load_i64(source, k)
    y = 0
    if x > 20:
        y = 0.5
    put_f64(target, 0, f64(x))
    put_f64(target, 1, f64(y))
    """,
    "values that only other runs read": """
    a = load_i64(source, 2)
    b = a + 1
    c = f32(a) * K0
    for k in range(4):
        d = load_i64(source, k) * a
        if d > 3:
            continue
        e = f32(d) + c
        put_f64(target, k, f64(e) * f64(b))
        for j in range(2):
            put_f64(target, 4 + j, f64(c) + f64(d) + f64(b * j))
    """,
    "least and greatest": """
    low = min(load_i64(source, 0), load_i64(source, 1), load_i64(source, 2))
    high = max(abs(load_i64(source, 3)), 4)
    put_f64(target, 0, f64(min(max(low, 1), high)))
    put_f64(target, 1, f64(min(f32(low), K0)))
    """,
}


def compiled(body: str) -> tuple[str, bytes]:
    source = HEADER + body
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return native_compile.compile_kernel(namespace, "kernel", source, Path("kernel.py"))


def results(run: Callable[[int, int, int], int]) -> np.ndarray:
    source, target = np.array([5, 1, 3, -7, 2, 9, 4, 6]), np.full(8, -1.0)
    table = np.array([source.ctypes.data, target.ctypes.data])
    run(table.ctypes.data, 0, 1)
    return target


@pytest.mark.parametrize("case", BODIES)
def test_runs_have_the_results_of_their_lines(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = results(runtime.native(*runtime.link(*compiled(BODIES[case]))))
    monkeypatch.setattr(straight, "shortened", lambda *_: [])
    plain = results(runtime.native(*runtime.link(*compiled(BODIES[case]))))
    np.testing.assert_array_equal(short, plain)
    assert (plain != -1.0).any()


def test_straight_lines_become_one_call() -> None:
    source = HEADER + BODIES["constants of all kinds"]
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    runs = straight.shortened(source, "kernel.py", "kernel", namespace)
    assert len(runs) == 1
    assert namespace["kernel"].__code__.co_names == ("run_0",)
    for run in runs:
        run.forget()


def test_compiling_leaves_no_objects() -> None:
    """All that Numba made for a kernel is garbage afterwards."""
    body = BODIES["values that only other runs read"]
    compiled(body)  # makes what stays: signatures of operations, types of literals
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(10):
        compiled(body)
    gc.collect()
    assert len(gc.get_objects()) - before < 10 * 5


def test_the_call_of_a_helper_is_made_once() -> None:
    """Numba keeps each intrinsic for ever."""
    assert cpu_helpers.copy_row is cpu_helpers.copy_row
