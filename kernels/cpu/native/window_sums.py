"""Native helpers of `WindowLines`: they widen rows to float32, pad their borders and sum them.

This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir.dtypes import DType
from . import primitives as prims
from .block_sizes import GROUP
from .vectors import (  # fmt: skip
    F32,
    FLOATS,
    I64,
    element_type,
    fma,
    load_vector,
    make_widen,
    shuffled,
    splat,
    whole_blocks,
    widened,
)

_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]

# The tap loop keeps this many vectors of eight sums in registers.
_VECTORS = 8
# Sums of two lines are as wide as the CPU's registers, four vectors for each line. With 16 floats
# instead of 8, nine taps of 700 elements take 0.166 instead of 0.203 ns for each eight products
# (Zen 4). Sums along a row are bound by loads that straddle cache lines, whatever their width.
_WIDE = 2 * GROUP if llvm.get_host_cpu_features().get("avx512f", False) else GROUP
_WIDE_FLOATS = ir.VectorType(F32, _WIDE)
_PAIRS = 4


def _make_add_taps(is_fused: bool) -> Any:
    @intrinsic
    def add_taps(
        typingctx: Any, rows: Any, offset: Any, weights: Any, count: Any, n: Any, sums: Any
    ) -> Any:
        """The weighted sum of n elements, from `offset` on, of `count` rows at addresses `rows`.

        n must be at least 8, because the last block overlaps the one before it.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, offset, weights, count, n, sums = args
            rows = builder.inttoptr(rows, I64.as_pointer())
            weights, sums = (builder.inttoptr(x, F32.as_pointer()) for x in (weights, sums))
            # Start at -0.0, because adding it leaves every number as it is, even -0.0.
            zero = ir.Constant(FLOATS, [-0.0] * GROUP)

            def block(at: Any, vectors: int) -> None:
                held = [cgutils.alloca_once(builder, FLOATS) for _ in range(vectors)]
                for place in held:
                    builder.store(zero, place)
                first = builder.add(at, offset)
                with cgutils.for_range(builder, count) as taps:
                    address = builder.load(builder.gep(rows, [taps.index]))
                    row = builder.gep(builder.inttoptr(address, F32.as_pointer()), [first])
                    one = builder.load(builder.gep(weights, [taps.index]))
                    weight = splat(builder, one, GROUP)
                    for k, place in enumerate(held):
                        value = load_vector(builder, builder.gep(row, [I64(k * GROUP)]), FLOATS)
                        total = builder.load(place)
                        if is_fused:
                            total = builder.call(fma(builder, FLOATS), [weight, value, total])
                        else:
                            total = builder.fadd(total, builder.fmul(weight, value))
                        builder.store(total, place)
                for k, place in enumerate(held):
                    out = builder.gep(sums, [builder.add(at, I64(k * GROUP))])
                    to = builder.bitcast(out, FLOATS.as_pointer())
                    builder.store(builder.load(place), to).align = 4

            def blocks(vectors: int) -> None:
                """Cover n, which is at least one block, with blocks; the last may overlap."""
                whole_blocks(builder, n, vectors * GROUP, lambda at: block(at, vectors))

            few = builder.icmp_signed("<", n, I64(_VECTORS * GROUP))
            with builder.if_else(few) as (if_few, if_many):
                with if_few:
                    blocks(1)
                with if_many:
                    blocks(_VECTORS)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return add_taps


def sum_taps(is_fused: bool) -> Any:
    """The weighted sum of n elements of some rows, tap by tap; `is_fused`: with fma.

    It may read and write up to eight more elements.
    """
    add_taps = _make_add_taps(is_fused)

    def sum_taps(rows, offset, weights, count, n, sums):  # type: ignore[no-untyped-def]
        add_taps(rows, offset, weights, count, max(n, GROUP), sums)

    return sum_taps


