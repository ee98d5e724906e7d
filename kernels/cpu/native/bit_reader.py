"""Numbers of any width in a stream of bits, the highest bit first.

A stream is an address, a size in bytes and the place of the next bit. Behind the end there are
zeros, so reading never leaves the memory, and callers need to look at the place only once in a
while. Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from . import primitives as prims
from .compile import part
from .vectors import I64

_get_u8 = prims.get_u8  # type: ignore[attr-defined]
SAFE_BITS = 57  # of a word that begins at any bit


@intrinsic
def _eight_bytes(typingctx: Any, address: Any) -> Any:
    """The number that eight bytes are, the first being the highest."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], I64.as_pointer()))
        value.align = 1
        return builder.bswap(value)

    return types.int64(types.int64), codegen


@intrinsic
def zeros(typingctx: Any, word: Any) -> Any:
    """How many zeros a word begins with; 64 if it is zero."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen


@intrinsic
def moved_up(typingctx: Any, word: Any, count: Any) -> Any:
    """A word without its first bits; the count is taken modulo 64, as CPUs do."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.shl(args[0], builder.and_(args[1], I64(63)))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def first_bits(typingctx: Any, word: Any, count: Any) -> Any:
    """The first bits of a word, from 0 to 63 of them, as a number."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        half = builder.lshr(args[0], I64(1))  # a shift by 64 is undefined
        return builder.lshr(half, builder.and_(builder.sub(I64(63), args[1]), I64(63)))

    return types.int64(types.int64, types.int64), codegen


@part
def word_at(data, size, bit):  # type: ignore[no-untyped-def]
    """A word whose first `SAFE_BITS` bits are those from `bit` on."""
    at = bit >> 3
    word = np.int64(0)
    if at + 8 <= size:
        word = _eight_bytes(data + at)
    else:
        for k in range(at, at + 8):
            word <<= 8
            if k < size:
                word |= np.int64(_get_u8(data, k))
    return word << (bit & 7)


@part
def number_at(data, size, bit, count):  # type: ignore[no-untyped-def]
    """A number of up to `SAFE_BITS` bits."""
    return first_bits(word_at(data, size, bit), count)


@part
def signed_at(data, size, bit, count):  # type: ignore[no-untyped-def]
    """A number of 1 to `SAFE_BITS` bits, the first of which is its sign."""
    return word_at(data, size, bit) >> (64 - count)
