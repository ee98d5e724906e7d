"""Boxes, label maps and polygons, on one thread, beside the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import ROUNDS, Row, compare, show
from .resample import Runs, libraries

COUNT, BOXES, MAPS, SIDE, ANCHORS = 64, 20, 16, 512, 8732
CROP: dict[str, Any] = {
    "thresholds": [0.1, 0.3, 0.5, 0.7, 0.9], "scaling": [0.3, 1.0], "aspect_ratio": [0.5, 2.0],
    "total_num_attempts": 50, "quiet": True,
}  # fmt: skip


def boxes(count: int, seed: int) -> np.ndarray:
    corners = np.random.default_rng(seed).uniform(0, 1, (count, 2, 2))
    return np.sort(corners, axis=1).reshape(count, 4).astype(np.float32)


def label_map(seed: int, blobs: int = 60) -> np.ndarray:
    """Overlapping discs of five classes."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    labels = np.zeros((SIDE, SIDE), np.uint8)
    for _ in range(blobs):
        row, column, radius = *rng.uniform(0, SIDE, 2), rng.uniform(8, 60)
        labels[(y - row) ** 2 + (x - column) ** 2 < radius**2] = rng.integers(0, 6)
    return labels


def runs_of(data: list[list[np.ndarray]], program: Callable[..., Any]) -> Runs:
    def run(lib: Any, context: Any) -> Callable[[], object]:
        batches = [lib.batch(samples) for samples in data]

        def once() -> object:
            with context:
                found = program(lib, *batches)
                return [
                    x.evaluate() for x in (found if isinstance(found, (tuple, list)) else [found])
                ]

        return once

    return {name: run(*pair) for name, pair in libraries().items()}


def cases() -> dict[str, Runs]:
    """Workload → what to run."""
    many = [boxes(BOXES, s) for s in range(COUNT)]
    labels = [np.arange(1, BOXES + 1, dtype=np.int32)] * COUNT
    anchors = boxes(ANCHORS, 99).reshape(-1).tolist()
    maps = [label_map(s) for s in range(MAPS)]
    polygons = [np.int32([[k, 10 * k, 10 * k + 10] for k in range(50)])] * COUNT
    vertices = [np.zeros((500, 2), np.float32)] * COUNT
    ids = [np.random.default_rng(s).permutation(50)[:10].astype(np.int32) for s in range(COUNT)]
    points = [b[:, :2].copy() for b in many]
    angles = [np.float32(5 * k) for k in range(COUNT)]
    mirrored = [np.int32(k % 2) for k in range(COUNT)]
    extents, corners = [np.int64([300, 400])] * COUNT, [np.int32([30, 40])] * COUNT
    of_boxes, of_maps = f"{COUNT} × {BOXES} boxes", f"{MAPS} × {SIDE}²"
    find, pixel = "segmentation.random_object_bbox", "segmentation.random_mask_pixel"
    return {
        f"random_bbox_crop, {of_boxes}": runs_of(
            [many, labels], lambda lib, x, y: lib.random_bbox_crop(x, y, **CROP)),
        f"box_encoder, {of_boxes}, {ANCHORS} anchors": runs_of(
            [many, labels], lambda lib, x, y: lib.box_encoder(x, y, anchors=anchors)),
        f"bb_flip, {of_boxes}": runs_of(
            [many, mirrored], lambda lib, x, m: lib.bb_flip(x, ltrb=True, horizontal=m)),
        f"bbox_paste, {of_boxes}": runs_of(
            [many], lambda lib, x: lib.bbox_paste(x, ltrb=True, ratio=2.0)),
        f"bbox_rotate, {of_boxes}": runs_of(
            [many, labels, angles],
            lambda lib, x, y, a: lib.bbox_rotate(x, y, angle=a, input_shape=[100, 200])),
        f"coord_flip, {COUNT} × {BOXES} points": runs_of(
            [points], lambda lib, x: lib.coord_flip(x)),
        f"coord_transform, {COUNT} × {BOXES} points": runs_of(
            [points], lambda lib, x: lib.coord_transform(x, M=[0.0, 1.0, -1.0, 0.0])),
        f"random_crop_generator, {COUNT} shapes": runs_of(
            [extents], lambda lib, x: lib.random_crop_generator(x)),
        f"roi_random_crop, {COUNT} regions": runs_of(
            [corners], lambda lib, x: lib.roi_random_crop(
                crop_shape=[20, 20], roi_start=x, roi_shape=[50, 50], in_shape=[300, 400])),
        f"{find}, {of_maps}": runs_of(
            [maps], lambda lib, x: lib.segmentation.random_object_bbox(x)),
        f"{find} of any class, {of_maps}": runs_of(
            [maps], lambda lib, x: lib.segmentation.random_object_bbox(x, ignore_class=True)),
        f"{find} remembered, {of_maps}": runs_of(
            [maps], lambda lib, x: lib.segmentation.random_object_bbox(x, cache_objects=True)),
        f"{pixel}, {of_maps}": runs_of(
            [maps], lambda lib, x: lib.segmentation.random_mask_pixel(x)),
        f"{pixel} of the foreground, {of_maps}": runs_of(
            [maps], lambda lib, x: lib.segmentation.random_mask_pixel(x, foreground=1)),
        f"segmentation.select_masks, {COUNT} × 10 of 50": runs_of(
            [ids, polygons, vertices], lambda lib, *x: lib.segmentation.select_masks(*x)),
    }  # fmt: skip


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for workload, runs in cases().items():
        part = compare(f"{workload}, 1 thread", runs, rounds)
        show(part, "oracle")
        rows += part
    return rows
