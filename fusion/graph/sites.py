"""Adds the op and the user's line to the error of a call, once."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    """The user's line that called an op."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def at_site(error: Exception, op: str, site: Site | None) -> Exception:
    """The same type of error with op and line in its message; unchanged if it has them already."""
    if getattr(error, "_ndd_site", None) is not None:
        return error
    text = str(error)
    if not text.startswith(f"{op}:"):
        text = f"{op}: {text}"
    if site is not None:
        text = f"{text} (called at {site})"
    try:
        new = type(error)(text)
    except Exception:  # this exception class takes other arguments than a message
        # NumPy's error for arrays that are too large is one of them.
        new = MemoryError(text) if isinstance(error, MemoryError) else RuntimeError(text)
    new._ndd_site = site or Site("<unknown>", 0)  # type: ignore[attr-defined]
    new.__cause__ = error.__cause__
    return new
