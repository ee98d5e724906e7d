"""Random programs of 1 to 12 calls: the same bits fused, op by op, and in every mode.

`NDD_STRESS=1` runs 10,000 of them, `NDD_PROGRAMS=n` runs n.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import ndd
from tests import programs
from tests.helpers import arrays, assert_same, forget_plans, worker_held

EXAMPLES = int(
    os.environ.get("NDD_PROGRAMS") or (10_000 if os.environ.get("NDD_STRESS") == "1" else 30)
)


@pytest.mark.slow(seconds=120)
@settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 100,
    database=None,
    deadline=None,  # a new program compiles new kernels
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, *((Phase.shrink,) if EXAMPLES <= 100 else ())),
)
@given(data=st.data())
def test_fused_equals_op_by_op(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 12))
    program = programs.make(lambda n: data.draw(st.integers(0, n - 1)), length)
    check(program)


def check(program: programs.Program) -> None:
    """Run op by op, then fused and deferred; of many programs, only every fifth in the other modes.

    Deferred runs twice, because the second plan knows which values were read after the first.
    """
    global checked
    checked += 1
    with pytest.MonkeyPatch.context() as patch, ndd.EvalMode.deferred:
        patch.setenv("NDD_FUSION", "0")
        wanted = programs.run(program)
    with ndd.EvalMode.deferred:
        compare(program, wanted, "deferred")
        if EXAMPLES > 100 and checked % 5:
            return
        compare(program, wanted, "deferred again")
    with ndd.EvalMode.sync_cpu:
        compare(program, wanted, "sync_cpu")
    with ndd.EvalMode.eager, worker_held():
        compare(program, wanted, "eager")


checked = 0


def compare(program: programs.Program, wanted: list[list[object]], mode: str) -> None:
    for k, (got, want) in enumerate(zip(programs.run(program), wanted, strict=True)):
        assert_same(got, want, f"{mode}, result {k} of\n{program}\n")


# -- many more, without a compiler ---------------------------------------------------------------

MANY = int(
    os.environ.get("NDD_PROGRAMS") or (10_000 if os.environ.get("NDD_STRESS") == "1" else 100)
)


@pytest.fixture
def reference_kernels(monkeypatch):
    """Run kernels in NumPy, and forget the plans afterwards, because they hold these kernels."""
    from ndd.kernels.cpu import runtime as cpu_runtime
    from tests.reference.kernels import ReferenceKernel

    forget_plans(monkeypatch)
    monkeypatch.setattr(cpu_runtime, "get_kernel", ReferenceKernel)


@pytest.mark.slow(seconds=30)
@settings(
    max_examples=MANY,
    derandomize=MANY <= 1000,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(data=st.data())
def test_fusion_is_exact_in_the_reference(reference_kernels, data: st.DataObject) -> None:
    """Tests passes, lowering and binding: fused equals op by op when NumPy runs the kernels."""
    length = data.draw(st.integers(1, 12))
    program = programs.make(lambda n: data.draw(st.integers(0, n - 1)), length)
    with ndd.EvalMode.deferred:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NDD_FUSION", "0")
            wanted = programs.run(program)
        compare(program, wanted, "fused, in NumPy")


@pytest.mark.slow
def test_compiled_kernels_equal_the_reference() -> None:
    """Tests the code generator: Numba and NumPy give the same values for the same programs."""
    from ndd.kernels.cpu import runtime as cpu_runtime
    from tests.reference.kernels import ReferenceKernel

    draw = random.Random(11)
    for length in range(1, 13):
        program = programs.make(lambda n: draw.randrange(n), length)
        with ndd.EvalMode.deferred, pytest.MonkeyPatch.context() as patch:
            compiled = programs.run(program)
            forget_plans(patch)
            patch.setattr(cpu_runtime, "get_kernel", ReferenceKernel)
            compare(program, compiled, "in NumPy")


@pytest.mark.parametrize("before", [lambda x: x + 1, ndd.math.sin], ids=["add", "sin"])
def test_stacked_rotation(before) -> None:
    """The arguments of a rotation are read outside of any window (seed 7008)."""
    image = ndd.batch([np.full((7, 5, 3), 0.5, np.float32)] * 2, layout="HWC")

    def both(axis: int) -> list[np.ndarray]:
        x = before(image)
        turned = ndd.rotate(x, angle=151.0, fill_value=4.0, keep_size=True) * 0.5
        return arrays(ndd.stack(x, turned, axis=axis))

    for axis in range(4):
        with pytest.MonkeyPatch.context() as patch, ndd.EvalMode.deferred:
            patch.setenv("NDD_FUSION", "0")
            wanted = both(axis)
        with ndd.EvalMode.deferred:
            assert_same(both(axis), wanted)


def test_part_of_a_stacked_rotation() -> None:
    """Simplifying a window of positions terminates (seed 2025)."""
    image = ndd.batch(
        [np.full((6, 1, 3), 9, np.uint8), np.full((7, 4, 3), 7, np.uint8)], layout="HWC"
    )

    def part(start: int) -> list[np.ndarray]:
        small = ndd.resize(image, size=[9, 5])
        both = ndd.stack(ndd.rotate(small, angle=151.0, size=[9, 5], fill_value=4.0), small)
        return arrays(both.slice[start:, :, :, ::-2])

    for start in (0, 1, 2):
        with pytest.MonkeyPatch.context() as patch, ndd.EvalMode.deferred:
            patch.setenv("NDD_FUSION", "0")
            wanted = part(start)
        with ndd.EvalMode.deferred:
            assert_same(part(start), wanted)
