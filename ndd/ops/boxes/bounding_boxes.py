"""Bounding boxes: bb_flip, bbox_paste, bbox_rotate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.schema import REQUIRED, arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import address_of
from ...kernels.common.buffers import POOL
from ...kernels.cpu.annotations import turn_slots as at
from ...kernels.cpu.helpers import function
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ..geometry.window import named_axes, on_device
from .annotated import kept_rows, packed_on_host

_LTRB = "Whether boxes are (left, top, right, bottom) and not (x, y, width, height)."


def _check_boxes(x: Node) -> None:
    if x.dtype is not dt.float32:
        raise TypeError(f"boxes must be float32, got {x.dtype}")


def _rows_of_four(name: str, x: Node) -> Node:
    """The input with a box along the last axis; a flat list of coordinates is split into fours."""
    _check_boxes(x)
    if x.rank == 0:
        raise ValueError("boxes need 4 coordinates each, got a number")
    last = x.shapes.rows[:, -1]
    bad = np.flatnonzero(last % 4 if x.rank == 1 else last != 4)
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"boxes need 4 coordinates each, got shape {x.shapes.tuples[s]} in sample {s}"
        )
    if x.rank > 1:
        return x
    shapes = Shapes(np.stack([x.shapes.rows[:, 0] // 4, np.full(x.count, 4)], axis=1))
    return build.alias(name, x, shapes, x.dtype, None)


def _boxwise(name: str, x: Node, body: Any, arguments: list[Node], ltrb: bool) -> Node:
    """Compute each coordinate from the four of its box: body(box, *arguments, ltrb)."""
    boxes = _rows_of_four(name, x)
    axes = [tuple(range(boxes.rank)), *[()] * len(arguments)]
    inputs = [boxes, *arguments]
    result = build.pointwise(name, body, inputs, axes, boxes.shapes, None, (ltrb,), x.batch)
    return result if x.rank > 1 else build.alias(name, result, x.shapes, x.dtype, None)


def _column(*values: Expr) -> Expr:
    """Select the value that belongs to the output's column."""
    *others, result = values
    for k in reversed(range(len(others))):
        result = ex.select(ex.eq(ex.index(-1), k), others[k], result)
    return result


def _flipped(box: Expr, horizontal: Expr, vertical: Expr, ltrb: bool) -> Expr:
    """Mirror and swap the edges; widths are computed as differences of edges, as upstream does."""
    x, y, u, v = (ex.at_axis(box, -1, k) for k in range(4))
    edges = [(x, u), (y, v)] if ltrb else [(x, x + u), (y, y + v)]
    ends = []
    for (low, high), flag in zip(edges, (horizontal, vertical), strict=True):
        on = ex.ne(ex.convert(flag, dt.int32), 0)
        ends.append((ex.select(on, 1.0 - high, low), ex.select(on, 1.0 - low, high)))
    (left, right), (top, bottom) = ends
    if ltrb:
        return _column(left, top, right, bottom)
    return _column(left, top, right - left, bottom - top)


@op.graph(sample="ndd.bb_flip(ndd.tensor([[0.1, 0.2, 0.3, 0.5]])).shape\n=(1, 4)")
def bb_flip(
    input=data("Boxes: 4 relative coordinates each, float32."),
    horizontal=arg(int, 1, "Mirror horizontally."),
    ltrb=static(bool, False, _LTRB),
    vertical=arg(int, 0, "Mirror vertically."),
):
    """Mirror bounding boxes."""
    return _boxwise("bb_flip", input, _flipped, [horizontal, vertical], ltrb)


def _pasted(box: Expr, ratio: Expr, paste_x: Expr, paste_y: Expr, ltrb: bool) -> Expr:
    ratio, x, y = (ex.convert(v, dt.float32) for v in (ratio, paste_x, paste_y))
    inverse = 1.0 / ratio
    left, top = (((ratio - 1.0) * p) * inverse for p in (x, y))
    # clamp, so that the image never leaves the canvas at the far side
    left, top = (ex.select(v + inverse > 1.0, 1.0 - inverse, v) for v in (left, top))
    zero = ex.const(0.0, dt.float32)
    moved = _column(left, top, *((left, top) if ltrb else (zero, zero)))
    return box * inverse + moved


