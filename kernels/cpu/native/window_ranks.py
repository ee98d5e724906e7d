"""Native helpers of `RankLines`: they join rows by their extremes and select medians.

Vectors are 32 bytes of integers. This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir import networks
from ...ir.dtypes import DType
from . import primitives as prims
from .block_sizes import RANK_BYTES
from .vectors import I32, I64, ask_for, load_vector, shuffled, vector_blocks, whole_blocks
from .window_rows import PLACES

_LINE = 64  # bytes of a cache line
_VECTORS = 4  # vectors that the loop over rows keeps in registers
_UNROLLED = (3, 5)  # numbers of rows that get code of their own, because most masks have them


class Lanes:
    """Vectors of one integer type, and how its values are compared."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.width = RANK_BYTES // dtype.bytes
        self.element = ir.IntType(dtype.bits)
        self.vector = ir.VectorType(self.element, self.width)
        self.signed = dtype.kind is DType.Kind.signed

    def below(self, builder: Any, a: Any, b: Any) -> Any:
        compare = builder.icmp_signed if self.signed else builder.icmp_unsigned
        return compare("<", a, b)

    def low(self, builder: Any) -> Callable[[Any, Any], Any]:
        return lambda a, b: builder.select(self.below(builder, a, b), a, b)

    def high(self, builder: Any) -> Callable[[Any, Any], Any]:
        return lambda a, b: builder.select(self.below(builder, a, b), b, a)

    def chooser(self, builder: Any, rank: str) -> Callable[[Any, Any], Any]:
        return self.low(builder) if rank == "lowest" else self.high(builder)

    def place(self, builder: Any, address: Any, at: Any) -> Any:
        """The pointer to element `at` after an address."""
        return builder.gep(builder.inttoptr(address, self.element.as_pointer()), [at])

    def load(self, builder: Any, address: Any, at: Any) -> Any:
        return load_vector(builder, self.place(builder, address, at), self.vector, self.dtype.bytes)

    def store(self, builder: Any, value: Any, address: Any, at: Any) -> None:
        place = builder.bitcast(self.place(builder, address, at), self.vector.as_pointer())
        builder.store(value, place).align = self.dtype.bytes

    def all(self, builder: Any, value: Any) -> Any:
        """A scalar in all lanes."""
        empty = ir.Constant(self.vector, ir.Undefined)
        return shuffled(builder, builder.insert_element(empty, value, I32(0)), [0] * self.width)


def row_address(builder: Any, rows: Any, k: Any, offset: Any) -> Any:
    """The address in entry k of a list, plus an offset in bytes."""
    entry = builder.gep(builder.inttoptr(rows, I64.as_pointer()), [k])
    return builder.add(builder.load(entry), offset)


