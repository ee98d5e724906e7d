"""filter: the weighted sum over a window, with weights given by the user."""

from __future__ import annotations

import numpy as np

from ...core.schema import REQUIRED, arg, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.kinds.neighbourhood import Windows
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from ...kernels.ir.windows import BORDERS
from ..geometry.borders import RULES
from ..geometry.window import beside
from ..resample.sampling import rows_node
from .window_arguments import DTYPE_DOC, converted, result_type, spatial_axes

MODES = ("same", "valid")
_NAMES = {name: rule for name, rule in RULES.items() if rule in BORDERS}

_IMAGE = "image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')\n"
_KERNEL = "edges = ndd.tensor([[-1.0, 0.0, 1.0]])\n"


@op.graph(
    by_frame=True, rejects="bool u32 i32 u64 i64 f64",
    sample=_IMAGE + _KERNEL + "ndd.filter(image, edges, dtype=ndd.float32).shape\n=(48, 64, 3)",
)  # fmt: skip
def filter(
    data=data("Images, sequences or volumes."),
    filter=arg(
        float, REQUIRED, "Weights: one dimension for each spatial axis of `data`.",
        positional=True, any_shape=True, per_frame=True,
    ),
    fill_value=arg(
        float, None, 'Value outside of `data` if `border` is "constant"; 0 if omitted.',
        positional=True, per_frame=True,
    ),
    anchor=geometry(
        int, (-1,), "Position in `filter` of the weight for the element itself; -1 is the middle.",
        vector=True, per_frame=True,
    ),
    border=static(str, "reflect_101", f"How `data` continues outside: {', '.join(BORDERS)}, or "
                  "another of the names that `slice` has for them."),
    dtype=static(DType, None, DTYPE_DOC),
    mode=static(MODES, "same", '"valid": only where the whole window lies inside of `data`.'),
):  # fmt: skip
    """Correlate with any window of weights.

    Weights are not mirrored, so this is a correlation, not a convolution. Integer results are
    rounded to the nearest, ties to even.
    """
    x, axes = data, spatial_axes(data)
    dtype, border = result_type(x, dtype), _checked_border(border)
    weights = _kernel(filter, x, axes)
    counts = weights.shapes.rows
    anchors = _anchors(anchor, counts)
    shapes = x.shapes
    if mode == "valid":
        rows = np.array(np.broadcast_to(x.shapes.rows, (max(x.count, len(counts)), x.rank)))
        rows[:, axes] -= counts - 1
        bad = np.flatnonzero((rows[:, axes] <= 0).any(axis=1) & (x.shapes.volumes > 0))
        if len(bad):
            s = int(bad[0])
            sizes = tuple(counts[s % len(counts)].tolist())
            raise ValueError(
                f"`filter` of shape {sizes} must not be larger than the sample if `mode` is "
                f"'valid', sample {s} has shape {x.shapes.tuples[s % x.count]}"
            )
        shapes = Shapes(np.maximum(rows, 0))
        anchors, border = np.zeros_like(counts), "clamp"  # windows never reach outside
    fill = None
    if border == "constant":
        zero = rows_node(np.zeros((1, 1), np.float32), x)
        fill = zero if fill_value is None else beside(_floats(fill_value), x)
    counts = np.broadcast_to(counts, anchors.shape)
    windows = Windows(*(a[:, None, :] for a in (counts, anchors, np.zeros_like(counts))))
    y = build.neighbourhood("filter", x, axes, shapes, border, weights, windows, 0, fill)
    return converted("filter", y, dtype, "even")


def _checked_border(border: str) -> str:
    found = _NAMES.get(border.lower())
    if found is None:
        raise ValueError(f"`border` must be one of {', '.join(BORDERS)}, got {border!r}")
    return found


def _kernel(weights: Node, x: Node, axes: list[int]) -> Node:
    """The weights as float32, in memory on the device of `x`."""
    if weights.rank != len(axes):
        raise ValueError(
            f"`filter` must have {len(axes)} dimensions, one for each spatial axis of `data`, got "
            f"{weights.rank}"
        )
    if weights.shapes.volumes.min(initial=1) == 0:
        s = int(weights.shapes.volumes.argmin())
        raise ValueError(f"`filter` must not be empty, got shape {weights.shapes.tuples[s]}")
    if weights.storage is not None and weights.storage.strides is not None:
        weights = build.copy("filter", weights)  # kernels read the weights as a contiguous list
    return beside(_floats(weights), x)


def _floats(x: Node) -> Node:
    return converted("filter", x, dt.float32)


def _anchors(anchor: Array, counts: Array) -> Array:
    n = counts.shape[1]
    if anchor.shape[1] not in (1, n):
        raise ValueError(f"`anchor` must have {n} values, got {anchor.shape[1]}")
    size = max(len(anchor), len(counts)), n
    anchor, counts = np.broadcast_to(anchor, size), np.broadcast_to(counts, size)
    bad = (anchor < -1) | (anchor >= counts)
    if bad.any():
        s = int(np.argwhere(bad)[0, 0])
        raise ValueError(
            f"`anchor` must lie within the filter, got {tuple(anchor[s].tolist())} for sample {s} "
            f"with a filter of shape {tuple(counts[s].tolist())}"
        )
    return np.where(anchor == -1, counts // 2, anchor)
