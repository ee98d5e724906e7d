"""Segments of uniform batches run again without a pipeline, and give the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.run import pipeline
from ndd.kernels.common import memo
from tests.helpers import arrays

R = ndd.reductions
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "one kernel": lambda x: R.sum(x, axes=[0, 1]),
    "floats in lanes": lambda x: R.mean(ndd.cast(x, dtype=ndd.float32) * 0.5, axes=[0]),  # scratch
    "three kernels": lambda x: ndd.normalize(x, axes=[0, 1], epsilon=0.5),
    "tables": lambda x: ndd.equalize(x),
    "raw": lambda x: ndd.debayer(x.slice[:, :, 0], blue_position=[0, 1]),
}


def images(height: int, seed: int, count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (height, 10, 3), dtype=np.uint8) for _ in range(count)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_second_run_has_no_pipeline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    plain = pipeline.Pipeline.__init__

    def counted(self: Any, *arguments: Any) -> None:
        made.append(1)
        plain(self, *arguments)

    monkeypatch.setattr(pipeline.Pipeline, "__init__", counted)
    program = PROGRAMS[name]
    with ndd.EvalMode.deferred, ndd.EvalContext(num_threads=1):

        def run(samples: list[np.ndarray]) -> list[np.ndarray]:
            return arrays(program(ndd.batch(samples, layout="HWC")))

        memo.clear_all()
        first, again, other = images(8, 1), images(8, 2), images(14, 3)
        run(first)
        before = len(made)
        assert before > 0
        repeated = run(again)  # the same shapes, other values and other memory
        if name != "raw":  # a view of the input: its table is filled anew
            assert len(made) == before
        run(other)  # other shapes
        assert len(made) > before
        pairs = ((again, repeated), (first, run(first)), (other, run(other)))
        for samples, got in pairs:
            memo.clear_all()
            for a, b in zip(got, run(samples), strict=True):
                np.testing.assert_array_equal(a, b)


def test_ragged_batches_have_a_pipeline() -> None:
    ragged = [*images(8, 1, 1), *images(12, 2, 1)]
    for _ in range(3):
        got = arrays(R.sum(ndd.batch(ragged, layout="HWC")))
        assert [int(a) for a in got] == [int(a.sum()) for a in ragged]