def _make_join(dtype: DType, rank: str) -> Any:
    lanes = Lanes(dtype)

    @intrinsic
    def join(
        typingctx: Any, rows: Any, offset: Any, count: Any, n: Any, to: Any, second: Any
    ) -> Any:
        """The extremes of n elements of `count` rows, and unless `second` is 0 also those of
        `count` rows that begin one later in the list, which share all rows but two."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, offset, count, n, to, second = args
            choose = lanes.chooser(builder, rank)

            def shift(v: int, at: Any) -> Any:
                return builder.add(at, I64(v * lanes.width))

            def read(k: Any, v: int, at: Any) -> Any:
                return lanes.load(builder, row_address(builder, rows, k, offset), shift(v, at))

            def joined(begin: Any, end: Any, at: Any, vectors: int) -> list[Any]:
                """Registers with the extremes of rows begin … end - 1."""
                held = [cgutils.alloca_once(builder, lanes.vector) for _ in range(vectors)]
                for v, place in enumerate(held):
                    builder.store(read(begin, v, at), place)
                rest = builder.sub(builder.sub(end, begin), I64(1))
                with cgutils.for_range(builder, rest) as loop:
                    k = builder.add(builder.add(loop.index, begin), I64(1))
                    for v, place in enumerate(held):
                        builder.store(choose(builder.load(place), read(k, v, at)), place)
                return [builder.load(place) for place in held]

            def one(at: Any, vectors: int) -> None:
                for v, value in enumerate(joined(I64(0), count, at, vectors)):
                    lanes.store(builder, value, to, shift(v, at))

            def two(at: Any, vectors: int) -> None:
                for v, shared in enumerate(joined(I64(1), count, at, vectors)):
                    for k, out in ((I64(0), to), (count, second)):
                        value = choose(shared, read(k, v, at))
                        lanes.store(builder, value, out, shift(v, at))

            def unrolled(side: int) -> None:
                """Both cases for a known number of rows, whose addresses stay in registers."""
                known = [row_address(builder, rows, I64(k), offset) for k in range(side + 1)]

                def block(at: Any, vectors: int) -> None:
                    for v in range(vectors):
                        place = shift(v, at)
                        shared = reduce(
                            choose, (lanes.load(builder, row, place) for row in known[1:side])
                        )
                        value = choose(shared, lanes.load(builder, known[0], place))
                        lanes.store(builder, value, to, place)
                        with_last.append((shared, place))

                with_last: list[Any] = []

                def block_of_two(at: Any, vectors: int) -> None:
                    with_last.clear()
                    block(at, vectors)
                    for shared, place in with_last:
                        value = choose(shared, lanes.load(builder, known[side], place))
                        lanes.store(builder, value, second, place)

                either(block, block_of_two)

            def either(one: Any, two: Any) -> None:
                is_one = builder.icmp_signed("==", second, I64(0))
                with builder.if_else(is_one) as (if_one, if_two):
                    with if_one:
                        vector_blocks(builder, n, lanes.width, _VECTORS, one)
                    with if_two:
                        vector_blocks(builder, n, lanes.width, _VECTORS, two)

            def switch(sides: tuple[int, ...]) -> None:
                if not sides:
                    either(one, two)
                    return
                is_known = builder.icmp_signed("==", count, I64(sides[0]))
                with builder.if_else(is_known) as (if_known, if_other):
                    with if_known:
                        unrolled(sides[0])
                    with if_other:
                        switch(sides[1:])

            switch(_UNROLLED)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return join


def join_rows(dtype: DType, rank: str) -> Any:
    """The extremes of n elements of `count` rows, `offset` bytes after the addresses in a list.

    Unless `second` is 0, the rows that begin one later in the list are joined there; `count` must
    then be at least 2.
    """
    join, width = _make_join(dtype, rank), Lanes(dtype).width
    get, put = (getattr(prims, f"{what}_{dtype}") for what in ("get", "put"))
    get_i64 = prims.get_i64  # type: ignore[attr-defined]
    is_lowest = rank == "lowest"

    def join_few(rows, offset, count, n, to):  # type: ignore[no-untyped-def]
        for at in range(n):
            best = get(get_i64(rows, 0) + offset, at)
            for k in range(1, count):
                value = get(get_i64(rows, k) + offset, at)
                if (value < best) == is_lowest:
                    best = value
            put(to, at, best)

    few = _inlined(join_few)

    def join_rows(rows, offset, count, n, to, second):  # type: ignore[no-untyped-def]
        if n >= width:
            join(rows, offset, count, n, to, second)
            return
        few(rows, offset, count, n, to)
        if second != 0:
            few(rows + 8, offset, count, n, second)

    return join_rows


def _inlined(function: Any) -> Any:
    from numba import njit

    return njit(inline="always")(function)


def _make_overlay(dtype: DType, rank: str, exactly: bool = False) -> Any:
    lanes = Lanes(dtype)

    @intrinsic
    def overlay(typingctx: Any, a: Any, b: Any, n: Any, to: Any) -> Any:
        """The extremes of two rows. Unless `exactly`, it handles whole vectors, beyond n, and `to`
        may be one of the rows."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b, n, to = args
            choose, width = lanes.chooser(builder, rank), I64(lanes.width)

            def block(at: Any) -> None:
                value = choose(lanes.load(builder, a, at), lanes.load(builder, b, at))
                lanes.store(builder, value, to, at)

            if exactly:
                whole_blocks(builder, n, lanes.width, block)
                return context.get_dummy_value()
            more = builder.sub(builder.add(n, width), I64(1))
            with cgutils.for_range(builder, builder.sdiv(more, width)) as loop:
                block(builder.mul(loop.index, width))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return overlay


def join_spans(dtype: DType, rank: str) -> Any:
    """The extremes of n runs of `count` elements of a row, which are `column` elements apart.

    Spans of 2, 4, 8, … elements are joined in place, and two of them make a run. The memory of
    the row must extend a vector further. It handles at least one whole vector.
    """
    overlay, nbytes, width = _make_overlay(dtype, rank), dtype.bytes, Lanes(dtype).width
    last = _make_overlay(dtype, rank, exactly=True)

    def join_spans(row, column, count, n, to):  # type: ignore[no-untyped-def]
        span = 1
        while 2 * span <= count:
            overlay(row, row + span * column * nbytes, n + (count - 2 * span) * column, row)
            span *= 2
        last(row, row + (count - span) * column * nbytes, max(n, width), to)

    return join_spans


