"""JPEG round trips, frames in another order and windows with borders, on one thread and on two."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .harness import ROUNDS, Row, optional
from .histograms import images
from .resample import COUNT, Runs, both, finish

QUALITY = 50
ORDER = [15, 3, 3, 7, 0, 1, 2, 5, 9, 9, 9, 10, 11, 12, 13, 14]


def jpeg(pixels: list[np.ndarray], threads: int) -> Runs:
    """OpenCV takes the pixels as they are, without a conversion from RGB to BGR and back."""

    def program(lib: Any, x: Any) -> Any:
        return lib.jpeg_compression_distortion(x, quality=QUALITY)

    runs = both(pixels, program, threads=threads)
    cv2 = optional("cv2")
    if cv2 is None:
        return runs
    cv2.setNumThreads(1)
    options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]

    def one(image: np.ndarray) -> Any:
        return cv2.imdecode(cv2.imencode(".jpg", image, options)[1], cv2.IMREAD_COLOR)

    pool = ThreadPoolExecutor(threads)
    each = map if threads == 1 else pool.map
    runs["opencv"] = lambda: list(each(one, pixels))
    return runs


def frames(videos: list[np.ndarray]) -> Runs:
    runs = both(videos, lambda lib, x: lib.sequence_rearrange(x, new_order=lib.tensor(ORDER)),
                layout="FHWC")  # fmt: skip
    runs["numpy"] = lambda: [v[ORDER] for v in videos]
    return runs


def borders(pixels: list[np.ndarray], rule: str) -> Runs:
    height, width, _ = pixels[0].shape
    size = np.float32([height + 48, width + 48])
    runs = both(pixels, lambda lib, x: _CROPS[rule](lib, x, lib.tensor(size)))
    cv2 = optional("cv2")
    if cv2 is not None:
        kind = {"clamp": cv2.BORDER_REPLICATE, "reflect_101": cv2.BORDER_REFLECT_101,
                "wrap": cv2.BORDER_WRAP}[rule]  # fmt: skip
        cv2.setNumThreads(1)
        runs["opencv"] = lambda: [cv2.copyMakeBorder(p, 24, 24, 24, 24, kind) for p in pixels]
    return runs


# Upstream reads this argument from the caller's source, so each rule is written out.
_CROPS = {
    "clamp": lambda lib, x, size: lib.crop(x, crop=size, out_of_bounds_policy="clamp"),
    "reflect_101": lambda lib, x, size: lib.crop(x, crop=size, out_of_bounds_policy="reflect_101"),
    "wrap": lambda lib, x, size: lib.crop(x, crop=size, out_of_bounds_policy="wrap"),
}
RULES = tuple(_CROPS)


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    photos = images(375, 500)
    of = f"{COUNT} × 375×500×3 u8"
    for threads in (1, 2):
        found = jpeg(photos, threads)
        rows += finish(f"JPEG round trip, {of}, {threads} thread(s)", found, rounds)
    videos = [np.stack(images(224, 224)[:16]) for _ in range(2)]
    rows += finish(
        "sequence_rearrange of 16 frames, 2 × 16×224×224×3 u8, 1 thread", frames(videos), rounds
    )
    for rule in _CROPS:
        rows += finish(
            f"crop beyond a {rule} border, {of}, 1 thread", borders(photos, rule), rounds
        )
    return rows
