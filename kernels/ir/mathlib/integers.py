"""C's integer operations, defined for every operand: division, remainder, power and shifts."""

from __future__ import annotations

import builtins

from .. import dtypes as dt
from ..dtypes import DType
from ..expr import Expr, bits, cast, const, eq, limits, ne, select, trunc
from .pieces import MAGIC


def _unsigned(dtype: DType) -> DType:
    return DType.parse(f"u{dtype.bits}")


def _magnitude(x: Expr) -> Expr:
    """|x| as an unsigned integer, which can also hold that of the lowest value."""
    word = bits(x, _unsigned(x.dtype))
    return select(x < 0, 0 - word, word) if limits(x.dtype)[0] else x


def idiv(a: Expr, b: Expr) -> Expr:
    """C's a / b: truncates towards zero; MIN / -1 is MIN, a / 0 is 0."""
    zero, one = const(0, a.dtype), const(1, a.dtype)
    divisor = select(eq(b, 0), one, b)
    if a.dtype.bits <= 32:
        # A correctly rounded quotient never reaches the next integer, which is at least 1 / a away
        # (relatively). Float division has a vector instruction, integer division does not.
        wide = dt.float32 if a.dtype.bits <= 16 else dt.float64
        q = _wrap_whole(trunc(cast(a, wide) / cast(divisor, wide)), a.dtype)
    else:
        q = Expr("udiv", _unsigned(a.dtype), (_magnitude(a), _magnitude(divisor)))
        if limits(a.dtype)[0]:
            q = bits(select((a ^ b) < 0, 0 - q, q), a.dtype)
    return select(eq(b, 0), zero, q)


def _wrap_whole(q: Expr, to: DType) -> Expr:
    """A whole float of at most 33 bits as an integer; it wraps, as MIN / -1 is out of range."""
    if q.dtype is dt.float32:
        return cast(cast(q, dt.int32), to)
    return cast(bits(q + MAGIC, dt.uint64), to)


def irem(a: Expr, b: Expr) -> Expr:
    """C's a % b: it has the sign of `a`; MIN % -1 is 0, a % 0 is 0."""
    return select(eq(b, 0), const(0, a.dtype), a - idiv(a, b) * b)


def ipow(base: Expr, exponent: Expr) -> Expr:
    """base ** exponent modulo 2**bits; 0 for a negative exponent, whatever the base.

    NOTE [powers modulo 2**n] Squaring and multiplying covers the low 5 bits of the exponent (6 for
    64-bit types). An even base with a larger exponent gives 0. For an odd base, base**(2**L) =
    1 + 2**(L+2) w, and the binomial series of (1 + 2**(L+2) w)**E ends when 2**n divides its terms.
    Its factors (E - j + 1) / j are 2-adic integers here: the even part of j divides a power of two,
    and the odd part has an inverse. This takes 65 operations; squaring 64 times would take 320.
    """
    result = base.dtype
    wide = dt.uint64 if result.bits == 64 else dt.uint32
    steps = 6 if wide is dt.uint64 else 5
    b = cast(base, wide)
    e = cast(exponent, wide)
    power, square = const(1, wide), b
    for i in range(steps):
        factor = select(ne(e & (1 << i), 0), square, const(1, wide))
        power = factor if i == 0 else power * factor
        square = square * square
    w = (square - 1) >> (steps + 2)
    many = e >> steps
    series = const(1, wide)
    for j in range(_last_term(wide.bits, steps + 2), 0, -1):
        even = (j & -j).bit_length() - 1
        inverse = builtins.pow(j >> even, -1, 1 << wide.bits)
        multiplier = (inverse << (steps + 2 - even)) % (1 << wide.bits)
        series = (many - (j - 1)) * w * multiplier * series + 1
    tail = select(ne(b & 1, 0), series, select(eq(many, 0), const(1, wide), const(0, wide)))
    power = cast(power * tail, result)
    if limits(exponent.dtype)[0]:
        power = select(exponent < 0, const(0, result), power)
    return power


def _last_term(width: int, step: int) -> int:
    """The last j for which 2**width does not divide the j-th term of the series of `ipow`."""
    j = 1
    while (j + 1) * step - _twos_in_factorial(j + 1) < width:
        j += 1
    return j


def _twos_in_factorial(j: int) -> int:
    return j - j.bit_count()


def shift_left(x: Expr, amount: Expr) -> Expr:
    """Like C on x86: computed in at least 32 bits, by the amount modulo the width, then wrapped."""
    wide, by = _shift_operands(x, amount)
    return cast(wide << by, x.dtype)


def shift_right(x: Expr, amount: Expr) -> Expr:
    """Like `shift_left`; the shift is arithmetic for signed types."""
    wide, by = _shift_operands(x, amount)
    return cast(wide >> by, x.dtype)


def _shift_operands(x: Expr, amount: Expr) -> tuple[Expr, Expr]:
    if x.dtype is dt.bool_:
        raise TypeError("the shift of a bool is a bool operation")
    signed = limits(x.dtype)[0] < 0
    wide = x.dtype if x.dtype.bits >= 32 else (dt.int32 if signed else dt.uint32)
    return cast(x, wide), cast(amount, wide) & (wide.bits - 1)
