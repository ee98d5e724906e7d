"""debayer: colours of an image whose sensors each see one colour, in tiles of 2 × 2.

A sensor sees green, or the chroma of its row: blue in every other row, red in the rows between.
Missing colours are computed from the neighbours. Results equal those of OpenCV, which upstream
calls on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.mosaic import SMALL, Sensors, tap
from ...kernels.ir.rewrites import fold
from ..pointwise.color import by_channel
from ..resample.sampling import rows_node

# With fewer rows or columns than this, "vng_ocv" is bilinear.
VNG_MIN_EXTENT = SMALL
# Contributions of red, green and blue to grey, in units of 2**-14.
GREY = 4899, 9617, 1868

_IMAGE = "raw = ndd.zeros(shape=[48, 64], dtype=ndd.uint8, layout='HW')\n"

Tap = Callable[[int, int], Expr]  # the sensor that many rows below and columns to the right


class Sensor(NamedTuple):
    """What the sensor at the current position sees."""

    is_green: Expr
    in_blue_row: Expr  # whether the chroma of its row is blue
    dtype: DType

    def colours(self, green: Expr, own: Expr, other: Expr) -> list[Expr]:
        """Red, green and blue, given the chroma of this row and that of the other rows."""
        red = ex.select(self.in_blue_row, other, own)
        return [red, green, ex.select(self.in_blue_row, own, other)]


def _abs(x: Expr) -> Expr:
    return ex.select(x < 0, -x, x)


def _distance(a: Expr, b: Expr) -> Expr:
    return ex.select(a < b, b - a, a - b)


def _sums(tap: Tap) -> tuple[Expr, Expr, Expr]:
    """Sums of the neighbours in the row, in the column, and at the corners."""
    corners = tap(-1, -1) + tap(-1, 1) + (tap(1, -1) + tap(1, 1))
    return tap(0, -1) + tap(0, 1), tap(-1, 0) + tap(1, 0), corners


# -- algorithms ------------------------------------------------------------------------------------


def _bilinear(tap: Tap, sensor: Sensor) -> list[Expr]:
    """Means of the nearest neighbours that see the missing colour."""
    across, down, _ = _sums(tap)
    return _with_green(tap, sensor, (across + down + 2) >> 2)


def _edge_aware(tap: Tap, sensor: Sensor) -> list[Expr]:
    """As `_bilinear`, but green is the mean of the two neighbours that differ less."""
    across, down, _ = _sums(tap)
    is_steep = _distance(tap(0, -1), tap(0, 1)) > _distance(tap(-1, 0), tap(1, 0))
    return _with_green(tap, sensor, (ex.select(is_steep, down, across) + 1) >> 1)


def _correlated(tap: Tap, sensor: Sensor) -> list[Expr]:
    """As `_bilinear`, but green follows the direction in which the chroma bends less."""
    across, down, _ = _sums(tap)
    twice = tap(0, 0) + tap(0, 0)
    bends = [_distance(tap(-y, -x) + tap(y, x), twice) for y, x in ((0, 2), (2, 0))]
    mean = (across + down + 2) >> 2
    along_column = ex.select(bends[1] < bends[0], (down + 1) >> 1, mean)
    green = ex.select(bends[0] < bends[1], (across + 1) >> 1, along_column)
    return _with_green(tap, sensor, green)


def _with_green(tap: Tap, sensor: Sensor, green: Expr) -> list[Expr]:
    """Bilinear chroma, with a given green where the sensor does not see green."""
    across, down, corners = _sums(tap)
    centre = tap(0, 0)
    own = ex.select(sensor.is_green, (across + 1) >> 1, centre)
    other = ex.select(sensor.is_green, (down + 1) >> 1, (corners + 2) >> 2)
    return sensor.colours(ex.select(sensor.is_green, centre, green), own, other)


def _grey(tap: Tap, sensor: Sensor) -> list[Expr]:
    """The grey of the bilinear colours, rounded once."""
    across, down, corners = _sums(tap)
    red, green, blue = (ex.const(c, sensor.dtype) for c in GREY)
    own = ex.select(sensor.in_blue_row, blue, red)
    other = ex.select(sensor.in_blue_row, red, blue)
    four = tap(0, 0) << 2
    at_green = ((across * own + down * other) << 1) + four * green
    at_chroma = corners * other + (across + down) * green + four * own
    return [(ex.select(sensor.is_green, at_green, at_chroma) + (1 << 15)) >> 16]


_DIRECTIONS = (
    (-1, 0), (1, 0), (0, -1), (0, 1), (-1, 1), (-1, -1), (1, 1), (1, -1),
)  # fmt: skip


def _variable_gradients(tap: Tap, sensor: Sensor) -> list[Expr]:
    """Colour differences averaged over the directions in which the image changes least.

    Gradients and sums have twice their value, so that halves are integers.
    """
    gradients = [_gradient(tap, sensor, y, x) for y, x in _DIRECTIONS]
    lowest, highest = gradients[0], gradients[0]
    for g in gradients[1:]:
        lowest, highest = ex.minimum(lowest, g), ex.maximum(highest, g)
    zero, one = ex.const(0, sensor.dtype), ex.const(1, sensor.dtype)
    limit = lowest + ex.maximum(highest >> 1, one)
    count, seen, first, second = zero, zero, zero, zero
    for g, (y, x) in zip(gradients, _DIRECTIONS, strict=True):
        is_used = g < limit
        sums = (
            _straight_sums(tap, sensor, y, x) if 0 in (y, x) else _diagonal_sums(tap, sensor, y, x)
        )
        count = count + ex.select(is_used, one, zero)
        seen, first, second = (
            total + ex.select(is_used, part, zero)
            for total, part in zip((seen, first, second), sums, strict=True)
        )
    scale = ex.const(0.5, dt.float32) / ex.cast(count, dt.float32)

    def colour(total: Expr) -> Expr:
        difference = ex.unary("rint", ex.cast(total - seen, dt.float32) * scale)
        value = tap(0, 0) + ex.cast(difference, sensor.dtype)
        return ex.minimum(ex.maximum(value, zero), ex.const(255, sensor.dtype))

    centre, first, second = tap(0, 0), colour(first), colour(second)
    green = ex.select(sensor.is_green, centre, first)
    return sensor.colours(green, ex.select(sensor.is_green, first, centre), second)


def _gradient(tap: Tap, sensor: Sensor, y: int, x: int) -> Expr:
    """How much the image changes in a direction."""

    def change(by: int, bx: int, ay: int, ax: int) -> Expr:
        return _distance(tap(by, bx), tap(ay, ax))

    twice = change(y, x, -y, -x) + change(2 * y, 2 * x, 0, 0)
    if 0 in (y, x):
        once = [change(y + s * x, x + s * y, s * x - y, s * y - x) for s in (-1, 1)]
        once += [change(2 * y + s * x, 2 * x + s * y, s * x, s * y) for s in (-1, 1)]
        return (twice << 1) + (once[0] + once[1] + (once[2] + once[3]))
    at_green = change(2 * y, x, 0, -x) + change(y, 2 * x, -y, 0)
    at_chroma = change(y, 0, 0, -x) + change(0, x, -y, 0)
    at_chroma = at_chroma + (change(2 * y, x, y, 0) + change(y, 2 * x, 0, x))
    return (twice << 1) + ex.select(sensor.is_green, at_green << 1, at_chroma)


def _straight_sums(tap: Tap, sensor: Sensor, y: int, x: int) -> tuple[Expr, Expr, Expr]:
    """Along a row or a column: the colour seen here, and the two missing colours.

    At a green sensor these are the chroma of the row and that of the column; else they are green
    and the other chroma.
    """
    seen = tap(2 * y, 2 * x) + tap(0, 0)
    next_ = tap(y, x) << 1
    beside = tap(y + x, x + y) + tap(y - x, x - y)
    beyond = tap(2 * y + x, 2 * x + y) + tap(2 * y - x, 2 * x - y)
    first, second = (next_, beyond) if y == 0 else (beyond, next_)
    return (
        seen,
        ex.select(sensor.is_green, first, next_),
        ex.select(sensor.is_green, second, beside),
    )


def _diagonal_sums(tap: Tap, sensor: Sensor, y: int, x: int) -> tuple[Expr, Expr, Expr]:
    """The same along a diagonal."""
    corner = tap(y, x) << 1
    of_row, of_column = tap(2 * y, x) + tap(0, x), tap(y, 0) + tap(y, 2 * x)
    seen = ex.select(sensor.is_green, corner, tap(2 * y, 2 * x) + tap(0, 0))
    first = ex.select(sensor.is_green, of_row, (of_row + of_column) >> 1)
    return seen, first, ex.select(sensor.is_green, of_column, corner)


class Algorithm(NamedTuple):
    compute: Callable[[Tap, Sensor], list[Expr]]
    reach: int = 1  # how far away it reads
    channels: int = 3

    def wide(self, dtype: DType) -> DType:
        """A type that holds all intermediate values."""
        if self.compute is _grey or (self.reach == 1 and dtype is dt.uint16):
            return dt.uint32
        if self.reach == 1:  # never negative, so that LLVM finds the instruction for means
            return dt.uint16
        return dt.int16 if dtype is dt.uint8 else dt.int32


ALGORITHMS = {
    "bilinear_ocv": Algorithm(_bilinear),
    "edgeaware_ocv": Algorithm(_edge_aware),
    "vng_ocv": Algorithm(_variable_gradients, 2),
    "gray_ocv": Algorithm(_grey, channels=1),
    "default_npp": Algorithm(_correlated, 2),
}
DEFAULT = "bilinear_ocv"


# -- positions -------------------------------------------------------------------------------------


def _sensor(blue: Expr, at: Sequence[Expr], dtype: DType) -> Sensor:
    """What the sensor at a position sees; `blue` counts from the second row and column."""
    row, column = (
        ex.cast(p + ex.lookup(blue, ex.const(k, dt.int32)) + 1, dtype) for k, p in enumerate(at)
    )
    return Sensor(ex.ne((row ^ column) & 1, 0), ex.eq(row & 1, 0), dtype)


@memoized(16)
def _sensors(algorithm: Algorithm, dtype: DType) -> Sensors:
    """The colours of each kind of sensor, as expressions over the sensors around it."""
    wide = algorithm.wide(dtype)

    def seen(y: int, x: int) -> Expr:
        return ex.cast(tap(dtype, y, x), wide)

    rows = (True,) if algorithm.channels == 3 else (True, False)
    kinds = [(in_blue_row, is_green) for in_blue_row in rows for is_green in (False, True)]
    memo: dict[Expr, Expr] = {}
    found = []
    for in_blue_row, is_green in kinds:
        sensor = Sensor(ex.const(is_green, dt.bool_), ex.const(in_blue_row, dt.bool_), wide)
        colours = [ex.cast(c, dtype) for c in algorithm.compute(seen, sensor)]
        found.append(tuple(ex.rewrite(c, lambda e: fold(e, memo), memo) for c in colours))
    return tuple(found)


def _anywhere(x: Expr, blue: Expr, algorithm: Algorithm, axes: tuple[int, int]) -> Expr:
    """The colour of any element; neighbours that do not exist follow a rule for the border."""
    if algorithm.reach == 1:
        return _channel(_repeated(x, blue, algorithm, axes), x.dtype)
    colours = _mirrored(x, blue, algorithm, axes)
    if algorithm is ALGORITHMS["vng_ocv"]:
        small = _repeated(x, blue, ALGORITHMS["bilinear_ocv"], axes)
        height, width = (ex.extent(x, a) for a in axes)
        is_small = (height < VNG_MIN_EXTENT) | (width < VNG_MIN_EXTENT)
        pairs = zip(small, colours, strict=True)
        colours = [ex.select(is_small, *(ex.cast(c, x.dtype) for c in pair)) for pair in pairs]
    return _channel(colours, x.dtype)


def _repeated(x: Expr, blue: Expr, algorithm: Algorithm, axes: tuple[int, int]) -> list[Expr]:
    """The outermost elements get the colours of those next to them; 0 if there are none."""
    extents, wide = [ex.extent(x, a) for a in axes], algorithm.wide(x.dtype)
    at = [
        ex.maximum(ex.minimum(ex.index(a), n - 2), ex.const(1, dt.int32))
        for a, n in zip(axes, extents, strict=True)
    ]

    def tap(*by: int) -> Expr:
        places = [ex.minimum(p + d, n - 1) for p, d, n in zip(at, by, extents, strict=True)]
        return ex.cast(ex.fetch(x, *zip(axes, places, strict=True)), wide)

    colours = algorithm.compute(tap, _sensor(blue, at, wide))
    has_inside = (extents[0] > 2) & (extents[1] > 2)
    return [ex.select(has_inside, c, 0) for c in colours]


def _mirrored(x: Expr, blue: Expr, algorithm: Algorithm, axes: tuple[int, int]) -> list[Expr]:
    """Beyond the border the image is mirrored without repeating the outermost elements."""
    wide = algorithm.wide(x.dtype)

    def place(axis: int, by: int) -> Expr:
        ahead = _abs(ex.index(axis) + by)
        back = (ex.extent(x, axis) - 1) * 2 - ahead
        return _abs(ex.minimum(ahead, back))  # mirrored a third time if there are two elements

    def tap(*by: int) -> Expr:
        places = [(a, place(a, d)) for a, d in zip(axes, by, strict=True)]
        return ex.cast(ex.fetch(x, *places), wide)

    return algorithm.compute(tap, _sensor(blue, [*map(ex.index, axes)], wide))


def _channel(colours: list[Expr], dtype: DType) -> Expr:
    """One of the colours, by the position on the channel axis."""
    values = [ex.cast(c, dtype) for c in colours]
    return values[0] if len(values) == 1 else by_channel(values)


# -- the op ----------------------------------------------------------------------------------------


@op.graph(
    layouts="HW HWC FHW FHWC", by_frame=True,
    rejects="bool i8 i16 u32 i32 u64 i64 f16 bf16 f32 f64",
    sample=_IMAGE + "ndd.debayer(raw, blue_position=[0, 1]).shape\n=(48, 64, 3)",
)  # fmt: skip
def debayer(
    input=data("Raw images or sequences of one channel, of even height and width."),
    algorithm=static(
        str, DEFAULT, "How missing colours are found: `bilinear_ocv`, `edgeaware_ocv`, `vng_ocv` "
        "(uint8 only), `gray_ocv` (the result is grey), or `default_npp`.",
    ),
    blue_position=geometry(
        int, REQUIRED, "Row and column of blue in the tile of 2 × 2 sensors that begins in the "
        "second row and the second column: 0 or 1 each.", vector=True, per_frame=True,
    ),
):  # fmt: skip
    """Compute the colours of a raw image, whose sensors each see red, green or blue.

    The outermost elements repeat the colours of those next to them. `vng_ocv` and `default_npp`
    mirror the image instead; images with fewer than 8 rows or columns are always bilinear for
    `vng_ocv`. With only two rows or columns there is nothing to compute from, so the result is 0.
    """
    x, name = input, algorithm.lower()
    if name not in ALGORITHMS:
        raise ValueError(f"`algorithm` must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if name == "vng_ocv" and x.dtype is not dt.uint8:
        raise TypeError(f"`algorithm` 'vng_ocv' takes uint8 only, got {x.dtype}")
    chosen = ALGORITHMS[name]
    x = _one_channel(x)
    _check_even(x)
    blue = _checked_blue(blue_position)
    if x.device is None:
        is_vng = chosen is ALGORITHMS["vng_ocv"]
        small = _sensors(ALGORITHMS["bilinear_ocv"], x.dtype) if is_vng else None
        return build.demosaic(
            "debayer", x, blue, _sensors(chosen, x.dtype), chosen.reach, chosen.reach > 1, small
        )
    blue = rows_node(blue, x, dt.int32)
    rows = np.insert(x.shapes.rows, x.rank, chosen.channels, axis=1)
    axes = x.rank - 2, x.rank - 1
    plane, layout = tuple(range(x.rank)), f"{x.layout}C"
    return build.pointwise(
        "debayer", _anywhere, [x, blue], [plane, ()], Shapes(rows), layout, (chosen, axes)
    )  # fmt: skip


def _one_channel(x: Node) -> Node:
    layout = x.layout or ""
    if not layout.endswith("C"):
        return x
    bad = np.flatnonzero(x.shapes.rows[:, -1] != 1)
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"`input` must have one channel, sample {s} of shape {x.shapes.tuples[s]} ({layout}) "
            f"has {x.shapes.rows[s, -1]}; give sequences the layout FHW"
        )
    return build.drop_axes("debayer", x, [x.rank - 1], layout[:-1])


def _check_even(x: Node) -> None:
    bad = np.flatnonzero((x.shapes.rows[:, -2:] % 2).any(axis=1))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"height and width of `input` must be even, sample {s} has shape {x.shapes.tuples[s]}"
        )


def _checked_blue(blue: Array) -> Array:
    if blue.shape[1] != 2:
        raise ValueError(f"`blue_position` must have 2 values, got {blue.shape[1]}")
    bad = np.flatnonzero(((blue < 0) | (blue > 1)).any(axis=1))
    if len(bad):
        s = int(bad[0])
        of = f" for sample {s}" if len(blue) > 1 else ""
        raise ValueError(f"`blue_position` must be 0 or 1 each, got {tuple(blue[s].tolist())}{of}")
    return blue
