"""Native helpers of `WindowLines`: they widen rows to float32, pad their borders and turn lines.

This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from ...ir.dtypes import DType
from . import primitives as prims
from .block_sizes import GROUP
from .vectors import (  # fmt: skip
    F32,
    I64,
    element_type,
    load_vector,
    make_widen,
    shuffled,
    widened,
)
from .window_sums import WIDE

_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]


def _make_widen_pixels(dtype: DType, lanes: int, count: int) -> Any:
    element = element_type(dtype)
    floats = ir.VectorType(F32, count)

    @intrinsic
    def widen_pixels(typingctx: Any, src: Any, at: Any, to: Any, pitch: Any) -> Any:
        """Convert `count` pixels to float32, each channel in its own plane."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            src, at, to, pitch = args
            src = builder.inttoptr(src, element.as_pointer())
            to = builder.inttoptr(to, F32.as_pointer())
            pixels = ir.VectorType(element, count * lanes)
            place = builder.gep(src, [builder.mul(at, I64(lanes))])
            values = load_vector(builder, place, pixels, dtype.bytes)
            for lane in range(lanes):
                own = values
                if lanes > 1:
                    own = shuffled(builder, values, [k * lanes + lane for k in range(count)])
                out = builder.gep(to, [builder.add(builder.mul(pitch, I64(lane)), at)])
                result = widened(builder, own, dtype, count)
                builder.store(result, builder.bitcast(out, floats.as_pointer())).align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return widen_pixels


def widen_row(dtype: DType, lanes: int) -> Any:
    """Convert n pixels to float32, each channel in its own plane, `pitch` elements apart."""
    widen, eight = make_widen(dtype), _make_widen_pixels(dtype, lanes, GROUP)
    many = _make_widen_pixels(dtype, lanes, WIDE)
    load = getattr(prims, f"load_{dtype}")

    def widen_row(src, n, to, pitch):  # type: ignore[no-untyped-def]
        if n < GROUP:
            for k in range(n * lanes):
                _put_f32(to, k % lanes * pitch + k // lanes, widen(load(src, k)))
            return
        if n < WIDE:
            for at in range(0, n - GROUP, GROUP):
                eight(src, at, to, pitch)
            eight(src, n - GROUP, to, pitch)
            return
        for at in range(0, n - WIDE, WIDE):
            many(src, at, to, pitch)
        many(src, n - WIDE, to, pitch)

    return widen_row


# -- borders ---------------------------------------------------------------------------------------


@njit(inline="always")
def _reflect_101(v, n):  # type: ignore[no-untyped-def]
    around = 2 * n - 2
    v = max(v, -v)
    if v > around:  # test first, because a division takes longer than all the rest
        v = v % max(around, 1)
    return min(v, around - v)


@njit(inline="always")
def _reflect_1001(v, n):  # type: ignore[no-untyped-def]
    v = v % (2 * n)
    return min(v, 2 * n - 1 - v)


@njit(inline="always")
def _clamp(v, n):  # type: ignore[no-untyped-def]
    return min(max(v, 0), n - 1)


@njit(inline="always")
def _wrap(v, n):  # type: ignore[no-untyped-def]
    return v % n


PLACES = {
    "reflect_101": _reflect_101, "reflect_1001": _reflect_1001, "clamp": _clamp, "wrap": _wrap,
}  # fmt: skip


def pad_edges(border: str) -> Any:
    """Pad a row of an image n wide, from `begin` to `low` and from `high` to `end`.

    The row's memory begins at position `base`.
    """
    if border == "constant":
        return _fill_edges
    place = PLACES[border]

    def pad_one(row, lanes, pitch, base, v, n):  # type: ignore[no-untyped-def]
        to, at = row + (v - base) * 4, row + (place(v, n) - base) * 4
        for lane in range(lanes):
            _put_f32(to, lane * pitch, _get_f32(at, lane * pitch))

    pad = njit(inline="always")(pad_one)

    def pad_edges(row, lanes, pitch, base, begin, low, high, end, n, fill):  # type: ignore[no-untyped-def]
        for v in range(begin, low):
            pad(row, lanes, pitch, base, v, n)
        for v in range(high, end):
            pad(row, lanes, pitch, base, v, n)

    return pad_edges


def _fill_edges(row, lanes, pitch, base, begin, low, high, end, n, fill):  # type: ignore[no-untyped-def]
    for lane in range(lanes):
        plane = lane * pitch - base
        for v in range(begin, low):
            _put_f32(row, plane + v, fill)
        for v in range(high, end):
            _put_f32(row, plane + v, fill)


# -- lines -----------------------------------------------------------------------------------------


def turn_line(src, pitch, to, room, lanes, n, step, first, columns):  # type: ignore[no-untyped-def]
    """Copy elements first, first + step, … of each plane to a plane of another row.

    Positions outside of the plane read the nearest element, whose value nobody uses.
    """
    for lane in range(lanes):
        own, out = src + lane * pitch * 4, to + lane * room * 4
        if step == -1 and first < columns and first >= n - 1:
            for k in range(n):
                _put_f32(out, k, _get_f32(own, first - k))
        else:
            for k in range(n):
                _put_f32(out, k, _get_f32(own, min(max(first + step * k, 0), columns - 1)))


def add_scaled(line, part, n, onto, scale):  # type: ignore[no-untyped-def]
    """Set `line` to scale * part; if `onto`, add that to it instead."""
    if onto:
        for k in range(n):
            _put_f32(line, k, _get_f32(line, k) + scale * _get_f32(part, k))
    else:
        for k in range(n):
            _put_f32(line, k, scale * _get_f32(part, k))
