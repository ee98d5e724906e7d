"""Affine matrices [n, n + 1] for points in n dimensions: transforms.translation, scale, …

Each op defines a function of row and column that returns one entry of the new matrix; `_made`
multiplies the new matrix with the input matrix. An argument whose layout begins with F holds one
value per frame; the result is then a sequence of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from ...core.schema import REQUIRED, arg, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.expr import Expr
from ..geometry.window import on_device

MAX_DIMENSIONS = 6
_INPUT = "Matrix to begin with; the new transform is applied after it."
_REVERSE = "Apply the new transform before `input`, not after it."
_CENTER = "Point that the transform does not move; the origin if omitted."
_DEGREE = math.pi / 180

Entry = Callable[[Expr, Expr], Expr]


class Values(NamedTuple):
    """An argument flattened to a list of numbers per sample, `per_frame` for each frame."""

    name: str
    node: Node
    per_frame: int
    frames: Array | None  # [samples or 1]; None if all frames share the values


def _values(name: str, node: Node | None, rank: int) -> Values | None:
    """Flatten an argument; `rank` is the largest number of dimensions that one value may have."""
    if node is None:
        return None
    frames = None
    rows = node.shapes.rows
    if node.layout and node.layout[0] == "F":
        frames, rows = rows[:, 0], rows[:, 1:]
    if rows.shape[1] > rank:
        wanted = ("a number", "a list", "a matrix")[rank]
        raise ValueError(
            f"`{name}` must be {wanted}, got {node.rank} dimensions; "
            f"the layout of values per frame begins with F"
        )
    if bool((rows != rows[0]).any()):
        lengths = sorted({tuple(r) for r in rows.tolist()})
        raise ValueError(f"`{name}` must have the same shape in every sample, got {lengths}")
    flat = build.alias("transform", node, Shapes(node.shapes.volumes[:, None]), node.dtype, None)
    return Values(name, flat, int(rows[0].prod()), frames)


def _given(*values: Values | None) -> list[Values]:
    return [v for v in values if v is not None]


def _made(
    name: str, ndim: int, entry: Callable[..., Entry], values: Sequence[Values],
    matrix: Node | None, count: int | None, ordinal: int | None, reverse: bool = False,
    key: tuple[object, ...] = (),
) -> Node:  # fmt: skip
    """Build matrices from `entry(ndim, *readers of the values, *key)`, times `matrix` if given."""
    name = f"transforms.{name}"
    if not 1 <= ndim <= MAX_DIMENSIONS:
        raise ValueError(f"a transform has 1 to {MAX_DIMENSIONS} dimensions, got {ndim}")
    tables = list(values)
    if matrix is not None:
        tables.append(_matrix("input", matrix, ndim))
    frames = _frames(tables)
    nodes = [v.node for v in tables]
    if ordinal is None:
        ordinal = next((n.device for n in nodes if n.device is not None), None)
    nodes = [on_device(n, ordinal) for n in nodes]
    rows = [ndim, ndim + 1]
    extents = np.empty((count or 1, 2 + (frames is not None)), np.int64)
    extents[:, -2:] = rows
    if frames is not None:
        extents[:, 0] = frames
    strides = tuple(v.per_frame if _varies(v) else 0 for v in tables)
    lengths = tuple(v.per_frame for v in tables)
    whole = (entry, ndim, strides, lengths, key, matrix is not None, reverse)
    layout = "**" if frames is None else "F**"
    axes, shapes = [()] * len(nodes), Shapes(extents)
    return build.pointwise(
        name, _entries, nodes, axes, shapes, layout, whole, batch=count is not None
    )


def _varies(v: Values) -> bool:
    return v.frames is not None and bool((v.frames != 1).any())


def _frames(values: Sequence[Values]) -> Array | None:
    """Number of frames of each sample; an argument with one frame is broadcast."""
    lead = {v.name: v.frames for v in values if v.frames is not None}
    if not lead:
        return None
    varying = {name: frames for name, frames in lead.items() if bool((frames != 1).any())}
    first, chosen = next(iter((varying or lead).items()))
    for name, frames in varying.items():
        different = np.flatnonzero(frames != chosen)
        if len(different):
            s = int(different[0])
            raise ValueError(
                f"`{name}` has {int(frames[s % len(frames)])} frames and `{first}` "
                f"{int(chosen[s % len(chosen)])} in sample {s}"
            )
    return chosen


def _matrix(name: str, node: Node, ndim: int | None) -> Values:
    if node.dtype is not dt.float32:
        raise TypeError(f"`{name}` must be float32, got {node.dtype}")
    values = _values(name, node, 2)
    assert values is not None
    rows, columns = (0, 0) if node.rank < 2 else node.shapes.tuples[0][-2:]
    if columns != rows + 1:
        raise ValueError(
            f"`{name}` must be a matrix of shape (n, n + 1), got {node.shapes.tuples[0]}"
        )
    if ndim is not None and rows != ndim:
        raise ValueError(
            f"`{name}` is a transform of {rows} dimensions, the other arguments have {ndim}"
        )
    return values


def _entries(*arguments) -> Expr:
    """Body of all these ops: one entry of the product, as an expression."""
    *tables, entry, ndim, strides, lengths, key, chained, reverse = arguments
    reads = [_reader(*t) for t in zip(tables, strides, lengths, strict=True)]
    row, column = ex.index(-2), ex.index(-1)
    if not chained:
        return entry(ndim, *reads, *key)(row, column)
    made, old = entry(ndim, *reads[:-1], *key), _of_matrix(ndim, reads[-1])
    first, then = (made, old) if reverse else (old, made)
    return _product(ndim, first, then, row, column)


def _product(ndim: int, first: Entry, then: Entry, row: Expr, column: Expr) -> Expr:
    """One entry of then · first; the last row (0, …, 0, 1) of both matrices is not stored."""
    terms = [then(row, _int(k)) * first(_int(k), column) for k in range(ndim)]
    last = ex.select(ex.eq(column, ndim), then(row, _int(ndim)), ex.const(0.0, dt.float32))
    return reduce(add, [*terms, last])


def _int(k: int) -> Expr:
    return ex.const(k, dt.int32)


def _reader(table: Expr, stride: int, length: int) -> Callable[[Expr], Expr]:
    """Function that reads number k of an argument in the output's frame; scalars broadcast."""

    def read(k: Expr) -> Expr:
        place = _int(0) if length == 1 else k
        place = ex.index(0) * stride + place if stride else place
        return ex.convert(ex.lookup(table, place), dt.float32)

    return read


