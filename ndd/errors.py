"""Errors that name the op, the cause and the user's line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from .fusion.graph import Site

_PACKAGE = str(Path(__file__).parent)
_REAL = tuple(
    str(p) for p in (Path(__file__).resolve().parent, *(
        (Path(__file__).parent / name).resolve() for name in ("fusion", "kernels")
    ))
)  # fmt: skip
_ours: dict[str, bool] = {}


def _is_ours(file: str) -> bool:
    known = _ours.get(file)
    if known is None:
        known = _ours[file] = file.startswith((_PACKAGE, *_REAL)) or file.startswith("<ndd")
    return known


def user_site() -> Site:
    """File and line of the innermost frame outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return Site("<unknown>", 0)
    return Site(frame.f_code.co_filename, frame.f_lineno)


def at_site(error: Exception, op: str, site: Site) -> Exception:
    """The same kind of error, with op and place added to its message once."""
    text = str(error)
    if getattr(error, "_ndd_site", None) is not None:
        return error
    kind: type[Exception] = type(error)
    if not text.startswith(f"{op}:"):
        text = f"{op}: {text}"
    try:
        new = kind(f"{text} (called at {site})")
    except Exception:
        new = RuntimeError(f"{text} (called at {site})")
    new._ndd_site = site  # type: ignore[attr-defined]
    new.__cause__ = error.__cause__
    return new
