"""Processes and their random numbers: who started this process, and as which of its children.

A child process must not repeat the random numbers of its parent or of its siblings, and must draw
the same ones when the program is run again. So a generator that enters a child is moved to a stream
of its own, a function of its seed and of the child's number. Children are numbered in the order in
which they start, which a rerun repeats.

NOTE [how children learn their number] A forked child finds the count of forks in its memory. For
the start methods "spawn" and "forkserver", multiprocessing pickles the new `Process` with its
configuration, a dict that every process hands down: we put an object there that counts when it is
pickled, and arrives as plain numbers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ..kernels.common import forks
from ..kernels.ir import philox

_KEY = "ndd.random"  # in the configuration of a process
_TAG = 0x6E646472  # in the highest word of the counter, where no stream of numbers ever gets
_WORD = 0xFFFFFFFF


class ThisProcess:
    """What this process knows of its children; a forked child replaces it."""

    def __init__(self, children: int = 0, has_settled: bool = False) -> None:
        self.children = children  # processes that were started so far
        self.has_settled = has_settled
        self.token = os.urandom(8)  # no other process has it


_this = ThisProcess()


def here() -> ThisProcess:
    """The object that stands for the running process."""
    return _this


@forks.before_fork
def _count_fork() -> None:
    _this.children += 1


@forks.in_child
def _enter_child() -> None:
    global _this
    _this = ThisProcess(_this.children, _this.has_settled)


class _Bequest:
    """Lies in the configuration of this process, which multiprocessing copies to its children."""

    def __init__(self, seed_of_child: Callable[[], int | None]) -> None:
        self._seed_of_child = seed_of_child

    def __reduce__(self) -> Any:
        _this.children += 1
        depth = len(_current_process()._identity) + 1
        return tuple, ((self._seed_of_child(), depth),)


def _current_process() -> Any:
    from multiprocessing.process import current_process

    return current_process()


def settle(seed_of_child: Callable[[], int | None]) -> int | None:
    """Find the seed that the parent left for this process, once; prepare one for each child.

    `seed_of_child` is called when a child is started. Returns None if there is nothing to find, or
    not yet: a spawned process first imports the main module, and then learns who it is.
    """
    process = _current_process()
    if _this.has_settled or getattr(process, "_inheriting", False):
        return None
    _this.has_settled = True
    config = getattr(process, "_config", {})
    found = config.get(_KEY)
    config[_KEY] = _Bequest(seed_of_child)
    if not isinstance(found, tuple):
        return None
    seed, depth = found
    # A parent that did not import this package handed on what it got itself.
    further = process._identity[depth:]
    return None if seed is None else derived_seed(seed, *further)


def derived_seed(seed: int, *numbers: int) -> int:
    """The seed of an independent stream: a function of a seed and of some numbers below 2¹³⁰."""
    key = (seed & _WORD, seed >> 32)
    for number in numbers:
        words = [(number >> shift) & _WORD for shift in (0, 32, 64, 96, 128)]
        key = philox.block((*words[:2], 1, _TAG), key)[:2]
        if any(words[2:]):
            key = philox.block((words[2], words[3], 2 + words[4], _TAG), key)[:2]
    return key[0] | key[1] << 32


def data_worker() -> Any:
    """What torch tells about this process if it is a worker of a `DataLoader`; else None."""
    module = sys.modules.get("torch.utils.data")
    return None if module is None else module.get_worker_info()
