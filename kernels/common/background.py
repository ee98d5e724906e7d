"""Threads of the package: how they start, sleep and end, whatever interrupts the main thread.

NOTE [interrupts] A signal handler may raise in the main thread wherever a call returns, a function
begins or a loop jumps back (KeyboardInterrupt is only the most common case). Other threads are
never interrupted. So what must be done completely or not at all is one of three things:

- a call of a C function, such as `SimpleQueue.put` or `list.append`, or an assignment;
- a ``with`` block over a lock of forks.py, whose content may be repeated;
- a function that runs in another thread: `uninterrupted`.

Waiting may be interrupted at any time. Waiting for helpers that use the caller's memory may not: a
`Latch` waits in C.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from . import forks

# Threads are stopped at exit and get this long to finish what they are doing: a chunk of samples, a
# batch of files from a slow disk. Longer work is abandoned.
EXIT_SECONDS = 5.0
# Compiling a kernel takes seconds, and cannot be abandoned without the risk of a crash in LLVM.
EXIT_COMPILE_SECONDS = 30.0

V = TypeVar("V")


class Bell:
    """Wakes a thread that waits for a change; one thread per ring, which passes it on if need be.

    Change the state first, then `ring`. A waiting thread looks at the state whenever it wakes up.
    """

    __slots__ = ("_rings", "ring")

    def __init__(self) -> None:
        self._rings: SimpleQueue[Any] = SimpleQueue()
        #: Takes one argument, which is ignored, so that it can be the callback of a weak reference.
        #: It is a C function: neither an interrupt nor the garbage collector can break it.
        self.ring: Callable[[Any], None] = self._rings.put

    def wait(self) -> None:
        """Wait until the bell rings; returns at once for every ring that nobody heard."""
        self._rings.get()

    def is_ringing(self) -> bool:
        """Whether nobody has heard the last ring yet."""
        return not self._rings.empty()


# PyThread's locks are those that Python's own are made of. Here they are used without Python's
# `acquire`, which an interrupt ends. CDLL releases the GIL during a call; PyDLL does not.
_allocate = ctypes.PyDLL(None).PyThread_allocate_lock
_allocate.argtypes, _allocate.restype = (), ctypes.c_void_p
_release = ctypes.PyDLL(None).PyThread_release_lock
_release.argtypes, _release.restype = (ctypes.c_void_p,), None
_free = ctypes.PyDLL(None).PyThread_free_lock
_free.argtypes, _free.restype = (ctypes.c_void_p,), None
_acquire = ctypes.CDLL(None).PyThread_acquire_lock
_acquire.argtypes, _acquire.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_int


class Latch:
    """`wait` returns after `open` was called; no interrupt ends it."""

    __slots__ = ("_lock", "open", "wait")

    def __init__(self) -> None:
        self._lock = _allocate()
        _acquire(self._lock, 1)
        # Bound once, because a method could be interrupted before it gets to the C function.
        self.open: Callable[[], None] = partial(_release, self._lock)
        self.wait: Callable[[], Any] = partial(_acquire, self._lock, 1)

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            _free(self._lock)


# -- starting --------------------------------------------------------------------------------------


def in_main_thread() -> bool:
    """Whether this is the thread in which signal handlers run."""
    return threading.get_ident() == threading.main_thread().ident


def uninterrupted(function: Callable[..., V], *arguments: Any) -> V:
    """Call a function where no interrupt comes: in the main thread, by means of another thread.

    An interrupt may end the wait for the result, but never the function. The function has another
    thread's context and must not need locks that its caller holds.
    """
    if not in_main_thread():
        return function(*arguments)
    call = _Call(function, arguments)
    _calls.add(call)
    call.start()
    call.ended.get()
    call.ended.put(None)  # an error may keep the call alive, and `_end_all` must not wait for it
    if not call.is_done:
        raise MemoryError("there is no memory for another thread")
    if call.error is not None:
        try:
            raise call.error
        finally:
            call.error = None  # its traceback refers to this frame
    return call.result


class _Call:
    """A call that another thread makes."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.ended: SimpleQueue[Any] = SimpleQueue()
        self._watch: Any = None

    def start(self) -> None:
        """Run in a new thread. `ended` gets an item when the thread lets go of the method.

        `run` cannot say so itself: if there is no memory for its first call, it never begins.
        """
        run = self.run
        self._watch = weakref.ref(run, self.ended.put)
        _thread.start_new_thread(run, ())

    def run(self) -> None:
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:  # the waiting thread raises it
            self.error = error
        self.is_done = True


_calls: weakref.WeakSet[_Call] = weakref.WeakSet()


class Background(Protocol):
    """Work in threads that can be stopped."""

    threads: list[threading.Thread]

    def stop(self) -> None:
        """Make the threads end soon; may be called more than once."""
        ...


_running: weakref.WeakSet[Any] = weakref.WeakSet()
_is_over = False  # the interpreter is exiting


def stop_at_exit(work: Background) -> None:
    """Stop this work at exit, and wait for its threads, before the interpreter shuts down."""
    _running.add(work)


def start(work: Background, *threads: tuple[Callable[[], None], str]) -> None:
    """Start daemon threads, given by function and name, that end at the latest at exit."""
    uninterrupted(_start, work, threads)


def _start(work: Background, threads: tuple[tuple[Callable[[], None], str], ...]) -> None:
    if _is_over:
        raise RuntimeError("no thread can be started while the interpreter exits")
    stop_at_exit(work)
    for target, name in threads:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        work.threads.append(thread)


# -- exit ------------------------------------------------------------------------------------------


def is_exiting() -> bool:
    """Whether the interpreter is exiting, so that no thread can be started."""
    return _is_over


def stay_at_exit() -> None:
    """While the interpreter exits: keep a daemon thread here, where it can do no harm.

    It must not hold a lock that the main thread may need. A daemon thread that runs on while the
    interpreter shuts down may crash it: the memory and the code that it uses go away.
    """
    if _is_over and not in_main_thread():
        SimpleQueue[None]().get()  # nobody puts anything


def leave_at_exit() -> None:
    """While the interpreter exits: end a daemon thread that may hold locks of a running plan.

    The main thread waits for these locks. SystemExit ends a thread without a message.
    """
    if _is_over and not in_main_thread():
        raise SystemExit


def wait_until_left(folder: Path) -> None:
    """At exit: wait until no other thread is in a function of this folder or in C code below."""
    end = time.monotonic() + EXIT_SECONDS
    while time.monotonic() < end:
        frames = [f for t, f in sys._current_frames().items() if t != threading.get_ident()]
        if not any(frame.f_code.co_filename.startswith(str(folder)) for frame in frames):
            return
        time.sleep(1e-3)


def before_exit(function: Callable[[], None]) -> Callable[[], None]:
    """Call a function at exit, after all threads of the package have ended."""
    _finals.append(function)
    return function


_finals: list[Callable[[], None]] = []


@atexit.register
def _end_all() -> None:
    """Stop all threads, and wait for them."""
    global _is_over
    _is_over = True
    works = list(_running)
    for work in works:
        work.stop()
    deadline = time.monotonic() + EXIT_SECONDS
    for thread in [thread for work in works for thread in work.threads]:
        thread.join(max(0.0, deadline - time.monotonic()))
    deadline = time.monotonic() + EXIT_COMPILE_SECONDS
    for call in list(_calls):
        with suppress(Empty):
            call.ended.get(timeout=max(0.0, deadline - time.monotonic()))
    for function in _finals:
        function()


@forks.in_child
def _forget() -> None:
    """The threads exist only in the parent."""
    _running.clear()
    _calls.clear()
