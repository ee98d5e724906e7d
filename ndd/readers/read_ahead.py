"""Threads that make the items 0, 1, 2, … of a sequence before the consumer asks for them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..kernels.common import background, forks, trace
from ..kernels.common.background import Bell


class _ReadFailure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Row:
    """State of the threads. It has no strong reference to the `ReadAhead`, so dropping that ends
    them."""

    def __init__(
        self, owner: ReadAhead, make: Callable[[int], Any], first: int, count: int, depth: int
    ) -> None:
        self.make = make
        self.next_made = self.next_taken = first
        self.count, self.depth = count, depth
        self.done: dict[int, Any] = {}
        self.is_stopped = False
        self.is_announced = True  # the threads know of the last item that was taken
        self.process = os.getpid()
        self.claiming = forks.lock()
        self.taken, self.made = Bell(), Bell()
        self.owner = weakref.ref(owner, self.taken.ring)
        self.threads: list[threading.Thread] = []
        background.stay_at_exit()
        numbers = range(min(depth, count - first))
        background.start(self, *[(self.work, f"ndd-read-ahead-{i}") for i in numbers])

    def work(self) -> None:
        while (number := self.next_number()) is not None:
            try:
                item = self.make(number)
            except BaseException as error:  # `take` raises it
                item = _ReadFailure(error)
            self.done[number] = item
            del item  # this frame would keep a batch alive until the next is made
            if not self.made.is_ringing():
                self.made.ring(None)
        self.taken.ring(None)  # the next thread ends, too
        self.made.ring(None)

    def next_number(self) -> int | None:
        """The number of the next item to make, as soon as there is room for it."""
        while not self.is_over():
            with self.claiming:
                number = self.next_made
                if number < min(self.count, self.next_taken + self.depth):
                    self.next_made += 1
                    return number
            if number >= self.count:
                return None
            self.taken.wait()
        self.done.clear()
        return None

    def is_over(self) -> bool:
        return self.is_stopped or self.owner() is None

    def take(self, number: int) -> Any:
        self.announce()
        while number >= self.next_taken and number not in self.done:
            if self.is_stopped:
                background.stay_at_exit()
                raise RuntimeError("the reader was stopped")
            self.made.wait()
        item = self.done.get(number)
        if item is None:
            # The item was taken before, but Ctrl-C came before it could be used.
            return self.make(number)
        if isinstance(item, _ReadFailure):
            raise item.error
        self.is_announced = False
        self.next_taken = number + 1
        self.done.pop(number, None)
        self.announce()
        return item

    def announce(self) -> None:
        if not self.is_announced:
            self.taken.ring(None)
            self.is_announced = True

    def stop(self) -> None:
        self.is_stopped = True
        self.done.clear()
        self.taken.ring(None)
        self.made.ring(None)


class ReadAhead:
    """Items `make(0)` … `make(count - 1)` in order, up to `depth` of them made in advance.

    One thread at a time may take items.
    """

    def __init__(self, make: Callable[[int], Any], count: int, depth: int) -> None:
        self._make, self._count, self._depth = make, count, depth
        self._start(0)

    def _start(self, first: int) -> None:
        self._row = _Row(self, self._make, first, self._count, self._depth)

    def take(self, number: int) -> Any:
        """Item `number`, which must be the next one; raises the error if making it failed."""
        if self._row.process != os.getpid():
            self._start(number)
        if trace.active:
            return trace.during(trace.begin("stall", "reader"), self._row.take, number)
        return self._row.take(number)

    def stop(self) -> None:
        """End the threads; items that were not taken are lost."""
        self._row.stop()