def _of_matrix(ndim: int, read: Callable[[Expr], Expr]) -> Entry:
    return lambda row, column: read(row * (ndim + 1) + column)


def _around(ndim: int, linear: Entry, center: Callable[[Expr], Expr] | None) -> Entry:
    """Entries of a matrix: the linear part A, and the offset c - A c that keeps `center` fixed."""

    def entry(row: Expr, column: Expr) -> Expr:
        offset = ex.const(0.0, dt.float32)
        if center is not None:
            moved = reduce(add, [linear(row, _int(k)) * center(_int(k)) for k in range(ndim)])
            offset = center(row) - moved
        inner = ex.select(column < ndim, column, _int(0))  # do not read beyond the last number
        return ex.select(ex.eq(column, ndim), offset, linear(row, inner))

    return entry


def _length(name: str, values: Values | None, ndim: int) -> None:
    if values is not None and values.per_frame not in (1, ndim):
        raise ValueError(f"`{name}` must have 1 or {ndim} values, got {values.per_frame}")


# -- the ops -------------------------------------------------------------------------------------


def _translated(ndim: int, offset: Callable[[Expr], Expr]) -> Entry:
    def entry(row: Expr, column: Expr) -> Expr:
        one = ex.cast(ex.eq(row, column), dt.float32)
        return ex.select(ex.eq(column, ndim), offset(row), one)

    return entry


@op.graph(
    name="transforms.translation",
    sample="ndd.transforms.translation(offset=[1.0, 2.0]).shape\n=(2, 3)",
)
def translation(
    input=arg(float, None, _INPUT, matrix=True, positional=True, per_frame=True),
    offset=arg(
        float, REQUIRED, "How far points move along each axis.", vector=True, per_frame=True
    ),
    reverse_order=static(bool, False, _REVERSE),
    count=None,
    ordinal=None,
):
    """Matrix of a translation."""
    by = _values("offset", offset, 1)
    return _made(
        "translation", by.per_frame, _translated, [by], input, count, ordinal, reverse_order
    )


def _scaled(ndim: int, scale: Callable[[Expr], Expr], center=None) -> Entry:
    def linear(row: Expr, column: Expr) -> Expr:
        return ex.select(ex.eq(row, column), scale(row), ex.const(0.0, dt.float32))

    return _around_diagonal(ndim, linear, scale, center)


