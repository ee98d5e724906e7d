"""Lines of a kernel that does nothing but sum windows of bytes and round the sums to bytes.

Such a kernel needs no planes: rows in the ring keep their channels side by side, and the sums are
stored where the result wants them (native/byte_windows.py). A 3 × 3 filter of 375×500×3 bytes takes
a third of the time so.

NOTE [means of bytes] If all N weights are float32(1/N), and N is odd, the sums of bytes are added
up as integers, which takes a row and a column of additions instead of N products. The rounded
result is that of the sum tap by tap in float32. For the exact mean lies at least 1/(2N) away from
the nearest half, whereas the weights are off by at most 2**-24 of the mean, and each of the N
roundings by 2**-24 of 256: together 256 (N + 1) / 2**24, which is less for N up to `MEAN_TAPS`.
The integers divide by multiplication: with 2**b < N < 2**(b + 1), (sum + N // 2) * f >> (16 + b)
is exact for f = ceil(2**(16 + b) / N), because f is too large by less than 1, and the sum of N
bytes is less than 2**(16 + b) / N. Sums stay below 2**16.
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
        """Whether the window is a mean: see NOTE [means of bytes]."""
        tap, bits = self.writer.fresh("t"), self.writer.fresh("b")
        yield "all_taps = win_count_0_0 * win_count_0_1"
        yield f"is_mean = (all_taps > 1) & (all_taps <= {MEAN_TAPS}) & (all_taps & 1 == 1)"
        yield f"is_mean = is_mean & ((high - low) * {self.column} >= {BYTE_LANES})"
        yield f"is_mean = is_mean & (used >= {BYTE_LANES})"
        yield "if is_mean:"
        yield f"    {bits} = load_i32(weights, win_start_0_0)"
        yield "    is_mean = load_f32(weights, win_start_0_0) == f32(1.0) / f32(all_taps)"
        yield f"    for {tap} in range(all_taps):"
        yield f"        is_mean &= load_i32(weights, win_start_0_0 + {tap}) == {bits}"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        yield "if is_mean:"
        yield from indented(self._mean())
        yield "else:"
        yield from indented(self._sums())
        own, out = "summed + ahead * size * 4", self._stored_row("0")
        turned = f"{self.windows._n(1)}, win_step_1, win_at_1 - lowest, columns"
        yield "if not is_straight:"
        yield f"    {self._call('turn_row__u8')}({own}, 0, {out}, 0, 1, {self.column}, {turned})"

    def _sums(self) -> Iterator[str]:
        yield f"ahead = {self.windows._number()} - made"
        yield "if (ahead < 0) | (ahead > more):"
        yield "    made, ahead = made + ahead, 0"
        yield from indented(self.windows._lines())

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
        """Widen a row with its border to float32."""
        source = f"in_{self.slot} + {self.windows.source._offset(self.slot, [place, 'low'])}"
        at = f"{base} + (low - origin) * {4 * self.column}"
        yield f"{self._call('widen_row_u8_1')}({source}, (high - low) * {self.column}, {at}, 0)"
        yield from self._pad(base, dt.float32)

    def _pad(self, base: str, dtype: dt.DType) -> Iterator[str]:
        pad = self._call(f"pad_ends__{dtype}_{self.core.border}")
        yield "if (begin < low) | (high < end):"
        yield f"    {pad}({base}, 1, 0, 1, pitch, {self.column}, origin, begin, low, high, end, win_in_1)"

    def _mean(self) -> Iterator[str]:
        tap, v, s = (self.writer.fresh(stem) for stem in "tvs")
        yield "ahead = 0"
        yield f"for {tap} in range(win_count_0_0):"
        yield from indented(self.windows._place(0, f"at_0 - win_anchor_0_0 + {tap}", v, s))
        source = f"in_{self.slot} + {self.windows.source._offset(self.slot, [s, 'low'])}"
        yield f"    put_i64(taps, {tap}, {source})"
        across = f"raw + (low - origin) * {2 * self.column}"
        rows = f"taps, win_count_0_0, (high - low) * {self.column}, {across}"
        yield f"{self._call('add_byte_rows')}({rows})"
        yield from self._pad("raw", dt.uint16)
        begin = f"raw + (begin - origin) * {2 * self.column}"
        sums = f"{begin}, {self.column}, win_count_0_1, used, all_taps"
        yield f"{self._call('mean_row')}({sums}, {self.target('0')})"

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
