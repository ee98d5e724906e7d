"""Shows progress: a tqdm bar if that is installed, otherwise a plain counter on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Bar(Protocol):
    """A progress bar: call `update()` after each item and `close()` at the end."""

    def update(self) -> object: ...

    def close(self) -> object: ...


class Counter:
    """Prints `label 3/12` on one line of a terminal, and nothing to a file."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label = total, label
        self._done = 0

    def update(self) -> None:
        self._done += 1
        self._print(f"\r{self._label} {self._done}/{self._total}")

    def close(self) -> None:
        if self._done:
            self._print("\n")
        self._done = 0

    def _print(self, text: str) -> None:
        if sys.stderr.isatty():
            print(text, end="", file=sys.stderr, flush=True)


def bar(total: int, label: str) -> Bar:
    """A bar for `total` items."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return Counter(total, label)
    return tqdm(total=total, desc=label)  # type: ignore[no-any-return]


def progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """Iterate over the items and show a bar."""
    shown = bar(total, label)
    try:
        for item in items:
            yield item
            shown.update()
    finally:
        shown.close()
