"""Eval modes and contexts: they decide when ops run, on which threads and on which stream."""

from __future__ import annotations

import enum
import importlib
import threading
from typing import Any

from ndd.kernels.common import forks
from ndd.kernels.common.threads import (
    ThreadPool,
    checked_num_threads,
    get_num_threads,
    set_num_threads,
)
from ndd.kernels.gpu import env as gpu_env
from ndd.kernels.gpu.allocators import checked_allocator
from ndd.kernels.gpu.streams import Stream, stream
from ndd.runtime.device import Device, entered_gpu_id

__all__ = [
    "EvalContext",
    "EvalMode",
    "current_context",
    "current_mode",
    "get_current_stream",
    "get_default_stream",
    "get_num_threads",
    "set_current_stream",
    "set_default_stream",
    "set_num_threads",
]


def current_mode() -> EvalMode:
    """The mode of this thread's innermost ``with``, or `EvalMode.eager` outside of any."""
    return _local.mode


def current_context() -> EvalContext:
    """The context of this thread's innermost ``with``, or the thread's default outside of any."""
    context = _local.context
    if context is None:
        context = _local.default
        if context is None:
            return EvalContext.default()
    return context


def merging() -> bool:
    """Whether calls of this thread may merge with others: see ops/resample/merging.py."""
    return _local.merges


def set_merging(merges: bool) -> None:
    """Set whether calls of this thread may merge with others."""
    _local.merges = merges


def scales_decoding() -> bool:
    """Whether decoders may decode smaller for calls of this thread: see ops/resample/scaling.py."""
    return _local.scales


def set_scaled_decoding(scales: bool) -> None:
    """Set whether decoders may decode smaller for calls of this thread."""
    _local.scales = scales


# Changes whenever a setting changes that decides what calls give, such as a limit.
settings = 0


def setting_changed() -> None:
    """Note that a setting has changed: nothing that was made in advance may be given any more."""
    global settings
    settings += 1


def is_current(context: EvalContext, mode: EvalMode) -> bool:
    """Whether this thread is in this context and mode, and its calls have no options of fusion."""
    here = _local
    current = here.context or here.default
    return current is context and here.mode is mode and not (here.merges or here.scales)


class EvalMode(enum.Enum):
    """When work runs: ``deferred < eager < sync_cpu < sync_full``, in order of urgency.

    >>> with EvalMode.sync_cpu:
    ...     print(EvalMode.current())
    EvalMode.sync_cpu
    >>> EvalMode.deferred < EvalMode.default
    True

    Attributes
    ----------
    deferred
        Operations run when their results are needed.
    eager
        Operations start at once and may finish asynchronously.
    sync_cpu
        The work of the CPU is finished when the operation returns.
    sync_full
        All devices are finished when the operation returns.
    default
        The same as `eager`.
    """

    deferred = 1
    eager = 2
    sync_cpu = 3
    sync_full = 4
    default = eager

    current = staticmethod(current_mode)

    def __enter__(self) -> EvalMode:
        # The last statements of `__enter__` are assignments, so an interrupt comes before all of
        # them, or in the `with` block.
        modes = (*_local.modes, self)
        _local.modes, _local.mode = modes, self
        return self

    def __exit__(self, *exc: object) -> None:
        modes = _without_last(_local.modes, self)
        if modes is None:
            raise RuntimeError(f"{self} was not entered in this thread")
        _local.modes, _local.mode = modes, modes[-1] if modes else EvalMode.eager

    def __lt__(self, other: object) -> bool:
        return self._value_ < other._value_ if isinstance(other, EvalMode) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._value_ <= other._value_ if isinstance(other, EvalMode) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._value_ > other._value_ if isinstance(other, EvalMode) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._value_ >= other._value_ if isinstance(other, EvalMode) else NotImplemented


class _ThreadStreams:
    """Streams of one thread, by GPU: those that the user set, and those the thread made itself."""

    __slots__ = ("chosen", "lock", "own")

    def __init__(self) -> None:
        self.chosen: dict[int, Stream] = {}
        self.own: dict[int, Stream] = {}
        self.lock = forks.lock()

    def own_stream(self, device_id: int) -> Stream:
        # Locked, because an executor may ask on behalf of the thread.
        with self.lock:
            own = self.own.get(device_id)
            # A simulated stream does not work on a real GPU, nor a real one in a simulation.
            if own is None or own.is_simulated != gpu_env.simulating():
                own = self.own[device_id] = Stream(device_id=device_id)
            return own


