"""CRC-32C of parts of memory, eight bytes at a time. Only imported to compile something."""

from __future__ import annotations

import numpy as np

from . import primitives as prims

_get_u8, _get_u32 = prims.get_u8, prims.get_u32  # type: ignore[attr-defined]
_get_i64, _put_i64 = prims.get_i64, prims.put_i64  # type: ignore[attr-defined]


def crc32c_parts(parts, count, table):  # type: ignore[no-untyped-def]
    """Rows of (address, size, result); `table` has 8 × 256 numbers (see `checksum_tables`)."""
    for s in range(count):
        data, size = _get_i64(parts, 3 * s), _get_i64(parts, 3 * s + 1)
        value, at = np.int64(0xFFFFFFFF), 0
        while at + 8 <= size:
            low = value ^ np.int64(_get_u32(data + at, 0))
            high = np.int64(_get_u32(data + at, 1))
            value = np.int64(_get_u32(table, 1792 + (low & 255)))
            value ^= np.int64(_get_u32(table, 1536 + (low >> 8 & 255)))
            value ^= np.int64(_get_u32(table, 1280 + (low >> 16 & 255)))
            value ^= np.int64(_get_u32(table, 1024 + (low >> 24 & 255)))
            value ^= np.int64(_get_u32(table, 768 + (high & 255)))
            value ^= np.int64(_get_u32(table, 512 + (high >> 8 & 255)))
            value ^= np.int64(_get_u32(table, 256 + (high >> 16 & 255)))
            value ^= np.int64(_get_u32(table, high >> 24 & 255))
            at += 8
        while at < size:
            byte = np.int64(_get_u8(data, at))
            value = np.int64(_get_u32(table, (value ^ byte) & 255)) ^ (value >> 8)
            at += 1
        _put_i64(parts, 3 * s + 2, value ^ 0xFFFFFFFF)
