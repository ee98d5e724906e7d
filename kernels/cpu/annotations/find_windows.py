"""Random windows that keep boxes, and the boxes inside of them. Only imported to compile.

All boxes have three dimensions here; those of an image extend from 0 to 1 along z, and so does
every window. A sample's boxes are first copied to `corners`, six float32 numbers each: three lows,
three highs.
"""

from __future__ import annotations

import numpy as np

from ..native import primitives as prims
from . import window_slots as at
from .inner import inner
from .random_words import random_words, unit_of, word_below

_f32, _f64 = np.float32, np.float64
_get_i64, _put_i64, _get_f64 = prims.get_i64, prims.put_i64, prims.get_f64  # type: ignore[attr-defined]
_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_get_u8, _put_u8, _put_i32 = prims.get_u8, prims.put_u8, prims.put_i32  # type: ignore[attr-defined]
_CHOICES = 1 << 31  # counters of the draws that choose a threshold; attempts use those below
_ORDERS = 6  # of three axes
_CLOSE = 1e-6  # how far a ratio may lie beside a range, relatively, by rounding


def find_windows(job, begin, end):  # type: ignore[no-untyped-def]
    """Find a window for every sample from `begin` to `end`, and write its boxes and labels."""
    for s in range(begin, end):
        row = _get_i64(job, at.ROWS) + 8 * at.ROW_SIZE * s
        if _copy_corners(job, row):
            _find_window(job, row, s)
        else:
            _put_i64(row, at.OUTCOME, at.OUTSIDE)


@inner
def _corners(job, row):  # type: ignore[no-untyped-def]
    """The address of a sample's boxes, six float32 numbers each."""
    return _get_i64(job, at.CORNERS) + 24 * _get_i64(row, at.FIRST)


@inner
def _copy_corners(job, row):  # type: ignore[no-untyped-def]
    """Copy the boxes as corners; False if one of them leaves the image."""
    dims, has_sizes = _get_i64(job, at.DIMS), _get_i64(job, at.HAS_SIZES) != 0
    boxes, corners = _get_i64(row, at.BOXES), _corners(job, row)
    for k in range(_get_i64(row, at.COUNT)):
        for d in range(3):
            low, high = _f32(0), _f32(1)
            if d < dims:
                low = _get_f32(boxes, 2 * dims * k + _get_i64(job, at.COLUMNS + d))
                high = _get_f32(boxes, 2 * dims * k + _get_i64(job, at.COLUMNS + 3 + d))
                if has_sizes:
                    high = low + high
            is_inside = low >= _f32(0) and low <= _f32(1) and high >= _f32(0) and high <= _f32(1)
            if not is_inside:
                _put_i64(row, at.KEPT, k)
                return False
            _put_f32(corners, 6 * k + d, low)
            _put_f32(corners, 6 * k + 3 + d, high)
    return True


