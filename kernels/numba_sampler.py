"""What interpolating CPU kernels need beyond `numba_prims`: taps, and sums of neighbours in SIMD.

Imported only when something is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import dtypes as dt
from . import numba_prims as prims
from .cpu_lines import TILE_COLUMNS
from .dtypes import DType
from .numba_prims import choose, fma_f32

_i32, _i64, _f32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_store_f32, _store_i32 = prims.store_f32_7, prims.store_i32_7  # type: ignore[attr-defined]
_get_i32 = prims.get_i32  # type: ignore[attr-defined]
_put_i32, _floor, _ceil = prims.put_i32, prims.floor_f32, prims.ceil_f32  # type: ignore[attr-defined]


@intrinsic
def as_f32(typingctx: Any, word: Any) -> Any:
    """The float32 in the low half of a table's cell."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], _i32), _f32)

    return types.float32(types.int64), codegen


def _fma(builder: Any, kind: ir.Type) -> Any:
    name = "f32" if kind == _f32 else f"v{kind.count}f32"
    function = ir.FunctionType(kind, [kind] * 3)
    return cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.{name}")


@njit  # type: ignore[untyped-decorator]
def fill_taps(
    first, weight, n, step, at, n_out, n_in, count, nearest, table, origin, scale, stretch
):  # type: ignore[no-untyped-def]  # noqa: E501
    """First taps (i32) and weights (f32) of outputs 0 … n-1, at positions step * o + at; and the
    range of input pixels that they need. See kernels/taps.py.

    Weights beyond a border are folded, so that all taps lie inside of the input.
    """
    kept = min(count, n_in)
    lowest, highest = n_in, 0
    for o in range(n):
        i = min(max(step * o + at, 0), n_out - 1)
        s = np.float32(i) * scale + origin
        rounded = _floor(s) if nearest else _ceil(s)
        # far outside all taps are the border pixel, and an integer holds the position
        bound = np.float32(n_in + count + 1)
        whole = np.int64(min(max(rounded, -bound), bound))
        start = min(max(whole, 0), n_in - kept)
        base = o * kept
        total = np.float32(0.0)
        for k in range(kept):
            _put_f32(weight, base + k, np.float32(0.0))
        for k in range(count):
            total += _filter(table, (np.float32(whole + k) - s) * stretch)
        for k in range(count):
            w = _filter(table, (np.float32(whole + k) - s) * stretch) / total
            tap = min(max(whole + k, 0), n_in - 1) - start
            _put_f32(weight, base + tap, _get_f32(weight, base + tap) + w)
        _put_i32(first, o, np.int32(start))
        lowest, highest = min(lowest, start), max(highest, start + kept)
    return lowest, highest


@njit(inline="always")  # type: ignore[untyped-decorator]
def _filter(table, x):  # type: ignore[no-untyped-def]
    j = np.int64(x)
    low = _get_f32(table, j)
    return low + (x - np.float32(j)) * (_get_f32(table, j + 1) - low)


