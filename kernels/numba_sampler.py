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
from .expr import RUN, RUN_BITS, SHORT
from .numba_prims import choose, fma_f32
from .spec import GROUP

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
    first, weight, n, room, by_output, by_tap, step, at, n_out, n_in, count, nearest, base, table,
    origin, scale, stretch,
):  # fmt: skip
    """First taps (i32) and weights (f32) of outputs 0 … n-1, at positions step * o + at; they may
    lie beyond a border. See kernels/taps.py. Outputs up to `room` are like the last one, but
    weightless; behind the first taps follows the range of all of them.
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
            _put_f32(weight, o * by_output + tap * by_tap, w)
            total += w
        for tap in range(count):
            place = o * by_output + tap * by_tap
            _put_f32(weight, place, _get_f32(weight, place) / total)
        start = min(max(base + whole, -count), n_in)
        _put_i32(first, o, np.int32(start))
        lowest, highest = min(lowest, start), max(highest, start + count)
    for o in range(n, room):
        _put_i32(first, o, _get_i32(first, n - 1))
        for tap in range(count):
            _put_f32(weight, o * by_output + tap * by_tap, np.float32(0.0))
    _put_i32(first, room, np.int32(lowest))
    _put_i32(first, room + 1, np.int32(highest))


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


_ints, _floats = ir.VectorType(_i32, GROUP), ir.VectorType(_f32, GROUP)
# Lanes of two registers of pixels [0 | 4] and [1 | 5], or of pairs of them, that become neighbours.
_LOW, _HIGH = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
_LOW_PAIRS, _HIGH_PAIRS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
_EVEN, _ODD = [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]


def _planes(builder: Any, pixels: list[Any]) -> list[Any]:
    """Registers of the channels of pixels (see `_PIXELS`), as a register of each channel."""
    if len(pixels) == 1:
        return pixels
    if len(pixels) == 2:
        a, b = pixels
        return [_chosen(builder, a, b, which) for which in (_EVEN, _ODD)]
    a, b, c, d = pixels
    low = _chosen(builder, a, b, _LOW), _chosen(builder, c, d, _LOW)
    high = _chosen(builder, a, b, _HIGH), _chosen(builder, c, d, _HIGH)
    return [
        _chosen(builder, first, second, which)
        for first, second in (low, high)
        for which in (_LOW_PAIRS, _HIGH_PAIRS)
    ]


# Which of eight pixels lie in each register, by the number of lanes that a pixel takes in it.
_PIXELS = {
    1: [list(range(8))],
    2: [[0, 1, 4, 5], [2, 3, 6, 7]],
    4: [[k, k + 4] for k in range(4)],
}


def _make_sum(lanes: int, columns: int) -> Any:
    width = 4 if lanes == 3 else lanes
    pixel = ir.VectorType(_f32, width)

    @intrinsic
    def sum_columns(
        typingctx: Any, row: Any, first: Any, weight: Any, n: Any, count: Any, begin: Any, line: Any
    ) -> Any:
        """Every pixel of a line: `count` pixels of the row, weighted, tap after tap. `columns`:
        that count, or 0 if it is known only at run time.

        Eight pixels at a time, so that weights come eight at a time, and the line of each channel.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row, first, weight, n, count, begin, line = args
            row, weight, line = (
                builder.inttoptr(x, _f32.as_pointer()) for x in (row, weight, line)
            )
            first = builder.inttoptr(first, _i32.as_pointer())

            def products(starts: list[Any], at: Any, tap: Any) -> list[Any]:
                """A tap of eight pixels, weighted."""
                place = builder.add(builder.mul(tap, n), at)
                weights = _load(builder, builder.gep(weight, [place]), _floats)
                found = []
                for which in _PIXELS[width]:
                    places = [
                        builder.gep(starts[k], [builder.mul(tap, _i64(lanes))]) for k in which
                    ]
                    values = _joined(builder, [_load(builder, p, pixel) for p in places])
                    own = _one(builder, weights, [k for k in which for _ in range(width)])
                    found.append(builder.fmul(own, values))
                return found

            def sums(starts: list[Any], at: Any) -> list[Any]:
                total = products(starts, at, _i64(0))
                if columns:
                    for tap in range(1, columns):
                        more = products(starts, at, _i64(tap))
                        total = [builder.fadd(a, b) for a, b in zip(total, more, strict=True)]
                    return total
                held = [cgutils.alloca_once_value(builder, t) for t in total]
                with cgutils.for_range(builder, builder.sub(count, _i64(1))) as inner:
                    more = products(starts, at, builder.add(inner.index, _i64(1)))
                    for place, value in zip(held, more, strict=True):
                        builder.store(builder.fadd(builder.load(place), value), place)
                return [builder.load(place) for place in held]

            with cgutils.for_range(builder, builder.sdiv(n, _i64(GROUP))) as loop:
                at = builder.mul(loop.index, _i64(GROUP))
                starts = []
                for k in range(GROUP):
                    place = builder.gep(first, [builder.add(at, _i64(k))])
                    start = builder.sub(builder.sext(builder.load(place), _i64), begin)
                    starts.append(builder.gep(row, [builder.mul(start, _i64(lanes))]))
                for lane, plane in enumerate(_planes(builder, sums(starts, at))[:lanes]):
                    place = builder.gep(line, [builder.add(builder.mul(n, _i64(lane)), at)])
                    done = builder.store(plane, builder.bitcast(place, _floats.as_pointer()))
                    done.align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return sum_columns


