"""Where the coefficients of kernels/mathlib.py come from: prints them, with the error of each fit.

Every polynomial interpolates its function, in 60 digits, at the Chebyshev nodes of its interval,
which is within a factor of two of the best polynomial of that degree. Run it by hand:
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

    report("_LOG2_SINGLE", lambda z: 2 * atanh(z) / ln2, tiny, s2, 5, lambda z: ln2 / 2)
    report("_LOG_DOUBLE", lambda z: 2 * (atanh(z) - 1) / z, tiny, s2, 7, lambda z: z / 2)
    report(
        "_LOG2_TAIL",
        lambda z: 2 / ln2 * (atanh(z) - 1 - z / 3) / z**2,
        1e-8, s2, 8, lambda z: z**2 * ln2 / 2,
    )  # fmt: skip
    r = float(ln2 / 2) * 1.0001
    report("_EXP2_SINGLE", lambda r: mp.expm1(r * ln2) / r, -0.5, 0.500001, 7, lambda r: r)
    report("_EXP2_POW", lambda r: mp.expm1(r * ln2) / r, -0.5, 0.500001, 6, lambda r: r)
    expm1 = lambda r: (mp.expm1(r) - r) / r**2
    report("_EXPM1_SINGLE", expm1, -r, r * 1.000001, 7, lambda r: r)
    report("_EXPM1_DOUBLE", expm1, -r, r * 1.000001, 11, lambda r: r)
    report("_SIN_SINGLE", lambda z: mp.sin(half_pi * mp.sqrt(z)) / mp.sqrt(z), tiny, 0.2501, 5,
           lambda z: 1 / half_pi)  # fmt: skip
    report("_COS_SINGLE", lambda z: (mp.cos(half_pi * mp.sqrt(z)) - 1) / z, tiny, 0.2501, 5,
           lambda z: z * mp.sqrt(2))  # fmt: skip
    z = (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.001")
    atan = lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z
    report("_ATAN_SINGLE", atan, tiny, z, 7, lambda z: z)
    report("_ATAN_DOUBLE", atan, tiny, z, 12, lambda z: z)
    asin = lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z
    report("_ASIN_SINGLE", asin, tiny, 0.2501, 8, lambda z: z)
    report("_ASIN_DOUBLE", asin, tiny, 0.2501, 14, lambda z: z)

    for name, value in {
        "_LN2": ln2, "_TWO_OVER_LN2": 2 / ln2, "_TWO_THIRDS_OVER_LN2": 2 / (3 * ln2),
        "_LOG10_2": mp.log10(2), "_PI": mp.pi, "_HALF_PI": half_pi, "_QUARTER_PI": half_pi / 2,
    }.items():  # fmt: skip
        double_double(name, value)
    high = chunk(ln2, -32)
    print(f"_LN2_SPLIT = ({float(high)!r}, {float(ln2 - high)!r})")
    print("_TWO_OVER_PI = (")
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