def _make_add_pairs(is_fused: bool) -> Any:
    @intrinsic
    def add_pairs(
        typingctx: Any,
        rows: Any,
        weights: Any,
        count: Any,
        by: Any,
        n: Any,
        first: Any,
        second: Any,
    ) -> Any:
        """Two weighted sums of n elements: of `count` rows, and of `count` rows that begin `by`
        later in the list. Rows that both need are read once. n must be at least `_WIDE`."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, weights, count, by, n, *outs = args
            rows = builder.inttoptr(rows, I64.as_pointer())
            weights = builder.inttoptr(weights, F32.as_pointer())
            outs = [builder.inttoptr(x, F32.as_pointer()) for x in outs]
            zero = ir.Constant(_WIDE_FLOATS, [-0.0] * _WIDE)

            def add(place: Any, weight: Any, value: Any) -> None:
                total = builder.load(place)
                if is_fused:
                    total = builder.call(fma(builder, _WIDE_FLOATS), [weight, value, total])
                else:
                    total = builder.fadd(total, builder.fmul(weight, value))
                builder.store(total, place)

            def block(at: Any, vectors: int) -> None:
                held = [
                    [cgutils.alloca_once(builder, _WIDE_FLOATS) for _ in range(vectors)]
                    for _ in outs
                ]
                for place in (*held[0], *held[1]):
                    builder.store(zero, place)

                def taps(begin: Any, end: Any, sums: tuple[int, ...]) -> None:
                    with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
                        tap = builder.add(loop.index, begin)
                        address = builder.load(builder.gep(rows, [tap]))
                        row = builder.gep(builder.inttoptr(address, F32.as_pointer()), [at])
                        own = [tap, builder.sub(tap, by)]
                        factors = {
                            k: splat(builder, builder.load(builder.gep(weights, [own[k]])), _WIDE)
                            for k in sums
                        }
                        for v in range(vectors):
                            place = builder.gep(row, [I64(v * _WIDE)])
                            value = load_vector(builder, place, _WIDE_FLOATS)
                            for k in sums:
                                add(held[k][v], factors[k], value)

                taps(I64(0), by, (0,))
                taps(by, count, (0, 1))
                taps(count, builder.add(count, by), (1,))
                for out, places in zip(outs, held, strict=True):
                    for v, place in enumerate(places):
                        to = builder.gep(out, [builder.add(at, I64(v * _WIDE))])
                        to = builder.bitcast(to, _WIDE_FLOATS.as_pointer())
                        builder.store(builder.load(place), to).align = 4

            def blocks(vectors: int) -> None:
                whole_blocks(builder, n, vectors * _WIDE, lambda at: block(at, vectors))

            few = builder.icmp_signed("<", n, I64(_PAIRS * _WIDE))
            with builder.if_else(few) as (if_few, if_many):
                with if_few:
                    blocks(1)
                with if_many:
                    blocks(_PAIRS)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return add_pairs


def sum_pair(is_fused: bool) -> Any:
    """Two sums like those of `sum_taps`; a window has at least `by` rows."""
    add_pairs = _make_add_pairs(is_fused)

    def sum_pair(rows, weights, count, by, n, first, second):  # type: ignore[no-untyped-def]
        add_pairs(rows, weights, count, by, max(n, _WIDE), first, second)

    return sum_pair


@njit
def has_next(step, at, o, n, extent):  # type: ignore[no-untyped-def]
    """Whether lines `o` and `o + 1` are neighbouring rows of the image, and both exist."""
    here = step * o + at
    there = here + step
    exists = min(here, there) >= 0 and max(here, there) < extent
    return exists and o + 1 < n and (step == 1 or step == -1)


def _make_widen_pixels(dtype: DType, lanes: int) -> Any:
    element = element_type(dtype)

    @intrinsic
    def widen_pixels(typingctx: Any, src: Any, at: Any, to: Any, pitch: Any) -> Any:
        """Convert eight pixels to float32, each channel in its own plane."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            src, at, to, pitch = args
            src = builder.inttoptr(src, element.as_pointer())
            to = builder.inttoptr(to, F32.as_pointer())
            pixels = ir.VectorType(element, GROUP * lanes)
            place = builder.gep(src, [builder.mul(at, I64(lanes))])
            values = load_vector(builder, place, pixels, dtype.bytes)
            for lane in range(lanes):
                own = values
                if lanes > 1:
                    own = shuffled(builder, values, [k * lanes + lane for k in range(GROUP)])
                out = builder.gep(to, [builder.add(builder.mul(pitch, I64(lane)), at)])
                result = widened(builder, own, dtype, GROUP)
                builder.store(result, builder.bitcast(out, FLOATS.as_pointer())).align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return widen_pixels


def widen_row(dtype: DType, lanes: int) -> Any:
    """Convert n pixels to float32, each channel in its own plane, `pitch` elements apart."""
    widen_pixels, widen = _make_widen_pixels(dtype, lanes), make_widen(dtype)
    load = getattr(prims, f"load_{dtype}")

    def widen_row(src, n, to, pitch):  # type: ignore[no-untyped-def]
        if n < GROUP:
            for k in range(n * lanes):
                _put_f32(to, k % lanes * pitch + k // lanes, widen(load(src, k)))
            return
        for at in range(0, n - GROUP, GROUP):
            widen_pixels(src, at, to, pitch)
        widen_pixels(src, n - GROUP, to, pitch)

    return widen_row


@njit(inline="always")
def _reflect_101(v, n):  # type: ignore[no-untyped-def]
    around = max(2 * n - 2, 1)
    v = v % around
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

    The row's memory begins at position `origin`.
    """
    if border == "constant":
        return _fill_edges
    place = PLACES[border]

    def pad_edges(row, lanes, pitch, origin, begin, low, high, end, n, fill):  # type: ignore[no-untyped-def]
        for lane in range(lanes):
            plane = lane * pitch - origin
            for v in range(begin, low):
                _put_f32(row, plane + v, _get_f32(row, plane + place(v, n)))
            for v in range(high, end):
                _put_f32(row, plane + v, _get_f32(row, plane + place(v, n)))

    return pad_edges


def _fill_edges(row, lanes, pitch, origin, begin, low, high, end, n, fill):  # type: ignore[no-untyped-def]
    for lane in range(lanes):
        plane = lane * pitch - origin
        for v in range(begin, low):
            _put_f32(row, plane + v, fill)
        for v in range(high, end):
            _put_f32(row, plane + v, fill)


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
