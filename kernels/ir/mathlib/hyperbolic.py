"""Hyperbolic functions and their inverses, from expm1 and log1p."""

from __future__ import annotations

from .. import dtypes as dt
from ..expr import Expr, cast, eq, fabs, select, sqrt
from . import coefficients as co
from .pieces import (
    INF,
    NAN,
    clamp,
    exponent_and_mantissa,
    f64,
    flip_sign,
    polynomial,
    power_of_two,
    sign_bit,
)
from .powers import exp_parts, log2_single


def _log_near(w: Expr, c: Expr, double: bool, raise_by: Expr | None = None) -> Expr:
    """log(w + c) + raise_by * ln 2 for a normal w >= 1 and c less than its last bit."""
    if not double:
        return log2_single(w) * co.LN2[0] + c / w
    k, m = exponent_and_mantissa(w)
    if raise_by is not None:
        k = k + raise_by
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    # Because 2s = f - s f, the leading term is f, which is exact.
    small = s * (f - z * polynomial(z, co.LOG_DOUBLE)) - (k * co.LN2_SPLIT[1] + c / w)
    return k * co.LN2_SPLIT[0] + (f - small)


def _log1p(u: Expr, double: bool) -> Expr:
    """log(1 + u) for u >= 0."""
    w = u + 1.0
    return _log_near(w, select(u < 1.0, u - (w - 1.0), 1.0 - (w - u)), double)


# -- functions ------------------------------------------------------------------------------------


def sinh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    a = clamp(cast(fabs(x), dt.float64), 0.0, 711.0)
    magic, q = exp_parts(a, double)
    # Compute an eighth of expm1(a), because the largest results are finite where exp(a) is not.
    s = power_of_two(magic, -3)
    h = (s - 0.125) + s * q
    value = (h + h / (h * 8.0 + 1.0)) * 4.0
    if double:
        value = select(a < 2.0**-28, a, value)
    return flip_sign(cast(value, x.dtype), sign_bit(x))


def cosh(x: Expr) -> Expr:
    a = clamp(cast(fabs(x), dt.float64), 0.0, 711.0)
    magic, q = exp_parts(a, x.dtype is dt.float64)
    s = power_of_two(magic, -3)  # see sinh
    h = s + s * q
    return cast((h + 0.015625 / h) * 4.0, x.dtype)


def tanh(x: Expr) -> Expr:
    a = clamp(cast(fabs(x), dt.float64), 0.0, 30.0)
    magic, q = exp_parts(a + a, x.dtype is dt.float64)
    s = power_of_two(magic)
    e = (s - 1.0) + s * q
    return flip_sign(cast(e / (e + 2.0), x.dtype), sign_bit(x))


_HUGE = 2.0**28  # from here on, sqrt(x² ± 1) is x


def asinh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    a = cast(fabs(x), dt.float64)
    square = a * a
    u = a + square / (sqrt(square + 1.0) + 1.0)
    value = _log1p_or_log_twice(u, a) if double else _log1p(u, double)
    value = select(a < INF, value, a)
    return flip_sign(cast(value, x.dtype), sign_bit(x))


def acosh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    wide = cast(x, dt.float64)
    t = wide - 1.0
    u = t + sqrt(t * (t + 2.0))
    value = _log1p_or_log_twice(u, wide) if double else _log1p(u, double)
    value = select(wide < INF, value, wide)
    return cast(select(wide < 1.0, f64(NAN), value), x.dtype)


def _log1p_or_log_twice(u: Expr, a: Expr) -> Expr:
    """log(1 + u), or log(2a) where a is so large that u may overflow."""
    huge = a > _HUGE
    w = u + 1.0
    c = select(u < 1.0, u - (w - 1.0), 1.0 - (w - u))
    w, c = select(huge, a, w), select(huge, f64(0.0), c)
    return _log_near(w, c, True, select(huge, f64(1.0), f64(0.0)))


def atanh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    a = cast(fabs(x), dt.float64)
    value = _log1p((a + a) / (1.0 - a), double) * 0.5
    value = select(a < 1.0, value, select(eq(a, 1.0), f64(INF), f64(NAN)))
    return flip_sign(cast(value, x.dtype), sign_bit(x))
