"""Users write to memory that they were given; results are the same in every mode and depth."""

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
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


LOOKS: dict[str, Callable[[Any], object]] = {
    "repr": repr,
    "item": lambda x: x[0, 0, 0].item(),
    "bool": lambda x: bool(x[0, 0, 0]),
    "notebook": lambda x: x._repr_html_(),
    "show": ndd.show,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_later_calls_on_a_value_that_was_only_looked_at_wait(look: Callable[[Any], object]) -> None:
    with ndd.EvalMode.deferred:
        x = ndd.tensor(np.full((4, 3, 3), 7, np.uint8), layout="HWC").evaluate()
        look(x)
        assert "pending" in repr(x + 1)
        np.asarray(x)
        assert "pending" not in repr(x + 1)


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


def test_views_that_other_calls_read_share_memory(mode: str) -> None:
    """Such a view is not made when those calls are computed; afterwards it would be a copy."""
    x = ndd.batch(START)
    first = ndd.expand_dims(x, axes=[0])
    second = ndd.expand_dims(first, axes=[0])
    reader = second.slice[:, ::-1]
    x.tensors[1].torch().add_(100)
    for view in (first, second, first + 0, second + 0):
        assert np.asarray(view.tensors[1]).ravel().tolist() == [103, 104, 105]
    assert np.asarray(reader.tensors[1]).ravel().tolist() == [3, 4, 5]


def test_views_of_a_dropped_value_share_memory(mode: str) -> None:
    """Whether the value that they are views of was ever computed for itself must not show."""
    x = ndd.tensor(START) + 0
    first, second = ndd.expand_dims(x, axes=[0]), ndd.transpose(x, perm=[0, 1])
    del x
    first.torch().zero_()
    np.testing.assert_array_equal(np.asarray(second + 1), np.ones_like(START))


def test_equal_calls_do_not_share_memory(mode: str) -> None:
    """One program computes both, and merges what is equal."""
    x = ndd.tensor(START)
    first, second = x + 1, x + 1
    third = ndd.reshape(x * 2, shape=[2, 6])
    fourth = ndd.reshape(x * 2, shape=[2, 6])
    for written in (first, third):
        written.torch().zero_()
    np.testing.assert_array_equal(np.asarray(second * 1), START + 1)
    np.testing.assert_array_equal(np.asarray(fourth * 1), START.reshape(2, 6) * 2)


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


# -- memory of a GPU -------------------------------------------------------------------------------


def host(x: Any) -> Any:
    return np.asarray(x.cpu())


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")


def gpu_as_interface(x: Any) -> Any:
    """The memory by way of the CUDA array interface; for a simulated GPU it is host memory."""
    found = x.__cuda_array_interface__
    words = (ctypes.c_float * 12).from_address(found["data"][0])
    return torch.from_numpy(np.ctypeslib.as_array(words).reshape(found["shape"]))


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("given", [lambda x: x.torch(), torch.from_dlpack, gpu_as_interface])
def test_writes_to_memory_of_a_gpu(mode: str, given: Callable[[Any], Any]) -> None:
    x = ndd.tensor(START, device="gpu")
    before = x * 2
    memory = given(x)
    memory.zero_()
    after = x + 1  # is computed at the call
    memory.fill_(5)
    last = x + 1
    np.testing.assert_array_equal(host(before), START * 2)
    np.testing.assert_array_equal(host(after), START * 0 + 1)
    np.testing.assert_array_equal(host(last), START * 0 + 6)
    np.testing.assert_array_equal(host(x), START * 0 + 5)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_samples_of_a_batch_on_a_gpu(mode: str) -> None:
    batch = ndd.batch(START).gpu()
    first = batch + 1
    batch.tensors[2].torch().zero_()
    second = batch + 1
    batch.tensors[0].torch().fill_(7)
    want = START + 1
    np.testing.assert_array_equal([host(t) for t in first.tensors], want)
    want[2] = 1
    np.testing.assert_array_equal([host(t) for t in second.tensors], want)


@contextlib.contextmanager
def held(stream: ndd.Stream) -> Iterator[None]:
    """Keeps the queue of a simulated stream from going on."""
    go = threading.Event()
    stream.submit(lambda: go.wait(60))
    timer = threading.Timer(0.3, go.set)
    timer.start()
    try:
        yield
    finally:
        go.set()
        timer.join()


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_copies_that_are_under_way(mode: str) -> None:
    """Copies to a GPU and back run later than their calls; the memory they read is not written before."""
    stream = ndd.Stream(device_id=0)
    with ndd.EvalContext(device_id=0, cuda_stream=stream):
        x = ndd.tensor(START)
        with held(stream):
            there = x.gpu()
            if mode == "deferred":
                there.evaluate()
            x.torch().zero_()
        np.testing.assert_array_equal(host(there), START)
        on_gpu = ndd.tensor(START, device="gpu")
        with held(stream):
            back = on_gpu.cpu()
            on_gpu.torch().zero_()
        np.testing.assert_array_equal(np.asarray(back), START)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_other_streams_that_read_the_memory(mode: str) -> None:
    x = ndd.tensor(START, device="gpu").evaluate()
    stream = ndd.Stream(device_id=0)
    with ndd.EvalContext(device_id=0, cuda_stream=stream):
        with held(stream):
            there = (x + 1).evaluate()
            x.torch().zero_()
        np.testing.assert_array_equal(host(there), START + 1)