def _joined(builder: Any, vectors: list[Any]) -> Any:
    """Short vectors as one."""
    while len(vectors) > 1:
        width = vectors[0].type.count
        vectors = [
            _chosen(builder, a, b, list(range(2 * width)))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _chosen(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    places = ir.Constant(ir.VectorType(_i32, len(lanes)), lanes)
    return builder.shuffle_vector(first, second, places)


def _one(builder: Any, vector: Any, lanes: list[int]) -> Any:
    return _chosen(builder, vector, ir.Constant(vector.type, ir.Undefined), lanes)


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


def _sum_rows(dtype: DType, ring: bool) -> Any:
    """The weighted sum of neighbouring rows of contiguous elements, in float32, row after row.

    Row t of `count` is number first + t, clamped to the n_in rows there are; its weight is
    scale * weights[t]. It is written to `sums`, or added if `onto`. Up to five rows make one loop.
    `ring`: only the last `count` rows are in memory, row r as number r modulo `count`.
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
                place = f"min(max(first + t + {r}, 0), n_in - 1)" + (" % count" if ring else "")
                lines.append(f"            b{r} = offset + {place} * stride")
                lines.append(f"            w{r} = get_f32(weights, t + {r}) * scale")
            lines.append("            for e in range(n):")
            terms = ["row_f32(sums, e)"] if onto else []
            terms += [f"w{r} * widen(load(src, b{r} + e))" for r in range(rows)]
            lines.append(f"                store(sums, e, {' + '.join(terms)})")
    lines.append(f"        t += min(left, {MAX_ROWS})")
    names = {
        "load": getattr(prims, f"load_{dtype}"), "widen": _make_widen(dtype), "store": _store_f32,
        "get_f32": _get_f32, "row_f32": prims.row_f32,
    }  # fmt: skip
    exec("\n".join(lines), names)
    return names["sum_rows"]


# -- running sums ---------------------------------------------------------------------------------

_word = prims.bits_f32_u32  # type: ignore[attr-defined]
_number = prims.bits_u32_f32  # type: ignore[attr-defined]
_SHORT = np.float32(SHORT)


@njit(inline="always")
def _leap(s, step, left):  # type: ignore[no-untyped-def]
    """What every step adds to a running sum, and how many steps do so: see NOTE [running sums]."""
    once = s + step
    twice = once + step
    by = once - s
    if not (once < s or once > s):  # for ever
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
    """A running sum after so many steps."""
    while left > 0:
        by, n = _leap(s, step, left)
        s = s + step if n == 1 else fma_f32(np.float32(n), by, s)
        left -= n
    return s


@njit
def _sum_to(start, step, x):  # type: ignore[no-untyped-def]
    """See `expr.stepped`."""
    return _after(_after(start, step * np.float32(RUN), x >> RUN_BITS), step, x & (RUN - 1))


@njit(inline="always")
def _known(kept, start, step, x):  # type: ignore[no-untyped-def]
    """Whether the running sum at x is kept: see `_keep`."""
    same = (_get_f32(kept, 2) == start) & (_get_f32(kept, 3) == step)
    return (_get_i64(kept, 0) == x) & same & (x & (RUN - 1) != 0)


@njit(inline="always")
def _keep(kept, start, step, x, s):  # type: ignore[no-untyped-def]
    """Write a running sum down, for where it is gone on with."""
    _put_i64(kept, 0, x)
    _put_f32(kept, 2, start)
    _put_f32(kept, 3, step)
    _put_f32(kept, 4, s)


@njit
def stepped(kept, start, step, x):  # type: ignore[no-untyped-def]
    """One element of a running sum, and usually the one behind that which was asked for last."""
    s = _get_f32(kept, 4) if _known(kept, start, step, x) else _sum_to(start, step, x)
    _keep(kept, start, step, x + 1, s + step)
    return s


@intrinsic
def _put_ramp(typingctx: Any, line: Any, at: Any, first: Any, step: Any, start: Any) -> Any:
    """Write start + k * step down, for eight numbers k from `first` on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line, at, *numbers = args
        first, step, start = (_splat(builder, number, GROUP) for number in numbers)
        k = builder.fadd(first, ir.Constant(_floats, [float(i) for i in range(GROUP)]))
        value = builder.call(_fma(builder, _floats), [k, step, start])
        done = builder.store(value, _place(builder, line, at, 0, _floats))
        done.align = 4
        return context.get_dummy_value()

    return types.void(*[types.int64] * 2, *[types.float32] * 3), codegen


def fill_steps(line, kept, n, x, by, origin, scale):  # type: ignore[no-untyped-def]
    """n elements of a running sum, from x on, `by` apart."""
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
            _put_f32(line, done, s)  # also where nan or infinity is added
            s = s + scale if count == 1 else fma_f32(np.float32(count), add, s)
            done += count
            left -= count
        _keep(kept, origin, scale, at, s)
    if by == -1:
        for k in range(n // 2):
            low, high = _get_f32(line, k), _get_f32(line, n - 1 - k)
            _put_f32(line, k, high)
            _put_f32(line, n - 1 - k, low)


LINES_AHEAD = 8

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


def _between_vectors(builder: Any, low: Any, high: Any, f: Any) -> Any:
    return builder.call(_fma(builder, low.type), [f, builder.fsub(high, low), low])


def _at_byte(builder: Any, address: Any, nbytes: Any, kind: ir.Type) -> Any:
    return builder.inttoptr(builder.add(address, nbytes), kind.as_pointer())


def _two_pixels(builder: Any, pointer: Any, dtype: DType, lanes: int) -> Any:
    """The lanes of a pixel and of the next one, each padded to two or four, as float32."""
    element = _element(dtype)
    width = 4 if lanes == 3 else lanes
    if dtype is dt.uint8 and lanes == 3:  # one instruction puts every byte where it belongs
        loaded = builder.load(builder.bitcast(pointer, _i64.as_pointer()))
        loaded.align = 1
        wide = ir.VectorType(_i64, 4)
        spread = _one(
            builder,
            builder.insert_element(ir.Constant(wide, ir.Undefined), loaded, _i32(0)),
            [0] * 4,
        )
        spread = builder.bitcast(spread, ir.VectorType(ir.IntType(8), 32))
        places = [32] * 32
        places[0:12:4], places[16:28:4] = [0, 1, 2], [19, 20, 21]
        none = ir.Constant(spread.type, None)
        whole = builder.bitcast(_chosen(builder, spread, none, places), _ints)
        return builder.sitofp(whole, _floats)
    kind = ir.VectorType(element, 2 * width)  # a few more than two pixels, if there are three lanes
    loaded = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    loaded.align = dtype.bytes
    if lanes == 3:
        loaded = _one(builder, loaded, [0, 1, 2, 2, 3, 4, 5, 5])
    return _as_f32(builder, loaded, dtype, 2 * width)


def _make_group(dtype: DType, lanes: int, filled: bool) -> Any:
    """Interpolates eight times between four pixels whose lanes follow each other."""
    width = 4 if lanes == 3 else lanes
    element = _element(dtype)

    def weighed(builder: Any, at: Any, extent: Any) -> tuple[Any, Any]:
        """The first pixel (i32) around positions, and the weight of the second one."""
        one = extent.type(1)
        if filled:  # see NOTE [wild positions]
            low, high = ir.Constant(_floats, [-1.0] * GROUP), _spread_f32(builder, extent)
        else:
            low = ir.Constant(_floats, [0.0] * GROUP)
            high = _spread_f32(builder, builder.sub(extent, one))
        at = builder.select(builder.fcmp_ordered(">", at, low), at, low)
        at = builder.select(builder.fcmp_ordered("<", at, high), at, high)
        if filled:
            base = builder.call(_vector_function(builder, "floor"), [at])
            return builder.fptosi(base, _ints), builder.fsub(at, base)
        whole = builder.fptosi(at, _ints)
        last = _spread_i32(builder, builder.sub(extent, extent.type(2)))
        whole = builder.select(builder.icmp_signed("<", whole, last), whole, last)
        return whole, builder.fsub(at, builder.sitofp(whole, _floats))

    def single(builder: Any, starts: list[Any], offsets: list[Any], fy: Any, fx: Any) -> Any:
        """One channel: two pixels are read as one number, and eight of these fill a register."""
        pair = ir.IntType(2 * dtype.bits)
        rows = []
        for start in starts:
            words = ir.Constant(ir.VectorType(pair, GROUP), ir.Undefined)
            for k, offset in enumerate(offsets):
                word = builder.load(_at_byte(builder, start, offset, pair))
                word.align = dtype.bytes
                words = builder.insert_element(words, word, _i32(k))
            rows.append(builder.bitcast(words, ir.VectorType(element, 2 * GROUP)))
        columns = []
        for side in (0, 1):
            which = list(range(side, 2 * GROUP, 2))
            top, bottom = (_as_f32(builder, _one(builder, r, which), dtype, GROUP) for r in rows)
            columns.append(_between_vectors(builder, top, bottom, fy))
        return _between_vectors(builder, columns[0], columns[1], fx)

    def planes_of(
        builder: Any, starts: list[Any], offsets: list[Any], weights: Any, fy: Any, fx: Any
    ) -> list[Any]:
        """Eight interpolated pixels, a register for each lane."""
        if lanes == 1:
            return [single(builder, starts, offsets, fy, fx)]

        def column(k: int) -> Any:
            """Pixel k and the one to its right, each between two rows."""
            places = [_at_byte(builder, start, offsets[k], element) for start in starts]
            top, bottom = (_two_pixels(builder, place, dtype, lanes) for place in places)
            # read again: a register that holds one number comes from memory for nothing
            f = builder.load(builder.gep(weights, [_i64(k)]))
            return _between_vectors(builder, top, bottom, _splat(builder, f, 2 * width))

        if lanes == 2:
            both = [_chosen(builder, column(k), column(k + 4), list(range(8))) for k in range(4)]
            a, b, c, d = _planes(builder, both)
            return [_between_vectors(builder, *pair, fx) for pair in ((a, c), (b, d))]
        pixels = []
        for k in range(4):
            pair = column(k), column(k + 4)
            low = _chosen(builder, *pair, [0, 1, 2, 3, 8, 9, 10, 11])
            high = _chosen(builder, *pair, [4, 5, 6, 7, 12, 13, 14, 15])
            f = _one(builder, fx, [k] * 4 + [k + 4] * 4)
            pixels.append(_between_vectors(builder, low, high, f))
        return _planes(builder, pixels)[:lanes]

    @intrinsic
    def find(
        typingctx: Any, places: Any, i: Any, n: Any, row: Any, h: Any, w: Any, last: Any
    ) -> Any:
        """Write down where pixels i … i + 7 of n lie and their weights; whether all that they need
        can be read. Strides and distances are in bytes. `last`: where the last vector can be read.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            places, i, n, row, h, w, last = args

            def place(which: int, kind: ir.Type) -> Any:
                return _place(builder, places, i, which, kind)

            rows, fy = weighed(builder, _load(builder, place(0, _f32), _floats), h)
            columns, fx = weighed(builder, _load(builder, place(1, _f32), _floats), w)
            step = ir.Constant(_ints, [lanes * dtype.bytes] * GROUP)
            where = builder.add(
                builder.mul(rows, _spread_i32(builder, row)), builder.mul(columns, step)
            )
            good = builder.icmp_signed("<=", where, _spread_i32(builder, last))
            if filled:
                for index, extent in ((rows, h), (columns, w)):
                    pairs = _spread_i32(builder, builder.sub(extent, _i64(1)))
                    good = builder.and_(good, builder.icmp_unsigned("<", index, pairs))
            counted = ir.Constant(_ints, list(range(GROUP)))
            spare = builder.icmp_signed(">=", counted, _spread_i32(builder, builder.sub(n, i)))
            where = builder.select(spare, ir.Constant(_ints, [0] * GROUP), where)
            for which, value in ((2, where), (3, fy), (4, fx)):
                done = builder.store(value, place(which, value.type))
                done.align = 4
            mask = builder.bitcast(builder.or_(good, spare), ir.IntType(GROUP))
            return builder.icmp_unsigned("==", mask, mask.type(-1))

        return types.boolean(*[types.int64] * 7), codegen

    @intrinsic
    def group(
        typingctx: Any, base: Any, row: Any, ahead: Any, places: Any, i: Any, line: Any
    ) -> Any:
        """Interpolate pixels i … i + 7."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base, row, ahead, places, i, line = args
            numbers = _place(builder, places, i, 2, _i32)
            offsets = [
                builder.sext(builder.load(builder.gep(numbers, [_i64(k)])), _i64)
                for k in range(GROUP)
            ]
            for k in range(0, GROUP, 4):
                _ask_for(builder, builder.add(builder.add(base, ahead), offsets[k]))
            starts = [base, builder.add(base, row)]
            weights = _place(builder, places, i, 3, _f32)
            fy = _load(builder, weights, _floats)
            fx = _load(builder, _place(builder, places, i, 4, _f32), _floats)
            for lane, plane in enumerate(planes_of(builder, starts, offsets, weights, fy, fx)):
                done = builder.store(plane, _place(builder, line, i, lane, _floats))
                done.align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return find, group


def _place(builder: Any, table: Any, i: Any, which: int, kind: ir.Type) -> Any:
    """Where a table tells something of pixel i: what, says `which`."""
    nbytes = builder.mul(builder.add(i, _i64(which * TILE_COLUMNS)), _i64(4))
    return _at_byte(builder, table, nbytes, kind)


def _vector_function(builder: Any, name: str) -> Any:
    kind = ir.FunctionType(_floats, [_floats])
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{GROUP}f32")


def _spread_i32(builder: Any, number: Any) -> Any:
    """The low half of an integer, in all lanes."""
    empty = ir.Constant(_ints, ir.Undefined)
    first = builder.insert_element(empty, builder.trunc(number, _i32), _i32(0))
    return _one(builder, first, [0] * GROUP)


def _spread_f32(builder: Any, number: Any) -> Any:
    return _splat(builder, builder.sitofp(number, _f32), GROUP)


def _ask_for(builder: Any, address: Any, to_write: bool = False) -> None:
    """Ask for the memory at an address, which need not be ours."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _i32, _i32, _i32])
    fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(fn, [pointer, _i32(int(to_write)), _i32(3), _i32(1)])


@intrinsic
def ask_to_write(typingctx: Any, address: Any) -> Any:
    """Ask for memory that will be written."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _ask_for(builder, args[0], to_write=True)
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
def note(places, i, y, x):  # type: ignore[no-untyped-def]
    """Write a position down."""
    _store_f32(places, i, y)
    _store_f32(places, i + TILE_COLUMNS, x)


@njit(inline="always")
def _pair(at, n):  # type: ignore[no-untyped-def]
    """The first pixel around a position, and the weight of the second (NOTE [wild positions])."""
    low, end = np.float32(-1.0), np.float32(n)
    at = choose(at >= low, at, low)
    at = choose(at < end, at, end)
    base = _floor(at)
    return np.int64(base), at - base


@njit(inline="always")
def _pair_clamped(at, n):  # type: ignore[no-untyped-def]
    """The same for a position that is clamped to the border."""
    zero, last = np.float32(0.0), np.float32(n - 1)
    at = choose(at > zero, at, zero)
    at = choose(at < last, at, last)
    first = max(min(np.int64(at), n - 2), 0)
    return first, at - np.float32(first)


# Behind the positions of a tile: where pixels lie in memory, weights, and then where the line
# before began and how far from there on it pays to ask for memory.
_BEFORE, _AHEAD = 5 * TILE_COLUMNS // 2, 5 * TILE_COLUMNS // 2 + 1  # counted in 64-bit numbers


def _make_bilinear(dtype: DType, lanes: int, filled: bool, run: bool) -> Any:
    """`expr.bilinear` for the pixels of a tile, all lanes at once, into lines of float32, one for
    each lane.

    `run`: pixels follow each other in memory. Then those inside of the image are read as vectors.
    """
    load = getattr(prims, f"load_{dtype}")
    widen = _make_widen(dtype)
    find, group = _make_group(dtype, lanes, filled)
    pair = _pair if filled else _pair_clamped
    size, finite = dtype.bytes, not dtype.is_float
    read = (4 if lanes == 3 else lanes) * 2  # elements of a vector: two pixels, or a few more

    @njit(inline="always")
    def tap(base, offset, sy, sx, h, w, y, x, fill):  # type: ignore[no-untyped-def]
        r, c = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
        value = widen(load(base, offset + r * sy + c * sx))
        return fill if filled and (r != y or c != x) else value

    @njit
    def anywhere(base, offset, sy, sx, h, w, places, pixel, line, fill):  # type: ignore[no-untyped-def]
        y, fy = pair(_get_f32(places, pixel), h)
        x, fx = pair(_get_f32(places, pixel + TILE_COLUMNS), w)
        # infinities in the image would count even where their weight is zero
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
        # behind the last element of an image there is nothing to read
        end = max((h - 1) * sy, 0) + w * lanes
        last = (end - max(sy, 0) - read) * size
        fits = (abs((h - 1) * sy) + w * lanes) * size < 2**31
        vectors = run and fits and h > 1 and w > 1 and last >= 0
        first, row, ahead = base + offset * size, sy * size, _get_i64(places, _AHEAD)
        # first all positions, then all pixels: so the CPU need not wait for the positions
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


# -- helpers --------------------------------------------------------------------------------------

_FLOATS = {"origin", "scale", "stretch", "fill"}  # all other arguments are addresses and numbers


@lru_cache(maxsize=None)
def helper(name: str) -> tuple[Any, Any]:
    """A function by its name (`sum_rows_u8`, `bilinear_u8_3_run`, …) and its type."""
    kind, *rest = name.split("_")
    if name in ("fill_taps", "pad_row", "fill_steps"):
        function = globals()[name]
    elif name.startswith("sum_columns"):
        function = _sum_columns(int(rest[1]))
    elif name.startswith("sum_rows"):
        function = _sum_rows(DType.parse(rest[1]), "ring" in rest)
    elif kind == "bilinear":
        parts = (DType.parse(rest[0]), int(rest[1]), "fill" in rest, "run" in rest)
        function = _make_bilinear(*parts)
    else:
        raise AttributeError(name)
    arguments = inspect.signature(function).parameters
    kinds = [types.float32 if a in _FLOATS else types.int64 for a in arguments]
    return function, types.void(*kinds)


def external(symbol: str, signature: Any) -> Any:
    """The call of a native function that the linker knows, inside of a kernel.

    See `numba_compile.compile_native`. (Through a wrapper with C's convention, which hands on its
    arguments as vectors of two that were pushed one by one, a rotation would take 8 % longer.)
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        ignored = cgutils.alloca_once(builder, ir.IntType(8).as_pointer())
        function = ir.FunctionType(_i32, [ignored.type] * 2 + [a.type for a in args])
        found = cgutils.get_or_insert_function(builder.module, function, symbol)
        builder.call(found, [ignored, ignored, *args])
        return context.get_dummy_value()

    names = ", ".join(f"a{k}" for k in range(len(signature.args)))
    source = f"def call(typingctx, {names}):\n    return signature, codegen\n"
    namespace = {"signature": signature, "codegen": codegen}
    exec(source, namespace)
    return intrinsic(namespace["call"])
