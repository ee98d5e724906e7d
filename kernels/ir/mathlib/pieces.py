"""Building blocks of the formulas: polynomials, signs, exponents, exact sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import dtypes as dt
from ..expr import Expr, bits, const, ne, select

INF, NAN = math.inf, math.nan


def f64(value: float) -> Expr:
    return const(value, dt.float64)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Estrin's scheme (pairs of pairs); the coefficients start with the constant.

    Without fma, latency bounds the loops: in pow, this is 10 % faster than Horner's scheme.
    """
    terms = [f64(c) for c in coefficients]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2])
        terms = [low + high * x for low, high in pairs] + terms[len(terms) & ~1 :]
        x = x * x
    return terms[0]


def clamp(x: Expr, lo: float, hi: float) -> Expr:
    """Like min and max, but nan stays nan."""
    x = select(x < lo, const(lo, x.dtype), x)
    return select(x > hi, const(hi, x.dtype), x)


def sign_bit(x: Expr) -> Expr:
    """Only the sign bit of `x`, in an unsigned word."""
    word = dt.uint32 if x.dtype is dt.float32 else dt.uint64
    return bits(x, word) & (1 << (word.bits - 1))


def flip_sign(x: Expr, sign: Expr) -> Expr:
    return bits(bits(x, sign.dtype) ^ sign, x.dtype)


def is_negative(x: Expr) -> Expr:
    """Whether the sign bit is set; also true for -0."""
    return ne(sign_bit(x), 0)


MAGIC = 1.5 * 2.0**52  # x + MAGIC rounds x to an integer, which is then in the low bits


def nearest(x: Expr) -> Expr:
    """`x` rounded to an integer, half to even, for |x| <= 2**51; nan stays nan.

    The primitive `rint` takes eight operations on a GPU, because it keeps the sign of zero.
    """
    return (x + MAGIC) - MAGIC


def power_of_two(n_magic: Expr, shift: int = 0) -> Expr:
    """2**(n + shift), where `n_magic` is n + MAGIC and the result is a normal number."""
    return bits((bits(n_magic, dt.uint64) + (1023 + shift)) << 52, dt.float64)


def scale(x: Expr, n: Expr) -> Expr:
    """x * 2**n for whole n within ±1100, rounded once; in two steps, as 2**n may overflow."""
    half = nearest(n * 0.5)
    return x * power_of_two(half + MAGIC) * power_of_two(n - half + MAGIC)


def _split(x: Expr) -> tuple[Expr, Expr]:
    """The high 26 bits and the rest; products of such halves are exact."""
    hi = bits(bits(x, dt.uint64) & 0xFFFFFFFFF8000000, dt.float64)
    return hi, x - hi


def exact_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a * b and its rounding error (Dekker's product; the IR has no float64 fma)."""
    p = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    return p, (((ah * bh - p) + ah * bl) + al * bh) + al * bl


def exact_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b and its rounding error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, (a - s) + b


def exponent_and_mantissa(a: Expr) -> tuple[Expr, Expr]:
    """k and m with a = 2**k * m and m within [√½, √2), for a positive normal float64."""
    low = 0x3FE6A09E00000000  # √½, cut to its upper bits
    word = bits(a, dt.uint64) + (0x3FF0000000000000 - low)
    # Put into the low bits of 2**52, the exponent becomes a float without a conversion.
    k = bits((word >> 52) | 0x4330000000000000, dt.float64) - (2.0**52 + 1023)
    return k, bits((word & 0x000FFFFFFFFFFFFF) + low, dt.float64)


def normalise(a: Expr) -> tuple[Expr, Expr]:
    """`a` multiplied by a power of two so that it is a normal number, and that power's exponent."""
    tiny = a < 2.0**-1022
    return select(tiny, a * 2.0**54, a), select(tiny, f64(54.0), f64(0.0))
