"""Values that depend on fewer axes than the loops around them are not computed per element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.cpu.render import render
from tests.graph.test_lowering import group
from tests.helpers import arrays, assert_same

H, W = 5, 7
REASON = "it repeats along an axis"


def images(**more: Any) -> ndd.Batch:
    rng = np.random.default_rng(3)
    pixels = [rng.random((H, W, 3), np.float32) for _ in range(2)]
    return ndd.batch(pixels, layout="HWC", **more)


def operand(shape: tuple[int, ...], **more: Any) -> ndd.Batch:
    rng = np.random.default_rng(4)
    return ndd.batch([rng.random(shape, np.float32) for _ in range(2)], **more)


def reasons(x: ndd.Batch) -> list[str]:
    return [g.reason for g in ndd.explain(x).groups]


def is_stored(x: ndd.Batch) -> bool:
    return any(REASON in reason for reason in reasons(x))


@pytest.mark.parametrize(
    ("shape", "stored"),
    [((1, W, 1), True), ((1, W, 3), True), ((H, 1, 1), False), ((1, 1, 3), False),
     ((1, 1, 1), False), ((H, W, 1), False), ((H, 1, 3), False)],
)  # fmt: skip
def test_a_dear_value_is_stored_if_the_innermost_loop_repeats_it(
    shape: tuple[int, ...], stored: bool
) -> None:
    with ndd.EvalMode.deferred:
        assert is_stored(images() * ndd.math.sin(operand(shape))) is stored
        assert not is_stored(images() * (operand(shape) * 2.0))  # cheaper to compute again


def test_what_counts_is_the_order_of_the_kernels_loops() -> None:
    with ndd.EvalMode.deferred:
        columns = images() * ndd.math.sin(operand((1, W, 1)))
        rows = images() * ndd.math.sin(operand((H, 1, 1)))
        assert not is_stored(ndd.transpose(columns, perm=[1, 0, 2]))
        assert is_stored(ndd.transpose(rows, perm=[1, 0, 2]))


def test_only_the_repeated_part_counts() -> None:
    with ndd.EvalMode.deferred:
        per_sample = ndd.math.sin(ndd.batch([np.float32(1.0), np.float32(2.0)]))
        assert not is_stored(images() * (operand((1, W, 1)) * per_sample))


@pytest.mark.gpu
def test_a_gpu_stores_what_is_dear_along_any_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
    with ndd.EvalMode.deferred:
        x = images(device="gpu")
        assert is_stored(x * ndd.random.normal(shape=[H, 1, 1], batch_size=2, device="gpu"))
        assert not is_stored(x * (operand((H, 1, 1), device="gpu") * 2.0))


def test_numbers_per_sample_and_row_stand_before_the_innermost_loop() -> None:
    with ndd.EvalMode.deferred:
        noise = ndd.random.normal(shape=[1, 1, 3], batch_size=2)
        spec = group(images() * ndd.math.sin(operand((H, 1, 1))) + noise)
    lines = render(spec, "name").splitlines()
    inner = next(k for k, line in enumerate(lines) if "for o_1 in" in line)
    outer = next(k for k, line in enumerate(lines) if "for o_0 in" in line)
    body = "\n".join(lines[inner:])
    assert "standard_normal" in "\n".join(lines[:outer])
    assert "standard_normal" not in body and "sin" not in body


PROGRAMS: dict[str, Callable[..., Any]] = {
    "columns": lambda x, f: x * ndd.math.sin(f((1, W, 1))),
    "rows": lambda x, f: x * ndd.math.sin(f((H, 1, 1))) + f((1, 1, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_stay_the_same(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        def f(shape: tuple[int, ...]) -> ndd.Batch:
            return operand(shape, device=device)

        with ndd.EvalMode.deferred:
            return arrays(PROGRAMS[name](images(device=device), f))

    fused = run()
    monkeypatch.setenv("NDD_FUSION", "0")
    assert_same(fused, run())


def test_some_samples_may_repeat_and_others_not() -> None:
    rng = np.random.default_rng(5)
    pixels = [rng.random((H, W, 3), np.float32) for _ in range(2)]
    others = [rng.random(s, np.float32) for s in ((H, 1, 3), (H, W, 3))]
    got = ndd.batch(pixels, layout="HWC") + ndd.batch(others)
    assert_same(got, [a + b for a, b in zip(pixels, others, strict=True)])
