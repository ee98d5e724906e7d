"""Filter taps of a separable interpolation: which neighbours it reads, and their weights.

Output `i` of a dimension lies at `s = f32(i) * scale + origin` of the input, counted from pixel
`base`; its taps are the `count` pixels from `base + ceil(s)` on. The weight of a tap is the filter
at its distance, interpolated between the entries of a table, and divided by the sum of all weights.
Taps beyond a border read the border pixel. The nearest pixel is `floor(s)` with
`s = (f32(i) + 0.5) * scale + origin` along the innermost axis; along other axes `s` is summed up
step by step (NEAREST_SUM), and its rounding error decides ties. Everything is computed in float32
as written here, so that weights and choices equal upstream's (tests/reference/resample.py).
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..common.memo import once

Array = np.ndarray[Any, Any]

NEAREST, TRIANGULAR, GAUSSIAN, CUBIC, LANCZOS3, NEAREST_SUM = range(6)
BASE_RADIUS = np.array([0.5, 1, 1, 2, 3, 0.5], np.float32)  # unstretched, by kind
KNOTS = 32  # table entries per pixel of the wider filters


# Columns of each dimension in a kernel's table, besides extents and positions; floats as bits.
CELLS = ("count", "nearest", "base", "table", "origin", "scale", "stretch", "turn")


class Taps(NamedTuple):
    """The taps of one dimension, per sample; see the module docstring."""

    origin: Array  # float32
    scale: Array  # float32
    stretch: Array  # float32: table entries per pixel
    count: Array  # type: ignore[assignment]  # int64; hides `tuple.count`
    kind: Array  # int64
    base: Array  # int64
    turn: Array  # int64: dimensions with smaller numbers are summed first
    cells: Array  # int64 [samples, len(CELLS)]: all of the above, as columns of a kernel's table


def _tables() -> tuple[Array, ...]:
    def knots(radius: int) -> Array:
        return np.arange(-radius * KNOTS, radius * KNOTS + 1) / KNOTS

    c = np.abs(knots(2))
    cubic = np.where(c < 1, 1.5 * c**3 - 2.5 * c**2 + 1, -0.5 * c**3 + 2.5 * c**2 - 4 * c + 2)
    wide = knots(3).astype(np.float32)
    return (
        np.ones(1), np.array([0.0, 1.0, 0.0]), np.exp(-4 * knots(1) ** 2), cubic,
        _sinc(wide) * _sinc(wide / np.float32(3)), np.ones(1),
    )  # fmt: skip


def _sinc(x: Array) -> Array:
    """sin(πx) / πx in float32, with the C library's sine so that the bits equal upstream's."""
    angle = (x.astype(np.float64) * np.pi).astype(np.float32)
    sine: Any = math.sin  # for systems without this C library; the last bit may differ
    with suppress(OSError):
        sine = ctypes.CDLL("libm.so.6").sinf
        sine.restype, sine.argtypes = ctypes.c_float, [ctypes.c_float]
    values = np.array([sine(a) for a in angle.tolist()], np.float32)
    return np.divide(values, angle, out=np.ones_like(angle), where=angle != 0)


def cells(origin: Array, scale: Array, stretch: Array, count: Array, kind: Array, base: Array,
          turn: Array) -> Array:  # fmt: skip
    """The columns CELLS of these numbers; a filter's table is a byte offset from the first one."""
    result = np.empty((*count.shape, len(CELLS)), np.int64)
    result[..., 0], result[..., 2], result[..., 7] = count, base, turn
    result[..., 1] = _NEAREST[kind]
    result[..., 3] = 4 * filter_tables()[1][kind]
    for k, floats in enumerate((origin, scale, stretch), 4):
        result[..., k] = floats.view(np.int32)
    return result


_NEAREST = np.array([1, 0, 0, 0, 0, 2])  # by kind: how the nearest pixel is found; 0: it is not


@once  # kernels use its address
def filter_tables() -> tuple[Array, Array]:
    """(all tables in one float32 array, start of each); more zeros than entries follow each."""
    parts = [np.concatenate([t, np.zeros(len(t) + 2)]) for t in _tables()]
    starts = np.cumsum([0, *(len(p) for p in parts[:-1])])
    return np.concatenate(parts).astype(np.float32), starts
