"""Ops on positions, lookup tables and points: grid_mask, lookup_table, one_hot, coord_…"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from ...core import convert
from ...core.schema import arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ..geometry.window import beside, c_cast


def _grid(x, tile, ratio, angle, shift_x, shift_y, first=0):
    """Zero `x` where the fractions of both rotated coordinates, in tiles, are below `ratio`."""
    numbers = (tile, ratio, angle, shift_x, shift_y)
    tile, ratio, angle, shift_x, shift_y = (ex.convert(v, dt.float32) for v in numbers)
    c, s = ml.cos(angle) / tile, ml.sin(angle) / tile
    row, column = (ex.cast(ex.index(a), dt.float32) for a in (first, first + 1))
    u = (-shift_x / tile - s * row) + column * c
    v = (-shift_y / tile + c * row) + column * s
    hole = (u - ex.floor(u) < ratio) & (v - ex.floor(v) < ratio)
    # multiply by 0, so that nan and infinity become nan, as upstream
    zero = ex.cast(_wide(x) * 0.0, x.dtype) if x.dtype.is_float else ex.const(0, x.dtype)
    return ex.select(hole, zero, x)


def _grid_of_frames(*operands):
    """The same for sequences, whose first axis counts frames."""
    return _grid(*operands, first=1)


def _wide(x: Expr) -> Expr:
    """Widen 16-bit floats, which have no arithmetic, to float32."""
    return ex.cast(x, dt.float32) if x.dtype.bits == 16 else x


@op.graph(
    rejects="bool",
    sample="ndd.grid_mask(ndd.ones(shape=[8, 8, 3]), tile=4).shape\n=(8, 8, 3)",
)  # fmt: skip
def grid_mask(
    input=data("Images: rows, columns, channels; or sequences of them (FHWC)."),
    angle=arg(float, 0.0, "Rotation of the grid, in radians."),
    ratio=arg(float, 0.5, "Part of a tile's side that is black."),
    shift_x=arg(float, 0.0, "Shift of the grid to the right."),
    shift_y=arg(float, 0.0, "Shift of the grid downwards."),
    tile=geometry(int, 100, "Side of a tile, in pixels."),
):
    """Black out a regular grid of squares."""
    x = input
    has_frames = x.rank == 4 and x.layout is not None and x.layout[0] == "F"
    if x.rank != 3 and not has_frames:
        raise ValueError(f"images must have 3 dimensions (rows, columns, channels), got {x.rank}")
    if bool((tile <= 0).any()):
        raise ValueError(f"`tile` must be positive, got {int(tile.min())}")
    if len(tile) == 1:
        side = convert.const_scalar(int(tile[0]), dt.int32)
    else:
        side = convert.copy_arrays(list(tile.astype(np.int32)), dt.int32, None, batch=True)
    inputs = [x, beside(side, x), ratio, angle, shift_x, shift_y]
    axes = [tuple(range(x.rank)), *[()] * 5]
    body = _grid_of_frames if has_frames else _grid
    return build.pointwise("grid_mask", body, inputs, axes, x.shapes, x.layout)


# -- tables --------------------------------------------------------------------------------------

MAX_KEY = 0xFFFF


@memoized(64)  # up to 256 KB each
def _table(keys: tuple[int, ...], numbers: bytes) -> Node:
    """The values of keys 0, 1, … up to the largest key, then the default.

    `numbers` holds the values and the default as the bytes of float64: as floats, -0.0 and 0.0
    would be equal cache keys.
    """
    given = np.frombuffer(numbers)
    with np.errstate(over="ignore"):
        entries = np.full(max(keys, default=-1) + 2, given[-1], np.float32)
        entries[list(keys)] = given[:-1]
    return convert.const_array(entries, dt.float32)


def _looked_up(x: Expr, table: Expr, last: Expr, dtype: DType) -> Expr:
    """The table's entry for a key, or its last entry (the default) for an unknown key."""
    wide = {dt.uint32: dt.int64, dt.int64: dt.int64, dt.uint64: dt.uint64}.get(x.dtype, dt.int32)
    key, last = ex.cast(x, wide), ex.cast(last, wide)
    known = (key >= 0) & (key < last)
    entry = ex.lookup(table, ex.cast(ex.select(known, key, last), dt.int32))
    return ex.convert(entry, dtype)


