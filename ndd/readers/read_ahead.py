"""Threads that make the items 0, 1, 2, … of a sequence before the consumer asks for them."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from ..kernels.common import trace

# Enough for a batch of files from a slow disk; threads that take longer at exit are abandoned.
EXIT_JOIN_SECONDS = 5.0


class _ReadFailure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Row:
    """State of the threads. It has no reference to the `ReadAhead`, so dropping that ends them."""

    def __init__(self, make: Callable[[int], Any], first: int, count: int, depth: int) -> None:
        self.make = make
        self.next_made = self.next_taken = first
        self.count, self.depth = count, depth
        self.done: dict[int, Any] = {}
        self.stopped = threading.Event()
        self.process = os.getpid()
        # The lock is reentrant: the garbage collector may run the finalizer, `stop`, inside of it.
        self.changed = threading.Condition()
        self.threads = [
            threading.Thread(target=self.work, name=f"ndd-read-ahead-{i}", daemon=True)
            for i in range(min(depth, count - first))
        ]
        join_at_exit(self)
        for thread in self.threads:
            thread.start()

    def work(self) -> None:
        while True:
            with self.changed:
                while not self.stopped.is_set() and self.next_made >= self.next_taken + self.depth:
                    self.changed.wait()
                if self.stopped.is_set() or self.next_made >= self.count:
                    return
                number = self.next_made
                self.next_made += 1
            try:
                item = self.make(number)
            except BaseException as error:  # `take` raises it
                item = _ReadFailure(error)
            with self.changed:
                if self.stopped.is_set():
                    return
                self.done[number] = item
                self.changed.notify_all()
            del item  # this frame would keep a batch alive until the next is made

    def take(self, number: int) -> Any:
        with self.changed:
            while number >= self.next_taken and number not in self.done:
                if self.stopped.is_set():
                    raise RuntimeError("the reader was stopped")
                self.changed.wait()
            if number in self.done:
                item = self.done[number]
                if isinstance(item, _ReadFailure):
                    raise item.error
                del self.done[number]
                self.next_taken = number + 1
                self.changed.notify_all()
                return item
        # The item was taken before, but Ctrl-C came before it could be used.
        return self.make(number)

    def stop(self) -> None:
        if self.process != os.getpid():
            return  # after a fork, the threads and their locks exist only in the parent
        with self.changed:
            self.stopped.set()
            self.done.clear()
            self.changed.notify_all()


class ReadAhead:
    """Items `make(0)` … `make(count - 1)` in order, up to `depth` of them made in advance."""

    def __init__(self, make: Callable[[int], Any], count: int, depth: int) -> None:
        self._make, self._count, self._depth = make, count, depth
        self._start(0)

    def _start(self, first: int) -> None:
        self._row = _Row(self._make, first, self._count, self._depth)
        self._finalizer = weakref.finalize(self, self._row.stop)

    def take(self, number: int) -> Any:
        """Item `number`, which must be the next one; raises the error if making it failed."""
        if self._row.process != os.getpid():
            self._start(number)
        if trace.active:
            return trace.during(trace.begin("stall", "reader"), self._row.take, number)
        return self._row.take(number)

    def stop(self) -> None:
        """End the threads; items that were not taken are lost."""
        self._finalizer()


class Background(Protocol):
    """Work in threads that can be stopped."""

    threads: list[threading.Thread]

    def stop(self) -> None: ...


_running: weakref.WeakSet[Any] = weakref.WeakSet()


def join_at_exit(work: Background) -> None:
    """Stop threads, and wait for them, when the interpreter exits."""
    _running.add(work)


@atexit.register
def _stop_all() -> None:
    """Stop all threads: running Python code while the interpreter shuts down could crash it."""
    rows = list(_running)
    for row in rows:
        row.stop()
    deadline = time.monotonic() + EXIT_JOIN_SECONDS
    for row in rows:
        for thread in row.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
