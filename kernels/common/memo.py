"""Caches in memory: each has a name and a bound, and is registered here so it can be cleared.

A key must be a value, or an object that the entry itself keeps alive; never the bare `id` of
another object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

_clearing: dict[str, Callable[[], None]] = {}  # name of a cache → function that clears it


class Memo(Generic[K, V]):
    """A bounded dictionary. When it is full it is cleared: entries in use come back quickly, and no
    lookup pays for keeping an order."""

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
        """The value of a key, which becomes `value` if there is none; the same for all threads."""
        found = self.entries.setdefault(key, value)
        if len(self.entries) > self.limit:
            self.clear()
            found = self.entries.setdefault(key, found)
        return found

    def clear(self) -> None:
        """Remove all entries."""
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
    """Make a value at its first use and keep it forever.

    For objects that others refer to by address: no thread may ever see a second one. (With
    `functools.cache`, threads that call the function first at the same time get one each.)
    """
    made: dict[None, V] = {}

    @wraps(function)
    def get() -> V:
        return made[None] if made else made.setdefault(None, function())

    return get


def names() -> list[str]:
    """The names of all caches."""
    return sorted(_clearing)


def clear_all() -> None:
    """Clear all caches."""
    for clear in list(_clearing.values()):  # a copy, because another thread may add a cache
        clear()


class made_once(Generic[V]):  # noqa: N801 (a decorator)
    """A property that is computed when it is first read, and then kept by its object.

    `functools.cached_property` holds a lock meanwhile (in Python 3.11, one for all objects of the
    class), which a fork or an interrupt can leave held. Here two threads may compute it twice.
    """

    def __init__(self, function: Callable[[Any], V]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    @overload
    def __get__(self, owner: None, kind: Any = None) -> made_once[V]: ...
    @overload
    def __get__(self, owner: object, kind: Any = None) -> V: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        return owner.__dict__.setdefault(self._function.__name__, self._function(owner))
