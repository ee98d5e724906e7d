"""Blocks of 8×8 bytes → the same blocks after JPEG's transform, quantiser and their inverses.

The arithmetic is that of libjpeg's "islow" transform, to the bit: factors have 13 bits, and what
lies between rows and columns has 2 more than a sample. A lane of a vector is a block, so that both
passes take whole vectors and no block is transposed. Only imported to compile something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from .job_slots import HALF, RECIPROCAL, SHIFT, STEP, TABLE
from .words import (
    BYTES,
    I16,
    I64,
    Words,
    load,
    load_words,
    pointer,
    shuffle,
    spread,
    store,
    widened,
)  # fmt: skip

_BITS, _MORE = 13, 2  # of factors, and of what lies between the passes
_WORDS_BYTES = 32


def _fixed(x: float) -> int:
    return round(x * (1 << _BITS))


# The rotation by 3π/8 of the even part, times √2.
_A, _B, _C = _fixed(0.541196100), _fixed(0.765366865), _fixed(1.847759065)
_EVEN = ((_A + _B, _A), (_A, _A - _C))


def _odd_factors() -> list[list[int]]:
    """The odd part, times √2, as a symmetrical matrix; each entry is a sum of rounded factors.

    Loeffler, Ligtenberg and Moschytz compute it with nine products. A vector instruction adds two
    products, so the plain matrix takes eight.
    """
    both = _fixed(1.175875602)
    own = [_fixed(x) for x in (0.298631336, 2.053119869, 3.072711026, 1.501321110)]
    alike = [_fixed(1.961570560), _fixed(0.390180644)]
    crosswise = [_fixed(0.899976223), _fixed(2.562915447)]
    matrix = [[both] * 4 for _ in range(4)]
    for i in range(4):
        for j in range(4):
            if i == j:
                matrix[i][j] += own[i]
            if i % 2 == j % 2:
                matrix[i][j] -= alike[i % 2]
            if i == j or i + j == 3:
                matrix[i][j] -= crosswise[0 if i in (0, 3) else 1]
    return matrix


_ODD = _odd_factors()


def _odd_sums(x: Sequence[Words]) -> list[Any]:
    first, second = x[0].with_(x[1]), x[2].with_(x[3])
    return [first.dot(a, b) + second.dot(c, d) for a, b, c, d in _ODD]


def _forward(x: Sequence[Words], is_first: bool) -> list[Words]:
    """Eight frequencies of eight samples."""
    sums = [x[k] + x[7 - k] for k in range(4)]
    odd = _odd_sums([x[3 - k] - x[4 + k] for k in range(4)])
    outer, inner = sums[0] + sums[3], sums[1] + sums[2]
    even = (sums[0] - sums[3]).with_(sums[1] - sums[2])
    bits = _BITS - _MORE if is_first else _BITS + _MORE
    y: dict[int, Words] = {}
    for place, value in ((0, outer + inner), (4, outer - inner)):
        y[place] = value << _MORE if is_first else (value + (1 << (_MORE - 1))) >> _MORE
    for place, factors in ((2, _EVEN[0]), (6, _EVEN[1])):
        y[place] = even.dot(*factors).rounded(bits)
    for k, value in enumerate(odd):
        y[7 - 2 * k] = value.rounded(bits)
    return [y[k] for k in range(8)]


def _inverse(y: Sequence[Words], is_first: bool) -> list[Words]:
    """Eight samples of eight frequencies."""
    ends, turned = y[0].with_(y[4]), y[2].with_(y[6])
    one = 1 << _BITS
    total, difference = ends.dot(one, one), ends.dot(one, -one)
    large, small = turned.dot(*_EVEN[0]), turned.dot(*_EVEN[1])
    even = [total + large, difference + small, difference - small, total - large]
    odd = _odd_sums([y[7], y[5], y[3], y[1]])[::-1]
    bits = _BITS - _MORE if is_first else _BITS + _MORE + 3
    low = [(a + b).rounded(bits) for a, b in zip(even, odd, strict=True)]
    high = [(a - b).rounded(bits) for a, b in zip(even, odd, strict=True)]
    return low + high[::-1]


def _quantised(x: Words, tables: Sequence[Words]) -> Words:
    """What is left of frequencies: the nearest multiples of the step."""
    half, reciprocal, shift, step = tables
    sign = x >> 15
    size = (x ^ sign) - sign
    # The division is exact: see step_tables.py.
    count = (size + half).high_product(reciprocal, signed=False).high_product(shift, signed=False)
    kept = count * step
    return (kept ^ sign) - sign


# -- bytes of sixteen blocks in a row, beside each other ↔ a vector of each column ----------------

_LOW, _HIGH = ([n for k in range(8) for n in (k + h, 16 + k + h)] for h in (0, 8))


def _woven(builder: Any, rows: list[Any], rounds: int) -> list[Any]:
    """128 bytes in 8 vectors, of which the first half is interleaved with the second, repeatedly.

    Every round rotates the bits of each byte's place by one. Places are (block, column), 4 and 3
    bits, so 4 rounds transpose bytes, and 3 rounds transpose them back.
    """
    for _ in range(rounds):
        rows = [
            shuffle(builder, rows[k], rows[k + 4], lanes)
            for k in range(4)
            for lanes in (_LOW, _HIGH)
        ]
    return rows


# -- loops ----------------------------------------------------------------------------------------


def _word_place(builder: Any, work: Any, index: Any) -> Any:
    return pointer(builder, work, builder.mul(index, I64(_WORDS_BYTES)))


def _rows_forward(builder: Any, plane: Any, stride: Any, work: Any) -> None:
    with cgutils.for_range(builder, I64(8)) as loop:
        row = builder.add(plane, builder.mul(loop.index, stride))
        parts = [load(builder, pointer(builder, row, 16 * k), BYTES) for k in range(8)]
        samples = [widened(builder, p) - 128 for p in _woven(builder, parts, 4)]
        first = builder.mul(loop.index, I64(8))
        for k, value in enumerate(_forward(samples, True)):
            store(builder, value.value, _word_place(builder, work, builder.add(first, I64(k))))


def _columns(builder: Any, work: Any, tables: Any) -> None:
    """Transform columns, quantise, and transform them back."""

    def entry(table: int, place: Any) -> Words:
        own = builder.add(place, I64(table * TABLE))
        at = builder.bitcast(pointer(builder, tables, 0), I16.as_pointer())
        return spread(builder, builder.load(builder.gep(at, [own])))

    with cgutils.for_range(builder, I64(8)) as loop:
        places = [builder.add(loop.index, I64(8 * k)) for k in range(8)]
        values = [load_words(builder, _word_place(builder, work, p)) for p in places]
        kept = [
            _quantised(x, [entry(t, p) for t in (HALF, RECIPROCAL, SHIFT, STEP)])
            for x, p in zip(_forward(values, False), places, strict=True)
        ]
        for value, place in zip(_inverse(kept, True), places, strict=True):
            store(builder, value.value, _word_place(builder, work, place))


def _rows_back(builder: Any, plane: Any, stride: Any, work: Any) -> None:
    with cgutils.for_range(builder, I64(8)) as loop:
        first = builder.mul(loop.index, I64(8))
        places = [builder.add(first, I64(k)) for k in range(8)]
        values = [load_words(builder, _word_place(builder, work, p)) for p in places]
        columns = [(x + 128).clamped(0, 255).bytes() for x in _inverse(values, False)]
        row = builder.add(plane, builder.mul(loop.index, stride))
        for k, part in enumerate(_woven(builder, columns, 3)):
            store(builder, part, pointer(builder, row, 16 * k))


@intrinsic
def quantise_blocks(typingctx: Any, plane: Any, stride: Any, tables: Any, work: Any) -> Any:
    """Replace sixteen blocks in a row by what is left of them."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        plane, stride, tables, work = args
        _rows_forward(builder, plane, stride, work)
        _columns(builder, work, tables)
        _rows_back(builder, plane, stride, work)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen
