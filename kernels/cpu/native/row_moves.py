"""Rows of pixels → the same pixels elsewhere: copied, turned, with channels reordered.

LLVM moves pixels of three bytes byte by byte unless it knows their stride. These functions copy
whole rows or whole pixels, or shuffle five pixels at a time within a vector of 16 bytes. Only
imported to compile something.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import primitives as prims
from .vectors import I64, at_byte, load_vector

HAS_SHUFFLES = bool(llvm.get_host_cpu_features().get("ssse3", False))
SIZES = (1, 3, 4)  # bytes of a pixel that `move_row` knows
_LANES = 16
_BYTE = ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, _LANES)
_get_u8, _put_u8 = prims.get_u8, prims.put_u8  # type: ignore[attr-defined]
_get_u16, _put_u16 = prims.get_u16, prims.put_u16  # type: ignore[attr-defined]
_get_u32, _put_u32 = prims.get_u32, prims.put_u32  # type: ignore[attr-defined]
_get_i64 = prims.get_i64  # type: ignore[attr-defined]
_FIVE = [3 * (k // 3) for k in range(15)]  # where the pixel of each of 15 bytes begins


@intrinsic
def copy_bytes(typingctx: Any, source: Any, target: Any, nbytes: Any) -> Any:
    """memcpy."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target = (builder.inttoptr(a, _BYTE.as_pointer()) for a in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _shuffle(builder: Any, source: Any, target: Any, places: Any) -> None:
    """Read 16 bytes, store those at 16 places among them."""
    value = load_vector(builder, at_byte(builder, source, I64(0), _BYTES), _BYTES, 1)
    kind = ir.FunctionType(_BYTES, [_BYTES] * 2)
    name = "llvm.x86.ssse3.pshuf.b.128"
    fn = cgutils.get_or_insert_function(builder.module, kind, name)
    done = builder.store(
        builder.call(fn, [value, places]), at_byte(builder, target, I64(0), _BYTES)
    )
    done.align = 1


@intrinsic
def _reorder(typingctx: Any, source: Any, target: Any, a: Any, b: Any, c: Any) -> Any:
    """Five pixels, with these channels as their first, second and third."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target, *channels = args
        places = ir.Constant(_BYTES, ir.Undefined)
        for k, first in enumerate([*_FIVE, 0]):
            place = builder.add(builder.trunc(channels[k % 3], _BYTE), _BYTE(first))
            places = builder.insert_element(places, place, ir.IntType(32)(k))
        _shuffle(builder, source, target, places)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


def copy_row(source, target, nbytes):  # type: ignore[no-untyped-def]
    """Copy bytes."""
    copy_bytes(source, target, nbytes)


def move_row(size: int) -> Any:
    """A function that copies `pixels` pixels of `size` bytes, which are `step` bytes apart in the
    source and side by side in the target."""

    def bytes_(source, target, pixels, step):  # type: ignore[no-untyped-def]
        if step == 1:
            copy_bytes(source, target, pixels)
            return
        for k in range(pixels):
            _put_u8(target, k, _get_u8(source + k * step, 0))

    def threes(source, target, pixels, step):  # type: ignore[no-untyped-def]
        if step == 3:
            copy_bytes(source, target, 3 * pixels)
            return
        first = 0
        if pixels > 2 and (step > 3 or step < -3):
            # Move four bytes at a time. The fourth one lies between the first pixel and the last,
            # and the next pixel replaces it in the target.
            for i in range(3):
                _put_u8(target, i, _get_u8(source, i))
            for k in range(1, pixels - 1):
                _put_u32(target + 3 * k, 0, _get_u32(source + k * step, 0))
            first = pixels - 1
        for k in range(first, pixels):
            for i in range(3):
                _put_u8(target, 3 * k + i, _get_u8(source + k * step, i))

    def fours(source, target, pixels, step):  # type: ignore[no-untyped-def]
        if step == 4:
            copy_bytes(source, target, 4 * pixels)
        else:
            for k in range(pixels):
                _put_u32(target, k, _get_u32(source + k * step, 0))

    return {1: bytes_, 3: threes, 4: fours}[size]


def gather_row(size: int) -> Any:
    """A function that puts the pixels of `size` bytes at listed addresses side by side."""

    def bytes_(places, target, pixels):  # type: ignore[no-untyped-def]
        for k in range(pixels):
            _put_u8(target, k, _get_u8(_get_i64(places, k), 0))

    def pairs(places, target, pixels):  # type: ignore[no-untyped-def]
        for k in range(pixels):
            _put_u16(target, k, _get_u16(_get_i64(places, k), 0))

    def threes(places, target, pixels):  # type: ignore[no-untyped-def]
        for k in range(pixels):
            source = _get_i64(places, k)
            _put_u16(target + 3 * k, 0, _get_u16(source, 0))
            _put_u8(target + 3 * k, 2, _get_u8(source, 2))

    def fours(places, target, pixels):  # type: ignore[no-untyped-def]
        for k in range(pixels):
            _put_u32(target, k, _get_u32(_get_i64(places, k), 0))

    return {1: bytes_, 2: pairs, 3: threes, 4: fours}[size]


def weave_row(a, b, c, target, pixels):  # type: ignore[no-untyped-def]
    """Make pixels of three bytes from every third byte at three addresses."""
    first = 0
    base = min(a, min(b, c))
    if HAS_SHUFFLES and max(a, max(b, c)) - base < 3:
        # A vector of 16 bytes reads and writes a byte behind its five pixels, so another pixel must
        # follow.
        while first + 5 < pixels:
            at = base + 3 * first
            _reorder(at, target + 3 * first, a - base, b - base, c - base)
            first += 5
    for k in range(3 * first, 3 * pixels, 3):
        _put_u8(target, k, _get_u8(a, k))
        _put_u8(target, k + 1, _get_u8(b, k))
        _put_u8(target, k + 2, _get_u8(c, k))
