"""Eight rows of bytes → weighted sums of their columns; a vector holds all that 16 pixels read.

AVX-512 VBMI picks any 64 of 64 bytes at once. So if the two neighbours of 16 pixels lie within 64
bytes, as in every image that is enlarged linearly, one instruction picks a tap of all channels, and
the band of band_sums.py is not needed. The products and the order of the sums are the same.
Resizing 375×500 to 512×512 pixels takes 175 µs so, else 223 (Zen 5, one thread). Only imported to
compile something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir import dtypes as dt
from . import primitives as prims
from .block_sizes import BAND_ROWS
from .byte_tables import HAS_VBMI
from .vectors import F32, I32, I64, at_byte, joined, load_vector, shuffled, widened

_PIXELS = 16
_WINDOW = 64
_TAPS = 2  # of linear interpolation without a filter
_BYTE = ir.IntType(8)
_BYTES, _PLACES = ir.VectorType(_BYTE, _WINDOW), ir.VectorType(I32, _PIXELS)
_FLOATS = ir.VectorType(F32, _PIXELS)
_get_i32 = prims.get_i32  # type: ignore[attr-defined]


def _everywhere(builder: Any, number: Any) -> Any:
    one = builder.insert_element(
        ir.Constant(_PLACES, ir.Undefined), builder.trunc(number, I32), I32(0)
    )
    return shuffled(builder, one, [0] * _PIXELS)


def _picked(builder: Any, window: Any, places: Any) -> Any:
    kind = ir.FunctionType(_BYTES, [_BYTES] * 2)
    name = "llvm.x86.avx512.permvar.qi.512"
    fn = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(fn, [window, places])


def _make_block(lanes: int) -> Any:
    @intrinsic
    def sum_block(
        typingctx: Any, src: Any, stride: Any, n_in: Any, first: Any, weight: Any, n: Any,
        begin: Any, at: Any, lines: Any,
    ) -> Any:  # fmt: skip
        """Compute 16 pixels of eight lines, from 64 bytes of each row from byte `begin` on."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            src, stride, n_in, first, weight, n, begin, at, lines = args
            lines = builder.inttoptr(lines, I64.as_pointer())
            four = I64(4)
            place = at_byte(builder, first, builder.mul(at, four), _PLACES)
            firsts = load_vector(builder, place, _PLACES)
            last = _everywhere(builder, builder.sub(n_in, I64(1)))
            zero, base = ir.Constant(_PLACES, [0] * _PIXELS), _everywhere(builder, begin)

            def places_of(tap: int) -> Any:
                """Where each channel of each pixel lies in the window."""
                x = builder.add(firsts, ir.Constant(_PLACES, [tap] * _PIXELS))
                x = builder.select(builder.icmp_signed("<", x, zero), zero, x)
                x = builder.select(builder.icmp_signed("<", x, last), x, last)
                x = builder.mul(x, ir.Constant(_PLACES, [lanes] * _PIXELS))
                x = builder.sub(x, base)
                kind = ir.VectorType(_BYTE, _PIXELS)
                own = [
                    builder.trunc(builder.add(x, ir.Constant(_PLACES, [c] * _PIXELS)), kind)
                    for c in (*range(lanes), *[0] * (4 - lanes))
                ]
                return joined(builder, own)

            def factors_of(tap: int) -> Any:
                place = builder.add(builder.mul(n, I64(tap)), at)
                place = at_byte(builder, weight, builder.mul(place, four), _FLOATS)
                return load_vector(builder, place, _FLOATS)

            taps = [(places_of(t), factors_of(t)) for t in range(_TAPS)]
            for k in range(BAND_ROWS):
                start = builder.add(builder.mul(stride, I64(k)), begin)
                window = load_vector(builder, at_byte(builder, src, start, _BYTES), _BYTES, 1)
                line = builder.load(builder.gep(lines, [I64(k)]))
                found = [(_picked(builder, window, places), factors) for places, factors in taps]
                for c in range(lanes):
                    own = [_PIXELS * c + j for j in range(_PIXELS)]
                    products = []
                    for values, factors in found:
                        wide = widened(builder, shuffled(builder, values, own), dt.uint8, _PIXELS)
                        products.append(builder.fmul(factors, wide))
                    place = builder.mul(builder.add(builder.mul(n, I64(c)), at), four)
                    to = at_byte(builder, line, place, _FLOATS)
                    builder.store(builder.fadd(*products), to).align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), codegen

    return sum_block


def _ends(first, at):  # type: ignore[no-untyped-def]
    """The least and the greatest first tap of 16 pixels, whose positions ascend or descend."""
    a, b = np.int64(_get_i32(first, at)), np.int64(_get_i32(first, at + _PIXELS - 1))
    return min(a, b), max(a, b)


def sum_windows(dtype: dt.DType, lanes: int) -> Any:
    """A function that does what `band_sums.sum_band` does, if it can; it returns whether it did."""

    def never(src, stride, n_in, first, weight, n, count, lines):  # type: ignore[no-untyped-def]
        return False

    if dtype is not dt.uint8 or not HAS_VBMI or lanes > 4:
        return njit(inline="always")(never)
    block = _make_block(lanes)
    ends = njit(inline="always")(_ends)

    def windows(src, stride, n_in, first, weight, n, count, lines):  # type: ignore[no-untyped-def]
        last = n_in * lanes - _WINDOW  # where the last window of a row begins
        if n < _PIXELS or last < 0 or count != _TAPS:
            return False
        for k in range(0, n, _PIXELS):
            at = min(k, n - _PIXELS)
            low, high = ends(first, at)
            begin = min(max(low, 0) * lanes, last)
            if min(high + count, n_in) * lanes - begin > _WINDOW:
                return False
        for k in range(0, n, _PIXELS):
            at = min(k, n - _PIXELS)
            low, _ = ends(first, at)
            begin = min(max(low, 0) * lanes, last)
            block(src, stride, n_in, first, weight, n, begin, at, lines)
        return True

    return njit(inline="always")(windows)
