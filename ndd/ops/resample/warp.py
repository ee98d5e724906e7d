"""Affine warps of images, sequences and volumes: rotate and warp_affine.

A matrix [n, n + 1] maps the output to the input, in coordinates (x, y) or (x, y, z) where an image
begins at 0 and its pixel centres are at halves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.arguments import host_numbers
from ...core.schema import REQUIRED, arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DALIInterpType, DType
from ...kernels.ir.expr import Expr
from ...runtime.context import merging
from .merging import composed, merged_with, remember
from .quarter_turns import can_turn, quarter_turns
from .sampling import (
    DTYPE_DOC,
    INTERP_DOC,
    LINEAR,
    NEAREST_ONLY,
    NN,
    OLD_DTYPE_DOC,
    SIZE_DOC,
    check_filter,
    check_pixels,
    linear,
    nearest,
    resized,
    result_type,
    rows_node,
    stepped_row,
)

# Upstream has no layouts with channels first, and none without channels. A missing layout is taken
# as the first that fits.
LAYOUTS = "HWC FHWC DHWC FDHWC CHW FCHW CDHW FCDHW HW DHW FHW FDHW"
FILL_DOC = "Value outside the input; if omitted, its border is repeated."
_IMAGE = "image = ndd.zeros(shape=[4, 6, 3], dtype=ndd.uint8, layout='HWC')\n"


def spatial_axes(layout: str) -> list[int]:
    """Axes of rows and columns; in a volume, the axis of planes comes first."""
    return [layout.index(letter) for letter in "DHW" if letter in layout]


# -- the kernel ----------------------------------------------------------------------------------


def _warped(x: Expr, matrix: Expr, *rest: Any) -> Expr:
    """Read `x` where the matrix points; `rest` holds the fill value, if any, and the key."""
    *fill, axes, frame, interp, dtype = rest
    entries = len(axes) * (len(axes) + 1)

    def number(k: int) -> Expr:
        place = ex.const(k, dt.int32)
        if frame is not None:
            place = ex.index(frame) * entries + place
        return ex.convert(ex.lookup(matrix, place), dt.float32)

    order = axes[::-1]  # x, y, z
    at = []
    for k, axis in enumerate(order):
        row = [number(k * (len(axes) + 1) + j) for j in range(len(axes) + 1)]
        place = stepped_row(row, order)
        at.append((axis, place - 0.5 if interp is LINEAR else place))
    at.reverse()
    outside = ex.convert(fill[0], dtype) if fill else None
    if interp is NN:
        return nearest(x, at, outside, dtype)
    if outside is not None:  # the fill value is interpolated like a pixel
        outside = ex.cast(ex.convert(outside, x.dtype), dt.float32)
    # an interpolated pixel is never darker or brighter than all pixels around it
    in_range = dtype is x.dtype and len(at) == 2
    return ex.convert(linear(x, at, outside), dtype, in_range=in_range)


def warp(
    name: str, x: Node, matrix: Node, frame: int | None, shapes: Shapes, fill: Node | None,
    interp: DALIInterpType, dtype: DType,
) -> Node:  # fmt: skip
    """Read `x` where `matrix` points; if `frame` is an axis, it has one matrix per frame."""
    axes = tuple(spatial_axes(x.layout or ""))
    before, matrices = merged_with(x, axes), None
    if merging() and frame is None:
        numbers = host_numbers("matrix", matrix, float, vector=True).astype(np.float64)
        matrices = numbers.reshape(len(numbers), len(axes), len(axes) + 1)
    if before is not None and matrices is not None:
        x, name = before.source, f"{before.op}+{name}"
        matrices = composed(before.matrices, matrices)
        matrix = rows_node(matrices.reshape(len(matrices), -1).astype(np.float32), x)
    node = _sampled(name, x, matrix, frame, axes, shapes, fill, interp, dtype)
    if matrices is not None:
        remember(node, x, name, axes, None, matrices)
    return node


def _sampled(
    name: str, x: Node, matrix: Node, frame: int | None, axes: tuple[int, ...], shapes: Shapes,
    fill: Node | None, interp: DALIInterpType, dtype: DType,
) -> Node:  # fmt: skip
    check_pixels(x, axes, shapes)
    inputs = [x, matrix] + ([fill] if fill is not None else [])
    places = [tuple(range(x.rank)), *[()] * (len(inputs) - 1)]
    key = (axes, frame, interp, dtype)
    return build.pointwise(name, _warped, inputs, places, shapes, x.layout, key, x.batch)


# -- warp_affine ---------------------------------------------------------------------------------


@op.graph(
    layouts=LAYOUTS, nearest_only=NEAREST_ONLY,
    sample=_IMAGE + "ndd.warp_affine(image, matrix=[1, 0, 2, 0, 1, 0], size=[2, 3]).shape\n"
    "=(2, 3, 3)",
)  # fmt: skip
def warp_affine(
    data=data("Images, sequences or volumes."),
    mtx=arg(float, None, "The matrix, by position.", matrix=True, positional=True, per_frame=True),
    dtype=static(DType, None, DTYPE_DOC),
    fill_value=arg(float, None, FILL_DOC),
    interp_type=static(DALIInterpType, LINEAR, INTERP_DOC),
    inverse_map=static(bool, True, "Whether the matrix maps the result to the input."),
    matrix=arg(
        float, None, "Matrix 2x3 (volumes: 3x4) or its values row by row; may differ per frame.",
        matrix=True, per_frame=True,
    ),
    output_dtype=static(DType, None, OLD_DTYPE_DOC),
    size=geometry(float, None, SIZE_DOC + " The input's if omitted.", vector=True),
):  # fmt: skip
    """Move pixels by an affine map: result(x, y) = input(M (x, y, 1)), pixel centres at halves.

    With `inverse_map=False` the matrix maps the input to the result; the call reads it at once.
    """
    check_filter(data, "interp_type", interp_type, (NN, LINEAR))
    axes = spatial_axes(data.layout)
    given = given_matrix(mtx, matrix)
    node, frame = checked_matrix(given, data, len(axes), len(axes) + 1)
    if not inverse_map:
        node = inverse(node, data, len(axes), affine=True)
    shapes = resized(data, axes, size)
    kind = result_type(data, dtype or output_dtype, interp_type)
    return warp("warp_affine", data, node, frame, shapes, fill_value, interp_type, kind)


def given_matrix(by_position: Node | None, by_name: Node | None) -> Node:
    if by_position is not None and by_name is not None:
        raise ValueError("the matrix is given twice, by position and as `matrix`")
    given = by_name if by_position is None else by_position
    if given is None:
        raise ValueError("`matrix` is missing")
    return given


def checked_matrix(matrix: Node, x: Node, rows: int, columns: int) -> tuple[Node, int | None]:
    """The values of a matrix as a flat list, and the axis of frames if there is one per frame."""
    shapes = matrix.shapes
    wanted = f"`matrix` must have the shape ({rows}, {columns}) or {rows * columns} values"
    flat = build.alias("matrix", matrix, Shapes(shapes.volumes[:, None]), matrix.dtype, None)
    if matrix.rank == 3:
        layout = x.layout or ""
        frames = shapes.rows[:, 0]
        per_frame = bool((frames != 1).any())
        if per_frame and "F" not in layout:
            raise ValueError(f"{wanted}, got shape {shapes.tuples[0]} for a layout without frames")
        axis = layout.index("F") if per_frame else None
        if axis is not None and bool((frames != x.shapes.rows[:, axis]).any()):
            s = int(np.argmax(frames != x.shapes.rows[:, axis]))
            raise ValueError(
                f"`matrix` has {int(frames[s % len(frames)])} frames, but sample {s} of shape "
                f"{x.shapes.tuples[s % x.count]} has {int(x.shapes.rows[s % x.count, axis])}"
            )
        one = shapes.rows[:, 1:]
    else:
        axis, one = None, shapes.rows
    expected = [[rows, columns]] if matrix.rank >= 2 else [[rows * columns]]
    if matrix.rank == 0 or bool((one != expected).any()):
        raise ValueError(f"{wanted}, got shape {shapes.tuples[0]}")
    if matrix.dtype is dt.bool_:
        raise TypeError("`matrix` must hold numbers, got bool")
    return flat, axis


def inverse(matrix: Node, x: Node, ndim: int, affine: bool) -> Node:
    """Inverse matrices, computed on the host; the last row of affine ones is not stored."""
    numbers = host_numbers("matrix", matrix, float, vector=True).astype(np.float64)
    columns = ndim + 1
    given = numbers.reshape(len(numbers), -1, ndim if affine else columns, columns)
    square = np.zeros((*given.shape[:2], columns, columns))
    square[..., -1, -1] = 1.0
    square[..., : given.shape[2], :] = given
    with np.errstate(invalid="ignore", over="ignore"):
        singular = (np.linalg.det(square) == 0) | ~np.isfinite(square).all(axis=(-2, -1))
    if bool(singular.any()):
        s = int(np.flatnonzero(singular.any(axis=1))[0])
        raise ValueError(
            f"`matrix` of sample {s} has no inverse: {given[s][singular[s]][0].tolist()}"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        inverted = np.linalg.inv(square)[..., : given.shape[2], :]
        return rows_node(inverted.reshape(len(numbers), -1).astype(np.float32), x)


# -- rotate --------------------------------------------------------------------------------------


@op.graph(
    layouts=LAYOUTS, nearest_only=NEAREST_ONLY,
    sample=_IMAGE + "ndd.rotate(image, angle=90.0).shape\n=(6, 4, 3)",
)  # fmt: skip
def rotate(
    input=data("Images, sequences or volumes."),
    angle=geometry(
        float,
        REQUIRED,
        "Angle in degrees; one, or one per frame.",
        vector=True,
        matrix=True,
        uneven=True,
        per_frame=True,
    ),
    axis=geometry(
        float,
        None,
        "Axis (x, y, z) around which a volume turns; may differ per frame.",
        vector=True,
        matrix=True,
        uneven=True,
        per_frame=True,
    ),
    dtype=static(DType, None, DTYPE_DOC),
    fill_value=arg(float, None, FILL_DOC),
    interp_type=static(DALIInterpType, LINEAR, INTERP_DOC),
    keep_size=static(bool, False, "Keep the size; else the result holds the whole input."),
    output_dtype=static(DType, None, OLD_DTYPE_DOC),
    size=geometry(float, None, SIZE_DOC, vector=True),
):
    """Rotate around the centre: images counter-clockwise, volumes from x to y if the axis is z."""
    x = input
    check_filter(x, "interp_type", interp_type, (NN, LINEAR))
    axes = spatial_axes(x.layout)
    angle, axis = _by_frame("angle", angle, 1, x), _by_frame("axis", axis, 3, x)
    frames = max(angle.shape[1], 1 if axis is None else axis.shape[1] // 3)
    turn = _rotations(angle.astype(np.float64), axis, len(axes))
    extents = x.shapes.rows[:, axes][:, ::-1]  # x, y, z
    if size is not None or keep_size:
        shapes = resized(x, axes, size)
    else:
        rows = np.array(np.broadcast_to(x.shapes.rows, (max(x.count, len(turn)), x.rank)))
        rows[:, axes] = _canvas(turn, extents)[:, ::-1]
        shapes = Shapes.known(rows).checked()
    kind = result_type(x, dtype or output_dtype, interp_type)
    if frames == 1 and can_turn(x, interp_type, kind) and not merging():
        turned = quarter_turns(x, axes, angle[:, 0], shapes)
        if turned is not None:
            return turned
    canvas = shapes.rows[:, axes][:, ::-1]
    if x.shapes.uniform and shapes.uniform:
        extents, canvas = extents[:1], canvas[:1]
    matrices = _about_centres(turn, extents / 2, canvas / 2)
    node = rows_node(matrices.reshape(len(matrices), -1).astype(np.float32), x)
    frame = x.layout.index("F") if frames > 1 else None
    return warp("rotate", x, node, frame, shapes, fill_value, interp_type, kind)


def _by_frame(name: str, values: Any, width: int, x: Node) -> Any:
    """Numbers [samples or 1, frames * width], checked; each sample has them for one frame or for
    all. Sequences with fewer frames than others repeat the numbers of their last one."""
    if values is None or (not isinstance(values, list) and values.shape[1:] == (width,)):
        return values
    layout = x.layout or ""
    counts = x.shapes.rows[:, layout.index("F")] if "F" in layout else np.ones(1, np.int64)
    given = np.array([len(v) for v in values] if isinstance(values, list) else values.shape[1:])
    bad = np.flatnonzero((given != width) & (given != width * counts))
    if len(bad):
        s = int(bad[0])
        wanted = "one number" if width == 1 else f"{width} values"
        per_sample = x.batch and not isinstance(values, list) and given[0] == width * x.count
        hint = f"; those of all samples are a Batch: {name}=ndd.batch([...])" * bool(per_sample)
        frames = f", or as many for each of its {counts[s]} frames" if "F" in layout else ""
        raise ValueError(
            f"`{name}` must have {wanted}{frames}, got {given[s % len(given)]} for sample {s} of "
            f"shape {x.shapes.tuples[s]} ({layout}){hint}"
        )
    if not isinstance(values, list):
        return values
    most = max(map(len, values)) // width
    rows = [v.reshape(-1, width) for v in values]
    filled = [np.concatenate([r, np.repeat(r[-1:], most - len(r), axis=0)]) for r in rows]
    return np.stack(filled).reshape(len(values), -1)


def _rotations(degrees: Array, axis: Array | None, ndim: int) -> Array:
    """Matrices [samples or 1, frames, n, n] that turn output vectors into input vectors."""
    if not np.isfinite(degrees).all():
        raise ValueError(f"`angle` must be finite, got {degrees[~np.isfinite(degrees)][0]:g}")
    # upstream's angle is in float32 radians, whose rounding matters for huge angles
    radians = (degrees * (np.pi / 180)).astype(np.float32).astype(np.float64)
    c, s = np.cos(radians), np.sin(radians)
    square = (degrees % 90 == 0) & (np.minimum(np.abs(c), np.abs(s)) < 1e-5)
    c, s = (np.where(square, np.rint(v), v) for v in (c, s))
    if ndim == 2:
        turn = np.empty((*c.shape, 2, 2))
        turn[..., 0, 0] = turn[..., 1, 1] = c
        turn[..., 0, 1], turn[..., 1, 0] = -s, s
        return turn
    if axis is None:
        raise ValueError("`axis` is required for volumes")
    vector = axis.astype(np.float64).reshape(len(axis), -1, 3)
    length = np.sqrt((vector**2).sum(axis=-1, keepdims=True))
    if not (np.isfinite(length) & (length > 0)).all():
        raise ValueError(f"`axis` must be finite and not zero, got {tuple(axis[0].tolist())}")
    vx, vy, vz = np.moveaxis(vector / length, -1, 0)
    zero = np.zeros_like(vx)
    cross = np.stack([zero, -vz, vy, vz, zero, -vx, -vy, vx, zero], -1)
    cross = cross.reshape(*vx.shape, 3, 3)
    c, s = c[..., None, None], s[..., None, None]
    # Rodrigues' formula, transposed: from the output back to the input
    return c * np.eye(3) - s * cross + (1 - c) * (cross @ cross + np.eye(3))


def turned(degrees: Array, extents: Array) -> Array:
    """Matrices [samples, 2, 3] that rotate images of these extents (x, y) around their centres."""
    turn = _rotations(degrees[:, None].astype(np.float32).astype(np.float64), None, 2)
    return _about_centres(turn, extents / 2, extents / 2)[:, 0]


SLACK = 0.01  # pixels by which the rotated image may exceed the canvas (measured upstream)


def _canvas(turn: Array, extents: Array) -> Array:
    """Extents [samples, n] that hold the rotated image, or all rotated frames of a sequence.

    Each has the parity of the input extent that the rotation brings there, so that centres agree.
    """
    parts = np.abs(np.swapaxes(turn, -1, -2))  # [..., output axis, input axis]
    if parts.shape[-1] == 3:
        parts = parts.astype(np.float32)  # upstream finds the largest in float32
    size = np.ceil((parts @ extents[:, None, :, None])[..., 0] - SLACK).astype(np.int64)
    size = np.maximum(size, 1)
    own = np.arange(parts.shape[-1])
    stays = parts.diagonal(axis1=-2, axis2=-1) >= parts.max(axis=-1)
    source = np.where(stays, own, parts.argmax(axis=-1))
    like = extents[:, None, :1]
    for k in range(1, len(own)):
        like = np.where(source == k, extents[:, None, k : k + 1], like)
    return (size + (size + like) % 2).max(axis=1)


def _about_centres(turn: Array, source: Array, target: Array) -> Array:
    """Matrices [samples, frames, n, n + 1] that map the centre `target` to `source`."""
    offset = source[:, None, :, None] - turn @ target[:, None, :, None]
    matrices = np.empty((*offset.shape[:-1], turn.shape[-1] + 1))
    matrices[..., :-1], matrices[..., -1:] = turn, offset
    return matrices
