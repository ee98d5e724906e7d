"""Rows of a picture with colours at half its size (YUV 4:2:0) → rows of RGB.

Computes what FFmpeg's swscale does with accurate rounding and interpolated colours: each colour is
interpolated between the nearest two rows and the nearest two columns (weights of a quarter, without
rounding), and each pixel is rounded once. Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import primitives as prims
from .vectors import I32, I64, at_byte, chosen, joined, load_vector, shuffled, whole_blocks

_get_u8, _put_u8 = prims.get_u8, prims.put_u8  # type: ignore[attr-defined]
_get_i64 = prims.get_i64  # type: ignore[attr-defined]
HAS_AVX2 = bool(llvm.get_host_cpu_features().get("avx2", False))
_LANES = 8  # colours at a time, which are twice as many pixels
_I8, _I16 = ir.IntType(8), ir.IntType(16)
_BYTES, _SHORTS = ir.VectorType(_I8, _LANES), ir.VectorType(_I16, _LANES)
_PIXELS = 2 * _LANES
_WIDE = ir.VectorType(I32, _PIXELS)
# Columns of the job, see `yuv420_rows`.
_BLACK, _FACTORS, _ROUND, _WEIGHTS = 10, 11, 16, 17
_ROUNDING = 16  # the number in column `_ROUND`
# NOTE [bright blue] swscale computes 32 times our sums, with 32 bits. A blue that is far brighter
# than a screen can show overflows and becomes black, so ours does, too.
_HALF, _UP, _DOWN = 1 << 16, 5, 22
_GREY = 2048  # 16 times the value of a colour that is not there


def _every(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * kind.count)


def _spread(builder: Any, job: Any, column: int, kind: Any) -> Any:
    """A number of the job in all lanes."""
    cell = builder.load(at_byte(builder, job, I64(8 * column), I64))
    number = builder.trunc(cell, kind.element)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, I32(0))
    return shuffled(builder, one, [0] * kind.count)


def _colours(builder: Any, near: Any, far: Any, at: Any, weights: list[Any]) -> Any:
    """Sixteen times the colours of 16 pixels, less that of grey."""

    def shorts(row: Any, by: int) -> Any:
        place = at_byte(builder, row, builder.add(at, I64(by)), _BYTES)
        return builder.zext(load_vector(builder, place, _BYTES, 1), _SHORTS)

    def blended(by: int) -> Any:
        three = builder.mul(shorts(near, by), _every(_SHORTS, 3))
        return builder.add(three, shorts(far, by))

    left, own, right = (blended(by) for by in (-1, 0, 1))
    pairs = []
    for beside, (first, second) in ((left, weights[:2]), (right, weights[2:])):
        total = builder.add(builder.mul(own, first), builder.mul(beside, second))
        pairs.append(builder.sub(total, _every(_SHORTS, _GREY)))
    return chosen(builder, pairs[0], pairs[1], [k // 2 + k % 2 * _LANES for k in range(_PIXELS)])


def _pixels(builder: Any, total: Any) -> Any:
    """Pixels from their sums. See NOTE [bright blue]."""
    wrapped = builder.shl(total, _every(total.type, _UP))
    return builder.ashr(wrapped, _every(total.type, _DOWN))


def _plain_channels(builder: Any, job: Any) -> Any:
    """A function of levels and colours that gives the channels as one vector of bytes each."""
    luma, red_v, green_v, green_u, blue_u = (
        _spread(builder, job, _FACTORS + k, _WIDE) for k in range(5)
    )

    def channels(level: Any, u: Any, v: Any) -> list[Any]:
        level, u, v = (builder.sext(x, _WIDE) for x in (level, u, v))
        base = builder.add(builder.mul(level, luma), _every(_WIDE, _HALF))
        green = builder.add(builder.mul(v, green_v), builder.mul(u, green_u))
        found = []
        for colour in (builder.mul(v, red_v), green, builder.mul(u, blue_u)):
            value = _pixels(builder, builder.add(base, colour))
            for limit, sign in ((0, "<"), (255, ">")):
                bound = _every(_WIDE, limit)
                value = builder.select(builder.icmp_signed(sign, value, bound), bound, value)
            found.append(builder.trunc(value, ir.VectorType(_I8, _PIXELS)))
        return found

    return channels


def _avx2_channels(builder: Any, job: Any) -> Any:
    """The same with AVX2, which multiplies pairs of 16 bits and adds both products."""
    both = ir.VectorType(I32, _LANES)

    def call(name: str, result: Any, a: Any, b: Any) -> Any:
        kind = ir.FunctionType(result, [a.type, b.type])
        fn = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx2.{name}")
        return builder.call(fn, [a, b])

    def pairs(a: Any, b: Any) -> list[Any]:
        """Elements of both, alternating, in the order that `packssdw` undoes."""
        return [
            chosen(builder, a, b, [first + half + k // 2 + k % 2 * _PIXELS
                                   for half in (0, 8) for k in range(8)])
            for first in (0, 4)
        ]  # fmt: skip

    def factors(*columns: int) -> Any:
        own = [_spread(builder, job, c, ir.VectorType(_I16, _PIXELS)) for c in columns]
        return chosen(builder, own[0], own[1], [k % 2 * _PIXELS for k in range(_PIXELS)])

    red, green, blue = (factors(_FACTORS, _FACTORS + k) for k in (1, 2, 4))
    beside = factors(_FACTORS + 3, _ROUND)
    half = _every(both, _HALF)
    one = _every(ir.VectorType(_I16, _PIXELS), _HALF // _ROUNDING)

    def sums(values: Any, weights: Any) -> list[Any]:
        return [call("pmadd.wd", both, part, weights) for part in values]

    def packed(parts: list[Any], more: list[Any]) -> Any:
        done = [_pixels(builder, builder.add(a, b)) for a, b in zip(parts, more, strict=True)]
        return call("packssdw", one.type, *done)

    def channels(level: Any, u: Any, v: Any) -> list[Any]:
        with_v, with_u = pairs(level, v), pairs(level, u)
        r = packed(sums(with_v, red), [half, half])
        g = packed(sums(with_v, green), sums(pairs(u, one), beside))
        b = packed(sums(with_u, blue), [half, half])
        wide = ir.VectorType(_I8, 2 * _PIXELS)
        rg, bb = call("packuswb", wide, r, g), call("packuswb", wide, b, b)
        halves = [[*range(k, k + 8), *range(16 + k, 24 + k)] for k in (0, 8)]
        return [
            *(shuffled(builder, rg, lanes) for lanes in halves),
            shuffled(builder, bb, halves[0]),
        ]

    return channels


def _store_woven(builder: Any, channels: list[Any], target: Any) -> None:
    """Store 16 pixels: the channels side by side."""
    two = joined(builder, channels[:2])
    for k in range(3):
        places = range(_PIXELS * k, _PIXELS * (k + 1))
        part = shuffled(builder, two, [p // 3 + p % 3 % 2 * _PIXELS for p in places])
        lanes = [p // 3 + _PIXELS if p % 3 == 2 else i for i, p in enumerate(places)]
        value = chosen(builder, part, channels[2], lanes)
        done = builder.store(value, at_byte(builder, target, I64(_PIXELS * k), value.type))
        done.align = 1


@intrinsic
def _blocks(
    typingctx: Any, y: Any, u: Any, u_far: Any, v: Any, v_far: Any, out: Any, n: Any, job: Any
) -> Any:
    """Convert 2 n pixels, n being at least 8, whose colours have neighbours on both sides."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        y, u, u_far, v, v_far, out, n, job = args
        shorts, bytes_ = ir.VectorType(_I16, _PIXELS), ir.VectorType(_I8, _PIXELS)
        weights = [_spread(builder, job, _WEIGHTS + k, _SHORTS) for k in range(4)]
        black = _spread(builder, job, _BLACK, shorts)
        channels = (_avx2_channels if HAS_AVX2 else _plain_channels)(builder, job)

        def block(at: Any) -> None:
            place = at_byte(builder, y, builder.mul(at, I64(2)), bytes_)
            level = builder.zext(load_vector(builder, place, bytes_, 1), shorts)
            level = builder.sub(builder.shl(level, _every(shorts, 4)), black)
            us = _colours(builder, u, u_far, at, weights)
            vs = _colours(builder, v, v_far, at, weights)
            found = channels(level, us, vs)
            _store_woven(builder, found, builder.add(out, builder.mul(at, I64(6))))

        whole_blocks(builder, n, _LANES, block)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), codegen


