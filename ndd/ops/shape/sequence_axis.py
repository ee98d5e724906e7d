"""Sequences: values with one entry for each frame (per_frame), and frames in another order."""

from __future__ import annotations

import numpy as np

from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array

_VIDEO = "video = ndd.zeros(shape=[3, 48, 64, 3], dtype=ndd.uint8, layout='FHWC')\n"
_SIGMA = "sigma = ndd.per_frame(ndd.tensor([0.5, 1.0, 2.0]))\n"


@op.graph(
    enums="kept",
    sample=_VIDEO + _SIGMA + "ndd.gaussian_blur(video, sigma=sigma).shape\n=(3, 48, 64, 3)",
)
def per_frame(
    input=data("Values; the first axis counts frames."),
    replace=static(bool, False, "Whether to rename a first axis that has another name than F."),
):
    """Mark the first axis as frames, so that an op on sequences takes one value for each frame.

    Only the layout changes: its first letter becomes F.
    """
    x = input
    if x.rank == 0:
        raise ValueError("`input` must have at least one dimension, got a scalar")
    layout = x.layout or "F" + "*" * (x.rank - 1)
    if layout[0] != "F" and not replace:
        raise ValueError(
            f"the layout of `input` must begin with F, got {layout!r}; use replace=True to rename "
            "its first axis"
        )
    return build.relabel("per_frame", x, "F" + layout[1:])


@op.graph(
    sample="frames = ndd.tensor([[1, 2], [3, 4], [5, 6]])\n"
    "ndd.sequence_rearrange(frames, new_order=[2, 0, 0]).torch().tolist()\n"
    "=[[5, 6], [1, 2], [1, 2]]"
)
def sequence_rearrange(
    input=data("Sequences; the first axis counts frames."),
    new_order=geometry(
        int, REQUIRED, "Frame k of the result is frame new_order[k] of the input.",
        vector=True, uneven=True,
    ),
):  # fmt: skip
    """Choose, repeat and reorder the frames of sequences; each sample may have its own order."""
    x = input
    if x.rank < 2:
        raise ValueError(f"`input` must have at least 2 dimensions, got {x.rank}")
    if x.layout and x.layout[0] != "F":
        raise ValueError(f"the layout of `input` must begin with F, got {x.layout!r}")
    counts = np.broadcast_to([len(row) for row in new_order], x.count)
    orders = np.concatenate([np.ravel(row) for row in new_order])
    if len(new_order) < x.count:
        orders = np.tile(orders, x.count)
    _check_order(x, orders, counts)
    return build.take("sequence_rearrange", x, [build.Listed(0, orders, counts)], x.batch)


def _check_order(x: Node, orders: Array, counts: Array) -> None:
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise ValueError(f"`new_order` must not be empty, as it is for sample {int(empty[0])}")
    samples = np.repeat(np.arange(x.count), counts)
    frames = x.shapes.rows[samples, 0]
    bad = np.flatnonzero((orders < 0) | (orders >= frames))
    if len(bad):
        k = int(bad[0])
        raise ValueError(
            f"`new_order` names frame {int(orders[k])} for sample {int(samples[k])}, which has "
            f"{int(frames[k])} frames"
        )
