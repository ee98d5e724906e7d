"""Ops that look at positions or tables: grid_mask, lookup_table, one_hot, and coordinates."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .. import convert
from ..fusion import build
from ..fusion.graph import Node, Shapes
from ..kernels import dtypes as dt
from ..kernels import expr as ex
from ..kernels import mathlib as ml
from ..kernels.dtypes import DType
from ..kernels.expr import Expr
from ..schema import REQUIRED, arg, data, geometry, op, static
from .geometry import _per_sample_node
from .window import c_cast


def _grid(x, tile, ratio, angle, shift_x, shift_y):
    """`x` times 0 where both coordinates, turned and in units of tiles, have a small fraction."""
    tile, ratio, angle, shift_x, shift_y = (
        ex.cast(ex.convert(v, dt.float32), dt.float32) for v in (tile, ratio, angle, shift_x, shift_y)
    )
    c, s = ml.cos(angle) / tile, ml.sin(angle) / tile
    row, column = (ex.cast(ex.index(a), dt.float32) for a in (0, 1))
    u = (-shift_x / tile - s * row) + column * c
    v = (-shift_y / tile + c * row) + column * s
    hole = (u - ex.floor(u) < ratio) & (v - ex.floor(v) < ratio)
    if x.dtype.is_float:
        # a product, so that nan and infinity stay visible, as upstream
        erased = ex.cast(ex.cast(x, dt.float32) * 0.0, x.dtype) if x.dtype.bits < 64 else x * 0.0
    else:
        erased = ex.const(0, x.dtype)
    return ex.select(hole, erased, x)


@op.graph(rejects="bool")
def grid_mask(
    input=data("Images: rows, columns, channels."),
    angle=arg(float, 0.0, "Rotation of the grid, in radians."),
    ratio=arg(float, 0.5, "Part of a tile's side that is black."),
    shift_x=arg(float, 0.0, "Shift of the grid to the right."),
    shift_y=arg(float, 0.0, "Shift of the grid downwards."),
    tile=geometry(int, 100, "Side of a tile, in pixels."),
):
    """Black out a regular grid of squares."""
    if input.rank != 3:
        raise ValueError(f"images must have 3 dimensions (rows, columns, channels), got {input.rank}")
    if bool((tile <= 0).any()):
        raise ValueError(f"`tile` must be positive, got {int(tile.min())}")
    if len(tile) == 1:
        tiles = _per_sample_scalar(int(tile[0]), input)
    else:
        tiles = build.drop_axes("scalar", _per_sample_node(tile[:, None].astype(np.int32), dt.int32, input), [0], None)
    inputs = [input, tiles, ratio, angle, shift_x, shift_y]
    axes = [tuple(range(3)), *[()] * 5]
    return build.pointwise("grid_mask", _grid, inputs, axes, input.shapes, input.layout)


def _per_sample_scalar(value: int, x: Node) -> Node:
    from ..call import _on

    node = convert.const_scalar(value, dt.int32)
    return node if x.device is None else _on(node, x.device)


# -- tables --------------------------------------------------------------------------------------

MAX_KEY = 0xFFFF


@lru_cache(maxsize=256)
def _table(keys: tuple[int, ...], values: tuple[float, ...], default: float, dtype: DType) -> Node:
    """All values from key 0 to the largest, then the default, in the result's type."""
    entries = np.full(max(keys, default=-1) + 2, np.float32(default), np.float32)
    entries[list(keys)] = np.asarray(values, np.float32)
    numbers = Node_of_floats(entries)
    node = build.pointwise("table", _to_type, [numbers], [(0,)], numbers.shapes, None, (dtype,))
    from ..call import current_context, evaluate_node

    node.context = current_context()
    evaluate_node(node)
    node.op = "const"
    return node


def Node_of_floats(entries) -> Node:  # noqa: N802
    return convert.copy_arrays([entries], dt.float32, None, batch=False)


def _to_type(x: Expr, dtype: DType) -> Expr:
    return ex.convert(x, dtype)


def _looked_up(x: Expr, table: Expr, last: Expr) -> Expr:
    """The table's entry, or its last one (the default) for any other key."""
    wide = dt.uint64 if x.dtype is dt.uint64 else dt.int64
    if x.dtype.bits <= 32 and x.dtype is not dt.uint32:
        wide = dt.int32
    key = ex.cast(x, wide)
    limit = ex.cast(last, wide)
    known = key < limit
    if wide is not dt.uint64:
        known = known & (key >= 0)
    return ex.lookup(table, ex.cast(ex.select(known, key, limit), dt.int32))


