"""Print the coefficients of kernels/ir/mathlib/coefficients.py, with the error of each fit.

Every polynomial interpolates its function, in 60 digits, at the Chebyshev nodes of its interval,
which is within a factor of two of the best polynomial of that degree. Only the *_LIBM ones are
minimax polynomials, so that their errors are like those of the C library. Run it by hand:
`python -m tests.codegen.fit_mathlib` (needs mpmath).
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 60


def fit(function: Callable[[mp.mpf], mp.mpf], lo: float, hi: float, count: int) -> list[mp.mpf]:
    """Coefficients, lowest first, of the polynomial of `count` terms on [lo, hi]."""
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    nodes = [
        (lo + hi) / 2 + (hi - lo) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count))
        for k in range(count)
    ]
    rows = mp.matrix(count, count)
    values = mp.matrix(count, 1)
    for i, x in enumerate(nodes):
        values[i] = function(x)
        for j in range(count):
            rows[i, j] = x**j
    return list(mp.lu_solve(rows, values))


def best_fit(
    function: Callable, weight: Callable, lo: float, hi: float, count: int
) -> tuple[list[mp.mpf], mp.mpf]:
    """The polynomial with the least maximum of |weight * (function - polynomial)|, and that maximum.

    Remez' exchange: the errors at count + 1 points are made equal, with alternating signs, then the
    points move to the extrema of the error.
    """
    steps = 400
    at = lambda k: lo + (hi - lo) * (1 - mp.cos(mp.pi * k / steps)) / 2
    points = [mp.mpf(steps * k) / count for k in range(count + 1)]
    for _ in range(8):
        rows, values = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
        for i, z in enumerate(map(at, points)):
            for j in range(count):
                rows[i, j] = weight(z) * z**j
            rows[i, count], values[i] = (-1) ** i, weight(z) * function(z)
        *coefficients, level = mp.lu_solve(rows, values)
        error = [
            weight(z) * (function(z) - sum(c * z**j for j, c in enumerate(coefficients)))
            for z in map(at, range(steps + 1))
        ]
        roots = [k for k in range(1, steps + 1) if error[k - 1] * error[k] < 0]
        points = [
            extremum(error, max(range(*run), key=lambda k: abs(error[k])))
            for run in zip([0, *roots], [*roots, steps + 1])
        ]
    return coefficients, abs(level)


def extremum(values: list[mp.mpf], k: int) -> mp.mpf:
    """The vertex of the parabola through values[k] and its neighbours, or k itself at either end."""
    if k in (0, len(values) - 1):
        return mp.mpf(k)
    left, middle, right = values[k - 1 : k + 2]
    return k + (left - right) / (2 * (left - 2 * middle + right))


def report_best(name: str, measure: str, *arguments: object, scale: list[mp.mpf]) -> None:
    """Print the best polynomial, its coefficients multiplied by `scale`."""
    coefficients, level = best_fit(*arguments)
    print(f"# largest error of {measure} 2^{float(mp.log(level, 2)):.1f}")
    print(f"{name} = (")
    for c, s in zip([*[1] * (len(scale) - len(coefficients)), *coefficients], scale):
        print(f"    {float(c * s)!r},")
    print(")")


def report(
    name: str, function: Callable, lo: float, hi: float, count: int, weight: Callable
) -> None:
    """Print one table; `weight` turns an error of the fit into one of the final result."""
    coefficients = [mp.mpf(float(c)) for c in fit(function, lo, hi, count)]
    worst = mp.mpf(0)
    for k in range(400):
        x = mp.mpf(lo) + (mp.mpf(hi) - mp.mpf(lo)) * (k + mp.mpf(1) / 2) / 400
        value = sum(c * x**j for j, c in enumerate(coefficients))
        worst = max(worst, abs((value - function(x)) * weight(x)))
    print(f"# relative error 2^{float(mp.log(worst, 2)):.1f}")
    print(f"{name} = (")
    for c in coefficients:
        print(f"    {float(c)!r},")
    print(")  # fmt: skip")


def double_double(name: str, value: mp.mpf) -> None:
    hi = float(value)
    print(f"{name} = ({hi!r}, {float(value - mp.mpf(hi))!r})")


def chunk(value: mp.mpf, unit: int) -> mp.mpf:
    """`value` rounded to a multiple of 2**unit."""
    return mp.floor(value * mp.mpf(2) ** -unit + mp.mpf(1) / 2) * mp.mpf(2) ** unit


def tables() -> None:
    ln2, half_pi = mp.log(2), mp.pi / 2
    s2 = (mp.sqrt(2) - 1) ** 2 / (mp.sqrt(2) + 1) ** 2 * mp.mpf("1.001")
    atanh = lambda z: mp.atanh(mp.sqrt(z)) / mp.sqrt(z)
    tiny = 1e-12  # keeps z away from 0 / 0

    report("LOG2_SINGLE", lambda z: 2 * atanh(z) / ln2, tiny, s2, 5, lambda z: ln2 / 2)
    report("LOG_DOUBLE", lambda z: 2 * (atanh(z) - 1) / z, tiny, s2, 7, lambda z: z / 2)
    report(
        "LOG2_TAIL",
        lambda z: 2 / ln2 * (atanh(z) - 1 - z / 3) / z**2,
        1e-8, s2, 8, lambda z: z**2 * ln2 / 2,
    )  # fmt: skip
    r = float(ln2 / 2) * 1.0001
    report("EXP2_SINGLE", lambda r: mp.expm1(r * ln2) / r, -0.5, 0.500001, 7, lambda r: r)
    report("EXP2_POW", lambda r: mp.expm1(r * ln2) / r, -0.5, 0.500001, 6, lambda r: r)
    expm1 = lambda r: (mp.expm1(r) - r) / r**2
    report("EXPM1_SINGLE", expm1, -r, r * 1.000001, 7, lambda r: r)
    report("EXPM1_DOUBLE", expm1, -r, r * 1.000001, 11, lambda r: r)
    # in x² up to (π/4)², then by z = (2x/π)², as the others; the first coefficient of sin is 1
    sin = lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z
    cos = lambda z: (mp.cos(mp.sqrt(z)) - 1) / z
    odd, even = (
        [half_pi ** (2 * k + 1) for k in range(4)],
        [half_pi ** (2 * k + 2) for k in range(4)],
    )
    corner = (mp.pi / 4) ** 2
    report_best("SIN_LIBM", "sin(x) / x", sin, lambda z: z, tiny, corner, 3, scale=odd)
    report_best("COS_LIBM", "cos(x)", cos, lambda z: z, tiny, corner, 4, scale=even)
    report("TAN_SIN", lambda z: mp.sin(half_pi * mp.sqrt(z)) / mp.sqrt(z), tiny, 0.2501, 5,
           lambda z: 1 / half_pi)  # fmt: skip
    report("TAN_COS", lambda z: (mp.cos(half_pi * mp.sqrt(z)) - 1) / z, tiny, 0.2501, 5,
           lambda z: z * mp.sqrt(2))  # fmt: skip
    z = (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.001")
    atan = lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z
    report("ATAN_SINGLE", atan, tiny, z, 7, lambda z: z)
    report("ATAN_DOUBLE", atan, tiny, z, 12, lambda z: z)
    asin = lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z
    report("ASIN_SINGLE", asin, tiny, 0.2501, 8, lambda z: z)
    report("ASIN_DOUBLE", asin, tiny, 0.2501, 14, lambda z: z)

    for name, value in {
        "LN2": ln2, "TWO_OVER_LN2": 2 / ln2, "TWO_THIRDS_OVER_LN2": 2 / (3 * ln2),
        "LOG10_2": mp.log10(2), "PI": mp.pi, "HALF_PI": half_pi, "QUARTER_PI": half_pi / 2,
    }.items():  # fmt: skip
        double_double(name, value)
    high = chunk(ln2, -32)
    print(f"LN2_SPLIT = ({float(high)!r}, {float(ln2 - high)!r})")
    print("TWO_OVER_PI = (")
    for window in range(5):
        whole = mp.mpf(2) ** (24 * window) * 2 / mp.pi
        rest = whole - 4 * mp.floor(whole / 4 + mp.mpf(1) / 2)
        parts = []
        for unit in (-27, -55):
            parts.append(chunk(rest, unit))
            rest -= parts[-1]
        print(f"    ({', '.join(repr(float(p)) for p in [*parts, rest])}),")
    print(")  # fmt: skip")


if __name__ == "__main__":
    tables()
