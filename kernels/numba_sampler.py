"""What interpolating CPU kernels need beyond `numba_prims`: taps, and sums of neighbours in SIMD.

Imported only when something is compiled.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
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
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
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


def fill_taps(  # type: ignore[no-untyped-def]
    first, weight, n, step, at, n_out, n_in, count, nearest, base, table, origin, scale, stretch
):
    """First taps (i32) and weights (f32) of outputs 0 … n-1, at positions step * o + at; behind the
    first taps, the range of all of them. They may lie beyond a border. See kernels/taps.py.
    """
    lowest, highest = n_in, -count
    # far outside all taps are the border pixel, and an integer holds the position
    bound = np.float32(n_in + count + 1)
    summed, reached = origin + np.float32(0.5) * scale, 0
    for k in range(n):
        o = k if step >= 0 else n - 1 - k  # positions in ascending order
        i = min(max(step * o + at, 0), n_out - 1)
        if nearest == 2:
            while reached < i:
                summed += scale
                reached += 1
            s = summed
        elif nearest == 1:
            s = (np.float32(i) + np.float32(0.5)) * scale + origin
        else:
            s = np.float32(i) * scale + origin
        s = min(max(s, -bound), bound)
        whole = np.int64(_floor(s) if nearest else _ceil(s))
        total = np.float32(0.0)
        for tap in range(count):
            w = _filter(table, (np.float32(whole + tap) - s) * stretch)
            _put_f32(weight, o * count + tap, w)
            total += w
        for tap in range(count):
            place = o * count + tap
            _put_f32(weight, place, _get_f32(weight, place) / total)
        start = min(max(base + whole, -count), n_in)
        _put_i32(first, o, np.int32(start))
        lowest, highest = min(lowest, start), max(highest, start + count)
    _put_i32(first, n, np.int32(lowest))
    _put_i32(first, n + 1, np.int32(highest))


def pad_row(row, left, span, right, lanes):  # type: ignore[no-untyped-def]
    """Repeat the first pixel of a row `left` times before it, and the last one `right` times."""
    for k in range(left * lanes):
        _put_f32(row, k, _get_f32(row, left * lanes + k % lanes))
    end = (left + span) * lanes
    for k in range(right * lanes):
        _put_f32(row, end + k, _get_f32(row, end - lanes + k % lanes))


@njit(inline="always")
def _filter(table, x):  # type: ignore[no-untyped-def]
    j = np.int64(x)
    low = _get_f32(table, j)
    return low + (x - np.float32(j)) * (_get_f32(table, j + 1) - low)


# Elements that two neighbouring pixels take in a vector, by their lanes.
PAIR_PITCH = {1: 2, 2: 4, 3: 8, 4: 8}


def _make_sum(lanes: int, columns: int) -> Any:
    pitch = PAIR_PITCH[lanes]
    pair = ir.VectorType(_f32, pitch)
    pixel = ir.VectorType(_f32, 4 if lanes == 3 else lanes)

    @intrinsic
    def sum_columns(
        typingctx: Any, row: Any, first: Any, weight: Any, n: Any, count: Any, begin: Any, line: Any
    ) -> Any:
        """Every pixel of a line: `count` pixels of the row, weighted. `columns`: that count, or 0
        if it is known only at run time.

        NOTE [pairs of taps] Reading one tap at a time is limited by loads, many of which cross
        cache lines (in C, a line of 224 RGB pixels, 5 taps: 0.57 µs, two taps in a vector 0.33 to
        0.39; our whole kernel: 0.30 → 0.27 ms an image). So even and odd taps are summed up apart,
        for every number of lanes, in one and the same order.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row, first, weight, n, count, begin, line = args
            if columns:
                count = ir.Constant(_i64, columns)
            row, weight, line = (
                builder.inttoptr(x, _f32.as_pointer()) for x in (row, weight, line)
            )
            first = builder.inttoptr(first, _i32.as_pointer())
            two = _i64(2)

            def operands(weights: Any, start: Any, g: Any, kind: ir.Type) -> tuple[Any, Any]:
                """Weights and pixels of taps 2g and, if `kind` is a pair, 2g + 1."""
                tap = builder.mul(g, two)
                pixels = builder.gep(row, [builder.mul(builder.add(start, tap), _i64(lanes))])
                own = builder.gep(weights, [tap])
                if kind == pixel:
                    return _splat(builder, builder.load(own), pixel.count), _load(
                        builder, pixels, kind
                    )
                two_weights = _load(builder, own, ir.VectorType(_f32, 2))
                which = [min(k // lanes, 1) for k in range(pitch)]
                places = ir.Constant(ir.VectorType(_i32, pitch), which)
                none = ir.Constant(two_weights.type, ir.Undefined)
                spread = builder.shuffle_vector(two_weights, none, places)
                return spread, _load(builder, pixels, kind)

            def pairs(weights: Any, start: Any) -> Any:
                """Sums of even and of odd taps; there are two taps at least."""
                total = builder.fmul(*operands(weights, start, _i64(0), pair))
                if columns:
                    for g in range(1, columns // 2):
                        values = operands(weights, start, _i64(g), pair)
                        total = builder.call(_fma(builder, pair), [*values, total])
                    return total
                held = cgutils.alloca_once_value(builder, total)
                left = builder.sub(builder.sdiv(count, two), _i64(1))
                with cgutils.for_range(builder, left) as inner:
                    g = builder.add(inner.index, _i64(1))
                    values = operands(weights, start, g, pair)
                    total = builder.call(_fma(builder, pair), [*values, builder.load(held)])
                    builder.store(total, held)
                return builder.load(held)

            def part(total: Any, begin: int) -> Any:
                lanes_of = [min(begin + k, pitch - 1) for k in range(pixel.count)]
                places = ir.Constant(ir.VectorType(_i32, pixel.count), lanes_of)
                return builder.shuffle_vector(total, ir.Constant(pair, ir.Undefined), places)

            def with_last(even: Any, weights: Any, start: Any) -> Any:
                values = operands(weights, start, builder.sdiv(count, two), pixel)
                return builder.call(_fma(builder, pixel), [*values, even])

            with cgutils.for_range(builder, n) as loop:
                start = builder.sext(builder.load(builder.gep(first, [loop.index])), _i64)
                start = builder.sub(start, begin)
                weights = builder.gep(weight, [builder.mul(loop.index, count)])
                if columns == 1:
                    total = builder.fmul(*operands(weights, start, _i64(0), pixel))
                else:
                    both = pairs(weights, start)
                    even = part(both, 0)
                    if columns % 2:
                        even = with_last(even, weights, start)
                    elif not columns:
                        held = cgutils.alloca_once_value(builder, even)
                        odd_count = builder.icmp_signed("==", builder.srem(count, two), _i64(1))
                        with builder.if_then(odd_count):
                            builder.store(with_last(even, weights, start), held)
                        even = builder.load(held)
                    total = builder.fadd(even, part(both, lanes))
                out = builder.gep(line, [builder.mul(loop.index, _i64(pixel.count))])
                done = builder.store(total, builder.bitcast(out, pixel.as_pointer()))
                done.align = 4
            return context.get_dummy_value()

        return types.void(*([types.int64] * 7)), codegen

    return sum_columns


def _splat(builder: Any, value: Any, width: int) -> Any:
    vector = ir.VectorType(_f32, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _i32(0))
    lanes = ir.Constant(ir.VectorType(_i32, width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)


def _load(builder: Any, place: Any, vector: ir.Type) -> Any:
    value = builder.load(builder.bitcast(place, vector.as_pointer()))
    value.align = 4
    return value


def _sum_columns(lanes: int) -> Any:
    """`count` neighbours of a row, weighted, for all pixels of a line."""
    sums = [_make_sum(lanes, columns) for columns in range(MAX_COLUMNS + 1)]
    anything, one, two, three, four, five, six = sums

    def sum_columns(row, first, weight, n, count, begin, line):  # type: ignore[no-untyped-def]
        if count == 1:
            one(row, first, weight, n, count, begin, line)
        elif count == 2:
            two(row, first, weight, n, count, begin, line)
        elif count == 3:
            three(row, first, weight, n, count, begin, line)
        elif count == 4:
            four(row, first, weight, n, count, begin, line)
        elif count == 5:
            five(row, first, weight, n, count, begin, line)
        elif count == 6:
            six(row, first, weight, n, count, begin, line)
        else:
            anything(row, first, weight, n, count, begin, line)

    return sum_columns


MAX_COLUMNS, MAX_ROWS = 6, 5


def _sum_rows(dtype: DType) -> Any:
    """The weighted sum of neighbouring rows of contiguous elements, in float32.

    Row t of `count` is number first + t, clamped to the n_in rows there are; its weight is
    scale * weights[t]. It is written to `sums`, or added if `onto`. Up to five rows make one loop.
    """
    lines = [
        "def sum_rows(src, offset, stride, first, n_in, weights, count, scale, onto, n, sums):"
    ]
    lines += ["    t = 0", "    while t < count:", "        left = count - t"]
    for rows in range(MAX_ROWS, 0, -1):
        for onto in (True, False):
            test = f"left >= {rows} and " if rows == MAX_ROWS else f"left == {rows} and "
            keyword = "if" if rows == MAX_ROWS and onto else "elif"
            lines.append(f"        {keyword} {test}{'' if onto else 'not '}(onto or t > 0):")
            for r in range(rows):
                place = f"min(max(first + t + {r}, 0), n_in - 1)"
                lines.append(f"            b{r} = offset + {place} * stride")
                lines.append(f"            w{r} = get_f32(weights, t + {r}) * scale")
            lines.append("            for e in range(n):")
            total = "row_f32(sums, e)" if onto else ""
            for r in range(rows):
                value = f"widen(load(src, b{r} + e))"
                total = f"fma_f32(w{r}, {value}, {total})" if total else f"w{r} * {value}"
            lines.append(f"                store(sums, e, {total})")
    lines.append(f"        t += min(left, {MAX_ROWS})")
    names = {
        "load": getattr(prims, f"load_{dtype}"), "widen": _make_widen(dtype), "store": _store_f32,
        "get_f32": _get_f32, "row_f32": prims.row_f32, "fma_f32": fma_f32,
    }  # fmt: skip
    exec("\n".join(lines), names)
    return names["sum_rows"]


LINES_AHEAD = 4

# -- bilinear -------------------------------------------------------------------------------------


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


@intrinsic
def _prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the memory at an address, which need not be ours."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, _i32, _i32, _i32])
        fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(fn, [pointer, _i32(0), _i32(3), _i32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _make_widen(dtype: DType) -> Any:
    @intrinsic
    def widen(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _as_f32(builder, args[0], dtype, 1)

        return types.float32(prims.REGISTER[dtype]), codegen

    if dtype is dt.float16 and not prims.HAS_F16C:
        return prims.f16_to_f32
    return widen


@njit(inline="always")
def _between(a, b, f):  # type: ignore[no-untyped-def]
    return fma_f32(f, b - a, a)


@njit(inline="always")
def place(places, i, y, x, h, w):  # type: ignore[no-untyped-def]
    """Note the first row and column around a position, and the weights of the second ones.

    See NOTE [wild positions].
    """
    low = np.float32(-1.0)
    bottom, right = np.float32(h), np.float32(w)
    y, x = choose(y >= low, y, low), choose(x >= low, x, low)
    y, x = choose(y < bottom, y, bottom), choose(x < right, x, right)
    y0, x0 = _floor(y), _floor(x)
    _note(places, i, np.int32(y0), np.int32(x0), y - y0, x - x0)


@njit(inline="always")
def place_clamped(places, i, y, x, h, w):  # type: ignore[no-untyped-def]
    """The same for positions that are clamped to the border."""
    zero = np.float32(0.0)
    bottom, right = np.float32(h - 1), np.float32(w - 1)
    y, x = choose(y >= zero, y, zero), choose(x >= zero, x, zero)
    y, x = choose(y < bottom, y, bottom), choose(x < right, x, right)
    row, column = np.int32(y), np.int32(x)
    h2, w2 = np.int32(h - 2), np.int32(w - 2)
    row, column = choose(row < h2, row, h2), choose(column < w2, column, w2)
    none = np.int32(0)
    row, column = choose(row > none, row, none), choose(column > none, column, none)
    _note(places, i, row, column, y - np.float32(row), x - np.float32(column))


@njit(inline="always")
def _note(places, i, row, column, fy, fx):  # type: ignore[no-untyped-def]
    _store_i32(places, i, row)
    _store_i32(places, i + TILE_COLUMNS, column)
    _store_f32(places, i + 2 * TILE_COLUMNS, fy)
    _store_f32(places, i + 3 * TILE_COLUMNS, fx)


@njit(inline="always")
def _range(places, n):  # type: ignore[no-untyped-def]
    """The least and the greatest of n numbers."""
    lowest = highest = _get_i32(places, 0)
    for i in range(1, n):
        k = _get_i32(places, i)
        lowest = choose(k < lowest, k, lowest)
        highest = choose(k > highest, k, highest)
    return np.int64(lowest), np.int64(highest)


def _make_bilinear(dtype: DType, lanes: int, filled: bool, run: bool) -> Any:
    """`expr.bilinear` for the pixels of a tile, all lanes at once, into a line of float32.

    `run`: pixels follow each other in memory. Then those inside of the image are two vectors.
    """
    load = getattr(prims, f"load_{dtype}")
    widen = _make_widen(dtype)
    quad = _make_quad(dtype, lanes)
    pitch = 4 if lanes == 3 else lanes
    size = dtype.bytes

    @njit(inline="always")
    def tap(base, offset, sy, sx, h, w, y, x, fill):  # type: ignore[no-untyped-def]
        r, c = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
        value = widen(load(base, offset + r * sy + c * sx))
        return fill if filled and (r != y or c != x) else value

    @njit
    def anywhere(base, offset, sy, sx, h, w, y, x, fy, fx, line, pixel, fill):  # type: ignore[no-untyped-def]
        for lane in range(lanes):
            p00 = tap(base, offset + lane, sy, sx, h, w, y, x, fill)
            p01 = tap(base, offset + lane, sy, sx, h, w, y, x + 1, fill)
            p10 = tap(base, offset + lane, sy, sx, h, w, y + 1, x, fill)
            p11 = tap(base, offset + lane, sy, sx, h, w, y + 1, x + 1, fill)
            value = _between(_between(p00, p10, fy), _between(p01, p11, fy), fx)
            _store_f32(line, pixel * pitch + lane, value)

    @njit(inline="always")
    def readable(y0, y1, x0, x1, sy, h, w):  # type: ignore[no-untyped-def]
        """Whether pairs of rows and columns from these on can be read as vectors."""
        whole = y0 >= 0 and y1 <= h - 2 and x0 >= 0 and x1 <= w - 2
        if lanes != 3:
            return whole
        # Eight elements are read for two pixels: behind the last row in memory there is nothing.
        above = y1 < h - 2 if sy >= 0 else y0 > 0
        return whole and (above or x1 <= w - 3)

    @njit(inline="always")
    def prefetch(base, offset, sy, sx, places, n):  # type: ignore[no-untyped-def]
        """Ask for what a later line of this tile will read, if it moves on as it did so far.

        The way of a turned line through an image is nothing that a CPU could guess (512×512,
        turned by 25°: 6.5 → 5.3 ns a pixel; 128×128: 4.3 → 4.7).
        """
        start = np.int64(_get_i32(places, 0)) * sy + np.int64(_get_i32(places, TILE_COLUMNS)) * sx
        ahead = (start - _get_i64(places, 2 * TILE_COLUMNS)) * LINES_AHEAD
        _put_i64(places, 2 * TILE_COLUMNS, start)
        for i in range(0, n, 4):
            y, x = np.int64(_get_i32(places, i)), np.int64(_get_i32(places, i + TILE_COLUMNS))
            _prefetch(base + (offset + y * sy + x * sx + ahead) * size)

    def bilinear(base, offset, sy, sx, height, width, places, n, line, fill):  # type: ignore[no-untyped-def]
        h, w = np.int64(height), np.int64(width)
        y0, y1 = _range(places, n)
        x0, x1 = _range(places + 4 * TILE_COLUMNS, n)
        inside = run and readable(y0, y1, x0, x1, sy, h, w)
        prefetch(base, offset, sy, sx, places, n)
        for i in range(n):
            y, x = np.int64(_get_i32(places, i)), np.int64(_get_i32(places, i + TILE_COLUMNS))
            fy = _get_f32(places, i + 2 * TILE_COLUMNS)
            fx = _get_f32(places, i + 3 * TILE_COLUMNS)
            if inside or (run and readable(y, y, x, x, sy, h, w)):
                quad(base, offset + y * sy + x * lanes, sy, fy, fx, line, i)
            else:
                anywhere(base, offset, sy, sx, h, w, y, x, fy, fx, line, i, fill)

    return bilinear


# -- helpers --------------------------------------------------------------------------------------

_FLOATS = {"origin", "scale", "stretch", "fill"}  # all other arguments are addresses and numbers


@lru_cache(maxsize=None)
def helper(name: str) -> tuple[Any, Any]:
    """A function by its name (`sum_rows_u8`, `bilinear_u8_3_run`, …) and its type."""
    kind, *rest = name.split("_")
    if name in ("fill_taps", "pad_row"):
        function = globals()[name]
    elif name.startswith("sum_columns"):
        function = _sum_columns(int(rest[1]))
    elif name.startswith("sum_rows"):
        function = _sum_rows(DType.parse(rest[1]))
    elif kind == "bilinear":
        parts = (DType.parse(rest[0]), int(rest[1]), "fill" in rest, "run" in rest)
        function = _make_bilinear(*parts)
    else:
        raise AttributeError(name)
    arguments = inspect.signature(function).parameters
    kinds = [types.float32 if a in _FLOATS else types.int64 for a in arguments]
    return function, types.void(*kinds)


def external(symbol: str, signature: Any) -> Any:
    """The call of a native function that the linker knows, inside of a kernel."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [a.type for a in args])
        builder.call(cgutils.get_or_insert_function(builder.module, function, symbol), args)
        return context.get_dummy_value()

    names = ", ".join(f"a{k}" for k in range(len(signature.args)))
    source = f"def call(typingctx, {names}):\n    return signature, codegen\n"
    namespace = {"signature": signature, "codegen": codegen}
    exec(source, namespace)
    return intrinsic(namespace["call"])
