"""A third back-end, in NumPy: runs a KernelSpec with its table as the spec is defined.

It needs no compiler, so thousands of random programs can be planned, lowered, bound and run in the
time in which Numba compiles a few hundred kernels; and Numba's kernels can be compared with it.
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from ndd.kernels.cpu.cores import columns_of
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.expr import Expr, walk
from ndd.kernels.ir.histogram import BINS, BinCounts, ToneCurve
from ndd.kernels.ir.interpreter import evaluate_all
from ndd.kernels.ir.mosaic import SMALL, Mosaic
from ndd.kernels.ir.ranks import WindowRank
from ndd.kernels.ir.reduction import DIVISOR, FOLD, Reduction
from ndd.kernels.ir.separable import TAPS, SeparableSum
from ndd.kernels.ir.spec import Access, KernelSpec
from ndd.kernels.ir.windows import WindowSum


class ReferenceKernel:
    """Like `CpuKernel`: `run(table address, first row, end row)`."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.name = "reference"

    def run(self, table: int, begin: int, end: int) -> int:
        columns = columns_of(self.spec)
        if len(columns) and end > begin:
            cells = (ctypes.c_int64 * (len(columns) * end)).from_address(table)
            rows = np.ctypeslib.as_array(cells).reshape(end, len(columns))
            with np.errstate(all="ignore"):
                for s in range(begin, end):
                    self._sample({name: int(rows[s, k]) for name, k in columns.items()})
        return 0

    run_briefly = run

    def _sample(self, row: dict[tuple[str | int, ...], int]) -> None:
        axes = self.spec.loop_axes
        extents = [row["n", a] for a in axes]
        if 0 in extents:
            return
        grid = np.meshgrid(*(np.arange(n) for n in extents), indexing="ij", sparse=True)
        stored = []
        for point in self.spec.static_points:
            position = {**dict(zip(axes, grid, strict=True)), **point}
            values = self.spec.at_point(point)
            env = self._leaves(values, row, position)
            for k, value in enumerate(evaluate_all(values, env)):
                where = _offsets("out", k, self.spec.stores[k], row, position)
                stored.append((row["out", k], where, value, self.spec.stores[k]))
        for address, where, value, access in stored:
            where, value = np.broadcast_arrays(np.broadcast_to(where, extents), value)
            _memory(address, where, access)[where - where.min()] = value

    def _leaves(self, values, row, position) -> dict[Expr, np.ndarray]:
        env: dict[Expr, np.ndarray] = {}
        for e in walk(values):
            if e.op == "load":
                slot, pinned = e.attr
                access = self.spec.loads[slot]
                where = _offsets("in", slot, access, row, {**position, **dict(pinned)})
                if e.args:
                    where = np.where(evaluate_all(e.args, env)[0], where, 0)
                env[e] = _read(row["in", slot], where, access)
            elif e.op == "fetch":
                slot, pinned = e.attr
                computed = [v.astype(np.int64) for v in evaluate_all(e.args, env)]
                env[e] = self._fetch(slot, row, {**position, **dict(pinned)}, computed)
            elif e.op == "lane":
                env[e] = self._bilinear(e.args[0], e.attr, row, position, env)
            elif e.op == "core":
                env[e] = self._core(e.attr, row, position)
            elif e.op == "lookup":
                env[e] = self._looked_up(e, row, env)
            elif e.op == "window":
                slot, pinned = e.attr
                at = {**position, **dict(pinned)}
                tests = [
                    (row["lo", slot, a] <= at[a]) & (at[a] < row["hi", slot, a])
                    for a in self.spec.windows[slot]
                ]
                env[e] = np.logical_and.reduce(np.broadcast_arrays(*tests))
            elif e.op == "index":
                slot, pinned = e.attr
                index = self.spec.indices[slot]
                at = 0 if index.axis is None else {**position, **dict(pinned)}[index.axis]
                env[e] = at if index.identity else row["step", slot] * at + row["offset", slot]
        return env

    def _core(self, lane, row, position) -> np.ndarray:
        cores = {Reduction: self._reduced, SeparableSum: self._sampled,
                 WindowSum: self._windowed, WindowRank: self._ranked,
                 BinCounts: self._counted, ToneCurve: self._curve,
                 Mosaic: self._demosaiced}  # fmt: skip
        return cores[type(self.spec.core)](lane, row, position)

    def _looked_up(self, e: Expr, row, env) -> np.ndarray:
        where = evaluate_all(e.args, env)[0].astype(np.int64)
        return _read(row["in", e.attr], where, self.spec.loads[e.attr])

    # -- interpolation -------------------------------------------------------------------------

    def _fetch(self, slot, row, position, computed) -> np.ndarray:
        """A load at computed positions, which replace the axes after those of the output."""
        at = {**position, **{self.spec.rank + k: p for k, p in enumerate(computed)}}
        access = self.spec.loads[slot]
        return _read(row["in", slot], _offsets("in", slot, access, row, at), access)

    def _bilinear(self, whole: Expr, lane: int, row, position, env) -> np.ndarray:
        """One lane of a bilinear read, spelled out by `expr.bilinear_of`."""
        slot, pinned, lanes = whole.attr
        access = self.spec.loads[slot]
        at = {**position, **dict(pinned)}
        if lanes > 1:
            at[pinned[0][0]] = lane
        y, x, h, w, *fill = whole.args
        taps: dict[Expr, tuple[Expr, Expr]] = {}

        def tap(r: Expr, c: Expr) -> Expr:
            leaf = Expr("tap", access.dtype, (), (slot, lane, r, c))
            taps[leaf] = (r, c)
            return ex.cast(leaf, dt.float32)

        value = ex.bilinear_of(tap, y, x, h, w, fill[0] if fill else None)
        values = dict(env)
        for leaf, where in taps.items():
            computed = [v.astype(np.int64) for v in evaluate_all(where, env)]
            values[leaf] = self._fetch(slot, row, at, computed)
        return evaluate_all((value,), values)[0]

    def _sampled(self, lane, row, position) -> np.ndarray:
        """The interpolated value, tap by tap, along one dimension after the other."""
        core = self.spec.core
        dims = [
            _taps({w: row[f"tap_{w}", k] for w in TAPS}, 0 if a is None else position[a])
            for k, a in enumerate(core.axes)
        ]
        taps = [list(zip(*d, strict=True)) for d in dims]
        order = sorted(range(len(dims)), key=lambda k: row["tap_turn", k])  # earliest first

        def sums(places: dict[int, np.ndarray]) -> np.ndarray:
            if len(places) == len(dims):
                return self._tap_value(
                    row, position, [*(places[k] for k in range(len(dims))), lane]
                )
            k = order[len(dims) - 1 - len(places)]
            return _sum((w, sums({**places, k: p})) for p, w in taps[k])

        return sums({})

    # -- windows -------------------------------------------------------------------------------

    def _windowed(self, lane, row, position) -> np.ndarray:
        """The weighted sum over a window, tap by tap; several parts are added up."""
        core = self.spec.core
        total = None
        for p in range(max(core.parts, 1)):
            value = self._window_part(p, lane, row, position)
            if core.is_scaled:
                value = _f32(row["win_scale", p]) * value
            total = value if total is None else total + value
        return total

    def _window_part(self, p, lane, row, position) -> np.ndarray:
        core, dims = self.spec.core, range(len(self.spec.core.axes))
        counts = [row["win_count", p, k] for k in dims]
        anchors = [row["win_anchor", p, k] for k in dims]
        taps = [self._window_taps(k, counts[k], anchors[k], row, position) for k in dims]

        def weight(at: int) -> np.float32:
            return _read(row["in", core.weights], np.asarray(at), self.spec.loads[core.weights])

        def value(number: tuple[int, ...]) -> np.ndarray:
            places, inside = zip(*(taps[k][t] for k, t in enumerate(number)), strict=True)
            found = self._tap_value(row, position, [*places, lane])
            if core.border != "constant":
                return found
            fill = _read(row["in", core.fill], np.asarray(0), self.spec.loads[core.fill])
            return np.where(np.logical_and.reduce(np.broadcast_arrays(*inside)), found, fill)

        def along(number: tuple[int, ...]) -> np.ndarray:
            """The sum over the later dimensions; each product is rounded before it is added."""
            k = len(number)
            if k == len(dims):
                return value(number)
            begin = row["win_start", p, k]
            if core.is_symmetric:
                return folded(number, counts[k], begin)
            terms = ((weight(begin + t), along((*number, t))) for t in range(counts[k]))
            return _sum(terms, np.float32(-0.0))

        def folded(number: tuple[int, ...], count: int, begin: int) -> np.ndarray:
            """The same with two taps per product: NOTE [folded sums] in ir/windows.py."""
            total = np.float32(-0.0)
            for t in range((count + 1) // 2):
                pair, last = along((*number, t)), count - 1 - t
                pair = pair if t == last else pair + along((*number, last))
                total = _fma(weight(begin + t), pair, total)
            return total

        if core.parts:
            return along(())
        total, begin = np.float32(-0.0), row["win_start", p, 0]
        for n, number in enumerate(np.ndindex(*counts)):
            total = _fma(weight(begin + n), value(number), total)
        return total

    def _ranked(self, lane, row, position) -> np.ndarray:
        """The lowest, middle or highest value of a window."""
        core = self.spec.core
        assert core.frames is None, "windows per frame are not part of the random programs"
        taps = [
            self._window_taps(k, row["win_count", k], row["win_anchor", k], row, position)
            for k in range(len(core.axes))
        ]
        places = itertools.product(*([at for at, _ in along] for along in taps))
        values = [self._tap_value(row, position, [*at, lane]) for at in places]
        ordered = np.sort(np.stack(np.broadcast_arrays(*values)), axis=0)
        return ordered[{"lowest": 0, "middle": len(ordered) // 2, "highest": -1}[core.rank]]

    def _window_taps(self, k, count, anchor, row, position) -> list[tuple[np.ndarray, np.ndarray]]:
        """The element that each tap along a dimension reads, and whether it exists."""
        axis, border = self.spec.core.axes[k], self.spec.core.border
        o = 0 if axis is None else position[axis]
        at = np.clip(row["win_step", k] * np.asarray(o) + row["win_at", k], 0, row["win_n", k] - 1)
        n, found = row["win_in", k], []
        for t in range(count):
            place = at - anchor + t
            inside = (place >= 0) & (place < n)
            if border in ("clamp", "constant"):
                place = np.clip(place, 0, n - 1)
            else:
                around = {"wrap": n, "reflect_101": max(2 * n - 2, 1), "reflect_1001": 2 * n}[
                    border
                ]
                place = place % around
                if border != "wrap":
                    place = np.minimum(place, around - place - (border == "reflect_1001"))
            found.append((place, inside))
        return found

    # -- reductions ----------------------------------------------------------------------------

    def _reduced(self, lane, row, position) -> np.ndarray:
        """All values, combined in the order of NOTE [order of summation]."""
        if lane == DIVISOR:
            return np.int64(row["run_divisor",])
        core = self.spec.core
        which, lane = divmod(lane, core.lanes)
        start = evaluate_all((core.start,), {})[0]
        lanes = [start] * row["run_lanes",]
        extents = [row["run_n", k] for k in range(len(core.axes))]
        for n, places in enumerate(np.ndindex(*extents)):
            value = self._tap_value(row, position, [*places, lane], core.summands[which])
            value = value.astype(core.acc.np)
            k = n % len(lanes)
            lanes[k] = _combined(core.combine, lanes[k], value)
        for k in range(FOLD, len(lanes)):
            lanes[k % FOLD] = _combined(core.combine, lanes[k % FOLD], lanes[k])
        total = start
        for value in lanes[:FOLD]:
            total = _combined(core.combine, total, value)
        return total

    # -- histograms ----------------------------------------------------------------------------

    def _counted(self, lane, row, position) -> np.ndarray:
        """How many values of a tile equal the number of the bin."""
        core, bins = self.spec.core, self.spec.rank - 1
        tile_row, tile_column = np.divmod(position[core.tile_axis], row["grid", "tiles_across"])
        channel = [position[bins - 1]] if core.channels else []
        image = row["image", "rows"], row["image", "columns"]
        extents = row["grid", "tile_rows"], row["grid", "tile_columns"]
        total = np.int32(0)
        for down, across in np.ndindex(*extents):
            places = [tile_row * extents[0] + down, tile_column * extents[1] + across]
            if core.is_mirrored:
                around = [p % max(2 * n - 2, 1) for p, n in zip(places, image, strict=True)]
                places = [np.minimum(p, 2 * n - 2 - p) for p, n in zip(around, image, strict=True)]
            inside = (places[0] < image[0]) & (places[1] < image[1])
            held = [np.minimum(p, n - 1) for p, n in zip(places, image, strict=True)]
            value = self._tap_value(row, position, [*held, *channel])
            total = total + (inside & (value == position[bins])).astype(np.int32)
        return total

    def _curve(self, lane, row, position) -> np.ndarray:
        """The table that equalizes a histogram, see NOTE [tables from histograms]."""
        bins = self.spec.rank - 1
        shape = np.broadcast_shapes(*(np.shape(p) for p in position.values()))
        counts = np.broadcast_to(self._tap_value(row, position, [position[bins]]), shape)
        total, limit = np.int32(row["curve_total",]), row["curve_limit",]
        if self.spec.core.is_limited:
            over = np.maximum(counts - limit, 0)
            excess = over.sum(axis=-1, keepdims=True)
            rest, bin_number = excess % BINS, np.arange(BINS)
            apart = BINS // np.maximum(rest, 1)
            more = (bin_number % apart == 0) & (bin_number // apart < rest)
            sums = np.cumsum(counts - over + excess // BINS + more, axis=-1)
            return _level(sums, np.float32(255) / np.float32(total))
        sums = np.cumsum(counts, axis=-1)
        lowest = np.where((sums == counts) & (counts > 0), counts, 0).sum(axis=-1, keepdims=True)
        scale = np.float32(255) / np.maximum(total - lowest, 1).astype(np.float32)
        level = _level(np.maximum(sums - lowest, 0), scale)
        return np.where(lowest == total, np.arange(BINS, dtype=np.uint8), level)

    # -- raw images ----------------------------------------------------------------------------

    def _demosaiced(self, lane, row, position) -> np.ndarray:
        """A colour of each element, by the kind of its sensor."""
        core, extents = self.spec.core, (row["mosaic", "rows"], row["mosaic", "columns"])
        sensors, is_mirrored = core.sensors, core.is_mirrored
        if core.small is not None and min(extents) < SMALL:
            sensors, is_mirrored = core.small, False
        at = []
        for k, n in enumerate(extents):
            o = 0 if core.axes[k] is None else position[core.axes[k]]
            place = row["mosaic", f"step_{k}"] * np.asarray(o) + row["mosaic", f"at_{k}"]
            place = np.clip(place, 0, n - 1)
            at.append(place if is_mirrored else np.maximum(np.minimum(place, n - 2), 1))
        at = np.broadcast_arrays(*at)
        down, across = (p + row["mosaic", f"blue_{k}"] + 1 for k, p in enumerate(at))
        is_green, in_blue_row = (down ^ across) & 1 != 0, down & 1 == 0
        value = None
        for blue, green in itertools.product((True, False), (False, True)):
            if len(sensors) == 4:
                colour = sensors[2 * (not blue) + green][lane]
            else:
                colour = sensors[green][lane if blue else core.lanes - 1 - lane]
            env = {
                e: self._tap_value(row, position, self._mirrored(at, e.attr, extents))
                for e in walk([colour])
                if e.op == "tap"
            }
            own = evaluate_all((colour,), env)[0]
            value = own if value is None else value
            value = np.where((is_green == green) & (in_blue_row == blue), own, value)
        has_inside = is_mirrored or min(extents) > 2
        return value if has_inside else np.zeros_like(value)

    def _mirrored(self, at, by, extents) -> list[np.ndarray]:
        """Positions at a distance, mirrored at both ends."""
        ahead = [np.abs(p + d) for p, d in zip(at, by, strict=True)]
        return [np.abs(np.minimum(p, 2 * (n - 1) - p)) for p, n in zip(ahead, extents, strict=True)]

    def _tap_value(self, row, position, computed, value: Expr | None = None) -> np.ndarray:
        value = value or self.spec.core.value
        env = {}
        for e in walk([value]):
            if e.op == "load":
                more = len(self.spec.loads[e.attr].strides) - self.spec.rank
                env[e] = self._fetch(e.attr, row, position, computed[:more])
            elif e.op == "lookup":
                env[e] = self._looked_up(e, row, env)
            elif e.op == "core":  # the one inside of this one, at a position that this one asks for
                asked = {self.spec.rank + k: p for k, p in enumerate(computed)}
                at, (how, number) = {**position, **asked}, e.attr
                inner = ReferenceKernel(self.spec.of_inner)
                env[e] = inner._core(number if how == "at" else at[number], row, at)
            elif e.op == "index":
                index, rank = self.spec.indices[e.attr], self.spec.rank
                at = 0
                if index.axis is not None:
                    at = position[index.axis] if index.axis < rank else computed[index.axis - rank]
                at = at if index.identity else row["step", e.attr] * at + row["offset", e.attr]
                env[e] = np.asarray(at)
        return evaluate_all((value,), env)[0]


def _level(sums, scale) -> np.ndarray:
    return np.minimum(np.rint(sums.astype(np.float32) * scale), 255).astype(np.uint8)


def _combined(how, a, b) -> np.ndarray:
    if how == "add":
        return a + b
    return np.where(b < a if how == "min" else b > a, b, a)


def _fma(*args) -> np.ndarray:
    """a * b + c, rounded once."""
    leaves = [Expr("argument", dt.float32, (), k) for k in range(3)]
    return evaluate_all((ex.fma(*leaves),), dict(zip(leaves, args, strict=True)))[0]


def _f32(word: int) -> np.float32:
    return np.int64(word).astype(np.int32).view(np.float32)


def _sum(terms, total=None) -> np.ndarray:
    """Weights times values, added one after the other."""
    for weight, value in terms:
        term = weight * value
        total = term if total is None else total + term
    return np.asarray(total, np.float32)


def _taps(numbers, o) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Positions and weights of all taps, as in kernels/ir/taps.py."""
    i = np.clip(numbers["step"] * np.asarray(o) + numbers["at"], 0, numbers["n"] - 1)
    scale, origin = _f32(numbers["scale"]), _f32(numbers["origin"])
    s = (i.astype(np.float32) + np.float32(0.5 if numbers["nearest"] else 0)) * scale + origin
    if numbers["nearest"] == 2:
        steps = np.full(numbers["n"], scale)
        steps[0] = origin + np.float32(0.5) * scale
        s = np.add.accumulate(steps, dtype=np.float32)[i]
    far = numbers["in"] + numbers["count"] + 1
    first = np.clip(np.floor(s) if numbers["nearest"] else np.ceil(s), -far, far).astype(np.int64)
    cells = (ctypes.c_float * 512).from_address(numbers["table"])
    table = np.ctypeslib.as_array(cells)
    weights, taps = [], []
    for k in range(numbers["count"]):
        d = ((first + k).astype(np.float32) - s) * _f32(numbers["stretch"])
        j = d.astype(np.int64)
        weights.append(table[j] + (d - j.astype(np.float32)) * (table[j + 1] - table[j]))
        taps.append(np.clip(numbers["base"] + first + k, 0, numbers["in"] - 1))
    total = np.float32(0)
    for w in weights:
        total = total + w
    return taps, [w / total for w in weights]


def _offsets(kind, k, access: Access, row, position) -> np.ndarray:
    total = np.int64(row.get((f"{kind}_first", k), 0))
    for axis, stride in enumerate(access.strides):
        if stride != 0:
            by = row[f"{kind}_stride", k, axis] if stride is None else stride
            total = total + np.int64(by) * position[axis]
    return np.asarray(total)


def _memory(address: int, where: np.ndarray, access: Access) -> np.ndarray:
    """The elements from the lowest offset to the highest."""
    low, high = int(where.min()), int(where.max())
    item = access.dtype.bytes
    cells = (ctypes.c_uint8 * ((high - low + 1) * item)).from_address(address + low * item)
    return np.ctypeslib.as_array(cells).view(access.dtype.np)


def _read(address: int, where: np.ndarray, access: Access) -> np.ndarray:
    values = _memory(address, where, access)[where - where.min()]
    return values != 0 if access.dtype.name == "bool" else values
