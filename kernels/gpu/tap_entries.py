"""`TapTable` → source of the kernel that fills tables of filter taps, and its launch.

`TapTables` is called before a resampling kernel is launched. It fills the tables on the same stream
and returns where they are, as more columns of the kernel's own table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.core import Array
from ..ir.expr import Expr
from ..ir.spec import KernelSpec
from ..ir.tap_table import TAP_TABLE
from .cores import GpuCore, indented

if TYPE_CHECKING:
    from .runtime import GpuRuntime

ENTRY_BYTES = 8
_PLACE = TAP_TABLE.columns
_POSITIONS = [_PLACE["n", 1], _PLACE["out_stride", 0, 0]]
_CELLS = [name for (name, *rest) in TAP_TABLE.core.columns() if not rest]  # type: ignore[union-attr]


class TapEntries(GpuCore):
    """Writes a `TapTable`: each thread computes one entry."""

    block = 128  # a row of an image needs about a thousand entries
    reads_within = True  # beyond the last tap, a thread would read outside of the filter

    def name(self, e: Expr) -> str:
        return "entry"

    def lines(self) -> Iterator[str]:
        yield from self._position()
        yield "filters = tap_table.to(tl.pointer_type(tl.float32))"
        yield "total = tl.full((BLOCK,), 0.0, tl.float32)"
        yield "for tap in range(tap_count):"
        yield from indented(self._weight("tap"))
        yield "    total = total + weight"
        yield from self._weight("o_0.to(tl.int32)")
        yield "weight = tl.div_rn(weight, total)"
        yield "pixel = tl.maximum(tap_base + first + o_0.to(tl.int32), 0)"
        yield "pixel = tl.minimum(pixel, tap_in - 1).to(tl.int64)"
        yield "bits = weight.to(tl.uint32, bitcast=True).to(tl.int64)"
        yield "entry = (pixel << 32) | bits"

    def _position(self) -> Iterator[str]:
        """Compute where a position lies in the input, and its first tap."""
        yield "out = tl.maximum(tap_step * o_1 + tap_at, 0)"
        yield "out = tl.minimum(out, tap_n - 1).to(tl.int32)"
        yield "half = tl.where(tap_nearest == 0, 0.0, 0.5)"
        yield "at_tap = (out.to(tl.float32) + half) * tap_scale + tap_origin"
        yield "if tap_nearest == 2:"
        yield "    at_tap = tap_origin + 0.5 * tap_scale + out.to(tl.float32) * 0.0"
        yield "    for step in range(tap_n):"
        yield "        at_tap = tl.where(step < out, at_tap + tap_scale, at_tap)"
        # Beyond this bound all taps read the border pixel; clamped, a position fits an integer.
        yield "far = (tap_in + tap_count + 1).to(tl.float32)"
        yield "at_tap = tl.minimum(tl.maximum(at_tap, 0.0 - far), far)"
        yield "first = tl.where(tap_nearest != 0, tl.floor(at_tap), tl.ceil(at_tap))"
        yield "first = first.to(tl.int32)"

    def _weight(self, tap: str) -> Iterator[str]:
        """Read the filter's table at the distance of a tap, and interpolate between entries."""
        yield f"distance = ((first + {tap}).to(tl.float32) - at_tap) * tap_stretch"
        yield "knot = distance.to(tl.int32)"
        yield "weight = tl.load(filters + knot)"
        yield "next = tl.load(filters + (knot + 1))"
        yield "weight = weight + (distance - knot.to(tl.float32)) * (next - weight)"


class TapTables:
    """Fills the tables of a resampling kernel before each of its launches."""

    def __init__(self, spec: KernelSpec) -> None:
        core, place = spec.core, spec.columns
        assert core is not None
        self._dims = len(core.axes)
        # Which column of the kernel's table each column of ours comes from.
        self._sources = np.zeros((self._dims, len(_PLACE)), np.int64)
        for k, axis in enumerate(core.axes):
            for name in _CELLS:
                self._sources[k, _PLACE[name,]] = place[name, k]
            self._sources[k, _PLACE["n", 0]] = place["tap_count", k]
            if axis is not None:
                self._sources[k, _POSITIONS] = place["n", axis]
        self._single = [k for k, axis in enumerate(core.axes) if axis is None]

    def __call__(self, table: Array, runtime: GpuRuntime) -> tuple[Array, Any]:
        """The addresses of the tables, [rows, dimensions], and their memory."""
        rows = table[:, self._sources]
        for k in self._single:
            rows[:, k, _POSITIONS] = 1
        rows[:, :, _PLACE["out", 0]] = 0
        # Images of one size share their tables.
        if len(rows) > 1 and (rows == rows[:1]).all():
            rows = rows[:1]
        sizes = rows[:, :, _PLACE["n", 0]] * rows[:, :, _PLACE["n", 1]]
        ends = np.cumsum(sizes).reshape(sizes.shape)
        memory = runtime.take(int(ends[-1, -1]) * ENTRY_BYTES)
        places = rows[:, :, _PLACE["out", 0]] = memory.address + ENTRY_BYTES * (ends - sizes)
        runtime.prepare(TAP_TABLE, rows.reshape(-1, len(_PLACE)), [memory])
        return np.broadcast_to(places, (len(table), self._dims)), memory
