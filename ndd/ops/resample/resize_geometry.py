"""Turns arguments of the resize ops into numbers per sample and axis: extents, regions, taps.

All functions work on arrays [samples, axes] of numbers; none of them reads pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce, wraps
from itertools import permutations
from operator import mul
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from ...fusion.graph.shapes import Array
from ...kernels.common.memo import memoized
from ...kernels.ir.dtypes import DALIInterpType
from ...kernels.ir.taps import (
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
# Larger extents are mistakes; up to this, positions and their sums fit 32-bit integers.
MAX_EXTENT = 2**30
# A thinner region of interest is widened by this much about its middle, as upstream does.
MIN_REGION = np.float32(1e-3)

# Upstream's minimum of an extent before rounding, and its maximum radius of a filter.
MIN_SIZE = np.float32(0.1)
MAX_RADIUS = np.float32(4096)

_KINDS = np.array([NEAREST, TRIANGULAR, CUBIC, LANCZOS3, TRIANGULAR, GAUSSIAN])  # by InterpType
_LINEAR = (np.array([TRIANGULAR]), np.array([TRIANGULAR]))
TABLE_STEPS = np.array([0, 2, 64, 128, 192], np.float32)  # by kind
_HALF = np.float32(0.5)


# -- cached results ------------------------------------------------------------------------------

_F = TypeVar("_F", bound=Callable[..., Any])


class _Content:
    """Cache key of arguments; two are equal if they hold the same numbers."""

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
    """Cache the last results of a pure function of numbers; nobody may write to these results.

    Most batches repeat earlier sizes, and a hit takes a tenth of the time (64 images of different
    sizes: 180 → 20 µs).
    """
    found = memoized(64)(wraps(function)(lambda content: function(*content.args)))
    # Batches of a few samples are those of servers, which get pictures of all sizes. 1024 of them
    # take 2 MB.
    small = memoized(1024)(_of_small_batches(function))

    def of(*args: Any) -> Any:
        first = args[0][0] if isinstance(args[0], tuple) else args[0]
        return (small if len(first) <= SMALL_BATCH else found)(_Content(args))

    return cast(_F, wraps(function)(of))


SMALL_BATCH = 8


def _of_small_batches(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_small_batch(content: _Content) -> Any:
        return function(*content.args)

    of_small_batch.__qualname__ = f"{function.__qualname__}_of_small_batch"
    return of_small_batch


# -- frames --------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """Which part of the input becomes which extents; `lo` > `hi` mirrors the result."""

    extents: Array  # int64, of the input
    out: Array  # int64, of the result
    lo: Array  # float32, start of the region of interest in pixels of the input
    hi: Array  # float32, its end


@_kept
def frame(
    extents: Array, sizes: Array, mode: str = "default", max_size: Sequence[float] | None = None,
    lo: Array | None = None, hi: Array | None = None, relative: bool = False,
    subpixel: bool = True, rounding: str = "round", alignment: Array | float = 0.5,
    scales: Array | None = None,
) -> Frame:  # fmt: skip
    """Extents and regions for the requested `sizes` or `scales`; 0 leaves an extent free."""
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
        # a reversed region does not mirror along a free axis, as upstream
        proportional = mode in ("default", "stretch")
        free = (sizes == 0) & (proportional | ~(sizes != 0).any(1, keepdims=True))
        low, high = _swapped(low, high, (sizes < 0) | (free & (low > high)))
    if subpixel and not (lo is None and (out == real).all()):  # otherwise a no-op
        low, high = _adjusted(low, high, real, out, alignment)
    return Frame(extents, out, low.astype(np.float32), high.astype(np.float32))


def check_finite(name: str, values: Array) -> Array:
    """Reject numbers that cannot be an extent or a position."""
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
    """(start, end, extents) of the region of interest in pixels, as float32."""
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
    far_away = (region == 0) & (extents > 0)  # float32 cannot resolve thin regions there
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
    """Unsigned extents before rounding; in float32, whose rounding decides some halves."""
    given = (sizes != 0) & (region > 0)  # an empty region has no proportions
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
        # the size or limit that determines the scale is met exactly
        real = np.where(given & (scale == common), np.abs(sizes), real)
        return np.where(some & (most == common), limits, real)


def _sizes_given(sizes: Array, region: Array, mode: str) -> Array:
    """Like `_real_sizes`, if no extent is free or limited."""
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
    """Stretch the region by as much as rounding changed the size, so that the scale stays true."""
    stretch = out / real.astype(np.float64)
    low, high = low.astype(np.float64), high.astype(np.float64)
    anchor = low + (high - low) * alignment
    return anchor + (low - anchor) * stretch, anchor + (high - anchor) * stretch


# -- windows of the result -----------------------------------------------------------------------


def windowed(f: Frame, start: Array, size: Array, mirror: Array | None = None) -> Frame:
    """The frame of a part of the result: outputs [start, start + size), mirrored on request."""
    # Upstream subtracts in float32 and computes the rest in float64.
    step = (f.hi - f.lo).astype(np.float64) / np.maximum(f.out, 1)
    lo, hi = f.lo + start * step, f.lo + (start + size) * step
    if mirror is not None:
        lo, hi = _swapped(lo, hi, mirror)
    return Frame(f.extents, size, lo.astype(np.float32), hi.astype(np.float32))


# -- filters -------------------------------------------------------------------------------------


def filters(
    interp: Array | None, smaller: Array | None, larger: Array | None
) -> tuple[Array, Array]:
    """Filter kinds for shrinking and for growing axes, [samples or 1], from three arguments."""
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


class ResizePlan(NamedTuple):
    """How a frame is interpolated."""

    taps: list[Taps]  # of each axis
    even: Even | None


@_kept
def plan_taps(
    f: Frame, kinds: tuple[Array, Array], antialias: bool, innermost: int,
    elements: Array | None = None, lanes: int = 0,
) -> ResizePlan:  # fmt: skip
    """Taps along each axis; `innermost` is the axis that upstream treats as x.

    For rounded results, there are `elements` per position along that axis, and upstream rounds
    `lanes` elements at once.
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
    turn = _turns(needed, f.out, count, innermost)
    # Upstream stores only the pixels that passes after the first need, and counts positions from
    # there; it takes nearest pixels in a single pass over the pixels it needs.
    axes = np.arange(f.out.shape[1])
    later = turn > 0
    if NEAREST in present:
        later |= nearest.all(axis=1, keepdims=True)
    base = begin * later
    own = f.lo - base.astype(np.float32)
    origin = own + ((_HALF * scale - _HALF) - radius)
    if NEAREST in present:
        origin = np.where(nearest, own, origin)
        kind = np.where(nearest & (axes != innermost), NEAREST_SUM, kind)
    numbers = (origin, scale, stretch, count, kind, base, turn)
    columns = zip(*(n.T for n in numbers), cells(*numbers).swapaxes(0, 1), strict=True)
    taps = [Taps(*c) for c in columns]
    if elements is None:
        return ResizePlan(taps, None)
    single = None  # samples whose nearest pixels upstream takes one by one
    if NEAREST in present:
        single = (nearest & (turn == turn.shape[1] - 1)).any(axis=1)
    return ResizePlan(taps, _even_parts(f, taps, innermost, single, elements, lanes))


