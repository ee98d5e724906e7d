"""The simulated GPU gives the CPU's bits, with one launch per group."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu import runtime as gpu_runtime
from tests import programs
from tests.helpers import arrays, assert_same, ragged, samples, ulps
from tests.modes.test_modes import colours, joined, normalise, tabulated, through_memory

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NDD_GPU", "simulate")
    yield


def exact_arithmetic(x: ndd.Batch) -> ndd.Batch:
    y = ndd.cast(x, dtype=ndd.int32) * 7 // 3 - (ndd.cast(x, dtype=ndd.int16) << 2)
    z = ndd.math.clamp(ndd.cast(y, dtype=ndd.float32) / 3.0, -50.0, 700.0) % 11.0
    return ndd.cast(ndd.math.sqrt(ndd.math.abs(z)), dtype=ndd.float16) * (x > 100)


def rearranged(x: ndd.Batch) -> ndd.Batch:
    y = ndd.slice(
        x, start=(-1, 0), end=(4, 12), axes=(0, 1), out_of_bounds_policy="pad", fill_values=9
    )
    y = ndd.transpose(ndd.flip(y, vertical=1), perm=[2, 1, 0])
    return ndd.stack(y.slice[::-1], y, axis=0)


def on_gpu(x: ndd.Batch) -> ndd.Batch:
    moved = x.gpu()
    assert moved.device.device_type == "gpu"
    return moved


EXP_AND_SIN = (joined,)


@pytest.mark.parametrize(
    "job",
    [normalise, tabulated, colours, joined, through_memory, exact_arithmetic, rearranged],
    ids=lambda f: f.__name__,
)
def test_gpu_equals_cpu(job: Callable[[ndd.Batch], ndd.Batch]) -> None:
    with ndd.EvalMode.deferred:
        wanted = arrays(job(ragged()))
        got = arrays(job(on_gpu(ragged())))
    if job in EXP_AND_SIN:
        for a, b in zip(got, wanted, strict=True):
            assert ulps(a, b) <= 4
    else:
        assert_same(got, wanted)


def test_a_program_on_the_gpu_in_every_mode(mode: str, fusion: str) -> None:
    with ndd.EvalMode.sync_full:
        wanted = arrays(normalise(ragged()))
    assert_same(normalise(on_gpu(ragged())), wanted)


@pytest.mark.parametrize("job", [normalise, joined, rearranged], ids=lambda f: f.__name__)
def test_one_launch_per_group(job: Callable[[ndd.Batch], ndd.Batch]) -> None:
    with ndd.EvalMode.deferred:
        x = on_gpu(ragged()).evaluate()
        y = job(x)
        groups = len(ndd.explain(y).kernels)
        before = gpu_runtime.launch_count
        y.evaluate()
        assert gpu_runtime.launch_count - before == groups
        assert groups == {"normalise": 1, "joined": 2, "rearranged": 1}[job.__name__]


def test_the_same_groups_on_both_devices() -> None:
    def ops(x: ndd.Batch) -> list[Any]:
        return [g.ops for g in ndd.explain(joined(x)).groups if g.kind == "kernel"]

    with ndd.EvalMode.deferred:
        assert ops(on_gpu(ragged()).evaluate()) == ops(ragged())


def test_wrapped_memory_is_read_before_a_transfer_returns(mode: str) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    moved = ndd.as_tensor(a).gpu()
    computed = ndd.copy(ndd.as_tensor(a), device="gpu") + 1.0
    a[:] = -1
    wanted = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert_same(moved, [wanted])
    assert_same(computed, [wanted + 1])


def test_several_devices_in_one_flush() -> None:
    data = samples(dtype=np.float32)
    with ndd.EvalMode.deferred:
        first, second = ndd.batch(data).gpu(0) * 2.0, ndd.batch(data).gpu(1) * 3.0
        back = ndd.stack(first.cpu(), second.cpu(), ndd.batch(data))
    assert_same(back, [np.stack([a * 2, a * 3, a]) for a in data])


def test_random_programs_on_the_gpu() -> None:
    rng = random.Random(11)
    compared = 0
    while compared < 5:
        program = programs.make(lambda n: rng.randrange(n), 2 + compared)
        if any(word in " ".join(program.text) for word in ("sin ", "exp ", "hue ", "saturation ")):
            continue
        with ndd.EvalMode.deferred:
            wanted = programs.run(program)
            for got, want in zip(programs.run(program, "gpu"), wanted, strict=True):
                assert_same(got, want, repr(program))
        compared += 1


def test_a_value_of_another_stream_is_waited_for() -> None:
    for evaluated in (False, True):
        for _ in range(10):
            with ndd.EvalContext(cuda_stream=ndd.stream()):
                x = ndd.zeros(shape=[40, 40], device="gpu") + 1
                if evaluated:
                    x.evaluate()
            assert np.asarray(x.cpu()).sum() == 1600
            with ndd.EvalContext(cuda_stream=ndd.stream()):
                y = x + 1
            assert np.asarray((y + x).cpu()).sum() == 4800
