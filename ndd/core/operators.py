"""The operators of Tensor and Batch; ops/pointwise/arithmetic.py fills them in, from its tables.

Their types are in `operators.pyi`, which `python -m ndd.tools.stubs` writes.
"""

from __future__ import annotations


class Operators:
    """`+ - * / // % ** & | ^ << >> < <= > >= == !=`, and `- + ~ abs` of one value."""

    __slots__ = ()
