"""`SeparableSum` → source of the interpolating part of a CPU kernel, one output line at a time.

Rows first: the kernel adds the weighted input rows of a line into one float32 row, in loops over
contiguous memory. Each pixel of the line is then a weighted sum of a few neighbours in that row.

Columns first, if upstream uses that order (see NOTE [order of sums]): the kernel sums the columns
of each input row (for images eight rows at once, see native/band_sums.py), keeps the last few of
these rows in a ring, and adds them up into the line.

Rows of a volume are summed along two dimensions: first `a`, then `b`. The other expressions of the
group read the line. So no full-size intermediate exists, the kernel reads only the rows and columns
that it needs, and it computes weights once per sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..ir import dtypes as dt
from ..ir.core import Column
from ..ir.expr import Expr, walk
from ..ir.spec import Access, KernelSpec
from .cores import Array, CpuCore, indented
from .native.block_sizes import BAND_COLUMNS, BAND_ROWS, GROUP

if TYPE_CHECKING:
    from .render import Writer

Places = dict[str, str]  # where a row lies along "a" and, in a volume, along "b"


# Further areas of scratch memory, by the number of dimensions: the ring of rows and the row numbers
# in it if columns are summed first; a band of rows (images); one term of the sum along b (volumes).
_MORE_AREAS = {1: (), 2: ("tap_kept", "ring", "band"), 3: ("tap_kept", "ring", "part")}


class SeparableLines(CpuCore):
    """Writes a `SeparableSum`."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        spec, core = self.spec, writer.spec.core
        assert core is not None
        self.value = core.value
        self.axes = core.axes
        self.last = len(self.axes) - 1
        self.rows = "ab"[: self.last]
        self.channels = core.lanes
        # Channels that are contiguous in memory are interpolated together, others one by one.
        runs_on = all(self._runs_on(a, self.channels) for a in spec.core_loads)
        self.lanes = self.channels if runs_on else 1
        self.contiguous = all(self._runs_on(a, self.lanes) for a in spec.core_loads)

    @property
    def line_depth(self) -> int:
        return len(self.spec.loop_axes) - (self.axes[-1] is not None)

    @classmethod
    def areas(cls, spec: KernelSpec) -> tuple[str, ...]:
        assert spec.core is not None
        dims = range(len(spec.core.axes))
        own = (f"{what}_{k}" for k in dims for what in ("first", "weight"))
        return (*own, "sums", "tap_line", *_MORE_AREAS[len(dims)])

    @classmethod
    def area_bytes(cls, spec: KernelSpec, numbers: Callable[[Column], Array]) -> list[Array]:
        core = spec.core
        assert core is not None
        lanes, last = core.lanes, len(core.axes) - 1
        areas: list[Array] = []
        n_in = n_out = count = numbers(("tap_in", last))
        for k, axis in enumerate(core.axes):
            n_in, count = numbers(("tap_in", k)), numbers(("tap_count", k))
            n_out = np.ones_like(n_in) if axis is None else numbers(("n", axis))
            if k == last:
                n_out = -(-n_out // GROUP) * GROUP
            areas += [4 * n_out + 8, 4 * n_out * count]  # first taps, weights
        # `sums` holds a row of the input, with its border repeated; `tap_line`, a line of output.
        sums, line = 4 * lanes * (n_in + 2 * count + 2), 4 * lanes * n_out
        return [*areas, sums, line, *cls._row_areas(last, lanes, numbers, sums, line)]

    @staticmethod
    def _row_areas(
        last: int, lanes: int, numbers: Callable[[Column], Array], sums: Array, line: Array
    ) -> list[Array]:
        """Bytes per sample of the areas in `_MORE_AREAS`."""
        if last == 0:
            return []
        more = BAND_ROWS - 1 if last == 1 else 0
        slots = np.ones_like(line)
        turns = [numbers(("tap_turn", k)) for k in range(last + 1)]
        for k in range(last):
            slots = slots * np.minimum(numbers(("tap_count", k)) + more, numbers(("tap_in", k)))
        is_first = turns[last] < np.min(turns[:last], axis=0)
        slots = slots * is_first
        areas = [8 * lanes * slots, slots * line]
        # A band holds its elements as floats and as bytes, and the sums of eight pixels.
        band = lanes * BAND_ROWS * (5 * BAND_COLUMNS + 4 * GROUP) * is_first
        return [*areas, band if last == 1 else np.maximum(sums, line)]

    def _runs_on(self, access: Access, lanes: int) -> bool:
        """Whether a row of an operand is contiguous if each pixel has this many lanes."""
        if not self._is_tapped(access):
            return True
        pixel, *lane = access.strides[self.spec.rank + self.last :] or (0,)
        return pixel == lanes and (lanes == 1 or lane == [1])

    def _is_tapped(self, access: Access) -> bool:
        return len(access.strides) > self.spec.rank

    def read(self, e: Expr) -> str:
        o = "0" if self.axes[-1] is None else f"o_{self.axes[-1]}"
        return f"row_f32(tap_line, {e.attr} * tap_room + {o})"

    def _n(self, k: int) -> str:
        """Number of output positions along a dimension, as source."""
        return "1" if self.axes[k] is None else f"n_{self.axes[k]}"

    # -- once per sample -----------------------------------------------------------------------

    def prepare(self) -> Iterator[str]:
        for name in self.areas(self.spec):
            yield f"{name} = scratch + area_{name}"
        # Pixels of a line, rounded up to whole groups.
        yield f"tap_room = ({self._n(self.last)} + {GROUP - 1}) // {GROUP} * {GROUP}"
        for k in range(self.last + 1):
            room, places = (
                ("tap_room", "1, tap_room") if k == self.last else (self._n(k), f"tap_count_{k}, 1")
            )
            numbers = ", ".join(f"tap_{what}_{k}" for what in ("step", "at", "n", "in", "count"))
            yield f"fill_taps(first_{k}, weight_{k}, {self._n(k)}, {room}, {places}, {numbers},"
            yield f"    tap_nearest_{k}, tap_base_{k}, tap_table_{k}, as_f32(tap_origin_{k}),"
            yield f"    as_f32(tap_scale_{k}), as_f32(tap_stretch_{k}))"
            yield f"low_{k} = i64(get_i32(first_{k}, {room}))"
            yield f"high_{k} = i64(get_i32(first_{k}, {room} + 1))"
        self.writer.imports.add("as_f32")
        self.writer.helpers |= {"fill_taps", "pad_row", f"sum_columns_{self.lanes}"}
        # The range of input columns that is needed, and how often border pixels are repeated.
        last = self.last
        yield f"tap_begin = min(max(low_{last}, 0), tap_in_{last} - 1)"
        yield f"tap_end = max(min(high_{last}, tap_in_{last}), tap_begin + 1)"
        yield f"tap_low = min(low_{last}, tap_begin)"
        yield "span, left = tap_end - tap_begin, tap_begin - tap_low"
        yield f"right = max(high_{last} - tap_end, 0)"
        yield f"inner = sums + left * {4 * self.lanes}"
        yield "one = stack_256()"
        yield "put_f32(one, 0, f32(1.0))"
        if self.rows:
            yield from self._order()
            slot = self.writer.fresh("s")
            yield f"if tap_turn_{last} < turn_a:"
            rings = " * ".join(f"ring_{d}" for d in self.rows)
            yield f"    for {slot} in range({rings} * {self.channels // self.lanes}):"
            yield f"        put_i64(tap_kept, {slot}, -1)"

    def _order(self) -> Iterator[str]:
        """Assign the dimensions of rows to `a` (summed first) and `b` (summed second)."""
        names = [f"tap_{what}" for what in ("count", "in", "turn")]
        slots = [a for a, access in enumerate(self.spec.loads) if self._is_tapped(access)]
        strides = {f"stride_{{}}_{a}": [self._stride(a, k) for k in (0, 1)] for a in slots}
        if self.last == 2:
            yield "turned = tap_turn_1 < tap_turn_0"
        for name in names:
            yield from self._in_order(f"{name[4:]}_{{}}", f"{name}_0", f"{name}_1")
        for name, (first, second) in strides.items():
            yield from self._in_order(name, first, second)
        more = f" + {BAND_ROWS - 1}" if self.last == 1 else ""
        for d in self.rows:  # capacity of the ring, in rows
            yield f"ring_{d} = min(count_{d}{more}, in_{d})"
        if self._in_bands():
            yield from self._bands()

    def _in_bands(self) -> bool:
        """Whether the columns of several rows may be summed at once: for plain loads of images.

        In a volume, the ring may overwrite the extra rows before the kernel needs them.
        """
        return self.last == 1 and self._plain_load() is not None

    def _bands(self) -> Iterator[str]:
        """Find the last row that a band may begin with.

        It is -1 if rows are skipped or descend, or if eight pixels need too many columns.
        """
        step = f"f32(tap_step_0 * {self.row_step})"
        yield f"rises = as_f32(tap_scale_0) * {step} >= f32(0.0)"
        yield f"is_dense = high_0 - low_0 <= {self._n(0)} * tap_count_0"
        reach = f"abs(as_f32(tap_scale_1)) * f32({GROUP - 1}) + f32(tap_count_1 + 4)"
        yield f"is_near = {reach} <= f32({BAND_COLUMNS})"
        yield f"last_band = min(high_0, in_a) - {BAND_ROWS} if rises & is_dense & is_near else -1"
        yield "lines = stack_256()"

    def _in_order(self, name: str, first: str, second: str) -> Iterator[str]:
        """Assign `name` for `a` and `b`, given its values for dimensions 0 and 1."""
        if self.last == 1:
            yield f"{name.format('a')} = {first}"
        else:
            yield f"{name.format('a')} = {second} if turned else {first}"
            yield f"{name.format('b')} = {first} if turned else {second}"

    # -- once per line -------------------------------------------------------------------------

    def line(self) -> Iterator[str]:
        for k in range(self.last):
            o = "0" if self.axes[k] is None else f"o_{self.axes[k]}"
            yield f"start_{k} = i64(get_i32(first_{k}, {o}))"
            yield f"weights_{k} = weight_{k} + {o} * tap_count_{k} * 4"
        if self.rows:
            for name in ("start", "weights"):
                yield from self._in_order(f"{name}_{{}}", f"{name}_0", f"{name}_1")
        if self.lanes == self.channels:
            yield from self._sums("0")
        else:
            yield f"for lane in range({self.channels}):"
            yield from indented(self._sums("lane"))

    def _sums(self, lane: str) -> Iterator[str]:
        """Sum the taps of a line in the order that the table gives.

        NOTE [order of sums] Upstream sums in the cheapest order (see resize_geometry.py). The order
        changes the last bits of a sum, and these decide how values next to a half are rounded: one
        byte in 36 differs if 2 pixels become 3. So we use upstream's order, and all bits agree.
        """
        line = f"tap_line + {lane} * 4 * tap_room" if lane != "0" else "tap_line"
        if not self.rows:
            yield from [*self._row({}), *self._columns(line)]
            return
        yield f"if tap_turn_{self.last} < turn_a:"
        yield from indented(self._columns_first(lane, line))
        if self.last == 2:
            yield f"elif tap_turn_{self.last} < turn_b:"
            yield from indented(self._columns_between(line))
        yield "else:"
        yield from indented(self._columns_last(line))

    def _columns_first(self, lane: str, line: str) -> Iterable[str]:
        if self.last == 1:
            return self._sum_of_ring(lane, {}, line)
        return self._sum_along_b(line, lambda b: self._sum_of_ring(lane, b, "part"))

    def _columns_between(self, line: str) -> Iterable[str]:
        def part(b: Places) -> Iterable[str]:
            return [*self._sum_along_a(b, "inner"), *self._columns("part")]

        return self._sum_along_b(line, part)

    def _columns_last(self, line: str) -> Iterable[str]:
        rows = self._sum_along_a({}, "inner")
        if self.last == 2:
            rows = self._sum_along_b("inner", lambda b: self._sum_along_a(b, "part"))
        return [*rows, *self._columns(line)]

    def _columns(self, to: str) -> Iterator[str]:
        """Repeat the border pixels of a row, then sum its columns."""
        yield "if left + right > 0:"
        yield f"    pad_row(sums, left, span, right, {self.lanes})"
        k = self.last
        taps = f"first_{k}, weight_{k}, tap_room, tap_count_{k}"
        yield f"sum_columns_{self.lanes}(sums, {taps}, tap_low, {to})"

    def _sum_along_b(self, to: str, part: Callable[[Places], Iterable[str]]) -> Iterator[str]:
        """Compute the terms of the sum along `b` one after the other, and add each to `to`."""
        t, b = self.writer.fresh("t"), self.writer.fresh("b")
        self.writer.helpers.add("sum_rows_f32")
        yield f"for {t} in range(count_b):"
        yield f"    {b} = {_clamped('b', t)}"
        yield from indented(part({"b": b}))
        count = f"span * {self.lanes}" if to == "inner" else f"tap_room * {self.lanes}"
        yield f"    sum_rows_f32(part, 0, 0, 0, 1, weights_b + {t} * 4, 1, {t}, {count}, {to})"

    def _sum_of_ring(self, lane: str, places: Places, to: str) -> Iterator[str]:
        """Sum rows of the ring along `a`; the columns of each row are already summed.

        `tap_kept` holds the number of the row in each slot of the ring.
        """
        t, a, slot, name = (self.writer.fresh(stem) for stem in "task")
        size = f"tap_room * {self.lanes}"
        number, ring = self.outer_number(), lane
        for d, place in places.items():
            number = f"({number} * in_{d} + {place})"
            ring = f"({ring} * ring_{d} + {place} % ring_{d})"
        yield f"for {t} in range(count_a):"
        yield f"    {a} = {_clamped('a', t)}"
        yield f"    {slot} = {ring} * ring_a + {a} % ring_a"
        yield f"    {name} = {number} * in_a + {a}"
        yield f"    if get_i64(tap_kept, {slot}) != {name}:"
        if self._in_bands():
            yield f"        if {a} <= last_band:"
            yield from indented(self._band(a, ring, name, size), 3)
            yield "            continue"
        yield f"        put_i64(tap_kept, {slot}, {name})"
        row = [*self._row({**places, "a": a}), *self._columns(f"ring + {slot} * 4 * {size}")]
        yield from indented(row, 2)
        self.writer.helpers.add("sum_rows_f32_ring")
        source = "ring" if ring == "0" else f"ring + {ring} * ring_a * 4 * {size}"
        taps = "start_a, in_a, weights_a, count_a, ring_a"
        yield f"sum_rows_f32_ring({source}, 0, {size}, {taps}, 0, {size}, {to})"

    def _band(self, a: str, ring: str, name: str, size: str) -> Iterator[str]:
        """Sum the columns of row `a` and of the rows after it, into the ring."""
        load, k = self._plain_load(), self.writer.fresh("k")
        assert load is not None
        slot, dtype = self.writer.fresh("s"), self.spec.loads[load.attr].dtype
        helper = f"sum_band_{dtype}_{self.lanes}"
        self.writer.helpers.add(helper)
        yield f"for {k} in range({BAND_ROWS}):"
        yield f"    {slot} = {ring} * ring_a + ({a} + {k}) % ring_a"
        yield f"    put_i64(tap_kept, {slot}, {name} + {k})"
        yield f"    put_i64(lines, {k}, ring + {slot} * 4 * {size})"
        begin = self._base(load.attr, {"a": a}, whole=True)
        row = f"in_{load.attr} + ({begin}) * {dtype.bytes}, stride_a_{load.attr}"
        taps = "tap_in_1, first_1, weight_1, tap_room, tap_count_1"
        yield f"{helper}({row}, {taps}, band, lines)"

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, places: Places) -> Iterator[str]:
        """Copy the row at `places` into `inner`, as float32."""
        if self._plain_load() is not None:
            yield from self._call_sum_rows(places, "0, 0, 1, one, 1", "inner")
        else:
            bases, lines = self._bases(places)
            yield from lines
            yield from self._each_value(bases, "{}", "inner")

    def _sum_along_a(self, places: Places, to: str) -> Iterator[str]:
        """Sum the rows along `a` into `to`."""
        load = self._plain_load()
        if load is not None:
            rows = f"stride_a_{load.attr}, start_a, in_a, weights_a, count_a"
            yield from self._call_sum_rows(places, rows, to)
            return
        t, a, weight = (self.writer.fresh(stem) for stem in "taw")
        yield f"for {t} in range(count_a):"
        bases, lines = self._bases({**places, "a": a})
        first = [f"{a} = {_clamped('a', t)}", f"{weight} = get_f32(weights_a, {t})"]
        yield from indented([*first, *lines])
        product = f"{weight} * {{}}"
        for test, total in (
            (f"if {t} == 0:", product),
            ("else:", f"row_f32({to}, {{e}}) + {product}"),
        ):
            yield f"    {test}"
            yield from indented(self._each_value(bases, total, to), 2)

    def _plain_load(self) -> Expr | None:
        """The load, if a tap is just a load (perhaps cast to float32) of contiguous rows."""
        e = self.value
        while e.op == "cast" and e.dtype is dt.float32:
            e = e.args[0]
        tapped = e.op == "load" and self._is_tapped(self.spec.loads[e.attr])
        return e if tapped and self.contiguous else None

    def _call_sum_rows(self, places: Places, rows: str, to: str) -> Iterator[str]:
        load = self._plain_load()
        assert load is not None
        name = f"sum_rows_{self.spec.loads[load.attr].dtype}"
        self.writer.helpers.add(name)
        begin, count = self._base(load.attr, places), f"span * {self.lanes}"
        yield f"{name}(in_{load.attr}, {begin}, {rows}, 0, {count}, {to})"

    def _each_value(self, bases: dict[int, str], total: str, to: str) -> Iterator[str]:
        """A loop over the values of a row that stores `total`, formatted with each value."""
        e = self.writer.fresh("e")
        lines, value = self._tap(bases, e)
        yield f"for {e} in range(span * {self.lanes}):"
        yield from indented([*lines, f"store_f32_7({to}, {e}, {total.format(value, e=e)})"])

    def _bases(self, places: Places) -> tuple[dict[int, str], list[str]]:
        """Names of the offsets of a row in each operand, and the lines that compute them."""
        bases: dict[int, str] = {}
        lines: list[str] = []
        for load in walk([self.value]):
            if load.op == "load" and self._is_tapped(self.spec.loads[load.attr]):
                bases[load.attr] = self.writer.fresh("b")
                lines.append(f"{bases[load.attr]} = {self._base(load.attr, places)}")
        return bases, lines

    def _base(self, slot: int, places: Places, whole: bool = False) -> str:
        """Offset of a row in an operand, at the current channel: of its needed part, or `whole`."""
        terms = [self.writer.outer_offset(slot, {})]
        if self.lanes != self.channels:
            terms.append(f"lane * {self._stride(slot, self.last + 1)}")
        terms += [f"{place} * stride_{d}_{slot}" for d, place in places.items()]
        if not whole:
            terms.append(f"tap_begin * {self._stride(slot, self.last)}")
        return " + ".join(t for t in terms if t != "0")

    def _stride(self, slot: int, k: int) -> str:
        """Stride of an operand along interpolated dimension k; of its channels if k is one more."""
        axis, access = self.spec.rank + k, self.spec.loads[slot]
        stride = access.strides[axis] if axis < len(access.strides) else 0
        return f"in_stride_{slot}_{axis}" if stride is None else str(stride)

    def _tap(self, bases: dict[int, str], e: str) -> tuple[list[str], str]:
        """Lines that compute the value of one tap, and the name of that value."""
        lines: list[str] = []
        for x in walk([self.value]):
            if x.op == "const":
                continue
            if x.op == "load" and x.attr in bases:
                slot = x.attr
                by = self._stride(slot, self.last)
                where = e if self.contiguous else f"{e} * {by}"
                text = f"load_{x.dtype}(in_{slot}, {bases[slot]} + {where})"
            elif x.op == "load":
                text = f"load_{x.dtype}(in_{x.attr}, {self.writer.outer_offset(x.attr, {})})"
            else:
                text = self.writer.print(x)
            lines.append(self.writer.assign(x, text))
        return lines, self.writer.ref(self.value)


def _clamped(d: str, tap: str) -> str:
    """Position of a tap along a dimension, clamped to the border."""
    return f"min(max(start_{d} + {tap}, 0), in_{d} - 1)"
