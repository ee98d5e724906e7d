"""Eight rows of an image → weighted sums of their columns; a vector holds one element of each row.

If a kernel sums neighbours within one row, a pixel fills only half a register, and each weight has
to be broadcast to its channels. So we transpose eight rows first, into a band: some columns at a
time, few enough for the L1 cache. Then a tap is one product for eight rows, and at the end we
transpose the sums back. For 5 taps and 3 channels that takes two thirds of the instructions.

Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir.dtypes import DType
from . import primitives as prims
from . import window_bytes
from .block_sizes import BAND_COLUMNS, BAND_ROWS, GROUP
from .vectors import (  # fmt: skip
    F32,
    FLOATS,
    I32,
    I64,
    at_byte,
    chosen,
    element_type,
    load_vector,
    planes,
    shuffled,
    splat,
    whole_blocks,
    widened,
)

_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_get_i32 = prims.get_i32  # type: ignore[attr-defined]

_MAX_COUNT = 6  # up to this many taps are unrolled
_FRONT, _BACK = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
_BYTES = 4 * BAND_ROWS  # one element of all rows of a band, as float32


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """Eight vectors of eight numbers, transposed."""
    upper, lower = planes(builder, rows[:4]), planes(builder, rows[4:])
    return [
        chosen(builder, a, b, half)
        for half in (_FRONT, _BACK)
        for a, b in zip(upper, lower, strict=True)
    ]


def _store(builder: Any, value: Any, place: Any, align: int = 4) -> None:
    to = builder.bitcast(place, value.type.as_pointer())
    builder.store(value, to).align = align


def _blocks(builder: Any, n: Any, size: int, whole: Any, one: Any) -> None:
    """Call `whole` for blocks of `size` elements that cover n; the last two blocks may overlap.

    If n is less than `size`, call `one` for each element instead.
    """
    fits = builder.icmp_signed(">=", n, I64(size))
    with builder.if_else(fits) as (then, otherwise):
        with then:
            whole_blocks(builder, n, size, whole)
        with otherwise, cgutils.for_range(builder, n) as loop:
            one(loop.index)


def _interleaved(builder: Any, rows: list[Any], bits: int = 8) -> list[Any]:
    """Eight vectors of 32 bytes, transposed.

    The first result holds elements 0, 1, 16 and 17 of all rows, the next one 2, 3, 18 and 19, and
    so on, because AVX2 interleaves within each half of a register.
    """
    if len(rows) == 1:
        return rows
    n = 256 // bits
    rows = [builder.bitcast(row, ir.VectorType(ir.IntType(bits), n)) for row in rows]
    result = []
    for quarter in (0, n // 4):
        places = [half + quarter + k for half in (0, n // 2) for k in range(n // 4)]
        lanes = [place + row for place in places for row in (0, n)]
        pairs = zip(rows[::2], rows[1::2], strict=True)
        result += _interleaved(builder, [chosen(builder, a, b, lanes) for a, b in pairs], 2 * bits)
    return result


def _make_turn(dtype: DType) -> Any:
    element = element_type(dtype)

    @intrinsic
    def turn(typingctx: Any, src: Any, stride: Any, n: Any, band: Any, store: Any) -> Any:
        """Transpose elements 0 … n-1 of eight rows into a band; the first row begins at `src`.

        Bytes are transposed into `store` and then converted to floats: this order takes fewer
        instructions.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            src, stride, n, band, store = args
            step = builder.mul(stride, I64(dtype.bytes))
            rows = [
                at_byte(builder, src, builder.mul(step, I64(k)), element) for k in range(BAND_ROWS)
            ]
            to = builder.inttoptr(band, F32.as_pointer())

            def loaded(row: Any, at: Any, kind: ir.Type) -> Any:
                return load_vector(builder, builder.gep(row, [at]), kind, dtype.bytes)

            def columns(at: Any) -> None:
                kind = ir.VectorType(element, GROUP)
                values = [widened(builder, loaded(r, at, kind), dtype, GROUP) for r in rows]
                for k, column in enumerate(_turned(builder, values)):
                    place = builder.mul(builder.add(at, I64(k)), I64(BAND_ROWS))
                    _store(builder, column, builder.gep(to, [place]))

            def column(at: Any, to: Any, as_it_is: bool = False) -> None:
                for k, row in enumerate(rows):
                    place = builder.add(builder.mul(at, I64(BAND_ROWS)), I64(k))
                    value = loaded(row, at, element)
                    value = value if as_it_is else widened(builder, value, dtype, 1)
                    _store(builder, value, builder.gep(to, [place]), dtype.bytes)

            if dtype.bytes > 1:
                _blocks(builder, n, GROUP, columns, lambda at: column(at, to))
                return context.get_dummy_value()

            bytes_to = builder.inttoptr(store, element.as_pointer())

            def byte_columns(at: Any) -> None:
                kind = ir.VectorType(element, 32)
                for k, found in enumerate(
                    _interleaved(builder, [loaded(r, at, kind) for r in rows])
                ):
                    pairs = builder.bitcast(found, ir.VectorType(I64, 4))
                    for half in (0, 1):
                        pair = shuffled(builder, pairs, [2 * half, 2 * half + 1])
                        place = builder.add(at, I64(2 * k + 16 * half))
                        place = builder.gep(bytes_to, [builder.mul(place, I64(BAND_ROWS))])
                        _store(builder, pair, place, 1)

            _blocks(builder, n, 32, byte_columns, lambda at: column(at, bytes_to, True))
            with cgutils.for_range(builder, n) as loop:
                place = builder.mul(loop.index, I64(BAND_ROWS))
                kind = ir.VectorType(element, BAND_ROWS)
                values = load_vector(builder, builder.gep(bytes_to, [place]), kind, 1)
                values = widened(builder, values, dtype, BAND_ROWS)
                _store(builder, values, builder.gep(to, [place]))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return turn


