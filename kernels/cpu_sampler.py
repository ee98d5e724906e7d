"""Source of the interpolating part of a CPU kernel: one line of the result at a time.

The rows that a line depends on are summed up into one float32 row, a loop over contiguous memory
with as many taps as it has rows; then every pixel of the line is a sum of a few neighbours in that
row. What follows in the group reads the line. So there is no full-size intermediate, only columns
and rows that are needed are read, and weights are computed once per sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import dtypes as dt
from .expr import Expr, walk
from .spec import Access

if TYPE_CHECKING:
    from .cpu import Writer


class SamplerWriter:
    """Writes the lines of the sampler; works for one `Writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.spec = spec = writer.spec
        assert spec.sampler is not None
        self.value = spec.sampler.value
        self.axes = spec.sampler.axes
        self.last = len(self.axes) - 1
        self.channels = spec.sampler.lanes
        self.row_depth = len(spec.loop_axes) - (self.axes[-1] is not None)
        # Channels that lie side by side are interpolated together, others one after the other.
        runs_on = all(self._runs_on(a, self.channels) for a in spec.sampler_loads)
        self.lanes = self.channels if runs_on else 1
        self.contiguous = all(self._runs_on(a, self.lanes) for a in spec.sampler_loads)
        self.pitch = 4 if self.lanes == 3 else self.lanes  # elements of a pixel in the line

    def _runs_on(self, access: Access, lanes: int) -> bool:
        """Whether so many lanes of all pixels in a row of an operand are one run of elements."""
        if not self._is_tapped(access):
            return True
        pixel, *lane = access.strides[self.spec.rank + self.last :] or (0,)
        return pixel == lanes and (lanes == 1 or lane == [1])

    def _is_tapped(self, access: Access) -> bool:
        return len(access.strides) > self.spec.rank

    def read(self, e: Expr) -> str:
        """Source of a `sample` leaf."""
        o = "0" if self.axes[-1] is None else f"o_{self.axes[-1]}"
        if self.lanes < self.channels:
            return f"row_f32(line, {e.attr} * {self._n()} + {o})"
        return f"row_f32(line, {o} * {self.pitch} + {e.attr})"

    def _n(self) -> str:
        """Pixels of a line."""
        return "1" if self.axes[-1] is None else f"n_{self.axes[-1]}"

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        for name in self.spec.sampler_areas:
            yield f"{name} = scratch + area_{name}"
        for k, axis in enumerate(self.axes):
            n = "1" if axis is None else f"n_{axis}"
            numbers = ", ".join(f"tap_{what}_{k}" for what in ("step", "at", "n", "in", "count"))
            yield f"fill_taps(first_{k}, weight_{k}, {n}, {numbers},"
            yield f"    tap_nearest_{k}, tap_base_{k}, tap_table_{k}, as_f32(tap_origin_{k}),"
            yield f"    as_f32(tap_scale_{k}), as_f32(tap_stretch_{k}))"
            yield f"low_{k} = i64(get_i32(first_{k}, {n}))"
            yield f"high_{k} = i64(get_i32(first_{k}, {n} + 1))"
        self.writer.helpers |= {"fill_taps", "pad_row", f"sum_columns_{self.lanes}"}
        # columns of the input that are needed, and how often its border pixels are repeated
        last = self.last
        yield f"begin = min(max(low_{last}, 0), tap_in_{last} - 1)"
        yield f"end = max(min(high_{last}, tap_in_{last}), begin + 1)"
        yield f"low = min(low_{last}, begin)"
        yield f"span, left, right = end - begin, begin - low, max(high_{last} - end, 0)"
        yield f"inner = sums + left * {4 * self.lanes}"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        for k in range(self.last):
            o = "0" if self.axes[k] is None else f"o_{self.axes[k]}"
            yield f"at_{k} = i64(get_i32(first_{k}, {o}))"
            yield f"weights_{k} = weight_{k} + {o} * tap_count_{k} * 4"
        if self.lanes == self.channels:
            yield from self._sums("line")
        else:
            yield f"for lane in range({self.channels}):"
            yield from _indent(self._sums(f"line + lane * 4 * {self._n()}"))

    def _sums(self, line: str) -> Iterator[str]:
        """Sum up rows, repeat the border pixels of the result, and sum up its columns."""
        plain = self._plain_load()
        yield from self._sum_rows() if plain is None else self._call_sum_rows(plain)
        yield "if left + right > 0:"
        yield f"    pad_row(sums, left, span, right, {self.lanes})"
        k = self.last
        numbers = f"sums, first_{k}, weight_{k}, {self._n()}, tap_count_{k}, low, {line}"
        yield f"sum_columns_{self.lanes}({numbers})"

    def _plain_load(self) -> Expr | None:
        """The load that a tap is, if it is no more than that and its rows are contiguous."""
        e = self.value
        while e.op == "cast" and e.dtype is dt.float32:
            e = e.args[0]
        tapped = e.op == "load" and self._is_tapped(self.spec.loads[e.attr])
        return e if tapped and self.contiguous else None

    def _call_sum_rows(self, load: Expr) -> Iterator[str]:
        """Sum up rows along the last but one dimension, for all taps of those before it."""
        slot, last = load.attr, self.last
        access = self.spec.loads[slot]
        name = f"sum_rows_{access.dtype}"
        self.writer.helpers.add(name)
        terms = [self._outer(slot, access), f"begin * {self._stride(slot, access, last)}"]
        scale, onto, depth = "f32(1.0)", "0", 0
        for k in range(last - 1):  # volumes
            yield "    " * depth + f"for tap_{k} in range(tap_count_{k}):"
            depth += 1
            place = f"min(max(at_{k} + tap_{k}, 0), tap_in_{k} - 1)"
            terms.append(f"{place} * {self._stride(slot, access, k)}")
            factors = [f"get_f32(weights_{j}, tap_{j})" for j in range(k + 1)]
            scale, onto = " * ".join(factors), " + ".join(f"tap_{j}" for j in range(k + 1))
        if last:
            k = last - 1
            rows = (
                f"{self._stride(slot, access, k)}, at_{k}, tap_in_{k}, weights_{k}, tap_count_{k}"
            )
        else:  # a single row, as it is
            yield "one = stack_256()"
            yield "put_f32(one, 0, f32(1.0))"
            rows = "0, 0, 1, one, 1"
        offset = " + ".join(t for t in terms if t != "0") or "0"
        count = f"span * {self.lanes}"
        yield (
            "    " * depth + f"{name}(in_{slot}, {offset}, {rows}, {scale}, {onto}, {count}, inner)"
        )

    def _sum_rows(self) -> Iterator[str]:
        """Sum up rows of values that are computed first, one row at a time."""
        t = self.writer.fresh("t")
        count = " * ".join(f"tap_count_{k}" for k in range(self.last)) or "1"
        yield f"for {t} in range({count}):"
        weight, bases, lines = self._row(t)
        yield from _indent(lines)
        for test, onto in ((f"if {t} == 0:", False), ("else:", True)):
            e = self.writer.fresh("e")
            text, tap = self._tap(bases, e)
            total = (
                f"fma_f32({weight}, {tap}, row_f32(inner, {e}))" if onto else f"{weight} * {tap}"
            )
            store = f"store_f32_7(inner, {e}, {total})"
            loop = f"for {e} in range(span * {self.lanes}):"
            yield f"    {test}"
            yield from _indent([loop, *_indent([*text, store])], 2)

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
            terms = [self._outer(slot, access)]
            for k, tap in enumerate(taps):
                stride = self._stride(slot, access, k)
                terms.append(f"min(max(at_{k} + {tap}, 0), tap_in_{k} - 1) * {stride}")
            terms.append(f"begin * {self._stride(slot, access, self.last)}")
            bases[slot] = fresh("b")
            lines.append(f"{bases[slot]} = {' + '.join(terms)}")
        return weight, bases, lines

    def _outer(self, slot: int, access: Access) -> str:
        """Where an operand begins at the output's position, for the channel at hand."""
        offset = self.writer.outer_offset(slot, {})
        if self.lanes == self.channels:
            return offset
        return f"{offset} + lane * {self._stride(slot, access, self.last + 1)}"

    def _stride(self, slot: int, access: Access, k: int) -> str:
        axis = self.spec.rank + k
        stride = access.strides[axis] if axis < len(access.strides) else 0
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
                where = e if self.contiguous else f"{e} * {by}"
                text = f"load_{x.dtype}(in_{slot}, {bases[slot]} + {where})"
            elif x.op == "load":
                text = f"load_{x.dtype}(in_{x.attr}, {self.writer.outer_offset(x.attr, {})})"
            else:
                text = self.writer.print(x)
            lines.append(self.writer.assign(x, text))
        return lines, self.writer.ref(self.value)


def _indent(lines: Iterator[str] | list[str], by: int = 1) -> Iterator[str]:
    return ("    " * by + line for line in lines)
