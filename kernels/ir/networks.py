"""Networks of minima and maxima that sort a few values or select their median.

A comparator (i, j) puts the smaller of two values at i and the larger one at j. Networks run the
same operations whatever the values are, so they suit vectors. Both back-ends write out the lists
that this module computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import TypeVar

from ..common.memo import memoized

T = TypeVar("T")
Comparator = tuple[int, int]
Pair = Callable[[T, T], T]

_SORT_3 = ((0, 1), (1, 2), (0, 1))
_SORT_5 = ((0, 3), (1, 4), (0, 2), (1, 3), (0, 1), (2, 4), (1, 2), (3, 4), (2, 3))
SORTS: dict[int, tuple[Comparator, ...]] = {3: _SORT_3, 5: _SORT_5}
SIDES = tuple(SORTS)  # windows of 3 × 3 and 5 × 5 have networks

# The order in which `candidates` enter the network that selects among them. A random search found
# this one: 32 minima and maxima are left, and 42 for the natural order.
_ORDERS = {3: (0, 1, 2), 5: (5, 8, 9, 10, 2, 0, 3, 4, 11, 12, 6, 1, 7)}


def sort_values(values: Sequence[T], low: Pair[T], high: Pair[T]) -> list[T]:
    """3 or 5 values in ascending order."""
    return _run(SORTS[len(values)], list(values), low, high)


def middle_of_columns(columns: Sequence[Sequence[T]], low: Pair[T], high: Pair[T]) -> T:
    """The median of all elements of 3 columns of 3 or of 5 columns of 5; each column ascends."""
    side = len(columns)
    rows = [sort_values([c[r] for c in columns], low, high) for r in range(side)]
    values = [rows[i][j] for i, j in _entering(side)]
    network, at = middle_network(side)
    return _run(network, values, low, high)[at]


def _run(network: Iterable[Comparator], values: list[T], low: Pair[T], high: Pair[T]) -> list[T]:
    for i, j in network:
        values[i], values[j] = low(values[i], values[j]), high(values[i], values[j])
    return values


def candidates(side: int) -> list[tuple[int, int]]:
    """The places of a square whose rows and columns ascend that may hold its median.

    Element (i, j) is no smaller than (i + 1)(j + 1) elements and no larger than
    (side - i)(side - j) elements, itself included.
    """
    half = side * side // 2 + 1
    return [
        (i, j)
        for i, j in product(range(side), repeat=2)
        if (i + 1) * (j + 1) <= half and (side - i) * (side - j) <= half
    ]


def _entering(side: int) -> list[tuple[int, int]]:
    places = candidates(side)
    return [places[k] for k in _ORDERS[side]]


@memoized(8)
def middle_network(side: int) -> tuple[tuple[Comparator, ...], int]:
    """A network that selects the median among `_entering`, and where the median is then."""
    places = _entering(side)
    n = len(places)
    network = list(_pruned(_sorting_network(n), _squares(side, places)))
    return tuple(_needed(network, n // 2)), n // 2


def _sorting_network(n: int) -> Iterator[Comparator]:
    """Batcher's odd-even merge sort of any number of values."""
    p = 1
    while p < n:
        k = p
        while k:
            for j in range(k % p, n - k, 2 * k):
                for i in range(j, min(j + k, n - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        yield i, i + k
            k //= 2
        p *= 2


def _squares(side: int, places: list[tuple[int, int]]) -> list[list[bool]]:
    """All squares of zeros and ones whose rows and columns ascend, at these places."""
    found = []
    for ones in product(range(side + 1), repeat=side):
        if list(ones) == sorted(ones):
            found.append([j >= side - ones[i] for i, j in places])
    return found


def _pruned(network: Iterable[Comparator], inputs: list[list[bool]]) -> Iterator[Comparator]:
    """The network without comparators that never exchange values of these inputs.

    By the 0-1 principle, inputs of zeros and ones stand for all inputs of the same order.
    """
    for i, j in network:
        if any(x[i] and not x[j] for x in inputs):
            yield i, j
            for x in inputs:
                x[i], x[j] = x[i] and x[j], x[i] or x[j]


def _needed(network: list[Comparator], wanted: int) -> list[Comparator]:
    """The comparators that the value at `wanted` depends on."""
    alive, found = {wanted}, []
    for i, j in reversed(network):
        if i in alive or j in alive:
            alive |= {i, j}
            found.append((i, j))
    return found[::-1]
