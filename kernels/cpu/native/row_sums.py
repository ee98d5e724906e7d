"""Rows of an image and filter parameters → taps, and weighted sums of rows and columns.

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
from .block_sizes import GROUP
from .vectors import (  # fmt: skip
    F32,
    FLOATS,
    I32,
    I64,
    PIXELS,
    element_type,
    joined,
    load_vector,
    planes,
    shuffled,
    splat,
    whole_blocks,
    widened,
)

_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_get_i32, _put_i32 = prims.get_i32, prims.put_i32  # type: ignore[attr-defined]
_put_i64 = prims.put_i64  # type: ignore[attr-defined]
_floor, _ceil = prims.floor_f32, prims.ceil_f32  # type: ignore[attr-defined]


def fill_taps(  # type: ignore[no-untyped-def]
    first, weight, n, room, by_output, by_tap, step, at, n_out, n_in, count, nearest, base, table,
    origin, scale, stretch,
):  # fmt: skip
    """Write first taps (i32) and weights (f32) of outputs 0 … n-1, at positions step * o + at.

    See kernels/ir/taps.py. Taps may lie beyond a border. Outputs from n to `room` repeat the last
    one with weights of 0. The range of all taps is written after the first taps.
    """
    lowest, highest = n_in, -count
    # Beyond this bound all taps read the border pixel; clamped, a position fits an integer.
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
            x = (np.float32(whole + tap) - s) * stretch
            j = np.int64(x)
            low = _get_f32(table, j)
            w = low + (x - np.float32(j)) * (_get_f32(table, j + 1) - low)
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


def _make_sum(lanes: int, columns: int) -> Any:
    width = 4 if lanes == 3 else lanes
    pixel = ir.VectorType(F32, width)

    @intrinsic
    def sum_columns(
        typingctx: Any, row: Any, first: Any, weight: Any, n: Any, count: Any, begin: Any, line: Any
    ) -> Any:
        """Compute each pixel of a line: the weighted sum of `count` pixels of a row, in tap order.

        `columns` is that count, or 0 if it is known only at run time. The code handles eight pixels
        at a time, so that it loads eight weights at once and stores eight pixels of each channel.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row, first, weight, n, count, begin, line = args
            row, weight, line = (builder.inttoptr(x, F32.as_pointer()) for x in (row, weight, line))
            first = builder.inttoptr(first, I32.as_pointer())

            def products(starts: list[Any], at: Any, tap: Any) -> list[Any]:
                """One weighted tap of eight pixels."""
                place = builder.add(builder.mul(tap, n), at)
                weights = load_vector(builder, builder.gep(weight, [place]), FLOATS)
                found = []
                for which in PIXELS[width]:
                    places = [builder.gep(starts[k], [builder.mul(tap, I64(lanes))]) for k in which]
                    values = joined(builder, [load_vector(builder, p, pixel) for p in places])
                    own = shuffled(builder, weights, [k for k in which for _ in range(width)])
                    found.append(builder.fmul(own, values))
                return found

            def sums(starts: list[Any], at: Any) -> list[Any]:
                total = products(starts, at, I64(0))
                if columns:
                    for tap in range(1, columns):
                        more = products(starts, at, I64(tap))
                        total = [builder.fadd(a, b) for a, b in zip(total, more, strict=True)]
                    return total
                held = [cgutils.alloca_once_value(builder, t) for t in total]
                with cgutils.for_range(builder, builder.sub(count, I64(1))) as inner:
                    more = products(starts, at, builder.add(inner.index, I64(1)))
                    for place, value in zip(held, more, strict=True):
                        builder.store(builder.fadd(builder.load(place), value), place)
                return [builder.load(place) for place in held]

            with cgutils.for_range(builder, builder.sdiv(n, I64(GROUP))) as loop:
                at = builder.mul(loop.index, I64(GROUP))
                starts = []
                for k in range(GROUP):
                    place = builder.gep(first, [builder.add(at, I64(k))])
                    start = builder.sub(builder.sext(builder.load(place), I64), begin)
                    starts.append(builder.gep(row, [builder.mul(start, I64(lanes))]))
                for lane, plane in enumerate(planes(builder, sums(starts, at))[:lanes]):
                    place = builder.gep(line, [builder.add(builder.mul(n, I64(lane)), at)])
                    done = builder.store(plane, builder.bitcast(place, FLOATS.as_pointer()))
                    done.align = 4
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return sum_columns


def sum_columns(lanes: int) -> Any:
    """A function that sums `count` weighted neighbours in a row for all pixels of a line."""
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


MAX_COLUMNS = 6

# The sums of this many vectors stay in registers while rows are added to them. This is as fast as
# loops that LLVM vectorises (1500 bytes of 5 rows: 0.42 µs), but compiles in 0.4 s instead of 0.9
# to 1.3 s. With AVX-512, vectors of 16 floats take a tenth less time than vectors of 8 (224 lines
# of 4 rows of 1347 bytes: 57 instead of 64 µs); without it, LLVM uses two registers for each.
_VECTORS, _WIDTH = 2, 2 * GROUP
BLOCK = _VECTORS * _WIDTH
_MAX_ROWS = 32  # rows whose addresses are computed before the rows are added
_FEW_ROWS = 5


