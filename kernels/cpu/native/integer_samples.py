"""Integers as WAV files have them → samples of the wanted type.

Only imported to compile something.
"""

from __future__ import annotations

import numpy as np

from . import primitives as prims
from .compile import part

_get_u8, _get_i16, _get_i32 = prims.get_u8, prims.get_i16, prims.get_i32  # type: ignore[attr-defined]
_get_i64, _put_i16 = prims.get_i64, prims.put_i16  # type: ignore[attr-defined]
_put_i32, _put_f32 = prims.put_i32, prims.put_f32  # type: ignore[attr-defined]


@part
def _wide(data, i, width):  # type: ignore[no-untyped-def]
    """A sample as the upper bits of 32; one byte is stored without a sign."""
    if width == 1:
        return np.int32((np.int64(_get_u8(data, i)) - 128) << 24)
    if width == 2:
        return np.int32(np.int64(_get_i16(data, i)) << 16)
    if width == 4:
        return _get_i32(data, i)
    at = 3 * i
    low = np.int64(_get_u8(data, at)) << 8 | np.int64(_get_u8(data, at + 1)) << 16
    return np.int32(low | np.int64(_get_u8(data, at + 2)) << 24)


@part
def _converted(data, out, count, width, kind):  # type: ignore[no-untyped-def]
    if kind == 0:
        scale = np.float32(2.0**-31)
        for i in range(count):
            _put_f32(out, i, np.float32(_wide(data, i, width)) * scale)
    elif kind == 1:
        for i in range(count):
            _put_i16(out, i, np.int16(np.int64(_wide(data, i, width)) >> 16))
    else:
        for i in range(count):
            _put_i32(out, i, _wide(data, i, width))


def integer_samples(job, out, count):  # type: ignore[no-untyped-def]
    """Convert so many samples.

    The job: their address, the bytes of each, and 0 for float32, 1 for int16, 2 for int32.
    """
    data, width, kind = _get_i64(job, 0), _get_i64(job, 1), _get_i64(job, 2)
    if width == 1:  # with a constant width LLVM makes vectors of the loops
        _converted(data, out, count, 1, kind)
    elif width == 2:
        _converted(data, out, count, 2, kind)
    elif width == 3:
        _converted(data, out, count, 3, kind)
    else:
        _converted(data, out, count, 4, kind)