@op.graph(rejects="bool f16 f32 f64 bfloat16")
def lookup_table(
    input=data("Integers."),
    default_value=static(float, 0.0, "Value of keys that are not in the table."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    keys=static("ints", (), "Keys, from 0 to 65535."),
    output_dtype=static(DType, None, "Old name of `dtype`."),
    values=static("floats", (), "Value of every key."),
):
    """Map integers through a table."""
    if len(keys) != len(values):
        raise ValueError(f"`keys` has {len(keys)} and `values` {len(values)} entries")
    if any(not 0 <= k <= MAX_KEY for k in keys):
        raise ValueError(f"`keys` must lie in [0, {MAX_KEY}]")
    table = _table(keys, values, default_value, output_dtype or dtype)
    last = convert.const_scalar(max(keys, default=-1) + 1, dt.int32)
    if input.device is not None:
        from ..call import _on

        table, last = _on(table, input.device), _on(last, input.device)
    axes = [tuple(range(input.rank)), (0,), ()]
    return build.pointwise("lookup_table", _looked_up, [input, table, last], axes, input.shapes, input.layout)


def _hot(x: Expr, on: Expr, off: Expr, axis: int) -> Expr:
    """`on` where the position on `axis` is the class."""
    if x.dtype.is_float:
        x = ex.cast(x, dt.float32) if x.dtype.bits == 16 else x
        inside = (x > -2147483648.0) & (x < 2147483648.0)
        number = ex.cast(ex.trunc(ex.select(inside, x, ex.const(-1.0, x.dtype))), dt.int32)
    else:
        number = ex.cast(x, dt.int32)
    return ex.select(ex.eq(number, ex.index(axis)), on, off)


@op.graph(rejects="bool")
def one_hot(
    input=data("Class numbers."),
    axis=static(int, None, "Place of the new axis; at the end if omitted or -1."),
    axis_name=static(str, None, "Letter of the new axis in the layout."),
    dtype=static(DType, dt.float32, "Element type of the result."),
    num_classes=static(int, 0, "Extent of the new axis."),
    off_value=static(float, 0.0, "Value elsewhere."),
    on_value=static(float, 1.0, "Value at the class."),
):
    """Expand class numbers into vectors with one entry set."""
    x = input
    if num_classes < 0:
        raise ValueError(f"`num_classes` must not be negative, got {num_classes}")
    if axis is None and x.rank and bool((x.shapes.volumes == 1).all()):
        x = build.drop_axes("one_hot", x, list(range(x.rank)), None)
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
    on, off = (convert.const_scalar(c_cast(v, dtype), dtype) for v in (on_value, off_value))
    if x.device is not None:
        from ..call import _on

        on, off = _on(on, x.device), _on(off, x.device)
    axes = [tuple(a for a in range(x.rank + 1) if a != place), (), ()]
    return build.pointwise("one_hot", _hot, [x, on, off], axes, shapes, layout, (place,))


# -- points --------------------------------------------------------------------------------------


def _mirrored(x, fx, fy, fz, cx, cy, cz, layout):
    """2 * centre - x in the columns that are flipped."""
    column = ex.index(-1)
    result = x
    for k, letter in enumerate(layout):
        n = "xyz".index(letter)
        flag = ex.ne(ex.convert((fx, fy, fz)[n], dt.int32), 0)
        center = ex.convert((cx, cy, cz)[n], dt.float32)
        hit = ex.eq(column, k) & flag
        result = ex.select(hit, 2.0 * center - x, result)
    return result


@op.graph()
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
    columns = input.shapes.rows[:, 1]
    order = layout or "xyz"
    if any(n not in "xyz" for n in order) or len(set(order)) != len(order):
        raise ValueError(f"`layout` must be made of x, y and z, got {layout!r}")
    if bool((columns > len(order)).any()):
        raise ValueError(f"points have {int(columns.max())} coordinates, `layout` {order!r} names {len(order)}")
    inputs = [input, flip_x, flip_y, flip_z, center_x, center_y, center_z]
    axes = [(0, 1), *[()] * 6]
    return build.pointwise("coord_flip", _mirrored, inputs, axes, input.shapes, input.layout, (order,))


def _mapped(x, *rest):
    """((m0 * x0 + m1 * x1) + …) + t for the row of M that belongs to the output column."""
    *nodes, columns, has_matrix, has_offset, dtype = rest
    matrix = nodes.pop(0) if has_matrix else None
    offset = ex.convert(nodes.pop(0), dt.float32) if has_offset else ex.const(0.0, dt.float32)
    if matrix is None or has_matrix == "scalar":
        value = ex.cast(x, dt.float32)
        factor = ex.const(1.0, dt.float32) if matrix is None else ex.convert(matrix, dt.float32)
        return ex.convert(value * factor + offset, dtype)
    start = ex.index(-1) * columns
    value = None
    for j in range(columns):
        weight = ex.convert(ex.lookup(matrix, start + j), dt.float32)
        term = weight * ex.cast(ex.at_axis(x, -1, j), dt.float32)
        value = term if value is None else value + term
    return ex.convert(value + offset, dtype)


MAX_POINT_RANK = 6


@op.graph(rejects="bool")
def coord_transform(
    input=data("Points along the last axis."),
    M=static(None, None, "Matrix: a number, rows of numbers, or a tensor."),
    MT=static(None, None, "Matrix with the offset as its last column."),
    T=static(None, None, "Offset: a number or one per coordinate."),
    dtype=static(DType, dt.float32, "Element type of the result: float32 or the input's."),
):
    """Apply an affine map to points: M x + T."""
    x = input
    if x.rank < 2:
        raise ValueError(f"points must have at least 2 dimensions, got {x.rank}")
    columns = x.shapes.extent(x.rank - 1)
    if columns is None or not 1 <= columns <= MAX_POINT_RANK:
        raise ValueError(f"points must have 1 to {MAX_POINT_RANK} coordinates, got {columns or 'differing numbers'}")
    if dtype not in (dt.float32, x.dtype):
        raise TypeError(f"`dtype` must be float32 or the input's type {x.dtype}, got {dtype}")
    if MT is not None and (M is not None or T is not None):
        raise ValueError("`MT` excludes `M` and `T`")
    matrix, offset = _matrix_and_offset(x, M, MT, T, columns)
    rows = columns
    if matrix is not None and matrix.rank:
        rows = int(matrix.shapes.rows[0, 0]) // columns
        if not 1 <= rows <= MAX_POINT_RANK:
            raise ValueError(f"results must have 1 to {MAX_POINT_RANK} coordinates, got {rows}")
    if offset is not None and offset.rank and int(offset.shapes.rows[0, 0]) not in (1, rows):
        raise ValueError(f"`T` has {int(offset.shapes.rows[0, 0])} values, the result has {rows} coordinates")
    shapes = x.shapes
    if rows != columns:
        changed = np.array(shapes.rows)
        changed[:, -1] = rows
        shapes = Shapes(changed)
    inputs, axes = [x], [tuple(range(x.rank))]
    if matrix is not None:
        inputs.append(matrix)
        axes.append((0,) if matrix.rank else ())
    if offset is not None:
        inputs.append(offset)
        axes.append((x.rank - 1,) if offset.rank else ())
    has_matrix = "" if matrix is None else ("matrix" if matrix.rank else "scalar")
    key = (columns, has_matrix, offset is not None, dtype)
    return build.pointwise("coord_transform", _mapped, inputs, axes, shapes, x.layout, key)


def _matrix_and_offset(x: Node, M, MT, T, columns: int):  # noqa: N803
    """M as a flat node (or a scalar one), T as a node; None where they are not given."""
    if MT is not None:
        both = _numbers("MT", MT, x)
        if both.rank == 0:
            return both, None
        if both.rank == 1:
            both = _unflatten("MT", both, columns + 1)
        if int(both.shapes.rows[0, 1]) != columns + 1:
            raise ValueError(f"`MT` has {int(both.shapes.rows[0, 1])} columns, the points need {columns + 1}")
        full = np.array(both.shapes.rows)
        size = full.copy()
        size[:, 1] = columns
        start = np.zeros((1, 2), np.int64)
        left = build.window("coord_transform", both, [1], start, size, both.batch)
        last = build.index_axes(
            "coord_transform", both, np.array([[0, columns]]), np.ones((1, 2), np.int64), full, [1], [1], [],
            None, both.batch,
        )  # fmt: skip
        return _flatten(left), last
    matrix = None if M is None else _numbers("M", M, x)
    if matrix is not None and matrix.rank == 1 and int(matrix.shapes.rows[0, 0]) % columns:
        raise ValueError(f"`M` has {int(matrix.shapes.rows[0, 0])} values, which do not form rows of {columns}")
    if matrix is not None and matrix.rank == 2:
        if bool((matrix.shapes.rows[:, 1] != columns).any()):
            raise ValueError(f"`M` has {int(matrix.shapes.rows[0, 1])} columns, the points have {columns} coordinates")
        matrix = _flatten(matrix)
    return matrix, None if T is None else _numbers("T", T, x)


def _numbers(name: str, value, x: Node) -> Node:
    from ..call import _input_node, _on
    from ..handle import Handle
    from ..schema import Param

    if isinstance(value, Handle):
        node = _input_node(Param("data", name=name), value)
    else:
        node = convert.copy_arrays([np.asarray(value, np.float32)], dt.float32, None, batch=False)
    if node.rank > 2:
        raise ValueError(f"`{name}` must be a number, a list or a matrix, got {node.rank} dimensions")
    if node.batch and not node.shapes.uniform:
        raise ValueError(f"`{name}` must have the same shape in every sample")
    if node.batch and x.batch and node.count != x.count:
        raise ValueError(f"Inconsistent batch size: {x.count} != {node.count}")
    return node if x.device is None else _on(node, x.device)


def _flatten(node: Node) -> Node:
    rows = node.shapes.rows.prod(axis=1, keepdims=True)
    return build.alias("coord_transform", node, Shapes(rows), node.dtype, None)


def _unflatten(name: str, node: Node, columns: int) -> Node:
    total = int(node.shapes.rows[0, 0])
    if total % columns:
        raise ValueError(f"`{name}` has {total} values, which do not form rows of {columns}")
    rows = np.array([[total // columns, columns]] * node.count, np.int64)
    return build.alias("coord_transform", node, Shapes(rows), node.dtype, None)


__all__ = ["REQUIRED"]
