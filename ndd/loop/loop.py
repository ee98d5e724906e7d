"""Follows a loop over a reader: the caller's calls enter, results made in advance leave.

A loop body nearly always makes the same calls. We record them in one iteration, and background
threads (ahead.py) make them for the next iterations while the caller still works with its batch.
If a call equals the recorded one (calls.py), the caller gets the result made in advance. At the
first call that differs, we drop everything made in advance. So results never depend on this.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ..runtime.context import current_context, current_mode
from .ahead import Ahead, Coming, Prepare
from .calls import Call, Iteration, Recording, nodes_of, this_thread

# After this many diverging iterations in one epoch, we assume that the loop diverges often.
MAX_DIVERGENCES = 2


class LoopState(Enum):
    """What a loop does with the calls of its body."""

    recording = "makes and records them"
    replaying = "gives what was made for them in advance"
    diverged = "makes and records them, after some that were given"
    off = "makes them"


class Loop:
    """Follows the calls that the caller makes in the iterations of one epoch.

    ==========  ==================================================================  ==========
    in state    when                                                                it enters
    ==========  ==================================================================  ==========
    recording   an iteration ends that can be repeated and is worthwhile            replaying
    recording   an iteration ends that is unrepeatable or not worthwhile            recording
    replaying   an iteration ends after all recorded calls                          replaying
    replaying   a call differs from the recorded one, for the first time            diverged
    replaying   a call differs from the recorded one, for the second time           off
    replaying   an iteration ends after fewer calls, or was not made in advance     recording
    diverged    an iteration ends: as in state recording
    any         the epoch ends, or the caller leaves it, or threads share it        off
    ==========  ==================================================================  ==========

    A loop begins in state replaying with the recording of the epoch before, in state recording if
    there is none, and in state off if `depth` is 0, so that nothing is made in advance.
    """

    def __init__(
        self, prepare: Prepare, count: int, depth: int, known: Recording | None = None
    ) -> None:
        self._prepare, self._count, self._depth = prepare, count, depth
        self._recording = known  # the calls that coming iterations are expected to make
        self._ahead: Ahead | None = None
        self._divergences = 0
        self._iteration: Iteration | None = None  # the current one
        self._coming: Coming | None = None  # the current one, if it was made in advance
        self.state = LoopState.replaying if known is not None else LoopState.recording
        self._is_shared = False  # several threads take iterations
        if not depth:
            self.state = LoopState.off

    # -- from the reader ---------------------------------------------------------------------

    def next(
        self, number: int, give: Callable[[tuple[Any, ...] | None], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """Begin iteration `number` and return the reader's outputs.

        `give` takes the outputs that were made in advance, or None if it must make them.
        """
        self._end_iteration()
        coming = self._made_in_advance(number)
        outputs = give(None if coming is None else coming.take_outputs())
        if self.state is LoopState.off:
            return outputs
        self._coming = coming
        if coming is None:
            self._iteration = Iteration(Recording(current_context(), current_mode()))
            self._iteration.claim(-1, nodes_of(outputs))
        else:
            self._iteration = coming.iteration
        this_thread.loop = self
        return outputs

    def share(self) -> None:
        """Stop following: with several threads, calls of different iterations are mixed."""
        if not self._is_shared:
            self._is_shared = True
            self._enter(LoopState.off)

    def close(self) -> Recording | None:
        """End the epoch and return the recording for the next one, if there is any."""
        known = self._recording if self.state is LoopState.replaying else None
        self._enter(LoopState.off)
        return known

    # -- from the caller ---------------------------------------------------------------------

    def follow(self, call: Call) -> Any:
        """Return the result of a call: made in advance if possible, else made now and recorded."""
        coming = self._coming
        if self.state is LoopState.replaying and coming is not None:
            found = coming.take(call)
            if found is not None:
                return found
            self._diverge(coming)
        iteration = self._iteration
        if iteration is None:  # in state off
            this_thread.loop = None
            return call.result()
        return self._recorded(call, iteration)

    def _recorded(self, call: Call, iteration: Iteration) -> Any:
        this_thread.loop = None  # do not record the calls that this call makes internally
        try:
            result = call.result()
            iteration.recording.add(call, result, iteration)
        except BaseException:
            iteration.recording.is_repeatable = False
            raise
        finally:
            this_thread.loop = self
        return result

    # -- transitions -------------------------------------------------------------------------

    def _enter(self, state: LoopState) -> None:
        """Change the state; outside of state replaying, drop everything made in advance."""
        state = LoopState.off if self._is_shared else state
        self.state = state
        if state is LoopState.off:
            self._leave_iteration()
        if state is not LoopState.replaying:
            self._coming = None
            if self._ahead is not None:
                self._ahead.stop()
                self._ahead = None

    def _leave_iteration(self) -> Iteration | None:
        if this_thread.loop is self:
            this_thread.loop = None
        iteration, self._iteration = self._iteration, None
        return iteration

    def _end_iteration(self) -> None:
        iteration = self._leave_iteration()
        coming, self._coming = self._coming, None
        if iteration is None:
            return  # this is the first iteration, or the reader failed to give a batch
        recording = iteration.recording
        is_whole = coming is None or coming.is_over()
        if is_whole and recording.is_repeatable and recording.is_worthwhile:
            self._recording = recording
            self._enter(LoopState.replaying)
        else:
            self._enter(LoopState.recording)

    def _made_in_advance(self, number: int) -> Coming | None:
        if self.state is not LoopState.replaying or number == self._count:
            return None
        if self._ahead is None:
            assert self._recording is not None
            self._ahead = Ahead(self._recording, self._prepare, number, self._count, self._depth)
        coming = self._ahead.take(number)
        if coming is None:
            self._enter(LoopState.recording)
        return coming

    def _diverge(self, coming: Coming) -> None:
        """Give the iteration its own recording, which begins with the calls replayed so far."""
        coming.iteration.recording = coming.recording.first(coming.taken)
        self._divergences += 1
        self._enter(LoopState.off if self._divergences == MAX_DIVERGENCES else LoopState.diverged)
