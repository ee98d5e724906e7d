"""Dilation, erosion and medians against OpenCV, on one thread; results go to memory that is reused.

OpenCV writes into arrays that exist, and `ndd` into pooled memory, so neither waits for new pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show
from .resample import Runs, photos

COUNT = 32
SHAPES = ((400, 500), (224, 224))
SIZES = (3, 5)


def crops(h: int, w: int) -> list[np.ndarray]:
    """Parts of photos, tiled where a photo is too small."""
    return [np.ascontiguousarray(np.tile(p, (2, 1, 1))[:h, :w]) for p in photos(COUNT // 2)] * 2


def programs(size: int) -> dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]]:
    """Name → our op on a batch, and OpenCV's on an image and the memory for its result."""
    cv2, ops = optional("cv2"), ndd.experimental
    mask = np.ones((size, size), np.uint8)
    return {
        "dilate": (
            lambda x: ops.dilate(x, mask_size=size), lambda i, out: cv2.dilate(i, mask, dst=out),
        ),
        "erode": (
            lambda x: ops.erode(x, mask_size=size), lambda i, out: cv2.erode(i, mask, dst=out),
        ),
        "median_blur": (
            lambda x: ops.median_blur(x, window_size=size),
            lambda i, out: cv2.medianBlur(i, size, dst=out),
        ),
    }  # fmt: skip


def runs_of(images: list[np.ndarray], ours: Any, theirs: Any) -> Runs:
    batch, context = ndd.batch(images, layout="HWC"), ndd.EvalContext(num_threads=1)
    outs = [np.empty_like(i) for i in images]

    def once() -> object:
        with context:
            return ours(batch).evaluate()

    def opencv() -> object:
        return [theirs(i, out) for i, out in zip(images, outs, strict=True)]

    found: Runs = {"ndd": once}
    cv2 = optional("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
        found["opencv"] = opencv
    return found


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for h, w in SHAPES:
        images = crops(h, w)
        for size in SIZES:
            for name, (ours, theirs) in programs(size).items():
                workload = f"{name} {size}×{size}, {COUNT} × {h}×{w}×3 u8, 1 thread"
                part = compare(workload, runs_of(images, ours, theirs), rounds)
                show(part, "opencv")
                rows += part
    return rows