@op.graph(
    rejects="bool f16 f32 f64 bfloat16",
    sample="ndd.lookup_table(ndd.tensor([0, 1, 2]), keys=[1], values=[5.0]).shape\n=(3,)",
)  # fmt: skip
def lookup_table(
    input=data("Integers."),
    default_value=static(float, 0.0, "Value of keys that are not in the table."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    keys=static("ints", (), "Keys, from 0 to 65535; of equal keys the last one counts."),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    values=static("floats", (), "Value of every key."),
):
    """Map integers through a table."""
    if len(keys) != len(values):
        raise ValueError(f"`keys` has {len(keys)} and `values` {len(values)} entries")
    wrong = next((k for k in keys if not 0 <= k <= MAX_KEY), None)
    if wrong is not None:
        raise ValueError(f"`keys` must lie in [0, {MAX_KEY}], got {wrong}")
    table = _table(keys, np.array([*values, default_value]).tobytes())
    last = convert.const_scalar(max(keys, default=-1) + 1, dt.int32)
    inputs = [input, beside(table, input), beside(last, input)]
    axes = [tuple(range(input.rank)), (), ()]
    kind = output_dtype or dtype
    return build.pointwise(
        "lookup_table", _looked_up, inputs, axes, input.shapes, input.layout, (kind,)
    )


def _hot(x: Expr, on: Expr, off: Expr, axis: int) -> Expr:
    """`on` where the position on `axis` is the class, else `off`."""
    if x.dtype.is_float:
        x = _wide(x)
        inside = (x > -2147483648.0) & (x < 2147483648.0)
        x = ex.trunc(ex.select(inside, x, ex.const(-1.0, x.dtype)))
    return ex.select(ex.eq(ex.cast(x, dt.int32), ex.index(axis)), on, off)


@op.graph(
    rejects="bool",
    sample="ndd.one_hot(ndd.tensor([1, 0, 2]), num_classes=3).shape\n=(3, 3)",
)  # fmt: skip
def one_hot(
    input=data("Class numbers."),
    axis=static(int, None, "Position of the new axis; at the end if omitted or -1."),
    axis_name=static(str, None, "Letter of the new axis in the layout."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    num_classes=static(int, 0, "Extent of the new axis."),
    off_value=static(float, 0.0, "Value elsewhere."),
    on_value=static(float, 1.0, "Value at the class."),
):
    """Expand class numbers into vectors with one entry set.

    If `axis` is omitted and every sample has a single element, samples count as scalars.
    """
    x = input
    if num_classes < 0:
        raise ValueError(f"`num_classes` must not be negative, got {num_classes}")
    if axis is None and bool((x.shapes.volumes == 1).all()):
        x = build.drop_axes("one_hot", x, range(x.rank), None)
    if axis is not None and not -1 <= axis <= x.rank:
        raise ValueError(f"`axis` must lie in [-1, {x.rank}], got {axis}")
    place = x.rank if axis is None or axis == -1 else axis
    layout = None
    if axis_name is not None:
        if len(axis_name) != 1:
            raise ValueError(f"`axis_name` must be one letter, got {axis_name!r}")
        if x.rank and not x.layout:
            raise ValueError("`axis_name` needs an input with a layout")
        old = x.layout or ""
        layout = old[:place] + axis_name + old[place:]
    shapes = Shapes(np.insert(x.shapes.rows, place, num_classes, axis=1))
    on, off = (
        beside(convert.const_scalar(c_cast(v, dtype), dtype), x) for v in (on_value, off_value)
    )
    axes = [tuple(a for a in range(x.rank + 1) if a != place), (), ()]
    return build.pointwise("one_hot", _hot, [x, on, off], axes, shapes, layout, (place,))


# -- points --------------------------------------------------------------------------------------


def _mirrored(x, *rest):
    """2 * centre - x in flipped columns, `x` in the others."""
    *numbers, order = rest
    flips, centers = numbers[:3], numbers[3:]
    result = x
    for column, letter in enumerate(order):
        n = "xyz".index(letter)
        flipped = ex.ne(ex.convert(flips[n], dt.int32), 0) & ex.eq(ex.index(-1), column)
        result = ex.select(flipped, 2.0 * ex.convert(centers[n], dt.float32) - x, result)
    return result


@op.graph(
    sample="ndd.coord_flip(ndd.tensor([[0.25, 0.5]])).shape\n=(1, 2)",
)  # fmt: skip
def coord_flip(
    input=data("Points: one row each, float32."),
    center_x=arg(float, 0.5, "Mirror axis of x."),
    center_y=arg(float, 0.5, "Mirror axis of y."),
    center_z=arg(float, 0.5, "Mirror axis of z."),
    flip_x=arg(int, 1, "Mirror x."),
    flip_y=arg(int, 0, "Mirror y."),
    flip_z=arg(int, 0, "Mirror z."),
    layout=static(str, "", "Order of the coordinates, such as 'xy' or 'zyx'; xyz if omitted."),
):
    """Mirror point coordinates."""
    if input.dtype is not dt.float32:
        raise TypeError(f"points must be float32, got {input.dtype}")
    if input.rank != 2:
        raise ValueError(f"points must have 2 dimensions (points, coordinates), got {input.rank}")
    order = layout or "xyz"
    if not set(order) <= set("xyz") or len(set(order)) != len(order):
        raise ValueError(f"`layout` must be made of x, y and z, got {layout!r}")
    most = int(input.shapes.rows[:, 1].max())
    if most > len(order):
        raise ValueError(f"points have {most} coordinates, `layout` {order!r} names {len(order)}")
    inputs = [input, flip_x, flip_y, flip_z, center_x, center_y, center_z]
    axes = [(0, 1), *[()] * 6]
    return build.pointwise(
        "coord_flip", _mirrored, inputs, axes, input.shapes, input.layout, (order,)
    )


def _mapped(x: Expr, matrix: Expr, offset: Expr, columns: int, width: int, dtype: DType) -> Expr:
    """((m0 * x0 + m1 * x1) + …) + t, with the row of M that belongs to the output column.

    `width` is the row length of `matrix`, or 0 if `matrix` is a scalar. A row longer than `columns`
    ends with the offset.
    """
    row = ex.index(-1)

    def entry(j: int) -> Expr:
        number = ex.lookup(matrix, row * width + j) if width else matrix
        number = ex.convert(number, dt.float32)
        return number if width else ex.select(ex.eq(row, j), number, 0.0)

    terms = [entry(j) * ex.cast(ex.at_axis(x, -1, j), dt.float32) for j in range(columns)]
    terms.append(entry(columns) if width > columns else ex.convert(offset, dt.float32))
    return ex.convert(reduce(add, terms), dtype)


MAX_COORDINATES = 6


@op.graph(
    rejects="bool", by_frame=True,
    sample="ndd.coord_transform(ndd.tensor([[1.0, 2.0]]), M=[[0, 1], [1, 0]]).shape\n=(1, 2)",
)  # fmt: skip
def coord_transform(
    input=data("Points along the last axis."),
    M=arg(
        float, None, "Matrix (or its values row by row), or a scale.", matrix=True, per_frame=True
    ),
    MT=arg(float, None, "Matrix with the offset as its last column.", matrix=True, per_frame=True),
    T=arg(float, None, "Offset: a number or one per coordinate.", vector=True, per_frame=True),
    dtype=static(DType, dt.float32, "Element type of the result: float32 or the input's."),
):
    """Apply an affine map to points: M x + T."""
    x = input
    if x.rank < 2:
        raise ValueError(f"points must have at least 2 dimensions, got {x.rank}")
    columns = x.shapes.extent(x.rank - 1)
    if columns is None:
        raise ValueError("points must have as many coordinates in every sample")
    _check_coordinates("points", columns)
    if dtype not in (dt.float32, x.dtype):
        raise TypeError(f"`dtype` must be float32 or the input's type {x.dtype}, got {dtype}")
    if MT is not None and (M is not None or T is not None):
        raise ValueError("`MT` excludes `M` and `T`")
    name, matrix, width = ("MT", MT, columns + 1) if MT is not None else ("M", M, columns)
    if matrix is None:
        matrix = beside(convert.const_scalar(1.0, dt.float32), x)
    offset = T if T is not None else beside(convert.const_scalar(0.0, dt.float32), x)
    rows = columns
    if matrix.rank:
        matrix, rows = _flat_matrix(name, matrix, width)
        _check_coordinates("results", rows)
    if offset.rank and bool(((offset.shapes.rows != 1) & (offset.shapes.rows != rows)).any()):
        raise ValueError(
            f"`T` has {offset.shapes.tuples[0][0]} values, the result has {rows} coordinates"
        )
    extents = np.array(x.shapes.rows)
    extents[:, -1] = rows
    axes = [tuple(range(x.rank)), (), (x.rank - 1,) * offset.rank]
    key = (columns, width if matrix.rank else 0, dtype)
    return build.pointwise(
        "coord_transform", _mapped, [x, matrix, offset], axes, Shapes(extents), x.layout, key
    )


def _check_coordinates(what: str, number: int) -> None:
    if not 1 <= number <= MAX_COORDINATES:
        raise ValueError(f"{what} must have 1 to {MAX_COORDINATES} coordinates, got {number}")


def _flat_matrix(name: str, matrix: Node, width: int) -> tuple[Node, int]:
    """The values row by row, and the number of rows; a list is split into rows of `width`."""
    shapes = matrix.shapes
    if not shapes.uniform:
        raise ValueError(f"`{name}` must have the same shape in every sample")
    total = int(shapes.volumes[0])
    if matrix.rank == 1 and total % width:
        raise ValueError(f"`{name}` has {total} values, which do not form rows of {width}")
    if matrix.rank == 2 and shapes.tuples[0][1] != width:
        raise ValueError(f"`{name}` has {shapes.tuples[0][1]} columns, the points need {width}")
    flat = Shapes(shapes.volumes[:, None])
    return build.alias("coord_transform", matrix, flat, matrix.dtype, None), total // width
