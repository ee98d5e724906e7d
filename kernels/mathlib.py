"""Mathematical functions as expressions, made of arithmetic, comparisons and bit operations only.

NOTE [one formula, two back-ends] The IR is exactly typed and never contracted, so these formulas
give the same bits from Numba and from Triton, and both stay close to the C library's values. The
float32 functions compute in float64 and round once: they are within 0.51 ulp of the true value
(pow 0.56, rsqrt 1.5) for every argument, however large. Of the float64 functions, exp, log, sin and
cos are primitives of the IR (the C library on the CPU), and tan is made of two of them; all others
are formulas, within 0.5 to 2.5 ulp.

NOTE [what vectorises] AVX2 has no conversion between 64-bit integers and floats, no 64-bit
arithmetic shift and no 64-bit multiplication. It has 64-bit add, and, or, and logical shifts, and
adding 1.5 * 2**52 leaves an integer in the low bits of a float. Nothing else is used on the way of
the float32 functions, and no branches: special values are selected at the end.

Coefficients are our own fits: tests/codegen/fit_mathlib.py prints them.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence

from . import dtypes as dt
from .dtypes import DType
from .expr import Expr, Number, bits, cast, const, eq, limits, ne, select, trunc, unary
from .expr import ceil as _ceil
from .expr import fabs as _fabs
from .expr import floor as _floor
from .expr import sqrt as _sqrt

_INF, _NAN = math.inf, math.nan

# -- coefficients --------------------------------------------------------------------------------

# relative error 2^-37.8
_LOG2_SINGLE = (
    2.885390081790048,
    0.9617966733682309,
    0.5770835830070097,
    0.411672687343722,
    0.3407329932431587,
)
# relative error 2^-57.7
_LOG_DOUBLE = (
    0.666666666666667,
    0.3999999999989889,
    0.28571428626253836,
    0.22222211089379493,
    0.18182892432537032,
    0.15331611722050653,
    0.14617807153462828,
)
# relative error 2^-65.8
_LOG2_TAIL = (
    0.5770780163555853,
    0.41219858311114393,
    0.3205988979671096,
    0.2623081914783609,
    0.22195278749503244,
    0.1923806252825928,
    0.1688837053030437,
    0.16914629125378294,
)
# relative error 2^-28.1
_EXP2_POW = (
    0.6931471880262755,
    0.24022650760622288,
    0.05550357113994491,
    0.009618082545616061,
    0.0013390863484467048,
    0.00015453167635646396,
)
# relative error 2^-33.6
_EXP2_SINGLE = (
    0.6931471805599442,
    0.2402265092229017,
    0.05550410883920593,
    0.009618056678223446,
    0.001333350237144353,
    0.0001546144481905549,
    1.5297328489332597e-05,
)
# relative error 2^-36.8
_EXPM1_SINGLE = (
    0.4999999999999999,
    0.16666666719029097,
    0.04166666671903055,
    0.008333298469728382,
    0.0013888854030564821,
    0.00019899285636003792,
    2.485959324394054e-05,
)
# relative error 2^-60.0
_EXPM1_DOUBLE = (
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326136,
    0.0013888888888883746,
    0.0001984126987482073,
    2.480158732555556e-05,
    2.755725540007553e-06,
    2.755727363472868e-07,
    2.5105217059198132e-08,
    2.0914690073155763e-09,
)
# relative error 2^-37.7
_SIN_SINGLE = (
    1.5707963267880862,
    -0.6459640961446242,
    0.07969258267354878,
    -0.004681265867999623,
    0.0001582054153418437,
)
# relative error 2^-41.6
_COS_SINGLE = (
    -1.2337005501352771,
    0.25366950772256197,
    -0.020863475052045815,
    0.0009191962833415261,
    -2.4909112219921928e-05,
)
# relative error 2^-38.4
_ATAN_SINGLE = (
    -0.33333333331428355,
    0.19999998911296413,
    -0.14285612049555607,
    0.11107482298859536,
    -0.09028824015574771,
    0.07134420201211568,
    -0.04041314026458685,
)
# relative error 2^-58.3
_ATAN_DOUBLE = (
    -0.3333333333333333,
    0.199999999999998,
    -0.14285714285659326,
    0.11111111105106705,
    -0.09090908751076636,
    0.07692296304974469,
    -0.06666423628069243,
    0.05878914544400483,
    -0.0523034787301517,
    0.04551108126321486,
    -0.034558092551328114,
    0.016271944751537433,
)
# relative error 2^-38.0
_ASIN_SINGLE = (
    0.1666666666549084,
    0.07500000600759216,
    0.04464235707939131,
    0.03039767195351239,
    0.022131964555369556,
    0.019309346189809867,
    0.005433409887131855,
    0.029317325604912285,
)
# relative error 2^-58.9
_ASIN_DOUBLE = (
    0.16666666666666666,
    0.07500000000000119,
    0.04464285714255019,
    0.030381944475693704,
    0.022372157435623815,
    0.017352816768546477,
    0.013963775787848059,
    0.01156651182189177,
    0.00962140274733868,
    0.009322101501114519,
    0.003035007172615202,
    0.019579201619999292,
    -0.019277545928924784,
    0.029635026263750572,
)
_LN2 = (0.6931471805599453, 2.3190468138462996e-17)
_TWO_OVER_LN2 = (2.8853900817779268, 4.0710547481862066e-17)
_TWO_THIRDS_OVER_LN2 = (0.9617966939259756, 5.0577616648125907e-17)
_LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)
_PI = (3.141592653589793, 1.2246467991473532e-16)
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
_LN2_SPLIT = (0.6931471806019545, -4.2009150726810846e-11)
_TWO_OVER_PI = (
    (0.6366197690367699, 3.3308114877339534e-09, -1.160177773473606e-17),
    (-0.5691182538866997, -2.522951958461306e-09, -9.117048055938418e-18),
    (0.0826718881726265, 1.7096864757260022e-09, -1.1011904061467261e-17),
    (0.15368378162384033, -2.5130555414420996e-09, 1.1892889840965575e-17),
    (1.957837924361229, 1.995295872969649e-10, -5.570879806868441e-18),
)

# -- pieces --------------------------------------------------------------------------------------


def _f64(value: float) -> Expr:
    return const(value, dt.float64)


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Estrin's scheme, pairs of pairs; the coefficients start with the constant.

    Without fma, latency is what bounds the loops: 10 % faster in pow than Horner's chain.
    """
    terms = [_f64(c) for c in coefficients]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2])
        terms = [low + high * x for low, high in pairs] + terms[len(terms) & ~1 :]
        x = x * x
    return terms[0]


