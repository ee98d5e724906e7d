"""Streams and events of the simulated GPU."""

from __future__ import annotations

import functools
import gc
import threading
import time

import numpy as np
import pytest

from ndd.kernels.gpu.streams import CREATE_NEW, Event, Stream, stream
from tests.runtime.control.helpers import (
    fail,
    run_python,
    wait_until,
)


class ForeignStream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class TorchLikeStream:
    cuda_stream = 0x77
    device_index = 1


@pytest.mark.gpu
def test_stream_wraps(simulated: None) -> None:
    assert Stream.create_new is CREATE_NEW and repr(CREATE_NEW) == "CREATE_NEW"
    new = stream()
    assert new is not None and new != stream() and new.device_id == 0
    assert new.__cuda_stream__() == (0, new.handle)
    assert stream(stream=new) is new
    assert Stream(stream=new) == new and hash(Stream(stream=new)) == hash(new)
    assert not Stream(stream=new) != new and new != new.handle
    assert Stream(stream=5) == Stream(stream=ForeignStream(5)) == Stream(stream=np.int64(5))
    assert repr(Stream(stream=5)) == str(Stream(stream=5)) == "Stream(handle=0x5, device_id=0)"
    assert Stream(stream=5, device_id=1) != Stream(stream=5)
    torch_like = Stream(stream=TorchLikeStream())
    assert (torch_like.handle, torch_like.device_id) == (0x77, 1)
    with pytest.raises(ValueError, match="on GPU 1, not on GPU 0"):
        Stream(stream=TorchLikeStream(), device_id=0)
    with pytest.raises(TypeError, match="Cannot interpret the object"):
        Stream(stream=object())
    with pytest.raises(TypeError, match="Cannot interpret the object None"):
        Stream(stream=None)
    with pytest.raises(ValueError, match="negative"):
        Stream(stream=-1)
    with pytest.raises(ValueError, match=r"range \[0..\d\]"):
        Stream(device_id=9)
    with pytest.raises(TypeError, match="`device_id` must be an integer or None, got 'a'"):
        Stream(device_id="a")
    with pytest.raises(TypeError):
        Stream(5)


def test_wrapped_stream_is_kept_alive_and_shares_its_queue(simulated: None) -> None:
    original = Stream()
    seen: list[int] = []
    gate = threading.Event()
    original.submit(lambda: [gate.wait(10), seen.append(1)] and None)
    wrapper = Stream(stream=ForeignStream(original.handle))
    del original
    gc.collect()
    wrapper.submit(lambda: seen.append(2))
    assert seen == []
    gate.set()
    wrapper.synchronize()
    assert seen == [1, 2]


def test_stream_is_in_order_and_asynchronous(simulated: None) -> None:
    queue = Stream()
    gate = threading.Event()
    seen: list[int] = []
    queue.submit(lambda: gate.wait(10) and None)
    for i in range(100):
        queue.submit(functools.partial(seen.append, i))
    event = queue.record_event()
    assert not event.query() and seen == []
    gate.set()
    event.synchronize()
    assert event.query() and seen == list(range(100))


def test_events_order_two_streams(simulated: None) -> None:
    a, b = Stream(), Stream()
    gate = threading.Event()
    seen: list[str] = []
    a.submit(lambda: gate.wait(10) and None)
    a.submit(lambda: seen.append("a"))
    event = Event()
    event.record(a)
    b.wait_event(event)
    b.submit(lambda: seen.append("b"))
    # Recording again must not change what `b` waits for.
    a.submit(lambda: seen.append("later"))
    event.record(a)
    time.sleep(0.02)
    assert seen == []
    gate.set()
    b.synchronize()
    assert seen.index("a") < seen.index("b")
    event.wait()
    assert set(seen) == {"a", "b", "later"}


@pytest.mark.gpu
def test_unrecorded_event_counts_as_passed(simulated: None) -> None:
    event = Event()
    assert event.query()
    event.synchronize()
    event.wait(Stream())


def test_stream_errors_surface_once_and_leave_it_usable(simulated: None) -> None:
    queue = Stream()
    seen: list[int] = []
    queue.submit(fail)
    queue.submit(lambda: seen.append(1))
    with pytest.raises(ZeroDivisionError, match="in the queue"):
        queue.synchronize()
    queue.synchronize()
    assert seen == [1]

    before = queue.record_event()
    queue.submit(fail)
    after = queue.record_event()
    before.wait()
    for _ in range(2):  # an event does not change
        with pytest.raises(ZeroDivisionError):
            after.wait()
    queue.synchronize()
    queue.record_event().synchronize()


def test_stream_errors_reach_dependent_streams(simulated: None) -> None:
    a, b = Stream(), Stream()
    a.submit(fail)
    b.wait_event(a.record_event())
    with pytest.raises(ZeroDivisionError):
        b.synchronize()


def stream_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("ndd-stream")]


def test_stream_thread_is_lazy_and_ends(simulated: None) -> None:
    n_before = len(stream_threads())
    queue = Stream()
    assert len(stream_threads()) == n_before
    seen: list[int] = []
    queue.submit(lambda: time.sleep(0.02))
    queue.submit(lambda: seen.append(1))
    assert len(stream_threads()) == n_before + 1
    del queue
    gc.collect()
    assert wait_until(lambda: len(stream_threads()) == n_before)
    assert seen == [1]  # queued work is done all the same


def test_stream_at_exit_and_after_fork() -> None:
    code = """
import os
from ndd.kernels.gpu.streams import Stream
s = Stream()
out = []
s.submit(lambda: out.append(1))
s.synchronize()
pid = os.fork()
if pid == 0:
    s.submit(lambda: out.append(2))
    s.synchronize()
    os._exit(0 if out == [1, 2] else 1)
assert os.waitpid(pid, 0)[1] == 0
s.submit(lambda: print("done at exit", flush=True))
"""
    assert run_python(code, NDD_GPU="simulate") == "done at exit\n"
