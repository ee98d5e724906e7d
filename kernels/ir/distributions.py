"""Random variables as expressions of random words, with the same bits from every back-end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from . import dtypes as dt
from . import expr as ex
from . import mathlib as ml
from .dtypes import DType
from .expr import Expr, Function
from .mathlib.pieces import flip_sign, polynomial


def unit(words: tuple[Expr, ...], dtype: DType) -> Expr:
    """A number in [0, 1), with 24 random bits in float32 and 53 in float64."""
    if dtype is dt.float32:
        return ex.cast(words[0] >> 8, dtype) * 2.0**-24
    wide = (ex.cast(words[0], dt.uint64) << 32) | ex.cast(words[1], dt.uint64)
    return ex.cast(wide >> 11, dt.float64) * 2.0**-53


def share_of(word: Expr) -> Expr:
    """A float32 in (0, 1] from all 32 bits, because the smallest numbers decide large results."""
    return (ex.cast(word, dt.float32) + 0.5) * 2.0**-32


# -- normal numbers ------------------------------------------------------------------------------


def standard_normal(first: Expr, second: Expr) -> Expr:
    """A normal number of mean 0 and deviation 1, as float32, from two words; at most ±6.7."""
    return ex.call(_standard_normal(), first, second)


@cache
def _standard_normal() -> Function:
    return ex.function("standard_normal", _box_muller, dt.uint32, dt.uint32)


def _box_muller(first: Expr, second: Expr) -> Expr:
    # Split the angle into the nearest multiple of a quarter turn and the rest.
    quarters = (second + (1 << 29)) >> 30
    rest = ex.cast(ex.bits(second << 2, dt.int32), dt.float32) * 2.0**-32
    square = rest * rest
    cosine = _horner(square, (1.0, *_COS))
    turned = ex.select(ex.eq(quarters & 1, 0), cosine, rest * _horner(square, _SIN))
    radius = ex.sqrt(_minus_two_log(share_of(first)))
    return radius * flip_sign(turned, ((quarters + 1) & 2) << 30)


# NOTE [normal numbers in float32] Twice as many float32 as float64 fit a vector, and most of the
# time of adding noise is spent here. The polynomials interpolate at Chebyshev nodes; their relative
# errors are below 3e-8 (sine and cosine 4e-9), so that the result is within 3e-7 of the exact one.
_SIN = (1.5707963219532366, -0.6459634776648073, 0.07968021764770168, -0.004602149212666408)
_COS = (-1.2337005493742192, 0.253669410357108, -0.0208615283421869, 0.0009067398983512325)
# (-2 log(1 + x) + 2 x - x²) / x³ for 1 + x in [√½, √2]
_LOG = (
    -0.6666666145638135, 0.500006128451396, -0.4000209018832116, 0.33282562926212306,
    -0.2842899184790097, 0.2599636752731444, -0.2524463969842268, 0.1580548754470443,
)  # fmt: skip
_LEAST = 0x3F3504F3  # the bits of √½
_MINUS_TWO_LN2 = -1.3862943611198906


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial in float32; the coefficients start with the constant."""
    total = ex.const(coefficients[-1], dt.float32)
    for c in reversed(coefficients[:-1]):
        total = ex.fma(total, x, ex.const(c, dt.float32))
    return total


def _minus_two_log(share: Expr) -> Expr:
    """-2 log(share) for a share in (0, 1], precise also where it is close to 1."""
    # share = 2**k (1 + x), with 1 + x in [√½, √2)
    word = ex.bits(share, dt.uint32) + (0x3F800000 - _LEAST)
    k = ex.cast(ex.bits(word >> 23, dt.int32), dt.float32) - 127.0
    x = ex.bits((word & 0x007FFFFF) + _LEAST, dt.float32) - 1.0
    of_mantissa = x * _horner(x, (-2.0, 1.0, *_LOG))
    return ex.fma(k, ex.const(_MINUS_TWO_LN2, dt.float32), of_mantissa)


# -- Poisson -------------------------------------------------------------------------------------

# NOTE [Poisson numbers] A kernel has no loops for single elements, so it cannot reject a number and
# draw again. Below a rate of FEW, it compares P(N > 0), P(N > 1), … with a uniform number; numbers
# above COUNTED, which occur once in 2³³ draws, are cut off. From FEW on, with a normal number w and
# s = w / √rate, the result is the integer part of
#     rate + √rate w + w² (1/6 + s P(s)) + C(s) + D(s) / rate.
# This is the form of Temme's uniform expansion of the quantiles (Temme, "Asymptotic inversion of
# incomplete gamma functions", 1992; Giles, "Algorithm 955", 2016), with polynomials fitted to exact
# quantiles (tests/codegen/fit_poisson.py). In both cases the total variation distance from the
# distribution is at most 2e-6: it takes about 10¹¹ draws of one rate to notice it. Above a rate of
# 10⁴, the steps of w, which is a float32, are larger than that.
FEW = 10.0
COUNTED = 35
LEAST_S = -1.33  # at this s, the result is below 1 for every rate that can reach it
P = (
    -0.013910696, 0.00385308186, -0.00143970606, 0.000261942814, -0.000113298996, 0.000387885049,
    -0.00018722427,
)  # fmt: skip
C = (0.333335542, -0.0277973798, 0.00828879125, -0.00229887036, 0.000658060583)
D = (-0.0197939639, 0.0174892135, -0.0103589434)
# Beyond this rate the noise is less than one unit in the last place.
SURE = 2.0**106


def poisson(rate: Expr, words: tuple[Expr, ...]) -> Expr:
    """A Poisson number of a positive rate, both as float64, from three words."""
    return ex.call(_poisson(), rate, standard_normal(words[0], words[1]), share_of(words[2]))


@cache
def _poisson() -> Function:
    def body(rate: Expr, normal: Expr, share: Expr) -> Expr:
        many = ex.select(rate < SURE, _quantile(rate, ex.cast(normal, dt.float64)), rate)
        few = _counted(ex.cast(ex.minimum(rate, FEW), dt.float32), share)
        return ex.select(rate < FEW, ex.cast(few, dt.float64), many)

    return ex.function("poisson", body, dt.float64, dt.float32, dt.float32)


def _counted(rate: Expr, share: Expr) -> Expr:
    """The number of all k with P(N > k) >= share."""
    chances = [ml.exp(-rate)]
    for k in range(1, COUNTED + 1):
        chances.append(chances[-1] * (rate * (1.0 / k)))
    # Add the smallest chances first, so that float32 sums are precise to the last places.
    beyond = number = ex.const(0.0, dt.float32)
    for chance in reversed(chances[1:]):
        beyond = beyond + chance
        number = number + ex.select(beyond >= share, ex.const(1.0, dt.float32), 0.0)
    return number


def _quantile(rate: Expr, w: Expr) -> Expr:
    root = ex.sqrt(rate)
    w = ex.maximum(w, root * LEAST_S)
    s = w / root
    shift = w * w * (s * polynomial(s, P) + 1.0 / 6.0)
    shift = shift + polynomial(s, C) + polynomial(s, D) / rate
    return ex.floor(ex.maximum(rate + root * w + shift, 0.0))
