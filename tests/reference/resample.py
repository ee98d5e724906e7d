"""Separable interpolation in NumPy, with the arithmetic observed upstream.

    first, weights = taps(n_in, n_out, lo, hi, "cubic", antialias=True)
    small = resize(image, axes=(0, 1), out=(224, 224), rois=((0, h), (0, w)), kind="linear")

Everything is float32, step by step as upstream does it; only GAUSSIAN and LANCZOS3 weights differ,
by one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

F32 = np.float32
KINDS = ("nn", "linear", "cubic", "lanczos3", "triangular", "gaussian")  # by number
RADIUS = {"linear": 1, "triangular": 1, "gaussian": 1, "cubic": 2, "lanczos3": 3}


def filter_table(kind: str) -> np.ndarray:
    """The filter at 32 knots per pixel; the triangle needs only three."""
    if kind in ("linear", "triangular"):
        return np.array([0, 1, 0], F32)
    x = np.arange(-32 * RADIUS[kind], 32 * RADIUS[kind] + 1) / 32
    if kind == "gaussian":
        return np.exp(-4 * x * x).astype(F32)
    if kind == "cubic":
        a = np.abs(x)
        near, far = 1.5 * a**3 - 2.5 * a**2 + 1, -0.5 * a**3 + 2.5 * a**2 - 4 * a + 2
        return np.where(a < 1, near, far).astype(F32)
    x = x.astype(F32)
    return _sinc(x) * _sinc(x / F32(3))


def _sinc(x: np.ndarray) -> np.ndarray:
    angle = (x.astype(np.float64) * np.pi).astype(F32)
    sine = np.sin(angle.astype(np.float64)).astype(F32)
    return np.where(angle == 0, F32(1), sine / np.where(angle == 0, F32(1), angle))


def radius(kind: str, n_out: int, lo: float, hi: float, antialias: bool) -> np.float32:
    """Radius of the filter, stretched where it antialiases."""
    own = F32(RADIUS[kind])
    if not antialias:
        return own
    return max(own, min(F32(own * abs(F32(hi) - F32(lo))) / F32(n_out), F32(4096)))


def spread(kind: str, r: np.float32) -> tuple[np.float32, np.float32, int]:
    """(table entries per pixel, radius as upstream derives it from that, taps)."""
    width = F32(2) * r
    if kind == "gaussian":
        width = F32(4 * np.sqrt(2)) * F32(float(r * F32(0.5)) / np.sqrt(2))
    last = F32(len(filter_table(kind)) - 1)
    per_pixel = last / width
    r = F32(last * F32(0.5)) / per_pixel
    return per_pixel, r, int(np.ceil(2 * float(r)))


def step(n_out: int, lo: float, hi: float) -> np.float32:
    return F32(F32(F32(hi) - F32(lo)) / F32(n_out))


def nn_positions(n_in: int, n_out: int, lo: float, hi: float, innermost: bool) -> np.ndarray:
    """Nearest pixels; along all but the innermost axis the position is summed up step by step."""
    scale, start = step(n_out, lo, hi), base(lo, hi, 0)
    own = F32(F32(lo) - F32(start))
    if innermost:
        s = (np.arange(n_out, dtype=F32) + F32(0.5)) * scale + own
    else:
        s = np.full(n_out, scale, F32)
        s[:1] = own + F32(0.5) * scale
        s = np.add.accumulate(s, dtype=F32)
    return np.clip(start + np.floor(s).astype(np.int64), 0, n_in - 1)


def base(lo: float, hi: float, r: float) -> int:
    """Where the input of the last pass begins: upstream stores only the part that it needs."""
    return max(0, int(np.floor(min(F32(lo), F32(hi)) - F32(r))))


def taps(
    n_in: int, n_out: int, lo: float, hi: float, kind: str, antialias: bool = True,
    first_pass: bool = True, innermost: bool = True,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(first tap [n_out], weights [n_out, T]); taps outside of the input mean its border pixel."""
    if kind == "nn":
        first = nn_positions(n_in, n_out, lo, hi, innermost)
        return first, np.ones((n_out, 1), F32)
    scale = step(n_out, lo, hi)
    per_pixel, r, count = spread(kind, radius(kind, n_out, lo, hi, antialias))
    start = 0 if first_pass else base(lo, hi, r)
    table = filter_table(kind)
    half = F32(0.5)
    origin = F32(F32(lo) - F32(start)) + F32(F32(half * scale - half) - r)
    s = np.arange(n_out, dtype=F32) * scale + origin
    first = np.ceil(s).astype(np.int64)
    x = ((first[:, None] + np.arange(count)).astype(F32) - s[:, None]) * per_pixel
    weights = _interpolated(table, x)
    total = np.zeros(n_out, F32)
    for k in range(count):
        total += weights[:, k]
    return first + start, weights / total[:, None]


