"""What a fork leaves behind: every lock of the package is made here, and made anew in the child.

A child process has one thread. A lock that another thread of the parent held would stay locked in
it forever, and helper threads and their queues are gone. A test searches the source for locks that
are made elsewhere.

NOTE [with lock] CPython runs signal handlers, and switches threads, only where a call returns,
where a function begins and where a loop jumps back; never between the end of a lock's own
`__enter__`, which is written in C, and the first statement of the ``with`` block. So an interrupt
cannot leave a lock of this module held. It can with `threading.Condition`, `threading.Event` and
functions under `contextmanager`, whose `__enter__` is Python code: use a `Bell` (background.py).
"""

from __future__ import annotations

import importlib
import logging  # noqa: F401  (first: see `_before`)
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    Lock = threading.RLock

# Other libraries' work that a fork must not cut in two gets this long to end.
FORK_WAIT_SECONDS = 30.0

F = TypeVar("F", bound=Callable[[], Any])

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_renewals: list[Callable[[], Any]] = []
_preparations: list[Callable[[], Any]] = []
_foreign: list[Lock] = []  # locks that the forking thread takes before the fork
_taken: list[Lock] = []  # those that it has taken


def lock() -> Lock:
    """A reentrant lock that no other thread holds in a child process.

    Reentrant, because such a lock knows its owner: a child keeps the locks of the thread that
    forked, which goes on inside of its ``with`` blocks.
    """
    made = threading.RLock()
    _locks.add(made)
    return made


def foreign_lock() -> Lock:
    """A lock around code of other libraries, whose state cannot be made anew.

    A fork waits until no other thread holds it, so that the child finds the library at rest.
    """
    made = lock()
    _foreign.append(made)
    return made


def in_child(function: F) -> F:
    """Call a function in every child process, after the locks have been made anew."""
    _renewals.append(function)
    return function


def before_fork(function: F) -> F:
    """Call a short function in the parent, before every fork."""
    _preparations.append(function)
    return function


def _before() -> None:
    for prepare in _preparations:
        prepare()
    # Hooks run in reverse order. The one of `logging` takes a lock that an import may need, so it
    # must come after this one, which waits for imports: that is why we import `logging` first.
    end = time.monotonic() + FORK_WAIT_SECONDS
    while True:
        for made in (*_foreign, *_locks_of_llvmlite()):
            if made.acquire(timeout=max(0.0, end - time.monotonic())):
                _taken.append(made)
        if not _others_import() or time.monotonic() > end:
            return
        _after()
        time.sleep(1e-3)


def _locks_of_llvmlite() -> list[Lock]:
    """The lock around every call of LLVM, if it is loaded.

    Threads also call it without a lock of ours: wherever the garbage collector finds an object of
    LLVM, and where a function ends that used some.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    found = getattr(getattr(library, "_lock", None), "_lock", None)
    return [] if found is None else [found]


def _others_import() -> bool:
    """Whether another thread is importing a module, which a child could then never import."""
    locks = getattr(importlib._bootstrap, "_module_locks", {})
    owners = [getattr(reference(), "owner", None) for reference in list(locks.values())]
    return any(owner not in (None, threading.get_ident()) for owner in owners)


def _after() -> None:
    while _taken:
        _taken.pop().release()


def _in_child() -> None:
    _after()
    for made in list(_locks):
        if not made._is_owned():
            made._at_fork_reinit()  # what the standard library does with its own locks
    for renew in _renewals:
        renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
