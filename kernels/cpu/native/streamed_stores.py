"""Moves rows from a kernel's stack to memory, past the caches (see kernels/cpu/streamed_rows.py).

Only imported to compile something.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import primitives as prims
from .block_sizes import PIECE_BYTES
from .row_moves import copy_bytes
from .vectors import I32, I64, at_byte, load_vector

_LINE = 64  # bytes of a cache line; memory that is written past the caches is aligned to it
_AT_ONCE = 4  # lines per turn of the loop
_BYTES = ir.VectorType(ir.IntType(8), _LINE)
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_IS_X86 = platform.machine() in ("x86_64", "AMD64", "i686")


@intrinsic
def _stream_lines(typingctx: Any, source: Any, target: Any, count: Any) -> Any:
    """Store whole cache lines past the caches; `target` must be aligned."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target, count = args
        past_caches = builder.module.add_metadata([I32(1)])

        def lines(first: Any, number: int) -> None:
            at = builder.mul(first, I64(_LINE))
            places = [builder.add(at, I64(k * _LINE)) for k in range(number)]
            values = [
                load_vector(builder, at_byte(builder, source, place, _BYTES), _BYTES, 1)
                for place in places
            ]
            for place, value in zip(places, values, strict=True):
                done = builder.store(value, at_byte(builder, target, place, _BYTES))
                done.align = _LINE
                done.set_metadata("nontemporal", past_caches)

        turns = builder.sdiv(count, I64(_AT_ONCE))
        with cgutils.for_range(builder, turns) as loop:
            lines(builder.mul(loop.index, I64(_AT_ONCE)), _AT_ONCE)
        done = builder.mul(turns, I64(_AT_ONCE))
        with cgutils.for_range(builder, builder.sub(count, done)) as loop:
            lines(builder.add(done, loop.index), 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@njit
def _store_lines(piece):  # type: ignore[no-untyped-def]
    """Store the whole lines of a piece, and move what is left of the last one to its beginning."""
    begin, end = _get_i64(piece, 0), _get_i64(piece, 1)
    source, first, last = piece + _LINE, begin // _LINE * _LINE, end // _LINE * _LINE
    if first == last:
        return
    if begin > first:
        copy_bytes(source + begin - first, begin, first + _LINE - begin)
        source, first = source + _LINE, first + _LINE
    _stream_lines(source, first, (last - first) // _LINE)
    copy_bytes(source + last - first, piece + _LINE, end - last)
    _put_i64(piece, 0, last)


def end_rows(piece):  # type: ignore[no-untyped-def]
    """Store all that a piece holds."""
    _store_lines(piece)
    begin, end = _get_i64(piece, 0), _get_i64(piece, 1)
    copy_bytes(piece + _LINE + begin % _LINE, begin, end - begin)
    _put_i64(piece, 0, 0)
    _put_i64(piece, 1, 0)


_end_rows = njit(end_rows)


def add_to_piece(piece, to, nbytes):  # type: ignore[no-untyped-def]
    """Make room for bytes that go to address `to`, at piece + 64 + to - (begin rounded down to 64).

    A piece starts with two addresses: where the bytes that it holds begin and end in memory. Bytes
    that follow them are added, until there are many, and until lines that rows share are whole. (A
    part of a line has to be stored through the caches, and the stores after it wait until that line
    has been read: rows of 6000 bytes took 134 µs per 400 × 500 pixels instead of 79.)
    """
    begin, end = _get_i64(piece, 0), _get_i64(piece, 1)
    if end != to:
        _end_rows(piece)
        _put_i64(piece, 0, to)
    elif end + nbytes - begin // _LINE * _LINE > PIECE_BYTES + _LINE:
        _store_lines(piece)
    _put_i64(piece, 1, to + nbytes)


@intrinsic
def finish_streams(typingctx: Any) -> Any:
    """Make stores past the caches visible to other threads before any later store is."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _IS_X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse.sfence"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), codegen
