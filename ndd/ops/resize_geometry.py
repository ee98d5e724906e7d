"""From the arguments of the resize family to numbers per sample and axis: extents, regions, taps.

Everything here is vectorised over samples, [samples, axes]; nothing looks at pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce, wraps
from itertools import permutations
from operator import mul
from typing import Any, NamedTuple, TypeVar, cast

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
    cells,
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
_LINEAR = (np.array([TRIANGULAR]), np.array([TRIANGULAR]))
TABLE_STEPS = np.array([0, 2, 64, 128, 192], np.float32)  # by kind
_HALF = np.float32(0.5)


# -- results that are kept -----------------------------------------------------------------------

_F = TypeVar("_F", bound=Callable[..., Any])


class _Content:
    """Arguments that are equal if they hold the same numbers."""

    __slots__ = ("args", "hash", "key")

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.args, self.key = args, _content(args)
        self.hash = hash(self.key)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self.key == other.key


def _content(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype.char, x.tobytes()
    return tuple(map(_content, x)) if isinstance(x, (tuple, list)) else x


def _kept(function: _F) -> _F:
    """`function`, which computes numbers from numbers, with its last results kept: most batches are
    of sizes that were there before, and then this takes a tenth of the time (64 images of different
    sizes: 180 → 20 µs). Nobody may write to these results."""
    found = lru_cache(maxsize=64)(lambda content: function(*content.args))
    return cast(_F, wraps(function)(lambda *args: found(_Content(args))))


# -- frames --------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """What is resized to what; `lo` > `hi` where the result is mirrored."""

    extents: Array  # int64: of the input
    out: Array  # int64: of the result
    lo: Array  # float32: region of interest, in pixels of the input
    hi: Array  # float32


@_kept
def frame(
    extents: Array, sizes: Array, mode: str = "default", max_size: Sequence[float] | None = None,
    lo: Array | None = None, hi: Array | None = None, relative: bool = False,
    subpixel: bool = True, rounding: str = "round", alignment: Array | float = 0.5,
    scales: Array | None = None,
) -> Frame:  # fmt: skip
    """Extents and regions for the `sizes` (or, instead, `scales`) asked for; 0 leaves one free."""
    low, high, region = _region(extents, lo, hi, relative)
    if scales is not None:
        if mode in ("not_larger", "not_smaller"):
            raise ValueError(f"`scales` cannot be combined with mode={mode!r}")
        sizes = scales * region
    sizes = np.broadcast_to(sizes.astype(np.float32), region.shape)
    real = _real_sizes(sizes, region, mode, _limits(max_size, region.shape[1]))
    real = np.maximum(real, MIN_SIZE)
    out = _rounded(real, rounding)
    out[extents == 0] = 0
    if (sizes <= 0).any():
        # along a free axis a reversed region is not mirrored, as upstream
        proportional = mode in ("default", "stretch")
        free = (sizes == 0) & (proportional | ~(sizes != 0).any(1, keepdims=True))
        low, high = _swapped(low, high, (sizes < 0) | (free & (low > high)))
    if subpixel and not (lo is None and (out == real).all()):  # else it would change nothing
        low, high = _adjusted(low, high, real, out, alignment)
    return Frame(extents, out, low.astype(np.float32), high.astype(np.float32))


def check_finite(name: str, values: Array) -> Array:
    """Refuse numbers that cannot be an extent or a position."""
    good = np.abs(values) <= MAX_EXTENT
    if not good.all():
        bad = ~good
        s = int(np.argwhere(bad)[0][0])
        raise ValueError(
            f"`{name}` must be finite and at most {MAX_EXTENT} in magnitude, "
            f"got {float(values[bad][0]):g} for sample {s}"
        )
    return values


def _region(
    extents: Array, lo: Array | None, hi: Array | None, relative: bool
) -> tuple[Array, Array, Array]:
    """The region of interest, float32, in pixels: from, to, and its extents."""
    full = extents.astype(np.float32)
    if lo is None or hi is None:
        return np.zeros_like(full), full, full
    low = np.broadcast_to(check_finite("roi_start", lo), full.shape).astype(np.float32)
    high = np.broadcast_to(check_finite("roi_end", hi), full.shape).astype(np.float32)
    if relative:
        low, high = low * full, high * full
    thin = np.abs(high - low) < MIN_REGION
    low = np.where(thin, low - MIN_REGION * _HALF, low)
    high = np.where(thin, high + MIN_REGION * _HALF, high)
    region = np.abs(high - low)
    far_away = (region == 0) & (extents > 0)  # from the image: there is no float32 between
    return low, high, np.where(far_away, MIN_REGION, region)


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
    if limits is None and given.all():
        return _sizes_given(np.abs(sizes), region, mode)
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


def _sizes_given(sizes: Array, region: Array, mode: str) -> Array:
    """The same, if none is free or limited."""
    if mode in ("default", "stretch"):
        return sizes
    scale = sizes / region
    common = (scale.min if mode == "not_larger" else scale.max)(axis=1, keepdims=True)
    return np.where(scale == common, sizes, region * common)


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
    stretch = out / real.astype(np.float64)
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
    if interp is None and smaller is None and larger is None:
        return _LINEAR
    both = np.array([DALIInterpType.INTERP_LINEAR]) if interp is None else interp
    found: list[Array] = []
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
    even: tuple[Array, Array] | None  # see `_even_range`


@_kept
def plan_taps(
    f: Frame, kinds: tuple[Array, Array], antialias: bool, innermost: int,
    elements: Array | None = None, lanes: int = 0,
) -> Plan:  # fmt: skip
    """Taps along every axis. `innermost`: which of the axes upstream takes for x.

    For results that are rounded: `elements` per position along that axis, of which upstream rounds
    so many as `lanes` at once.
    """
    way = f.hi - f.lo
    size = np.abs(way)
    n_out = np.maximum(f.out, 1).astype(np.float32)
    present = {*kinds[0].tolist(), *kinds[1].tolist()}
    kind = np.full(size.shape, kinds[0][0])
    if len(present) > 1:
        kind = np.where(size > n_out, kinds[0][:, None], kinds[1][:, None])
    nearest = kind == NEAREST
    scale = way / n_out
    stretch, radius, count = _spread(kind, present, size, n_out, antialias)
    begin = np.maximum(np.floor(np.minimum(f.lo, f.hi) - radius), 0).astype(np.int64)
    end = np.ceil(np.maximum(f.lo, f.hi) - radius).astype(np.int64) + count
    needed = np.maximum(np.minimum(f.extents, end) - begin, 0)
    first, last = _order(needed, f.out, count, innermost)
    # Upstream stores only what the passes after the first need, and counts positions from there;
    # nearest pixels are taken in a single pass over what is needed.
    axes = np.arange(f.out.shape[1])
    later = axes != first[:, None]
    if NEAREST in present:
        later |= nearest.all(axis=1, keepdims=True)
    base = begin * later
    own = f.lo - base.astype(np.float32)
    origin = own + ((_HALF * scale - _HALF) - radius)
    if NEAREST in present:
        origin = np.where(nearest, own, origin)
        kind = np.where(nearest & (axes != innermost), NEAREST_SUM, kind)
    is_last = (axes == last[:, None]).astype(np.int64)
    numbers = (origin, scale, stretch, count, kind, base, is_last)
    columns = zip(*(n.T for n in numbers), cells(*numbers).swapaxes(0, 1), strict=True)
    taps = [Taps(*c) for c in columns]
    if elements is None:
        return Plan(taps, None)
    single = None  # nearest pixels are taken one by one
    if NEAREST in present:
        single = np.take_along_axis(nearest, last[:, None], 1)[:, 0]
    return Plan(taps, _even_range(f, taps[innermost], innermost, single, elements, lanes))


def _spread(
    kind: Array, present: set[int], size: Array, n_out: Array, antialias: bool
) -> tuple[Array, Array, Array]:
    """(table entries per pixel, radius, taps), step by step as upstream, so that the bits agree."""
    radius: Array = BASE_RADIUS[kind]
    if antialias:
        radius = np.maximum(radius, np.minimum(radius * size / n_out, MAX_RADIUS))
    width = np.float32(2) * radius
    if GAUSSIAN in present:
        sigma = ((radius * _HALF).astype(np.float64) / np.sqrt(2)).astype(np.float32)
        width = np.where(kind == GAUSSIAN, np.float32(4 * np.sqrt(2)) * sigma, width)
    last = TABLE_STEPS[kind]
    stretch = last / width
    by = np.where(kind == NEAREST, np.float32(1), stretch) if NEAREST in present else stretch
    radius = last * _HALF / by
    return stretch, radius, np.maximum(np.ceil(np.float32(2) * radius), 1).astype(np.int64)


# Relative costs by which upstream chooses the order of the passes (1500 observed choices agree).
_INNER_TAP, _STORE = 1.4, 3.0


def _order(needed: Array, out: Array, count: Array, innermost: int) -> tuple[Array, Array]:
    """The axes that upstream interpolates first and last: the cheapest order, by the numbers of
    pixels that it reads and writes and their taps."""
    axes = out.shape[1]
    if axes == 2:
        return _order_of_two(needed, out, count, innermost)
    inputs, outputs = list(needed.astype(np.float64).T), list(out.astype(np.float64).T)
    costs = [(_INNER_TAP if a == innermost else 1.0) * count[:, a] + _STORE for a in range(axes)]
    orders = list(permutations(range(axes)))[::-1]  # of equal ones, upstream takes the first here
    totals = []
    for order in orders:
        shape = list(inputs)
        total: Array | float = 0.0
        for axis in order:
            shape[axis] = outputs[axis]
            total = total + reduce(mul, shape) * costs[axis]
        totals.append(total)
    best = np.array(orders)[np.array(totals).argmin(axis=0)]
    return best[:, 0], best[:, -1]


def _order_of_two(needed: Array, out: Array, count: Array, innermost: int) -> tuple[Array, Array]:
    """The same for images: fewer steps, the same sums."""
    costs = count * _TAP_COSTS[innermost] + _STORE
    one = needed[:, ::-1] * out * costs  # by axis: what it costs to begin with it
    both = out[:, :1] * out[:, 1:] * costs
    total = one + both[:, ::-1]
    last = np.where(total[:, 1] <= total[:, 0], 0, 1)  # of equal ones, upstream begins with x
    return 1 - last, last


_TAP_COSTS = np.array([[_INNER_TAP, 1.0], [1.0, _INNER_TAP]])  # by the innermost axis


# -- halves --------------------------------------------------------------------------------------


def _even_range(
    f: Frame, taps: Taps, innermost: int, single: Array | None, inner: Array, lanes: int
) -> tuple[Array, Array]:
    """Which elements of a row upstream rounds in blocks of `lanes`: [samples] each, from and to.

    Exact halves become even there, elsewhere they go away from zero. A row has `inner` elements per
    position along the innermost axis, of the taps `taps`. If that one comes last, blocks of pixels
    are taken of those that do not touch a border, else blocks of elements of the whole row.
    """
    n_in, n_out = f.extents[:, innermost], f.out[:, innermost]
    low, high = np.zeros_like(n_out), n_out * inner // lanes * lanes
    horizontal = taps.last != 0
    if horizontal.any():
        borders = np.array([-taps.base, n_in - taps.base - taps.count + 1])
        ends = _first_outputs(taps, n_out, borders)
        start, stop = np.where(taps.scale < 0, ends[::-1], ends)
        whole = np.maximum(stop - start, 0) // lanes * lanes
        low = start * inner * horizontal
        high = np.where(horizontal, low + whole * inner, high)
    if single is not None:
        low, high = np.where(single, 0, low), np.where(single, 0, high)
    return low, high


def _first_outputs(taps: Taps, n_out: Array, tap: Array) -> Array:
    """The first outputs whose first tap is at or beyond `tap` (for negative scales: before it)."""
    rising = taps.scale >= 0
    steps = np.where(taps.scale == 0, np.inf, taps.scale)  # then all are in the same place
    guess = np.minimum(np.maximum((tap - 1 - taps.origin) / steps, -2), n_out + 2)
    # rounding may move it by one
    i = guess.astype(np.int64) + np.array([2, 1, 0, -1])[:, None, None]
    i = np.minimum(np.maximum(i, 0), n_out)
    beyond = np.ceil(i.astype(np.float32) * taps.scale + taps.origin) >= tap
    return np.where((beyond == rising) & (i < n_out), i, n_out).min(axis=0)
