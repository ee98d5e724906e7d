"""Boxes and labels as the targets of anchors, for SSD: box_encoder.

Everything is a pointwise op or a maximum along an axis of the table [boxes, anchors], so both
back-ends run it with their usual kernels, and the table itself is never stored.
"""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import REQUIRED, data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Shapes
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.expr import Expr
from ..geometry.window import on_device

_NAME = "box_encoder"


@op.graph(
    sample="""boxes, labels = ndd.tensor([[0.1, 0.1, 0.4, 0.4]]), ndd.tensor([3])
anchors = [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0]
encoded, classes = ndd.box_encoder(boxes, labels, anchors=anchors)
encoded.shape, [int(c) for c in classes]
=((2, 4), [3, 0])""",
    outputs=2,
)
def box_encoder(
    input_0=data("Boxes [n, 4] as left, top, right, bottom; float32."),
    input_1=data("Labels [n] or [n, 1], int32."),
    anchors=static("floats", REQUIRED, "Anchors, four numbers each: left, top, right, bottom."),
    criteria=static(float, 0.5, "A box is assigned to anchors whose IoU with it is larger, and "
                    "always to the best one."),
    means=static("floats", (0.0, 0.0, 0.0, 0.0), "Subtracted from offsets: x, y, width, height."),
    offset=static(bool, False, "Return offsets from anchors instead of boxes."),
    scale=static(float, 1.0, "Factor for boxes and anchors before offsets are computed."),
    stds=static("floats", (1.0, 1.0, 1.0, 1.0), "Divide offsets: x, y, width, height."),
):  # fmt: skip
    """Assign boxes to anchors, as SSD does, and return a box and a label for every anchor.

    An anchor gets the box with the largest IoU, as centre, width and height; without a box it keeps
    its own shape and the label 0. With `offset`, it gets the distance of the centres relative to
    the anchor's size and the logarithm of the ratios of the sizes, or zeros without a box.
    """
    boxes, labels = input_0, input_1
    _check_inputs(boxes, labels)
    _check_numbers(anchors, criteria, means, stds)
    table = _anchor_table(anchors)
    count = len(anchors) // 4
    n = boxes.shapes.rows[:, 0]
    pairs = Shapes(np.stack([n, np.full_like(n, count)], axis=1))
    places = on_device(table, boxes.device)
    flat = build.alias(_NAME, boxes, Shapes(4 * n[:, None]), dt.float32, None)
    iou = _on_pairs(_iou, [flat, places], [(), ()], pairs, boxes)
    best = _largest(iou, 1, dt.float32)
    own = _largest(_on_pairs(_at_best, [iou, best], [(0, 1), (0,)], pairs, boxes), 1, dt.int32)
    raised = _on_pairs(_raised, [iou, own], [(0, 1), (0,)], pairs, boxes)
    top = _largest(raised, 0, dt.float32)
    chosen = _largest(
        _on_pairs(_box_at_best, [raised, top], [(0, 1), (1,)], pairs, boxes), 0, dt.int32
    )
    matches = Shapes(np.full((boxes.count, 1), count, np.int64))
    match = build.pointwise(
        _NAME, _match, [top, chosen], [(0,), (0,)], matches, None, (float(criteria),), boxes.batch
    )  # fmt: skip
    encoded = Shapes(np.broadcast_to(np.array([count, 4], np.int64), (boxes.count, 2)))
    key = (offset, scale, means, stds)
    inputs = [match, flat, places]
    found = build.pointwise(
        _NAME, _encoded, inputs, [(0,), (), ()], encoded, None, key, boxes.batch
    )  # fmt: skip
    names = build.alias(_NAME, labels, Shapes(labels.shapes.volumes[:, None]), dt.int32, None)
    classes = build.pointwise(
        _NAME, _class, [match, names], [(0,), ()], matches, None, (), boxes.batch
    )  # fmt: skip
    return found, classes


def _check_inputs(boxes: Node, labels: Node) -> None:
    if boxes.dtype is not dt.float32:
        raise TypeError(f"boxes must be float32, got {boxes.dtype}")
    if boxes.rank != 2 or bool((boxes.shapes.rows[:, 1] != 4).any()):
        raise ValueError(f"boxes must have the shape (n, 4), got {boxes.shapes.tuples[0]}")
    if labels.dtype is not dt.int32:
        raise TypeError(f"labels must be int32, got {labels.dtype}")
    wrong = np.flatnonzero(labels.shapes.volumes != boxes.shapes.rows[:, 0])
    if len(wrong):
        s = int(wrong[0])
        raise ValueError(
            f"there are {int(labels.shapes.volumes[s])} labels and "
            f"{int(boxes.shapes.rows[s, 0])} boxes in sample {s}"
        )


