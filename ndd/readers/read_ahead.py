"""Threads that prepare items 0, 1, 2, … of a row before they are asked for."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from ..kernels.common import trace

# One batch of files from a slow disk; what takes longer at exit is abandoned.
EXIT_JOIN_SECONDS = 5.0


class _ReadFailure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Row:
    """What the threads know; never the `ReadAhead`, so that dropping that one ends them."""

    def __init__(self, make: Callable[[int], Any], first: int, count: int, depth: int) -> None:
        self.make = make
        self.next_made = self.next_taken = first
        self.count, self.depth = count, depth
        self.done: dict[int, Any] = {}
        self.stopped = threading.Event()
        self.process = os.getpid()
        # its lock is reentrant: a collection inside may run the finalizer, which stops the row
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
            except BaseException as error:  # reported where the item is asked for
                item = _ReadFailure(error)
            with self.changed:
                if self.stopped.is_set():
                    return
                self.done[number] = item
                self.changed.notify_all()
            del item  # else this frame keeps a batch alive until the next is made

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
        # taken before, but Ctrl-C came before it could be used
        return self.make(number)

    def stop(self) -> None:
        if self.process != os.getpid():
            return  # after a fork: threads, and whatever locks they held, stayed in the parent
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
        """Item `number`, the next one; an error that its making raised is raised here."""
        if self._row.process != os.getpid():
            self._start(number)
        if trace.active:
            return trace.during(trace.begin("stall", "reader"), self._row.take, number)
        return self._row.take(number)

    def stop(self) -> None:
        """End the threads; items that were not taken are lost."""
        self._finalizer()


class Background(Protocol):
    """Work of threads that can be stopped."""

    threads: list[threading.Thread]

    def stop(self) -> None: ...


_running: weakref.WeakSet[Any] = weakref.WeakSet()


def join_at_exit(work: Background) -> None:
    """Stop threads, and wait for them, when the interpreter exits."""
    _running.add(work)


@atexit.register
def _stop_all() -> None:
    """Threads that still ran Python code while the interpreter goes down could crash it."""
    rows = list(_running)
    for row in rows:
        row.stop()
    deadline = time.monotonic() + EXIT_JOIN_SECONDS
    for row in rows:
        for thread in row.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