def _around_diagonal(ndim: int, linear: Entry, scale, center) -> Entry:
    """Like `_around`, but without products with zero, which an infinite scale makes nan."""

    def entry(row: Expr, column: Expr) -> Expr:
        zero = ex.const(0.0, dt.float32)
        offset = zero if center is None else center(row) - scale(row) * center(row)
        return ex.select(ex.eq(column, ndim), offset, linear(row, column))

    return entry


@op.graph(
    name="transforms.scale",
    sample="ndd.transforms.scale(scale=[2.0, 3.0], center=[1.0, 1.0]).shape\n=(2, 3)",
)
def scale(
    input=arg(float, None, _INPUT, matrix=True, positional=True, per_frame=True),
    center=arg(float, None, _CENTER, vector=True, per_frame=True),
    ndim=static(int, None, "Number of dimensions, if `scale` is a single number."),
    reverse_order=static(bool, False, _REVERSE),
    scale=arg(float, REQUIRED, "Factor of each axis, or one factor.", vector=True, per_frame=True),
    count=None,
    ordinal=None,
):
    """Matrix of a scaling about a centre."""
    factor, middle = _values("scale", scale, 1), _values("center", center, 1)
    number = factor.per_frame
    if number == 1:
        if input is not None:
            number = int(input.shapes.rows[0, -2]) if input.rank >= 2 else 1
        elif ndim is not None and ndim > 0:
            number = ndim
    _length("center", middle, number)
    values = _given(factor, middle)
    return _made("scale", number, _scaled, values, input, count, ordinal, reverse_order)


def _rotated(ndim: int, angle: Callable[[Expr], Expr], *rest) -> Entry:
    *vectors, has_axis = rest
    axis = vectors[0] if has_axis else None
    center = vectors[-1] if len(vectors) > has_axis else None
    radians = angle(_int(0)) * ex.const(_DEGREE, dt.float32)
    c, s = ml.cos(radians), ml.sin(radians)
    if axis is None:

        def turned(row: Expr, column: Expr) -> Expr:
            beside = ex.select(row < column, -s, s)
            return ex.select(ex.eq(row, column), c, beside)

        return _around(2, turned, center)

    length = ex.sqrt(reduce(add, [axis(_int(k)) * axis(_int(k)) for k in range(3)]))

    def about(row: Expr, column: Expr) -> Expr:
        """Rodrigues' formula: cos I + (1 - cos) u uᵀ + sin [u]×."""
        u, v = axis(row) / length, axis(column) / length
        third = ex.select(ex.eq(row, column), row, 3 - row - column)
        w = axis(third) / length
        # the sign of the cross product is that of the permutation (row, column, third)
        backward = ex.eq(row + 1, column) | ex.eq(row - 2, column)
        cross = ex.select(backward, -(s * w), s * w)
        spread = (1.0 - c) * (u * v)
        return ex.select(ex.eq(row, column), spread + c, spread + cross)

    return _around(3, about, center)


@op.graph(
    name="transforms.rotation",
    sample="ndd.transforms.rotation(angle=90.0).shape\n=(2, 3)",
)
def rotation(
    input=arg(float, None, _INPUT, matrix=True, positional=True, per_frame=True),
    angle=arg(float, REQUIRED, "Angle in degrees, from x towards y.", per_frame=True),
    axis=arg(float, None, "Axis of a rotation in three dimensions.", vector=True, per_frame=True),
    center=arg(float, None, _CENTER, vector=True, per_frame=True),
    reverse_order=static(bool, False, _REVERSE),
    count=None,
    ordinal=None,
):
    """Matrix of a rotation in the plane or, with `axis`, in space."""
    ndim = 2 if axis is None else 3
    turn, around = _values("angle", angle, 0), _values("axis", axis, 1)
    middle = _values("center", center, 1)
    _length("axis", around, 3)
    _length("center", middle, ndim)
    values = _given(turn, around, middle)
    key = (axis is not None,)
    return _made("rotation", ndim, _rotated, values, input, count, ordinal, reverse_order, key)


def _sheared(ndim: int, shear: Callable[[Expr], Expr], *rest) -> Entry:
    *vectors, angles = rest

    def linear(row: Expr, column: Expr) -> Expr:
        after = ex.cast(column > row, dt.int32)
        on_diagonal = ex.eq(row, column)
        place = ex.select(on_diagonal, _int(0), row * (ndim - 1) + column - after)
        factor = shear(place)
        if angles:
            factor = ml.tan(factor * ex.const(_DEGREE, dt.float32))
        return ex.select(on_diagonal, ex.const(1.0, dt.float32), factor)

    return _around(ndim, linear, vectors[0] if vectors else None)


