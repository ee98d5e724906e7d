"""Pooled memory and its cap; kernels made in advance."""

from __future__ import annotations

import gc

import pytest

import ndd
from tests.helpers import run_python


def test_memory_comes_back_when_the_last_consumer_drops_it() -> None:
    ndd.zeros(shape=[10], dtype=ndd.float32).evaluate()
    gc.collect()
    before = ndd.memory_stats()
    x = ndd.zeros(shape=[1 << 20], dtype=ndd.float32).evaluate()
    held = x.torch()
    assert ndd.memory_stats().live >= before.live + (4 << 20)
    assert ndd.memory_stats().peak >= ndd.memory_stats().live
    del x
    assert ndd.memory_stats().live >= before.live + (4 << 20)  # torch looks at it
    del held
    after = ndd.memory_stats()
    assert after.live == before.live and after.free >= 4 << 20


def test_the_cap() -> None:
    limit = ndd.memory_stats().limit
    try:
        ndd.set_memory_limit(1 << 20)
        assert ndd.memory_stats().free <= 1 << 20
        ndd.zeros(shape=[1 << 20], dtype=ndd.float32).evaluate()
        gc.collect()
        assert ndd.memory_stats().free <= 1 << 20
        with pytest.raises(ValueError, match="the limit must not be negative, got -1"):
            ndd.set_memory_limit(-1)
    finally:
        ndd.set_memory_limit(limit)


def test_warmup_compiles_what_a_loop_needs(tmp_path) -> None:
    out = run_python(
        """
        import ndd
        from ndd.kernels import cpu_runtime
        def augment(x):
            y = ndd.flip(ndd.resize(x, size=[6, 7])) * ndd.random.uniform(range=[0.5, 2.0])
            return {"small": y, "all": [ndd.cast(x, dtype=ndd.float32)]}
        rng = ndd.random.get_default_rng()
        before = rng.get_state()
        image = ndd.zeros(shape=[8, 9, 3], dtype=ndd.uint8, layout="HWC").evaluate()
        ndd.EvalMode.deferred.__enter__()  # eager grouping depends on time
        made = ndd.warmup(augment, image)
        count = cpu_runtime.compile_count
        large = ndd.zeros(shape=[80, 70, 3], dtype=ndd.uint8, layout="HWC").evaluate()
        result = augment(large)
        for value in (result["small"], *result["all"]):
            value.evaluate()
        print(made > 0, rng.get_state() != before, cpu_runtime.compile_count - count)
        """,
        NDD_CACHE_DIR=str(tmp_path),
    )
    assert out == "True True 0"


def test_capture_is_accepted() -> None:
    value = object()
    assert ndd.capture.invariant(value) is value
