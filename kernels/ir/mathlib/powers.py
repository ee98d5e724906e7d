"""Exponentials, logarithms, powers and roots.

The inner functions come first: float64 in and out, as precise as their coefficients.
"""

from __future__ import annotations

from .. import dtypes as dt
from ..expr import Expr, Number, bits, cast, const, eq, fabs, ne, select, sqrt, trunc, unary
from . import coefficients as co
from .pieces import (
    INF,
    MAGIC,
    NAN,
    clamp,
    exact_product,
    exact_sum,
    exponent_and_mantissa,
    f64,
    flip_sign,
    nearest,
    normalise,
    polynomial,
    power_of_two,
    scale,
    sign_bit,
)


def log2_single(a: Expr) -> Expr:
    """log2 of a positive normal number: k + 2 artanh(s) / ln 2 with s = (m - 1) / (m + 1)."""
    k, m = exponent_and_mantissa(a)
    s = (m - 1.0) / (m + 1.0)
    return k + s * polynomial(s * s, co.LOG2_SINGLE)


def log2_pair(a: Expr) -> tuple[Expr, Expr]:
    """log2 of a positive finite number as a sum of two numbers, precise to 2**-64.

    The series is that of `log2_single`; its first two terms have twice the precision.
    """
    a, raised = normalise(a)
    k, m = exponent_and_mantissa(a)
    f, g = m - 1.0, m + 1.0
    g_lo = m - (g - 1.0)
    s = f / g
    p, p_lo = exact_product(s, g)
    s_lo = (((f - p) - p_lo) - s * g_lo) / g
    z, z_lo = exact_product(s, s)
    z_lo = z_lo + (s + s) * s_lo
    c0, c1 = co.TWO_OVER_LN2, co.TWO_THIRDS_OVER_LN2
    inner, inner_lo = exact_sum(f64(c1[0]), z * polynomial(z, co.LOG2_TAIL))
    mid, mid_lo = exact_product(z, inner)
    mid_lo = mid_lo + (z * (inner_lo + c1[1]) + z_lo * inner)
    outer, outer_lo = exact_sum(f64(c0[0]), mid)
    outer_lo = outer_lo + (mid_lo + c0[1])
    log_m, log_lo = exact_product(s, outer)
    log_lo = log_lo + (s * outer_lo + s_lo * outer)
    hi, lo = exact_sum(k - raised, log_m)
    return exact_sum(hi, lo + log_lo)


def exp2_single(z: Expr) -> Expr:
    """2**z for |z| <= 1000, or nan."""
    n = nearest(z)
    return polynomial(z - n, (1.0, *co.EXP2_SINGLE)) * power_of_two(n + MAGIC)


def exp2_pair(z: Expr, z_lo: Expr | None = None) -> Expr:
    """2**(z + z_lo) for |z| <= 1100, with only one significant rounding error."""
    n = nearest(z)
    r = z - n
    t, t_lo = exact_product(r, f64(co.LN2[0]))
    t_lo = t_lo + r * co.LN2[1]
    q = t * t * polynomial(t, co.EXPM1_DOUBLE)
    if z_lo is not None:
        t_lo = t_lo + z_lo * co.LN2[0]
        t_lo = t_lo + t_lo * (t + q)
    one, rest = exact_sum(f64(1.0), t)
    return scale(one + (rest + (t_lo + q)), n)


def exp_parts(x: Expr, double: bool) -> tuple[Expr, Expr]:
    """n + MAGIC and expm1(x - n ln 2), where n is x / ln 2 rounded to an integer."""
    magic = x * (1.0 / co.LN2[0]) + MAGIC
    n = magic - MAGIC
    if double:
        r = (x - n * co.LN2_SPLIT[0]) - n * co.LN2_SPLIT[1]
        return magic, r + r * r * polynomial(r, co.EXPM1_DOUBLE)
    r = x - n * co.LN2[0]
    return magic, r + r * r * polynomial(r, co.EXPM1_SINGLE)


