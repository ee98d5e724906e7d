"""Expressions → source of bilinear reads and running sums in a CPU kernel, one tile at a time.

A first loop computes all positions of a tile, and LLVM vectorises it. A second one interpolates
the pixels, all channels at once, into a short line, which the kernel's innermost loop reads.
(Handling channels as vectors took a rotation by 25° from 4.6 to 3.1 ms an image, on a busy
machine.) Tiles are short, so that the source rows they touch stay in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ir.expr import Expr, rewrite, walk

if TYPE_CHECKING:
    from .render import Stores, Writer

LINES = ("bilinear", "stepped")
TILE_COLUMNS = 64
TILE_ROWS = 64  # if a kernel keeps running sums from one tile to the next
ROWS_AHEAD = 4
_CACHE_LINE = 64
_KEPT_BYTES = 32  # see native/running_sums.py
_PLACES_BYTES = 2048  # positions, offsets and weights of a tile: see native/bilinear.py


class LineWriter:
    """Writes the lines for bilinear reads and running sums, for one `Writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.spec = writer.spec
        self.places: dict[tuple[Expr, ...], int] = {}  # positions: (y, x)
        self.reads: dict[Expr, int] = {}
        self.sums = {e: k for k, e in enumerate(e for e in writer.order if e.op == "stepped")}
        self.steps = {e: k for e, k in self.sums.items() if self._runs_on(e)}
        for e in writer.order:
            if e.op == "bilinear":
                self.places.setdefault(e.args[:2], len(self.places))
                self.reads.setdefault(e, len(self.reads))

    @property
    def axis(self) -> int | None:
        """The axis of the innermost loop."""
        return self.spec.loop_axes[-1] if self.spec.loop_axes else None

    def _runs_on(self, e: Expr) -> bool:
        """Whether a running sum continues from one element of the innermost loop to the next."""
        start, step, x = e.args
        inner = len(self.spec.loop_axes)
        depths = self.writer.depths
        moves = x.op == "index" and depths[x] == inner > 0
        return moves and max(depths[start], depths[step]) < inner

    def needs(self) -> list[Expr]:
        """The expressions that the lines of a tile are computed from."""
        steps = [a for e in self.steps for a in e.args[:2]]
        return [*steps, *(a for e in self.reads for a in e.args)]

    def allocate(self) -> Iterator[str]:
        for e, k in self.sums.items():
            if e in self.steps:
                yield f"steps_{k} = stack_{8 * TILE_COLUMNS}()"  # room for whole groups
            yield f"kept_{k} = stack_{TILE_ROWS * _KEPT_BYTES}()"
            yield f"for slot in range({TILE_ROWS}):"
            yield f"    put_i64(kept_{k}, slot * {_KEPT_BYTES // 8}, -1)"
        for k in self.places.values():
            yield f"places_{k} = stack_{_PLACES_BYTES}()"
        for e, k in self.reads.items():
            yield f"line_{k} = stack_{4 * TILE_COLUMNS * _pitch(e)}()"

    def lines(self, done: set[Expr]) -> Iterator[str]:
        """Lines that fill the tile from `tile` to `tile_end`."""
        for e, k in self.steps.items():
            yield self._running_sum(e, k)
        for where, k in self.places.items():
            yield from self._positions(where, k, done)
        for e in self.reads:
            yield self._read(e)

    def _running_sum(self, e: Expr, k: int) -> str:
        start, step, x = e.args
        slot, _ = x.attr
        identity = self.spec.indices[slot].identity
        place = "tile, 1" if identity else f"step_{slot} * tile + offset_{slot}, step_{slot}"
        self.writer.helpers.add("fill_steps")
        numbers = ", ".join(map(self.writer.ref, (start, step)))
        kept = f"kept_{k}"
        if len(self.spec.loop_axes) > 1:  # each row continues where the previous tile ended
            kept += f" + (o_{self.spec.loop_axes[-2]} - rows) * {_KEPT_BYTES}"
        return f"fill_steps(steps_{k}, {kept}, tile_end - tile, {place}, {numbers})"

    def read_step(self, e: Expr) -> str:
        """Source of one element of a running sum."""
        if e in self.steps:
            return f"row_f32(steps_{self.steps[e]}, o_{self.axis} - tile)"
        self.writer.imports.add("stepped")
        start, step, x = map(self.writer.ref, e.args)
        return f"stepped(kept_{self.sums[e]}, {start}, {step}, i64({x}))"

    def _positions(self, where: tuple[Expr, ...], k: int, done: set[Expr]) -> Iterator[str]:
        writer = self.writer
        yield f"for o_{self.axis} in range(tile, tile_end):"
        for e in walk(where):
            if e.op != "const" and e not in done:
                yield f"    {writer.assign(e)}"
        writer.imports.add("note")
        numbers = ", ".join(writer.ref(e) for e in where)
        yield f"    note(places_{k}, o_{self.axis} - tile, {numbers})"

    def _read(self, e: Expr) -> str:
        slot, pinned, lanes = e.attr
        writer, access, rank = self.writer, self.spec.loads[slot], self.spec.rank
        h, w, *fill = (writer.ref(a) for a in e.args[2:])
        strides = [
            f"in_stride_{slot}_{rank + k}" if stride is None else str(stride)
            for k, stride in enumerate(access.strides[rank:])
        ]
        offset = writer.outer_offset(slot, dict(pinned))
        run = "_run" if strides[1] == str(lanes) else ""
        name = f"bilinear_{access.dtype}_{lanes}{run}" + ("_fill" if fill else "")
        writer.helpers.add(name)
        places = f"places_{self.places[e.args[:2]]}"
        extents = [f"i64({h})", f"i64({w})"]
        lines = [places, "tile_end - tile", f"line_{self.reads[e]}"]
        numbers = [f"in_{slot}", offset, *strides, *extents, *lines, *(fill or ["f32(0)"])]
        return f"{name}({', '.join(numbers)})"

    def read_lane(self, e: Expr) -> str:
        """Source of one lane of a bilinear read."""
        whole = e.args[0]
        at = f"o_{self.axis} - tile + {e.attr * TILE_COLUMNS}"
        return f"row_f32(line_{self.reads[whole]}, {at})"

    def cut(self, stores: Stores) -> Stores:
        """The stores with each lane turned into a leaf, because earlier lines compute it."""

        def leaf(e: Expr) -> Expr | None:
            return Expr("lane", e.dtype, (), e) if e.op == "lane" and e.args else None

        memo: dict[Expr, Expr] = {}
        return [(point, k, rewrite(value, leaf, memo)) for point, k, value in stores]


def ask_for_output(writer: Writer) -> Iterator[str]:
    """Prefetch the memory that a later row of this tile will be written to.

    The rows of a tile are too short for the CPU's prefetcher, and a store that misses the cache
    stalls the loop (a rotation by 25° runs 1.24 times as fast; with one row ahead 1.21).
    """
    spec = writer.spec
    if len(spec.loop_axes) < 2:
        return
    row, column = spec.loop_axes[-2:]
    for k, access in enumerate(spec.stores):
        step = access.strides[column]
        if step is None or not 0 < step * access.dtype.bytes <= _CACHE_LINE:
            continue  # mirrored or scattered
        # Among points that are neighbours in memory, such as channels, only the first.
        close = [a for a, s in enumerate(access.strides) if s is not None and s < step]
        points = [p for p in spec.static_points if not any(p.get(a) for a in close)]
        for point in points:
            at: dict[int, int | str] = {**point, row: f"(o_{row} + {ROWS_AHEAD})", column: "tile"}
            offset = writer.offset("out", k, access, tuple(at.items()))
            for n in range(0, TILE_COLUMNS * step * access.dtype.bytes, _CACHE_LINE):
                writer.imports.add("ask_to_write")
                yield f"ask_to_write(out_{k} + ({offset}) * {access.dtype.bytes} + {n})"


def _pitch(e: Expr) -> int:
    lanes: int = e.attr[2]
    return 4 if lanes == 3 else lanes
