"""Rows of RGB pixels ↔ rows of luma and of chroma of half the size, as libjpeg converts them.

Factors have 16 bits; those that need more are split. Chroma is the mean of four pixels, with a
rounding that alternates between columns. On the way back it is interpolated: the nearest sample
counts three times as much as its neighbour, in both directions. Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .words import (
    BYTES,
    I8,
    LANES,
    WORDS,
    Words,
    constant,
    load,
    load_words,
    pointer,
    shuffle,
    store,
    widened,
)  # fmt: skip

_BITS = 16
_PIXELS = 3 * LANES  # bytes of a vector of pixels


def _fixed(x: float) -> int:
    return round(x * (1 << _BITS))


_ROUND = 1 << (_BITS - 1)
_HALF = 1 << 14  # 0.5 is this twice, which 16 bits can hold
_QUARTER = 1 << 14
_GREEN = _fixed(0.587) - _QUARTER


def _planes(builder: Any, place: Any) -> list[Words]:
    """The channels of sixteen pixels."""
    parts = [
        load(builder, builder.gep(place, [ir.IntType(64)(LANES * k)]), BYTES) for k in range(3)
    ]
    front = shuffle(builder, parts[0], parts[1], list(range(2 * LANES)))
    back = shuffle(builder, parts[2], parts[2], list(range(LANES)) * 2)
    return [
        widened(builder, shuffle(builder, front, back, [3 * k + c for k in range(LANES)]))
        for c in range(3)
    ]


def _interleaved(builder: Any, channels: list[Any]) -> list[Any]:
    """The bytes of sixteen pixels, of a vector for each channel."""
    front = shuffle(builder, channels[0], channels[1], list(range(2 * LANES)))
    back = shuffle(builder, channels[2], channels[2], list(range(LANES)) * 2)
    lanes = [(n % 3) * LANES + n // 3 for n in range(_PIXELS)]
    return [shuffle(builder, front, back, lanes[LANES * k : LANES * (k + 1)]) for k in range(3)]


@intrinsic
def to_planes(typingctx: Any, source: Any, luma: Any, blue: Any, red: Any) -> Any:
    """Convert sixteen pixels."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        r, g, b = _planes(builder, pointer(builder, args[0]))
        rg, bg = r.with_(g), b.with_(g)
        y = rg.dot(_fixed(0.299), _GREEN) + bg.dot(_fixed(0.114), _QUARTER) + _ROUND
        # 128 is added, and a rounding that keeps 255.5 from becoming 256.
        offset = (128 << _BITS) + _ROUND - 1
        cb = rg.dot(-_fixed(0.16874), -_fixed(0.33126)) + b.with_(b).dot(_HALF, _HALF)
        cr = bg.dot(-_fixed(0.08131), -_fixed(0.41869)) + r.with_(r).dot(_HALF, _HALF)
        for value, to in ((y, args[1]), (cb + offset, args[2]), (cr + offset, args[3])):
            store(builder, value.shifted(_BITS).bytes(), pointer(builder, to))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def halve_rows(typingctx: Any, first: Any, second: Any, to: Any) -> Any:
    """The means of 2×2 samples, for sixteen columns of the result."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = ir.VectorType(I8, 2 * LANES)
        total = Words(builder, constant(WORDS, 1, 2))
        for address in args[:2]:
            row = load(builder, pointer(builder, address), wide)
            for first in (0, 1):
                own = shuffle(builder, row, row, list(range(first, 2 * LANES, 2)))
                total = total + widened(builder, own)
        store(builder, (total >> 2).bytes(), pointer(builder, args[2]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def weigh_rows(typingctx: Any, near: Any, far: Any, to: Any) -> Any:
    """Sixteen sums of a sample, three times, and the one above or below."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        near, far = (widened(builder, load(builder, pointer(builder, a), BYTES)) for a in args[:2])
        store(builder, (near * 3 + far).value, pointer(builder, args[2]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _columns(builder: Any, place: Any) -> list[Words]:
    """Chroma of 32 pixels, less 128, of sums of rows; `place` has two more at either end."""
    sums = [load_words(builder, pointer(builder, place, n)) for n in (-2, 0, 2)]
    own = sums[1] * 3
    left, right = (own + sums[0] + 8) >> 4, (own + sums[2] + 7) >> 4
    halves = [[n for k in range(LANES // 2) for n in (k + h, LANES + k + h)] for h in (0, 8)]
    return [
        Words(builder, shuffle(builder, left.value, right.value, lanes)) - 128 for lanes in halves
    ]


def _scaled(x: Words, factor: int) -> Words:
    """Multiply by a factor below a half, and round halves up."""
    return ((x + x).high_product(factor, signed=True) + 1) >> 1


@intrinsic
def to_pixels(typingctx: Any, luma: Any, blue: Any, red: Any, target: Any) -> Any:
    """Convert 32 pixels; `blue` and `red` are sums of rows of chroma."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        luma, blue, red, target = args
        pairs = zip(_columns(builder, blue), _columns(builder, red), strict=True)
        for half, (cb, cr) in enumerate(pairs):
            y = widened(builder, load(builder, pointer(builder, luma, LANES * half), BYTES))
            # The factors are 1.402, 1.772 and 0.71414, less 1, 2 and 1.
            r = y + cr + _scaled(cr, _fixed(0.402))
            b = y + cb + cb + _scaled(cb, _fixed(1.772) - (2 << _BITS))
            green = cb.with_(cr).dot(-_fixed(0.34414), (1 << _BITS) - _fixed(0.71414))
            g = y - cr + green.rounded(_BITS)
            channels = [c.clamped(0, 255).bytes() for c in (r, g, b)]
            for k, part in enumerate(_interleaved(builder, channels)):
                store(builder, part, pointer(builder, target, _PIXELS * half + LANES * k))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen
