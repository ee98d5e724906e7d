"""Pooled memory and its cap."""

from __future__ import annotations

import gc

import pytest

import ndd


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
