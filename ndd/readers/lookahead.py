"""Threads that make the calls of coming iterations (ndd/replay.py), and compute what they give."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ..context import EvalContext, EvalMode
from ..handle import executor_of
from ..kernels import trace
from ..replay import Recording, Replay, Shadows
from .read_ahead import join_at_exit

# Makes what the reader gives in iteration `number`; None if that must be left to the caller.
Prepare = Callable[[int], tuple[Any, ...] | None]


class _State:
    """What the threads know; never the `Lookahead`, so that dropping that one ends them."""

    def __init__(
        self, recording: Recording, prepare: Prepare, first: int, count: int, depth: int
    ) -> None:
        self.recording = recording
        self.prepare = prepare
        self.next_made = self.at = first  # `at`: the iteration that the caller is in
        self.count, self.depth = count, depth
        self.made: dict[int, Replay] = {}
        self.waiting: deque[tuple[Replay, EvalContext]] = deque()
        self.is_last_made = False
        self.stopped = threading.Event()
        self.process = os.getpid()
        self.changed = threading.Condition()
        self.shadows = Shadows()
        self.threads = [
            threading.Thread(target=work, name=f"ndd-{name}-ahead", daemon=True)
            for name, work in (("call", self.make_all), ("compute", self.compute_all))
        ]
        join_at_exit(self)
        for thread in self.threads:
            thread.start()

    # -- making calls ------------------------------------------------------------------------

    def make_all(self) -> None:
        try:
            while self._wait_for_turn():
                outputs = self.prepare(self.next_made)
                if outputs is None:
                    return
                self._hand_on(*self._make(outputs))
                del outputs  # else this frame keeps a batch alive until the next is made
        except Exception:
            return  # the caller meets it when it gets there
        finally:
            with self.changed:
                self.is_last_made = True
                self.changed.notify_all()

    def _wait_for_turn(self) -> bool:
        with self.changed:
            while not self.stopped.is_set() and self.next_made > self.at + self.depth:
                self.changed.wait()
            return not self.stopped.is_set() and self.next_made < self.count

    def _make(self, outputs: tuple[Any, ...]) -> tuple[Replay, EvalContext]:
        like = self.recording.context
        stream = like._stream if like._stream is not None else None
        # one of its own: calls of the next iteration do not wait until this one is computed
        context = EvalContext(thread_pool=like.thread_pool, cuda_stream=stream)
        replay = Replay(self.recording, outputs)
        with context, EvalMode.deferred:
            replay.build(self.shadows)
        return replay, context

    def _hand_on(self, replay: Replay, context: EvalContext) -> None:
        with self.changed:
            if not self.stopped.is_set():
                self.made[self.next_made] = replay
                self.waiting.append((replay, context))
            self.next_made += 1
            self.changed.notify_all()

    # -- computing ---------------------------------------------------------------------------

    def compute_all(self) -> None:
        while True:
            with self.changed:
                while not self.stopped.is_set() and not self.waiting and not self.is_last_made:
                    self.changed.wait()
                if self.stopped.is_set() or not self.waiting:
                    return
                replay, context = self.waiting.popleft()
            nodes = replay.results()
            executor_of(context).evaluate_all(nodes)
            del replay, context, nodes  # else this frame keeps a batch alive

    # -- from the caller ---------------------------------------------------------------------

    def take(self, number: int) -> Replay | None:
        with self.changed:
            self.at = number
            self.changed.notify_all()
            while number not in self.made and not self.is_last_made and not self.stopped.is_set():
                self.changed.wait()
            return self.made.pop(number, None)

    def stop(self) -> None:
        if self.process != os.getpid():
            return  # after a fork: threads, and whatever locks they held, stayed in the parent
        with self.changed:
            self.stopped.set()
            self.made.clear()
            self.waiting.clear()
            self.changed.notify_all()


class Lookahead:
    """Iterations `first`, `first + 1`, … made in advance, up to `depth` of them."""

    def __init__(
        self, recording: Recording, prepare: Prepare, first: int, count: int, depth: int
    ) -> None:
        self.recording = recording
        self._state = _State(recording, prepare, first, count, depth)
        self._finalizer = weakref.finalize(self, self._state.stop)

    def take(self, number: int) -> Replay | None:
        """Iteration `number`, which the caller begins; None if it has to be made as usual."""
        if self._state.process != os.getpid():
            return None
        if trace.active:
            stage = trace.begin("stall", "reader")
            replay: Replay | None = trace.during(stage, self._state.take, number)
            return replay
        return self._state.take(number)

    def stop(self) -> None:
        """End the threads; what they have made is lost."""
        self._finalizer()
