"""Device work → in-order queues (streams) and points in them (events), of CUDA or simulated."""

from __future__ import annotations

import _thread
import collections
import enum
import itertools
import operator
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Literal

from ndd.kernels.common import background, forks
from ndd.kernels.common.background import Bell
from ndd.kernels.gpu import driver
from ndd.kernels.gpu import env as gpu_env

__all__ = ["CREATE_NEW", "Event", "Stream", "stream"]


class _Sentinel(enum.Enum):
    CREATE_NEW = "create_new"

    def __repr__(self) -> str:
        return "CREATE_NEW"


CREATE_NEW: Final = _Sentinel.CREATE_NEW
_CreateNew = Literal[_Sentinel.CREATE_NEW]


# -- simulation ------------------------------------------------------------------------------------


class _Failure:
    """An error of queued work; `is_reported` once a waiting call has raised it."""

    __slots__ = ("error", "is_reported")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.is_reported = False

    def raise_error(self) -> None:
        self.is_reported = True
        raise self.error


class _Mark:
    """A point in a queue; it is `passed` when all earlier work has ended, perhaps by `failure`."""

    __slots__ = ("_held", "failure", "is_passed")

    def __init__(self) -> None:
        self._held = _thread.allocate_lock()  # until the mark is passed
        self._held.acquire()
        self.is_passed = False
        self.failure: _Failure | None = None

    def pass_(self) -> None:
        if not self.is_passed:  # after a fork, a mark may be passed a second time
            self.is_passed = True
            self._held.release()

    def wait(self) -> None:
        if not self.is_passed:
            with self._held:
                pass
        if self.failure is not None:
            self.failure.raise_error()


class _QueueCore:
    """The part of a queue that its thread uses; it holds no strong reference to streams."""

    def __init__(self, queue: _Queue, name: str) -> None:
        self.name = name
        self.items: collections.deque[Callable[[], None] | _Mark] = collections.deque()
        self.filled = Bell()
        self.starting = forks.lock()
        self.owner = weakref.ref(queue, self.filled.ring)
        self.failure: _Failure | None = None
        self.is_closed = False
        self.threads: list[threading.Thread] = []

    def put(self, item: Callable[[], None] | _Mark) -> None:
        if not self.threads:
            background.uninterrupted(self._start)
        self.items.append(item)
        self.filled.ring(None)

    def _start(self) -> None:
        with self.starting:
            if not self.threads:
                background.start(self, (self._loop, self.name))

    def stop(self) -> None:
        """Let the thread end when the queue is empty; as in CUDA, queued work still runs."""
        self.is_closed = True
        self.filled.ring(None)

    def after_fork(self) -> None:
        # The child process has no queue thread yet. A new one runs all queued items, including the
        # one that was running during the fork.
        self.filled = Bell()
        self.threads = []
        if self.items and self.owner() is not None:
            self._start()

    def _loop(self) -> None:
        while True:
            while self.items:
                # The running item stays in the queue, so that `after_fork` can run it again.
                self._run(self.items[0])
                self.items.popleft()
            if self.is_closed or self.owner() is None:
                return
            self.filled.wait()

    def _run(self, item: Callable[[], None] | _Mark) -> None:
        if isinstance(item, _Mark):
            if self.failure is not None and not self.failure.is_reported:
                item.failure = self.failure
            item.pass_()
            return
        try:
            item()
        except BaseException as error:  # every error is raised where somebody waits
            if self.failure is None or self.failure.is_reported:
                self.failure = _Failure(error)


class _Queue:
    """One simulated stream; shared by all `Stream` objects with the same handle."""

    def __init__(self, handle: int) -> None:
        self.core = _QueueCore(self, f"ndd-stream-{handle:#x}")
        _cores.add(self.core)

    def mark(self) -> _Mark:
        mark = _Mark()
        self.core.put(mark)
        return mark


_cores: weakref.WeakSet[_QueueCore] = weakref.WeakSet()
_queues: weakref.WeakValueDictionary[tuple[int, int], _Queue] = weakref.WeakValueDictionary()
_queues_lock = forks.lock()
# Large like addresses, so that they differ from small handles that a user may pass (0, 1 and 2 are
# CUDA's own).
_new_handles = itertools.count(0x10000, 0x10)


def _simulated_queue(handle: int, device_id: int) -> _Queue:
    with _queues_lock:
        queue = _queues.get((handle, device_id))
        if queue is None:
            queue = _queues[handle, device_id] = _Queue(handle)
        return queue


@forks.in_child
def _after_fork() -> None:
    for core in list(_cores):
        core.after_fork()


# -- public classes --------------------------------------------------------------------------------


