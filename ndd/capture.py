"""Upstream's capture mode, accepted for compatibility; it has no effect.

Calls are always recorded and fused, and a loop over a reader replays them (ndd/loop/replay.py).

>>> import ndd
>>> ndd.capture.invariant("anything")
'anything'
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def invariant(value: T) -> T:
    """Return the value itself. Upstream needs this mark for values that stay the same between
    iterations; here arguments are compared.

    >>> import ndd
    >>> ndd.capture.invariant(3)
    3
    """
    return value


__all__ = ["invariant"]
