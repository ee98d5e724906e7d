"""Exact sums of bytes and of their squares, from contiguous memory.

LLVM widens each byte to its own lane first; for sums of squares that takes twice as long as reading
from memory. AVX2 has instructions that add up neighbours while they widen. This module is imported
only when a kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .byte_tables import HAS_AVX2
from .vectors import I64, ask_for, at_byte, load_vector

_BYTES = 32
_ROW = ir.VectorType(ir.IntType(8), _BYTES)
_HALVES = ir.VectorType(ir.IntType(16), _BYTES // 2)
_WORDS = ir.VectorType(ir.IntType(32), _BYTES // 4)
_LONGS = ir.VectorType(I64, _BYTES // 8)
# Squares are added in lanes of 32 bits: at most 2 · 255² per block of 32 bytes and accumulator, so
# they cannot overflow within so many bytes.
_RUN = 1 << 19
_ONE_BLOCK = 64  # bytes per turn of the loop, so that sums of two accumulators overlap
# How far ahead to prefetch: 32 images of 600 KB, which are not in the L2 cache, take 24 to 25
# instead of 28 µs each (squares), those in L2 13.7 instead of 14.5.
_AHEAD = 1024


def _call(builder: Any, name: str, result: ir.Type, *operands: Any) -> Any:
    kind = ir.FunctionType(result, [o.type for o in operands])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)


def _sums(builder: Any, row: Any) -> list[Any]:
    """Four sums of eight bytes."""
    if HAS_AVX2:
        zero = ir.Constant(_ROW, None)
        return [_call(builder, "llvm.x86.avx2.psad.bw", _LONGS, row, zero)]
    return _added_pairs(builder, _added_pairs(builder, _halves(builder, row)))


def _squares(builder: Any, row: Any) -> list[Any]:
    """Sums of two squares, as two vectors of eight."""
    halves = _halves(builder, row)
    if HAS_AVX2:
        return [_call(builder, "llvm.x86.avx2.pmadd.wd", _WORDS, h, h) for h in halves]
    return _added_pairs(builder, [builder.mul(h, h) for h in halves])


def _halves(builder: Any, row: Any) -> list[Any]:
    """The bytes with even and with odd numbers, in lanes of 16 bits."""
    pairs = builder.bitcast(row, _HALVES)
    low = ir.Constant(_HALVES, [255] * _HALVES.count)
    return [builder.and_(pairs, low), builder.lshr(pairs, ir.Constant(_HALVES, [8] * 16))]


def _added_pairs(builder: Any, vectors: list[Any]) -> list[Any]:
    """Sums of neighbouring lanes, in lanes of twice the width."""
    bits = vectors[0].type.element.width
    wide = ir.VectorType(ir.IntType(2 * bits), vectors[0].type.count // 2)
    low = ir.Constant(wide, [(1 << bits) - 1] * wide.count)
    shift = ir.Constant(wide, [bits] * wide.count)
    found = []
    for vector in vectors:
        pairs = builder.bitcast(vector, wide)
        found.append(builder.add(builder.and_(pairs, low), builder.lshr(pairs, shift)))
    return found


_PARTS = {1: _sums, 2: _squares}


def _make(*powers: int) -> Any:
    """A function that adds up these powers of bytes; it returns a tuple if there are several."""

    @intrinsic
    def total(typingctx: Any, source: Any, n: Any) -> Any:
        result = (
            types.int64 if len(powers) == 1 else types.containers.UniTuple(types.int64, len(powers))
        )

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            source, n = args
            totals = [cgutils.alloca_once_value(builder, I64(0)) for _ in powers]

            def add(to: Any, value: Any) -> None:
                value = value if value.type == I64 else builder.zext(value, I64)
                builder.store(builder.add(builder.load(to), value), to)

            def parts_at(at: Any) -> list[list[Any]]:
                """The sums of a row, for each power."""
                row = load_vector(builder, at_byte(builder, source, at, _ROW), _ROW, 1)
                return [_PARTS[power](builder, row) for power in powers]

            def blocks(begin: Any, count: Any) -> None:
                rows = range(0, _ONE_BLOCK, _BYTES)
                held = [
                    [[cgutils.alloca_once(builder, v.type) for v in own] for own in parts_at(begin)]
                    for _ in rows
                ]
                places = [place for row in held for own in row for place in own]
                for place in places:
                    builder.store(ir.Constant(place.type.pointee, None), place)
                with cgutils.for_range(builder, count) as loop:
                    at = builder.add(begin, builder.mul(loop.index, I64(_ONE_BLOCK)))
                    ask_for(builder, builder.add(source, builder.add(at, I64(_AHEAD))))
                    found = [parts_at(builder.add(at, I64(k))) for k in rows]
                    values = [value for row in found for own in row for value in own]
                    for place, value in zip(places, values, strict=True):
                        builder.store(builder.add(builder.load(place), value), place)
                for row in held:
                    for to, own in zip(totals, row, strict=True):
                        for place in own:
                            vector = builder.load(place)
                            for k in range(vector.type.count):
                                add(to, builder.extract_element(vector, ir.IntType(32)(k)))

            whole = builder.sdiv(n, I64(_ONE_BLOCK))
            per_run = _RUN // _ONE_BLOCK
            runs = builder.sdiv(builder.add(whole, I64(per_run - 1)), I64(per_run))
            with cgutils.for_range(builder, runs) as loop:
                first = builder.mul(loop.index, I64(per_run))
                left = builder.sub(whole, first)
                is_last = builder.icmp_signed("<", left, I64(per_run))
                count = builder.select(is_last, left, I64(per_run))
                blocks(builder.mul(first, I64(_ONE_BLOCK)), count)
            done = builder.mul(whole, I64(_ONE_BLOCK))
            with cgutils.for_range(builder, builder.sub(n, done)) as loop:
                place = at_byte(builder, source, builder.add(done, loop.index), ir.IntType(8))
                value = builder.zext(builder.load(place), I64)
                for to, power in zip(totals, powers, strict=True):
                    add(to, builder.mul(value, value) if power == 2 else value)
            found = [builder.load(to) for to in totals]
            return found[0] if len(found) == 1 else context.make_tuple(builder, result, found)

        return result(types.int64, types.int64), codegen

    return total


sum_of_bytes, sum_of_squares, sums_of_powers = _make(1), _make(2), _make(1, 2)