def _make_add_rows(dtype: DType, static: int) -> Any:
    element = element_type(dtype)

    @intrinsic
    def add_rows(
        typingctx: Any, rows: Any, weights: Any, count: Any, onto: Any, n: Any, sums: Any
    ) -> Any:
        """Write the weighted sum of `count` rows of n elements to `sums`; add it there if `onto`.

        `rows` holds the addresses of the rows. `static` is their count, or 0 if it is known only at
        run time. With a static count, n must be at least BLOCK and `onto` 0.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, weights, count, onto, n, sums = args
            rows = builder.inttoptr(rows, I64.as_pointer())
            weights, sums = (builder.inttoptr(x, F32.as_pointer()) for x in (weights, sums))
            onto = builder.icmp_signed("!=", onto, I64(0))

            def row(tap: Any) -> tuple[Any, Any]:
                """Address and weight of a row."""
                address = builder.load(builder.gep(rows, [tap]))
                weight = builder.load(builder.gep(weights, [tap]))
                return builder.inttoptr(address, element.as_pointer()), weight

            known = [row(I64(k)) for k in range(static)]

            def product(row: tuple[Any, Any], at: Any, width: int) -> Any:
                source = ir.VectorType(element, width) if width > 1 else element
                values = load_vector(builder, builder.gep(row[0], [at]), source, dtype.bytes)
                weight = splat(builder, row[1], width) if width > 1 else row[1]
                return builder.fmul(weight, widened(builder, values, dtype, width))

            def block(at: Any, vectors: int, width: int) -> None:
                """Store the sums of `vectors` vectors of elements, beginning at `at`."""
                kind = ir.VectorType(F32, width) if width > 1 else F32
                places = [builder.add(at, I64(k * width)) for k in range(vectors)]
                outs = [builder.gep(sums, [p]) for p in places]
                if static:
                    totals = [product(known[0], p, width) for p in places]
                    for one in known[1:]:
                        more = [product(one, p, width) for p in places]
                        totals = [builder.fadd(a, b) for a, b in zip(totals, more, strict=True)]
                else:
                    totals = added(places, outs, width, kind)
                for out, total in zip(outs, totals, strict=True):
                    to = builder.bitcast(out, kind.as_pointer())
                    builder.store(total, to).align = 4

            def added(places: list[Any], outs: list[Any], width: int, kind: ir.Type) -> list[Any]:
                # Adding to -0 keeps every number as it is, even -0.
                zero = ir.Constant(kind, [-0.0] * width if width > 1 else -0.0)
                held = [cgutils.alloca_once(builder, kind) for _ in outs]
                for out, place in zip(outs, held, strict=True):
                    builder.store(
                        builder.select(onto, load_vector(builder, out, kind), zero), place
                    )
                with cgutils.for_range(builder, count) as taps:
                    one = row(taps.index)
                    for at, place in zip(places, held, strict=True):
                        total = builder.fadd(builder.load(place), product(one, at, width))
                        builder.store(total, place)
                return [builder.load(place) for place in held]

            if static:
                whole_blocks(builder, n, BLOCK, lambda at: block(at, _VECTORS, _WIDTH))
                return context.get_dummy_value()
            done = I64(0)
            for vectors, width in ((_VECTORS, _WIDTH), (1, GROUP), (1, 1)):
                size = I64(vectors * width)
                blocks = builder.sdiv(builder.sub(n, done), size)
                with cgutils.for_range(builder, blocks) as loop:
                    block(builder.add(done, builder.mul(loop.index, size)), vectors, width)
                done = builder.add(done, builder.mul(blocks, size))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return add_rows


def sum_rows(dtype: DType, ring: bool) -> Any:
    """A function that sums weighted, neighbouring rows of contiguous elements in float32, in order.

    Tap t reads row first + t, clamped to the n_in rows of the input. The function writes the sum to
    `sums`, or adds it if `onto`. A `ring` holds only the last rows: row r in slot r modulo `ring`.
    """
    given = "src, offset, stride, first, n_in, weights, count" + (", ring" if ring else "")
    place = "min(max(first + t + k, 0), n_in - 1)" + (" % ring" if ring else "")
    few = range(1, _FEW_ROWS + 1)
    lines = [f"def sum_rows({given}, onto, n, sums):", f"    rows = stack_{8 * _MAX_ROWS}()"]
    lines += ["    t = 0", "    while t < count:", f"        taps = min(count - t, {_MAX_ROWS})"]
    lines += ["        for k in range(taps):"]
    lines += [f"            put_i64(rows, k, src + (offset + {place} * stride) * {dtype.bytes})"]
    for k in few:
        lines += [f"        {'el' * (k > 1)}if taps == {k} and onto + t == 0 and n >= {BLOCK}:"]
        lines += [f"            add_rows_{k}(rows, weights, taps, 0, n, sums)"]
    lines += [
        "        else:",
        "            add_rows_0(rows, weights + 4 * t, taps, onto + t, n, sums)",
    ]
    lines += ["        t += taps"]
    names: dict[str, Any] = {f"add_rows_{k}": _make_add_rows(dtype, k) for k in (0, *few)}
    stack = f"stack_{8 * _MAX_ROWS}"
    names |= {"put_i64": _put_i64, stack: getattr(prims, stack)}
    exec("\n".join(lines), names)
    return names["sum_rows"]