@njit
def _pixel(total):  # type: ignore[no-untyped-def]
    """See NOTE [bright blue]."""
    value = np.int64(np.int32(total << _UP)) >> _DOWN
    return np.uint8(min(max(value, 0), 255))  # type: ignore[arg-type]


@njit
def _put_pixel(out, at, level, u, v, job):  # type: ignore[no-untyped-def]
    base = ((level << 4) - _get_i64(job, 10)) * _get_i64(job, 11) + _HALF
    u, v = u - _GREY, v - _GREY
    _put_u8(out, at, _pixel(base + v * _get_i64(job, 12)))
    _put_u8(out, at + 1, _pixel(base + v * _get_i64(job, 13) + u * _get_i64(job, 14)))
    _put_u8(out, at + 2, _pixel(base + u * _get_i64(job, 15)))


@njit
def _colour(near, far, i, beside, own, other):  # type: ignore[no-untyped-def]
    here = 3 * np.int64(_get_u8(near, i)) + np.int64(_get_u8(far, i))
    there = 3 * np.int64(_get_u8(near, beside)) + np.int64(_get_u8(far, beside))
    return here * own + there * other


@njit
def _pairs(y, u, u_far, v, v_far, out, first, end, half, job):  # type: ignore[no-untyped-def]
    """Convert the two pixels of each colour, one after the other."""
    for i in range(first, end):
        for odd in range(2):
            beside = min(i + 1, half - 1) if odd else max(i - 1, 0)
            own, other = _get_i64(job, 17 + 2 * odd), _get_i64(job, 18 + 2 * odd)
            level = np.int64(_get_u8(y, 2 * i + odd))
            blue = _colour(u, u_far, i, beside, own, other)
            red = _colour(v, v_far, i, beside, own, other)
            _put_pixel(out, 6 * i + 3 * odd, level, blue, red, job)


