"""Threads that make the calls of coming iterations and compute the results in advance.

A `Recording` enters; a `Coming` for each coming iteration leaves.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from ..core.call import wrap
from ..core.convert import dense_array
from ..core.handle import Handle, executor_of
from ..core.interop import array_to_torch
from ..fusion.graph.node import Node
from ..kernels.common import trace
from ..readers.read_ahead import join_at_exit
from ..runtime.context import EvalContext, EvalMode
from ..runtime.rng import RNG, State, use_default_rng
from .calls import PLAIN, Call, Iteration, Recording, Ref, each, nodes_of, this_thread

# The caller's replayed calls take less time than this, unless another thread holds the GIL.
GRACE_SECONDS = 1e-3
THREADS = 2  # one computes while the other makes the calls of the next iteration
# Makes the reader's outputs for iteration `number`; returns None if only the caller can do so.
Prepare = Callable[[int], tuple[Any, ...] | None]


class Shadows(dict[RNG, RNG]):
    """Copies of the caller's generators, which run ahead of the originals."""

    def __missing__(self, rng: RNG) -> RNG:
        shadow = self[rng] = rng.clone()
        return shadow


class Coming:
    """One coming iteration: its calls are made in advance, and the caller takes their results."""

    def __init__(self, recording: Recording, outputs: tuple[Handle, ...]) -> None:
        self.recording = recording
        self.iteration = Iteration(recording)
        self.iteration.claim(-1, nodes_of(outputs))
        self.taken = 0  # calls that the caller has made
        # Only values that the caller has not taken yet are kept alive here: the reader's outputs,
        # and for each call its results and the states of its generator before and after.
        self._outputs = outputs
        self._made: deque[tuple[list[Node], tuple[State, State] | None]] = deque()

    def make_calls(self, shadows: Shadows) -> None:
        """Make all calls up to the first that fails: the caller makes that one again itself."""
        filled = partial(each, partial(self._filled, shadows))
        for k, (call, rng, *_, site) in enumerate(self.recording.calls):
            shadow = None if rng is None else shadows[rng]
            before = None if shadow is None else shadow.get_state()
            arguments = tuple([v if type(v) in PLAIN else filled(v) for v in call.arguments])
            this_thread.site = site
            try:
                with use_default_rng(shadow):
                    nodes = nodes_of(call._replace(arguments=arguments).result())
            except Exception:
                return
            for node in nodes:
                node.result.site = site
            self.iteration.claim(k, nodes, arguments)
            drawn = None if shadow is None or before is None else (before, shadow.get_state())
            self._made.append((nodes, drawn))

    def _filled(self, shadows: Shadows, value: Any) -> Any:
        """The value that a recorded argument has in this iteration."""
        if isinstance(value, Ref):
            if value.call < 0:
                return self._outputs[value.output]
            return wrap(self._made[value.call][0][value.output])
        return shadows[value] if isinstance(value, RNG) else value

    def results(self) -> list[Node]:
        """The values to compute: those that the caller reads, and those that no call uses."""
        used = {ref for call in self.recording.calls for ref in call.uses}
        used -= self.recording.read.copy()  # a copy, because the caller's thread adds to the set
        made = [(Ref(k, o), n) for k, m in enumerate(self._made) for o, n in enumerate(m[0])]
        return list(dict.fromkeys(node for ref, node in made if ref not in used))

    # -- from the caller ---------------------------------------------------------------------

    def take_outputs(self) -> tuple[Handle, ...]:
        """The reader's outputs for this iteration."""
        outputs, self._outputs = self._outputs, ()
        return outputs

    def take(self, call: Call) -> Any:
        """The result of the caller's next call; None if it is not the recorded one."""
        if not self._made or not self.recording.fits_here():
            return None
        recorded, (nodes, drawn) = self.recording.calls[self.taken], self._made[0]
        if not recorded.is_made_by(call, self.iteration):
            return None
        if recorded.rng is not None and not (drawn and recorded.rng.jump(*drawn)):
            return None
        self.taken += 1
        self._made.popleft()
        handles = [wrap(node) for node in nodes]
        return tuple(handles) if recorded.gives_tuple else handles[0]

    def is_over(self) -> bool:
        """Whether the caller has made all recorded calls."""
        return self.taken == len(self.recording.calls)


