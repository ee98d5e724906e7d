"""Take: elements at listed positions along some axes, such as mirrored borders or chosen frames.

A view reads `step * o + offset`; where no such formula exists, the positions are an operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ..graph.node import Node, source
from ..graph.shapes import Array, Shapes
from ..graph.storage import Held, Storage
from .opaque import transfer
from .pointwise import pointwise


class Listed(NamedTuple):
    """Positions along an axis: those of all samples one after the other, `counts` for each."""

    axis: int
    positions: Array
    counts: Array


def take(op: str, x: Node, listed: Sequence[Listed], batch: bool) -> Node:
    """The elements of `x` at these positions; the caller has checked that they lie inside."""
    rows = np.array(x.shapes.rows)
    for axis, _, counts in listed:
        rows[:, axis] = counts
    inputs = [x, *(_operand(part, x, batch) for part in listed)]
    chosen = tuple(part.axis for part in listed)
    axes = [tuple(range(x.rank)), *((axis,) for axis in chosen)]
    return pointwise(op, _taken, inputs, axes, Shapes(rows), x.layout, (chosen,), batch)


def _taken(x: Expr, *rest: Expr) -> Expr:
    *positions, axes = rest
    return ex.fetch(x, *zip(axes, positions, strict=True))  # type: ignore[call-overload]


def _operand(part: Listed, x: Node, batch: bool) -> Node:
    """The positions as a vector per sample, on the device of `x`."""
    memory = np.ascontiguousarray(part.positions, np.int32)
    begin = np.cumsum(part.counts) - part.counts
    addresses = memory.ctypes.data + memory.itemsize * begin
    shapes = Shapes(np.ascontiguousarray(part.counts, np.int64)[:, None])
    node = source(Storage(addresses, Held([memory])), shapes, dt.int32, batch=batch)
    return node if x.device is None else transfer(node, x.device)
