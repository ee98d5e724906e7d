"""Sizes and roots of unity → the plan of a Fourier transform, as the CPU's helpers read it.

NOTE [transforms of eight frames] A transform works on eight frames at once, one in each lane of a
vector (kernels/cpu/native/fourier.py). Frames of even length n are read as n/2 complex numbers,
even samples as real and odd ones as imaginary parts; the spectrum follows from that of the complex
numbers. Frames of odd length are complex numbers with imaginary parts of 0.

A transform of m complex numbers runs in place, in stages of radix 4, 2, 3, 5 or another prime. In
each stage, blocks of `radix * apart` numbers become `radix` blocks of `apart` numbers, each
multiplied by roots of unity. In the end the numbers are in the order of reversed digits, which
`places` undoes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..common.memo import memoized

Array = np.ndarray[Any, Any]

RADICES = (4, 2, 3, 5)  # other primes are summed one by one
# The header of `numbers`: frame length, complex numbers, whether they are halves, stages, and where
# `places`, the stages' roots and the roots that separate even and odd samples begin.
HEADER = 8


class FourierPlan(NamedTuple):
    """The tables of a transform; see the NOTE above."""

    numbers: Array  # int64: the header, (radix, apart, first root) of each stage, places
    roots: Array  # float32: of each stage, then those that separate even and odd samples


def factors(m: int) -> list[int]:
    """The radices of the stages of a transform of `m` numbers."""
    found = []
    for radix in RADICES:
        while m % radix == 0 and m > 1:
            found.append(radix)
            m //= radix
    p = 7
    while m > 1:
        while m % p == 0:
            found.append(p)
            m //= p
        p = p + 2 if p * p <= m else max(m, p + 2)
    return found


@memoized(64)
def fourier_plan(n: int) -> FourierPlan:
    """The plan for frames of `n` samples."""
    is_halved = n % 2 == 0
    m = n // 2 if is_halved else n
    stages, roots = [], []
    length, start = m, 0
    for radix in factors(m):
        apart = length // radix
        angles = -2 * np.pi * np.outer(np.arange(apart), np.arange(1, radix)) / length
        own = [_pairs(angles)]
        if radix not in RADICES:
            circle = np.arange(radix)
            own.append(_pairs(-2 * np.pi * (np.outer(circle, circle) % radix) / radix))
        stages += [radix, apart, start]
        roots += own
        start += sum(map(len, own))
        length = apart
    roots.append(_pairs(-2 * np.pi * np.arange(n // 2 + 1) / n))
    header = [n, m, int(is_halved), len(stages) // 3, HEADER + len(stages), start, 0, 0]
    numbers = np.array([*header, *stages, *_places(m)], np.int64)
    return FourierPlan(numbers, np.concatenate(roots).astype(np.float32))


def _pairs(angles: Array) -> Array:
    """Cosines and sines, alternating."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(-1)


def _places(m: int) -> Array:
    """Where the stages leave each of the `m` results."""
    found = np.zeros(1, np.int64)
    for radix in reversed(factors(m)):
        # A stage leaves result `radix * k + r` in block r, at the place of result k of that block.
        found = (np.arange(radix) * len(found) + found[:, None]).reshape(-1)
    return found
