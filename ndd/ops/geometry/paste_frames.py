"""multi_paste with regions that differ from frame to frame: frames become samples."""

from __future__ import annotations

import numpy as np

from ...core.schema import OPS
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, numbered
from ...kernels.ir.dtypes import DType


def by_frame(
    inputs: tuple[Node, ...], layout: str, dtype: DType | None, ids, size: Array | None, regions
) -> Node:
    """Paste with regions that differ from frame to frame: frames become samples."""
    if layout[0] != "F":
        name = next(n for n, v in regions.items() if v is not None and v[0].ndim == 3)
        raise ValueError(f"`{name}` has a value per frame, but the inputs have no frames")
    counts = inputs[0].shapes.rows[:, 0]
    for k, x in enumerate(inputs):
        if bool((x.shapes.rows[:, 0] != counts).any()):
            raise ValueError(f"input {k} has other numbers of frames than the first one")
    samples = np.repeat(np.arange(len(counts)), counts)
    frame = numbered(counts)
    if ids is not None:
        ids = _frame_ids(ids, inputs[0], samples, frame)
    given = {n: _frames_of(n, v, counts, samples, frame) for n, v in regions.items()}
    if size is not None and len(size) > 1:
        size = size[samples]
    frames = tuple(build.frames("multi_paste", x).like(layout="HWC") for x in inputs)
    pasted = OPS["multi_paste"].body(frames, dtype=dtype, in_ids=ids, output_size=size, **given)
    return build.sequences("multi_paste", pasted, counts, inputs[0].batch)


def _frame_ids(ids, x: Node, samples: Array, frame: Array) -> list[Array]:
    """For each frame, the numbers of the frames to paste: those at the same place of sequences."""
    counts = x.shapes.rows[:, 0]
    begin = np.cumsum(counts) - counts
    for s, row in enumerate(ids if len(ids) > 1 else ids * len(counts)):
        for chosen in row.reshape(-1).tolist():
            if not 0 <= chosen < len(counts):
                raise IndexError(
                    f"`in_ids` of sample {s} names sample {chosen} of a batch of {len(counts)}"
                )
            if counts[chosen] != counts[s]:
                raise ValueError(
                    f"`in_ids` of sample {s}, which has {counts[s]} frames, names sample {chosen}, "
                    f"which has {counts[chosen]}"
                )
    return [begin[ids[s % len(ids)].reshape(-1)] + f for s, f in zip(samples, frame, strict=True)]


def _frames_of(name: str, values, counts: Array, samples: Array, frame: Array):
    """The rows of regions for each frame."""
    if values is None:
        return None
    for s, count in enumerate(counts.tolist()):
        rows = values[s % len(values)]
        if rows.ndim == 3 and len(rows) not in (1, count):
            raise ValueError(f"`{name}` has {len(rows)} frames, but sample {s} has {count}")
    found = []
    for s, f in zip(samples.tolist(), frame.tolist(), strict=True):
        rows = values[s % len(values)]
        found.append(rows[f % len(rows)] if rows.ndim == 3 else rows)
    return found