class EvalContext:
    """The GPU, the thread pool and the stream that ops use inside ``with``.

    A GPU that is given here is also the current device inside ``with``.

    >>> with EvalContext(num_threads=2) as context:
    ...     EvalContext.current() is context, context.num_threads
    (True, 2)

    Parameters
    ----------
    num_threads : int, optional
        Size of a new thread pool; not together with `thread_pool`.
    device_id : int, optional
        Ordinal of the GPU; the current one if omitted.
    cuda_stream : stream object, optional
        The stream of GPU ops: a `Stream`, or anything that `stream` accepts. By default it is the
        thread's stream (`set_current_stream`), or the GPU's (`set_default_stream`), or a stream
        that the thread makes for itself.
    thread_pool : ThreadPool, optional
        A pool to use, which several contexts may share; not together with `num_threads`.
    allocator : str or object, optional
        Where GPU memory comes from: ``"cuda"`` (the driver's stream-ordered pool), ``"torch"`` or
        ``"cupy"`` (the pool of that library, so that one pool serves both), or an object with
        ``allocate(nbytes, stream=...)`` such as a ``MemoryResource`` of cuda.core. By default
        PyTorch's if it is imported and has CUDA, else ``"cuda"``.
    """

    def __init__(
        self,
        *,
        num_threads: int | None = None,
        device_id: int | None = None,
        cuda_stream: Any = None,
        thread_pool: ThreadPool | None = None,
        allocator: Any = None,
    ) -> None:
        if thread_pool is not None:
            if num_threads is not None:
                raise ValueError("`thread_pool` and `num_threads` cannot be specified together.")
            if not isinstance(thread_pool, ThreadPool):
                raise TypeError(
                    "EvalContext: `thread_pool` must be a ThreadPool, "
                    f"got {type(thread_pool).__name__}"
                )
        if num_threads is not None:
            num_threads = checked_num_threads(num_threads, "EvalContext: `num_threads`")
        if device_id is not None:
            device_id = Device("gpu", device_id).device_id
            if thread_pool is not None and thread_pool.device_id not in (None, device_id):
                raise ValueError(
                    f"EvalContext: `thread_pool` belongs to GPU {thread_pool.device_id}, "
                    f"but `device_id` is {device_id}"
                )
        chosen_stream = stream(stream=cuda_stream, device_id=device_id)
        if chosen_stream is not None:
            device_id = chosen_stream.device_id
        elif device_id is None:
            device_id = entered_gpu_id()

        self._allocator = checked_allocator(allocator)
        # The in-order executor of this context; core/handle.py makes it on first use.
        self._executor: Any = None
        self._is_default = False
        # None until someone asks: asking CUDA initialises it, which CPU work must not pay for.
        self._device_id = device_id
        self._num_threads = num_threads
        self._has_own_pool = thread_pool is None
        self._pool = thread_pool
        self._thread_streams = _local.streams
        self._stream = chosen_stream or self._preset_stream()
        self._checkpoint: Any = None
        # Several threads may see a context. This guards the pool made on first use.
        self._lock = forks.lock()
        self._owner: int | None = None
        self._depth = 0
        self._entered: tuple[Device | None, ...] = ()

    current = staticmethod(current_context)

    @staticmethod
    def default() -> EvalContext:
        """The calling thread's own context, made on first use."""
        context = _local.default
        if context is None:
            context = EvalContext()
            context._is_default = True
            context._device_id = context._stream = None
            _local.default = context
        return context

    @property
    def device_id(self) -> int | None:
        """Ordinal of the GPU, or None on a machine without one."""
        if self._device_id is None:
            if not gpu_env.gpu_available():
                return None
            current = entered_gpu_id()
            current = gpu_env.current_device_id() if current is None else current
            # The default context follows `with Device(...)`, the others keep their first GPU.
            if self._is_default:
                return current
            self._device_id = current
        return self._device_id

    @property
    def num_threads(self) -> int:
        """Size of the thread pool."""
        if not self._has_own_pool:
            return self.thread_pool.num_threads
        return get_num_threads() if self._num_threads is None else self._num_threads

    @property
    def thread_pool(self) -> ThreadPool:
        """The thread pool; made on first use, and again after `set_num_threads`."""
        pool = self._pool
        if pool is not None and (
            self._num_threads is not None
            or not self._has_own_pool
            or pool._num_threads == get_num_threads()
        ):
            return pool
        with self._lock:
            if self._pool is pool:
                self._pool = ThreadPool(self.num_threads, device_id=None)
            assert self._pool is not None
            return self._pool

    @property
    def cuda_stream(self) -> Stream | None:
        """The stream of GPU ops, or None on a machine without a GPU."""
        if self._stream is not None:
            return self._stream
        device_id = self.device_id
        if device_id is None:
            return None
        if self._is_default:
            chosen = self._thread_streams.chosen.get(device_id) or _default_streams.get(device_id)
            return chosen or self._thread_streams.own_stream(device_id)
        self._stream = self._thread_streams.own_stream(device_id)
        return self._stream

    def _stream_on(self, device_id: int) -> Stream:
        """The stream of GPU ops on one GPU: a stream works on its own GPU only."""
        stream = self.cuda_stream
        if stream is not None and stream.device_id == device_id:
            return stream
        streams = self._thread_streams
        chosen = streams.chosen.get(device_id) or _default_streams.get(device_id)
        return chosen or streams.own_stream(device_id)

    @property
    def checkpoint(self) -> Any:
        """The `Checkpoint` bound to this context.

        If you use a context again, call ``clear`` on the checkpoint before the next pipeline.
        """
        if self._checkpoint is None:
            try:
                module = importlib.import_module("ndd.checkpoint")
            except ModuleNotFoundError as error:
                if error.name != "ndd.checkpoint":
                    raise
                return None
            self._checkpoint = module.Checkpoint()
        return self._checkpoint

    def evaluate_all(self) -> None:
        """Run all pending work and wait for it."""
        if self._executor is not None:
            self._executor.flush_all()

    def cached_results(self, invocation: Any) -> None:
        """Reserved for future use."""

    def cache_results(self, invocation: Any, results: Any) -> None:
        """Reserved for future use."""

    def __enter__(self) -> EvalContext:
        thread_id = threading.get_ident()
        entered = None
        if self._device_id is not None:
            entered = Device("gpu", self._device_id).__enter__()
        contexts, devices = (*_local.contexts, self), (*self._entered, entered)
        if self._depth and self._owner != thread_id:
            if entered is not None:
                entered.__exit__()
            raise RuntimeError(
                "An EvalContext cannot be active in two threads simultaneously: "
                "make one EvalContext per thread"
            )
        # From the test on, no other thread runs and no interrupt comes: see `EvalMode.__enter__`.
        self._owner = thread_id
        self._depth += 1
        self._entered = devices
        _local.contexts, _local.context = contexts, self
        return self

    def __exit__(self, *exc: object) -> None:
        contexts = _without_last(_local.contexts, self)
        if contexts is None:
            raise RuntimeError("this EvalContext was not entered in this thread")
        entered = self._entered[-1]
        _local.contexts, _local.context = contexts, contexts[-1] if contexts else None
        self._entered = self._entered[:-1]
        self._depth -= 1
        if not self._depth:
            self._owner = None
        if entered is not None:
            entered.__exit__()

    def __repr__(self) -> str:
        kind = "default " if self._is_default else ""
        return f"<{kind}EvalContext num_threads={self.num_threads}>"

    def _preset_stream(self) -> Stream | None:
        """The stream that the user set for this thread or for all; asks CUDA only if needed."""
        chosen = self._thread_streams.chosen
        if not chosen and not _default_streams:
            return None
        device_id = self.device_id
        if device_id is None:
            return None
        return chosen.get(device_id) or _default_streams.get(device_id)


