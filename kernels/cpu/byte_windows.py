"""Lines of a kernel that does nothing but sum windows of bytes and round the sums to bytes.

Such a kernel needs no planes: rows in the ring keep their channels side by side, and the sums are
stored where the result wants them (native/rounded_sums.py). A 3 × 3 filter of 375×500×3 bytes takes
149 µs so, else 223; a mean of 5 × 5 68 µs, else 261 (Zen 5, one thread).

NOTE [means of bytes] If all N weights other than 0 are float32(1/N), and N is odd, bytes are added
up as integers: along rows that enter the ring and then down the ring, or if some weights are 0, all
N where they are. The rounded result is that of the sum tap by tap in float32. For the exact mean
lies at least 1/(2N) away from the nearest half, whereas the weights are off by at most 2**-24 of
the mean, and each of the N roundings by 2**-24 of 256: together 256 (N + 1) / 2**24, which is less
for N up to `MEAN_TAPS`. The integers divide by multiplication: with 2**b < N < 2**(b + 1),
(sum + N // 2) * f >> (16 + b) is exact for f = ceil(2**(16 + b) / N), because f is too large by
less than 1, and the sum of N bytes is less than 2**(16 + b) / N. Sums stay below 2**16.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ir import dtypes as dt
from ..ir import expr as ex
from ..ir.expr import Expr
from .cores import indented
from .native.block_sizes import BYTE_LANES, MEAN_TAPS

if TYPE_CHECKING:
    from .windows import WindowLines


class ByteLines:
    """Writes such lines, for one `WindowLines`."""

    def __init__(self, windows: WindowLines) -> None:
        self.windows, self.writer, self.core = windows, windows.writer, windows.core
        slot = windows.source.plain_load()
        assert slot is not None
        self.slot = slot
        self.column = windows.core.lanes

    # -- once per sample -----------------------------------------------------------------------

    def sizes(self) -> Iterator[str]:
        """The sizes of rows, and whether sums may be stored where the result wants them."""
        yield f"size = (pitch * {self.column} + 15) // 16 * 16"
        yield f"used = columns * {self.column}"
        n = self.windows._n(1)
        yield f"is_straight = (win_step_1 == 1) & (columns == {n}) & (used >= {BYTE_LANES})"

    def prepare(self) -> Iterator[str]:
        """Find out whether the sums are means, of all taps or of some.

        See NOTE [means of bytes]. `mean` is the number of these taps, or 0.
        """
        tap = self.writer.fresh("t")
        # The list of taps has one with a weight of +0, if there are any.
        yield "mean = few - (zeros > 0)"
        yield f"is_mean = (mean > 1) & (mean <= {MEAN_TAPS}) & (mean & 1 == 1)"
        yield f"is_mean = is_mean & (used >= {BYTE_LANES})"
        yield f"for {tap} in range(few if is_mean else 0):"
        yield f"    weight = get_f32(factors, {tap})"
        yield "    is_mean &= (weight == f32(0.0)) | (weight == f32(1.0) / f32(mean))"
        yield "mean = mean if is_mean else 0"
        yield "is_dense = mean == win_count_0_0 * win_count_0_1"
        yield "if mean > 0 and not is_dense:"
        yield "    listed, few = few, 0"
        yield f"    for {tap} in range(listed):"
        yield f"        if get_f32(factors, {tap}) != f32(0.0):"
        for part in (0, 1):
            number = f"get_i64(chosen, 2 * {tap} + {part})"
            yield f"            put_i64(chosen, 2 * few + {part}, {number})"
        yield "            few += 1"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        yield f"ahead = {self.windows._line_number()} - made"
        yield "if (ahead < 0) | (ahead > more):"
        yield "    made, ahead = made + ahead, 0"
        yield from indented(self.windows._lines())
        own, out = "summed + ahead * size * 4", self._stored_row("0")
        turned = f"{self.windows._n(1)}, win_step_1, win_at_1 - lowest, columns"
        yield "if not is_straight:"
        yield f"    {self._call('turn_row__u8')}({own}, 0, {out}, 0, 1, {self.column}, {turned})"

    def target(self, place: str) -> str:
        """Where line `place` of those that are summed together goes."""
        row = self._stored_row(place)
        return f"({row}) if is_straight else (summed + {place} * size * 4)"

    def _stored_row(self, ahead: str) -> str:
        """The address of the row of the result that is `ahead` of the current one."""
        windows, store = self.windows, self.writer.stores[0]
        at: dict[int, int | str] = {a: 0 for a in store[0]}
        axis, last = windows.axes
        assert last is not None
        at[last] = 0
        if axis is not None:
            at[axis] = f"(o_{axis} + {ahead})"
        offset = self.writer.offset("out", 0, windows.spec.stores[0], tuple(at.items()))
        return f"out_0 + {offset}"

    def keep(self, place: str, base: str) -> Iterator[str]:
        """Compute a row of the ring, with its border: float32, or integers if sums are means."""
        source = f"in_{self.slot} + {self.windows.source._offset(self.slot, [place, 'low'])}"
        count, start = f"(high - low) * {self.column}", f"(low - origin) * {self.column}"
        yield "if mean == 0:"
        to = f"{base} + {start} * 4"
        yield f"    {self._call('widen_row_u8_1')}({source}, {count}, {to}, 0)"
        yield from indented(self._pad(base, dt.float32))
        yield "else:"
        yield f"    whole = raw if is_dense else {base}"
        yield f"    {self._call('copy_row')}({source}, whole + {start}, {count})"
        yield from indented(self._pad("whole", dt.uint8))
        yield "    if is_dense:"
        first = f"raw + (begin - origin) * {self.column}"
        across = f"{first}, {self.column}, win_count_0_1, used, {base}"
        yield f"        {self._call('add_across')}({across})"

    def _pad(self, base: str, dtype: dt.DType) -> Iterator[str]:
        pad = self._call(f"pad_ends__{dtype}_{self.core.border}")
        where = f"pitch, {self.column}, origin, begin, low, high, end, win_in_1"
        yield "if (begin < low) | (high < end):"
        yield f"    {pad}({base}, 1, 0, 1, {where})"

    def means(self) -> Iterator[str]:
        """The lines of means, once their rows are in the ring."""
        windows, tap = self.windows, self.writer.fresh("t")
        yield "if is_dense:"
        yield f"    {tap} = 0"

        def body(slot: str, number: str) -> Iterator[str]:
            yield f"put_i64(taps, {tap}, ring_0 + {slot} * size * 4)"
            yield f"{tap} += 1"

        spans = {0: ("win_anchor_0_0", "win_count_0_0 + more")}
        yield from indented(windows._over_rows(body, spans))
        down = "taps, win_count_0_0, more, used, mean, outs"
        yield f"    {self._call('mean_down')}({down})"
        yield "else:"
        mean_of = f"{self._call('mean_of')}(taps, few, used, get_i64(outs, {{}}))"
        yield from indented(windows._sum_chosen(self.column, mean_of))

    def _call(self, helper: str) -> str:
        self.writer.helpers.add(helper)
        return helper


def sums_to_bytes(windows: WindowLines) -> bool:
    """Whether a kernel only sums windows of bytes in memory and stores the sums as bytes."""
    core, spec, slot = windows.core, windows.spec, windows.source.plain_load()
    if not windows.is_direct or windows.last != 1 or slot is None or core.border == "constant":
        return False
    if windows.source.inner is not None or spec.loads[slot].dtype is not dt.uint8:
        return False
    tail: tuple[int | None, ...] = spec.loads[slot].strides[windows.source.last :]
    if tail != ((core.lanes, 1) if core.lanes > 1 else (1,)):
        return False
    return windows.axes[1] is not None and _is_stored_as_is(windows)


def _is_stored_as_is(windows: WindowLines) -> bool:
    spec, stores, lanes = windows.spec, windows.writer.stores, windows.core.lanes
    access, axis = spec.stores[0], windows.axes[1]
    assert axis is not None
    if len(spec.stores) > 1 or access.dtype is not dt.uint8 or access.strides[axis] != lanes:
        return False
    if access.guarded or len(stores) != lanes:
        return False
    for point, _, value in stores:
        lane = sum(k for a, k in point.items() if access.strides[a] == 1)
        if value != ex.convert(Expr("core", dt.float32, (), lane), dt.uint8, "even"):
            return False
    return True
