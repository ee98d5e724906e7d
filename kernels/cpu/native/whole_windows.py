"""Two lines of window ranks at once, from whole rows of the image, without scratch memory.

For windows of 3 × 3 and 5 × 5: the columns of a block are joined in registers, and the windows are
completed by shifting these registers, so nothing is stored but the result. (3 × 3 medians of
400×500×3 bytes in the L2 cache: 45 to 53 µs; sorting rows into scratch memory, which is read at
three places, takes 64, and nine loads of the image itself take 64 to 75.) This module is imported
only when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from ...ir import networks
from ...ir.dtypes import DType
from .block_sizes import reach_of
from .vectors import I64, chosen, shuffled
from .window_ranks import Lanes, row_address

Columns = list[Any]  # what is known of the columns of a block: an extreme, or all values sorted


class _Block:
    """How a block of results is computed, as code of one function."""

    def __init__(self, builder: Any, dtype: DType, rank: str, side: int, column: int) -> None:
        self.builder, self.rank, self.side, self.column = builder, rank, side, column
        self.lanes = Lanes(dtype)
        self.width, self.reach = self.lanes.width, reach_of(side, column)
        self.low, self.high = self.lanes.low(builder), self.lanes.high(builder)

    def joined(self, rows: list[Any], at: Any) -> Columns:
        """The columns of both lines from element `at` on; lines share all rows but two."""
        values = [self.lanes.load(self.builder, row, at) for row in rows]
        first, shared, last = values[0], values[1:-1], values[-1]
        if self.rank != "middle":
            choose = self.lanes.chooser(self.builder, self.rank)
            both = reduce(choose, shared)
            return [choose(both, first), choose(both, last)]
        least, most = self.low(*shared), self.high(*shared)
        return [*self._with_third(least, most, first), *self._with_third(least, most, last)]

    def _with_third(self, least: Any, most: Any, value: Any) -> list[Any]:
        """A third value, put into a sorted pair."""
        rest = self.high(least, value)
        return [self.low(least, value), self.low(rest, most), self.high(rest, most)]

    def results(self, columns: Columns, after: Columns) -> list[Any]:
        """A block of each line; its windows begin at `columns`, and `after` is the next block."""
        shifts = [k * self.column for k in range(self.side)]
        taps = [self._shifted(a, b, shifts) for a, b in zip(columns, after, strict=True)]
        if self.rank != "middle":
            choose = self.lanes.chooser(self.builder, self.rank)
            return [reduce(choose, values) for values in taps]
        return [self._middle(taps[:3]), self._middle(taps[3:])]

    def _middle(self, taps: list[list[Any]]) -> Any:
        """The median of three sorted columns, given their lowest, middle and highest values."""
        columns = list(zip(*taps, strict=True))
        return networks.middle_of_columns(columns, self.low, self.high)

    def _shifted(self, a: Any, b: Any, shifts: list[int]) -> list[Any]:
        """The blocks that begin `shifts` elements after `a`.

        AVX2 shifts 16 bytes of two registers together, so the two halves in the middle come first.
        """
        half, found = self.width // 2, []
        middle = chosen(self.builder, a, b, [half + k for k in range(self.width)])
        for shift in shifts:
            pair, by = ((a, middle), shift) if shift < half else ((middle, b), shift - half)
            lanes = []
            for lane in (0, half):
                for k in range(lane + by, lane + by + half):
                    own = k < lane + half
                    lanes.append(k if own else self.width + k - half)
            found.append(chosen(self.builder, *pair, lanes))
        return found

    def at_begin(self, columns: Columns) -> Columns:
        """The block `reach` elements before the row: its first column, then the row's elements."""
        c, reach = self.column, self.reach
        lanes = [k % c if k < reach else k - reach for k in range(self.width)]
        return [shuffled(self.builder, value, lanes) for value in columns]

    def at_end(self, columns: Columns) -> Columns:
        """The block that begins `reach` elements before the row ends, from its last block."""
        c, reach, width = self.column, self.reach, self.width
        inside = [width - reach + k for k in range(reach)]
        lanes = [*inside, *(width - c + k % c for k in range(width - reach))]
        return [shuffled(self.builder, value, lanes) for value in columns]


def _make_whole(dtype: DType, rank: str, side: int, column: int) -> Any:
    @intrinsic
    def whole(typingctx: Any, rows: Any, offset: Any, n: Any, to: Any, second: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, offset, n, *lines = args
            block = _Block(builder, dtype, rank, side, column)
            width, reach = block.width, block.reach
            found = [row_address(builder, rows, I64(k), offset) for k in range(side + 1)]

            def from_(at: Any) -> Columns:
                return block.joined(found, at)

            def before_end(elements: int) -> Any:
                return builder.sub(n, I64(elements))

            def finish(columns: Columns, after: Columns, at: Any) -> None:
                for value, line in zip(block.results(columns, after), lines, strict=True):
                    block.lanes.store(builder, value, line, at)

            _each_block(builder, block, n, from_, finish)
            # The last two blocks overlap the ones before them.
            first, last = from_(before_end(2 * width + reach)), from_(before_end(width + reach))
            finish(first, last, before_end(2 * width))
            finish(last, block.at_end(from_(before_end(width))), before_end(width))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return whole


def _each_block(
    builder: Any,
    block: _Block,
    n: Any,
    from_: Callable[[Any], Columns],
    finish: Callable[[Columns, Columns, Any], None],
) -> None:
    """All blocks from the first on whose next block ends within the row."""
    width, reach = I64(block.width), I64(block.reach)
    start = block.at_begin(from_(I64(0)))
    held = [cgutils.alloca_once_value(builder, value) for value in start]
    count = builder.sub(builder.sdiv(builder.add(n, reach), width), I64(1))
    with cgutils.for_range(builder, count) as loop:
        at = builder.mul(loop.index, width)
        after = from_(builder.sub(builder.add(at, width), reach))
        finish([builder.load(place) for place in held], after, at)
        for place, value in zip(held, after, strict=True):
            builder.store(value, place)


def whole_rows(dtype: DType, rank: str, side: int, column: int) -> Any:
    """Two lines of n elements, from `side` + 1 rows of n elements, `offset` bytes after the
    addresses in a list.

    Windows of `side` × `side` elements are centred along the rows, whose first and last column
    repeat outside. Neighbouring columns are `column` elements apart; n is at least `least_row`.
    """
    whole = _make_whole(dtype, rank, side, column)

    def whole_rows(rows, offset, n, to, second):  # type: ignore[no-untyped-def]
        whole(rows, offset, n, to, second)

    return whole_rows
