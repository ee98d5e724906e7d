"""Which frames of a video are wanted: arguments and the number of frames enter, frame numbers
leave, with FILL for frames that the video does not have."""

from __future__ import annotations

import numpy as np

from ...fusion.graph.shapes import Array

FILL = -1
MAX_FRAMES = 1 << 24  # of one sequence: six days at 30 frames per second
# Other names of the same → the mode.
PAD_MODES = {
    "none": "none", "constant": "constant", "edge": "edge", "repeat": "edge",
    "reflect_1001": "reflect_1001", "symmetric": "reflect_1001",
    "reflect_101": "reflect_101", "reflect": "reflect_101",
}  # fmt: skip


def padded(wanted: Array, count: int, mode: str) -> Array:
    """Frames of a video that has `count` of them, for wanted numbers that may lie outside."""
    inside = (wanted >= 0) & (wanted < count)
    mode = PAD_MODES[mode]
    if mode == "none" or not count:
        found: Array = wanted[inside]
        return found
    if mode == "constant":
        return np.where(inside, wanted, FILL)
    if mode == "edge":
        return np.clip(wanted, 0, count - 1)
    if mode == "reflect_1001":
        turned = wanted % (2 * count)
        return np.asarray(np.minimum(turned, 2 * count - 1 - turned))
    turned = wanted % max(2 * (count - 1), 1)
    return np.minimum(turned, 2 * (count - 1) - turned) if count > 1 else np.zeros_like(wanted)


def listed(frames: Array, count: int, mode: str) -> Array:
    """The frames with these numbers, in this order."""
    wanted = np.asarray(frames, np.int64)
    outside = (wanted < 0) | (wanted >= count)
    if PAD_MODES[mode] == "none" and outside.any():
        bad = int(wanted[outside][0])
        raise ValueError(f"`frames` names frame {bad} of a video with {count} frames")
    return padded(wanted, count, mode)


def ranged(
    count: int, start: int, end: int | None, stride: int, length: int | None, mode: str
) -> Array:
    """The frames from `start` on, up to `end` or so many."""
    if stride <= 0:
        raise ValueError(f"`stride` must be positive, got {stride}")
    if start >= count or (start < 0 and PAD_MODES[mode] == "none"):
        raise ValueError(f"`start_frame` is {start}, but the video has {count} frames")
    if length is None:
        end = count if end is None else end
        if end <= start:
            raise ValueError(f"`end_frame` is {end}, but `start_frame` is {start}")
        length = -(-(end - start) // stride)
    if length < 0:
        raise ValueError(f"`sequence_length` must not be negative, got {length}")
    if PAD_MODES[mode] == "none":
        length = min(length, -(-(count - start) // stride))
    if length > MAX_FRAMES or length * stride > 1 << 62:
        raise ValueError(f"{length} frames with a stride of {stride} are too many")
    return padded(start + stride * np.arange(length), count, mode)
