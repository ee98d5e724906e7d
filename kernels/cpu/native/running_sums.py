"""Start and step → running sums of positions; see NOTE [running sums] in kernels/ir/expr.py.

Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from ...ir.expr import RUN, RUN_BITS, SHORT
from . import primitives as prims
from .block_sizes import GROUP
from .primitives import choose, fma_f32
from .vectors import FLOATS, I64, at_byte, fma, splat

_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_word = prims.bits_f32_u32  # type: ignore[attr-defined]
_number = prims.bits_u32_f32  # type: ignore[attr-defined]
_SHORT = np.float32(SHORT)


@njit(inline="always")
def _leap(s, step, left):  # type: ignore[no-untyped-def]
    """What the next steps add to a running sum, and for how many steps. See NOTE [running sums]."""
    once = s + step
    twice = once + step
    by = once - s
    if not (once < s or once > s):  # every further step leaves the sum as it is, or gives nan
        return choose(once == s, np.float32(0.0), by), left
    if by != twice - once or (_word(s) ^ _word(twice)) >> 23 != 0:
        return by, 1
    if (_word(s) ^ _word(fma_f32(np.float32(left + 1), by, s))) >> 23 == 0:
        return by, left
    power = _word(s) & np.uint32(0xFF800000)
    if (by > 0.0) == (s > 0.0):
        power += np.uint32(0x00800000)
    room = (_number(power) - s) / by * _SHORT
    return by, max(np.int64(min(room, np.float32(left))), 1)


@njit
def _after(s, step, left):  # type: ignore[no-untyped-def]
    """A running sum after `left` more steps."""
    while left > 0:
        by, n = _leap(s, step, left)
        s = s + step if n == 1 else fma_f32(np.float32(n), by, s)
        left -= n
    return s


@njit
def _sum_to(start, step, x):  # type: ignore[no-untyped-def]
    """The running sum at x, computed from its start: see `expr.stepped`."""
    return _after(_after(start, step * np.float32(RUN), x >> RUN_BITS), step, x & (RUN - 1))


@njit(inline="always")
def _known(kept, start, step, x):  # type: ignore[no-untyped-def]
    """Whether `_keep` has stored the running sum at x."""
    same = (_get_f32(kept, 2) == start) & (_get_f32(kept, 3) == step)
    return (_get_i64(kept, 0) == x) & same & (x & (RUN - 1) != 0)


@njit(inline="always")
def _keep(kept, start, step, x, s):  # type: ignore[no-untyped-def]
    """Store a running sum, so that a later call can continue from it."""
    _put_i64(kept, 0, x)
    _put_f32(kept, 2, start)
    _put_f32(kept, 3, step)
    _put_f32(kept, 4, s)


@njit
def stepped(kept, start, step, x):  # type: ignore[no-untyped-def]
    """One element of a running sum; fast if it follows the element of the previous call."""
    s = _get_f32(kept, 4) if _known(kept, start, step, x) else _sum_to(start, step, x)
    _keep(kept, start, step, x + 1, s + step)
    return s


@intrinsic
def _put_ramp(typingctx: Any, line: Any, at: Any, first: Any, step: Any, start: Any) -> Any:
    """Store start + k * step for eight numbers k, beginning with `first`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line, at, *numbers = args
        first, step, start = (splat(builder, number, GROUP) for number in numbers)
        k = builder.fadd(first, ir.Constant(FLOATS, [float(i) for i in range(GROUP)]))
        value = builder.call(fma(builder, FLOATS), [k, step, start])
        place = at_byte(builder, line, builder.mul(at, I64(4)), FLOATS)
        done = builder.store(value, place)
        done.align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 2, *[types.float32] * 3), codegen


def fill_steps(line, kept, n, x, by, origin, scale):  # type: ignore[no-untyped-def]
    """Store n elements of a running sum, from x on, `by` apart."""
    if by != 1 and by != -1:
        for k in range(n):
            _put_f32(line, k, _sum_to(origin, scale, x + by * k))
        return
    done, at = 0, x if by == 1 else x - (n - 1)
    while done < n:
        if _known(kept, origin, scale, at):
            s = _get_f32(kept, 4)
        else:
            s = _sum_to(origin, scale, at)
        left = min(n - done, RUN - (at & (RUN - 1)))
        at += left
        while left > 0:
            add, count = _leap(s, scale, left)
            for k in range(0, count, GROUP):
                _put_ramp(line, done + k, np.float32(np.int32(k)), add, s)
            _put_f32(line, done, s)  # the ramp gives nan here if `add` is infinite
            s = s + scale if count == 1 else fma_f32(np.float32(count), add, s)
            done += count
            left -= count
        _keep(kept, origin, scale, at, s)
    if by == -1:
        for k in range(n // 2):
            low, high = _get_f32(line, k), _get_f32(line, n - 1 - k)
            _put_f32(line, k, high)
            _put_f32(line, n - 1 - k, low)