def _interpolated(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    j = np.clip(np.floor(x).astype(np.int64), 0, len(table))
    padded = np.concatenate([table, np.zeros(2, F32)])
    return padded[j] + (x - j.astype(F32)) * (padded[j + 1] - padded[j])


def apply(x: np.ndarray, axis: int, first: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sums along one axis, tap after tap in float32."""
    x = np.moveaxis(x.astype(F32), axis, 0)
    total = np.zeros((len(first), *x.shape[1:]), F32)
    for k in range(weights.shape[1]):
        pixels = x[np.clip(first + k, 0, len(x) - 1)]
        total += weights[:, k].reshape(-1, *(1,) * (x.ndim - 1)) * pixels
    return np.moveaxis(total, 0, axis)


def order(sizes: Sequence[tuple[int, int, float, float, np.float32, int]]) -> list[int]:
    """The order in which upstream interpolates the axes, which is the cheapest, given (n_in, n_out, lo, hi,
    radius, taps) of each. A tap along x, y, z costs 1.4, 1, 1.2, a sum 3 more."""
    needed = [min(n, int(np.ceil(max(lo, hi) - r)) + t) - base(lo, hi, r)
              for n, _, lo, hi, r, t in sizes]  # fmt: skip

    def cost(way: tuple[int, ...]) -> np.float32:
        shape, total = list(needed), F32(0)
        for k in way:
            shape[k] = sizes[k][1]
            tap = F32((1.4, 1.0, 1.2)[len(sizes) - 1 - k])
            sums = F32(np.prod(shape, dtype=float))
            total = total + (sums * F32(sizes[k][5]) * tap + F32(3) * sums)
        return total

    return list(min(reversed([*permutations(range(len(sizes)))]), key=cost))


def resize(
    x: np.ndarray, axes: Sequence[int], out: Sequence[int], rois: Sequence[tuple[float, float]],
    kinds: Sequence[str], antialias: bool = True,
) -> np.ndarray:  # fmt: skip
    """float32 result; lo > hi in `rois` mirrors. `kinds`: a filter per axis."""
    numbers = []
    for axis, m, (lo, hi), kind in zip(axes, out, rois, kinds, strict=True):
        r, count = F32(0.5), 1
        if kind != "nn":
            _, r, count = spread(kind, radius(kind, m, lo, hi, antialias))
        numbers.append((x.shape[axis], m, lo, hi, r, count))
    for rank, k in enumerate(order(numbers)):
        n, m, lo, hi = numbers[k][:4]
        innermost = k == len(axes) - 1
        first, weights = taps(n, m, lo, hi, kinds[k], antialias, rank == 0, innermost)
        x = apply(x, axes[k], first, weights)
    return x


def to_type(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Halves away from zero, saturated."""
    if np.dtype(dtype).kind == "f":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    return np.clip(np.trunc(x + np.copysign(F32(0.5), x)), info.min, info.max).astype(dtype)
