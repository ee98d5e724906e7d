"""Reports stages of work to watchers: NVTX ranges, a profile. By default there are no watchers.

NOTE [cost] A stage that nobody watches costs one test of `active` and creates no object:

    if trace.active:
        return trace.during(trace.begin("compile", name), function, *arguments)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any, Protocol

from . import forks

# In this order: a call of an op, planning a program, compiling a kernel, running a kernel (on a
# GPU: launching it), decoding a sample, reading a batch, and a thread that waits for a value.
CATEGORIES = ("call", "plan", "compile", "launch", "decode", "read", "stall")

active = False  # whether there are watchers
runs = itertools.count(1)  # numbers of executions of plans
_watchers: tuple[Watcher, ...] = ()
_lock = forks.lock()


class Watcher(Protocol):
    """Called for every stage, on the stage's thread; the stages of a thread are nested."""

    def begin(self, stage: Stage) -> None: ...
    def end(self, stage: Stage) -> None: ...


class Stage:
    """A piece of work on one thread."""

    __slots__ = ("about", "category", "group", "name", "run", "samples", "start", "watchers")

    def __init__(
        self, category: str, name: str, group: int, samples: int, run: int, about: Any
    ) -> None:
        self.category = category
        self.name = name
        self.group = group  # number of the kernel in `ndd.explain`; -1 if there is none
        self.samples = samples  # may be set until the stage ends
        self.run = run  # number of the plan's execution; 0 if there is none
        self.about = about  # a dict of other facts, or None
        self.start = 0  # set by watchers
        self.watchers = _watchers  # the watchers of its begin must also see its end

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.end(self)


def begin(
    category: str, name: str, group: int = -1, samples: int = 0, run: int = 0, about: Any = None
) -> Stage:
    """Report that this thread begins a stage; the caller must call its `end`, even on errors."""
    stage = Stage(category, name, group, samples, run, about)
    for watcher in stage.watchers:
        watcher.begin(stage)
    return stage


def during(stage: Stage, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function as a stage, and end the stage."""
    try:
        return function(*arguments)
    finally:
        stage.end()


def watch(watcher: Watcher) -> None:
    """Report all stages that begin from now on to a watcher."""
    global _watchers, active
    with _lock:
        _watchers = (*(w for w in _watchers if w is not watcher), watcher)
        active = True


def unwatch(watcher: Watcher) -> None:
    """Report no new stages to a watcher; it still sees the end of those it has seen begin."""
    global _watchers, active
    with _lock:
        _watchers = tuple(w for w in _watchers if w is not watcher)
        active = bool(_watchers)


if os.environ.get("NDD_NVTX", "0") not in ("", "0"):
    from . import nvtx_ranges

    nvtx_ranges.switch(True)
