"""An error of a call names its op and the user's line, once."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    """Where the user called."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def at_site(error: Exception, op: str, site: Site | None) -> Exception:
    """The same kind of error, with op and place added to its message; itself if it has them."""
    if getattr(error, "_ndd_site", None) is not None:
        return error
    text = str(error)
    if not text.startswith(f"{op}:"):
        text = f"{op}: {text}"
    if site is not None:
        text = f"{text} (called at {site})"
    try:
        new = type(error)(text)
    except Exception:  # an exception class of its own mind
        new = RuntimeError(text)
    new._ndd_site = site or Site("<unknown>", 0)  # type: ignore[attr-defined]
    new.__cause__ = error.__cause__
    return new