@op.graph(sample="ndd.bbox_paste(ndd.tensor([[0.1, 0.2, 0.3, 0.5]]), ratio=2.0).shape\n=(1, 4)")
def bbox_paste(
    input=data("Boxes: 4 relative coordinates each, float32."),
    ltrb=static(bool, False, _LTRB),
    paste_x=arg(float, 0.5, "Horizontal position of the image on the canvas, 0 to 1."),
    paste_y=arg(float, 0.5, "Vertical position of the image on the canvas, 0 to 1."),
    ratio=arg(float, REQUIRED, "Size of the canvas as a multiple of the image's size."),
):
    """Move boxes along with an image that is pasted onto a larger canvas (see `paste`)."""
    return _boxwise("bbox_paste", input, _pasted, [ratio, paste_x, paste_y], ltrb)


# -- rotation ------------------------------------------------------------------------------------

# An extent that exceeds an integer by less than this does so by a rounding error of the sine. By
# measurement, upstream's value lies between 0.0097 and 0.0113.
_SLACK = np.float32(0.01)
_MODES = {"expand": at.EXPAND, "halfway": at.HALFWAY, "fixed": at.FIXED}


def swaps_axes(radians: Array) -> Array:
    """Whether each rotation, in float32 radians, is closer to a quarter turn than to none."""
    exact = radians.astype(np.float64)
    return np.abs(np.sin(exact)) > np.abs(np.cos(exact))


def rotated_canvas(extents: Array, radians: Array) -> Array:
    """Height and width [samples, 2] of the canvas that holds rotated images of these extents.

    Each extent has the parity of the image axis that the rotation brings there.
    """
    sine, cosine = np.abs(np.sin(radians))[:, None], np.abs(np.cos(radians))[:, None]
    other = extents[:, ::-1]
    exact = extents * cosine + other * sine - _SLACK
    size = np.ceil(np.where(np.isfinite(exact), exact, 0.0)).astype(np.int64)
    kept = np.where(swaps_axes(radians)[:, None], other, extents)
    return size + (size - kept) % 2


@op.graph(
    sample="""boxes = ndd.tensor([[0.1, 0.2, 0.3, 0.5]])
ndd.bbox_rotate(boxes, angle=90.0, input_shape=[100, 200]).shape
=(1, 4)""",
    outputs="labels",
)
def bbox_rotate(
    bboxes=data("Boxes [n, 4], float32."),
    labels=arg(int, None, "Labels [n] or [n, 1], removed with their boxes.", matrix=True,
               positional=True),
    angle=geometry(float, REQUIRED, "Angle in degrees, counter-clockwise."),
    bbox_layout=static(("xyXY", "xyWH"), "xyXY", "Meaning of the coordinates: xyXY or xyWH."),
    bbox_normalized=static(bool, True, "Whether coordinates are relative to the image."),
    input_shape=geometry(int, REQUIRED, "Shape of the image.", vector=True),
    keep_size=static(bool, False, "Whether the canvas keeps the image's size."),
    mode=static(("expand", "halfway", "fixed"), "expand", "Size of the result: expand (enclose the "
                "rotated box), fixed (keep the size) or halfway."),
    remove_threshold=static(float, 0.1, "Remove boxes that keep less than this share of their "
                            "area on the canvas."),
    shape_layout=static(str, "HW", "Layout of `input_shape`."),
    size=geometry(float, None, "Height and width of the canvas.", vector=True),
):  # fmt: skip
    """Move boxes along with an image that is rotated (see `rotate`), and clip them to the canvas.

    Returns the boxes, and the labels if given. How many boxes remain depends on their values, so
    the call reads the boxes at once.
    """
    x = bboxes
    _check_boxes(x)
    if x.rank != 2 or bool((x.shapes.rows[:, 1] != 4).any()):
        raise ValueError(f"boxes must have the shape (n, 4), got {x.shapes.tuples[0]}")
    if not 0 <= remove_threshold < 1:
        raise ValueError(f"`remove_threshold` must lie in [0, 1), got {remove_threshold:g}")
    if labels is not None:
        _check_labels(labels, x)
    if not np.isfinite(angle).all():
        raise ValueError(f"`angle` must be finite, got {angle[~np.isfinite(angle)][0]:g}")
    radians = angle * np.float32(np.pi / 180)
    image = _image_extents(input_shape, shape_layout)
    canvas = _canvas(image, radians, keep_size, size)
    numbers = np.empty((x.count, at.NUMBER_SIZE), np.float32)
    # Correctly rounded, unlike NumPy's float32 functions; NOTE [ties of turned boxes] needs that.
    exact = radians.astype(np.float64)
    numbers[:, at.SINE], numbers[:, at.COSINE] = np.sin(exact), np.cos(exact)
    numbers[:, [at.IMAGE_H, at.IMAGE_W]] = image
    numbers[:, [at.CANVAS_H, at.CANVAS_W]] = canvas
    numbers[:, at.LEAST] = remove_threshold
    return _turned(x, labels, numbers, mode, bbox_layout == "xyWH", bbox_normalized)


