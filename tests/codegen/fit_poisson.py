"""Print the polynomials of kernels/ir/distributions.py, with the error of the fit.

With w normal and s = w / √rate, the quantile of a Poisson distribution (the number x for which
gammaincc(x, rate) is the probability below w; its whole part is the Poisson number) is
rate + √rate w + w² (1/6 + s P(s)) + C(s) + D(s) / rate + …; P, C and D are fitted to exact
quantiles of many rates by least squares, weighted by the root of w's density. Run it by hand:
`python -m tests.codegen.fit_poisson`.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from ndd.kernels.ir.distributions import FEW, C, D, P

TERMS = (len(P), len(C), len(D))
W = 6.8  # larger than any normal number made from 32 bits
CUT = 0.4  # lower quantiles affect no result


def quantile(rate: float, w: np.ndarray) -> np.ndarray:
    """The exact quantile, by bisection, computed from the smaller tail."""
    low, high = np.full_like(w, 1e-9), np.full_like(w, rate + 10 * np.sqrt(rate) + 20)
    left = w < 0
    target = special.ndtr(-np.abs(w))
    for _ in range(90):
        middle = (low + high) / 2
        tail = np.where(left, special.gammaincc(middle, rate), -special.gammainc(middle, rate))
        below = tail < np.where(left, target, -target)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def equations(rate: float) -> tuple[np.ndarray, np.ndarray]:
    """The weighted rows and right sides of the least-squares problem."""
    w = W * np.cos(np.pi * (np.arange(300) + 0.5) / 300)
    x = quantile(rate, w)
    w, x = w[x > CUT], x[x > CUT]
    s = w / np.sqrt(rate)
    factors = (w * w * s, np.ones_like(s), np.full_like(s, 1 / rate))
    rows = [f * s**k for f, count in zip(factors, TERMS, strict=True) for k in range(count)]
    weight = np.exp(-w * w / 4) / np.sqrt(rate)
    return np.stack(rows, axis=1) * weight[:, None], weight * (
        x - rate - np.sqrt(rate) * w - w * w / 6
    )


def main() -> None:
    rates = FEW * np.concatenate([np.geomspace(1, 4, 30), np.geomspace(4.3, 400, 25)])
    rows, right = (np.concatenate(parts) for parts in zip(*map(equations, rates), strict=True))
    scale = np.abs(rows).max(axis=0)
    found = np.linalg.lstsq(rows / scale, right, rcond=1e-15)[0] / scale
    for name, part in zip("PCD", np.split(found, np.cumsum(TERMS)[:-1]), strict=True):
        print(f"{name} = ({', '.join(f'{v:.9g}' for v in part)})")
    print(
        f"# root of the weighted mean of squares: {np.sqrt(np.mean((rows @ found - right) ** 2)):.1e}"
    )


if __name__ == "__main__":
    main()
