"""Devices, eval modes, contexts, thread pools and streams, on the CPU and on the simulated GPU."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndd.kernels.common import threads
from ndd.kernels.common.threads import ThreadPool, cgroup_cpu_quota, default_num_threads
from ndd.kernels.gpu import env as gpu_env
from ndd.kernels.gpu.streams import CREATE_NEW, Event, Stream, stream
from ndd.runtime import context as context_module
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
from ndd.runtime.device import Device, device

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def has_real_gpu() -> bool:
    return gpu_env.driver_device_count() > 0


cpu_only = pytest.mark.skipif(has_real_gpu(), reason="about machines without a GPU")


@pytest.fixture(autouse=True)
def clean_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NDD_GPU", "NDD_NUM_THREADS", "DALI_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    set_num_threads(None)
    yield
    set_num_threads(None)
    context_module._default_streams.clear()
    context_module._local.streams.chosen.clear()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")


def in_thread(fn: Callable[[], Any]) -> Any:
    """Result of `fn` run in another thread; its error is raised here."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(fn())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the thread hangs"
    if errors:
        raise errors[0]
    return result[0]


def run_python(code: str, **env: str) -> str:
    """Output of a fresh interpreter; it must end by itself, without an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


# -- Device ----------------------------------------------------------------------------------------


def test_device_cpu() -> None:
    cpu = Device("cpu")
    assert (cpu.device_type, cpu.device_id) == ("cpu", None)
    assert (repr(cpu), str(cpu)) == ("Device(device_type='cpu')", "cpu")
    assert cpu == Device.CPU and not cpu != Device.CPU and hash(cpu) == hash(Device.CPU)
    assert cpu != "cpu"
    assert pickle.loads(pickle.dumps(cpu)) == cpu


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Device("cpu", 0), ValueError, r"id: 0 for device type: cpu. Must be `None`"),
        (lambda: Device("cpu:3"), ValueError, r"id: 3 for device type: cpu"),
        (lambda: Device("mixed"), ValueError, r'use device="gpu"'),
        (lambda: device("mixed"), ValueError, r'use device="gpu"'),
        (lambda: Device("foo"), ValueError, r"Invalid device type: foo.*'cpu', 'gpu'"),
        (lambda: Device("CPU"), ValueError, r"Invalid device type: CPU"),
        (lambda: Device("gpu:x"), ValueError, r"'gpu:x': the ordinal after ':' must be a number"),
        (lambda: Device("gpu:"), ValueError, r"must be a number"),
        (lambda: Device("gpu:1", 1), ValueError, r"':1' should not appear"),
        (lambda: Device(3), TypeError, r"must be a string.*got int"),
        (lambda: Device("cpu", "a"), TypeError, r"integer or None"),
        (lambda: device(3), TypeError, r"Cannot convert <class 'int'> to Device"),
        (lambda: device(Device.CPU, 0), ValueError, r"Cannot specify id"),
        (lambda: Device.default_device_id("x"), ValueError, r"Invalid device type: x"),
        (lambda: Device.type_from_dlpack(3), ValueError, r"Unsupported device type: 3"),
        (lambda: Device.from_dlpack(object()), TypeError, r"__dlpack_device__"),
    ],
)
def test_device_errors(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@cpu_only
@pytest.mark.parametrize("name", ["gpu", "gpu:0", "cuda", "cuda:1"])
def test_gpu_without_gpu_is_one_clear_line(name: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        Device(name)
    message = str(caught.value)
    assert "\n" not in message
    assert "CUDA GPU" in message and "NDD_GPU=simulate" in message and 'device="cpu"' in message


@cpu_only
def test_no_framework_is_imported_without_a_driver() -> None:
    code = """
import sys
from ndd.runtime.context import EvalContext, get_current_stream
from ndd.runtime.device import Device
assert get_current_stream() is None and EvalContext().device_id is None
try:
    Device("gpu")
except RuntimeError:
    pass