def _make_sum(lanes: int, columns: int) -> Any:
    width = 4 if lanes == 3 else lanes
    vector = ir.VectorType(_f32, width) if width > 1 else _f32

    @intrinsic
    def sum_columns(
        typingctx: Any, row: Any, first: Any, weight: Any, n: Any, count: Any, begin: Any, line: Any
    ) -> Any:
        """Every pixel of a line: `count` pixels of the row, weighted. `columns`: that count, or 0
        if it is known only at run time."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row, first, weight, n, count, begin, line = args
            if columns:
                count = ir.Constant(_i64, columns)
            row = builder.inttoptr(row, _f32.as_pointer())
            first = builder.inttoptr(first, _i32.as_pointer())
            weight = builder.inttoptr(weight, _f32.as_pointer())
            line = builder.inttoptr(line, _f32.as_pointer())

            def tap(pixel: Any, weights: Any, k: Any) -> tuple[Any, Any]:
                w = builder.load(builder.gep(weights, [k]))
                place = builder.gep(row, [builder.mul(builder.add(pixel, k), _i64(lanes))])
                return _splat(builder, w, width), _load(builder, place, vector)

            with cgutils.for_range(builder, n) as loop:
                start = builder.load(builder.gep(first, [loop.index]))
                pixel = builder.sub(builder.sext(start, _i64), begin)
                weights = builder.gep(weight, [builder.mul(loop.index, count)])
                total = builder.fmul(*tap(pixel, weights, _i64(0)))
                if columns:
                    for k in range(1, columns):
                        values = tap(pixel, weights, _i64(k))
                        total = builder.call(_fma(builder, vector), [*values, total])
                else:
                    held = cgutils.alloca_once_value(builder, total)
                    left = builder.sub(count, _i64(1))
                    with cgutils.for_range(builder, left) as inner:
                        k = builder.add(inner.index, _i64(1))
                        values = tap(pixel, weights, k)
                        new = builder.call(_fma(builder, vector), [*values, builder.load(held)])
                        builder.store(new, held)
                    total = builder.load(held)
                out = builder.gep(line, [builder.mul(loop.index, _i64(width))])
                done = builder.store(total, builder.bitcast(out, vector.as_pointer()))
                done.align = 4
            return context.get_dummy_value()

        return types.void(*([types.int64] * 7)), codegen

    return sum_columns


def _splat(builder: Any, value: Any, width: int) -> Any:
    if width == 1:
        return value
    vector = ir.VectorType(_f32, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _i32(0))
    lanes = ir.Constant(ir.VectorType(_i32, width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)


def _load(builder: Any, place: Any, vector: ir.Type) -> Any:
    value = builder.load(builder.bitcast(place, vector.as_pointer()))
    value.align = 4
    return value


for _lanes in (1, 2, 3, 4):
    for _columns in range(7):
        globals()[f"sum_columns_{_lanes}_{_columns}"] = _make_sum(_lanes, _columns)


# -- bilinear ----------------------------------------------------------------------------------------


def _as_f32(builder: Any, value: Any, dtype: DType, count: int) -> Any:
    """Elements as they lie in memory, as float32."""

    def like(kind: ir.Type) -> ir.Type:
        return ir.VectorType(kind, count) if count > 1 else kind

    if dtype is dt.float32:
        return value
    if dtype is dt.float64:
        return builder.fptrunc(value, like(_f32))
    if dtype is dt.float16 and prims.HAS_F16C:
        return builder.fpext(builder.bitcast(value, like(ir.HalfType())), like(_f32))
    if dtype is dt.bfloat16:
        shift = ir.Constant(like(_i32), [16] * count if count > 1 else 16)
        return builder.bitcast(builder.shl(builder.zext(value, like(_i32)), shift), like(_f32))
    signed = dtype.kind is DType.Kind.signed
    if dtype.bits < 32:  # through a signed type, for which the CPU has an instruction
        value = (builder.sext if signed else builder.zext)(value, like(_i32))
        signed = True
    return (builder.sitofp if signed else builder.uitofp)(value, like(_f32))


def _element(dtype: DType) -> ir.Type:
    known = {dt.float32: _f32, dt.float64: ir.DoubleType()}
    return known.get(dtype, ir.IntType(dtype.bits))


def _make_quad(dtype: DType, lanes: int) -> Any:
    """Interpolates between four pixels whose lanes follow each other, into a line of pixels."""
    count = 1 << (2 * lanes - 1).bit_length()  # elements read: two pixels, or a few more
    width = 4 if lanes == 3 else lanes
    vector = ir.VectorType(_f32, count)

    @intrinsic
    def quad(
        typingctx: Any, base: Any, at: Any, row: Any, fy: Any, fx: Any, line: Any, pixel: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base, at, row, fy, fx, line, pixel = args
            element = _element(dtype)
            pointer = builder.inttoptr(base, element.as_pointer())

            def pixels(offset: Any) -> Any:
                kind = ir.VectorType(element, count)
                place = builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())
                loaded = builder.load(place)
                loaded.align = dtype.bytes
                return _as_f32(builder, loaded, dtype, count)

            def between(low: Any, high: Any, f: Any) -> Any:
                f = _splat(builder, f, count)
                return builder.call(_fma(builder, vector), [f, builder.fsub(high, low), low])

            def chosen(value: Any, lanes: list[int]) -> Any:
                places = ir.Constant(ir.VectorType(_i32, len(lanes)), lanes)
                return builder.shuffle_vector(value, ir.Constant(vector, ir.Undefined), places)

            column = between(pixels(at), pixels(builder.add(at, row)), fy)
            second = [min(k + lanes, count - 1) for k in range(count)]
            total = between(column, chosen(column, second), fx)
            kind = ir.VectorType(_f32, width)
            out = builder.gep(builder.inttoptr(line, _f32.as_pointer()), [
                builder.mul(pixel, _i64(width))
            ])  # fmt: skip
            done = builder.store(
                chosen(total, list(range(width))), builder.bitcast(out, kind.as_pointer())
            )
            done.align = 4
            return context.get_dummy_value()

        numbers = [types.int64] * 3 + [types.float32] * 2 + [types.int64] * 2
        return types.void(*numbers), codegen

    return quad


def _make_widen(dtype: DType) -> Any:
    @intrinsic
    def widen(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _as_f32(builder, args[0], dtype, 1)

        return types.float32(prims.REGISTER[dtype]), codegen

    if dtype is dt.float16 and not prims.HAS_F16C:
        return prims.f16_to_f32
    return widen


@njit(inline="always")  # type: ignore[untyped-decorator]
def _between(a, b, f):  # type: ignore[no-untyped-def]
    return fma_f32(f, b - a, a)


@njit(inline="always")  # type: ignore[untyped-decorator]
def place(places, i, y, x, h, w):  # type: ignore[no-untyped-def]
    """Note the first row and column around a position, and the weights of the second ones."""
    # one pixel beyond the border all is said, and a nan becomes the first pixel
    low = np.float32(-1.0)
    bottom, right = np.float32(h), np.float32(w)
    y, x = choose(y >= low, y, low), choose(x >= low, x, low)
    y, x = choose(y < bottom, y, bottom), choose(x < right, x, right)
    y0, x0 = _floor(y), _floor(x)
    _store_i32(places, i, np.int32(y0))
    _store_i32(places, i + TILE_COLUMNS, np.int32(x0))
    _store_f32(places, i + 2 * TILE_COLUMNS, y - y0)
    _store_f32(places, i + 3 * TILE_COLUMNS, x - x0)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _all_inside(places, n, end):  # type: ignore[no-untyped-def]
    """Whether none of n numbers is negative, or `end` or more."""
    lowest, highest = np.int32(0), np.int32(0)
    for i in range(n):
        k = _get_i32(places, i)
        lowest = choose(k < lowest, k, lowest)
        highest = choose(k > highest, k, highest)
    return lowest >= 0 and highest < end


def _make_bilinear(dtype: DType, lanes: int, filled: bool, run: bool) -> Any:
    """`expr.bilinear` for the pixels of a tile, all lanes at once, into a line of float32.

    `run`: pixels follow each other in memory. Then those inside of the image are two vectors.
    """
    load = getattr(prims, f"load_{dtype}")
    widen = _make_widen(dtype)
    quad = _make_quad(dtype, lanes)
    ahead = 2 if lanes == 3 else 1
    pitch = 4 if lanes == 3 else lanes

    @njit(inline="always")  # type: ignore[untyped-decorator]
    def tap(base, offset, sy, sx, h, w, y, x, fill):  # type: ignore[no-untyped-def]
        r, c = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
        value = widen(load(base, offset + r * sy + c * sx))
        return fill if filled and (r != y or c != x) else value

    @njit  # type: ignore[untyped-decorator]
    def anywhere(base, offset, sy, sx, h, w, y, x, fy, fx, line, pixel, fill):  # type: ignore[no-untyped-def]
        for lane in range(lanes):
            p00 = tap(base, offset + lane, sy, sx, h, w, y, x, fill)
            p01 = tap(base, offset + lane, sy, sx, h, w, y, x + 1, fill)
            p10 = tap(base, offset + lane, sy, sx, h, w, y + 1, x, fill)
            p11 = tap(base, offset + lane, sy, sx, h, w, y + 1, x + 1, fill)
            value = _between(_between(p00, p10, fy), _between(p01, p11, fy), fx)
            _store_f32(line, pixel * pitch + lane, value)

    @njit  # type: ignore[untyped-decorator]
    def bilinear(base, offset, sy, sx, height, width, places, n, line, fill):  # type: ignore[no-untyped-def]
        h, w = np.int64(height), np.int64(width)
        inside = run and _all_inside(places, n, h - 1)
        inside = inside and _all_inside(places + 4 * TILE_COLUMNS, n, w - ahead)
        for i in range(n):
            y, x = np.int64(_get_i32(places, i)), np.int64(_get_i32(places, i + TILE_COLUMNS))
            fy = _get_f32(places, i + 2 * TILE_COLUMNS)
            fx = _get_f32(places, i + 3 * TILE_COLUMNS)
            if run and (inside or (np.uint64(y) < np.uint64(h - 1) and x >= 0 and x < w - ahead)):
                quad(base, offset + y * sy + x * lanes, sy, fy, fx, line, i)
            else:
                anywhere(base, offset, sy, sx, h, w, y, x, fy, fx, line, i, fill)

    return bilinear


def __getattr__(name: str) -> Any:
    """`bilinear_u8_3_run`, …: made when a kernel first asks for one."""
    parts = name.split("_")
    if parts[0] != "bilinear":
        raise AttributeError(name)
    made = _make_bilinear(DType.parse(parts[1]), int(parts[2]), "fill" in parts, "run" in parts)
    globals()[name] = made
    return made
