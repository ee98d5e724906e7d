"""Positions of a tile → bilinearly interpolated pixels, eight at a time and all channels at once.

Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from ...ir import dtypes as dt
from ...ir.dtypes import DType
from ..annotations.inner import inner
from ..lines import TILE_COLUMNS
from . import primitives as prims
from .block_sizes import GROUP
from .primitives import choose, fma_f32
from .vectors import (  # fmt: skip
    F32,
    FLOATS,
    I32,
    I64,
    INTS,
    ask_for,
    at_byte,
    between_vectors,
    chosen,
    element_type,
    load_vector,
    make_widen,
    planes,
    shuffled,
    splat,
    spread_f32,
    spread_i32,
    vector_function,
    widened,
)

_get_f32, _store_f32 = prims.get_f32, prims.store_f32_7  # type: ignore[attr-defined]
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_get_i32, _floor = prims.get_i32, prims.floor_f32  # type: ignore[attr-defined]
LINES_AHEAD = 8


def _two_pixels(builder: Any, pointer: Any, dtype: DType, lanes: int) -> Any:
    """The lanes of a pixel and of its right neighbour, each padded to two or four, as float32."""
    element = element_type(dtype)
    width = 4 if lanes == 3 else lanes
    if dtype is dt.uint8 and lanes == 3:  # a single byte shuffle places all bytes
        loaded = builder.load(builder.bitcast(pointer, I64.as_pointer()))
        loaded.align = 1
        wide = ir.VectorType(I64, 4)
        spread = shuffled(
            builder,
            builder.insert_element(ir.Constant(wide, ir.Undefined), loaded, I32(0)),
            [0] * 4,
        )
        spread = builder.bitcast(spread, ir.VectorType(ir.IntType(8), 32))
        places = [32] * 32
        places[0:12:4], places[16:28:4] = [0, 1, 2], [19, 20, 21]
        none = ir.Constant(spread.type, None)
        whole = builder.bitcast(chosen(builder, spread, none, places), INTS)
        return builder.sitofp(whole, FLOATS)
    kind = ir.VectorType(element, 2 * width)  # with three lanes, a little more than two pixels
    loaded = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    loaded.align = dtype.bytes
    if lanes == 3:
        loaded = shuffled(builder, loaded, [0, 1, 2, 2, 3, 4, 5, 5])
    return widened(builder, loaded, dtype, 2 * width)


def _weighed(builder: Any, at: Any, extent: Any, filled: bool) -> tuple[Any, Any]:
    """The first of the two pixels around each position (i32), and the weight of the second."""
    one = extent.type(1)
    if filled:  # see NOTE [wild positions]
        low, high = ir.Constant(FLOATS, [-1.0] * GROUP), spread_f32(builder, extent)
    else:
        low = ir.Constant(FLOATS, [0.0] * GROUP)
        high = spread_f32(builder, builder.sub(extent, one))
    at = builder.select(builder.fcmp_ordered(">", at, low), at, low)
    at = builder.select(builder.fcmp_ordered("<", at, high), at, high)
    if filled:
        base = builder.call(vector_function(builder, "floor"), [at])
        return builder.fptosi(base, INTS), builder.fsub(at, base)
    whole = builder.fptosi(at, INTS)
    last = spread_i32(builder, builder.sub(extent, extent.type(2)))
    whole = builder.select(builder.icmp_signed("<", whole, last), whole, last)
    return whole, builder.fsub(at, builder.sitofp(whole, FLOATS))


def _single(
    builder: Any, dtype: DType, starts: list[Any], offsets: list[Any], fy: Any, fx: Any
) -> Any:
    """Eight interpolated pixels of one channel; each pair of pixels is loaded as one integer."""
    pair = ir.IntType(2 * dtype.bits)
    rows = []
    for start in starts:
        words = ir.Constant(ir.VectorType(pair, GROUP), ir.Undefined)
        for k, offset in enumerate(offsets):
            word = builder.load(at_byte(builder, start, offset, pair))
            word.align = dtype.bytes
            words = builder.insert_element(words, word, I32(k))
        rows.append(builder.bitcast(words, ir.VectorType(element_type(dtype), 2 * GROUP)))
    columns = []
    for side in (0, 1):
        which = list(range(side, 2 * GROUP, 2))
        top, bottom = (widened(builder, shuffled(builder, r, which), dtype, GROUP) for r in rows)
        columns.append(between_vectors(builder, top, bottom, fy))
    return between_vectors(builder, columns[0], columns[1], fx)


def _interpolated(
    builder: Any, dtype: DType, lanes: int, starts: list[Any], offsets: list[Any], weights: Any,
    fy: Any, fx: Any,
) -> list[Any]:  # fmt: skip
    """Eight interpolated pixels, in one register per lane."""
    if lanes == 1:
        return [_single(builder, dtype, starts, offsets, fy, fx)]
    width = 4 if lanes == 3 else lanes

    def column(k: int) -> Any:
        """Pixel k and its right neighbour, each interpolated between two rows."""
        places = [at_byte(builder, start, offsets[k], element_type(dtype)) for start in starts]
        top, bottom = (_two_pixels(builder, place, dtype, lanes) for place in places)
        # Load the weight again: broadcasting it from memory costs no extra instruction.
        f = builder.load(builder.gep(weights, [I64(k)]))
        return between_vectors(builder, top, bottom, splat(builder, f, 2 * width))

    if lanes == 2:
        both = [chosen(builder, column(k), column(k + 4), list(range(8))) for k in range(4)]
        a, b, c, d = planes(builder, both)
        return [between_vectors(builder, *pair, fx) for pair in ((a, c), (b, d))]
    pixels = []
    for k in range(4):
        pair = column(k), column(k + 4)
        low = chosen(builder, *pair, [0, 1, 2, 3, 8, 9, 10, 11])
        high = chosen(builder, *pair, [4, 5, 6, 7, 12, 13, 14, 15])
        f = shuffled(builder, fx, [k] * 4 + [k + 4] * 4)
        pixels.append(between_vectors(builder, low, high, f))
    return planes(builder, pixels)[:lanes]


def _make_find(dtype: DType, lanes: int, filled: bool) -> Any:
    @intrinsic
    def find(
        typingctx: Any, places: Any, i: Any, n: Any, row: Any, h: Any, w: Any, last: Any
    ) -> Any:
        """Store offsets and weights of pixels i … i + 7 of n; return whether vectors may read them.

        Offsets and strides are in bytes; `last` is the last offset at which a vector may be read.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            places, i, n, row, h, w, last = args

            def place(which: int, kind: ir.Type) -> Any:
                return _at_pixel(builder, places, i, which, kind)

            rows, fy = _weighed(builder, load_vector(builder, place(0, F32), FLOATS), h, filled)
            columns, fx = _weighed(builder, load_vector(builder, place(1, F32), FLOATS), w, filled)
            step = ir.Constant(INTS, [lanes * dtype.bytes] * GROUP)
            where = builder.add(
                builder.mul(rows, spread_i32(builder, row)), builder.mul(columns, step)
            )
            good = builder.icmp_signed("<=", where, spread_i32(builder, last))
            if filled:
                for index, extent in ((rows, h), (columns, w)):
                    pairs = spread_i32(builder, builder.sub(extent, I64(1)))
                    good = builder.and_(good, builder.icmp_unsigned("<", index, pairs))
            counted = ir.Constant(INTS, list(range(GROUP)))
            spare = builder.icmp_signed(">=", counted, spread_i32(builder, builder.sub(n, i)))
            where = builder.select(spare, ir.Constant(INTS, [0] * GROUP), where)
            for which, value in ((2, where), (3, fy), (4, fx)):
                done = builder.store(value, place(which, value.type))
                done.align = 4
            mask = builder.bitcast(builder.or_(good, spare), ir.IntType(GROUP))
            return builder.icmp_unsigned("==", mask, mask.type(-1))

        return types.boolean(*[types.int64] * 7), codegen

    return find


