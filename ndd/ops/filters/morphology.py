"""experimental.dilate and experimental.erode: the highest and lowest value of a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node, source
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage
from ...fusion.kinds.ranking import Spans
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ..geometry.window import beside

LAYOUTS = "HW HWC FHWC CHW FCHW"
# The names of OpenCV, and those of `filter`. What lies outside of a constant border never wins, as
# if the window ended there; a repeated edge has the same effect.
_BORDERS = {
    "constant": "clamp", "replicate": "clamp", "clamp": "clamp", "reflect": "reflect_1001",
    "reflect_1001": "reflect_1001", "reflect_101": "reflect_101", "wrap": "wrap",
}  # fmt: skip

_IMAGE = "mask = ndd.zeros(shape=[48, 64, 1], dtype=ndd.uint8, layout='HWC')\n"
_DATA = "Images, or sequences of them."
_MASK_DOC = (
    "Width and height of the window, or one number for both; one row per frame for a sequence."
)
_ANCHOR_DOC = (
    "Column and row of the window that lie on the pixel itself; -1 is the middle. "
    "One row per frame for a sequence."
)
_BORDER_DOC = (
    "How the image continues outside: constant (it does not: windows end at the border), replicate "
    "or clamp (the same), reflect or reflect_1001, reflect_101, wrap."
)
_ITERATIONS_DOC = "How often to repeat the operation; the window grows accordingly."


def _example(name: str) -> str:
    return _IMAGE + f"ndd.experimental.{name}(mask, mask_size=5).shape\n=(48, 64, 1)"


@op.graph(name="experimental.dilate", layouts=LAYOUTS, sample=_example("dilate"))
def dilate(
    input=data(_DATA),
    anchor=geometry(int, (-1, -1), _ANCHOR_DOC, matrix=True, per_frame=True),
    border_mode=static(str, "constant", _BORDER_DOC),
    iterations=geometry(int, 1, _ITERATIONS_DOC),
    mask_size=geometry(int, (3, 3), _MASK_DOC, matrix=True, per_frame=True),
):  # fmt: skip
    """Replace each pixel by the highest value of a window: bright areas grow.

    The window is a rectangle. A nan spreads over all windows that contain it.
    """
    return _joined("dilate", input, "highest", anchor, border_mode, iterations, mask_size)


@op.graph(name="experimental.erode", layouts=LAYOUTS, sample=_example("erode"))
def erode(
    input=data(_DATA),
    anchor=geometry(int, (-1, -1), _ANCHOR_DOC, matrix=True, per_frame=True),
    border_mode=static(str, "constant", _BORDER_DOC),
    iterations=geometry(int, 1, _ITERATIONS_DOC),
    mask_size=geometry(int, (3, 3), _MASK_DOC, matrix=True, per_frame=True),
):  # fmt: skip
    """Replace each pixel by the lowest value of a window: bright areas shrink.

    The window is a rectangle. A nan spreads over all windows that contain it.
    """
    return _joined("erode", input, "lowest", anchor, border_mode, iterations, mask_size)


def _joined(
    name: str, x: Node, rank: str, anchor: Array, border_mode: str, iterations: Array, mask: Array
) -> Node:
    border = _BORDERS.get(border_mode)
    if border is None:
        raise ValueError(f"`border_mode` must be one of {', '.join(_BORDERS)}, got {border_mode!r}")
    axes, op = image_axes(x), f"experimental.{name}"
    if max(mask.shape[1], anchor.shape[1]) > 2:
        mask, anchor = _by_frame(x, mask, anchor)
    shapes = mask.shape, anchor.shape
    spans, widest = _spans(mask.tobytes(), anchor.tobytes(), iterations.tobytes(), *shapes)
    spans = _limited(spans, widest, x.shapes.rows[:, axes[0] : axes[1] + 1], border)
    if spans.count.shape[1] == 1:
        return build.ranking(op, x, axes, border, rank, spans)
    table = np.stack(spans, axis=-1).reshape(*spans.count.shape[:2], 4)
    before = spans.anchor.max(axis=1, keepdims=True)
    after = (spans.count - spans.anchor).max(axis=1, keepdims=True)
    spans = Spans(before + after, before)
    return build.ranking(op, x, axes, border, rank, spans, (0, _table_node(table, x)))


def image_axes(x: Node) -> list[int]:
    """The axes of rows and columns."""
    assert x.layout is not None
    return [x.layout.index("H"), x.layout.index("W")]


def _by_frame(x: Node, mask: Array, anchor: Array) -> tuple[Array, Array]:
    """Flat lists of pairs, one per frame, as arrays [samples, frames, 2]."""
    assert x.layout is not None
    frames = x.shapes.rows[:, 0] if x.layout.startswith("F") else np.zeros(1, np.int64)
    mask, anchor = _pairs("mask_size", mask, frames), _pairs("anchor", anchor, frames)
    if mask.shape[1] > 1:
        # Sequences with fewer frames than others have rows of zeros at the end.
        is_used = np.arange(mask.shape[1]) < frames[:, None]
        mask = np.where(is_used[..., None], mask, 1)
    return mask, anchor


def _pairs(name: str, values: Array, frames: Array) -> Array:
    n, most = values.shape[1], int(frames.max(initial=0))
    if n <= 2:
        return np.broadcast_to(values[:, None, :], (len(values), 1, 2))
    if n != 2 * most:
        by_frame = f", or 2 for each of {most} frames" if most else ""
        raise ValueError(f"`{name}` must have 1 or 2 values{by_frame}, got {n}")
    return values.reshape(len(values), most, 2)


_MOST = 1 << 31  # larger numbers have the same effect


@memoized(256)
def _spans(
    mask: bytes, anchor: bytes, iterations: bytes, size_of_mask: Any, size_of_anchor: Any
) -> tuple[Spans, int]:
    """The windows, [samples or 1, frames or 1, axes], and the largest extent of all.

    The arguments are the bytes of arrays, and the shapes of the first two.
    """
    size, at = (
        _spread(np.frombuffer(memory, np.int64).reshape(shape))
        for memory, shape in ((mask, size_of_mask), (anchor, size_of_anchor))
    )
    times = np.frombuffer(iterations, np.int64)[:, None, None]
    _refuse(size < 1, "`mask_size` must be positive, got {}", size)
    _refuse(times < 0, "`iterations` must not be negative, got {}", times)
    size, at = np.broadcast_arrays(size, at)
    wrong = (at < -1) | (at >= size)
    _refuse(wrong, "`anchor` must lie within the mask, or be -1, got {}", at)
    at = np.where(at == -1, size // 2, at)
    size, at, times = (np.minimum(a, _MOST) for a in (size, at, times))
    count, before = 1 + times * (size - 1), times * at
    return Spans(count[..., ::-1], before[..., ::-1]), int(count.max(initial=1))


def _spread(pairs: Array) -> Array:
    """Pairs or single numbers, [samples, frames, 2]."""
    pairs = pairs if pairs.ndim == 3 else pairs[:, None, :]
    return np.broadcast_to(pairs, (*pairs.shape[:2], 2))


def _refuse(bad: Array, message: str, values: Array) -> None:
    """Raise an error for the first bad sample; `{}` in the message becomes its numbers."""
    if bad.any():
        s, frame, _ = np.argwhere(bad)[0]
        where = f" for frame {frame}" if bad.shape[1] > 1 else ""
        where += f" of sample {s}" if where and len(bad) > 1 else ""
        where = where or (f" for sample {s}" if len(bad) > 1 else "")
        found = values[s, frame].tolist()
        raise ValueError(message.format(found[0] if len(found) == 1 else tuple(found)) + where)


def _limited(spans: Spans, widest: int, extents: Array, border: str) -> Spans:
    """The windows, cut where they would only read what they have already read."""
    if widest <= int(extents.min(initial=widest)):
        return spans
    n = np.maximum(extents, 1)
    most = (n - 1 if border == "clamp" else 2 * n)[:, None, :]
    before = np.minimum(spans.anchor, most)
    after = np.minimum(spans.count - 1 - spans.anchor, most)
    return Spans(before + after + 1, before)


def _table_node(rows: Array, x: Node) -> Node:
    """Numbers [samples or 1, frames, k] from the host, as one table per sample of `x`."""
    memory = np.ascontiguousarray(rows, np.int32)
    addresses = memory.ctypes.data + memory.strides[0] * np.arange(len(memory), dtype=np.int64)
    shapes = Shapes(np.broadcast_to(np.array(memory.shape[1:], np.int64), (len(memory), 2)))
    storage = Storage(addresses, memory, dense=True)
    return beside(source(storage, shapes, dt.int32, batch=x.batch), x)