@memoized(64)
def _check_numbers(
    anchors: tuple[float, ...], criteria: float, means: tuple[float, ...], stds: tuple[float, ...]
) -> None:
    if not anchors or len(anchors) % 4:
        raise ValueError(f"`anchors` must have 4 numbers for each anchor, got {len(anchors)}")
    if not 0 <= criteria <= 1:
        raise ValueError(f"`criteria` must lie in [0, 1], got {criteria:g}")
    for name, values in (("means", means), ("stds", stds)):
        if len(values) != 4:
            raise ValueError(f"`{name}` must have 4 values, got {len(values)}")
    if 0 in stds:
        raise ValueError(f"`stds` must not be 0, got {list(stds)}")


@memoized(16)
def _anchor_table(anchors: tuple[float, ...]) -> Node:
    """All anchors as one constant; the same object for the same anchors."""
    return convert.const_array(np.array(anchors, np.float32), dt.float32)


def _on_pairs(body, inputs: list[Node], axes, pairs: Shapes, like: Node) -> Node:
    return build.pointwise(_NAME, body, inputs, axes, pairs, None, (), like.batch)


def _largest(x: Node, axis: int, dtype: dt.DType) -> Node:
    return build.reduce(_NAME, x, [axis], "max", dtype, None)


# -- bodies --------------------------------------------------------------------------------------


def _corners(table: Expr, k: Expr) -> list[Expr]:
    return [ex.lookup(table, k * 4 + d) for d in range(4)]


def _iou(boxes: Expr, anchors: Expr) -> Expr:
    """Intersection over union of box (axis 0) and anchor (axis 1)."""
    l, t, r, b = _corners(boxes, ex.index(0))
    left, top, right, bottom = _corners(anchors, ex.index(1))
    zero = ex.const(0.0, dt.float32)
    width = ex.maximum(ex.minimum(r, right) - ex.maximum(l, left), zero)
    height = ex.maximum(ex.minimum(b, bottom) - ex.maximum(t, top), zero)
    common = width * height
    whole = (r - l) * (b - t) + (right - left) * (bottom - top) - common
    return ex.select(whole > 0.0, common / whole, zero)


def _at_best(iou: Expr, best: Expr) -> Expr:
    """The anchor's number where a box has its largest IoU; the last one wins, as upstream."""
    return ex.select(ex.eq(iou, best), ex.index(1), ex.const(-1, dt.int32))


def _raised(iou: Expr, own: Expr) -> Expr:
    """IoU, or more than any IoU where the anchor is the best one of the box."""
    return ex.select(ex.eq(ex.index(1), own), ex.const(2.0, dt.float32), iou)


def _box_at_best(iou: Expr, top: Expr) -> Expr:
    return ex.select(ex.eq(iou, top), ex.index(0), ex.const(-1, dt.int32))


def _match(top: Expr, chosen: Expr, criteria: float) -> Expr:
    """The number of the box that an anchor gets, or -1."""
    is_enough = top > ex.const(criteria, dt.float32)
    return ex.select(is_enough, chosen, ex.const(-1, dt.int32))


def _class(match: Expr, labels: Expr) -> Expr:
    none = ex.const(0, dt.int32)
    is_found = match >= 0
    label = ex.lookup(labels, ex.select(is_found, match, none))
    return ex.select(is_found, label, none)


def _encoded(
    match: Expr, boxes: Expr, anchors: Expr, offset: bool, scale: float,
    means: tuple[float, ...], stds: tuple[float, ...],
) -> Expr:  # fmt: skip
    """A coordinate (axis 1) of what an anchor (axis 0) gets."""
    is_found = match >= 0
    box = _centred(_corners(boxes, ex.select(is_found, match, ex.const(0, dt.int32))))
    anchor = _centred(_corners(anchors, ex.index(0)))
    if not offset:
        return ex.select(is_found, _by_column(box), _by_column(anchor))
    x, y, w, h = (v * float(np.float32(scale)) for v in box)
    left, top, width, height = (v * float(np.float32(scale)) for v in anchor)
    distances = [(x - left) / width, (y - top) / height, ml.log(w / width), ml.log(h / height)]
    values = [
        (v - float(np.float32(m))) / float(np.float32(s))
        for v, m, s in zip(distances, means, stds, strict=True)
    ]
    return ex.select(is_found, _by_column(values), ex.const(0.0, dt.float32))


def _centred(corners: list[Expr]) -> list[Expr]:
    """Centre, width and height of a box."""
    l, t, r, b = corners
    return [(l + r) * 0.5, (t + b) * 0.5, r - l, b - t]


def _by_column(values: list[Expr]) -> Expr:
    *others, result = values
    for k in reversed(range(len(others))):
        result = ex.select(ex.eq(ex.index(1), k), others[k], result)
    return result