class Stream:
    """A CUDA stream: a new one, or a wrapper of an existing one.

    Use the function `stream` rather than this class.

    >>> import ndd
    >>> ndd.Stream.create_new is not None
    True

    Parameters
    ----------
    stream : stream object or ``Stream.create_new``, optional
        The stream to wrap: an object with ``__cuda_stream__``, a PyTorch stream or a raw handle.
        The wrapper keeps it alive. By default a new stream is created.
    device_id : int, optional
        Ordinal of the GPU; the current one if omitted. If the stream knows its GPU, the two must
        agree.
    """

    create_new: Final = CREATE_NEW

    def __init__(self, *, stream: Any = CREATE_NEW, device_id: int | None = None) -> None:
        handle = None if stream is CREATE_NEW else _handle_of(stream)
        gpu_env.require_gpu("a CUDA stream")
        source_id = _device_id_of(stream)
        if source_id is not None and device_id is not None and source_id != device_id:
            raise ValueError(f"the stream is on GPU {source_id}, not on GPU {device_id} as given")
        if source_id is None:
            source_id = gpu_env.current_device_id() if device_id is None else device_id
        self._device_id = _checked_device_id(source_id)
        self._source: Any = stream
        self._queue: _Queue | None = None
        self._native: Any = None  # cuda.core's object
        if gpu_env.simulating():
            self._handle = next(_new_handles) if handle is None else handle
            self._queue = _simulated_queue(self._handle, self._device_id)
        elif handle is None:
            self._native = driver.new_stream(self._device_id)
            self._handle = int(self._native.handle)
        else:
            self._native = driver.wrap_stream(handle)
            self._handle = handle

    @property
    def handle(self) -> int:
        """The raw ``cudaStream_t`` as an integer."""
        return self._handle

    @property
    def device_id(self) -> int:
        """Ordinal of the GPU."""
        return self._device_id

    @property
    def is_simulated(self) -> bool:
        """Whether a thread of this process simulates the GPU."""
        return self._queue is not None

    def synchronize(self) -> None:
        """Wait for all work scheduled on this stream, and raise its first error."""
        if self._queue is not None:
            self._queue.mark().wait()
        else:
            with driver.OnDevice(self._device_id):  # a default stream is that of the current GPU
                self._native.sync()

    def submit(self, fn: Callable[[], None]) -> None:
        """Run `fn` in stream order.

        A simulated stream runs it on its thread, and the next wait raises its error. With CUDA,
        `fn` launches asynchronous work on `handle`, so it is called at once.
        """
        if self._queue is not None:
            self._queue.core.put(fn)
        else:
            fn()

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, after the work scheduled so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make later work of this stream wait for `event`, without blocking the caller."""
        event.wait(self)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self._handle == other._handle and self._device_id == other._device_id

    def __hash__(self) -> int:
        return hash((self._handle, self._device_id))

    def __repr__(self) -> str:
        return f"Stream(handle={self._handle:#x}, device_id={self._device_id})"


class Event:
    """A point in a stream that the host and other streams can wait for.

    As in CUDA, an event that was never recorded counts as passed, and a second `record` moves it.
    """

    __slots__ = ("_device_id", "_mark", "_native")

    def __init__(self) -> None:
        self._mark: _Mark | None = None
        self._native: Any = None
        self._device_id: int | None = None

    def record(self, stream: Stream) -> None:
        """Mark the work scheduled on `stream` so far."""
        if stream._queue is not None:
            self._mark = stream._queue.mark()
        else:
            # An event belongs to the GPU on which it was made, and only its streams may record it.
            with driver.OnDevice(stream.device_id):
                if self._device_id != stream.device_id:
                    self._native, self._device_id = None, stream.device_id
                self._native = stream._native.record(self._native)

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work of `stream` wait for this event; without a stream, block the caller."""
        if stream is None:
            self.synchronize()
        elif self._mark is not None:
            stream.submit(self._mark.wait)
        elif self._native is not None:
            with driver.OnDevice(stream.device_id):
                stream._native.wait(self._native)

    def synchronize(self) -> None:
        """Block until the event has passed, and raise the error of the work before it."""
        if self._mark is not None:
            self._mark.wait()
        elif self._native is not None:
            self._native.sync()

    def query(self) -> bool:
        """Whether the event has passed, without waiting."""
        if self._mark is not None:
            return self._mark.is_passed
        return self._native is None or bool(self._native.is_done)


def stream(*, stream: Any = CREATE_NEW, device_id: int | None = None) -> Stream | None:
    """Wrap an existing stream or create a new one.

    >>> stream(stream=None) is None
    True

    Keyword Args
    ------------
    stream : stream object, None or ``Stream.create_new``, optional
        An object with ``__cuda_stream__``, a PyTorch stream or a raw handle is wrapped; ``None``
        stays ``None``; by default a new stream is created.
    device_id : int, optional
        Ordinal of the GPU; the current one if omitted. If the stream knows its GPU, the two must
        agree. Ignored if `stream` is ``None``.
    """
    if stream is None:
        return None
    if isinstance(stream, Stream) and device_id in (None, stream.device_id):
        return stream
    return Stream(stream=stream, device_id=device_id)


def _handle_of(source: Any) -> int:
    protocol = getattr(source, "__cuda_stream__", None)
    if protocol is not None:
        # The protocol defines a method, but early implementations had a property.
        handle: Any = (protocol() if callable(protocol) else protocol)[1]
    else:
        handle = getattr(source, "cuda_stream", source)  # PyTorch's attribute
    try:
        handle = operator.index(handle)
    except TypeError:
        raise TypeError(f"Cannot interpret the object {source!r} as a CUDA stream.") from None
    if handle < 0:
        raise ValueError(f"a CUDA stream handle cannot be negative, got {handle}")
    return int(handle)


def _device_id_of(source: Any) -> int | None:
    """Ordinal of a stream's GPU, by the attributes of ndd, PyTorch and CuPy; None if unknown."""
    for name in ("device_id", "device_index"):
        ordinal = getattr(source, name, None)
        # In CuPy, -1 means the current GPU.
        if isinstance(ordinal, int) and ordinal >= 0:
            return ordinal
    return None


def _checked_device_id(device_id: Any) -> int:
    try:
        ordinal = operator.index(device_id)
    except TypeError:
        raise TypeError(f"`device_id` must be an integer or None, got {device_id!r}") from None
    count = gpu_env.device_count()
    if not 0 <= ordinal < count:
        raise ValueError(
            f"Invalid device id: {ordinal} for device type: gpu. Must be in range [0..{count - 1}]"
        )
    return ordinal