@op.graph(
    name="transforms.shear",
    sample="ndd.transforms.shear(shear=[0.5, 0.25]).shape\n=(2, 3)",
)
def shear(
    input=arg(float, None, _INPUT, matrix=True, positional=True, per_frame=True),
    angles=arg(
        float, None, "Shear as angles in degrees, instead of `shear`.", matrix=True, per_frame=True
    ),
    center=arg(float, None, _CENTER, vector=True, per_frame=True),
    reverse_order=static(bool, False, _REVERSE),
    shear=arg(
        float, None, "Factors: the matrix row by row, no diagonal.", matrix=True, per_frame=True
    ),
    count=None,
    ordinal=None,
):
    """Matrix of a shear.

    Factors (or angles) come in the order xy, yx in the plane and xy, xz, yx, yz, zx, zy in space.
    """
    if (shear is None) == (angles is None):
        raise ValueError("exactly one of `shear` and `angles` is needed")
    name = "angles" if shear is None else "shear"
    factors, middle = _values(name, angles if shear is None else shear, 2), None
    ndim = {2: 2, 6: 3}.get(factors.per_frame)
    if ndim is None:
        raise ValueError(
            f"`{name}` must have 2 values (in the plane) or 6 (in space), got {factors.per_frame}"
        )
    middle = _values("center", center, 1)
    _length("center", middle, ndim)
    values = _given(factors, middle)
    key = (shear is None,)
    return _made("shear", ndim, _sheared, values, input, count, ordinal, reverse_order, key)


def _cropped(ndim: int, start, end, to_start, to_end, absolute: bool) -> Entry:
    def entry(row: Expr, column: Expr) -> Expr:
        low, high, to_low, to_high = (v(row) for v in (start, end, to_start, to_end))
        if absolute:
            low, high = ex.minimum(low, high), ex.maximum(low, high)
            to_low, to_high = ex.minimum(to_low, to_high), ex.maximum(to_low, to_high)
        factor = (to_high - to_low) / (high - low)
        diagonal = ex.select(ex.eq(row, column), factor, ex.const(0.0, dt.float32))
        return ex.select(ex.eq(column, ndim), to_low - factor * low, diagonal)

    return entry


@op.graph(
    name="transforms.crop",
    sample="ndd.transforms.crop(from_start=[1.0, 1.0], from_end=[3.0, 5.0]).shape\n=(2, 3)",
)
def crop(
    input=arg(float, None, _INPUT, matrix=True, positional=True, per_frame=True),
    absolute=static(bool, False, "Swap starts and ends where needed, so that nothing is mirrored."),
    from_end=arg(float, (1.0,), "Upper corner of the box to map.", vector=True, per_frame=True),
    from_start=arg(float, (0.0,), "Lower corner of the box to map.", vector=True, per_frame=True),
    reverse_order=static(bool, False, _REVERSE),
    to_end=arg(float, (1.0,), "Upper corner of the box to map it to.", vector=True, per_frame=True),
    to_start=arg(
        float, (0.0,), "Lower corner of the box to map it to.", vector=True, per_frame=True
    ),
    count=None,
    ordinal=None,
):
    """Matrix that maps one box onto another."""
    names = ("from_start", "from_end", "to_start", "to_end")
    corners = [
        _values(n, v, 1)
        for n, v in zip(names, (from_start, from_end, to_start, to_end), strict=True)
    ]
    ndim = max(v.per_frame for v in corners)
    for v in corners:
        _length(v.name, v, ndim)
    key = (absolute,)
    return _made("crop", ndim, _cropped, corners, input, count, ordinal, reverse_order, key)


@op.graph(
    name="transforms.combine",
    sample="""t = ndd.transforms.translation(offset=[1.0, 2.0])
ndd.transforms.combine(t, ndd.transforms.scale(scale=[2.0, 2.0])).shape
=(2, 3)""",
)
def combine(
    inputs=data("Matrices (n, n + 1), in the order in which they are applied.", variadic=True),
    reverse_order=static(bool, False, "Apply the last matrix first."),
):
    """Matrix that applies several transforms, one after the other."""
    if len(inputs) < 2:
        raise TypeError(f"at least 2 matrices are needed, got {len(inputs)}")
    result, *others = inputs
    _matrix("input_0", result, None)
    ndim, count = int(result.shapes.rows[0, -2]), result.count if result.batch else None
    for k, node in enumerate(others, 1):
        values = [_matrix(f"input_{k}", node, ndim)]
        result = _made("combine", ndim, _of_matrix, values, result, count, None, reverse_order)
    return result