# -- functions ------------------------------------------------------------------------------------


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x), as two rounded operations."""
    return 1.0 / sqrt(x)


def exp(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("exp", x)
    z = cast(x, dt.float64) * (1.0 / co.LN2[0])
    return cast(exp2_single(clamp(z, -160.0, 160.0)), dt.float32)


def exp2(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return exp2_pair(clamp(x, -1100.0, 1100.0))
    return cast(exp2_single(clamp(cast(x, dt.float64), -160.0, 160.0)), dt.float32)


def _log_specials(x: Expr, value: Expr) -> Expr:
    at_edge = select(eq(x, 0.0), const(-INF, x.dtype), const(NAN, x.dtype))
    return select(x > 0.0, select(x < INF, value, x), at_edge)


def log(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("log", x)
    value = log2_single(cast(x, dt.float64)) * co.LN2[0]
    return _log_specials(x, cast(value, dt.float32))


def log2(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return _log_specials(x, log2_pair(x)[0])
    return _log_specials(x, cast(log2_single(cast(x, dt.float64)), dt.float32))


def log10(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        hi, lo = log2_pair(x)
        p, p_lo = exact_product(hi, f64(co.LOG10_2[0]))
        return _log_specials(x, p + (p_lo + (hi * co.LOG10_2[1] + lo * co.LOG10_2[0])))
    value = log2_single(cast(x, dt.float64)) * co.LOG10_2[0]
    return _log_specials(x, cast(value, dt.float32))


def pow(x: Expr, y: Expr | Number) -> Expr:
    """C's pow.

    Everything that depends on `y` alone becomes a number or a mask, not a condition: then it is
    computed outside of the loop over x, and stays out of the vector masks inside.
    """
    if not isinstance(y, Expr):
        y = const(y, x.dtype)
    word, number = _WORDS[x.dtype]
    zero, one, inf, nan = (const(v, x.dtype) for v in (0.0, 1.0, INF, NAN))
    y_is_0, y_is_nan = eq(y, 0.0), ne(y, y)
    # Bound the exponent, because 1**inf is 1: log2(1) times a huge number is 0, times inf is nan.
    bounded = clamp(cast(select(y_is_nan, zero, y), dt.float64), -(2.0**70), 2.0**70)
    a = fabs(x)
    core = _pow_single if x.dtype is dt.float32 else _pow_double
    r = cast(core(cast(a, dt.float64), bounded), x.dtype)

    whole = eq(trunc(y), y)
    at_positive = select(y_is_nan, nan, one)
    at_negative = select(whole, one, nan)
    at_zero = select(y > 0.0, zero, select(y < 0.0, inf, select(y_is_0, one, nan)))
    at_inf = select(y > 0.0, inf, select(y < 0.0, zero, select(y_is_0, one, nan)))
    at_nan = select(y_is_0, one, nan)
    r = r * select(bits(x, number) < 0, at_negative, at_positive)
    r = select(eq(a, 0.0), at_zero, r)
    r = select(eq(a, INF), at_inf, r)
    r = select(ne(x, x), at_nan, r)
    half = y * 0.5
    odd = whole & ne(trunc(half), half)
    sign = select(odd, const(1 << (word.bits - 1), word), const(0, word))
    r = flip_sign(r, bits(x, word) & sign)
    return select(eq(x, 1.0), one, r)


_WORDS = {dt.float32: (dt.uint32, dt.int32), dt.float64: (dt.uint64, dt.int64)}


def _pow_single(a: Expr, y: Expr) -> Expr:
    k, m = exponent_and_mantissa(a)
    s = (m - 1.0) / (m + 1.0)
    z = clamp(y * k + (y * s) * polynomial(s * s, co.LOG2_SINGLE), -160.0, 160.0)
    n = nearest(z)
    p = polynomial(z - n, (1.0, *co.EXP2_POW))
    # z is never nan, so n can simply be added to the exponent of p.
    return bits(bits(p, dt.uint64) + (bits(n + MAGIC, dt.uint64) << 52), dt.float64)


def _pow_double(a: Expr, y: Expr) -> Expr:
    log, log_lo = log2_pair(a)
    p, p_lo = exact_product(y, log)
    z, z_lo = exact_sum(p, p_lo + y * log_lo)
    # Far outside of the range of results even the low part is large, so drop it.
    z_lo = select(fabs(z) < 1100.0, z_lo, f64(0.0))
    return exp2_pair(clamp(z, -1100.0, 1100.0), z_lo)


def cbrt(x: Expr) -> Expr:
    if x.dtype is dt.float32:
        third = log2_single(cast(fabs(x), dt.float64)) * (1.0 / 3.0)
        # log2_single sees 0 and inf as exponents -1023 and 1024, so their results are right.
        root = cast(exp2_single(clamp(third, -160.0, 160.0)), dt.float32)
        return select(ne(x, x), x, flip_sign(root, sign_bit(x)))
    a, raised = normalise(fabs(x))
    magic, q = exp_parts(log2_single(a) * (co.LN2[0] / 3.0), double=False)
    near = (q + 1.0) * power_of_two(magic)
    # t has 17 bits, so its cube is exact, and a - t³ = (∛a - t)(∛a² + t ∛a + t²).
    t = bits(bits(near, dt.uint64) & 0xFFFFFFF000000000, dt.float64)
    root = t + (a - t * t * t) / (near * near + t * near + t * t)
    root = root * select(eq(raised, 0.0), f64(1.0), f64(2.0**-18))
    root = select((a > 0.0) & (a < INF), root, a)
    return flip_sign(root, sign_bit(x))
