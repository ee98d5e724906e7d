"""Small segments of kernels run on the caller's thread, and give the values that a pipeline gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.graph.shapes import Shapes
from ndd.fusion.run import direct, pipeline
from ndd.kernels.common import memo
from tests.helpers import arrays, assert_same

R = ndd.reductions
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "one kernel": lambda x: R.sum(x, axes=[0, 1]),
    "floats in lanes": lambda x: R.mean(ndd.cast(x, dtype=ndd.float32) * 0.5, axes=[0]),  # scratch
    "three kernels": lambda x: ndd.normalize(x, axes=[0, 1], epsilon=0.5),
    "tables": lambda x: ndd.equalize(x),
    "raw": lambda x: ndd.debayer(x.slice[:, :, 0], blue_position=[0, 1]),
    "flip": lambda x: ndd.flip(x, horizontal=1, vertical=ndd.batch([0, 1, 1])),
    "part": lambda x: ndd.crop(x, crop=[5, 4], crop_pos_x=ndd.batch([0.0, 0.7, 1.0])),
    "borders": lambda x: ndd.slice(
        x, start=[-2, 3], shape=[9, 20], axis_names="HW", out_of_bounds_policy="pad"
    ),
}


def images(height: int, seed: int, ragged: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    heights = [height, height + 2 * ragged, height + 4 * ragged]
    return [rng.integers(0, 256, (h, 10, 3), dtype=np.uint8) for h in heights]


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an element for every pipeline that is made."""
    made: list[int] = []
    plain = pipeline.Pipeline.__init__

    def counted(self: Any, *arguments: Any) -> None:
        made.append(1)
        plain(self, *arguments)

    monkeypatch.setattr(pipeline.Pipeline, "__init__", counted)
    return made


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_small_batches_need_no_pipeline(
    name: str, ragged: bool, pipelines: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAMS[name]
    batches = [images(8, 1, ragged), images(8, 2, ragged), images(14, 3, ragged)]

    def run() -> list[list[np.ndarray]]:
        return [arrays(program(ndd.batch(b, layout="HWC"))) for b in (*batches, *batches)]

    with ndd.EvalMode.deferred:
        memo.clear_all()
        got = run()
        assert not pipelines
        memo.clear_all()
        monkeypatch.setattr(pipeline, "run_directly", lambda *_: False)
        expected = run()
        assert pipelines
    for a, b in zip(got, expected, strict=True):
        assert_same(a, b)


def test_large_results_are_work_for_several_threads(
    pipelines: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ndd.batch(images(400, 1), layout="HWC")
    with ndd.EvalMode.deferred, ndd.EvalContext(num_threads=2):
        ndd.flip(x).evaluate()
        assert not pipelines
        monkeypatch.setattr(direct, "PARALLEL_MIN_BYTES", 1 << 10)
        ndd.flip(x).evaluate()
        assert pipelines


def test_repeated_single_calls_are_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is like an earlier one, on values in memory, takes the plan of that one."""
    from ndd.fusion.run import executor

    collected: list[int] = []
    plain = executor.collect
    monkeypatch.setattr(executor, "collect", lambda roots: collected.append(1) or plain(roots))
    counts: list[int] = []
    with ndd.EvalMode.sync_cpu:
        for seed in range(3):
            batch = images(8, seed, ragged=True)
            got = arrays(ndd.flip(ndd.batch(batch, layout="HWC"), vertical=1, horizontal=seed % 2))
            for a, b in zip(got, batch, strict=True):
                np.testing.assert_array_equal(a, b[::-1, :: -1 if seed % 2 else 1])
            counts.append(len(collected))
    assert counts == [counts[0]] * 3


def test_equal_shapes_are_one_object() -> None:
    rows = np.array([[3, 4], [5, 6]])
    known = Shapes.known(rows)
    assert Shapes.known(rows.copy()) is known
    rows[:] = 7  # the array of the caller stays his
    assert known.tuples == [(3, 4), (5, 6)] and Shapes.known(rows) is not known
    flat = Shapes.known(np.array([[3], [4], [5], [6]]))
    assert flat.rank == 1 and flat.count == 4
    assert [Shapes.known(np.zeros((n, 0), np.int64)).count for n in (1, 2, 3)] == [1, 2, 3]
