"""What the checks of all formats share: a demand, and the size that a header gives."""

from __future__ import annotations

from typing import NamedTuple

from ..limits import check_pixels


class UnsoundError(Exception):
    """A file breaks the rules of its format."""


def require(holds: bool, what: str) -> None:
    """Raise an error that says what is wrong, unless it holds."""
    if not holds:
        raise UnsoundError(what)


class Extents(NamedTuple):
    """Height and width of a stored picture."""

    height: int
    width: int


def extents(codec: str, height: int, width: int) -> Extents:
    """Check the size that a header gives."""
    require(height > 0 and width > 0, f"its size is {height}x{width}")
    check_pixels(codec, height, width)
    return Extents(height, width)
