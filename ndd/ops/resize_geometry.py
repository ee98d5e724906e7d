"""From the arguments of the resize family to numbers per sample and axis: extents, regions, taps.

Everything here is vectorised over samples, [samples, axes]; nothing looks at pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from ..fusion.graph import Array
from ..kernels.dtypes import DALIInterpType
from ..kernels.taps import (
    BASE_RADIUS,
    CUBIC,
    GAUSSIAN,
    LANCZOS3,
    NEAREST,
    NEAREST_SUM,
    TRIANGULAR,
    Taps,
)

MODES = ("default", "stretch", "not_larger", "not_smaller")
ROUNDINGS = ("round", "truncate", "ceil")
# Extents beyond this are mistakes; positions still fit 32-bit integers, sums of them too.
MAX_EXTENT = 2**30
# A region of interest thinner than this is widened by as much, about its middle (as upstream).
MIN_REGION = np.float32(1e-3)

# As upstream: extents before rounding are at least this, and filters grow to at most this radius.
MIN_SIZE = np.float32(0.1)
MAX_RADIUS = np.float32(4096)

_KINDS = np.array([NEAREST, TRIANGULAR, CUBIC, LANCZOS3, TRIANGULAR, GAUSSIAN])  # by InterpType
TABLE_STEPS = np.array([0, 2, 64, 128, 192], np.float32)  # by kind
_HALF = np.float32(0.5)


class Frame(NamedTuple):
    """What is resized to what; `lo` > `hi` where the result is mirrored."""

    extents: Array  # int64: of the input
    out: Array  # int64: of the result
    lo: Array  # float32: region of interest, in pixels of the input
    hi: Array  # float32


def frame(
    extents: Array, sizes: Array, mode: str = "default", max_size: Sequence[float] | None = None,
    lo: Array | None = None, hi: Array | None = None, relative: bool = False,
    subpixel: bool = True, rounding: str = "round", alignment: Array | float = 0.5,
    scales: Array | None = None,
) -> Frame:  # fmt: skip
    """Extents and regions for the `sizes` (or, instead, `scales`) asked for; 0 leaves one free."""
    low, high = _region(extents, lo, hi, relative)
    region = np.abs(high - low)
    region = np.where((region == 0) & (extents > 0), MIN_REGION, region)  # far from the image
    if scales is not None:
        if mode in ("not_larger", "not_smaller"):
            raise ValueError(f"`scales` cannot be combined with mode={mode!r}")
        sizes = scales * region
    sizes = np.broadcast_to(sizes.astype(np.float32), region.shape)
    real = _real_sizes(sizes, region, mode, _limits(max_size, region.shape[1]))
    real = np.maximum(real, MIN_SIZE)
    out = _rounded(real, rounding)
    out = np.where(extents == 0, 0, out)
    # along a free axis a reversed region is not mirrored, as upstream
    free = (sizes == 0) & ((mode in ("default", "stretch")) | ~(sizes != 0).any(1, keepdims=True))
    low, high = _swapped(low, high, (sizes < 0) | (free & (low > high)))
    if subpixel:
        low, high = _adjusted(low, high, real, out, alignment)
    return Frame(extents, out, low.astype(np.float32), high.astype(np.float32))


def check_finite(name: str, values: Array) -> Array:
    """Refuse numbers that cannot be an extent or a position."""
    bad = ~(np.abs(values) <= MAX_EXTENT)
    if bad.any():
        s = int(np.argwhere(bad)[0][0])
        raise ValueError(
            f"`{name}` must be finite and at most {MAX_EXTENT} in magnitude, "
            f"got {float(values[bad][0]):g} for sample {s}"
        )
    return values


def _region(
    extents: Array, lo: Array | None, hi: Array | None, relative: bool
) -> tuple[Array, Array]:
    """The region of interest, float32, in pixels."""
    full = extents.astype(np.float32)
    if lo is None or hi is None:
        return np.zeros_like(full), full
    low = np.broadcast_to(check_finite("roi_start", lo), full.shape).astype(np.float32)
    high = np.broadcast_to(check_finite("roi_end", hi), full.shape).astype(np.float32)
    if relative:
        low, high = low * full, high * full
    thin = np.abs(high - low) < MIN_REGION
    return (
        np.where(thin, low - MIN_REGION * _HALF, low),
        np.where(thin, high + MIN_REGION * _HALF, high),
    )


def _limits(max_size: Sequence[float] | None, axes: int) -> Array | None:
    if max_size is None:
        return None
    if len(max_size) not in (1, axes):
        raise ValueError(f"`max_size` needs 1 or {axes} values, got {len(max_size)}")
    limits = np.array(max_size, np.float32)
    if np.isnan(limits).any():
        raise ValueError("`max_size` must be a number, got nan")
    return np.where(limits > 0, limits, np.float32(np.inf))


def _real_sizes(sizes: Array, region: Array, mode: str, limits: Array | None) -> Array:
    """Extents before rounding, without signs; in float32, which decides some halves."""
    given = (sizes != 0) & (region > 0)  # nothing has no proportions
    some = given.any(1, keepdims=True)
    limits = np.where(some, np.float32(np.inf) if limits is None else limits, np.float32(np.inf))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = np.where(given, np.abs(sizes) / region, np.float32(1))
        if mode in ("default", "stretch"):
            if mode == "default":
                count = given.sum(1, keepdims=True)
                mean = scale.astype(np.float64).prod(1, keepdims=True) ** (1 / np.maximum(count, 1))
                scale = np.where(given, scale, mean.astype(np.float32))
            return np.minimum(np.where(given, np.abs(sizes), region * scale), limits)
        pick, unused = (np.min, np.inf) if mode == "not_larger" else (np.max, 0)
        common = pick(np.where(given, scale, np.float32(unused)), axis=1, keepdims=True)
        most = limits / region
        common = np.minimum(common, most.min(1, keepdims=True))
        real = region * np.where(some, common, np.float32(1))
        # what decides is met exactly
        real = np.where(given & (scale == common), np.abs(sizes), real)
        return np.where(some & (most == common), limits, real)


def _rounded(real: Array, rounding: str) -> Array:
    check_finite("size", real)
    if rounding == "round":
        whole = np.floor(real.astype(np.float64) + 0.5)
    else:
        whole = np.floor(real) if rounding == "truncate" else np.ceil(real)
    return np.maximum(whole, 1).astype(np.int64)


def _swapped(low: Array, high: Array, swap: Array) -> tuple[Array, Array]:
    return np.where(swap, high, low), np.where(swap, low, high)


def _adjusted(
    low: Array, high: Array, real: Array, out: Array, alignment: Array | float
) -> tuple[Array, Array]:
    """The region stretched about its middle as the size was by rounding: the scale stays true."""
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(real > 0, out / real.astype(np.float64), 1.0)
    low, high = low.astype(np.float64), high.astype(np.float64)
    anchor = low + (high - low) * alignment
    return anchor + (low - anchor) * stretch, anchor + (high - anchor) * stretch


# -- windows of the result -----------------------------------------------------------------------


def windowed(f: Frame, start: Array, size: Array, mirror: Array | None = None) -> Frame:
    """The frame of a part of the result: outputs [start, start + size), mirrored where asked."""
    step = (f.hi.astype(np.float64) - f.lo) / np.maximum(f.out, 1)
    lo, hi = f.lo + start * step, f.lo + (start + size) * step
    if mirror is not None:
        lo, hi = _swapped(lo, hi, mirror)
    return Frame(f.extents, size, lo.astype(np.float32), hi.astype(np.float32))


# -- filters -------------------------------------------------------------------------------------


def filters(
    interp: Array | None, smaller: Array | None, larger: Array | None
) -> tuple[Array, Array]:
    """Kinds for shrinking and for growing, [samples or 1], from the three arguments."""
    both = np.array([DALIInterpType.INTERP_LINEAR]) if interp is None else interp
    found = []
    for name, own in (("min_filter", smaller), ("mag_filter", larger)):
        values = both if own is None else own
        bad = (values < 0) | (values >= len(_KINDS))
        if bad.any():
            name = "interp_type" if own is None else name
            raise ValueError(
                f"`{name}` must be an InterpType (0 to {len(_KINDS) - 1}), "
                f"got {int(values[bad][0])} for sample {int(np.flatnonzero(bad)[0])}"
            )
        found.append(_KINDS[values.astype(np.int64)])
    return found[0], found[1]


class Plan(NamedTuple):
    """How a frame is interpolated."""

    taps: list[Taps]  # of each axis
    last: Array  # the axis that upstream interpolates last, per sample


def plan_taps(f: Frame, kinds: tuple[Array, Array], antialias: bool, innermost: int) -> Plan:
    """Taps along every axis. `innermost`: which of the axes upstream takes for x."""
    size = np.abs(f.hi - f.lo)
    n_out = np.maximum(f.out, 1).astype(np.float32)
    kind = np.where(size > n_out, kinds[0][:, None], kinds[1][:, None])
    nearest = kind == NEAREST
    scale = (f.hi - f.lo) / n_out
    stretch, radius, count = _spread(kind, size, n_out, antialias)
    low, high = np.minimum(f.lo, f.hi), np.maximum(f.lo, f.hi)
    begin = np.maximum(np.floor(low - radius), 0).astype(np.int64)
    end = np.minimum(f.extents, np.ceil(high - radius).astype(np.int64) + count)
    first, last = _order(np.maximum(end - begin, 0), f.out, count, innermost)
    # Upstream stores only what the passes after the first need, and counts positions from there;
    # nearest pixels are taken in a single pass over what is needed.
    axes = np.arange(f.out.shape[1])
    single_pass = nearest.all(axis=1, keepdims=True)
    base = np.where((axes == first[:, None]) & ~single_pass, 0, begin)
    centre = _HALF * scale - _HALF
    own = f.lo - base.astype(np.float32)
    origin = np.where(nearest, own, own + (centre - radius))
    kind = np.where(nearest & (axes != innermost), NEAREST_SUM, kind)
    columns = zip(origin.T, scale.T, stretch.T, count.T, kind.T, base.T, strict=True)
    return Plan([Taps(*c) for c in columns], last)


def _spread(kind: Array, size: Array, n_out: Array, antialias: bool) -> tuple[Array, Array, Array]:
    """(table entries per pixel, radius, taps), step by step as upstream, so that the bits agree."""
    nearest = kind == NEAREST
    radius: Array = BASE_RADIUS[kind]
    if antialias:
        radius = np.maximum(radius, np.minimum(radius * size / n_out, MAX_RADIUS))
    width = np.float32(2) * radius
    gaussian = kind == GAUSSIAN
    if gaussian.any():
        sigma = ((radius * _HALF).astype(np.float64) / np.sqrt(2)).astype(np.float32)
        width = np.where(gaussian, np.float32(4 * np.sqrt(2)) * sigma, width)
    last = TABLE_STEPS[kind]
    stretch = last / width
    radius = last * _HALF / np.where(nearest, np.float32(1), stretch)
    count = np.where(nearest, 1, np.ceil(np.float32(2) * radius)).astype(np.int64)
    return stretch, radius, count


# Relative costs by which upstream chooses the order of the passes (1500 observed choices agree).
_INNER_TAP, _STORE = 1.4, 3.0


def _order(needed: Array, out: Array, count: Array, innermost: int) -> tuple[Array, Array]:
    """The axes that upstream interpolates first and last: the cheapest order, by the numbers of
    pixels that it reads and writes and their taps."""
    axes = out.shape[1]
    cost = count * np.where(np.arange(axes) == innermost, _INNER_TAP, 1.0) + _STORE
    best = np.full(len(out), np.inf)
    first, last = np.zeros((2, len(out)), np.int64)
    for order in reversed(list(permutations(range(axes)))):
        total: Array = np.zeros(len(out))
        shape: Array = needed.astype(np.float64)
        for axis in order:
            shape[:, axis] = out[:, axis]
            total += shape.prod(axis=1) * cost[:, axis]
        better = total < best
        best = np.where(better, total, best)
        first, last = np.where(better, order[0], first), np.where(better, order[-1], last)
    return first, last


# -- halves --------------------------------------------------------------------------------------


def even_range(
    f: Frame, plan: Plan, innermost: int, inner: Array, lanes: int
) -> tuple[Array, Array]:
    """Which elements of a row upstream rounds in blocks of `lanes`: [samples] each, from and to.

    Exact halves become even there, elsewhere they go away from zero. A row has `inner` elements per
    position along the innermost axis. If that one comes last, blocks of pixels are taken of those
    that do not touch a border, else blocks of elements of the whole row.
    """
    taps = plan.taps[innermost]
    n_in, n_out = f.extents[:, innermost], f.out[:, innermost]
    row = n_out * inner
    start = _first_output(taps, n_out, -taps.base)
    stop = _first_output(taps, n_out, n_in - taps.base - taps.count + 1)
    start, stop = np.where(taps.scale < 0, stop, start), np.where(taps.scale < 0, start, stop)
    whole = np.maximum(stop - start, 0) // lanes * lanes
    horizontal = plan.last == innermost
    low = np.where(horizontal, start * inner, 0)
    high = np.where(horizontal, (start + whole) * inner, row // lanes * lanes)
    # nearest pixels are taken one by one
    last_kind = np.stack([t.kind for t in plan.taps])[plan.last, np.arange(len(plan.last))]
    single = (last_kind == NEAREST) | (last_kind == NEAREST_SUM)
    return np.where(single, 0, low), np.where(single, 0, high)


def _first_output(taps: Taps, n_out: Array, tap: Array) -> Array:
    """The first output whose first tap is at or beyond `tap` (for negative scales: before it)."""
    scale = taps.scale.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = (tap - 1 - taps.origin) / scale
    guess = np.clip(np.nan_to_num(guess), -2, n_out + 2).astype(np.int64)
    place = n_out
    for step in (2, 1, 0, -1):  # rounding may move it by one
        i = np.clip(guess + step, 0, n_out)
        beyond = np.ceil(i.astype(np.float32) * taps.scale + taps.origin) >= tap
        place = np.where((beyond == (scale >= 0)) & (i < n_out), i, place)
    return place
