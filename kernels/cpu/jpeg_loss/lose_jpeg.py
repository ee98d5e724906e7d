"""RGB pixels → what JPEG with halved chroma leaves of them, a row of macroblocks at a time.

Planes of two rows of macroblocks are kept, because the chroma of a pixel depends on the samples
above and below. Only imported to compile something.
"""

from __future__ import annotations

import numpy as np

from ..annotations.inner import inner
from ..native import primitives as prims
from . import job_slots as at
from .colour_rows import halve_rows, to_pixels, to_planes, weigh_rows
from .cosine_transform import quantise_blocks

_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_get_u8, _put_u8 = prims.get_u8, prims.put_u8  # type: ignore[attr-defined]
_get_i16, _put_i16 = prims.get_i16, prims.put_i16  # type: ignore[attr-defined]

_SOURCE, _TARGET, _HEIGHT, _WIDTH = at.SOURCE, at.TARGET, at.HEIGHT, at.WIDTH
_TABLES, _SCRATCH, _ROW_SIZE = at.TABLES, at.SCRATCH, at.ROW_SIZE
_GROUP, _SLACK = at.GROUP, at.SLACK
_LUMA, _CHROMA = at.LUMA_ROWS, at.CHROMA_ROWS
_SPARE = at.SPARE
_TABLES_BYTES = 2 * at.TABLES_SIZE


def lose_jpeg(job, begin, end):  # type: ignore[no-untyped-def]
    """Work off rows `begin` … of a table (job_slots.py)."""
    for s in range(begin, end):
        row = job + 8 * _ROW_SIZE * s
        height, width = _get_i64(row, _HEIGHT), _get_i64(row, _WIDTH)
        source, target = _get_i64(row, _SOURCE), _get_i64(row, _TARGET)
        tables, scratch = _get_i64(row, _TABLES), _get_i64(row, _SCRATCH)
        chroma = (width + 15) // 16 * 8
        stride = (2 * chroma + _GROUP - 1) // _GROUP * _GROUP
        for top in range(0, height, 16):
            count = min(16, height - top)
            _fill_planes(source + top * width * 3, width, count, scratch, stride, chroma, top)
            _quantise_rows(scratch, stride, chroma, count, tables, top)
            first = max(top - 1, 0)  # the last row above had to wait for the chroma below
            last = height if top + 16 >= height else top + 15
            for y in range(first, last):
                _write_row(scratch, stride, chroma, y, height, width, target + y * width * 3)


@inner
def _luma_row(scratch, stride, y):  # type: ignore[no-untyped-def]
    return scratch + y % _LUMA * stride


@inner
def _chroma_row(scratch, stride, y):  # type: ignore[no-untyped-def]
    return scratch + (_LUMA + y % _CHROMA) * stride


@inner
def _rest(scratch, stride):  # type: ignore[no-untyped-def]
    return scratch + (_LUMA + _CHROMA) * stride


@inner
def _spare(scratch, stride):  # type: ignore[no-untyped-def]
    return _rest(scratch, stride) + 4 * (stride + _SLACK)


@inner
def _fill_planes(source, width, count, scratch, stride, chroma, top):  # type: ignore[no-untyped-def]
    """Convert a row of macroblocks, of which `count` rows of pixels exist; the last one repeats."""
    full = _rest(scratch, stride)
    step = stride + _SLACK
    for y in range(0, count, 2):
        for k in range(2):
            pixels = source + min(y + k, count - 1) * width * 3
            luma = _luma_row(scratch, stride, top + y + k)
            own = full + 2 * k * step
            _convert_row(pixels, width, luma, own, own + step, full + 4 * step)
        halved = _chroma_row(scratch, stride, (top + y) // 2)
        for part in range(2):  # blue, then red, which overwrites what is too much of blue
            for x in range(0, chroma, 16):
                own = full + part * step + 2 * x
                halve_rows(own, own + 2 * step, halved + part * chroma + x)
    done = (count + 1) // 2
    for y in range(2 * done, 16):
        _copy(
            _luma_row(scratch, stride, top + 2 * done - 1),
            _luma_row(scratch, stride, top + y),
            stride,
        )
    last = _chroma_row(scratch, stride, top // 2 + done - 1)
    for y in range(done, 8):
        _copy(last, _chroma_row(scratch, stride, top // 2 + y), stride)


@inner
def _convert_row(pixels, width, luma, blue, red, spare):  # type: ignore[no-untyped-def]
    # Each intrinsic is called at one place only: every call compiles it again.
    for x in range(0, width, 16):
        own = pixels + 3 * x
        if x + 16 > width:  # the last pixel repeats
            for k in range(48):
                column = min(x + k // 3, width - 1)
                _put_u8(spare, k, _get_u8(pixels, 3 * column + k % 3))
            own = spare
        to_planes(own, luma + x, blue + x, red + x)


@inner
def _copy(source, target, nbytes):  # type: ignore[no-untyped-def]
    for k in range(nbytes // 8):
        _put_i64(target, k, _get_i64(source, k))


@inner
def _quantise_rows(scratch, stride, chroma, count, tables, top):  # type: ignore[no-untyped-def]
    work = _spare(scratch, stride) + _SPARE + 2 * (stride + 2 * _SLACK)
    for part in range(3):  # the upper half of luma, the lower half, both chromas
        plane, own = _luma_row(scratch, stride, top + 8 * part), tables
        if part == 1 and count <= 8:
            continue
        if part == 2:
            plane, own = _chroma_row(scratch, stride, top // 2), tables + _TABLES_BYTES
        for x in range(0, stride, _GROUP):
            quantise_blocks(plane + x, stride, own, work)


@inner
def _write_row(scratch, stride, chroma, y, height, width, target):  # type: ignore[no-untyped-def]
    """Convert a row of pixels back."""
    row = y // 2
    beyond = min(max(row + (1 if y % 2 else -1), 0), (height + 1) // 2 - 1)
    near, far = _chroma_row(scratch, stride, row), _chroma_row(scratch, stride, beyond)
    spare = _spare(scratch, stride)
    blue = spare + _SPARE
    red = blue + 2 * (chroma + _SLACK)
    luma = _luma_row(scratch, stride, y)
    n = (width + 1) // 2
    step = 32
    if n <= 2:  # libjpeg does not interpolate so few columns
        step = 2
    else:
        _weigh(near, far, n, blue)
        _weigh(near + chroma, far + chroma, n, red)
    for x in range(0, width, step):
        count = min(step, width - x)
        place = x
        if step == 2:
            place = 0
            _repeat(near + x // 2, blue)
            _repeat(near + chroma + x // 2, red)
        to = target + 3 * x if count == 32 else spare
        to_pixels(luma + x, blue + place, red + place, to)
        if count < 32:
            for k in range(3 * count):
                _put_u8(target, 3 * x + k, _get_u8(spare, k))


@inner
def _weigh(near, far, n, to):  # type: ignore[no-untyped-def]
    """Sums of two rows; the first and the last one repeat."""
    for x in range(0, n, 16):
        weigh_rows(near + x, far + x, to + 2 * x)
    _put_i16(to, -1, _get_i16(to, 0))
    _put_i16(to, n, _get_i16(to, n - 1))


@inner
def _repeat(sample, to):  # type: ignore[no-untyped-def]
    """Sums from which one sample results."""
    for k in range(-1, 2):
        _put_i16(to, k, np.int16(4 * _get_u8(sample, 0)))