def pad_ends(dtype: DType, border: str) -> Any:
    """Pad rows of an image n wide, from `begin` to `low` and from `high` to `end`.

    There are `rows` of them, `size` bytes apart, each in `planes` that are `pitch` elements apart.
    `column` values lie side by side at each position. The memory begins at position `base`.
    """
    place = PLACES[border]
    get, put = (getattr(prims, f"{what}_{dtype}") for what in ("get", "put"))

    def pad_one(row, column, v, at):  # type: ignore[no-untyped-def]
        for k in range(column):
            put(row, v * column + k, get(row, at * column + k))

    pad = _inlined(pad_one)
    nbytes = dtype.bytes

    def pad_ends(row, rows, size, planes, pitch, column, base, begin, low, high, end, n):  # type: ignore[no-untyped-def]
        for k in range(rows * planes):
            own = row + k // planes * size + (k % planes * pitch - base) * column * nbytes
            for v in range(begin, low):
                pad(own, column, v, place(v, n))
            for v in range(high, end):
                pad(own, column, v, place(v, n))

    return pad_ends


def turn_row(dtype: DType) -> Any:
    """Copy positions first, first + step, … of each plane to a plane of another row.

    Positions outside of the plane read the nearest one, whose value nobody uses.
    """
    get, put = (getattr(prims, f"{what}_{dtype}") for what in ("get", "put"))
    nbytes = dtype.bytes

    def turn_row(src, pitch, to, room, planes, column, n, step, first, columns):  # type: ignore[no-untyped-def]
        for plane in range(planes):
            own, out = src + plane * pitch * nbytes, to + plane * room * nbytes
            for k in range(n):
                at = min(max(first + step * k, 0), columns - 1)
                for c in range(column):
                    put(out, k * column + c, get(own, at * column + c))

    return turn_row