def _spread(
    kind: Array, present: set[int], size: Array, n_out: Array, antialias: bool
) -> tuple[Array, Array, Array]:
    """(table entries per pixel, radius, taps), computed as upstream does so that the bits agree."""
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


# Relative costs of a tap along x, y and z, and of a sum, by which upstream chooses the order of its
# passes (2400 observed choices agree). Rounding in float32 does the tie-breaking.
_TAP, _STORE = (1.4, 1.0, 1.2), np.float32(3)


def _turns(needed: Array, out: Array, count: Array, innermost: int) -> Array:
    """Upstream's order of interpolating the axes, [samples, axes]: the cheapest one, counting the
    pixels that it reads and writes and their taps."""
    axes = out.shape[1]
    if axes > 3:  # upstream resizes at most three axes
        return np.broadcast_to(np.arange(axes), out.shape)
    orders, turns = _orders(axes)
    taps, tap_costs = count.astype(np.float32), _tap_costs(axes, innermost)
    inputs, outputs = needed.astype(np.float64), out.astype(np.float64)
    costs: dict[tuple[int, ...], Array] = {}  # of all passes along these axes, in this order
    for order in orders:
        for k, axis in enumerate(order):
            if (way := order[: k + 1]) in costs:
                continue
            shape = [(outputs if a in way else inputs)[:, a] for a in range(axes)]
            sums = reduce(mul, shape).astype(np.float32)
            cost = sums * taps[:, axis] * tap_costs[axis] + _STORE * sums
            costs[way] = costs[way[:-1]] + cost if k else cost
    return turns[np.array([costs[order] for order in orders]).argmin(axis=0)]


