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
from .vectors import F32, I32, I64, at_byte, load_vector, vector_blocks
from .window_ranks import row_address
from .window_sums import SUMS, WIDE, WIDE_FLOATS, LinesAtOnce

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


def sum_to_bytes(lines: int) -> Any:
    """The sums of `window_sums.sum_lines`, rounded to bytes; n must be at least `WIDE`."""

    @intrinsic
    def add_lines(
        typingctx: Any, rows: Any, weights: Any, count: Any, by: Any, n: Any, outs: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, weights, count, by, n, outs = args
            rows, outs = (builder.inttoptr(x, I64.as_pointer()) for x in (rows, outs))
            weights = builder.inttoptr(weights, F32.as_pointer())
            group = LinesAtOnce(builder, lines)
            targets = [builder.load(builder.gep(outs, [I64(k)])) for k in range(lines)]

            def block(at: Any, vectors: int) -> None:
                places = [builder.add(at, I64(v * WIDE)) for v in range(vectors)]
                sums = group.sums(rows, weights, count, by, places)
                for out, line in zip(targets, sums, strict=True):
                    for place, value in zip(places, line, strict=True):
                        to = at_byte(builder, out, place, _WIDE_BYTES)
                        builder.store(_rounded(builder, value), to).align = 1

            vector_blocks(builder, n, WIDE, SUMS // lines, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    def sum_to_bytes(rows, weights, count, by, n, outs):  # type: ignore[no-untyped-def]
        add_lines(rows, weights, count, by, n, outs)

    return sum_to_bytes


# -- means -----------------------------------------------------------------------------------------


def _load_bytes(builder: Any, row: Any, at: Any) -> Any:
    return load_vector(builder, at_byte(builder, row, at, _BYTES), _BYTES, 1)


def _words_at(builder: Any, row: Any, at: Any) -> Any:
    return at_byte(builder, row, builder.mul(at, I64(2)), _WORDS)


@intrinsic
def _add_rows(typingctx: Any, rows: Any, count: Any, n: Any, to: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows, count, n, to = args

        def block(at: Any, vectors: int) -> None:
            held = [cgutils.alloca_once(builder, _WORDS) for _ in range(vectors)]
            for place in held:
                builder.store(ir.Constant(_WORDS, [0] * BYTE_LANES), place)
            with cgutils.for_range(builder, count) as loop:
                row = row_address(builder, rows, loop.index, I64(0))
                for v, place in enumerate(held):
                    value = _load_bytes(builder, row, builder.add(at, I64(v * BYTE_LANES)))
                    total = builder.add(builder.load(place), builder.zext(value, _WORDS))
                    builder.store(total, place)
            for v, place in enumerate(held):
                target = _words_at(builder, to, builder.add(at, I64(v * BYTE_LANES)))
                builder.store(builder.load(place), target).align = 2

        vector_blocks(builder, n, BYTE_LANES, _VECTORS, block)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def _means(
    typingctx: Any, row: Any, column: Any, count: Any, n: Any, factor: Any, half: Any, by: Any,
    to: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row, column, count, n, factor, half, by, to = args

        def everywhere(value: Any, vector: ir.VectorType) -> Any:
            first = builder.trunc(value, vector.element)
            empty = ir.Constant(vector, ir.Undefined)
            one = builder.insert_element(empty, first, I32(0))
            lanes = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
            return builder.shuffle_vector(one, empty, lanes)

        factor, half, by = everywhere(factor, _DOUBLE_WORDS), *(
            everywhere(x, _WORDS) for x in (half, by)
        )
        high = ir.Constant(_DOUBLE_WORDS, [16] * BYTE_LANES)

        def block(at: Any, vectors: int) -> None:
            places = [builder.add(at, I64(v * BYTE_LANES)) for v in range(vectors)]
            held = [cgutils.alloca_once(builder, _WORDS) for _ in places]
            for place in held:
                builder.store(half, place)
            with cgutils.for_range(builder, count) as loop:
                shift = builder.mul(loop.index, column)
                for at_, place in zip(places, held, strict=True):
                    source = _words_at(builder, row, builder.add(at_, shift))
                    value = load_vector(builder, source, _WORDS, 2)
                    builder.store(builder.add(builder.load(place), value), place)
            for at_, place in zip(places, held, strict=True):
                wide = builder.mul(builder.zext(builder.load(place), _DOUBLE_WORDS), factor)
                number = builder.lshr(builder.trunc(builder.lshr(wide, high), _WORDS), by)
                target = at_byte(builder, to, at_, _BYTES)
                builder.store(builder.trunc(number, _BYTES), target).align = 1

        vector_blocks(builder, n, BYTE_LANES, _VECTORS, block)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), codegen


def add_byte_rows(rows, count, n, to):  # type: ignore[no-untyped-def]
    """Add up n bytes of `count` rows, as words of 16 bits; n is at least `BYTE_LANES`."""
    _add_rows(rows, count, n, to)


def mean_row(row, column, across, n, taps, to):  # type: ignore[no-untyped-def]
    """The rounded means of `taps` bytes, given their sums along columns, as words of 16 bits.

    Each is the sum of `across` words that are `column` words apart. `taps` is odd and at most
    `MEAN_TAPS`, n at least `BYTE_LANES`. See NOTE [means of bytes].
    """
    by = 0
    while 2 << by < taps:
        by += 1
    factor = ((65536 << by) + taps - 1) // taps
    _means(row, column, across, n, factor, taps // 2, by, to)
