"""Capture mode of upstream: accepted, and not needed.

Calls are always recorded, fused and, in a loop over a reader, made in advance (ndd/loop).

>>> import ndd
>>> ndd.capture.invariant("anything")
'anything'
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def invariant(value: T) -> T:
    """The value itself. Upstream wants to be told what stays the same between iterations; here
    arguments are compared.

    >>> import ndd
    >>> ndd.capture.invariant(3)
    3
    """
    return value


__all__ = ["invariant"]
