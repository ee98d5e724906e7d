"""A quality → the quantiser's tables for `lose_jpeg`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...common.memo import memoized
from .job_slots import TABLE

# Steps of luma and chroma at quality 50: tables K.1 and K.2 of ITU-T T.81.
_LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
_CHROMA = (
    17, 18, 24, 47, 99, 99, 99, 99,
    18, 21, 26, 66, 99, 99, 99, 99,
    24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99,
    *[99] * 32,
)  # fmt: skip
_SCALE = 8  # of the coefficients, which are not normalised


@memoized(128)
def step_tables(quality: int) -> Any:
    """The tables [2, 4, 64] of a quality from 1 to 100 (see job_slots.py)."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    found = np.empty((2, 4, TABLE), np.uint16)
    for tables, base in zip(found, (_LUMA, _CHROMA), strict=True):
        steps = ((np.array(base, np.int64) * percent + 50) // 100).clip(1, 255)
        tables[:] = _dividing(steps * _SCALE)
        tables[3] = steps
    return found


def _dividing(by: Any) -> Any:
    """Half of each divisor, two factors that divide by it, and an unused row.

    n / d is the upper half of n · r, shifted by b, where 2^b < d <= 2^(b+1) and r is
    2^(16+b) / d, rounded up. That makes r too large by less than 1, and n · r too large by less
    than n. So the quotient is exact for n < 2^15, because n · d < 2^(16+b). The upper half of a
    product with 2^(16-b) is a shift.
    """
    bits = np.ceil(np.log2(by)).astype(np.int64) - 1
    reciprocals = -(-(1 << (16 + bits)) // by)
    return np.stack([by // 2, reciprocals, 1 << (16 - bits), by])