print({"torch", "cupy", "triton", "numba"} & set(sys.modules))
"""
    assert run_python(code, NDD_GPU="") == "set()\n"


def test_wrong_ndd_gpu_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "yes")
    with pytest.raises(ValueError, match=r"NDD_GPU.*'yes'.*simulate"):
        gpu_env.simulating()


@pytest.mark.gpu
def test_device_simulated(simulated: None) -> None:
    gpu = Device("gpu")
    assert (gpu.device_type, gpu.device_id) == ("gpu", 0)
    assert (repr(gpu), str(gpu)) == ("Device(device_type='gpu', device_id=0)", "gpu:0")
    assert Device("gpu:1") == Device("gpu", 1) == device("cuda:1") == device("gpu", np.int64(1))
    assert Device("gpu:1") != gpu and len({gpu, Device("gpu:0"), Device("gpu:1")}) == 2
    assert pickle.loads(pickle.dumps(Device("gpu:1"))) == Device("gpu:1")
    assert Device.default_device_id("gpu") == 0 and Device.default_device_id("cpu") is None
    assert Device.from_dlpack((2, 1)) == Device("gpu:1")
    with pytest.raises(ValueError, match=r"id: 9 for device type: gpu. Must be in range \[0..\d\]"):
        Device("gpu", 9)
    with pytest.raises(ValueError, match=r"range \[0..\d\]"):
        Device("gpu", -1)


def test_device_conversions() -> None:
    assert device(None) is None
    assert device("cpu") is Device.CPU and device(Device.CPU) is Device.CPU
    assert Device.from_dlpack(np.zeros(3)) is Device.CPU
    assert Device.type_from_dlpack(1) == "cpu" and Device.type_from_dlpack(2) == "gpu"


@pytest.mark.gpu
def test_device_from_torch(simulated: None) -> None:
    torch = pytest.importorskip("torch")
    assert device(torch.device("cpu")) is Device.CPU
    assert device(torch.device("cuda:1")) == Device("gpu", 1)
    assert device(torch.device("cuda")) == Device("gpu", 0)
    with pytest.raises(ValueError, match="Invalid device type: meta"):
        device(torch.device("meta"))
    with pytest.raises(ValueError, match="Cannot specify id"):
        device(torch.device("cpu"), 0)


@cpu_only
def test_device_stack_on_cpu() -> None:
    assert Device.current() is Device.CPU
    with Device("cpu") as entered:
        assert Device.current() is entered
    with pytest.raises(RuntimeError, match="not entered"):
        Device.CPU.__exit__()


@pytest.mark.gpu
def test_device_stack_simulated(simulated: None) -> None:
    assert Device.current() == Device("gpu", 0)
    with Device("gpu", 1):
        assert Device.current() == Device("gpu", 1) == Device("gpu")
        assert Device.default_device_id("gpu") == 1
        assert in_thread(Device.current) == Device("gpu", 0)
        with Device("cpu"):
            assert Device.current() == Device.CPU
            assert Device("gpu").device_id == 1
        assert Device.current().device_id == 1
    assert Device("gpu").device_id == 0


# -- EvalMode --------------------------------------------------------------------------------------


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


# -- EvalContext -----------------------------------------------------------------------------------


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


# -- streams of contexts ---------------------------------------------------------------------------


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


# -- Stream and Event, simulated -------------------------------------------------------------------


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


def fail() -> None:
    raise ZeroDivisionError("in the queue")


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


# -- ThreadPool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("n_chunks", [0, 1, 2, 7, 500])
def test_every_chunk_runs_once(num_threads: int, n_chunks: int) -> None:
    pool = ThreadPool(num_threads)
    counts = np.zeros(max(n_chunks, 1), dtype=int)
    workers: set[int] = set()

    def work(chunk: int, worker: int) -> None:
        counts[chunk] += 1
        workers.add(worker)

    for _ in range(20):
        pool.parallel_for(n_chunks, work)
    assert (counts[:n_chunks] == 20).all() and counts.sum() == 20 * n_chunks
    assert workers <= set(range(num_threads))


def test_work_is_shared_and_the_caller_is_worker_zero() -> None:
    pool = ThreadPool(3)
    barrier = threading.Barrier(3, timeout=10)
    seen: dict[int, int] = {}

    def work(chunk: int, worker: int) -> None:
        seen[worker] = threading.get_ident()
        barrier.wait()  # passes only if three threads are here at once

    pool.parallel_for(3, work)
    assert sorted(seen) == [0, 1, 2] and len(set(seen.values())) == 3
    assert seen[0] == threading.get_ident()


def test_one_chunk_or_one_thread_starts_no_thread() -> None:
    n_before = threading.active_count()
    idents: set[int] = set()
    ThreadPool(4).parallel_for(1, lambda chunk, worker: idents.add(threading.get_ident()))
    ThreadPool(1).parallel_for(9, lambda chunk, worker: idents.add(threading.get_ident()))
    assert idents == {threading.get_ident()} and threading.active_count() == n_before


@pytest.mark.parametrize("num_threads", [1, 3])
def test_lowest_failing_chunk_is_reported_after_all_ran(num_threads: int) -> None:
    pool = ThreadPool(num_threads)
    for _ in range(20):
        ran: list[int] = []

        def work(chunk: int, worker: int, ran: list[int] = ran) -> None:
            ran.append(chunk)
            if chunk in (3, 8, 11):
                time.sleep(0.002 if chunk == 3 else 0)
                raise ValueError(f"chunk {chunk}")

        with pytest.raises(ValueError, match=r"^chunk 3$"):
            pool.parallel_for(16, work)
        assert sorted(ran) == list(range(16))
    pool.parallel_for(2, lambda chunk, worker: None)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_interrupt_leaves_the_pool_usable(num_threads: int) -> None:
    pool = ThreadPool(num_threads)

    def work(chunk: int, worker: int) -> None:
        if chunk == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.parallel_for(8, work)
    ran: list[int] = []
    pool.parallel_for(8, lambda chunk, worker: ran.append(chunk))
    assert sorted(ran) == list(range(8))


def test_pool_is_reentrant() -> None:
    pool, other = ThreadPool(3), ThreadPool(2)
    counts: list[tuple[int, int]] = []

    def inner(chunk: int, worker: int) -> None:
        counts.append((chunk, worker))

    def outer(chunk: int, worker: int) -> None:
        pool.parallel_for(4, lambda c, w: inner(c, w) if w == worker else fail())
        other.parallel_for(2, lambda c, w: pool.parallel_for(2, inner))

    pool.parallel_for(12, outer)
    assert len(counts) == 12 * (4 + 2 * 2)


def test_many_callers_share_a_pool_and_no_worker_index() -> None:
    pool = ThreadPool(3)
    in_use = [threading.Lock() for _ in range(3)]
    counts = np.zeros((4, 5), dtype=int)

    def call(caller: int) -> None:
        def work(chunk: int, worker: int) -> None:
            assert in_use[worker].acquire(blocking=False), "two threads use one worker index"
            counts[caller, chunk] += 1
            in_use[worker].release()

        for n_chunks in [1, 2, 5] * 20:
            pool.parallel_for(n_chunks, work)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
        assert not caller.is_alive()
    assert counts.tolist() == [[60, 40, 20, 20, 20]] * 4


@pytest.mark.parametrize("slow_worker", [0, 1])
def test_the_next_call_does_not_wait_for_the_last_chunk(slow_worker: int) -> None:
    pool = ThreadPool(2)
    begun, slow_goes_on, second_ran = threading.Barrier(3), threading.Event(), threading.Event()
    workers: list[int] = []

    def first(chunk: int, worker: int) -> None:
        begun.wait(10)  # each thread has one of the two chunks
        if worker == slow_worker:
            assert slow_goes_on.wait(10)

    def second(chunk: int, worker: int) -> None:
        workers.append(worker)
        second_ran.set()

    slow = threading.Thread(target=pool.parallel_for, args=(2, first))
    slow.start()
    begun.wait(10)
    fast = threading.Thread(target=pool.parallel_for, args=(2, second))
    fast.start()
    assert second_ran.wait(10), "the thread that has nothing to do does nothing"
    assert set(workers) == {1 - slow_worker}
    slow_goes_on.set()
    for thread in (slow, fast):
        thread.join(10)
        assert not thread.is_alive()
    assert len(workers) == 2


def worker_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("ndd-worker")]


def test_threads_end_with_the_pool() -> None:
    EvalContext.default().thread_pool.parallel_for(2, lambda chunk, worker: None)
    gc.collect()
    time.sleep(0.05)  # let threads of earlier tests end
    n_before = len(worker_threads())
    pool = ThreadPool(3)
    big = np.zeros(10)
    pool.parallel_for(3, lambda chunk, worker: big.sum() and None)
    assert len(worker_threads()) == n_before + 2
    del pool
    gc.collect()
    assert wait_until(lambda: len(worker_threads()) == n_before)


def test_a_finished_job_keeps_nothing_alive() -> None:
    class Buffer:
        pass

    pool = ThreadPool(3)
    buffer = Buffer()
    gone = weakref.ref(buffer)

    def work(chunk: int, worker: int, buffer: Buffer = buffer) -> None:
        if chunk == 1:
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        pool.parallel_for(3, work)
    del work, buffer
    assert wait_until(lambda: gone() is None, 2.0)


def test_pool_after_fork_and_at_exit() -> None:
    code = """
