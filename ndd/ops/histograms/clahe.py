"""clahe: equalizes the histogram of each tile, with limited contrast, and blends between tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core import framewise
from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.kinds.histogram import Grid
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.histogram import BINS
from ..geometry.window import beside
from ..pointwise.color import by_channel, f32
from ..resample.sampling import rows_node
from . import lab
from .equalize import check_bytes

_NAME = "clahe"
_WHOLE = (0, 1, 2)
MAX_TILES = 1 << 20  # of an image: their tables take 256 MB


@op.graph(
    layouts="HWC FHWC", by_frame=True,
    sample="""image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout="HWC")
ndd.clahe(image, tiles_x=4, tiles_y=4, clip_limit=2.0).shape
=(48, 64, 3)""",
)  # fmt: skip
def clahe(
    input=data("Images or sequences of uint8 with one channel, or with red, green and blue."),
    bins=static(int, 256, "Number of bins, a power of 2; without effect: a byte has 256."),
    clip_limit=geometry(float, REQUIRED, "Largest count of a bin, relative to the mean count. The "
                        "rest is spread over all bins. 0 or less: no limit.", per_frame=True),
    luma_only=static(bool, True, "Whether only the lightness of RGB images changes, or each "
                     "channel by itself."),
    tiles_x=geometry(int, REQUIRED, "Number of tiles along the width.", per_frame=True),
    tiles_y=geometry(int, REQUIRED, "Number of tiles along the height.", per_frame=True),
):  # fmt: skip
    """Equalize histograms locally, with limited contrast (CLAHE).

    Each tile of an image has a table of its own; pixels blend the tables of the nearest tiles. An
    image that is not divisible into tiles is continued by its mirror image. The lightness of RGB
    images is that of L*a*b*.
    """
    check_bytes(input)
    if input.layout == "HWC":
        return _equalized(input, clip_limit, tiles_y, tiles_x, luma_only)
    frames, counts = framewise.folded(_NAME, input)
    given = [
        np.repeat(np.broadcast_to(v, input.count), counts) for v in (clip_limit, tiles_y, tiles_x)
    ]
    return build.sequences(_NAME, _equalized(frames, *given, luma_only), counts, input.batch)


def _equalized(x: Node, clip_limit: Array, tiles_y: Array, tiles_x: Array, luma_only: bool) -> Node:
    channels = _channels(x)
    grid = _grid(x, tiles_y, tiles_x)
    limits = _limits(clip_limit, grid)
    if channels != 3 or not luma_only:
        body = _of_grey if channels == 1 else _of_channels
        return _blended(x, _cells(x, grid, limits, channels), grid, body)
    table = beside(lab.table(), x)
    colours = build.pointwise(_NAME, _lab, [x, table], [_WHOLE, ()], x.shapes, x.layout)
    cells = _cells(_lightness(colours), grid, limits, 1)
    return _blended(colours, cells, grid, _of_lab, table)


def _channels(x: Node) -> int:
    wrong = np.flatnonzero(~np.isin(x.shapes.rows[:, 2], (1, 3)))
    if len(wrong):
        s = int(wrong[0])
        raise ValueError(
            f"`input` must have 1 or 3 channels, sample {s} of shape {x.shapes.tuples[s]} has "
            f"{int(x.shapes.rows[s, 2])}"
        )
    found = x.shapes.extent(2)
    if found is None:
        raise ValueError("all samples of `input` must have the same number of channels, 1 or 3")
    return found


def _grid(x: Node, tiles_y: Array, tiles_x: Array) -> Grid:
    """The tiles of each sample. Upstream divides an image that continues beyond both ends: even
    an extent that is divisible grows, by as many pixels as it has tiles, if the other one is not.
    """
    for name, given in (("tiles_x", tiles_x), ("tiles_y", tiles_y)):
        _refuse(given < 1, f"`{name}` must be positive, got", given)
    counts = np.stack(np.broadcast_arrays(tiles_y, tiles_x), axis=1).astype(np.int64)
    many = counts.prod(axis=1)
    _refuse(many > MAX_TILES, f"an image can have at most {MAX_TILES} tiles, got", many)
    image = x.shapes.rows[:, :2]
    image, counts = np.broadcast_arrays(image, counts)
    grows = (image % counts).any(axis=1, keepdims=True)
    return Grid(counts, np.where(grows, image // counts + 1, image // counts))


def _refuse(bad: Array, message: str, values: Array) -> None:
    if bad.any():
        s = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{message} {int(values[s])}" + f" for sample {s}" * (len(bad) > 1))


def _limits(clip_limit: Array, grid: Grid) -> Array:
    """The largest count of a bin; all values of the tile if there is no limit."""
    values = grid.extents.prod(axis=1)
    given = np.broadcast_to(clip_limit.astype(np.float32).astype(np.float64), values.shape)
    is_limited = (given > 0) & (given < BINS)
    counts = np.where(is_limited, given, 0) * values / BINS
    return np.where(is_limited, np.maximum(counts.astype(np.int64), 1), values)


# -- tables ----------------------------------------------------------------------------------------


def _cells(x: Node, grid: Grid, limits: Array, channels: int) -> Node:
    """For each cell between the centres of four tiles, and for each byte, the levels of the four.

    They are the bytes of one word, so that a pixel reads its four levels at once.
    """
    tables = build.limited_tables(_NAME, x, 0, grid, limits)
    rows = np.full((len(grid.counts), 4), BINS)
    rows[:, :2], rows[:, 2] = grid.counts + 1, channels
    numbers = rows_node(_distinct(grid.counts.astype(np.float32)), x)
    key = (channels,)
    return build.pointwise(
        _NAME, _packed, [tables, numbers], [(), ()], Shapes(rows), None, key, tables.batch
    )


def _packed(tables: Expr, numbers: Expr, channels: int) -> Expr:
    down, across = (ex.cast(_number(numbers, k), dt.int32) for k in range(2))
    row, column, channel, byte = map(ex.index, range(4))

    def level(r: Expr, c: Expr) -> Expr:
        r = ex.maximum(ex.minimum(r, down - 1), 0)
        c = ex.maximum(ex.minimum(c, across - 1), 0)
        table = (r * across + c) * channels + channel
        return ex.cast(ex.lookup(tables, table * BINS + byte), dt.uint32)

    first, second, third, fourth = (
        level(r, c) for r in (row - 1, row) for c in (column - 1, column)
    )
    return first | (second << 8) | (third << 16) | (fourth << 24)


def _number(numbers: Expr, k: int) -> Expr:
    return ex.lookup(numbers, ex.const(k, dt.int32))


def _distinct(rows: Array) -> Array:
    return rows[:1] if (rows == rows[0]).all() else rows


# -- pixels ----------------------------------------------------------------------------------------


def _blended(x: Node, cells: Node, grid: Grid, body: Callable[..., Expr], *more: Node) -> Node:
    one = np.float32(1)
    per_tile = one / np.maximum(grid.extents, 1).astype(np.float32)
    numbers = np.concatenate([per_tile, grid.counts[:, 1:] + one], axis=1).astype(np.float32)
    inputs = [x, cells, rows_node(_distinct(numbers), x), *more]
    axes = [_WHOLE, *((),) * (len(inputs) - 1)]
    return build.pointwise(_NAME, body, inputs, axes, x.shapes, x.layout, (), cells.batch)


def _blend(level: Expr, cells: Expr, numbers: Expr, channel: Expr | None = None) -> Expr:
    """The level of a pixel, blended between the tables of four tiles, in float32 as upstream."""
    (row, down), (column, right) = (_between_tiles(a, _number(numbers, a)) for a in range(2))
    cell = row * ex.cast(_number(numbers, 2), dt.int32) + column
    if channel is not None:
        cell = cell * 3 + channel
    word = ex.lookup(cells, cell * BINS + ex.cast(level, dt.int32))
    levels = [ex.cast(ex.cast((word >> 8 * k) & 255, dt.int32), dt.float32) for k in range(4)]
    left = 1.0 - right
    upper = levels[0] * left + levels[1] * right
    lower = levels[2] * left + levels[3] * right
    return ex.convert(upper * (1.0 - down) + lower * down, dt.uint8, "even", in_range=True)


def _between_tiles(axis: int, per_tile: Expr) -> tuple[Expr, Expr]:
    """The cell that a position lies in, and how far it is from the cell's first tile."""
    place = f32(ex.index(axis)) * per_tile - 0.5
    before = ex.floor(place)
    return ex.cast(before, dt.int32) + 1, place - before


def _of_grey(x: Expr, cells: Expr, numbers: Expr) -> Expr:
    return _blend(x, cells, numbers)


def _of_channels(x: Expr, cells: Expr, numbers: Expr) -> Expr:
    return _blend(x, cells, numbers, ex.index(2))


def _of_lab(x: Expr, cells: Expr, numbers: Expr, table: Expr) -> Expr:
    level, a, b = (ex.at_axis(x, 2, k) for k in range(3))
    return by_channel(lab.to_rgb([_blend(level, cells, numbers), a, b], table))


def _lab(x: Expr, table: Expr) -> Expr:
    return by_channel(lab.to_lab([ex.at_axis(x, 2, k) for k in range(3)], table))


def _lightness(colours: Node) -> Node:
    rows = colours.shapes.rows.copy()
    rows[:, 2] = 1
    return build.pointwise(_NAME, _first, [colours], [_WHOLE], Shapes(rows), "HWC")


def _first(x: Expr) -> Expr:
    return ex.at_axis(x, 2, 0)