def _make_sum(lanes: int, static: int) -> Any:
    @intrinsic
    def sum_pixels(
        typingctx: Any, band: Any, first: Any, weight: Any, n: Any, count: Any, held: Any
    ) -> Any:
        """Compute the next eight pixels of eight lines, and write them to `held`, pixel by pixel.

        `static` is the number of taps, or 0 if it is known only at run time.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            band, first, weight, n, count, held = args
            first = builder.inttoptr(first, I32.as_pointer())
            weight, held = (builder.inttoptr(x, F32.as_pointer()) for x in (weight, held))

            def products(start: Any, pixel: Any, tap: Any) -> list[Any]:
                place = builder.add(builder.mul(tap, n), pixel)
                own = splat(builder, builder.load(builder.gep(weight, [place])), BAND_ROWS)
                column = builder.mul(tap, I64(lanes * BAND_ROWS))
                places = [builder.add(column, I64(k * BAND_ROWS)) for k in range(lanes)]
                loads = [load_vector(builder, builder.gep(start, [p]), FLOATS) for p in places]
                return [builder.fmul(own, values) for values in loads]

            def sums(start: Any, pixel: Any) -> list[Any]:
                total = products(start, pixel, I64(0))
                for tap in range(1, static):
                    more = products(start, pixel, I64(tap))
                    total = [builder.fadd(a, b) for a, b in zip(total, more, strict=True)]
                if static:
                    return total
                places = [cgutils.alloca_once_value(builder, t) for t in total]
                with cgutils.for_range(builder, builder.sub(count, I64(1))) as taps:
                    more = products(start, pixel, builder.add(taps.index, I64(1)))
                    for place, value in zip(places, more, strict=True):
                        builder.store(builder.fadd(builder.load(place), value), place)
                return [builder.load(place) for place in places]

            with cgutils.for_range(builder, I64(GROUP)) as loop:
                pixel = loop.index
                start = builder.sext(builder.load(builder.gep(first, [pixel])), I64)
                start = at_byte(builder, band, builder.mul(start, I64(lanes * _BYTES)), F32)
                for lane, total in enumerate(sums(start, pixel)):
                    place = builder.add(builder.mul(pixel, I64(lanes)), I64(lane))
                    place = builder.mul(place, I64(BAND_ROWS))
                    _store(builder, total, builder.gep(held, [place]))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return sum_pixels


def _make_turn_back(lanes: int) -> Any:
    @intrinsic
    def turn_back(typingctx: Any, held: Any, lines: Any, n: Any, at: Any) -> Any:
        """Transpose eight pixels of eight lines back, and store them in their lines."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            held, lines, n, at = args
            held = builder.inttoptr(held, F32.as_pointer())
            lines = builder.inttoptr(lines, I64.as_pointer())
            tos = [builder.load(builder.gep(lines, [I64(k)])) for k in range(BAND_ROWS)]
            tos = [builder.inttoptr(to, F32.as_pointer()) for to in tos]
            with cgutils.for_range(builder, I64(lanes)) as loop:
                start = builder.gep(held, [builder.mul(loop.index, I64(BAND_ROWS))])
                places = [I64(k * lanes * BAND_ROWS) for k in range(GROUP)]
                pixels = [load_vector(builder, builder.gep(start, [p]), FLOATS) for p in places]
                place = builder.add(builder.mul(n, loop.index), at)
                for to, line in zip(tos, _turned(builder, pixels), strict=True):
                    _store(builder, line, builder.gep(to, [place]))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return turn_back