import os, threading
from ndd.kernels.common.threads import ThreadPool
pool = ThreadPool(3)
pool.parallel_for(6, lambda c, w: None)
pid = os.fork()
if pid == 0:
    barrier = threading.Barrier(3, timeout=20)
    pool.parallel_for(3, lambda c, w: barrier.wait() and None)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
pool.parallel_for(6, lambda c, w: None)
import atexit
atexit._run_exitfuncs()
pool.parallel_for(6, lambda c, w: None)  # after shutdown: inline
print("ok", [t.name for t in threading.enumerate()])
"""
    assert run_python(code) == "ok ['MainThread']\n"


def test_exit_while_a_daemon_thread_uses_the_pool() -> None:
    code = """
import threading, time
from ndd.kernels.common.threads import ThreadPool
pool = ThreadPool(4)
def forever():
    while True:
        pool.parallel_for(8, lambda c, w: time.sleep(0.001))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
print("ok")
"""
    assert run_python(code) == "ok\n"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ThreadPool(0), ValueError, "ThreadPool: `num_threads` must be positive, got 0"),
        (lambda: ThreadPool(-2), ValueError, "must be positive, got -2"),
        (lambda: ThreadPool("a"), TypeError, "must be an integer, got 'a'"),
        (lambda: ThreadPool(1, device_id=-2), ValueError, "`device_id` must not be negative"),
        (lambda: ThreadPool(1, device_id="x"), TypeError, "`device_id` must be an integer"),
        (lambda: set_num_threads(0), ValueError, "number of threads must be positive, got 0"),
        (lambda: set_num_threads("x"), TypeError, "number of threads must be an integer"),
        (lambda: set_num_threads(10**6), ValueError, "must not exceed 100 per CPU core"),
    ],
)
def test_thread_count_errors(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_pool_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ThreadPool(2).num_threads == 2 and ThreadPool().num_threads == get_num_threads()
    assert ThreadPool(2, device_id=None).device_id is None
    assert repr(ThreadPool(2)) == "ThreadPool(num_threads=2)"
    if not has_real_gpu():
        assert ThreadPool(2).device_id is None
        with pytest.raises(RuntimeError, match="NDD_GPU=simulate"):
            ThreadPool(2, device_id=0)
    monkeypatch.setenv("NDD_GPU", "simulate")
    assert ThreadPool(2).device_id == 0 and ThreadPool(2, device_id=1).device_id == 1


def test_num_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    n_cpus = len(os.sched_getaffinity(0))
    assert 1 <= default_num_threads() <= n_cpus
    monkeypatch.setenv("DALI_NUM_THREADS", "3")
    assert default_num_threads() == 3
    monkeypatch.setenv("NDD_NUM_THREADS", " 5 ")
    assert default_num_threads() == 5
    set_num_threads(None)
    assert get_num_threads() == 5
    set_num_threads(2)
    assert get_num_threads() == 2
    for bad in ("0", "-1", "abc", "1.5", "²"):
        monkeypatch.setenv("NDD_NUM_THREADS", bad)
        with pytest.raises(ValueError, match=f"NDD_NUM_THREADS.*positive.*'{bad}'"):
            default_num_threads()
    monkeypatch.delenv("NDD_NUM_THREADS")
    monkeypatch.setenv("DALI_NUM_THREADS", "-1")
    with pytest.raises(ValueError, match=r"DALI_NUM_THREADS.*positive.*'-1'"):
        default_num_threads()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "self"
    assert cgroup_cpu_quota(root, membership) is None

    write(membership, "0::/user/job\n")
    assert cgroup_cpu_quota(root, membership) is None
    write(root / "user/job/cpu.max", "max 100000\n")
    assert cgroup_cpu_quota(root, membership) is None
    write(root / "user/cpu.max", "150000 100000\n")
    assert cgroup_cpu_quota(root, membership) == 1.5
    write(root / "user/job/cpu.max", "50000 100000\n")
    assert cgroup_cpu_quota(root, membership) == 0.5
    write(root / "user/job/cpu.max", "garbage\n")
    assert cgroup_cpu_quota(root, membership) == 1.5

    # Version 1 in a container: the path is the host's, the files are at the mount.
    write(membership, "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n")
    write(root / "cpu,cpuacct/cpu.cfs_quota_us", "250000")
    write(root / "cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert cgroup_cpu_quota(root, membership) == 2.5
    write(root / "cpu,cpuacct/cpu.cfs_quota_us", "-1")
    assert cgroup_cpu_quota(root, membership) is None

    monkeypatch.setattr(threads, "_count_cpus", lambda: 8)
    for quota, expected in [(None, 8), (0.2, 1), (2.5, 3), (64.0, 8)]:
        monkeypatch.setattr(threads, "cgroup_cpu_quota", lambda quota=quota: quota)
        assert default_num_threads() == expected


# -- the oracle ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dali() -> Any:
    return pytest.importorskip("nvidia.dali.experimental.dynamic")


def outcome(fn: Callable[[], Any]) -> tuple[str, str]:
    try:
        value = fn()
    except Exception as error:
        return "error", type(error).__name__
    return repr(value), str(value)


def test_modes_as_the_oracle(dali: Any) -> None:
    ours, theirs = list(EvalMode), list(dali.EvalMode)
    assert [(m.name, m.value, repr(m), str(m)) for m in ours] == [
        (m.name, m.value, repr(m), str(m)) for m in theirs
    ]
    assert repr(EvalMode.default) == repr(dali.EvalMode.default)
    assert repr(EvalMode.current()) == repr(dali.EvalMode.current())


@cpu_only
@pytest.mark.parametrize(
    "expression",
    [
        "Device('cpu')",
        "Device('cpu', 0)",
        "Device('mixed')",
        "Device('foo')",
        "Device('gpu:x')",
        "Device.CPU",
        "Device.current()",
        "Device.default_device_id('cpu')",
        "Device.default_device_id('gpu')",
        "Device.default_device_id('x')",
        "Device.type_from_dlpack(1)",
        "Device.type_from_dlpack(2)",
        "Device.type_from_dlpack(3)",
        "Device.type_from_dlpack(13)",
        "Device.from_dlpack(np.zeros(3))",
        "Device('gpu')",
        "device('cpu')",
        "device('cpu:0')",
        "device('cpu', 0)",
        "device('gpu')",
        "device('cuda')",
        "device('foo')",
        "device(None)",
        "device(3)",
        "device(Device.CPU, 0)",
        "vars_of(Device('cpu'))",
    ],
)
def test_devices_as_the_oracle(dali: Any, expression: str) -> None:
    def evaluate(device_class: Any, device_function: Any) -> tuple[str, str]:
        scope = {
            "Device": device_class,
            "device": device_function,
            "np": np,
            "vars_of": lambda d: (d.device_type, d.device_id),
        }
        return outcome(lambda: eval(expression, scope))

    assert evaluate(Device, device) == evaluate(dali.Device, dali.device)


@pytest.mark.parametrize(
    ("ours", "name"),
    [(Device, "Device"), (EvalContext, "EvalContext"), (Stream, "Stream")],
)
def test_members_as_the_oracle(dali: Any, ours: type, name: str) -> None:
    public = {member for member in dir(getattr(dali, name)) if not member.startswith("_")}
    assert public <= set(dir(ours))


def test_thread_count_as_the_oracle(dali: Any) -> None:
    quota = cgroup_cpu_quota()
    if quota is None or quota >= len(os.sched_getaffinity(0)):
        assert default_num_threads() == dali.get_num_threads()