class Ahead:
    """Iterations `first`, `first + 1`, … made in advance by threads, up to `depth` of them."""

    def __init__(
        self, recording: Recording, prepare: Prepare, first: int, count: int, depth: int
    ) -> None:
        self._recording, self._prepare = recording, prepare
        self._next_made = self._at = first  # `_at`: the iteration that the caller is in
        self._count, self._depth = count, depth
        self._made: dict[int, Coming] = {}
        self._is_over = False  # the threads start no further iteration
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._building = threading.Lock()  # calls are made for one iteration at a time
        self._shadows = Shadows()
        self.threads: list[threading.Thread] = []  # none to join: its threads are shared
        join_at_exit(self)
        for _ in range(min(THREADS, depth)):
            _Thread.do(self._work)

    def _work(self) -> None:
        """For one iteration after the other: make its calls, hand it over, compute it.

        Two threads take turns: while one computes, the other makes the calls of the next iteration
        and then waits for the thread pool. So the pool always has work.
        """
        try:
            while True:
                with self._building:
                    compute = self._build() if self._wait_for_turn() else None
                if compute is None:
                    return
                compute()
                del compute  # otherwise this frame keeps a batch alive until the next is made
        except Exception:
            return  # the caller gets the same error when it makes the call itself
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _wait_for_turn(self) -> bool:
        is_ahead = False
        with self._changed:
            while not self._is_over and self._next_made > self._at + self._depth:
                self._changed.wait()
                is_ahead = True
        if is_ahead:
            # There is time, so let the caller, who has just taken a batch, make its calls first.
            time.sleep(GRACE_SECONDS)
        return not self._is_over and self._next_made < self._count

    def _build(self) -> Callable[[], None] | None:
        """Make the calls of the next iteration, hand it over, and return what computes it."""
        outputs = self._prepare(self._next_made)
        if outputs is None:
            return None
        like = self._recording.context
        # Each iteration has its own context, so reading its results does not wait for the next one.
        context = EvalContext(thread_pool=like.thread_pool, cuda_stream=like._stream)
        coming = Coming(self._recording, outputs)
        with context, EvalMode.deferred:
            coming.make_calls(self._shadows)
        nodes = coming.results()
        # Export even if the caller already waits: it would have to make the same tensors.
        export = partial(_export, [*nodes_of(outputs), *nodes])
        compute = partial(executor_of(context).evaluate_all, nodes, export)
        with self._changed:
            if not self._is_over:
                self._made[self._next_made] = coming
            self._next_made += 1
            self._changed.notify_all()
        return compute

    # -- from the caller ---------------------------------------------------------------------

    def take(self, number: int) -> Coming | None:
        """Iteration `number`, which the caller begins; None if it was not made in advance."""
        if self._process != os.getpid():
            return None
        if trace.active:
            stage = trace.begin("stall", "reader")
            return trace.during(stage, self._take, number)  # type: ignore[no-any-return]
        return self._take(number)

    def _take(self, number: int) -> Coming | None:
        with self._changed:
            self._at = number
            self._changed.notify_all()
            while number >= self._next_made and not self._is_over:
                self._changed.wait()
            return self._made.pop(number, None)  # None: Ctrl-C came after it had been taken

    def stop(self) -> None:
        """End the work and drop the iterations made so far."""
        if self._process != os.getpid():
            return  # after a fork, the threads and the locks they held exist only in the parent
        with self._changed:
            self._is_over = True
            self._made.clear()
            self._changed.notify_all()


def _export(nodes: list[Node]) -> None:
    """Make the torch tensors that the caller will ask for.

    In the caller's thread, where caches are cold, they take a fifth of the time of a small batch
    (70 of 400 µs).
    """
    for node in nodes:
        iteration, ref = node.result.origin or (None, None)
        if iteration is not None and ref in iteration.recording.exported:
            whole = dense_array(node) if node.storage is not None and node.shapes.uniform else None
            if whole is not None:
                node.result.export = array_to_torch(whole, node.dtype, False)


class _Thread(threading.Thread):
    """A thread that is reused for many jobs, because each new thread needs its own decoders."""

    idle: ClassVar[list[_Thread]] = []

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.threads: list[threading.Thread] = [self]
        self.start()
        join_at_exit(self)

    @staticmethod
    def do(job: Callable[[], None]) -> None:
        """Run a job in an idle thread, or in a new one if none is idle."""
        thread = _Thread.idle.pop() if _Thread.idle else _Thread()
        thread._jobs.put(job)

    def run(self) -> None:
        while True:
            self.name = "ndd-idle"
            job = self._jobs.get()
            if job is None:
                return
            self.name = "ndd-call-ahead"
            job()
            del job
            _Thread.idle.append(self)

    def stop(self) -> None:
        """End the thread after its current job."""
        self._jobs.put(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Thread.idle.clear)
