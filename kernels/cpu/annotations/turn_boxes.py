"""Boxes of rotated images, clipped to the canvas. Only imported to compile.

NOTE [ties of turned boxes] The box that encloses a turned box is wide if the box was, until the
angle exceeds 45°. There both its sides are equal but for rounding errors, and upstream lets these
decide. So everything is computed in float32, step by step in upstream's order: on 11 thousand boxes
turned by odd multiples of 45°, relative and in pixels, all decisions were the same.
"""

from __future__ import annotations

import numpy as np

from ..native import primitives as prims
from . import turn_slots as at
from .inner import inner

_f32 = np.float32
_HALF = _f32(0.5)
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]
_get_f32, _put_f32 = prims.get_f32, prims.put_f32  # type: ignore[attr-defined]
_get_u8, _put_u8 = prims.get_u8, prims.put_u8  # type: ignore[attr-defined]


def turn_boxes(job, begin, end):  # type: ignore[no-untyped-def]
    """Turn the boxes of every sample from `begin` to `end`, and write those that remain."""
    size = _get_i64(job, at.LABEL_BYTES)
    for s in range(begin, end):
        row = _get_i64(job, at.ROWS) + 8 * at.ROW_SIZE * s
        numbers = _get_i64(job, at.NUMBERS) + 4 * at.NUMBER_SIZE * s
        kept = 0
        for k in range(_get_i64(row, at.COUNT)):
            if _turn(job, row, numbers, k, kept):
                given = _get_i64(row, at.LABELS) + size * k
                for n in range(size):
                    _put_u8(_get_i64(row, at.OUT_LABELS), size * kept + n, _get_u8(given, n))
                kept += 1
        _put_i64(row, at.KEPT, kept)


@inner
def _turn(job, row, numbers, k, to):  # type: ignore[no-untyped-def]
    """Write box k as number `to`; False if it must not remain (then something else goes there)."""
    has_sizes, is_relative = _get_i64(job, at.HAS_SIZES) != 0, _get_i64(job, at.IS_RELATIVE) != 0
    boxes = _get_i64(row, at.BOXES)
    x, y = _get_f32(boxes, 4 * k), _get_f32(boxes, 4 * k + 1)
    u, v = _get_f32(boxes, 4 * k + 2), _get_f32(boxes, 4 * k + 3)
    if has_sizes:
        u, v = u + x, v + y
    image_w, image_h = _get_f32(numbers, at.IMAGE_W), _get_f32(numbers, at.IMAGE_H)
    canvas_w, canvas_h = _get_f32(numbers, at.CANVAS_W), _get_f32(numbers, at.CANVAS_H)
    width, height = u - x, v - y
    if is_relative:
        width, height = width * image_w, height * image_h
    x, u = _centred(x, image_w, is_relative), _centred(u, image_w, is_relative)
    y, v = _centred(y, image_h, is_relative), _centred(v, image_h, is_relative)
    left, top, right, bottom = _enclosing(numbers, x, y, u, v)
    if _get_i64(job, at.MODE) != at.EXPAND:
        # The sides before the rotation, swapped where it turns wide boxes into high ones.
        if (width >= height) != (right - left >= bottom - top):
            width, height = height, width
        if _get_i64(job, at.MODE) == at.HALFWAY:
            width = (width + (right - left)) * _HALF
            height = (height + (bottom - top)) * _HALF
        x, y = (left + right) * _HALF, (top + bottom) * _HALF
        left, right = x - width * _HALF, x + width * _HALF
        top, bottom = y - height * _HALF, y + height * _HALF
    area = (right - left) * (bottom - top)
    left, right = _clipped(left, canvas_w), _clipped(right, canvas_w)
    top, bottom = _clipped(top, canvas_h), _clipped(bottom, canvas_h)
    share = (right - left) * (bottom - top) / area  # nan, which is less than nothing: no area
    if is_relative:
        left, right, top, bottom = (
            left / canvas_w,
            right / canvas_w,
            top / canvas_h,
            bottom / canvas_h,
        )
    if has_sizes:
        right, bottom = right - left, bottom - top
    if not share >= _get_f32(numbers, at.LEAST):
        return False
    out = _get_i64(row, at.OUT_BOXES)
    _put_f32(out, 4 * to, left)
    _put_f32(out, 4 * to + 1, top)
    _put_f32(out, 4 * to + 2, right)
    _put_f32(out, 4 * to + 3, bottom)
    return True


@inner
def _centred(x, extent, is_relative):  # type: ignore[no-untyped-def]
    """A coordinate in pixels, seen from the middle of the image."""
    return (x - _HALF) * extent if is_relative else x - extent * _HALF


@inner
def _enclosing(numbers, x, y, u, v):  # type: ignore[no-untyped-def]
    """The box on the canvas that encloses a turned one, or nans."""
    sine, cosine = _get_f32(numbers, at.SINE), _get_f32(numbers, at.COSINE)
    right = _get_f32(numbers, at.CANVAS_W) * _HALF
    down = _get_f32(numbers, at.CANVAS_H) * _HALF
    a, b = x * cosine + y * sine + right, y * cosine - x * sine + down
    c, d = u * cosine + y * sine + right, y * cosine - u * sine + down
    e, f = x * cosine + v * sine + right, v * cosine - x * sine + down
    g, h = u * cosine + v * sine + right, v * cosine - u * sine + down
    return (
        _least(_least(a, c), _least(e, g)), _least(_least(b, d), _least(f, h)),
        _most(_most(a, c), _most(e, g)), _most(_most(b, d), _most(f, h)),
    )  # fmt: skip


@inner
def _least(a, b):  # type: ignore[no-untyped-def]
    return a if a < b or a != a else b


@inner
def _most(a, b):  # type: ignore[no-untyped-def]
    return a if a > b or a != a else b


@inner
def _clipped(x, limit):  # type: ignore[no-untyped-def]
    return min(max(x, _f32(0)), limit)
