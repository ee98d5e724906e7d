"""A 256-bit hash of bytes, to recognise data that was seen before. Only imported to compile.

It is no cryptographic hash. Eight lanes of 64 bits each take every eighth word, so that the chains
of multiplications overlap; at the end each lane is mixed with the others.
"""

from __future__ import annotations

import numpy as np

from ..native import primitives as prims
from .inner import inner

_u64 = np.uint64
_get_i64, _get_u8, _get_u64 = prims.get_i64, prims.get_u8, prims.get_u64  # type: ignore[attr-defined]
_put_u64 = prims.put_u64  # type: ignore[attr-defined]
# Odd constants with irregular bits: fractions of the golden ratio and of square roots.
_A, _B = _u64(0x9E3779B97F4A7C15), _u64(0xBB67AE8584CAA73B)
_C, _D = _u64(0x3C6EF372FE94F82B), _u64(0xA54FF53A5F1D36F1)
_SHIFT = _u64(29)


def hash_bytes(rows, begin, end):  # type: ignore[no-untyped-def]
    """Hash the bytes of each row (address, size), and write four words after these two."""
    for s in range(begin, end):
        row = rows + 8 * 6 * s
        data, size = _get_i64(row, 0), _get_i64(row, 1)
        a, b, c, d = _A, _B, _C, _D
        e, f, g, h = _B, _C, _D, _A
        k = 0
        while k + 64 <= size:
            a = _mixed(a ^ _get_u64(data + k, 0), _A)
            b = _mixed(b ^ _get_u64(data + k, 1), _B)
            c = _mixed(c ^ _get_u64(data + k, 2), _C)
            d = _mixed(d ^ _get_u64(data + k, 3), _D)
            e = _mixed(e ^ _get_u64(data + k, 4), _A)
            f = _mixed(f ^ _get_u64(data + k, 5), _B)
            g = _mixed(g ^ _get_u64(data + k, 6), _C)
            h = _mixed(h ^ _get_u64(data + k, 7), _D)
            k += 64
        a, b, c, d = _mixed(a ^ h, _B), _mixed(b ^ e, _C), _mixed(c ^ f, _D), _mixed(d ^ g, _A)
        while k < size:
            a = _mixed(a ^ _u64(_get_u8(data, k)), _B)
            k += 1
        a ^= _u64(size)
        for _ in range(2):
            a, b = _mixed(a ^ d, _C), _mixed(b ^ a, _D)
            c, d = _mixed(c ^ b, _A), _mixed(d ^ c, _B)
        _put_u64(row, 2, a)
        _put_u64(row, 3, b)
        _put_u64(row, 4, c)
        _put_u64(row, 5, d)


@inner
def _mixed(word, factor):  # type: ignore[no-untyped-def]
    product = word * factor
    return product ^ (product >> _SHIFT)
