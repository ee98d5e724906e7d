"""Tabled: what kinds share whose core computes float32 from one value and from tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from ..graph.node import Node
from .base import DEAR, Kind, Reads, Terms

NUMBERS: Terms = ((None, 0, ()),)  # terms of an operand that the core reads as a flat list


@dataclass(frozen=True)
class Tabled(Kind):
    """The first input is the value; the core reads all others as flat lists of numbers."""

    has_core = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return dt.float32

    def reads(self, i: int) -> Reads:
        return Reads.SCATTERED if i == 0 else Reads.TABLE

    def cost(self) -> int:
        return DEAR
