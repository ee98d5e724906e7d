"""A loop over a reader, followed so that its coming iterations can be made in advance.

A loop body makes nearly always the same calls. They are recorded in one iteration and made for the
next ones by background threads (ahead.py), while the caller still works with the batch it has. A
call of the caller that equals the recorded one (calls.py) gets what was made for it. At the first
that differs, all that was made in advance is dropped. So no value depends on any of this.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ..runtime.context import current_context, current_mode
from .ahead import Ahead, Coming, Prepare
from .calls import Call, Iteration, Recording, nodes_of, this_thread

# After so many iterations of an epoch that went another way, its loop is taken to do so often.
MAX_DIVERGENCES = 2


class LoopState(Enum):
    """What a loop does about the calls of its body."""

    recording = "makes and records them"
    replaying = "gives what was made for them in advance"
    diverged = "makes and records them, after some that were given"
    off = "makes them"


class Loop:
    """Follows the calls that the caller makes in the iterations of one epoch.

    ==========  ==================================================================  ==========
    in state    when                                                                it enters
    ==========  ==================================================================  ==========
    recording   an iteration ends that can be repeated, and is worth it             replaying
    recording   an iteration ends that is not                                       recording
    replaying   an iteration ends after all recorded calls                          replaying
    replaying   a call is not the recorded one, for the first time                  diverged
    replaying   a call is not the recorded one, for the second time                 off
    replaying   an iteration ends after fewer calls, or was not made in advance     recording
    diverged    an iteration ends: as in state recording
    any         the epoch ends, or the caller leaves it                             off
    ==========  ==================================================================  ==========

    It begins in state replaying with the recording of the epoch before, in state recording if there
    is none, and in state off if nothing is to be made in advance (`depth` 0).
    """

    def __init__(
        self, prepare: Prepare, count: int, depth: int, known: Recording | None = None
    ) -> None:
        self._prepare, self._count, self._depth = prepare, count, depth
        self._recording = known  # what coming iterations are expected to do
        self._ahead: Ahead | None = None
        self._divergences = 0
        self._iteration: Iteration | None = None  # the one under way
        self._coming: Coming | None = None  # what was made for it in advance
        self.state = LoopState.replaying if known is not None else LoopState.recording
        if not depth:
            self.state = LoopState.off

    # -- from the reader ---------------------------------------------------------------------

    def next(
        self, number: int, give: Callable[[tuple[Any, ...] | None], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """Begin iteration `number`. `give` hands out what the reader gives in it, which it gets if
        that has been made in advance, and else makes."""
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

    def close(self) -> Recording | None:
        """The epoch is over: what the next one is expected to do."""
        known = self._recording if self.state is LoopState.replaying else None
        self._enter(LoopState.off)
        return known

    # -- from the caller ---------------------------------------------------------------------

    def follow(self, call: Call) -> Any:
        """The result of a call."""
        if self.state is LoopState.replaying and self._coming is not None:
            found = self._coming.take(call)
            if found is not None:
                return found
            self._diverge(self._coming)
        if self._iteration is None:  # in state off, or another thread asks for the next one
            this_thread.loop = None
            return call.result()
        return self._recorded(call, self._iteration)

    def _recorded(self, call: Call, iteration: Iteration) -> Any:
        this_thread.loop = None  # what it calls itself is a part of it
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
        """Change the state. What was made in advance is of no use but while replaying."""
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
            return  # this is the first one, or the reader had none to give
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
        """Go on with a recording of its own, which begins with the calls that were as recorded."""
        coming.iteration.recording = coming.recording.first(coming.taken)
        self._divergences += 1
        self._enter(LoopState.off if self._divergences == MAX_DIVERGENCES else LoopState.diverged)
