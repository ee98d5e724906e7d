"""Philox 4x32-10: four random words from a 128-bit counter and a 64-bit key.

The same ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) run on
Python integers (`block`), on NumPy arrays (`blocks`) and as expressions in a kernel (`philox`), and
give the same bits everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..common.memo import memoized
from . import dtypes as dt
from . import expr as ex
from .expr import Expr

Array = np.ndarray[Any, Any]
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
_ROUNDS = 10
_MASK = 0xFFFFFFFF
_FACTORS = np.array(_MULTIPLIERS, np.uint64)[:, None]
# What each round adds to the key, modulo 2³².
_KEY_TABLE = (
    np.arange(_ROUNDS, dtype=np.uint32)[:, None, None] * np.array(_KEY_STEPS, np.uint32)[:, None]
)
_HIGH = int(sys.byteorder == "little")  # where the high half of a uint64 is


def _rounds(counter: Sequence[Any], key: Sequence[Any], product: Any, add: Any) -> tuple[Any, ...]:
    """Run all rounds with a `product` that returns high and low words, and an `add` that wraps."""
    a, b, c, d = counter
    k, m = key
    for r in range(_ROUNDS):
        if r:
            k, m = add(k, _KEY_STEPS[0]), add(m, _KEY_STEPS[1])
        high_a, low_a = product(a, _MULTIPLIERS[0])
        high_c, low_c = product(c, _MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ k, low_c, high_a ^ d ^ m, low_a
    return a, b, c, d


def block(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Four words as Python integers. The rounds are written out here: every call of a random op
    runs this at least twice, and with the closures of `_rounds` it was half as fast."""
    a, b, c, d = counter
    k, m = key
    for _ in range(_ROUNDS):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ k, right & _MASK, (left >> 32) ^ d ^ m, left & _MASK
        k, m = (k + 0x9E3779B9) & _MASK, (m + 0xBB67AE85) & _MASK
    return a, b, c, d


def blocks(counter: Sequence[Array | int], key: Sequence[int]) -> tuple[Array, ...]:
    """Four arrays of words; the counter's words are numbers or arrays, broadcast together."""
    shape = np.broadcast(*counter).shape
    words = np.empty((4, *shape), np.uint32)
    for k, word in enumerate(counter):
        words[k, ...] = np.asarray(word).astype(np.uint32)  # words wrap around
    # Compute both products at once, and take their halves as views: with little data, the number of
    # NumPy calls sets the time.
    first, second = words.reshape(4, -1)[0::2], words.reshape(4, -1)[1::2]
    for keys in np.array(key, np.uint32)[:, None] + _KEY_TABLE:
        halves = (first * _FACTORS).view(np.uint32)
        first, second = halves[::-1, _HIGH::2] ^ second ^ keys, halves[::-1, 1 - _HIGH :: 2]
    a, c, b, d = np.concatenate([first, second]).reshape(4, *shape)
    return a, b, c, d


def philox(counter: Sequence[Expr], key: Sequence[Expr]) -> tuple[Expr, ...]:
    """Four uint32 expressions, from uint32 expressions."""
    pairs = [ex.call(_pair(first), *counter, *key) for first in (0, 2)]
    return tuple(ex.cast(w, dt.uint32) for pair in pairs for w in (pair, pair >> 32))


@memoized(2)
def _pair(first: int) -> ex.Function:
    """Two words as one, the first in the low bits. LLVM computes both pairs together."""

    def body(*words: Expr) -> Expr:
        low, high = _spelled_out(words[:4], words[4:])[first : first + 2]
        return ex.cast(low, dt.uint64) | (ex.cast(high, dt.uint64) << 32)

    return ex.function(f"philox_{first}", body, *[dt.uint32] * 6)


def _spelled_out(counter: Sequence[Expr], key: Sequence[Expr]) -> tuple[Expr, ...]:
    def product(word: Expr, constant: int) -> tuple[Expr, Expr]:
        whole = ex.cast(word, dt.uint64) * constant
        return ex.cast(whole >> 32, dt.uint32), ex.cast(whole, dt.uint32)

    add: Callable[[Expr, int], Expr] = lambda word, constant: word + constant  # noqa: E731
    return _rounds(counter, key, product, add)