class _LocalContext(threading.local):
    """State of one thread, in plain attributes because every op call reads two of them."""

    def __init__(self) -> None:
        self.mode = EvalMode.eager
        self.modes: tuple[EvalMode, ...] = ()
        self.context: EvalContext | None = None
        self.contexts: tuple[EvalContext, ...] = ()
        self.default: EvalContext | None = None
        self.streams = _ThreadStreams()
        self.merges = False  # see ops/resample/merging.py
        self.scales = False  # see ops/resample/scaling.py


_local = _LocalContext()
_default_streams: dict[int, Stream] = {}


def get_current_stream() -> Stream | None:
    """The stream of this thread's default context; None on a machine without a GPU.

    >>> import ndd
    >>> ndd.set_current_stream(None)
    >>> current = ndd.get_current_stream()
    """
    return EvalContext.default().cuda_stream


def set_current_stream(cuda_stream: Any, /) -> None:
    """Set the stream of this thread's default context, and of contexts made later in this thread.

    >>> import ndd
    >>> ndd.set_current_stream(None)

    The stream must be on the current GPU. ``None`` returns to the default stream or to the thread's
    own. This does not wait for work on the old stream.
    """
    chosen = stream(stream=cuda_stream)
    streams = _local.streams.chosen
    device_id = EvalContext.default().device_id
    if chosen is None:
        if device_id is not None:
            streams.pop(device_id, None)
        return
    if chosen.device_id != device_id:
        raise ValueError(
            f"set_current_stream: the stream is on GPU {chosen.device_id}, the current GPU is "
            f'{device_id}; use `with Device("gpu", {chosen.device_id}):`'
        )
    streams[chosen.device_id] = chosen


def get_default_stream(device_id: int | None = None) -> Stream | None:
    """The stream that `set_default_stream` set for a GPU (by default the current one), or None.

    >>> import ndd
    >>> ndd.get_default_stream() is None
    True
    """
    if not gpu_env.gpu_available():
        return None
    ordinal = Device("gpu", device_id).device_id
    assert ordinal is not None
    return _default_streams.get(ordinal)


def set_default_stream(cuda_stream: Any, /, device_id: int | None = None) -> None:
    """Set the stream of a GPU for all threads that have not set theirs; ``None`` clears it.

    >>> import ndd
    >>> ndd.set_default_stream(None)

    Call it once, at the start: it affects the default contexts of all threads.
    """
    chosen = stream(stream=cuda_stream, device_id=device_id)
    if chosen is not None:
        _default_streams[chosen.device_id] = chosen
    elif gpu_env.gpu_available():
        ordinal = Device("gpu", device_id).device_id
        assert ordinal is not None
        _default_streams.pop(ordinal, None)


def _without_last(stack: tuple[Any, ...], entry: object) -> tuple[Any, ...] | None:
    """A stack without the innermost `entry`; generators may leave their ``with`` out of order."""
    for position in range(len(stack) - 1, -1, -1):
        if stack[position] is entry:
            return stack[:position] + stack[position + 1 :]
    return None
