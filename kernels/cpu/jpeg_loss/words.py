"""Vectors of sixteen int16, with the few operations that JPEG needs. Only imported to compile.

Products have 32 bits. As on x86, they are computed as sums of two: `a·x + b·y` of sixteen lanes
takes two interleaved vectors and one instruction for each. The order of lanes in between does not
matter, because narrowing restores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

LANES = 16
I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
BYTES, WORDS, DOUBLES = (
    ir.VectorType(I8, LANES), ir.VectorType(I16, LANES), ir.VectorType(I32, LANES // 2),
)  # fmt: skip
HAS_AVX2 = bool(llvm.get_host_cpu_features().get("avx2", False))

# The halves of 128 bits are interleaved separately, as AVX2 does.
_LOW = [n for k in (0, 8) for i in range(4) for n in (k + i, LANES + k + i)]
_HIGH = [n + 4 for n in _LOW]
_NARROW = [n for k in (0, 4) for part in (0, 8) for n in range(part + k, part + k + 4)]


def constant(kind: ir.VectorType, *values: int) -> Any:
    """A vector that repeats some values."""
    return ir.Constant(kind, [values[k % len(values)] for k in range(kind.count)])


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


@dataclass(frozen=True)
class Words:
    """Sixteen numbers of 16 bits."""

    builder: Any
    value: Any

    def _other(self, other: Words | int) -> Any:
        return constant(WORDS, other) if isinstance(other, int) else other.value

    def __add__(self, other: Words | int) -> Words:
        return Words(self.builder, self.builder.add(self.value, self._other(other)))

    def __sub__(self, other: Words | int) -> Words:
        return Words(self.builder, self.builder.sub(self.value, self._other(other)))

    def __mul__(self, other: Words | int) -> Words:
        return Words(self.builder, self.builder.mul(self.value, self._other(other)))

    def __xor__(self, other: Words) -> Words:
        return Words(self.builder, self.builder.xor(self.value, other.value))

    def __lshift__(self, bits: int) -> Words:
        return Words(self.builder, self.builder.shl(self.value, self._other(bits)))

    def __rshift__(self, bits: int) -> Words:
        return Words(self.builder, self.builder.ashr(self.value, self._other(bits)))

    def high_product(self, other: Words | int, signed: bool) -> Words:
        """The upper 16 bits of the products."""
        builder, wide = self.builder, ir.VectorType(I32, LANES)
        extend = builder.sext if signed else builder.zext
        product = builder.mul(extend(self.value, wide), extend(self._other(other), wide))
        upper = builder.lshr(product, constant(wide, 16))
        return Words(builder, builder.trunc(upper, WORDS))

    def clamped(self, low: int, high: int) -> Words:
        builder = self.builder
        above = builder.icmp_signed(">", self.value, constant(WORDS, low))
        value = builder.select(above, self.value, constant(WORDS, low))
        below = builder.icmp_signed("<", value, constant(WORDS, high))
        return Words(builder, builder.select(below, value, constant(WORDS, high)))

    def bytes(self) -> Any:
        """The lower 8 bits."""
        return self.builder.trunc(self.value, BYTES)

    def with_(self, other: Words) -> Pairs:
        """Pairs of the numbers of both vectors."""
        a, b = self.value, other.value
        parts = [shuffle(self.builder, a, b, lanes) for lanes in (_LOW, _HIGH)]
        return Pairs(self.builder, parts)


@dataclass(frozen=True)
class Pairs:
    """Sixteen pairs of numbers of 16 bits."""

    builder: Any
    parts: list[Any]

    def dot(self, a: int, b: int) -> Sums:
        """a · the first number + b · the second."""
        return Sums(self.builder, [_pair_sums(self.builder, p, a, b) for p in self.parts])


def _pair_sums(builder: Any, pairs: Any, a: int, b: int) -> Any:
    if HAS_AVX2:
        kind = ir.FunctionType(DOUBLES, [WORDS, WORDS])
        fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pmadd.wd")
        return builder.call(fn, [pairs, constant(WORDS, a, b)])
    terms = []
    for first, factor in ((0, a), (1, b)):
        own = shuffle(builder, pairs, pairs, list(range(first, LANES, 2)))
        terms.append(builder.mul(builder.sext(own, DOUBLES), constant(DOUBLES, factor)))
    return builder.add(*terms)


@dataclass(frozen=True)
class Sums:
    """Sixteen numbers of 32 bits, in the order of `Pairs`."""

    builder: Any
    parts: list[Any]

    def __add__(self, other: Sums | int) -> Sums:
        return self._with(other, self.builder.add)

    def __sub__(self, other: Sums) -> Sums:
        return self._with(other, self.builder.sub)

    def _with(self, other: Sums | int, operation: Any) -> Sums:
        b = [constant(DOUBLES, other)] * 2 if isinstance(other, int) else other.parts
        return Sums(self.builder, [operation(x, y) for x, y in zip(self.parts, b, strict=True)])

    def shifted(self, bits: int) -> Words:
        """The numbers without their lowest bits, which must fit into 16 bits."""
        builder = self.builder
        low, high = (builder.ashr(p, constant(DOUBLES, bits)) for p in self.parts)
        if HAS_AVX2:
            kind = ir.FunctionType(WORDS, [DOUBLES, DOUBLES])
            fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.packssdw")
            return Words(builder, builder.call(fn, [low, high]))
        return Words(builder, builder.trunc(shuffle(builder, low, high, _NARROW), WORDS))

    def rounded(self, bits: int) -> Words:
        """The numbers divided by a power of two; halves are rounded up."""
        return (self + (1 << (bits - 1))).shifted(bits)


def pointer(builder: Any, address: Any, nbytes: Any = 0) -> Any:
    """A place in memory as a pointer to bytes."""
    nbytes = I64(nbytes) if isinstance(nbytes, int) else nbytes
    return builder.inttoptr(builder.add(address, nbytes), I8.as_pointer())


def load(builder: Any, place: Any, kind: ir.Type) -> Any:
    value = builder.load(builder.bitcast(place, kind.as_pointer()))
    value.align = 1
    return value


def store(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, builder.bitcast(place, value.type.as_pointer())).align = 1


def load_words(builder: Any, place: Any) -> Words:
    return Words(builder, load(builder, place, WORDS))


def widened(builder: Any, values: Any) -> Words:
    """Bytes as numbers of 16 bits."""
    return Words(builder, builder.zext(values, WORDS))


def spread(builder: Any, number: Any) -> Words:
    """The same number of 16 bits in all lanes."""
    empty = ir.Constant(WORDS, ir.Undefined)
    first = builder.insert_element(empty, number, I32(0))
    return Words(builder, shuffle(builder, first, empty, [0] * LANES))
