"""Mapped: a Python function of one sample at a time, such as a round trip through a codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.ir.dtypes import DType
from ..graph.node import Node
from ..graph.shapes import Shapes
from .base import make
from .opaque import Opaque


@dataclass(frozen=True)
class Mapped(Opaque):
    """`function(params, sample, x, out)` writes a sample of the result into the array `out`.

    `x` is the same sample of the input. The function runs on threads of the pool, right after what
    computes the sample, so it should release the GIL.
    """

    function: Any
    dtype: DType

    by_sample = True
    takes_arrays = True
    takes_long = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return self.dtype


def mapped(
    op: str, function: Callable[..., None], x: Node, shapes: Shapes, dtype: DType,
    layout: str | None, params: Any,
) -> Node:  # fmt: skip
    """A value in host memory that `function(params, sample, x, out)` writes sample by sample."""
    return make(op, Mapped(shapes.rank, function, dtype), (x,), shapes, layout, x.batch, params)
