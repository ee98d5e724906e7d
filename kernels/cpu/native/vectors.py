"""LLVM values → vectors of eight pixels and their channels, for loops LLVM does not vectorise.

Only imported to compile something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir import dtypes as dt
from ...ir.dtypes import DType
from . import primitives as prims
from .block_sizes import GROUP

I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
INTS, FLOATS = ir.VectorType(I32, GROUP), ir.VectorType(F32, GROUP)


def fma(builder: Any, kind: ir.Type) -> Any:
    name = "f32" if kind == F32 else f"v{kind.count}f32"
    function = ir.FunctionType(kind, [kind] * 3)
    return cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.{name}")


# Shuffles that interleave two registers of pixels [0 | 4] and [1 | 5]: single lanes, then pairs.
_LOW, _HIGH = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
_LOW_PAIRS, _HIGH_PAIRS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
_EVEN, _ODD = [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]


def planes(builder: Any, pixels: list[Any]) -> list[Any]:
    """Transpose registers of whole pixels (see `PIXELS`) into one register per channel."""
    if len(pixels) == 1:
        return pixels
    if len(pixels) == 2:
        a, b = pixels
        return [chosen(builder, a, b, which) for which in (_EVEN, _ODD)]
    a, b, c, d = pixels
    low = chosen(builder, a, b, _LOW), chosen(builder, c, d, _LOW)
    high = chosen(builder, a, b, _HIGH), chosen(builder, c, d, _HIGH)
    return [
        chosen(builder, first, second, which)
        for first, second in (low, high)
        for which in (_LOW_PAIRS, _HIGH_PAIRS)
    ]


# Number of lanes per pixel → which of the eight pixels each register holds.
PIXELS = {
    1: [list(range(8))],
    2: [[0, 1, 4, 5], [2, 3, 6, 7]],
    4: [[k, k + 4] for k in range(4)],
}


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose as many vectors as each has numbers, a power of two, in rounds of pairs."""
    side, width = len(rows), 1
    while width < side:
        low = [k // width % 2 * side + k - k // width % 2 * width for k in range(side)]
        high = [k + width for k in low]
        turned = list(rows)
        for k in range(side):
            if k // width % 2 == 0:
                pair = rows[k], rows[k + width]
                turned[k], turned[k + width] = (chosen(builder, *pair, w) for w in (low, high))
        rows, width = turned, 2 * width
    return rows


def joined(builder: Any, vectors: list[Any]) -> Any:
    """Concatenate short vectors into one."""
    while len(vectors) > 1:
        width = vectors[0].type.count
        vectors = [
            chosen(builder, a, b, list(range(2 * width)))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def chosen(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    places = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
    return builder.shuffle_vector(first, second, places)


def shuffled(builder: Any, vector: Any, lanes: list[int]) -> Any:
    return chosen(builder, vector, ir.Constant(vector.type, ir.Undefined), lanes)


def splat(builder: Any, value: Any, width: int) -> Any:
    vector = ir.VectorType(F32, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    lanes = ir.Constant(ir.VectorType(I32, width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)


def load_vector(builder: Any, place: Any, vector: ir.Type, align: int = 4) -> Any:
    value = builder.load(builder.bitcast(place, vector.as_pointer()))
    value.align = align
    return value


def widened(builder: Any, value: Any, dtype: DType, count: int) -> Any:
    """Convert elements from their type in memory to float32."""

    def like(kind: ir.Type) -> ir.Type:
        return ir.VectorType(kind, count) if count > 1 else kind

    if dtype is dt.float32:
        return value
    if dtype is dt.float64:
        return builder.fptrunc(value, like(F32))
    if dtype is dt.float16 and prims.HAS_F16C:
        return builder.fpext(builder.bitcast(value, like(ir.HalfType())), like(F32))
    if dtype is dt.bfloat16:
        shift = ir.Constant(like(I32), [16] * count if count > 1 else 16)
        return builder.bitcast(builder.shl(builder.zext(value, like(I32)), shift), like(F32))
    signed = dtype.kind is DType.Kind.signed
    if dtype.bits < 32:  # via int32: CPUs have an instruction for signed integers
        value = (builder.sext if signed else builder.zext)(value, like(I32))
        signed = True
    return (builder.sitofp if signed else builder.uitofp)(value, like(F32))


def whole_blocks(builder: Any, n: Any, size: int, block: Callable[[Any], None]) -> None:
    """Call `block` for blocks of `size` elements that cover n elements; n is at least `size`.

    The last two blocks may overlap.
    """
    last = builder.sub(n, I64(size))
    count = builder.sdiv(builder.add(n, I64(size - 1)), I64(size))
    with cgutils.for_range(builder, count) as loop:
        at = builder.mul(loop.index, I64(size))
        block(builder.select(builder.icmp_signed("<", at, last), at, last))


def vector_blocks(
    builder: Any, n: Any, width: int, vectors: int, block: Callable[[Any, int], None]
) -> None:
    """Call `block(at, vectors)` for blocks that cover n elements, n being at least one vector.

    If n is less than a block, it is covered with single vectors.
    """
    few = builder.icmp_signed("<", n, I64(vectors * width))
    with builder.if_else(few) as (if_few, if_many):
        with if_few:
            whole_blocks(builder, n, width, lambda at: block(at, 1))
        with if_many:
            whole_blocks(builder, n, vectors * width, lambda at: block(at, vectors))


def element_type(dtype: DType) -> ir.Type:
    known = {dt.float32: F32, dt.float64: ir.DoubleType()}
    return known.get(dtype, ir.IntType(dtype.bits))


def between_vectors(builder: Any, low: Any, high: Any, f: Any) -> Any:
    return builder.call(fma(builder, low.type), [f, builder.fsub(high, low), low])


def at_byte(builder: Any, address: Any, nbytes: Any, kind: ir.Type) -> Any:
    return builder.inttoptr(builder.add(address, nbytes), kind.as_pointer())


def vector_function(builder: Any, name: str) -> Any:
    kind = ir.FunctionType(FLOATS, [FLOATS])
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{GROUP}f32")


def spread_i32(builder: Any, number: Any) -> Any:
    """Broadcast the low 32 bits of an integer to all lanes."""
    empty = ir.Constant(INTS, ir.Undefined)
    first = builder.insert_element(empty, builder.trunc(number, I32), I32(0))
    return shuffled(builder, first, [0] * GROUP)


def spread_f32(builder: Any, number: Any) -> Any:
    return splat(builder, builder.sitofp(number, F32), GROUP)


def ask_for(builder: Any, address: Any, to_write: bool = False) -> None:
    """Prefetch the memory at an address; the address may be invalid."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
    fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(fn, [pointer, I32(int(to_write)), I32(3), I32(1)])


@intrinsic
def ask_to_write(typingctx: Any, address: Any) -> Any:
    """Prefetch memory that will be written."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        ask_for(builder, args[0], to_write=True)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def make_widen(dtype: DType) -> Any:
    @intrinsic
    def widen(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return widened(builder, args[0], dtype, 1)

        return types.float32(prims.REGISTER[dtype]), codegen

    if dtype is dt.float16 and not prims.HAS_F16C:
        return prims.f16_to_f32
    return widen
