"""Source of the interpolating part of a CPU kernel: one line of the result at a time.

The rows that a line depends on are summed up into one float32 row, a loop over contiguous memory
with as many taps as it has rows; then every pixel of the line is a sum of a few neighbours in that
row. Or the other way round, where upstream does that (see NOTE [order of sums]): the last few rows
are kept, each with its columns summed up, and the line is a sum of these. What follows in the group
reads the line. So there is no full-size intermediate, only columns and rows that are needed are
read, and weights are computed once per sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import dtypes as dt
from .expr import Expr, walk
from .spec import GROUP, Access

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
        return f"row_f32(line, {e.attr} * room + {o})"

    def _n(self, k: int) -> str:
        """Positions of the result along a dimension."""
        return "1" if self.axes[k] is None else f"n_{self.axes[k]}"

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        for name in self.spec.sampler_areas:
            yield f"{name} = scratch + area_{name}"
        # pixels of a line, in groups
        yield f"room = ({self._n(self.last)} + {GROUP - 1}) // {GROUP} * {GROUP}"
        for k in range(self.last + 1):
            room, places = (
                ("room", "1, room") if k == self.last else (self._n(k), f"tap_count_{k}, 1")
            )
            numbers = ", ".join(f"tap_{what}_{k}" for what in ("step", "at", "n", "in", "count"))
            yield f"fill_taps(first_{k}, weight_{k}, {self._n(k)}, {room}, {places}, {numbers},"
            yield f"    tap_nearest_{k}, tap_base_{k}, tap_table_{k}, as_f32(tap_origin_{k}),"
            yield f"    as_f32(tap_scale_{k}), as_f32(tap_stretch_{k}))"
            yield f"low_{k} = i64(get_i32(first_{k}, {room}))"
            yield f"high_{k} = i64(get_i32(first_{k}, {room} + 1))"
        self.writer.helpers |= {"fill_taps", "pad_row", f"sum_columns_{self.lanes}"}
        # columns of the input that are needed, and how often its border pixels are repeated
        last = self.last
        yield f"begin = min(max(low_{last}, 0), tap_in_{last} - 1)"
        yield f"end = max(min(high_{last}, tap_in_{last}), begin + 1)"
        yield f"low = min(low_{last}, begin)"
        yield f"span, left, right = end - begin, begin - low, max(high_{last} - end, 0)"
        yield f"inner = sums + left * {4 * self.lanes}"
        if self.last < 2:
            yield "one = stack_256()"
            yield "put_f32(one, 0, f32(1.0))"
        if self.last == 1:
            slot = self.writer.fresh("s")
            yield f"for {slot} in range(tap_last_0 * tap_count_0 * {self.channels // self.lanes}):"
            yield f"    put_i64(kept, {slot}, -1)"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        for k in range(self.last):
            o = "0" if self.axes[k] is None else f"o_{self.axes[k]}"
            yield f"at_{k} = i64(get_i32(first_{k}, {o}))"
            yield f"weights_{k} = weight_{k} + {o} * tap_count_{k} * 4"
        if self.lanes == self.channels:
            yield from self._sums("0")
        else:
            yield f"for lane in range({self.channels}):"
            yield from _indent(self._sums("lane"))

    def _sums(self, lane: str) -> Iterator[str]:
        """Sum up rows, then columns, or the other way round."""
        line = f"line + {lane} * 4 * room" if lane != "0" else "line"
        rows = self._sum_rows if self._plain_load() is None else self._call_sum_rows
        if self.last == 1:
            yield "if tap_last_0 == 0:"
            yield from _indent([*rows(), *self._columns(line)])
            yield "else:"
            yield from _indent(self._columns_first(lane, line))
        else:
            yield from rows()
            yield from self._columns(line)

    def _columns(self, to: str) -> Iterator[str]:
        """Repeat the border pixels of a row, and sum up its columns."""
        yield "if left + right > 0:"
        yield f"    pad_row(sums, left, span, right, {self.lanes})"
        k = self.last
        taps = f"first_{k}, weight_{k}, room, tap_count_{k}"
        yield f"sum_columns_{self.lanes}(sums, {taps}, low, {to})"

    def _columns_first(self, lane: str, line: str) -> Iterator[str]:
        """NOTE [order of sums] Upstream takes the cheaper order (ndd/ops/resize_geometry.py). Sums
        differ in their last bits, and these decide where a result is exactly a half: one byte in 36
        if 2 pixels become 3. So we take the same order, and then all bits agree.

        `kept` tells which row is in which slot of the ring.
        """
        t, r, slot, name = (self.writer.fresh(stem) for stem in "trsk")
        size = f"room * {self.lanes}"
        first = f"{lane} * tap_count_0 + " if lane != "0" else ""
        yield f"for {t} in range(tap_count_0):"
        yield f"    {r} = {_clamped(0, t)}"
        yield f"    {slot} = {first}{r} % tap_count_0"
        yield f"    {name} = {self._outer_number()} * tap_in_0 + {r}"
        yield f"    if get_i64(kept, {slot}) != {name}:"
        yield f"        put_i64(kept, {slot}, {name})"
        rows = self._sum_rows if self._plain_load() is None else self._call_sum_rows
        yield from _indent([*rows(r), *self._columns(f"ring + {slot} * 4 * {size}")], 2)
        self.writer.helpers.add("sum_rows_f32_ring")
        source = f"ring + {lane} * tap_count_0 * 4 * {size}" if lane != "0" else "ring"
        taps = "at_0, tap_in_0, weights_0, tap_count_0, f32(1.0), 0"
        yield f"sum_rows_f32_ring({source}, 0, {size}, {taps}, {size}, {line})"

    def _outer_number(self) -> str:
        """Number of the position along all axes that are not interpolated."""
        number = "0"
        for axis in self.spec.loop_axes:
            if axis not in self.axes:
                number = f"o_{axis}" if number == "0" else f"({number} * n_{axis} + o_{axis})"
        return number

    def _plain_load(self) -> Expr | None:
        """The load that a tap is, if it is no more than that and its rows are contiguous."""
        e = self.value
        while e.op == "cast" and e.dtype is dt.float32:
            e = e.args[0]
        tapped = e.op == "load" and self._is_tapped(self.spec.loads[e.attr])
        return e if tapped and self.contiguous else None

    def _call_sum_rows(self, row: str | None = None) -> Iterator[str]:
        """Sum up rows along the last but one dimension, for all taps of those before it; or take
        just one row as it is."""
        load, last = self._plain_load(), self.last
        assert load is not None
        slot, access = load.attr, self.spec.loads[load.attr]
        name = f"sum_rows_{access.dtype}"
        self.writer.helpers.add(name)
        terms = [self._outer(slot, access), f"begin * {self._stride(slot, access, last)}"]
        scale, onto, depth = "f32(1.0)", "0", 0
        for k in range(last - 1):  # volumes
            yield "    " * depth + f"for tap_{k} in range(tap_count_{k}):"
            depth += 1
            terms.append(f"{_clamped(k, f'tap_{k}')} * {self._stride(slot, access, k)}")
            factors = [f"get_f32(weights_{j}, tap_{j})" for j in range(k + 1)]
            scale, onto = " * ".join(factors), " + ".join(f"tap_{j}" for j in range(k + 1))
        k = last - 1
        if row is not None:
            rows = f"{self._stride(slot, access, 0)}, {row}, tap_in_0, one, 1"
        elif last:
            stride = self._stride(slot, access, k)
            rows = f"{stride}, at_{k}, tap_in_{k}, weights_{k}, tap_count_{k}"
        else:
            rows = "0, 0, 1, one, 1"
        offset = " + ".join(t for t in terms if t != "0") or "0"
        count = f"span * {self.lanes}"
        yield (
            "    " * depth + f"{name}(in_{slot}, {offset}, {rows}, {scale}, {onto}, {count}, inner)"
        )

    def _sum_rows(self, row: str | None = None) -> Iterator[str]:
        """The same for values that are computed first, one row at a time."""
        if row is not None or not self.last:
            bases, lines = self._bases([] if row is None else [row])
            yield from lines
            yield from self._each_value(bases, "{}")
            return
        fresh = self.writer.fresh
        t, weight = fresh("t"), fresh("w")
        count = " * ".join(f"tap_count_{k}" for k in range(self.last))
        yield f"for {t} in range({count}):"
        taps, lines = self._taps(t)
        factors = [f"get_f32(weights_{k}, {tap})" for k, tap in enumerate(taps)]
        bases, more = self._bases([_clamped(k, tap) for k, tap in enumerate(taps)])
        yield from _indent([*lines, f"{weight} = {' * '.join(factors)}", *more])
        product = f"{weight} * {{}}"
        for test, total in (
            (f"if {t} == 0:", product),
            ("else:", f"row_f32(inner, {{e}}) + {product}"),
        ):
            yield f"    {test}"
            yield from _indent(self._each_value(bases, total), 2)

    def _each_value(self, bases: dict[int, str], total: str) -> Iterator[str]:
        """A loop over the values of a row, that stores what is made of each of them."""
        e = self.writer.fresh("e")
        lines, value = self._tap(bases, e)
        yield f"for {e} in range(span * {self.lanes}):"
        yield from _indent([*lines, f"store_f32_7(inner, {e}, {total.format(value, e=e)})"])

    def _taps(self, t: str) -> tuple[list[str], list[str]]:
        """The taps of all dimensions but the last at number `t`, and lines that find them."""
        lines: list[str] = []
        taps: list[str] = []
        rest = t
        for k in range(self.last - 1, 0, -1):  # the last of these dimensions runs fastest
            tap, whole = self.writer.fresh("t"), self.writer.fresh("t")
            lines += [
                f"{whole} = {rest} // tap_count_{k}",
                f"{tap} = {rest} - {whole} * tap_count_{k}",
            ]
            taps.insert(0, tap)
            rest = whole
        return [rest, *taps], lines

    def _bases(self, places: list[str]) -> tuple[dict[int, str], list[str]]:
        """Where a row begins in each operand, given its place along all dimensions but the last."""
        bases: dict[int, str] = {}
        lines: list[str] = []
        for load in walk([self.value]):
            if load.op != "load" or not self._is_tapped(self.spec.loads[load.attr]):
                continue
            slot = load.attr
            access = self.spec.loads[slot]
            terms = [self._outer(slot, access)]
            terms += [f"{p} * {self._stride(slot, access, k)}" for k, p in enumerate(places)]
            terms.append(f"begin * {self._stride(slot, access, self.last)}")
            bases[slot] = self.writer.fresh("b")
            lines.append(f"{bases[slot]} = {' + '.join(terms)}")
        return bases, lines

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


def _clamped(k: int, tap: str) -> str:
    """The place of a tap along dimension k, if need be the border's."""
    return f"min(max(at_{k} + {tap}, 0), tap_in_{k} - 1)"


def _indent(lines: Iterator[str] | list[str], by: int = 1) -> Iterator[str]:
    return ("    " * by + line for line in lines)
