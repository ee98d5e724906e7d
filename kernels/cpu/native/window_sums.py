"""Native helpers of `WindowLines`: weighted sums of rows, for one line and for several at once.

This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ..annotations.inner import inner
from .block_sizes import GROUP
from .vectors import (  # fmt: skip
    F32,
    FLOATS,
    I64,
    at_byte,
    fma,
    load_vector,
    splat,
    vector_blocks,
)

# The tap loop keeps this many vectors of eight sums in registers.
_VECTORS = 8
# Sums of several lines are as wide as the CPU's registers, and fill half of them. With four lines
# instead of two, a 7 × 7 filter of 224 × 224 × 3 bytes takes 174 instead of 190 µs (Zen 4).
HAS_AVX512 = bool(llvm.get_host_cpu_features().get("avx512f", False))
WIDE = 2 * GROUP if HAS_AVX512 else GROUP
WIDE_FLOATS = ir.VectorType(F32, WIDE)
_SUMS = 16 if HAS_AVX512 else 8


def _make_add_taps(is_fused: bool) -> Any:
    @intrinsic
    def add_taps(
        typingctx: Any, rows: Any, offset: Any, weights: Any, count: Any, n: Any, sums: Any
    ) -> Any:
        """The weighted sum of n elements, from `offset` on, of `count` rows at addresses `rows`.

        n must be at least 8, because the last block overlaps the one before it.
        """

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, offset, weights, count, n, sums = args
            rows = builder.inttoptr(rows, I64.as_pointer())
            weights, sums = (builder.inttoptr(x, F32.as_pointer()) for x in (weights, sums))
            # Start at -0.0, because adding it leaves every number as it is, even -0.0.
            zero = ir.Constant(FLOATS, [-0.0] * GROUP)

            def block(at: Any, vectors: int) -> None:
                held = [cgutils.alloca_once(builder, FLOATS) for _ in range(vectors)]
                for place in held:
                    builder.store(zero, place)
                first = builder.add(at, offset)
                with cgutils.for_range(builder, count) as taps:
                    address = builder.load(builder.gep(rows, [taps.index]))
                    row = builder.gep(builder.inttoptr(address, F32.as_pointer()), [first])
                    one = builder.load(builder.gep(weights, [taps.index]))
                    weight = splat(builder, one, GROUP)
                    for k, place in enumerate(held):
                        value = load_vector(builder, builder.gep(row, [I64(k * GROUP)]), FLOATS)
                        total = builder.load(place)
                        if is_fused:
                            total = builder.call(fma(builder, FLOATS), [weight, value, total])
                        else:
                            total = builder.fadd(total, builder.fmul(weight, value))
                        builder.store(total, place)
                for k, place in enumerate(held):
                    out = builder.gep(sums, [builder.add(at, I64(k * GROUP))])
                    to = builder.bitcast(out, FLOATS.as_pointer())
                    builder.store(builder.load(place), to).align = 4

            vector_blocks(builder, n, GROUP, _VECTORS, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return add_taps


def sum_taps(is_fused: bool) -> Any:
    """The weighted sum of n elements of some rows, tap by tap; `is_fused`: with fma.

    It may read and write up to eight more elements.
    """
    add_taps = _make_add_taps(is_fused)

    def sum_taps(rows, offset, weights, count, n, sums):  # type: ignore[no-untyped-def]
        add_taps(rows, offset, weights, count, max(n, GROUP), sums)

    return sum_taps


class _Lines:
    """Writes the sums of several lines; see `sum_lines`."""

    def __init__(self, builder: Any, count: int) -> None:
        self.builder = builder
        self.count = count

    def load(self, addresses: Any, k: Any) -> Any:
        """The pointer in entry k of a list."""
        address = self.builder.load(self.builder.gep(addresses, [k]))
        return self.builder.inttoptr(address, F32.as_pointer())

    def held(self, vectors: int) -> list[Any]:
        """Registers that hold sums; they start at -0.0, to which any number can be added."""
        found = [cgutils.alloca_once(self.builder, WIDE_FLOATS) for _ in range(vectors)]
        for place in found:
            self.builder.store(ir.Constant(WIDE_FLOATS, [-0.0] * WIDE), place)
        return found

    def sums(
        self, rows: Any, weights: Any, count: Any, by: Any, places: list[Any]
    ) -> list[list[Any]]:
        """For each line, registers with its sums of the vectors at some places of the rows."""
        builder, lines = self.builder, self.count
        held = [self.held(len(places)) for _ in range(lines)]
        starts = [builder.mul(by, I64(k)) for k in range(lines)]

        def taps(begin: Any, end: Any, own: range) -> None:
            """Add rows begin … end - 1 to some of the lines."""
            with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
                tap = builder.add(loop.index, begin)
                row = self.load(rows, tap)
                factors = {}
                for k in own:
                    weight = builder.gep(weights, [builder.sub(tap, starts[k])])
                    factors[k] = splat(builder, builder.load(weight), WIDE)
                for v, at in enumerate(places):
                    value = load_vector(builder, builder.gep(row, [at]), WIDE_FLOATS)
                    for k in own:
                        total = [factors[k], value, builder.load(held[k][v])]
                        builder.store(builder.call(fma(builder, WIDE_FLOATS), total), held[k][v])

        for k in range(1, lines):
            taps(starts[k - 1], starts[k], range(k))
        taps(starts[-1], count, range(lines))
        for k in range(1, lines):
            taps(builder.add(count, starts[k - 1]), builder.add(count, starts[k]), range(k, lines))
        return [[builder.load(place) for place in one] for one in held]


def make_add_lines(lines: int, store: Callable[[Any, Any, Any, Any], None]) -> Any:
    """The intrinsic of `sum_lines`; `store(builder, value, to, place)` stores the sums of a vector
    as elements from `place` on of the line at address `to`."""

    @intrinsic
    def add_lines(
        typingctx: Any, rows: Any, weights: Any, count: Any, by: Any, n: Any, outs: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, weights, count, by, n, outs = args
            rows, outs = (builder.inttoptr(x, I64.as_pointer()) for x in (rows, outs))
            weights = builder.inttoptr(weights, F32.as_pointer())
            group = _Lines(builder, lines)
            targets = [builder.load(builder.gep(outs, [I64(k)])) for k in range(lines)]

            def block(at: Any, vectors: int) -> None:
                places = [builder.add(at, I64(v * WIDE)) for v in range(vectors)]
                sums = group.sums(rows, weights, count, by, places)
                for to, line in zip(targets, sums, strict=True):
                    for place, value in zip(places, line, strict=True):
                        store(builder, value, to, place)

            vector_blocks(builder, n, WIDE, _SUMS // lines, block)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return add_lines


def _store(builder: Any, value: Any, to: Any, place: Any) -> None:
    at = at_byte(builder, to, builder.mul(place, I64(4)), WIDE_FLOATS)
    builder.store(value, at).align = 4


def sum_lines(lines: int) -> Any:
    """Sums like those of `sum_taps`, with fma, for several lines at once.

    The rows of each line begin `by` later in the list than those of the line before it, and `outs`
    lists where the sums go. Rows that several lines need are read once. `count` must be at least
    (lines - 1) * by.
    """
    add_lines = make_add_lines(lines, _store)

    def sum_lines(rows, weights, count, by, n, outs):  # type: ignore[no-untyped-def]
        add_lines(rows, weights, count, by, max(n, WIDE), outs)

    return sum_lines


@inner
def has_next(step, at, o, n, extent):  # type: ignore[no-untyped-def]
    """Whether lines `o` and `o + 1` are neighbouring rows of the image, and both exist."""
    here = step * o + at
    there = here + step
    exists = min(here, there) >= 0 and max(here, there) < extent
    return exists and o + 1 < n and (step == 1 or step == -1)


@inner
def lines_ahead(step, at, o, n, extent, rows):  # type: ignore[no-untyped-def]
    """How many lines after line `o` can be summed together with it: 3, 1 or 0.

    They must exist, be neighbouring rows of the image, and share rows: a window has `rows` rows.
    """
    for ahead in (3, 1):
        here, there = step * o + at, step * (o + ahead) + at
        exists = min(here, there) >= 0 and max(here, there) < extent and o + ahead < n
        if exists and rows >= ahead and (step == 1 or step == -1):
            return ahead
    return 0
