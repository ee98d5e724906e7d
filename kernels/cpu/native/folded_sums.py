"""Native helpers of `WindowLines`: sums over symmetric windows, in which two taps share a weight.

Such a sum adds the two elements first and then multiplies once (NOTE [folded sums] in
kernels/ir/windows.py). The usual numbers of taps get code of their own, in which all rows that
some lines need are in registers at once: nine taps take 5 multiplications and 4 additions, and
three loads for each of four lines, instead of nine of each.

This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .vectors import F32, I64, chosen, fma, load_vector, shuffled, splat, vector_blocks
from .window_sums import HAS_AVX512, WIDE, WIDE_FLOATS

# Numbers of taps that get code of their own: windows of sigmas from 1/3 to 2, and of 3. Their rows
# fit into the 32 registers of AVX-512; without it, some are loaded twice.
_KNOWN = (3, 5, 7, 9, 11, 13, 19)
_VECTORS = 2  # vectors of each line that are summed together
_ALONG = 4  # the same for sums along a row
_REVERSE = list(range(WIDE))[::-1]


class _Folds:
    """Writes sums over symmetric windows, for one function."""

    def __init__(self, builder: Any, weights: Any, count: Any) -> None:
        self.builder = builder
        self.weights = builder.inttoptr(weights, F32.as_pointer())
        self.count = count

    def weight(self, tap: Any) -> Any:
        one = self.builder.load(self.builder.gep(self.weights, [tap]))
        return splat(self.builder, one, WIDE)

    def folded(self, weights: list[Any], values: list[Any]) -> Any:
        """The sum of some values, the outermost first; as many as there are taps."""
        builder, last = self.builder, len(values) - 1
        total = ir.Constant(WIDE_FLOATS, [-0.0] * WIDE)
        for k, weight in enumerate(weights):
            value = values[k]
            if k < last - k:
                value = builder.fadd(value, values[last - k])
            total = builder.call(fma(builder, WIDE_FLOATS), [weight, value, total])
        return total

    def looped(self, read: Callable[[Any, int], Any], vectors: int) -> list[Any]:
        """Sums for any number of taps; `read(tap, v)` loads a vector."""
        builder = self.builder
        held = [cgutils.alloca_once(builder, WIDE_FLOATS) for _ in range(vectors)]
        for place in held:
            builder.store(ir.Constant(WIDE_FLOATS, [-0.0] * WIDE), place)

        def add(tap: Any, others: list[Any]) -> None:
            weight = self.weight(tap)
            for v, place in enumerate(held):
                value = read(tap, v)
                for other in others:
                    value = builder.fadd(value, read(other, v))
                total = builder.call(
                    fma(builder, WIDE_FLOATS), [weight, value, builder.load(place)]
                )
                builder.store(total, place)

        half = builder.sdiv(self.count, I64(2))
        with cgutils.for_range(builder, half) as loop:
            last = builder.sub(builder.sub(self.count, I64(1)), loop.index)
            add(loop.index, [last])
        with builder.if_then(builder.trunc(self.count, ir.IntType(1))):
            add(half, [])
        return [builder.load(place) for place in held]

    def by_count(self, sums: Callable[[int], None]) -> None:
        """Call `sums` with the number of taps if it gets code of its own, or else with 0."""
        builder = self.builder
        after, other = (builder.append_basic_block(name) for name in ("after", "other"))
        switch = builder.switch(self.count, other)
        for known in _KNOWN:
            block = builder.append_basic_block(f"taps_{known}")
            switch.add_case(I64(known), block)
            with builder.goto_block(block):
                sums(known)
                builder.branch(after)
        with builder.goto_block(other):
            sums(0)
            builder.branch(after)
        builder.position_at_end(after)


def sum_folded(lines: int) -> Any:
    """Sums of n elements over `count` rows at addresses `rows`, for several lines at once.

    The rows of a line begin one later in the list than those of the line before it, and `outs`
    lists where the sums go.
    """

    @intrinsic
    def add_folded(typingctx: Any, rows: Any, weights: Any, count: Any, n: Any, outs: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, weights, count, n, outs = args
            rows, outs = (builder.inttoptr(x, I64.as_pointer()) for x in (rows, outs))
            folds = _Folds(builder, weights, count)

            def address(entries: Any, k: Any) -> Any:
                return builder.inttoptr(builder.load(builder.gep(entries, [k])), F32.as_pointer())

            targets = [address(outs, I64(k)) for k in range(lines)]

            def read(row: Any, at: Any, v: int) -> Any:
                place = builder.gep(row, [builder.add(at, I64(v * WIDE))])
                return load_vector(builder, place, WIDE_FLOATS)

            def store(line: int, value: Any, at: Any, v: int) -> None:
                place = builder.gep(targets[line], [builder.add(at, I64(v * WIDE))])
                builder.store(value, builder.bitcast(place, WIDE_FLOATS.as_pointer())).align = 4

            def sums(known: int) -> None:
                if not known:
                    vector_blocks(builder, n, WIDE, 4 * _VECTORS, any_block)
                    return
                weights = [folds.weight(I64(k)) for k in range((known + 1) // 2)]

                def block(at: Any, vectors: int) -> None:
                    sources = [address(rows, I64(k)) for k in range(known + lines - 1)]
                    for v in range(vectors):
                        values = [read(row, at, v) for row in sources]
                        for k in range(lines):
                            store(k, folds.folded(weights, values[k : k + known]), at, v)

                vector_blocks(builder, n, WIDE, _VECTORS, block)

            def any_block(at: Any, vectors: int) -> None:
                for k in range(lines):

                    def tap_of(tap: Any, v: int, k: int = k) -> Any:
                        return read(address(rows, builder.add(tap, I64(k))), at, v)

                    for v, value in enumerate(folds.looped(tap_of, vectors)):
                        store(k, value, at, v)

            folds.by_count(sums)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    def sum_folded(rows, weights, count, n, outs):  # type: ignore[no-untyped-def]
        add_folded(rows, weights, count, max(n, WIDE), outs)

    return sum_folded


@intrinsic
def _add_along(
    typingctx: Any, row: Any, weights: Any, count: Any, n: Any, to: Any, mirrored: Any
) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row, weights, count, n, to, mirrored = args
        row, to = (builder.inttoptr(x, F32.as_pointer()) for x in (row, to))
        folds = _Folds(builder, weights, count)
        is_mirrored = builder.icmp_signed("!=", mirrored, I64(0))
        end = builder.sub(mirrored, I64(WIDE))

        def read(at: Any, by: Any) -> Any:
            return load_vector(builder, builder.gep(row, [builder.add(at, by)]), WIDE_FLOATS)

        def store(values: list[Any], at: Any) -> None:
            places = [builder.add(at, I64(v * WIDE)) for v in range(len(values))]
            with builder.if_else(is_mirrored) as (if_mirrored, if_straight):
                with if_mirrored:
                    for value, place in zip(values, places, strict=True):
                        put(shuffled(builder, value, _REVERSE), builder.sub(end, place))
                with if_straight:
                    for value, place in zip(values, places, strict=True):
                        put(value, place)

        def put(value: Any, place: Any) -> None:
            out = builder.bitcast(builder.gep(to, [place]), WIDE_FLOATS.as_pointer())
            builder.store(value, out).align = 4

        def shifted(whole: list[Any], at: Any, v: int, tap: int) -> Any:
            """The vector `tap` elements after vector v.

            A load that straddles two cache lines takes twice as long as others. AVX-512 has an
            instruction that joins parts of two registers instead. It takes longer, too, but the CPU
            can do both at once (nine taps of 224 × 3 columns on Zen 4: all loaded 190 ns, all
            joined 158, every other one 115).
            """
            by, rest = v + tap // WIDE, tap % WIDE
            if not rest:
                return whole[by]
            if not HAS_AVX512 or tap % 2:
                return read(at, I64(v * WIDE + tap))
            return chosen(builder, whole[by], whole[by + 1], list(range(rest, rest + WIDE)))

        def sums(known: int) -> None:
            if not known:
                vector_blocks(builder, n, WIDE, 2 * _ALONG, any_block)
                return
            weights = [folds.weight(I64(k)) for k in range((known + 1) // 2)]

            def block(at: Any, vectors: int) -> None:
                more = (known + WIDE - 2) // WIDE
                whole = [read(at, I64(v * WIDE)) for v in range(vectors + more)]
                taps = [
                    [shifted(whole, at, v, tap) for tap in range(known)] for v in range(vectors)
                ]
                store([folds.folded(weights, values) for values in taps], at)

            vector_blocks(builder, n, WIDE, _ALONG, block)

        def any_block(at: Any, vectors: int) -> None:
            def tap_of(tap: Any, v: int) -> Any:
                return read(at, builder.add(tap, I64(v * WIDE)))

            store(folds.looped(tap_of, vectors), at)

        folds.by_count(sums)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), codegen


def sum_folded_row(row, weights, count, n, to, mirrored):  # type: ignore[no-untyped-def]
    """Sums of `count` elements of a row, beginning at each of n elements.

    If `mirrored` is not 0, it is the size of a row that is stored in reverse order.
    """
    _add_along(row, weights, count, max(n, WIDE), to, mirrored)
