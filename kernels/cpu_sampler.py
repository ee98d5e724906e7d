"""Source of the interpolating part of a CPU kernel: one line of the result at a time.

The rows that a line depends on are summed up into one float32 row, a loop over contiguous memory
with as many taps as it has rows; then every pixel of the line is a sum of a few neighbours in that
row. What follows in the group reads the line. So there is no full-size intermediate, only columns
and rows that are needed are read, and weights are computed once per sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .expr import Expr, walk
from .spec import Access

if TYPE_CHECKING:
    from .cpu import Writer

# Sums of up to this many rows have a loop of their own; longer ones are added in blocks of four.
MAX_ROWS = 5
BLOCK_ROWS = 4
MAX_COLUMNS = 6  # likewise for the neighbours in a row


class SamplerWriter:
    """Writes the lines of the sampler; works for one `Writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.spec = spec = writer.spec
        assert spec.sampler is not None
        self.value = spec.sampler.value
        self.axes = spec.sampler.axes
        self.last = len(self.axes) - 1
        self.lanes = spec.sampler.lanes
        self.pitch = 4 if self.lanes == 3 else self.lanes  # elements of a pixel in the line
        self.row_depth = len(spec.loop_axes) - (self.axes[-1] is not None)
        self.interleaved = all(self._runs_on(a) for a in spec.sampler_loads)

    def _runs_on(self, access: Access) -> bool:
        """Whether the lanes of all pixels in a row of an operand are one run of elements."""
        if not self._is_tapped(access):
            return True
        pixel, *lane = access.strides[self.spec.rank + self.last :]
        return pixel == self.lanes and lane in ([], [1])

    def _is_tapped(self, access: Access) -> bool:
        return len(access.strides) > self.spec.rank

    def read(self, e: Expr) -> str:
        """Source of a `sample` leaf."""
        axis = self.axes[-1]
        return f"row_f32(line, {'0' if axis is None else f'o_{axis}'} * {self.pitch} + {e.attr})"

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        for name in self.spec.sampler_areas:
            yield f"{name} = scratch + area_{name}"
        for k, axis in enumerate(self.axes):
            n = "1" if axis is None else f"n_{axis}"
            numbers = ", ".join(f"tap_{what}_{k}" for what in ("step", "at", "n", "in", "count"))
            yield f"low_{k}, high_{k} = fill_taps(first_{k}, weight_{k}, {n}, {numbers},"
            yield f"    tap_nearest_{k}, tap_base_{k}, tap_table_{k}, as_f32(tap_origin_{k}),"
            yield f"    as_f32(tap_scale_{k}), as_f32(tap_stretch_{k}))"
        # columns of the input that are needed, and how often its border pixels are repeated
        last = self.last
        yield f"begin = min(max(low_{last}, 0), tap_in_{last} - 1)"
        yield f"end = max(min(high_{last}, tap_in_{last}), begin + 1)"
        yield f"low = min(low_{last}, begin)"
        yield f"span, left, right = end - begin, begin - low, max(high_{last} - end, 0)"
        yield f"inner = sums + left * {4 * self.lanes}"
        yield f"row_count = {' * '.join(f'tap_count_{k}' for k in range(last)) or '1'}"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        for k in range(self.last):
            o = "0" if self.axes[k] is None else f"o_{self.axes[k]}"
            yield f"at_{k} = i64(get_i32(first_{k}, {o}))"
            yield f"weights_{k} = weight_{k} + {o} * tap_count_{k} * 4"
        if self.interleaved or self.lanes == 1:
            yield from self._sum_rows()
        else:
            yield f"for lane in range({self.lanes}):"
            yield from _indent(self._sum_rows())
        yield "if left + right > 0:"
        yield f"    pad_row(sums, left, span, right, {self.lanes})"
        yield from self._sum_columns()

    def _sum_rows(self) -> Iterator[str]:
        for rows in range(1, MAX_ROWS + 1):
            yield f"{'if' if rows == 1 else 'elif'} row_count == {rows}:"
            yield from _indent(self._rows(rows, "0", onto=False))
        yield "else:"
        yield from _indent(self._rows(BLOCK_ROWS, "0", onto=False))
        t = self.writer.fresh("t")
        yield f"    {t} = {BLOCK_ROWS}"
        for rows in (BLOCK_ROWS, 1):
            yield f"    while {t} + {rows} <= row_count:"
            yield from _indent(self._rows(rows, t, onto=True), 2)
            yield f"        {t} += {rows}"

    def _rows(self, rows: int, start: str, onto: bool) -> Iterator[str]:
        """The loop that adds `rows` rows from number `start` on; `onto` what is there already."""
        writer = self.writer
        e = writer.fresh("e")
        body: list[str] = []
        total = f"row_f32(inner, {self._place(e)})" if onto else ""
        for r in range(rows):
            weight, bases, lines = self._row(f"{start} + {r}")
            yield from lines
            text, tap = self._tap(bases, e)
            body += text
            name = writer.fresh("t")
            step = f"fma_f32({weight}, {tap}, {total})" if total else f"{weight} * {tap}"
            body.append(f"{name} = {step}")
            total = name
        yield f"for {e} in range({'span' if not self.interleaved else f'span * {self.lanes}'}):"
        yield from _indent(body)
        yield f"    store_f32_7(inner, {self._place(e)}, {total})"

    def _place(self, e: str) -> str:
        return e if self.interleaved or self.lanes == 1 else f"{e} * {self.lanes} + lane"

    def _row(self, t: str) -> tuple[str, dict[int, str], list[str]]:
        """(weight, where the row begins in each operand, lines) of row number `t`."""
        fresh = self.writer.fresh
        lines: list[str] = []
        rest = t
        taps: list[str] = []
        for k in range(self.last - 1, -1, -1):  # the last of these dimensions runs fastest
            tap = fresh("t")
            if k == 0:
                lines.append(f"{tap} = {rest}")
            else:
                whole = fresh("t")
                lines += [f"{whole} = ({rest}) // tap_count_{k}"]
                lines += [f"{tap} = ({rest}) - {whole} * tap_count_{k}"]
                rest = whole
            taps.insert(0, tap)
        weight = fresh("w")
        factors = [f"get_f32(weights_{k}, {tap})" for k, tap in enumerate(taps)]
        lines.append(f"{weight} = {' * '.join(factors) or 'f32(1.0)'}")
        bases: dict[int, str] = {}
        for load in walk([self.value]):
            if load.op != "load" or not self._is_tapped(self.spec.loads[load.attr]):
                continue
            slot = load.attr
            access = self.spec.loads[slot]
            terms = [self.writer.outer_offset(slot, {})]
            if not self.interleaved and len(access.strides) > self.spec.rank + self.last + 1:
                terms.append(f"lane * {self._stride(slot, access, self.last + 1)}")
            for k, tap in enumerate(taps):
                stride = self._stride(slot, access, k)
                terms.append(f"min(max(at_{k} + {tap}, 0), tap_in_{k} - 1) * {stride}")
            terms.append(f"begin * {self._stride(slot, access, self.last)}")
            bases[slot] = fresh("b")
            lines.append(f"{bases[slot]} = {' + '.join(terms)}")
        return weight, bases, lines

    def _stride(self, slot: int, access: Access, k: int) -> str:
        axis = self.spec.rank + k
        stride = access.strides[axis]
        return f"in_stride_{slot}_{axis}" if stride is None else str(stride)

    def _tap(self, bases: dict[int, str], e: str) -> tuple[list[str], str]:
        """Lines that compute the value of one tap, and its name."""
        lines: list[str] = []
        for x in walk([self.value]):
            if x.op == "const":
                continue
            if x.op == "load" and x.attr in bases:
                slot = x.attr
                by = self._stride(slot, self.spec.loads[slot], self.last)
                where = e if self.interleaved or by == "1" else f"{e} * {by}"
                text = f"load_{x.dtype}(in_{slot}, {bases[slot]} + {where})"
            elif x.op == "load":
                text = f"load_{x.dtype}(in_{x.attr}, {self.writer.outer_offset(x.attr, {})})"
            else:
                text = self.writer.print(x)
            lines.append(self.writer.assign(x, text))
        return lines, self.writer.ref(self.value)

    def _sum_columns(self) -> Iterator[str]:
        k, axis = self.last, self.axes[-1]
        n = "1" if axis is None else f"n_{axis}"
        numbers = f"sums, first_{k}, weight_{k}, {n}, tap_count_{k}, low, line"
        for columns in range(1, MAX_COLUMNS + 1):
            yield f"{'if' if columns == 1 else 'elif'} tap_count_{k} == {columns}:"
            yield f"    sum_columns_{self.lanes}_{columns}({numbers})"
        yield "else:"
        yield f"    sum_columns_{self.lanes}_0({numbers})"


def _indent(lines: Iterator[str] | list[str], by: int = 1) -> Iterator[str]:
    return ("    " * by + line for line in lines)