def _clamp(x: Expr, lo: float, hi: float) -> Expr:
    """Like min and max, but nan stays nan."""
    x = select(x < lo, const(lo, x.dtype), x)
    return select(x > hi, const(hi, x.dtype), x)


def _sign_bit(x: Expr) -> Expr:
    """The sign of `x` alone, in an unsigned word."""
    word = dt.uint32 if x.dtype is dt.float32 else dt.uint64
    return bits(x, word) & (1 << (word.bits - 1))


def _flip_sign(x: Expr, sign: Expr) -> Expr:
    return bits(bits(x, sign.dtype) ^ sign, x.dtype)


def _is_negative(x: Expr) -> Expr:
    """Also true of -0."""
    return ne(_sign_bit(x), 0)


_MAGIC = 1.5 * 2.0**52  # x + _MAGIC rounds x to an integer, which then stands in the low bits


def _power_of_two(n_magic: Expr, shift: int = 0) -> Expr:
    """2**(n + shift), where `n_magic` is n + _MAGIC and the result is a normal number."""
    return bits((bits(n_magic, dt.uint64) + (1023 + shift)) << 52, dt.float64)


def _scale(x: Expr, n: Expr) -> Expr:
    """x * 2**n for whole n within ±1100, rounded once: in two steps, as 2**n may be no number."""
    half = (n * 0.5 + _MAGIC) - _MAGIC
    return x * _power_of_two(half + _MAGIC) * _power_of_two(n - half + _MAGIC)


