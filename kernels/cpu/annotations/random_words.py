"""Philox 4x32-10 in native code: the words of kernels/ir/philox.py. Only imported to compile."""

from __future__ import annotations

import numpy as np

from .inner import inner

_u64 = np.uint64
_MASK, _HALF = _u64(0xFFFFFFFF), _u64(32)
_FIRST, _SECOND = _u64(0xD2511F53), _u64(0xCD9E8D57)
_STEP, _OTHER_STEP = _u64(0x9E3779B9), _u64(0xBB67AE85)


@inner
def random_words(element, sample, lane, other_lane, key, other_key):  # type: ignore[no-untyped-def]
    """Four words for an element of a sample, as uint64."""
    a, b = _u64(element) & _MASK, _u64(sample) & _MASK
    c, d = _u64(lane) & _MASK, _u64(other_lane) & _MASK
    k, m = _u64(key) & _MASK, _u64(other_key) & _MASK
    for _ in range(10):
        left, right = a * _FIRST, c * _SECOND
        a, b = (right >> _HALF) ^ b ^ k, right & _MASK
        c, d = (left >> _HALF) ^ d ^ m, left & _MASK
        k, m = (k + _STEP) & _MASK, (m + _OTHER_STEP) & _MASK
    return a, b, c, d


@inner
def unit_of(word):  # type: ignore[no-untyped-def]
    """A word as a float64 number in (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32


@inner
def word_below(word, count):  # type: ignore[no-untyped-def]
    """A word as an integer from 0 to count - 1."""
    return np.int64((word * _u64(count)) >> _HALF)