@inner
def _find_window(job, row, sample):  # type: ignore[no-untyped-def]
    """Try windows until one is good enough; otherwise take the best one."""
    options, attempts = _get_i64(job, at.OPTIONS), _get_i64(job, at.ATTEMPTS)
    numbers, count = _get_i64(job, at.NUMBERS), _get_i64(row, at.COUNT)
    best, tried, round_, hard = -1.0, 0, 0, np.int64(0)
    best_x, best_y, best_z = _f32(0), _f32(0), _f32(0)
    best_w, best_h, best_d = _f32(1), _f32(1), _f32(1)
    outcome, is_whole = at.NOTHING, False
    is_left, left = False, np.uint64(0)  # NOTE [words of refused windows]
    words = _drawn(job, _CHOICES, sample)  # of the choices of four rounds
    while tried < _get_i64(job, at.TOTAL_ATTEMPTS) and outcome != at.FOUND:
        if round_ % 4 == 0 and round_ > 0:
            words = _drawn(job, _CHOICES + round_ // 4, sample)
        word = left if is_left else words[round_ % 4]
        choice, round_ = word_below(word, options), round_ + 1
        is_left = False
        if choice >= _get_i64(job, at.THRESHOLDS):
            best_x, best_y, best_z = _f32(0), _f32(0), _f32(0)
            best_w, best_h, best_d = _f32(1), _f32(1), _f32(1)
            outcome, is_whole = at.FOUND, True
            break
        threshold = _get_f64(numbers, at.FIRST_THRESHOLD + choice)
        for k in range(tried, tried + attempts):
            is_shaped, left, x, y, z, w, h, d = _window(job, row, k, sample, is_left, left)
            is_left = not is_shaped
            if is_left:
                continue
            value, hard = _measure(job, row, threshold, best, hard, x, y, z, w, h, d)
            is_good = value >= threshold
            if is_good or value > best:
                best, outcome = value, at.BEST
                best_x, best_y, best_z, best_w, best_h, best_d = x, y, z, w, h, d
            if is_good:
                # A window without boxes ends the round, too, and is kept until there is another.
                if count == 0 or _prune(job, row, False, x, y, z, w, h, d) > 0:
                    outcome = at.FOUND
                break
        tried += attempts
    _write_window(job, row, sample, best_x, best_y, best_z, best_w, best_h, best_d)
    kept = count
    if is_whole or outcome == at.NOTHING:
        for k in range(count):
            _write_box(job, row, k, k, best_x, best_y, best_z, best_w, best_h, best_d)
    else:
        kept = _prune(job, row, True, best_x, best_y, best_z, best_w, best_h, best_d)
    _put_i64(row, at.KEPT, kept)
    _put_i64(row, at.OUTCOME, outcome)


@inner
def _drawn(job, element, sample):  # type: ignore[no-untyped-def]
    return random_words(
        element, sample, _get_i64(job, at.KEY + 2), _get_i64(job, at.KEY + 3),
        _get_i64(job, at.KEY), _get_i64(job, at.KEY + 1),
    )  # fmt: skip


@inner
def _window(job, row, attempt, sample, is_left, left):  # type: ignore[no-untyped-def]
    """Whether the shape drawn is allowed; a word; start and shape of a random window, relative.

    NOTE [words of refused windows] Upstream looks at one word to order the axes, and does not take
    it: the next number that it needs comes from the same word. That is the start along x or, if the
    shape is not allowed, the next choice of a threshold or the extent along x of the next window.
    """
    one = _drawn(job, 2 * attempt, sample)
    dims = _get_i64(job, at.DIMS)
    if _get_i64(job, at.IS_FIXED) != 0:
        x, w = _placed(row, 0, one[0])
        y, h = _placed(row, 1, one[1])
        z, d = _f32(0), _f32(1)
        if dims == 3:
            z, d = _placed(row, 2, one[2])
        return True, one[3], x, y, z, w, h, d
    numbers = _get_i64(job, at.NUMBERS)
    low, high = _get_f64(numbers, at.SCALES), _get_f64(numbers, at.SCALES + 1)
    spread = high - low
    # Ratios are those of pixels, if the image's shape is known.
    width, height, depth = _extent(row, 0), _extent(row, 1), _extent(row, 2)
    a = (low + spread * unit_of(left if is_left else one[0])) * width
    b = (low + spread * unit_of(one[1])) * height
    c = (low + spread * unit_of(one[2])) * depth
    order = word_below(one[3], _ORDERS)
    is_allowed, a, b, c = _with_ratios(numbers, dims, order, a, b, c)
    w, h, d = _f32(a / width), _f32(b / height), _f32(c / depth)
    if dims == 2:
        d = _f32(1)
    x, y, z = _f32(0), _f32(0), _f32(0)
    is_allowed = is_allowed and w > _f32(0) and h > _f32(0) and d > _f32(0)
    if is_allowed:
        word, last = one[2], one[2]  # images draw no depth
        if dims == 3:
            word, last = _drawn(job, 2 * attempt + 1, sample)[:2]
        x, y, z = _start(one[3], w), _start(word, h), _start(last, d)
    return is_allowed, one[3], x, y, z, w, h, d


@inner
def _extent(row, axis):  # type: ignore[no-untyped-def]
    return _f64(_get_i64(row, at.INPUT_SHAPE + axis))


@inner
def _placed(row, axis, word):  # type: ignore[no-untyped-def]
    """Relative start and extent of a window whose extent is given in pixels."""
    extent, size = _get_i64(row, at.INPUT_SHAPE + axis), _get_i64(row, at.CROP_SHAPE + axis)
    room = extent - size
    first = word_below(word, abs(room) + 1) + min(room, 0)
    return _f32(_f64(first) / _f64(extent)), _f32(_f64(size) / _f64(extent))


@inner
def _start(word, extent):  # type: ignore[no-untyped-def]
    """The start of a window of this relative extent; one inside the image stays there."""
    room = 1.0 - _f64(extent)
    start = _f32(unit_of(word) * room)
    if room >= 0.0 and _f64(start) > room:  # by rounding to float32
        start = max(start - _f32(2.0**-24), _f32(0))
    return start


@inner
def _with_ratios(numbers, dims, order, a, b, c):  # type: ignore[no-untyped-def]
    """Whether the ratios of three extents lie in their ranges, and the extents.

    A ratio whose range is a single number is not left to chance. The axes are visited in a random
    order, each takes its extent from one before it, and then all are scaled so that the largest
    extent is as large as before.
    """
    is_3d = dims == 3
    if _is_exact(numbers, dims, 0, 1) or _is_exact(numbers, dims, 0, 2) or (
        _is_exact(numbers, dims, 1, 2)
    ):  # fmt: skip
        before = max(max(a, b), c) if is_3d else max(a, b)
        first, second, third = _shuffled(order)
        e, f, g = _of(first, a, b, c), _of(second, a, b, c), _of(third, a, b, c)
        if _is_exact(numbers, dims, first, second):
            f = _derived(numbers, first, second, e)
        if _is_exact(numbers, dims, first, third):
            g = _derived(numbers, first, third, e)
        elif _is_exact(numbers, dims, second, third):
            g = _derived(numbers, second, third, f)
        largest = max(max(e, f), g) if is_3d else max(e if first < 2 else f, g if third < 2 else f)
        grown = before / largest
        a = grown * (e if first == 0 else f if second == 0 else g)
        b = grown * (e if first == 1 else f if second == 1 else g)
        c = grown * (e if first == 2 else f if second == 2 else g)
    is_allowed = _is_between(numbers, 0, a, b)
    if is_3d:
        is_allowed = is_allowed and _is_between(numbers, 1, a, c) and _is_between(numbers, 2, b, c)
    return is_allowed, a, b, c


@inner
def _shuffled(order):  # type: ignore[no-untyped-def]
    """The axes in one of their orders, numbered as upstream's shuffle by swaps numbers them."""
    first, second = (0, 1) if order >= 3 else (1, 0)
    if order % 3 == 0:
        return 2, second, first
    if order % 3 == 1:
        return first, 2, second
    return first, second, 2


@inner
def _of(axis, a, b, c):  # type: ignore[no-untyped-def]
    return a if axis == 0 else b if axis == 1 else c


@inner
def _is_exact(numbers, dims, one, other):  # type: ignore[no-untyped-def]
    """Whether the range of the ratio of two axes is a single number."""
    pair = at.RATIOS + 2 * (one + other - 1)
    exists = one < dims and other < dims
    return exists and _get_f64(numbers, pair) == _get_f64(numbers, pair + 1)


@inner
def _derived(numbers, one, other, extent):  # type: ignore[no-untyped-def]
    """The extent of the axis `other`, from the extent of `one` and the ratio of both."""
    ratio = _get_f64(numbers, at.RATIOS + 2 * (one + other - 1))
    return extent / ratio if one < other else extent * ratio


@inner
def _is_between(numbers, pair, a, b):  # type: ignore[no-untyped-def]
    low, high = _get_f64(numbers, at.RATIOS + 2 * pair), _get_f64(numbers, at.RATIOS + 2 * pair + 1)
    return a >= low * (1 - _CLOSE) * b and a <= high * (1 + _CLOSE) * b


@inner
def _common(corners, k, x, y, z, w, h, d):  # type: ignore[no-untyped-def]
    """The volume that box k and a window share."""
    volume = _f32(1)
    for axis in range(3):
        start, extent = _of(axis, x, y, z), _of(axis, w, h, d)
        low = max(_get_f32(corners, 6 * k + axis), start)
        high = min(_get_f32(corners, 6 * k + 3 + axis), start + extent)
        volume *= max(high - low, _f32(0))
    return volume


@inner
def _volume(corners, k):  # type: ignore[no-untyped-def]
    volume = _f32(1)
    for axis in range(3):
        volume *= _get_f32(corners, 6 * k + 3 + axis) - _get_f32(corners, 6 * k + axis)
    return volume


@inner
def _measure(job, row, threshold, best, first, x, y, z, w, h, d):  # type: ignore[no-untyped-def]
    """How well a window fits the boxes: the least or largest IoU, or share of a box.

    Stops early if the window is neither good enough nor better than the best one so far, and tells
    which box stopped it: that box will most likely stop the next window, so it comes first then.
    """
    corners, count = _corners(job, row), _get_i64(row, at.COUNT)
    is_overlap, needs_all = _get_i64(job, at.IS_OVERLAP) != 0, _get_i64(job, at.NEEDS_ALL) != 0
    window = (x + w - x) * (y + h - y) * (z + d - z)
    value = _f32(1) if needs_all else _f32(0)
    k = first
    for _ in range(count):
        common, own = _common(corners, k, x, y, z, w, h, d), _volume(corners, k)
        whole = own if is_overlap else own + window - common
        share = common / whole if whole > _f32(0) else _f32(0)
        if needs_all:
            value = min(value, share)
            if value < threshold and value <= max(best, 0.0):
                return value, k
        else:
            value = max(value, share)
        k = k + 1 if k + 1 < count else np.int64(0)
    return value, first


@inner
def _prune(job, row, writes, x, y, z, w, h, d):  # type: ignore[no-untyped-def]
    """The number of boxes that a window keeps; if `writes`, these are also written."""
    corners, kept = _corners(job, row), 0
    least = _get_f64(_get_i64(job, at.NUMBERS), at.PRUNE_AREA)
    by_area = _get_i64(job, at.PRUNES_BY_AREA) != 0
    for k in range(_get_i64(row, at.COUNT)):
        if by_area:
            common = _common(corners, k, x, y, z, w, h, d)
            is_kept = common > 0.0 and common >= least * _volume(corners, k)
        else:
            is_kept = True
            for axis in range(3):
                low, high = _get_f32(corners, 6 * k + axis), _get_f32(corners, 6 * k + 3 + axis)
                centre, start = _f32(0.5) * (low + high), _of(axis, x, y, z)
                is_kept = is_kept and centre >= start and centre < start + _of(axis, w, h, d)
        if is_kept:
            if writes:
                _write_box(job, row, kept, k, x, y, z, w, h, d)
            kept += 1
    return kept


@inner
def _write_box(job, row, to, k, x, y, z, w, h, d):  # type: ignore[no-untyped-def]
    """Write box k, relative to the window and clipped to it, with its label and index."""
    dims, corners = _get_i64(job, at.DIMS), _corners(job, row)
    to += _get_i64(row, at.FIRST)
    boxes = _get_i64(job, at.OUT_BOXES)
    for axis in range(dims):
        start, extent = _of(axis, x, y, z), _of(axis, w, h, d)
        low = (_get_f32(corners, 6 * k + axis) - start) / extent
        high = (_get_f32(corners, 6 * k + 3 + axis) - start) / extent
        low, high = min(max(low, _f32(0)), _f32(1)), min(max(high, _f32(0)), _f32(1))
        _put_f32(boxes, 2 * dims * to + _get_i64(job, at.COLUMNS + axis), low)
        if _get_i64(job, at.HAS_SIZES) != 0:
            high = high - low
        _put_f32(boxes, 2 * dims * to + _get_i64(job, at.COLUMNS + 3 + axis), high)
    _put_i32(_get_i64(job, at.OUT_INDICES), to, np.int32(k))
    size = _get_i64(job, at.LABEL_BYTES)
    labels, given = _get_i64(job, at.OUT_LABELS) + size * to, _get_i64(row, at.LABELS) + size * k
    for n in range(size):
        _put_u8(labels, n, _get_u8(given, n))


@inner
def _write_window(job, row, sample, x, y, z, w, h, d):  # type: ignore[no-untyped-def]
    """Write start and shape, relative, or in pixels if the shape is given in pixels."""
    dims = _get_i64(job, at.DIMS)
    is_fixed = _get_i64(job, at.IS_FIXED) != 0
    for axis in range(dims):
        start, extent = _of(axis, x, y, z), _of(axis, w, h, d)
        if is_fixed:
            pixels = _extent(row, axis)
            start = _f32(np.rint(_f64(start) * pixels))
            extent = _f32(_get_i64(row, at.CROP_SHAPE + axis))
        _put_f32(_get_i64(job, at.OUT_START), dims * sample + axis, start)
        _put_f32(_get_i64(job, at.OUT_SHAPE), dims * sample + axis, extent)