def _turned(
    boxes: Node, labels: Node | None, numbers: Array, mode: str, has_sizes: bool, relative: bool
) -> Node | tuple[Node, Node]:
    """The boxes that remain, and their labels if given; `turn_boxes` fills memory of the pool."""
    sources = [packed_on_host(n) for n in (boxes, labels) if n is not None]
    size = 0 if labels is None else labels.dtype.bytes
    counts = boxes.shapes.rows[:, 0]
    first = counts.cumsum() - counts
    total = int(first[-1] + counts[-1])
    memory = POOL.take((16 + size) * total + 16)  # an element more, for samples without boxes
    boxes_at, labels_at = memory.address, memory.address + 16 * total
    rows = np.empty((len(counts), at.ROW_SIZE), np.int64)
    rows[:, at.BOXES], rows[:, at.COUNT] = sources[0].stored.addresses, counts
    rows[:, at.LABELS] = sources[-1].stored.addresses  # not read without labels
    rows[:, at.OUT_BOXES], rows[:, at.OUT_LABELS] = boxes_at + 16 * first, labels_at + size * first
    job = np.array([address_of(rows), address_of(numbers), has_sizes, relative, _MODES[mode], size])
    function("turn_boxes")(address_of(job), 0, len(rows))

    def result(base: int, inner: tuple[int, ...], like: Node) -> Node:
        found = kept_rows(memory, base, first, rows[:, at.KEPT], inner, like.dtype, boxes.batch)
        return on_device(found, boxes.device)

    turned = result(boxes_at, (4,), boxes)
    if labels is None:
        return turned
    return turned, result(labels_at, (1,) * (labels.rank - 1), labels)


def _check_labels(labels: Node, boxes: Node) -> None:
    rows = labels.shapes.rows
    if labels.rank not in (1, 2) or (labels.rank == 2 and bool((rows[:, 1] != 1).any())):
        raise ValueError(
            f"labels must have the shape (n,) or (n, 1), got {labels.shapes.tuples[0]}"
        )
    wrong = np.flatnonzero(rows[:, 0] != boxes.shapes.rows[:, 0])
    if len(wrong):
        s = int(wrong[0])
        raise ValueError(
            f"there are {int(rows[s % len(rows), 0])} labels and "
            f"{int(boxes.shapes.rows[s, 0])} boxes in sample {s}"
        )


def _image_extents(shape: Array, layout: str) -> Array:
    """Heights and widths [samples or 1, 2]."""
    if shape.shape[1] < len(layout):
        raise ValueError(
            f"`input_shape` has {shape.shape[1]} values, fewer than `shape_layout` {layout!r}"
        )
    if not {"H", "W"} <= set(layout):
        raise ValueError(f"`shape_layout` must name H and W, got {layout!r}")
    extents = shape[:, named_axes("HW", layout)]
    if bool((extents <= 0).any()):
        raise ValueError(
            f"`input_shape` must be positive, got {tuple(extents.min(axis=0).tolist())}"
        )
    return extents


def _canvas(image: Array, radians: Array, keep_size: bool, size: Array | None) -> Array:
    if size is None:
        if keep_size:
            return image
        count = max(len(image), len(radians))
        spread = np.broadcast_to(image, (count, 2)), np.broadcast_to(radians, (count,))
        return rotated_canvas(*spread)
    if keep_size:
        raise ValueError("`keep_size` and `size` exclude each other")
    if size.shape[1] != 2:
        raise ValueError(f"`size` must have 2 values (height, width), got {size.shape[1]}")
    if not bool(((size >= 1) & (size < 2**31)).all()):
        raise ValueError(f"`size` must be at least 1, got {tuple(size.min(axis=0).tolist())}")
    return np.trunc(size).astype(np.int64)
