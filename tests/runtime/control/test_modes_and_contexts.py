"""Eval modes, contexts, and the streams of contexts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ndd.kernels.common.threads import ThreadPool, default_num_threads
from ndd.kernels.gpu.streams import Stream, stream
from ndd.runtime.context import (
    EvalContext,
    EvalMode,
    current_context,
    current_mode,
    get_current_stream,
    get_default_stream,
    get_num_threads,
    set_current_stream,
    set_default_stream,
    set_num_threads,
)
from ndd.runtime.device import Device
from tests.runtime.control.helpers import (
    ROOT,
    cpu_only,
    in_thread,
)


def test_modes_are_ordered() -> None:
    modes = list(EvalMode)
    assert [mode.name for mode in modes] == ["deferred", "eager", "sync_cpu", "sync_full"]
    for i, a in enumerate(modes):
        for j, b in enumerate(modes):
            assert (a < b, a <= b, a > b, a >= b) == (i < j, i <= j, i > j, i >= j)
    assert EvalMode.default is EvalMode.eager
    assert EvalMode.eager != 2
    with pytest.raises(TypeError):
        _ = EvalMode.eager < 3


def test_mode_stack() -> None:
    assert current_mode() is EvalMode.current() is EvalMode.eager
    with EvalMode.deferred:
        assert current_mode() is EvalMode.deferred
        with EvalMode.sync_full, EvalMode.deferred:
            assert current_mode() is EvalMode.deferred
            assert in_thread(current_mode) is EvalMode.eager
        assert current_mode() is EvalMode.deferred
        with pytest.raises(KeyError), EvalMode.sync_cpu:
            raise KeyError
        assert current_mode() is EvalMode.deferred
    assert current_mode() is EvalMode.eager
    with pytest.raises(RuntimeError, match="sync_cpu was not entered"):
        EvalMode.sync_cpu.__exit__()


def test_mode_of_an_abandoned_generator() -> None:
    def inside(mode: EvalMode) -> Iterator[None]:
        with mode:
            yield

    first, second = inside(EvalMode.deferred), inside(EvalMode.sync_cpu)
    next(first), next(second)
    first.close()
    assert current_mode() is EvalMode.sync_cpu
    second.close()
    assert current_mode() is EvalMode.eager


def test_default_context_is_per_thread() -> None:
    assert EvalContext.default() is EvalContext.current() is current_context()
    other = in_thread(EvalContext.default)
    assert other is not EvalContext.default()
    assert other.thread_pool is not EvalContext.default().thread_pool


def test_context_stack() -> None:
    a, b = EvalContext(num_threads=1), EvalContext(num_threads=2)
    with a as entered:
        assert entered is a is current_context()
        with b, a:
            assert current_context() is a
        assert current_context() is a
        assert in_thread(current_context) is not a
    assert current_context() is EvalContext.default()
    with pytest.raises(RuntimeError, match="not entered in this thread"):
        a.__exit__()


def test_context_in_two_threads() -> None:
    shared = EvalContext()

    def enter() -> bool:
        with shared:
            return current_context() is shared

    with shared:
        with shared:
            pass
        with pytest.raises(RuntimeError, match="two threads simultaneously"):
            in_thread(enter)
        assert current_context() is shared
    assert in_thread(enter)
    assert enter()


def test_context_pool() -> None:
    pool = ThreadPool(3)
    assert EvalContext(thread_pool=pool).thread_pool is pool
    assert EvalContext(thread_pool=pool).num_threads == 3
    own = EvalContext(num_threads=2)
    assert own.thread_pool is own.thread_pool and own.thread_pool.num_threads == 2
    assert EvalContext().num_threads == get_num_threads()


def test_set_num_threads_reaches_existing_contexts() -> None:
    automatic, explicit = EvalContext(), EvalContext(num_threads=2)
    pools = automatic.thread_pool, explicit.thread_pool
    set_num_threads(5)
    assert automatic.num_threads == automatic.thread_pool.num_threads == 5
    assert EvalContext.default().thread_pool.num_threads == 5
    assert automatic.thread_pool is not pools[0] and explicit.thread_pool is pools[1]
    set_num_threads(None)
    assert automatic.num_threads == automatic.thread_pool.num_threads == default_num_threads()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_threads": 0}, ValueError, "EvalContext: `num_threads` must be positive, got 0"),
        ({"num_threads": -1}, ValueError, "must be positive, got -1"),
        ({"num_threads": 1.5}, TypeError, "`num_threads` must be an integer, got 1.5"),
        ({"num_threads": "3"}, TypeError, "must be an integer, got '3'"),
        ({"num_threads": 10**6}, ValueError, "100 per CPU core"),
        ({"thread_pool": 3}, TypeError, "`thread_pool` must be a ThreadPool, got int"),
        ({"thread_pool": ThreadPool(2), "num_threads": 2}, ValueError, "specified together"),
        ({"cuda_stream": object()}, TypeError, "Cannot interpret the object"),
        ({"device_id": "a"}, TypeError, "integer"),
    ],
)
def test_context_errors(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        EvalContext(**arguments)
    with pytest.raises(TypeError):
        EvalContext(2)


@cpu_only
def test_context_without_gpu() -> None:
    context = EvalContext()
    assert context.device_id is None and context.cuda_stream is None
    for arguments in ({"device_id": 0}, {"cuda_stream": 5}):
        with pytest.raises(RuntimeError, match="NDD_GPU=simulate"):
            EvalContext(**arguments)


def test_context_executor_and_checkpoint() -> None:
    class Executor:
        n_flushed = 0

        def flush_all(self) -> None:
            self.n_flushed += 1

    context = EvalContext()
    context.evaluate_all()
    context._executor = Executor()
    context.evaluate_all()
    assert context._executor.n_flushed == 1
    assert context.cached_results(None) is None
    assert context.cache_results(None, None) is None
    checkpoint = context.checkpoint
    if (ROOT / "ndd/checkpoint.py").exists() or (ROOT / "ndd/checkpoint").exists():
        assert type(checkpoint).__name__ == "Checkpoint" and context.checkpoint is checkpoint
        assert EvalContext().checkpoint is not checkpoint
    else:
        assert checkpoint is None


@pytest.mark.gpu
def test_context_simulated(simulated: None) -> None:
    context = EvalContext(device_id=1)
    assert context.device_id == 1 and context.cuda_stream is context.cuda_stream
    assert context.cuda_stream is not None and context.cuda_stream.device_id == 1
    with context:
        assert Device.current() == Device("gpu", 1)
    assert Device.current() == Device("gpu", 0)
    with Device("gpu", 1):
        inside = EvalContext()
        assert EvalContext.default().device_id == 1
    assert inside.device_id == 1 and EvalContext.default().device_id == 0
    with pytest.raises(ValueError, match="on GPU 1, not on GPU 0"):
        EvalContext(device_id=0, cuda_stream=Stream(device_id=1))
    with pytest.raises(ValueError, match="`thread_pool` belongs to GPU 0, but `device_id` is 1"):
        EvalContext(device_id=1, thread_pool=ThreadPool(1, device_id=0))
    with pytest.raises(ValueError, match=r"range \[0..\d\]"):
        EvalContext(device_id=7)


@cpu_only
def test_stream_functions_without_gpu() -> None:
    assert get_current_stream() is None
    assert get_default_stream() is None and get_default_stream(0) is None
    set_current_stream(None)
    set_default_stream(None)
    set_default_stream(None, device_id=0)
    assert stream(stream=None) is None
    for make in (
        stream,
        Stream,
        lambda: stream(stream=5),
        lambda: set_current_stream(5),
        lambda: set_default_stream(5),
    ):
        with pytest.raises(RuntimeError, match="NDD_GPU=simulate"):
            make()
    # None of that may poison what follows.
    assert get_current_stream() is None
    with EvalContext() as context:
        assert context.cuda_stream is None
        context.evaluate_all()


@pytest.mark.gpu
def test_current_and_default_streams(simulated: None) -> None:
    own = get_current_stream()
    assert own is not None and get_current_stream() is own and get_default_stream() is None
    assert EvalContext.default().cuda_stream is own is EvalContext().cuda_stream
    assert in_thread(get_current_stream) != own
    early = EvalContext()

    common = Stream()
    set_default_stream(common)
    assert get_default_stream() is common is get_current_stream() is in_thread(get_current_stream)
    assert EvalContext().cuda_stream is common
    assert get_default_stream(1) is None

    mine = Stream()
    set_current_stream(mine)
    assert get_current_stream() is mine is EvalContext().cuda_stream
    assert in_thread(get_current_stream) is common
    assert early.cuda_stream is own
    with Device("gpu", 1):
        other_gpu = get_current_stream()
        assert other_gpu is not None and other_gpu.device_id == 1
        with pytest.raises(ValueError, match="on GPU 0, the current GPU is 1"):
            set_current_stream(mine)

    set_current_stream(None)
    assert get_current_stream() is common
    set_default_stream(None)
    assert get_current_stream() is own and get_default_stream() is None

    set_default_stream(Stream(device_id=1))
    assert get_default_stream() is None and get_default_stream(1) is not None
    with pytest.raises(ValueError, match="on GPU 0, not on GPU 1"):
        set_default_stream(common, device_id=1)
    with pytest.raises(ValueError, match=r"range \[0..\d\]"):
        get_default_stream(5)