def sum_band(dtype: DType, lanes: int) -> Any:
    """A function that sums the columns of eight rows, as `sum_columns` does for one row.

    The first row begins at `src`; the sums go to eight `lines`. Eight pixels must not need more
    than BAND_COLUMNS columns. It is one long function, because Numba would compile every function
    that it calls a second time.
    """
    sums = [_make_sum(lanes, count) for count in range(_MAX_COUNT + 1)]
    anything, one, two, three, four, five, six = sums
    turn, turn_back = _make_turn(dtype), _make_turn_back(lanes)
    sum_windows = window_bytes.sum_windows(dtype, lanes)
    pixel, width, column = lanes * dtype.bytes, lanes * BAND_ROWS, lanes * _BYTES

    def sum_band(src, stride, n_in, first, weight, n, count, band, lines):  # type: ignore[no-untyped-def]
        if sum_windows(src, stride, n_in, first, weight, n, count, lines):
            return
        store = band + column * BAND_COLUMNS
        held = store + width * BAND_COLUMNS
        at = 0
        while at < n:
            low, high, upto = n_in, -count, at
            while upto < n:  # as many groups of pixels as fit into the band
                a, b = np.int64(_get_i32(first, upto)), np.int64(_get_i32(first, upto + GROUP - 1))
                lower, higher = min(low, a, b), max(high, a + count, b + count)
                if upto > at and higher - lower > BAND_COLUMNS:
                    break
                low, high, upto = lower, higher, upto + GROUP
            begin = min(max(low, 0), n_in - 1)
            end = max(min(high, n_in), begin + 1)
            low = min(low, begin)
            inner = band + (begin - low) * column
            turn(src + begin * pixel, stride, (end - begin) * lanes, inner, store)
            for k in range((begin - low) * width):  # repeat the border pixels
                _put_f32(band, k, _get_f32(inner, k % width))
            last = inner + (end - begin - 1) * column
            for k in range(width, (high - end + 1) * width):
                _put_f32(last, k, _get_f32(last, k % width))
            base = band - low * column
            while at < upto:
                starts, weights = first + 4 * at, weight + 4 * at
                if count == 1:
                    one(base, starts, weights, n, count, held)
                elif count == 2:
                    two(base, starts, weights, n, count, held)
                elif count == 3:
                    three(base, starts, weights, n, count, held)
                elif count == 4:
                    four(base, starts, weights, n, count, held)
                elif count == 5:
                    five(base, starts, weights, n, count, held)
                elif count == 6:
                    six(base, starts, weights, n, count, held)
                else:
                    anything(base, starts, weights, n, count, held)
                turn_back(held, lines, n, at)
                at += GROUP

    return sum_band