def yuv420_rows(job, top, rows):  # type: ignore[no-untyped-def]
    """Write rows of a picture of even size as RGB.

    The job has the address and the stride of Y, U, V and of the result, which begins at row `top`;
    width and height; 16 times the level of black, and the factors of Y, of V for red, of V and of U
    for green, of U for blue; 16; the weights of a colour and of the one before it at even columns,
    and those of a colour and of the one behind it at odd ones.
    """
    half, lines = _get_i64(job, 8) // 2, _get_i64(job, 9) // 2
    for k in range(rows):
        row = top + k
        i = row // 2
        j = min(i + 1, lines - 1) if row % 2 else max(i - 1, 0)
        y = _get_i64(job, 0) + row * _get_i64(job, 1)
        u, u_stride = _get_i64(job, 2), _get_i64(job, 3)
        v, v_stride = _get_i64(job, 4), _get_i64(job, 5)
        u, u_far = u + i * u_stride, u + j * u_stride
        v, v_far = v + i * v_stride, v + j * v_stride
        out = _get_i64(job, 6) + k * _get_i64(job, 7)
        n = half - 2
        if n >= _LANES:
            _pairs(y, u, u_far, v, v_far, out, 0, 1, half, job)
            _blocks(y + 2, u + 1, u_far + 1, v + 1, v_far + 1, out + 6, n, job)
            _pairs(y, u, u_far, v, v_far, out, half - 1, half, half, job)
        else:
            _pairs(y, u, u_far, v, v_far, out, 0, half, half, job)
