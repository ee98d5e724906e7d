"""Pooled memory and its cap."""

from __future__ import annotations

import gc
import sys

import pytest

import ndd
from ndd.kernels.common.buffers import POOL, Block, Pool


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


def test_an_interrupted_destructor_leaves_the_counts_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints such an interrupt and goes on; the block is freed, but did not come back."""
    x = ndd.zeros(shape=[1 << 20], dtype=ndd.float32).evaluate()
    gc.collect()
    before = ndd.memory_stats()
    lost: list[object] = []
    give_back = Pool.give_back

    def interrupted(self: Pool, block: Block) -> None:
        monkeypatch.setattr(Pool, "give_back", give_back)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", lambda what: lost.append(what.exc_type))
    monkeypatch.setattr(Pool, "give_back", interrupted)
    del x
    after = ndd.memory_stats()
    assert lost == [KeyboardInterrupt]
    assert after.live <= before.live - (4 << 20) and after.free == before.free


def test_counts_after_memory_could_not_be_had() -> None:
    before = ndd.memory_stats()
    with pytest.raises(MemoryError, match="there is no memory for"):
        POOL.take(1 << 62)
    assert ndd.memory_stats() == before


def test_memory_of_collected_cycles_is_still_counted() -> None:
    """The collector clears references to blocks whose buffers then return them to the pool."""
    pool = Pool()
    cycle: list[object] = [pool.take(1 << 20)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    live, free, _, _ = pool.stats()
    assert live == 0 and free >= 1 << 20
    again = pool.take(1 << 20)
    assert pool.stats()[:2] == (free, 0)
    del again
    pool.clear()
    assert pool.stats()[:2] == (0, 0)
