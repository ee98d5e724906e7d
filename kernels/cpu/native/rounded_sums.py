"""Native helpers of `ByteLines`: sums over windows that become bytes at once.

Channels stay side by side, so that a row of pixels is one run of numbers. This module is imported
only when a kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .block_sizes import BYTE_LANES
from .vectors import I32, I64, at_byte, load_vector, shuffled, vector_blocks
from .window_ranks import row_address
from .window_sums import WIDE, WIDE_FLOATS, make_add_lines

_BYTE, _WORD = ir.IntType(8), ir.IntType(16)
_WIDE_INTS, _WIDE_BYTES = ir.VectorType(I32, WIDE), ir.VectorType(_BYTE, WIDE)
_BYTES, _WORDS = ir.VectorType(_BYTE, BYTE_LANES), ir.VectorType(_WORD, BYTE_LANES)
_DOUBLE_WORDS = ir.VectorType(I32, BYTE_LANES)
_VECTORS = 4  # that the loop over rows keeps in registers


def _rounded(builder: Any, value: Any) -> Any:
    """Bytes from floats as `expr.convert` makes them: cut to their range, halves to even."""
    for sign, limit in ((">", 0.0), ("<", 255.0)):
        bound = ir.Constant(WIDE_FLOATS, [limit] * WIDE)
        value = builder.select(builder.fcmp_ordered(sign, value, bound), value, bound)
    kind = ir.FunctionType(WIDE_FLOATS, [WIDE_FLOATS])
    rint = cgutils.get_or_insert_function(builder.module, kind, f"llvm.rint.v{WIDE}f32")
    number = builder.fptosi(builder.call(rint, [value]), _WIDE_INTS)
    return builder.trunc(number, _WIDE_BYTES)


def _store(builder: Any, value: Any, to: Any, place: Any) -> None:
    at = at_byte(builder, to, place, _WIDE_BYTES)
    builder.store(_rounded(builder, value), at).align = 1


def sum_to_bytes(lines: int) -> Any:
    """The sums of `window_sums.sum_lines`, rounded to bytes; n must be at least `WIDE`."""
    add_lines = make_add_lines(lines, _store)

    def sum_to_bytes(rows, weights, count, by, n, outs):  # type: ignore[no-untyped-def]
        add_lines(rows, weights, count, by, n, outs)

    return sum_to_bytes


# -- means -----------------------------------------------------------------------------------------


def _bytes_at(builder: Any, row: Any, at: Any) -> Any:
    """Bytes of a row, as words."""
    value = load_vector(builder, at_byte(builder, row, at, _BYTES), _BYTES, 1)
    return builder.zext(value, _WORDS)


def _words_at(builder: Any, row: Any, at: Any) -> Any:
    place = at_byte(builder, row, builder.mul(at, I64(2)), _WORDS)
    return load_vector(builder, place, _WORDS, 2)


class _Division:
    """Divides sums of bytes by their number; see NOTE [means of bytes]."""

    def __init__(self, builder: Any, taps: Any, by: Any) -> None:
        self.builder = builder
        power = builder.shl(I64(1 << 16), by)
        factor = builder.udiv(builder.add(power, builder.sub(taps, I64(1))), taps)
        self.factor = self._everywhere(factor, _DOUBLE_WORDS)
        self.by = self._everywhere(by, _WORDS)
        self.half = self._everywhere(builder.lshr(taps, I64(1)), _WORDS)  # what sums start with

    def _everywhere(self, number: Any, vector: ir.VectorType) -> Any:
        first = self.builder.trunc(number, vector.element)
        empty = ir.Constant(vector, ir.Undefined)
        one = self.builder.insert_element(empty, first, I32(0))
        return shuffled(self.builder, one, [0] * vector.count)

    def store(self, total: Any, to: Any, at: Any) -> None:
        builder, high = self.builder, ir.Constant(_DOUBLE_WORDS, [16] * BYTE_LANES)
        wide = builder.mul(builder.zext(total, _DOUBLE_WORDS), self.factor)
        number = builder.lshr(builder.trunc(builder.lshr(wide, high), _WORDS), self.by)
        place = at_byte(builder, to, at, _BYTES)
        builder.store(builder.trunc(number, _BYTES), place).align = 1


def _each_vector(builder: Any, n: Any, start: Any, add: Any, finish: Any) -> None:
    """For vectors that cover n sums: `add` all taps to `start`, then `finish` the totals."""

    def block(at: Any, vectors: int) -> None:
        places = [builder.add(at, I64(v * BYTE_LANES)) for v in range(vectors)]
        held = [cgutils.alloca_once(builder, _WORDS) for _ in places]
        for total in held:
            builder.store(start, total)
        add(places, held)
        finish(places, held)

    vector_blocks(builder, n, BYTE_LANES, _VECTORS, block)


def _add_to(builder: Any, total: Any, value: Any) -> None:
    builder.store(builder.add(builder.load(total), value), total)


@intrinsic
def _add_across(typingctx: Any, row: Any, column: Any, count: Any, n: Any, to: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row, column, count, n, to = args

        def add(places: list[Any], held: list[Any]) -> None:
            with cgutils.for_range(builder, count) as loop:
                shift = builder.mul(loop.index, column)
                for at, total in zip(places, held, strict=True):
                    _add_to(builder, total, _bytes_at(builder, row, builder.add(at, shift)))

        def finish(places: list[Any], held: list[Any]) -> None:
            for at, total in zip(places, held, strict=True):
                place = at_byte(builder, to, builder.mul(at, I64(2)), _WORDS)
                builder.store(builder.load(total), place).align = 2

        _each_vector(builder, n, ir.Constant(_WORDS, [0] * BYTE_LANES), add, finish)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _mean_down(
    typingctx: Any, rows: Any, count: Any, more: Any, n: Any, taps: Any, by: Any, outs: Any
) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows, count, more, n, taps, by, outs = args
        division = _Division(builder, taps, by)

        def words(k: Any, at: Any) -> Any:
            return _words_at(builder, row_address(builder, rows, k, I64(0)), at)

        def add(places: list[Any], held: list[Any]) -> None:
            with cgutils.for_range(builder, count) as loop:
                for at, total in zip(places, held, strict=True):
                    _add_to(builder, total, words(loop.index, at))

        def finish(places: list[Any], held: list[Any]) -> None:
            def store(line: Any) -> None:
                to = row_address(builder, outs, line, I64(0))
                for at, total in zip(places, held, strict=True):
                    division.store(builder.load(total), to, at)

            store(I64(0))
            with cgutils.for_range(builder, more) as loop:
                # The next line has one row more at its end, and one less where it begins.
                for at, total in zip(places, held, strict=True):
                    _add_to(builder, total, words(builder.add(loop.index, count), at))
                    less = builder.sub(builder.load(total), words(loop.index, at))
                    builder.store(less, total)
                store(builder.add(loop.index, I64(1)))

        _each_vector(builder, n, division.half, add, finish)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), codegen


@intrinsic
def _mean_of(typingctx: Any, rows: Any, taps: Any, n: Any, by: Any, to: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows, taps, n, by, to = args
        division = _Division(builder, taps, by)

        def add(places: list[Any], held: list[Any]) -> None:
            with cgutils.for_range(builder, taps) as loop:
                row = row_address(builder, rows, loop.index, I64(0))
                for at, total in zip(places, held, strict=True):
                    _add_to(builder, total, _bytes_at(builder, row, at))

        def finish(places: list[Any], held: list[Any]) -> None:
            for at, total in zip(places, held, strict=True):
                division.store(builder.load(total), to, at)

        _each_vector(builder, n, division.half, add, finish)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


# For all of these, n is at least `BYTE_LANES`, and the number of taps odd and at most `MEAN_TAPS`.


def add_across(row, column, count, n, to):  # type: ignore[no-untyped-def]
    """Add up `count` bytes that are `column` bytes apart, as n words of 16 bits."""
    _add_across(row, column, count, n, to)


def mean_down(rows, count, more, n, taps, outs):  # type: ignore[no-untyped-def]
    """The rounded means of `taps` bytes: of words in `count` rows, and for each of `more` lines in
    as many rows that begin one later in the list. `outs` lists where the lines go."""
    by = 0
    while 2 << by < taps:
        by += 1
    _mean_down(rows, count, more, n, taps, by, outs)


def mean_of(rows, taps, n, to):  # type: ignore[no-untyped-def]
    """The rounded means of bytes in some rows."""
    by = 0
    while 2 << by < taps:
        by += 1
    _mean_of(rows, taps, n, by, to)
