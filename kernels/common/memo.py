"""Caches in memory. Every one has a name and a bound, and this module owns them all.

A key must be a value, or an object that the entry itself keeps alive; never the bare `id` of
something else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

_clearing: dict[str, Callable[[], None]] = {}  # by name: how to forget everything


class Memo(Generic[K, V]):
    """A bounded dictionary. When it is full it starts again from nothing: what is in use comes back
    quickly, and no lookup pays for keeping an order."""

    __slots__ = ("entries", "get", "limit", "name")

    def __init__(self, name: str, limit: int) -> None:
        assert name not in _clearing, f"two caches are called {name}"
        self.name = name
        self.limit = limit
        self.entries: dict[K, V] = {}
        self.get = self.entries.get  # bound once: lookups are a hot path
        _clearing[name] = self.clear

    def __contains__(self, key: K) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def __setitem__(self, key: K, value: V) -> None:
        self.entries[key] = value
        if len(self.entries) > self.limit:
            self.clear()
            self.entries[key] = value

    def setdefault(self, key: K, value: V) -> V:
        """The value of a key; `value` becomes it if there is none. One answer for all threads."""
        found = self.entries.setdefault(key, value)
        if len(self.entries) > self.limit:
            self.clear()
            found = self.entries.setdefault(key, found)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()


def memoized(limit: int, typed: bool = True) -> Callable[[F], F]:
    """Remember the last `limit` results of a function.

    Without `typed`, arguments like 1, 1.0 and True count as one, which saves 40 ns a call.
    """

    def decorate(function: F) -> F:
        cached = lru_cache(maxsize=limit, typed=typed)(function)
        name = f"{function.__module__}.{function.__qualname__}"
        assert name not in _clearing, f"two caches are called {name}"
        _clearing[name] = cached.cache_clear
        return cached  # type: ignore[return-value]

    return decorate


def once(function: Callable[[], V]) -> Callable[[], V]:
    """Make a value at its first use and keep it for good.

    For what others refer to by its address, so that no thread may ever see a second one. (With
    `functools.cache`, threads that are first at the same time get one each.)
    """
    made: dict[None, V] = {}

    @wraps(function)
    def get() -> V:
        return made[None] if made else made.setdefault(None, function())

    return get


def names() -> list[str]:
    """Of all caches."""
    return sorted(_clearing)


def clear_all() -> None:
    """Forget everything that can be made again."""
    for clear in list(_clearing.values()):  # of a copy: a thread may be defining another one
        clear()