def _make_group(dtype: DType, lanes: int) -> Any:
    @intrinsic
    def group(
        typingctx: Any, base: Any, row: Any, ahead: Any, places: Any, i: Any, line: Any
    ) -> Any:
        """Interpolate pixels i … i + 7, and prefetch the source `ahead` bytes further on."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base, row, ahead, places, i, line = args
            numbers = _at_pixel(builder, places, i, 2, I32)
            offsets = [
                builder.sext(builder.load(builder.gep(numbers, [I64(k)])), I64)
                for k in range(GROUP)
            ]
            for k in range(0, GROUP, 4):
                ask_for(builder, builder.add(builder.add(base, ahead), offsets[k]))
            starts = [base, builder.add(base, row)]
            weights = _at_pixel(builder, places, i, 3, F32)
            fy = load_vector(builder, weights, FLOATS)
            fx = load_vector(builder, _at_pixel(builder, places, i, 4, F32), FLOATS)
            found = _interpolated(builder, dtype, lanes, starts, offsets, weights, fy, fx)
            for lane, plane in enumerate(found):
                done = builder.store(plane, _at_pixel(builder, line, i, lane, FLOATS))
                done.align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return group


def _at_pixel(builder: Any, table: Any, i: Any, which: int, kind: ir.Type) -> Any:
    """Pointer to pixel i in row `which` of an array with TILE_COLUMNS columns."""
    nbytes = builder.mul(builder.add(i, I64(which * TILE_COLUMNS)), I64(4))
    return at_byte(builder, table, nbytes, kind)


@njit(inline="always")
def _between(a, b, f):  # type: ignore[no-untyped-def]
    return fma_f32(f, b - a, a)


@njit(inline="always")
def note(places, i, y, x):  # type: ignore[no-untyped-def]
    """Store the position of pixel i."""
    _store_f32(places, i, y)
    _store_f32(places, i + TILE_COLUMNS, x)


@njit(inline="always")
def _pair(at, n):  # type: ignore[no-untyped-def]
    """First pixel around a position, and the weight of the second. See NOTE [wild positions]."""
    low, end = np.float32(-1.0), np.float32(n)
    at = choose(at >= low, at, low)
    at = choose(at < end, at, end)
    base = _floor(at)
    return np.int64(base), at - base


@njit(inline="always")
def _pair_clamped(at, n):  # type: ignore[no-untyped-def]
    """Like `_pair`, for a position that is clamped to the border."""
    zero, last = np.float32(0.0), np.float32(n - 1)
    at = choose(at > zero, at, zero)
    at = choose(at < last, at, last)
    first = max(min(np.int64(at), n - 2), 0)
    return first, at - np.float32(first)


# `places` holds, for each pixel of a tile, two coordinates, an offset and two weights. After these
# come the offset at which the previous line began, and the distance at which to prefetch.
_BEFORE, _AHEAD = 5 * TILE_COLUMNS // 2, 5 * TILE_COLUMNS // 2 + 1  # counted in 64-bit numbers


def make_bilinear(dtype: DType, lanes: int, filled: bool, run: bool) -> Any:
    """A function that computes `expr.bilinear` for a tile, into one float32 line per lane.

    `run` says that the pixels of a row are contiguous. Then those inside the image are read as
    vectors.
    """
    load = getattr(prims, f"load_{dtype}")
    widen = make_widen(dtype)
    find, group = _make_find(dtype, lanes, filled), _make_group(dtype, lanes)
    pair = _pair if filled else _pair_clamped
    size, finite = dtype.bytes, not dtype.is_float
    read = (4 if lanes == 3 else lanes) * 2  # elements of a vector: two pixels, or a few more

    @njit(inline="always")
    def tap(base, offset, sy, sx, h, w, y, x, fill):  # type: ignore[no-untyped-def]
        r, c = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
        value = widen(load(base, offset + r * sy + c * sx))
        return fill if filled and (r != y or c != x) else value

    @inner
    def anywhere(base, offset, sy, sx, h, w, places, pixel, line, fill):  # type: ignore[no-untyped-def]
        y, fy = pair(_get_f32(places, pixel), h)
        x, fx = pair(_get_f32(places, pixel + TILE_COLUMNS), w)
        # Integers only: an infinity in the image counts even if its weight is zero (inf * 0 = nan).
        if finite and filled and not (-1.0 < y + fy < h and -1.0 < x + fx < w):
            for lane in range(lanes):
                _store_f32(line, lane * TILE_COLUMNS + pixel, fill)
            return
        for lane in range(lanes):
            p00 = tap(base, offset + lane, sy, sx, h, w, y, x, fill)
            p01 = tap(base, offset + lane, sy, sx, h, w, y, x + 1, fill)
            p10 = tap(base, offset + lane, sy, sx, h, w, y + 1, x, fill)
            p11 = tap(base, offset + lane, sy, sx, h, w, y + 1, x + 1, fill)
            value = _between(_between(p00, p10, fy), _between(p01, p11, fy), fx)
            _store_f32(line, lane * TILE_COLUMNS + pixel, value)

    def bilinear(base, offset, sy, sx, height, width, places, n, line, fill):  # type: ignore[no-untyped-def]
        h, w = np.int64(height), np.int64(width)
        # A vector must not reach beyond the last element of the image.
        end = max((h - 1) * sy, 0) + w * lanes
        last = (end - max(sy, 0) - read) * size
        fits = (abs((h - 1) * sy) + w * lanes) * size < 2**31
        vectors = run and fits and h > 1 and w > 1 and last >= 0
        first, row, ahead = base + offset * size, sy * size, _get_i64(places, _AHEAD)
        # All positions first, then all pixels, so that the CPU need not wait for the positions.
        good = vectors
        if vectors:
            for i in range(0, n, GROUP):
                good &= find(places, i, n, row, h, w, last)
        for i in range(0, n, GROUP):
            if good or (vectors and find(places, i, n, row, h, w, last)):
                group(first, row, ahead, places, i, line)
            else:
                for pixel in range(i, min(i + GROUP, n)):
                    anywhere(base, offset, sy, sx, h, w, places, pixel, line, fill)
        start = np.int64(_get_i32(places, 2 * TILE_COLUMNS))
        _put_i64(places, _AHEAD, (start - _get_i64(places, _BEFORE)) * LINES_AHEAD)
        _put_i64(places, _BEFORE, start)

    return bilinear
