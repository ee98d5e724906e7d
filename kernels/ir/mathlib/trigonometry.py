"""Trigonometric functions and their inverses.

The inner functions come first: float64 in and out, as precise as their coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import dtypes as dt
from ..expr import Expr, bits, cast, eq, fabs, select, sqrt, unary
from . import coefficients as co
from .pieces import INF, MAGIC, f64, flip_sign, is_negative, nearest, polynomial, sign_bit

_TAN_PI_8 = math.sqrt(2.0) - 1.0


def _atan_ratio(a: Expr, b: Expr, double: bool) -> Expr:
    """atan(a / b) for a, b >= 0, not both 0 or both inf: reduced to |t| <= tan(π/8)."""
    low, high = a < b * _TAN_PI_8, b < a * _TAN_PI_8
    up = select(low, a, select(high, -b, a - b))
    down = select(low, b, select(high, a, a + b))
    t = up / down
    z = t * t
    value = t * (z * polynomial(z, co.ATAN_DOUBLE if double else co.ATAN_SINGLE))
    base, base_lo = (
        select(low, f64(0.0), select(high, f64(co.HALF_PI[i]), f64(co.QUARTER_PI[i])))
        for i in (0, 1)
    )
    return base + (t + (value + base_lo) if double else t + value)


def _asin_parts(a: Expr, double: bool) -> tuple[Expr, Expr]:
    """(large, v) for a = |x|: v = asin(a), or half of acos(a) where a > ½ (large)."""
    large = a > 0.5
    z = select(large, (1.0 - a) * 0.5, a * a)
    s = select(large, sqrt(z), a)
    return large, s + s * (z * polynomial(z, co.ASIN_DOUBLE if double else co.ASIN_SINGLE))


def _quadrants(a: Expr) -> tuple[Expr, Expr]:
    """(n, r) with a = (n + r) π/2, n as low bits of a word, |r| <= ½, for a float32 a >= 0.

    Works for every float32: the table has 2**(24 j) * 2/π modulo 4 in three parts for j = 0 … 4, so
    short that the first two products have no rounding error. The error of r is 2**-61.
    """
    bounds = [2.0 ** (48 + 24 * j) for j in range(4)]

    def by_size(values: Sequence[float]) -> Expr:
        chosen = f64(values[-1])
        for bound, value in reversed(list(zip(bounds, values))):
            chosen = select(a < bound, f64(value), chosen)
        return chosen

    m = a * by_size([2.0 ** (-24 * j) for j in range(5)])
    p1, p2, p3 = (m * by_size([row[i] for row in co.TWO_OVER_PI]) for i in range(3))
    n1, n2 = nearest(p1), nearest(p2)
    f1, f2 = p1 - n1, p2 - n2
    n3 = nearest(f1 + f2 + p3)
    r = ((f1 - n3) + f2) + p3
    return bits((n1 + n2) + (n3 + MAGIC), dt.uint64), r


# NOTE [the C library's last bit] float32 sin and cos are up to 0.56 ulp off, not 0.5, on purpose:
# upstream uses those of the C library, and where colours nearly cancel (`hue`), one unit is more
# than 1e-6 of the result. glibc 2.36 has the errors of the best polynomials of degree 7 (sin) and
# 8 (cos) that start with x and 1. There is only one of each, so Remez' exchange finds the same
# ones. Of all 2**31 finite |x|, 6 sines and 8 cosines then differ (tests/codegen/compare_libm.py),
# all with |x| > 11; with more precise polynomials, 1 % of all differ. tan keeps the more precise
# ones, because the C library computes it by another algorithm.


def _sin_cos_quadrant(r: Expr, sin: Sequence[float], cos: Sequence[float]) -> tuple[Expr, Expr]:
    """sin and cos of r π/2 for |r| <= ½."""
    z = r * r
    return r * polynomial(z, sin), z * polynomial(z, cos) + 1.0


# -- functions ------------------------------------------------------------------------------------


def sin(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("sin", x)
    n, r = _quadrants(cast(fabs(x), dt.float64))
    s, c = _sin_cos_quadrant(r, co.SIN_LIBM, co.COS_LIBM)
    value = flip_sign(select(eq(n & 1, 0), s, c), (n & 2) << 62)
    return flip_sign(cast(value, dt.float32), sign_bit(x))


def cos(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("cos", x)
    return cos_quadrants(*_quadrants(cast(fabs(x), dt.float64)))


def cos_quadrants(n: Expr, r: Expr) -> Expr:
    """cos((n + r) π/2) as float32, for the low bits of a word n and |r| <= ½."""
    s, c = _sin_cos_quadrant(r, co.SIN_LIBM, co.COS_LIBM)
    return cast(flip_sign(select(eq(n & 1, 0), c, s), ((n + 1) & 2) << 62), dt.float32)


def tan(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("sin", x) / unary("cos", x)
    n, r = _quadrants(cast(fabs(x), dt.float64))
    s, c = _sin_cos_quadrant(r, co.TAN_SIN, co.TAN_COS)
    even = eq(n & 1, 0)
    value = flip_sign(select(even, s, c) / select(even, c, s), n << 63)
    return flip_sign(cast(value, dt.float32), sign_bit(x))


def asin(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    large, v = _asin_parts(cast(fabs(x), dt.float64), double)
    value = select(large, co.HALF_PI[0] - (v + v - co.HALF_PI[1]), v)
    return flip_sign(cast(value, x.dtype), sign_bit(x))


def acos(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    wide = cast(x, dt.float64)
    large, v = _asin_parts(fabs(wide), double)
    negative = wide < 0.0
    obtuse = co.PI[0] - (v + v - co.PI[1])
    steep = select(negative, obtuse, v + v)
    flat = co.HALF_PI[0] - (select(negative, -v, v) - co.HALF_PI[1])
    return cast(select(large, steep, flat), x.dtype)


def atan(x: Expr) -> Expr:
    value = _atan_ratio(cast(fabs(x), dt.float64), f64(1.0), x.dtype is dt.float64)
    return flip_sign(cast(value, x.dtype), sign_bit(x))


def atan2(y: Expr, x: Expr) -> Expr:
    """Angle of the point (x, y)."""
    double = x.dtype is dt.float64
    a, b = cast(fabs(y), dt.float64), cast(fabs(x), dt.float64)
    if double:
        # Scale to avoid overflow of a + b and the coarse ratios of denormals.
        larger = select(a > b, a, b)
        scale = select(larger > 2.0**1000, f64(2.0**-4), f64(1.0))
        scale = select(larger < 2.0**-900, f64(2.0**100), scale)
        a, b = a * scale, b * scale
    both_inf = eq(a, INF) & eq(b, INF)
    both_zero = eq(a, 0.0) & eq(b, 0.0)
    a = select(both_inf, f64(1.0), a)
    b = select(both_inf | both_zero, f64(1.0), b)
    value = _atan_ratio(a, b, double)
    value = select(is_negative(x), co.PI[0] - (value - co.PI[1]), value)
    return flip_sign(cast(value, x.dtype), sign_bit(y))
