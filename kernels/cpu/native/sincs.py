"""Native helper of `SincLines`: resamples a block of a signal.

This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir.sinc import BLOCK, KNOTS
from . import primitives as prims
from .block_sizes import GROUP
from .vectors import F32, FLOATS, I64, load_vector, splat, transposed

_stack = prims.stack_256  # type: ignore[attr-defined]
_as_f64 = prims.bits_i64_f64  # type: ignore[attr-defined]


@intrinsic
def _weigh(
    typingctx: Any, samples: Any, low: Any, high: Any, taps: Any, between: Any, to: Any
) -> Any:
    """The lanes whose sum is a result: samples weighted by two rows of the table, interpolated.

    NOTE [order of taps] Lane l of eight sums taps l, l + 8, … of each row, in order, and takes a
    value between both sums. Then lanes l and l + 4 are added, l and l + 2, and the last two.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        samples, low, high, taps, between, to = args
        samples, low, high = (builder.inttoptr(x, F32.as_pointer()) for x in (samples, low, high))
        held = [cgutils.alloca_once(builder, FLOATS) for _ in range(2)]
        for place in held:
            builder.store(ir.Constant(FLOATS, [0.0] * GROUP), place)
        with cgutils.for_range(builder, builder.sdiv(taps, I64(GROUP))) as loop:
            at = builder.mul(loop.index, I64(GROUP))
            value = load_vector(builder, builder.gep(samples, [at]), FLOATS)
            for row, place in zip((low, high), held, strict=True):
                weight = load_vector(builder, builder.gep(row, [at]), FLOATS)
                term = builder.fmul(weight, value)
                builder.store(builder.fadd(builder.load(place), term), place)
        a, b = (builder.load(place) for place in held)
        more = builder.fmul(splat(builder, between, GROUP), builder.fsub(b, a))
        out = builder.inttoptr(to, FLOATS.as_pointer())
        builder.store(builder.fadd(a, more), out).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4, types.float32, types.int64), codegen


@intrinsic
def _add_lanes(typingctx: Any, lanes: Any, to: Any) -> Any:
    """Add up the lanes of eight results."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lanes, to = args
        lanes = builder.inttoptr(lanes, F32.as_pointer())
        rows = [
            load_vector(builder, builder.gep(lanes, [I64(k * GROUP)]), FLOATS) for k in range(GROUP)
        ]
        rows = transposed(builder, rows)
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [builder.fadd(a, b) for a, b in zip(rows[:half], rows[half:], strict=True)]
        builder.store(rows[0], builder.inttoptr(to, FLOATS.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 2), codegen


@njit
def block_start(block, step):  # type: ignore[no-untyped-def]
    """The sample before the first result of a block, and the fraction that lies between them."""
    position = np.float64(block * BLOCK) * _as_f64(step)
    base = math.floor(position)
    return np.int64(base), np.float32(position - base)


def resample_block(samples, block, step, taps, reach, table, to):  # type: ignore[no-untyped-def]
    """Resample block number `block`; `samples` are the `reach` samples from its first tap on.

    `step` is the distance of results, in samples: a float64, by its bits. If the signal has fewer
    results than a block, those behind its last one are rubbish that nobody reads.
    """
    _, at = block_start(block, step)
    by = np.float32(_as_f64(step))
    lanes = _stack()
    for group in range(0, BLOCK, GROUP):
        for k in range(GROUP):
            whole = np.int64(at)
            place = (np.float32(1.0) - (at - np.float32(whole))) * np.float32(KNOTS)
            knot = np.int64(place)
            row = table + knot * taps * 4
            first = samples + min(whole, reach - taps) * 4
            between = place - np.float32(knot)
            _weigh(first, row, row + taps * 4, taps, between, lanes + k * GROUP * 4)
            at = np.float32(at + by)
        _add_lanes(lanes, to + group * 4)
