"""A thread that makes the calls of coming iterations (replay.py) and computes their results."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from ..core.handle import executor_of
from ..fusion.graph.node import Node
from ..kernels.common import trace
from ..readers.read_ahead import join_at_exit
from ..runtime.context import EvalContext, EvalMode
from .replay import Recording, Replay, Shadows

# Calls that are foreseen take less than this, unless another thread has the interpreter.
GRACE_SECONDS = 1e-3
THREADS = 2  # one computes, the other gets the next iteration ready
# Makes what the reader gives in iteration `number`; None if that must be left to the caller.
Prepare = Callable[[int], tuple[Any, ...] | None]


class _State:
    """What the thread knows; never the `Lookahead`, so that dropping that one ends it."""

    def __init__(
        self, recording: Recording, prepare: Prepare, first: int, count: int, depth: int
    ) -> None:
        self.recording = recording
        self.prepare = prepare
        self.next_made = self.at = first  # `at`: the iteration that the caller is in
        self.count, self.depth = count, depth
        self.made: dict[int, Replay] = {}
        self.is_over = False
        self.stopped = threading.Event()
        self.process = os.getpid()
        self.changed = threading.Condition()
        self.building = threading.Lock()  # one iteration after the other
        self.shadows = Shadows()
        self.threads: list[threading.Thread] = []  # its threads serve others, too
        join_at_exit(self)
        for _ in range(min(THREADS, depth)):
            _Thread.do(self.work)

    def work(self) -> None:
        """One iteration after the other: make its calls, hand it on, compute it.

        Two threads do so in turns: while one computes, the other makes calls and gets everything
        ready, and then waits for the pool. So the pool always has something to do.
        """
        try:
            while True:
                with self.building:
                    made = self._build() if self._wait_for_turn() else None
                if made is None:
                    return
                context, nodes, given = made
                # also for a caller that waits already, who would make the same tensors
                export = partial(self.recording.export, [*given, *nodes])
                executor_of(context).evaluate_all(nodes, export)
                # else this frame keeps a batch alive until the next is made
                del made, context, nodes, given, export
        except Exception:
            return  # the caller meets it when it gets there
        finally:
            with self.changed:
                self.is_over = True
                self.changed.notify_all()

    def _wait_for_turn(self) -> bool:
        is_ahead = False
        with self.changed:
            while not self.is_over and not self.stopped.is_set() and self._is_ahead():
                self.changed.wait()
                is_ahead = True
        if is_ahead:
            # there is time: the caller, who has just taken a batch, makes its calls undisturbed
            time.sleep(GRACE_SECONDS)
        return not self.is_over and not self.stopped.is_set() and self.next_made < self.count

    def _is_ahead(self) -> bool:
        """Whether all that may be made by now has been."""
        return self.next_made > self.at + self.depth

    def _build(self) -> tuple[EvalContext, list[Node], list[Node]] | None:
        """Make the calls of the next iteration and hand it on; what is to be computed for it, and
        what the reader gives."""
        outputs = self.prepare(self.next_made)
        if outputs is None:
            return None
        replay, context = self._made(outputs)
        nodes = replay.results()
        self._hand_on(replay)
        return context, nodes, [h._node for h in outputs]

    def _made(self, outputs: tuple[Any, ...]) -> tuple[Replay, EvalContext]:
        like = self.recording.context
        # one of its own: who looks at the results of one iteration does not wait for the next
        context = EvalContext(thread_pool=like.thread_pool, cuda_stream=like._stream)
        replay = Replay(self.recording, outputs)
        with context, EvalMode.deferred:
            replay.build(self.shadows)
        return replay, context

    def _hand_on(self, replay: Replay) -> None:
        with self.changed:
            if not self.stopped.is_set():
                self.made[self.next_made] = replay
            self.next_made += 1
            self.changed.notify_all()

    # -- from the caller ---------------------------------------------------------------------

    def take(self, number: int) -> Replay | None:
        with self.changed:
            self.at = number
            self.changed.notify_all()
            while number not in self.made and not self.is_over and not self.stopped.is_set():
                self.changed.wait()
            return self.made.pop(number, None)

    def stop(self) -> None:
        if self.process != os.getpid():
            return  # after a fork: the thread, and whatever locks it held, stayed in the parent
        with self.changed:
            self.stopped.set()
            self.made.clear()
            self.changed.notify_all()


class _Thread:
    """A thread that does one job after the other: a new one would need decoders of its own."""

    idle: ClassVar[list[_Thread]] = []

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self.threads = [self._thread]
        self._thread.start()
        join_at_exit(self)

    @staticmethod
    def do(job: Callable[[], None]) -> None:
        """Let a thread that has nothing to do, or a new one, do a job."""
        thread = _Thread.idle.pop() if _Thread.idle else _Thread()
        thread._jobs.put(job)

    def _loop(self) -> None:
        while True:
            self._thread.name = "ndd-idle"
            job = self._jobs.get()
            if job is None:
                return
            self._thread.name = "ndd-call-ahead"
            job()
            del job
            _Thread.idle.append(self)

    def stop(self) -> None:
        """End after the job that is being done."""
        self._jobs.put(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Thread.idle.clear)


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
        """End the thread; what it has made is lost."""
        self._finalizer()
