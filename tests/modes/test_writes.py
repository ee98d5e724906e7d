"""Users write to memory that they were given; results are the same in every mode and depth."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ndd
from ndd.core.waiting import Waiting

MODES = ["deferred", "eager", "sync_cpu", "sync_full"]
START = np.arange(12, dtype=np.float32).reshape(4, 3)


def as_torch(x: Any) -> None:
    x.torch().zero_()


def as_numpy(x: Any) -> None:
    np.asarray(x)[...] = 0


def as_dlpack(x: Any) -> None:
    torch.from_dlpack(x).zero_()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Any:
    with ndd.EvalMode[request.param]:
        yield request.param


@pytest.mark.parametrize("clear", [as_torch, as_numpy, as_dlpack])
def test_calls_made_before_a_write_do_not_see_it(mode: str, clear: Callable[[Any], None]) -> None:
    x = ndd.tensor(START)
    chain = ndd.cast(x * 2, dtype=ndd.int32)
    flipped = x[:, ::-1]
    of_batch = ndd.batch(START)
    clear(x)
    np.testing.assert_array_equal(np.asarray(chain), (START * 2).astype(np.int32))
    np.testing.assert_array_equal(np.asarray(flipped), START[:, ::-1])
    np.testing.assert_array_equal(np.asarray(x), START * 0)
    np.testing.assert_array_equal(np.asarray(of_batch.tensors[1]), START[1])


def test_calls_made_after_a_write_see_it(mode: str) -> None:
    x = ndd.tensor(START)
    t = x.torch()
    t.add_(1)
    first = x + 1
    t.add_(1)  # is not seen by `first`, although nobody has read that yet
    second = x + 1
    np.testing.assert_array_equal(np.asarray(first), START + 2)
    np.testing.assert_array_equal(np.asarray(second), START + 3)


def test_values_that_were_fused_through_do_not_see_it(mode: str) -> None:
    x = ndd.tensor(START)
    between = x + 1
    (between * 2).evaluate()
    x.torch().zero_()
    np.testing.assert_array_equal(np.asarray(between), START + 1)


def test_memory_that_several_handles_share(mode: str) -> None:
    batch = ndd.batch(START)
    after = batch + 1
    batch.tensors[2].torch().zero_()
    later = batch + 1  # is computed at once, because the batch shares its memory with a sample
    batch.tensors[0].torch().zero_()
    want = START.copy()
    np.testing.assert_array_equal(np.asarray(ndd.as_tensor(after)), want + 1)
    want[2] = 0
    np.testing.assert_array_equal(np.asarray(ndd.as_tensor(later)), want + 1)


def test_samples_joined_without_a_copy(mode: str) -> None:
    samples = [ndd.tensor(row) for row in START]
    batch = ndd.as_batch(samples)
    after = batch * 2
    samples[1].torch().zero_()
    np.testing.assert_array_equal(np.asarray(ndd.as_tensor(after)), START * 2)


def test_views_share_memory_in_every_mode(mode: str) -> None:
    x = ndd.batch(START) + 0
    picked, renamed = x.tensors[1], ndd.reshape(x, shape=[3, 1])
    x.tensors[1].torch().zero_()
    x.tensors[2].torch().fill_(7)
    assert np.asarray(picked).tolist() == [0, 0, 0]
    assert [np.asarray(t).ravel().tolist() for t in renamed.tensors] == [
        [0, 1, 2], [0, 0, 0], [7, 7, 7], [9, 10, 11]
    ]  # fmt: skip
    assert picked.cpu() is picked


def test_a_copy_leaves_the_value_alone(mode: str) -> None:
    x = ndd.tensor(START)
    x.torch(copy=True).zero_()
    np.array(x)[...] = 0
    assert x._node.stored.external is False
    np.testing.assert_array_equal(np.asarray(x + 0), START)


def test_a_write_while_another_context_waits() -> None:
    x = ndd.tensor(START)
    with ndd.EvalMode.deferred:
        with ndd.EvalContext():
            there = x + 1
        here = x + 2
        x.torch().zero_()
        np.testing.assert_array_equal(np.asarray(here), START + 2)
        np.testing.assert_array_equal(np.asarray(there), START + 1)


def test_dropped_calls_are_not_kept_alive_for_writes() -> None:
    waiting = Waiting()
    with ndd.EvalMode.deferred:
        x = ndd.tensor(START)
        kept = x + 1
        for k in range(10 * Waiting.FEWEST):
            waiting.handles.append(weakref.ref(kept if k == 5 else x + 1))
            if len(waiting.handles) > waiting.limit:
                waiting.sweep()
        assert len(waiting.handles) <= Waiting.FEWEST + 1
        assert waiting.pending() == [kept._node]
        kept.evaluate()
        assert waiting.pending() == []
