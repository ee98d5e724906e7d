"""JPEGs of 12 megapixels → 224² normalised planes, on one thread.

Exact contestants decode all pixels and take the mean over the area of each. The others let the
decoder shrink the photo (by its inverse transform) before they resample it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import io
from collections.abc import Callable
from typing import Any

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show
from .resample import MEAN, STD, Runs, libraries

HEIGHT, WIDTH, COUNT, SIZE = 3000, 4000, 4, 224


def files() -> list[np.ndarray]:
    """Photos with structure at all scales, of about 2 MB each."""
    from PIL import Image

    rng = np.random.default_rng(7)
    made = []
    for _ in range(COUNT):
        total = np.zeros((HEIGHT, WIDTH, 3), np.float32)
        for level in range(2, 9):  # grids of 8×6 … 512×384 numbers
            grid = rng.normal(0, 1, (3 << (level - 1), 4 << (level - 1), 3)).astype(np.float32)
            part = [
                np.asarray(Image.fromarray(grid[..., c]).resize((WIDTH, HEIGHT))) for c in range(3)
            ]
            total += np.stack(part, -1) * (60 / level)
        fine = rng.normal(0, 5, (HEIGHT, WIDTH, 1))
        pixels = np.uint8(np.clip(128 + total + fine, 0, 255))
        target = io.BytesIO()
        Image.fromarray(pixels).save(target, "JPEG", quality=80)
        made.append(np.frombuffer(target.getvalue(), np.uint8))
    return made


def programs(encoded: list[np.ndarray]) -> Runs:
    runs: Runs = {}

    def run(lib: Any, context: Any, options: dict[str, bool]) -> Callable[[], object]:
        def once() -> object:
            with context:
                x = lib.decoders.image(lib.batch(encoded), **options)
                x = lib.resize(x, size=[SIZE, SIZE])
                return lib.crop_mirror_normalize(x, mean=MEAN, std=STD).evaluate()

        return once

    for name, (lib, context) in libraries().items():
        runs[name] = run(lib, context, {})
        if lib is ndd:
            runs["ndd scaled"] = run(lib, context, {"scaled_decode": True})
    return runs


def opencv(encoded: list[np.ndarray]) -> Runs:
    cv2 = optional("cv2")
    if cv2 is None:
        return {}
    cv2.setNumThreads(1)
    f = np.float32

    def run(flag: int) -> Callable[[], object]:
        def once() -> object:
            out = np.empty((len(encoded), 3, SIZE, SIZE), f)
            for k, data in enumerate(encoded):
                image = cv2.imdecode(data, flag)
                small = cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA)[..., ::-1]
                out[k] = ((small - f(MEAN)) / f(STD)).transpose(2, 0, 1)
            return out

        return once

    return {
        "opencv area": run(cv2.IMREAD_COLOR),
        "opencv 1/4 decode": run(cv2.IMREAD_REDUCED_COLOR_4),
        "opencv 1/8 decode": run(cv2.IMREAD_REDUCED_COLOR_8),
    }


def pillow(encoded: list[np.ndarray]) -> Runs:
    image = optional("PIL.Image")
    if image is None:
        return {}
    f = np.float32

    def once() -> object:
        out = np.empty((len(encoded), 3, SIZE, SIZE), f)
        for k, data in enumerate(encoded):
            photo = image.open(io.BytesIO(data.tobytes()))
            photo.draft("RGB", (2 * SIZE, 2 * SIZE))
            small = np.asarray(photo.resize((SIZE, SIZE), image.BILINEAR))
            out[k] = ((small - f(MEAN)) / f(STD)).transpose(2, 0, 1)
        return out

    return {"pillow draft": once}


def main(rounds: int = ROUNDS) -> list[Row]:
    encoded = files()
    runs = programs(encoded) | opencv(encoded) | pillow(encoded)
    size = sum(len(e) for e in encoded) / len(encoded) / 1e6
    name = f"large: JPEG of {WIDTH}×{HEIGHT} ({size:.1f} MB) → {SIZE}² normalised, 1 thread"
    rows = compare(name, runs, rounds, divide=COUNT)
    show(rows, "ndd")
    return rows