@memoized(4)
def _orders(axes: int) -> tuple[list[tuple[int, ...]], Array]:
    """All orders of the axes, in upstream's tie-breaking order, and the turns of the axes."""
    orders = list(permutations(range(axes)))[::-1]
    return orders, np.argsort(orders, axis=1)


@memoized(16)
def _tap_costs(axes: int, innermost: int) -> Array:
    outer = (a for a in reversed(range(axes)) if a != innermost)
    names = {innermost: 0, **{a: k for k, a in enumerate(outer, 1)}}
    return np.array([_TAP[names[a]] for a in range(axes)], np.float32)


# -- halves --------------------------------------------------------------------------------------


class Even(NamedTuple):
    """Elements of a row that upstream rounds in blocks, [samples] each: exact halves become even
    there and round away from zero elsewhere."""

    stop: Array  # all elements before this one
    ranges: Array  # [samples, 4]: positions in two more ranges (start, end, start, end)
    rows: Array  # 0, or the positions in a row if all rows of a plane count as one row


def _even_parts(
    f: Frame, taps: list[Taps], innermost: int, single: Array | None, inner: Array, lanes: int
) -> Even:
    """Find the elements that upstream rounds in blocks; a row has `inner` elements per position.

    If upstream interpolates the innermost axis last, it rounds blocks of `lanes` pixels, separately
    for pixels that touch the left border, no border and the right border. Else it rounds blocks of
    elements of the whole row or, if it sums up planes last, of the whole plane.
    """
    x, axes = taps[innermost], f.out.shape[1]
    n_in, n_out = f.extents[:, innermost], f.out[:, innermost]
    rows = np.zeros_like(n_out)
    length = n_out * inner
    if axes == 3 and innermost == 2:
        rows = n_out * (taps[0].turn == 2)
        length = length * np.where(rows, f.out[:, 1], 1)
    stop, ranges = length // lanes * lanes, np.zeros((len(n_out), 4), np.int64)
    horizontal = x.turn == axes - 1
    if horizontal.any():
        borders = np.array([-x.base, n_in - x.base - x.count + 1])
        ends = _first_outputs(x, n_out, borders)
        left, right = np.where(x.scale < 0, ends[::-1], ends)
        right = np.maximum(left, right)
        stop = np.where(horizontal, left // lanes * lanes * inner, stop)
        found = [left, left + (right - left) // lanes * lanes,
                 right, right + (n_out - right) // lanes * lanes]  # fmt: skip
        ranges = np.where(horizontal[:, None], np.column_stack(found), 0)
    if single is not None:
        stop, ranges = np.where(single, 0, stop), np.where(single[:, None], 0, ranges)
    return Even(stop, ranges, rows)


def _first_outputs(taps: Taps, n_out: Array, tap: Array) -> Array:
    """The first outputs whose first tap is at or beyond `tap` (for negative scales: before it)."""
    rising = taps.scale >= 0
    steps = np.where(taps.scale == 0, np.inf, taps.scale)  # then all outputs share their taps
    guess = np.minimum(np.maximum((tap - 1 - taps.origin) / steps, -2), n_out + 2)
    # rounding may shift the guess by one
    i = guess.astype(np.int64) + np.array([2, 1, 0, -1])[:, None, None]
    i = np.minimum(np.maximum(i, 0), n_out)
    beyond = np.ceil(i.astype(np.float32) * taps.scale + taps.origin) >= tap
    return np.where((beyond == rising) & (i < n_out), i, n_out).min(axis=0)