def _split(x: Expr) -> tuple[Expr, Expr]:
    """High 26 bits and the rest: products of such halves are exact."""
    hi = bits(bits(x, dt.uint64) & 0xFFFFFFFFF8000000, dt.float64)
    return hi, x - hi


def _product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a * b and its rounding error (Dekker's product; the IR has no fma)."""
    p = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    return p, (((ah * bh - p) + ah * bl) + al * bh) + al * bl


def _sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b and its rounding error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, (a - s) + b


def _exponent_and_mantissa(a: Expr) -> tuple[Expr, Expr]:
    """k and m with a = 2**k * m and m within [√½, √2), for a positive normal float64."""
    low = 0x3FE6A09E00000000  # √½, cut to its upper bits
    word = bits(a, dt.uint64) + (0x3FF0000000000000 - low)
    # the exponent as the low bits of 2**52 is a float without a conversion
    k = bits((word >> 52) | 0x4330000000000000, dt.float64) - (2.0**52 + 1023)
    return k, bits((word & 0x000FFFFFFFFFFFFF) + low, dt.float64)


def _normalise(a: Expr) -> tuple[Expr, Expr]:
    """`a` and the power of two by which it was raised to be a normal number."""
    tiny = a < 2.0**-1022
    return select(tiny, a * 2.0**54, a), select(tiny, _f64(54.0), _f64(0.0))


# -- cores: float64 in and out, to the precision of the coefficients -----------------------------


def _log2_single(a: Expr) -> Expr:
    """log2 of a positive normal number: k + 2 artanh(s) / ln 2 with s = (m - 1) / (m + 1)."""
    k, m = _exponent_and_mantissa(a)
    s = (m - 1.0) / (m + 1.0)
    return k + s * _polynomial(s * s, _LOG2_SINGLE)


def _log2_pair(a: Expr) -> tuple[Expr, Expr]:
    """log2 of a positive finite number as a sum of two, good to 2**-64.

    The same series as in `_log2_single`; its first two terms in twice the precision.
    """
    a, raised = _normalise(a)
    k, m = _exponent_and_mantissa(a)
    f, g = m - 1.0, m + 1.0
    g_lo = m - (g - 1.0)
    s = f / g
    p, p_lo = _product(s, g)
    s_lo = (((f - p) - p_lo) - s * g_lo) / g
    z, z_lo = _product(s, s)
    z_lo = z_lo + (s + s) * s_lo
    c0, c1 = _TWO_OVER_LN2, _TWO_THIRDS_OVER_LN2
    inner, inner_lo = _sum(_f64(c1[0]), z * _polynomial(z, _LOG2_TAIL))
    mid, mid_lo = _product(z, inner)
    mid_lo = mid_lo + (z * (inner_lo + c1[1]) + z_lo * inner)
    outer, outer_lo = _sum(_f64(c0[0]), mid)
    outer_lo = outer_lo + (mid_lo + c0[1])
    log_m, log_lo = _product(s, outer)
    log_lo = log_lo + (s * outer_lo + s_lo * outer)
    hi, lo = _sum(k - raised, log_m)
    return _sum(hi, lo + log_lo)


def _exp2_single(z: Expr) -> Expr:
    """2**z for |z| <= 1000, or nan."""
    n = unary("rint", z)
    return _polynomial(z - n, (1.0, *_EXP2_SINGLE)) * _power_of_two(n + _MAGIC)


def _exp2_pair(z: Expr, z_lo: Expr | None = None) -> Expr:
    """2**(z + z_lo) for |z| <= 1100, with one rounding worth mentioning."""
    n = (z + _MAGIC) - _MAGIC
    r = z - n
    t, t_lo = _product(r, _f64(_LN2[0]))
    t_lo = t_lo + r * _LN2[1]
    q = t * t * _polynomial(t, _EXPM1_DOUBLE)
    if z_lo is not None:
        t_lo = t_lo + z_lo * _LN2[0]
        t_lo = t_lo + t_lo * (t + q)
    one, rest = _sum(_f64(1.0), t)
    return _scale(one + (rest + (t_lo + q)), n)


def _exp_parts(x: Expr, double: bool) -> tuple[Expr, Expr]:
    """n + _MAGIC and expm1(x - n ln 2), where n is x / ln 2 rounded to an integer."""
    magic = x * (1.0 / _LN2[0]) + _MAGIC
    n = magic - _MAGIC
    if double:
        r = (x - n * _LN2_SPLIT[0]) - n * _LN2_SPLIT[1]
        return magic, r + r * r * _polynomial(r, _EXPM1_DOUBLE)
    r = x - n * _LN2[0]
    return magic, r + r * r * _polynomial(r, _EXPM1_SINGLE)


def _log_near(w: Expr, c: Expr, double: bool, raise_by: Expr | None = None) -> Expr:
    """log(w + c) + raise_by * ln 2 for a normal w >= 1 and c less than its last bit."""
    if not double:
        return _log2_single(w) * _LN2[0] + c / w
    k, m = _exponent_and_mantissa(w)
    if raise_by is not None:
        k = k + raise_by
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    # 2s = f - s f keeps f, which is exact, as the leading term
    small = s * (f - z * _polynomial(z, _LOG_DOUBLE)) - (k * _LN2_SPLIT[1] + c / w)
    return k * _LN2_SPLIT[0] + (f - small)


def _log1p(u: Expr, double: bool) -> Expr:
    """log(1 + u) for u >= 0."""
    w = u + 1.0
    return _log_near(w, select(u < 1.0, u - (w - 1.0), 1.0 - (w - u)), double)


_TAN_PI_8 = math.sqrt(2.0) - 1.0


def _atan_ratio(a: Expr, b: Expr, double: bool) -> Expr:
    """atan(a / b) for a, b >= 0, not both 0 or both inf: reduced to |t| <= tan(π/8)."""
    low, high = a < b * _TAN_PI_8, b < a * _TAN_PI_8
    up = select(low, a, select(high, -b, a - b))
    down = select(low, b, select(high, a, a + b))
    t = up / down
    z = t * t
    value = t * (z * _polynomial(z, _ATAN_DOUBLE if double else _ATAN_SINGLE))
    base, base_lo = (
        select(low, _f64(0.0), select(high, _f64(_HALF_PI[i]), _f64(_QUARTER_PI[i])))
        for i in (0, 1)
    )
    return base + (t + (value + base_lo) if double else t + value)


def _asin_parts(a: Expr, double: bool) -> tuple[Expr, Expr]:
    """(large, v) for a = |x|: v = asin(a), or half of acos(a) where a > ½ (large)."""
    large = a > 0.5
    z = select(large, (1.0 - a) * 0.5, a * a)
    s = select(large, _sqrt(z), a)
    return large, s + s * (z * _polynomial(z, _ASIN_DOUBLE if double else _ASIN_SINGLE))


def _quadrants(a: Expr) -> tuple[Expr, Expr]:
    """(n, r) with a = (n + r) π/2, n as low bits of a word, |r| <= ½, for a float32 a >= 0.

    Exact for every float32: 2**(24 j) * 2/π modulo 4 stands in three parts for j = 0 … 4, so
    short that the first two products have no rounding error, which leaves r with 2**-61.
    """
    bounds = [2.0 ** (48 + 24 * j) for j in range(4)]

    def by_size(values: Sequence[float]) -> Expr:
        chosen = _f64(values[-1])
        for bound, value in reversed(list(zip(bounds, values))):
            chosen = select(a < bound, _f64(value), chosen)
        return chosen

    m = a * by_size([2.0 ** (-24 * j) for j in range(5)])
    p1, p2, p3 = (m * by_size([row[i] for row in _TWO_OVER_PI]) for i in range(3))
    n1, n2 = unary("rint", p1), unary("rint", p2)
    f1, f2 = p1 - n1, p2 - n2
    n3 = unary("rint", f1 + f2 + p3)
    r = ((f1 - n3) + f2) + p3
    return bits((n1 + n2) + (n3 + _MAGIC), dt.uint64), r


def _sin_cos_quadrant(r: Expr) -> tuple[Expr, Expr]:
    """sin and cos of r π/2 for |r| <= ½."""
    z = r * r
    return r * _polynomial(z, _SIN_SINGLE), z * _polynomial(z, _COS_SINGLE) + 1.0


# -- powers and logarithms -----------------------------------------------------------------------


def sqrt(x: Expr) -> Expr:
    return _sqrt(x)


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x), two rounded operations."""
    return 1.0 / _sqrt(x)


def floor(x: Expr) -> Expr:
    return _floor(x)


def ceil(x: Expr) -> Expr:
    return _ceil(x)


def fabs(x: Expr) -> Expr:
    return _fabs(x)


def exp(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("exp", x)
    z = cast(x, dt.float64) * (1.0 / _LN2[0])
    return cast(_exp2_single(_clamp(z, -160.0, 160.0)), dt.float32)


def exp2(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return _exp2_pair(_clamp(x, -1100.0, 1100.0))
    return cast(_exp2_single(_clamp(cast(x, dt.float64), -160.0, 160.0)), dt.float32)


def _log_specials(x: Expr, value: Expr) -> Expr:
    at_edge = select(eq(x, 0.0), const(-_INF, x.dtype), const(_NAN, x.dtype))
    return select(x > 0.0, select(x < _INF, value, x), at_edge)


def log(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("log", x)
    value = _log2_single(cast(x, dt.float64)) * _LN2[0]
    return _log_specials(x, cast(value, dt.float32))


def log2(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return _log_specials(x, _log2_pair(x)[0])
    return _log_specials(x, cast(_log2_single(cast(x, dt.float64)), dt.float32))


def log10(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        hi, lo = _log2_pair(x)
        p, p_lo = _product(hi, _f64(_LOG10_2[0]))
        return _log_specials(x, p + (p_lo + (hi * _LOG10_2[1] + lo * _LOG10_2[0])))
    value = _log2_single(cast(x, dt.float64)) * _LOG10_2[0]
    return _log_specials(x, cast(value, dt.float32))


def pow(x: Expr, y: Expr | Number) -> Expr:
    """C's pow.

    What depends on `y` alone is made a number or a mask, not a condition: it is then computed
    outside of the loop over x, and stays out of the vector masks inside.
    """
    if not isinstance(y, Expr):
        y = const(y, x.dtype)
    word, number = _WORDS[x.dtype]
    zero, one, inf, nan = (const(v, x.dtype) for v in (0.0, 1.0, _INF, _NAN))
    y_is_0, y_is_nan = eq(y, 0.0), ne(y, y)
    # no infinite exponent: 1**inf is 1, and 0 * huge is not nan
    bounded = _clamp(cast(select(y_is_nan, zero, y), dt.float64), -(2.0**70), 2.0**70)
    a = _fabs(x)
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
    r = select(eq(a, _INF), at_inf, r)
    r = select(ne(x, x), at_nan, r)
    half = y * 0.5
    odd = whole & ne(trunc(half), half)
    sign = select(odd, const(1 << (word.bits - 1), word), const(0, word))
    r = _flip_sign(r, bits(x, word) & sign)
    return select(eq(x, 1.0), one, r)


_WORDS = {dt.float32: (dt.uint32, dt.int32), dt.float64: (dt.uint64, dt.int64)}


def _pow_single(a: Expr, y: Expr) -> Expr:
    k, m = _exponent_and_mantissa(a)
    s = (m - 1.0) / (m + 1.0)
    z = _clamp(y * k + (y * s) * _polynomial(s * s, _LOG2_SINGLE), -160.0, 160.0)
    n = unary("rint", z)
    p = _polynomial(z - n, (1.0, *_EXP2_POW))
    # z is never nan, so the exponent may simply be added to that of p
    return bits(bits(p, dt.uint64) + (bits(n + _MAGIC, dt.uint64) << 52), dt.float64)


def _pow_double(a: Expr, y: Expr) -> Expr:
    log, log_lo = _log2_pair(a)
    p, p_lo = _product(y, log)
    z, z_lo = _sum(p, p_lo + y * log_lo)
    # far outside of the range of results, even the low part is large
    z_lo = select(_fabs(z) < 1100.0, z_lo, _f64(0.0))
    return _exp2_pair(_clamp(z, -1100.0, 1100.0), z_lo)


def cbrt(x: Expr) -> Expr:
    if x.dtype is dt.float32:
        third = _log2_single(cast(_fabs(x), dt.float64)) * (1.0 / 3.0)
        # 0 and inf have the exponents -1023 and 1024 there, so they come out right
        root = cast(_exp2_single(_clamp(third, -160.0, 160.0)), dt.float32)
        return select(ne(x, x), x, _flip_sign(root, _sign_bit(x)))
    a, raised = _normalise(_fabs(x))
    magic, q = _exp_parts(_log2_single(a) * (_LN2[0] / 3.0), double=False)
    near = (q + 1.0) * _power_of_two(magic)
    # t has 17 bits, so its cube is exact; a - t³ = (∛a - t)(∛a² + t ∛a + t²)
    t = bits(bits(near, dt.uint64) & 0xFFFFFFF000000000, dt.float64)
    root = t + (a - t * t * t) / (near * near + t * near + t * t)
    root = root * select(eq(raised, 0.0), _f64(1.0), _f64(2.0**-18))
    root = select((a > 0.0) & (a < _INF), root, a)
    return _flip_sign(root, _sign_bit(x))


# -- trigonometry --------------------------------------------------------------------------------


def sin(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("sin", x)
    n, r = _quadrants(cast(_fabs(x), dt.float64))
    s, c = _sin_cos_quadrant(r)
    value = _flip_sign(select(eq(n & 1, 0), s, c), (n & 2) << 62)
    return _flip_sign(cast(value, dt.float32), _sign_bit(x))


def cos(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("cos", x)
    n, r = _quadrants(cast(_fabs(x), dt.float64))
    s, c = _sin_cos_quadrant(r)
    return cast(_flip_sign(select(eq(n & 1, 0), c, s), ((n + 1) & 2) << 62), dt.float32)


def tan(x: Expr) -> Expr:
    if x.dtype is dt.float64:
        return unary("sin", x) / unary("cos", x)
    n, r = _quadrants(cast(_fabs(x), dt.float64))
    s, c = _sin_cos_quadrant(r)
    even = eq(n & 1, 0)
    value = _flip_sign(select(even, s, c) / select(even, c, s), n << 63)
    return _flip_sign(cast(value, dt.float32), _sign_bit(x))


def asin(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    large, v = _asin_parts(cast(_fabs(x), dt.float64), double)
    value = select(large, _HALF_PI[0] - (v + v - _HALF_PI[1]), v)
    return _flip_sign(cast(value, x.dtype), _sign_bit(x))


def acos(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    wide = cast(x, dt.float64)
    large, v = _asin_parts(_fabs(wide), double)
    negative = wide < 0.0
    obtuse = _PI[0] - (v + v - _PI[1])
    steep = select(negative, obtuse, v + v)
    flat = _HALF_PI[0] - (select(negative, -v, v) - _HALF_PI[1])
    return cast(select(large, steep, flat), x.dtype)


def atan(x: Expr) -> Expr:
    value = _atan_ratio(cast(_fabs(x), dt.float64), _f64(1.0), x.dtype is dt.float64)
    return _flip_sign(cast(value, x.dtype), _sign_bit(x))


def atan2(y: Expr, x: Expr) -> Expr:
    """Angle of the point (x, y)."""
    double = x.dtype is dt.float64
    a, b = cast(_fabs(y), dt.float64), cast(_fabs(x), dt.float64)
    if double:
        # away from overflow of a + b, and from the coarse ratios of denormals
        larger = select(a > b, a, b)
        scale = select(larger > 2.0**1000, _f64(2.0**-4), _f64(1.0))
        scale = select(larger < 2.0**-900, _f64(2.0**100), scale)
        a, b = a * scale, b * scale
    both_inf = eq(a, _INF) & eq(b, _INF)
    both_zero = eq(a, 0.0) & eq(b, 0.0)
    a = select(both_inf, _f64(1.0), a)
    b = select(both_inf | both_zero, _f64(1.0), b)
    value = _atan_ratio(a, b, double)
    value = select(_is_negative(x), _PI[0] - (value - _PI[1]), value)
    return _flip_sign(cast(value, x.dtype), _sign_bit(y))


# -- hyperbolic functions ------------------------------------------------------------------------


def sinh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    a = _clamp(cast(_fabs(x), dt.float64), 0.0, 711.0)
    magic, q = _exp_parts(a, double)
    # an eighth of expm1(a): the largest results are finite where exp(a) is not
    s = _power_of_two(magic, -3)
    h = (s - 0.125) + s * q
    value = (h + h / (h * 8.0 + 1.0)) * 4.0
    if double:
        value = select(a < 2.0**-28, a, value)
    return _flip_sign(cast(value, x.dtype), _sign_bit(x))


def cosh(x: Expr) -> Expr:
    a = _clamp(cast(_fabs(x), dt.float64), 0.0, 711.0)
    magic, q = _exp_parts(a, x.dtype is dt.float64)
    s = _power_of_two(magic, -3)  # see sinh
    h = s + s * q
    return cast((h + 0.015625 / h) * 4.0, x.dtype)


def tanh(x: Expr) -> Expr:
    a = _clamp(cast(_fabs(x), dt.float64), 0.0, 30.0)
    magic, q = _exp_parts(a + a, x.dtype is dt.float64)
    s = _power_of_two(magic)
    e = (s - 1.0) + s * q
    return _flip_sign(cast(e / (e + 2.0), x.dtype), _sign_bit(x))


_HUGE = 2.0**28  # from here on, sqrt(x² ± 1) is x


def asinh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    a = cast(_fabs(x), dt.float64)
    square = a * a
    u = a + square / (_sqrt(square + 1.0) + 1.0)
    value = _log1p_or_log_twice(u, a) if double else _log1p(u, double)
    value = select(a < _INF, value, a)
    return _flip_sign(cast(value, x.dtype), _sign_bit(x))


def acosh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    wide = cast(x, dt.float64)
    t = wide - 1.0
    u = t + _sqrt(t * (t + 2.0))
    value = _log1p_or_log_twice(u, wide) if double else _log1p(u, double)
    value = select(wide < _INF, value, wide)
    return cast(select(wide < 1.0, _f64(_NAN), value), x.dtype)


def _log1p_or_log_twice(u: Expr, a: Expr) -> Expr:
    """log(1 + u), or log(2a) where a is so large that u may overflow."""
    huge = a > _HUGE
    w = u + 1.0
    c = select(u < 1.0, u - (w - 1.0), 1.0 - (w - u))
    w, c = select(huge, a, w), select(huge, _f64(0.0), c)
    return _log_near(w, c, True, select(huge, _f64(1.0), _f64(0.0)))


def atanh(x: Expr) -> Expr:
    double = x.dtype is dt.float64
    a = cast(_fabs(x), dt.float64)
    value = _log1p((a + a) / (1.0 - a), double) * 0.5
    value = select(a < 1.0, value, select(eq(a, 1.0), _f64(_INF), _f64(_NAN)))
    return _flip_sign(cast(value, x.dtype), _sign_bit(x))


# -- integers ------------------------------------------------------------------------------------


def _unsigned(dtype: DType) -> DType:
    return DType.parse(f"u{dtype.bits}")


def _magnitude(x: Expr) -> Expr:
    """|x| as unsigned, which also holds that of the lowest value."""
    word = bits(x, _unsigned(x.dtype))
    return select(x < 0, 0 - word, word) if limits(x.dtype)[0] else x


def idiv(a: Expr, b: Expr) -> Expr:
    """C's a / b: truncates towards zero; MIN / -1 is MIN, a / 0 is 0."""
    zero, one = const(0, a.dtype), const(1, a.dtype)
    divisor = select(eq(b, 0), one, b)
    if a.dtype.bits <= 32:
        # A correctly rounded quotient never reaches the next integer, as that is at least 1 / a
        # away (relatively); a float division has a vector instruction, an integer division none.
        wide = dt.float32 if a.dtype.bits <= 16 else dt.float64
        q = _wrap_whole(trunc(cast(a, wide) / cast(divisor, wide)), a.dtype)
    else:
        q = Expr("udiv", _unsigned(a.dtype), (_magnitude(a), _magnitude(divisor)))
        if limits(a.dtype)[0]:
            q = bits(select((a ^ b) < 0, 0 - q, q), a.dtype)
    return select(eq(b, 0), zero, q)


