"""Bytes and tables of 256 bytes → the entries of the tables, 64 at a time where the CPU can.

AVX-512 VBMI has an instruction that looks up 64 bytes in 128 at once, so a whole table takes two of
them. AVX2 looks up 32 bytes in 16 at once, so a table takes 16 of these. Other CPUs look up byte by
byte, and so does AVX2 if every channel has a table of its own. Only imported to compile something.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from . import primitives as prims
from .vectors import I64, at_byte, load_vector, whole_blocks

HAS_VBMI = bool(llvm.get_host_cpu_features().get("avx512vbmi", False))
HAS_AVX2 = bool(llvm.get_host_cpu_features().get("avx2", False))
_LANES = 64
_BYTE = ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, _LANES)
_get_u8, _put_u8 = prims.get_u8, prims.put_u8  # type: ignore[attr-defined]


def _permuted(builder: Any, low: Any, places: Any, high: Any) -> Any:
    """The bytes of two vectors at places 0 to 127; the highest bit of a place is ignored."""
    kind = ir.FunctionType(_BYTES, [_BYTES] * 3)
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    fn = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(fn, [low, places, high])


def _entries(builder: Any, table: list[Any], places: Any) -> Any:
    """The entries of a table, which lies in four vectors."""
    halves = [_permuted(builder, table[k], places, table[k + 1]) for k in (2, 0)]
    is_high = builder.icmp_signed("<", places, ir.Constant(_BYTES, [0] * _LANES))
    return builder.select(is_high, *halves)


def _make_blocks(channels: int) -> Any:
    @intrinsic
    def blocks(typingctx: Any, source: Any, target: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
        """Look up n bytes, at least `64 * channels`; channel k in the table at the k-th address."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            source, target, n, *addresses = args

            def vector(address: Any, at: int | Any) -> Any:
                at = I64(at) if isinstance(at, int) else at
                return load_vector(builder, at_byte(builder, address, at, _BYTES), _BYTES, 1)

            tables = [
                [vector(address, k * _LANES) for k in range(4)] for address in addresses[:channels]
            ]

            def block(at: Any) -> None:
                for k in range(channels):
                    first = builder.add(at, I64(k * _LANES))
                    places = vector(source, first)
                    value = _entries(builder, tables[0], places)
                    for channel in range(1, channels):
                        own = [int((k * _LANES + j) % channels == channel) for j in range(_LANES)]
                        mask = ir.Constant(ir.VectorType(ir.IntType(1), _LANES), own)
                        other = _entries(builder, tables[channel], places)
                        value = builder.select(mask, other, value)
                    done = builder.store(value, at_byte(builder, target, first, _BYTES))
                    done.align = 1

            whole_blocks(builder, n, _LANES * channels, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return blocks


_SHORT_LANES = 32
_SHORT = ir.VectorType(_BYTE, _SHORT_LANES)
_ROW = ir.VectorType(_BYTE, 16)


@intrinsic
def _short_blocks(typingctx: Any, source: Any, target: Any, n: Any, table: Any) -> Any:
    """Look up n bytes, at least 32, in one table, with AVX2."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, target, n, table = args
        both = ir.Constant(ir.VectorType(ir.IntType(32), 32), [*range(16), *range(16)])
        rows = []  # the 16 entries that begin with each high half of a byte, twice
        for k in range(16):
            place = at_byte(builder, table, I64(16 * k), _ROW)
            row = load_vector(builder, place, _ROW, 1)
            rows.append(builder.shuffle_vector(row, ir.Constant(_ROW, ir.Undefined), both))

        def call(name: str, *operands: Any) -> Any:
            kind = ir.FunctionType(_SHORT, [_SHORT] * 2)
            fn = cgutils.get_or_insert_function(builder.module, kind, name)
            return builder.call(fn, operands)

        def every(number: int) -> Any:
            return ir.Constant(_SHORT, [number] * _SHORT_LANES)

        def block(at: Any) -> None:
            places = load_vector(builder, at_byte(builder, source, at, _SHORT), _SHORT, 1)
            found = every(0)
            for k, row in enumerate(rows):
                # Bytes of another row get their highest bit set, for which the shuffle gives 0.
                own = builder.xor(places, every(16 * k))
                own = call("llvm.uadd.sat.v32i8", own, every(0x70))
                found = builder.or_(found, call("llvm.x86.avx2.pshuf.b", row, own))
            done = builder.store(found, at_byte(builder, target, at, _SHORT))
            done.align = 1

        whole_blocks(builder, n, _SHORT_LANES, block)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def look_up_bytes(channels: int) -> Any:
    """A function that replaces each byte of `pixels` pixels by its entry in its channel's table."""
    blocks, size, is_wide = _make_blocks(channels), _LANES * channels, HAS_VBMI
    is_short = HAS_AVX2 and not HAS_VBMI

    def one(source, target, pixels, a, b, c):  # type: ignore[no-untyped-def]
        if is_wide and pixels >= size:
            blocks(source, target, pixels, a, b, c)
            return
        if is_short and pixels >= _SHORT_LANES:
            _short_blocks(source, target, pixels, a)
            return
        for k in range(pixels):
            _put_u8(target, k, _get_u8(a, int(_get_u8(source, k))))

    def three(source, target, pixels, a, b, c):  # type: ignore[no-untyped-def]
        if is_wide and pixels * 3 >= size:
            blocks(source, target, pixels * 3, a, b, c)
            return
        for k in range(pixels):
            _put_u8(target, 3 * k, _get_u8(a, int(_get_u8(source, 3 * k))))
            _put_u8(target, 3 * k + 1, _get_u8(b, int(_get_u8(source, 3 * k + 1))))
            _put_u8(target, 3 * k + 2, _get_u8(c, int(_get_u8(source, 3 * k + 2))))

    return {1: one, 3: three}[channels]