@intrinsic
def _ask(typingctx: Any, address: Any, nbytes: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, nbytes = args
        lines = builder.sdiv(builder.add(nbytes, I64(_LINE - 1)), I64(_LINE))
        with cgutils.for_range(builder, lines) as loop:
            ask_for(builder, builder.add(address, builder.mul(loop.index, I64(_LINE))))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def ask_row(dtype: DType) -> Any:
    """Prefetch memory that will be read; the address may be invalid."""

    def ask_row(address, nbytes):  # type: ignore[no-untyped-def]
        _ask(address, nbytes)

    return ask_row


# -- medians ---------------------------------------------------------------------------------------


def _make_sort(dtype: DType, side: int) -> Any:
    lanes = Lanes(dtype)

    @intrinsic
    def sort(typingctx: Any, rows: Any, offset: Any, n: Any, to: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, offset, n, to, size = args
            sources = [row_address(builder, rows, I64(k), offset) for k in range(side)]
            outs = [builder.add(to, builder.mul(size, I64(k))) for k in range(side)]

            def block(at: Any) -> None:
                values = [lanes.load(builder, source, at) for source in sources]
                ascending = networks.sort_values(values, lanes.low(builder), lanes.high(builder))
                for value, out in zip(ascending, outs, strict=True):
                    lanes.store(builder, value, out, at)

            whole_blocks(builder, n, lanes.width, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return sort


def sort_rows(dtype: DType, side: int) -> Any:
    """Sort n columns of `side` rows; the sorted rows are `size` bytes apart."""
    sort, width = _make_sort(dtype, side), Lanes(dtype).width
    get, put = (getattr(prims, f"{what}_{dtype}") for what in ("get", "put"))
    get_i64 = prims.get_i64  # type: ignore[attr-defined]

    def sort_rows(rows, offset, n, to, size):  # type: ignore[no-untyped-def]
        if n >= width:
            sort(rows, offset, n, to, size)
            return
        for at in range(n):
            for k in range(side):
                value = get(get_i64(rows, k) + offset, at)
                j = k
                while j > 0 and get(to + (j - 1) * size, at) > value:
                    put(to + j * size, at, get(to + (j - 1) * size, at))
                    j -= 1
                put(to + j * size, at, value)

    return sort_rows


def _make_middle(dtype: DType, side: int) -> Any:
    lanes = Lanes(dtype)

    @intrinsic
    def middle(typingctx: Any, row: Any, size: Any, column: Any, n: Any, to: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            row, size, column, n, to = args
            rows = [builder.add(row, builder.mul(size, I64(k))) for k in range(side)]
            shifts = [builder.mul(column, I64(k)) for k in range(side)]

            def block(at: Any) -> None:
                columns = [
                    [lanes.load(builder, r, builder.add(at, shift)) for r in rows]
                    for shift in shifts
                ]
                value = networks.middle_of_columns(columns, lanes.low(builder), lanes.high(builder))
                lanes.store(builder, value, to, at)

            whole_blocks(builder, n, lanes.width, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return middle


def middle_of(dtype: DType, side: int) -> Any:
    """The medians of n windows of `side` × `side` elements, whose columns `sort_rows` has sorted.

    Neighbouring columns are `column` elements apart. It handles at least one whole vector.
    """
    middle, width = _make_middle(dtype, side), Lanes(dtype).width

    def middle_of(row, size, column, n, to):  # type: ignore[no-untyped-def]
        middle(row, size, column, max(n, width), to)

    return middle_of


def _make_select(dtype: DType) -> Any:
    lanes = Lanes(dtype)
    bits = dtype.bits
    totals = ir.VectorType(I32, lanes.width)
    # Taps that can be counted in lanes of this width.
    most = min((1 << bits) - 1, (1 << 31) - 1)

    @intrinsic
    def select(typingctx: Any, taps: Any, count: Any, rank: Any, n: Any, to: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            taps, count, rank, n, to = args
            spread = ir.VectorType(I32, lanes.width)
            wanted = builder.insert_element(
                ir.Constant(spread, ir.Undefined), builder.trunc(rank, I32), I32(0)
            )
            wanted = shuffled(builder, wanted, [0] * lanes.width)
            zero, none = ir.Constant(lanes.vector, None), ir.Constant(totals, None)
            sign = 1 << (bits - 1) if lanes.signed else 0
            flip = ir.Constant(lanes.vector, [sign] * lanes.width)

            def block(at: Any) -> None:
                found = cgutils.alloca_once(builder, lanes.vector)
                builder.store(zero, found)
                for bit in range(bits - 1, -1, -1):
                    one = ir.Constant(lanes.vector, [1 << bit] * lanes.width)
                    tried = builder.or_(builder.load(found), one)
                    few = builder.icmp_signed("<=", below(builder.xor(tried, flip), at), wanted)
                    builder.store(builder.select(few, tried, builder.load(found)), found)
                lanes.store(builder, builder.xor(builder.load(found), flip), to, at)

            def below(limit: Any, at: Any) -> Any:
                """How many taps of each window are smaller than a limit."""
                total = cgutils.alloca_once(builder, totals)
                builder.store(none, total)
                size = I64(most)
                chunks = builder.sdiv(builder.add(count, I64(most - 1)), size)
                with cgutils.for_range(builder, chunks) as loop:
                    first = builder.mul(loop.index, size)
                    left = builder.sub(count, first)
                    part = builder.select(builder.icmp_signed("<", left, size), left, size)
                    sums = cgutils.alloca_once(builder, lanes.vector)
                    builder.store(zero, sums)
                    with cgutils.for_range(builder, part) as inner:
                        tap = builder.add(first, inner.index)
                        value = lanes.load(builder, row_address(builder, taps, tap, I64(0)), at)
                        is_below = builder.sext(lanes.below(builder, value, limit), lanes.vector)
                        builder.store(builder.sub(builder.load(sums), is_below), sums)
                    held = builder.load(sums)
                    if bits < 32:
                        held = builder.zext(held, totals)
                    elif bits > 32:
                        held = builder.trunc(held, totals)
                    builder.store(builder.add(builder.load(total), held), total)
                return builder.load(total)

            whole_blocks(builder, n, lanes.width, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return select


def select_middle(dtype: DType) -> Any:
    """The value of a rank in n windows of `count` elements, at the addresses in a list.

    It finds the bits of the value one by one, the highest first: a bit is set if no more than
    `rank` elements of the window are smaller than the value with this bit. It handles at least one
    whole vector.
    """
    select, width = _make_select(dtype), Lanes(dtype).width

    def select_middle(taps, count, rank, n, to):  # type: ignore[no-untyped-def]
        select(taps, count, rank, max(n, width), to)

    return select_middle


# -- by name ---------------------------------------------------------------------------------------


def made(name: str) -> Any:
    """The function of a helper's name (`join_rows__u8_lowest`, `sort_rows__i32_5`), or None."""
    kind, _, rest = name.rpartition("__")
    dtype, *choice = rest.split("_", 1)
    makers: dict[str, Any] = {
        "join_rows": join_rows, "join_spans": join_spans, "pad_ends": pad_ends,
        "turn_row": turn_row, "sort_rows": sort_rows, "middle_of": middle_of,
        "select_middle": select_middle, "ask_row": ask_row,
    }  # fmt: skip
    if kind not in makers:
        return None
    return makers[kind](DType.parse(dtype), *(int(c) if c.isdigit() else c for c in choice))