def _wrap_whole(q: Expr, to: DType) -> Expr:
    """A whole float of at most 33 bits as an integer: wraps, as MIN / -1 is out of range."""
    if q.dtype is dt.float32:
        return cast(cast(q, dt.int32), to)
    return cast(bits(q + _MAGIC, dt.uint64), to)


def irem(a: Expr, b: Expr) -> Expr:
    """C's a % b: the sign of `a`; MIN % -1 is 0, a % 0 is 0."""
    return select(eq(b, 0), const(0, a.dtype), a - idiv(a, b) * b)


def ipow(base: Expr, exponent: Expr) -> Expr:
    """base ** exponent modulo 2**bits; 0 for a negative exponent, whatever the base.

    NOTE [powers modulo 2**n] The low 5 (of 64-bit types: 6) bits of the exponent are squared and
    multiplied. An even base raised to more is 0. For an odd base, base**(2**L) = 1 + 2**(L+2) w,
    and the binomial series of (1 + 2**(L+2) w)**E ends when 2**n divides its terms. Its factors
    (E - j + 1) / j are 2-adic integers here: the even part of j divides a power of two, the odd
    part has an inverse. That is 65 operations where squaring 64 times would be 320.
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
    """As C on x86: of at least 32 bits, the amount modulo the width, wrapped back."""
    wide, by = _shift_operands(x, amount)
    return cast(wide << by, x.dtype)


def shift_right(x: Expr, amount: Expr) -> Expr:
    """Arithmetic for signed types; see `shift_left`."""
    wide, by = _shift_operands(x, amount)
    return cast(wide >> by, x.dtype)


def _shift_operands(x: Expr, amount: Expr) -> tuple[Expr, Expr]:
    if x.dtype is dt.bool_:
        raise TypeError("the shift of a bool is a bool operation")
    signed = limits(x.dtype)[0] < 0
    wide = x.dtype if x.dtype.bits >= 32 else (dt.int32 if signed else dt.uint32)
    return cast(x, wide), cast(amount, wide) & (wide.bits - 1)
