"""Arguments that differ from frame to frame: such a call is made with frames as its samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array, numbered
from ..runtime.context import current_context
from .batch import Batch
from .handle import Handle, input_of
from .schema import OpDef

Graph = Callable[[OpDef, list[Node], Sequence[Any], int | None], Any]


def is_given(op: OpDef, others: Sequence[Any]) -> bool:
    """Whether one of the arguments of a call has a value per frame: its layout begins with F."""
    return any(isinstance(others[k], Handle) and is_framed(others[k]) for k, _ in op.frame_slots)


def is_framed(value: Handle | Node) -> bool:
    """Whether an argument has a value per frame: its layout begins with F."""
    return (value.layout or "").startswith("F")


def axis_of(x: Node) -> int:
    """The axis of frames; 0 if there are none, which suits a single value."""
    return max((x.layout or "").find("F"), 0)


def one_by_one(op: str, name: str, values: Node, x: Node) -> Node:
    """Numbers [frames] for each sample of `x`, of an argument with a number per frame; a scalar if
    `x` has no frames."""
    counts = values.shapes.rows[:, 0]
    if bool((values.shapes.volumes != counts).any()):
        raise ValueError(
            f"argument `{name}` must be a number per frame, got shape {values.shapes.tuples[0]}"
        )
    if "F" not in (x.layout or ""):
        if bool((counts != 1).any()):
            raise ValueError(
                f"argument `{name}` has a number for each of {int(counts.max())} frames, but the "
                f"input ({x.layout}) has no frames"
            )
        return build.drop_axes(op, values, range(values.rank), None)
    _check_frames(name, counts, x, axis_of(x))
    return build.drop_axes(op, values, range(1, values.rank), None)


def folded(op: str, x: Node) -> tuple[Node, Array]:
    """The frames of sequences (F...) as samples, and how many each sequence has."""
    counts = x.shapes.rows[:, 0]
    if not counts.all():
        s = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(f"sample {s} of shape {x.shapes.tuples[s]} has no frames")
    return build.frames(op, x), counts


def by_frame(
    op: OpDef, x: Node, others: Sequence[Any], count: int | None, graph: Graph, ordinal: int | None
) -> Node:
    """Make the call for each frame of `x`, and join the results; `count` samples, if a batch."""
    layout = x.layout or ""
    axis = layout.index("F")
    if axis:
        order = [axis, *(d for d in range(x.rank) if d != axis)]
        x = build.permute(op.name, x, order, "F" + layout.replace("F", ""))
    frames, counts = folded(op.name, x)
    given = list(others)
    for k, p in enumerate(op.others):
        if isinstance(given[k], Handle):
            differs = p.per_frame and is_framed(given[k])
            node = _argument_frames(op, p.name, input_of(given[k]), x, differs)
            given[k] = given[k] if node is None else Batch._of(node)
    given[-2] = None  # the batch size is that of the frames
    y = graph(op, [frames], given, ordinal)
    y = build.sequences(op.name, y, counts, count is not None)
    if axis:
        y = build.permute(op.name, y, [*range(1, axis + 1), 0, *range(axis + 1, y.rank)], layout)
    return y


def _argument_frames(op: OpDef, name: str, node: Node, x: Node, differs: bool) -> Node | None:
    """An argument with a value for each frame of `x`; None if all frames have the same one."""
    counts = x.shapes.rows[:, 0]
    samples = np.repeat(np.arange(x.count) if node.batch else np.zeros(x.count, np.int64), counts)
    if differs:
        own = node.shapes.rows[:, 0]
        _check_frames(name, own, x)
        begin = np.cumsum(own) - own
        node = build.frames(op.name, node)
        indices = begin[samples] + np.where(own[samples] > 1, numbered(counts), 0)
    elif node.batch:
        indices = samples
    else:
        return None
    chosen = build.choose(op.name, node, indices, True)
    chosen.result.context = node.result.context = current_context()
    return chosen


def _check_frames(name: str, own: Array, x: Node, axis: int = 0) -> None:
    counts = x.shapes.rows[:, axis]
    bad = np.flatnonzero((own != 1) & (own != counts))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"`{name}` has {own[s % len(own)]} frames, but sample {s} of shape "
            f"{x.shapes.tuples[s]} ({x.layout}) has {counts[s]}"
        )
