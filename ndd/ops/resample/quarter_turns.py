"""Rotations by multiples of 90 degrees: views that only move pixels, with the bits of the warp."""

from __future__ import annotations

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIInterpType, DType
from ...kernels.ir.expr import Expr
from .sampling import NN, rows_node

# Beyond ten full turns, rounding errors of the angle might move a pixel of a large image.
MAX_DEGREES = 3600.0


def can_turn(x: Node, interp: DALIInterpType, dtype: DType) -> bool:
    """Whether a warp that hits the centres of pixels keeps their bits.

    Interpolation does for numbers of up to 16 bits. It gives nan beside an infinite pixel.
    """
    exact = interp is NN or (x.dtype.is_integer and x.dtype.bits <= 16)
    return exact and dtype is x.dtype


def quarter_turns(x: Node, axes: list[int], degrees: Array, shapes: Shapes) -> Node | None:
    """`x` turned counter-clockwise by multiples of 90 degrees; None if the warp must do it.

    It must if an angle is something else, if the result has another size than the turned image, or
    if no sample is turned on its side: an angle never decides whether a kernel is compiled, with
    this one exception, which all batches of quarter turns share.
    """
    if len(axes) != 2 or bool(((degrees % 90 != 0) | (abs(degrees) > MAX_DEGREES)).any()):
        return None
    turns = (degrees // 90).astype(np.int64) % 4
    is_odd = turns % 2 == 1
    old, new = x.shapes.rows[:, axes], shapes.rows[:, axes]
    fits = new == np.where(is_odd[:, None], old[:, ::-1], old)
    if not (is_odd.any() and fits.all()):
        return None
    if len(turns) != shapes.count:
        turns, is_odd = turns.repeat(shapes.count), is_odd.repeat(shapes.count)
    moves = _moves(x, axes, turns)
    even, odd = (_turned(x, moves, is_odd == side, shapes, side) for side in (False, True))
    flags = rows_node(is_odd[:, None].astype(np.int32), x, dt.int32)
    every = tuple(range(x.rank))
    inputs, places = [even, odd, flags], [every, every, ()]
    return build.pointwise("rotate", _chosen, inputs, places, shapes, x.layout, batch=x.batch)


def _chosen(even: Expr, odd: Expr, flags: Expr) -> Expr:
    is_odd = ex.ne(ex.lookup(flags, ex.const(0, dt.int32)), 0)
    return ex.select(is_odd, odd, even)


def _moves(x: Node, axes: list[int], turns: Array) -> dict[int, tuple[Array, Array]]:
    """Per axis of the image, the step and the offset of every sample."""
    rows, columns = axes
    # Row k of the result is column n - 1 - k of the image after one turn, and column k after three.
    backwards = {rows: turns >= 2, columns: (turns == 1) | (turns == 2)}
    return {a: (1 - 2 * b, b * (x.shapes.rows[:, a] - 1)) for a, b in backwards.items()}


def _turned(
    x: Node, moves: dict[int, tuple[Array, Array]], own: Array, shapes: Shapes, on_side: bool
) -> Node:
    """The samples in `own`, turned; all others repeat their first pixel."""
    rows, columns = axes = tuple(moves)
    count = shapes.count
    step, offset = np.ones((count, x.rank), np.int64), np.zeros((count, x.rank), np.int64)
    for axis, (steps, offsets) in moves.items():
        step[:, axis], offset[:, axis] = steps * own, offsets * own
    mapping = list(range(x.rank))
    if on_side:
        mapping[rows], mapping[columns] = columns, rows
    return build.view("rotate", x, tuple(mapping), shapes, x.layout, offset, step, moved=axes,
                      stepped=axes)  # fmt: skip
