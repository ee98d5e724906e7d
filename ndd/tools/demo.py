"""The demo: runs an augmentation program, prints its plan and speed, and writes a picture."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import ndd

from .showing import Picture

MEAN, STD = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]


def synthetic_photo(height: int, width: int, seed: int) -> np.ndarray[Any, Any]:
    """An image with soft colour gradients, discs and a little grain."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    image = np.empty((height, width, 3), np.float32)
    for c in range(3):
        fx, fy, phase = rng.uniform(0.5, 2.5, 3)
        image[..., c] = 128 + 70 * np.sin(fx * x / width * 3 + fy * y / height * 3 + phase * 2)
    for _ in range(6):
        cx, cy, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.06, 0.2) * height
        inside = (x - cx) ** 2 + (y - cy) ** 2 < r**2
        image[inside] = rng.uniform(20, 235, 3)
    image += rng.normal(0, 4, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def augment(images: Any, seed: int = 0) -> tuple[Any, Any]:
    """Colour, contrast, mirror, crop and normalise, with different arguments per sample."""
    rng = np.random.default_rng(seed)
    n = images.batch_size

    def draw(low: float, high: float) -> Any:
        return ndd.batch(list(rng.uniform(low, high, n).astype(np.float32)))

    x = ndd.color_twist(images, hue=draw(-40, 40), saturation=draw(0.6, 1.6))
    x = ndd.brightness_contrast(x, brightness=draw(0.8, 1.3), contrast=draw(0.8, 1.3))
    x = ndd.flip(x, horizontal=ndd.batch(list(rng.integers(0, 2, n).astype(np.int32))))
    x = ndd.crop(x, crop=[224, 224], crop_pos_x=draw(0, 1), crop_pos_y=draw(0, 1))
    return x, ndd.crop_mirror_normalize(x, mean=MEAN, std=STD)


@contextmanager
def _fusion(on: bool) -> Iterator[None]:
    before = os.environ.get("NDD_FUSION")
    os.environ["NDD_FUSION"] = "1" if on else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NDD_FUSION"]
        else:
            os.environ["NDD_FUSION"] = before


def _rate(images: Any, seconds: float) -> Any:
    augment(images)[1].evaluate()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        augment(images, count)[1].evaluate()
        count += 1
    return count * images.batch_size / (time.perf_counter() - start)


def picture(images: Any, augmented: Any, columns: int = 4) -> np.ndarray[Any, Any]:
    """The original photos above, the augmented ones below."""
    small = ndd.resize(images, size=[176, 224])
    rows = []
    for batch in (small, augmented):
        photos = [np.asarray(batch.tensors[i]) for i in range(columns)]
        framed = [np.pad(p, ((4, 4), (4, 4), (0, 0)), constant_values=255) for p in photos]
        rows.append(np.concatenate(framed, axis=1))
    return np.concatenate(rows)


def main(output: str = "demo.png", seconds: float = 2.0, batch_size: int = 64) -> None:
    """Run the demo."""
    print(f"making {batch_size} synthetic photos of about 400×500 …")
    photos = [synthetic_photo(380 + i % 40, 480 + i % 50, i % 8) for i in range(batch_size)]
    images = ndd.batch(photos, layout="HWC")
    start = time.perf_counter()
    shown, result = augment(images)
    with ndd.EvalMode.deferred:
        explanation = ndd.explain(augment(images)[1])
    result.evaluate()
    print(f"first batch after {time.perf_counter() - start:.2f} s (compiled kernels are kept)")
    print()
    print(explanation)
    print()
    fused = _rate(images, seconds)
    with _fusion(False):
        unfused = _rate(images, seconds)
    threads = ndd.get_num_threads()
    print(
        f"throughput: {fused:,.0f} images/s fused, {unfused:,.0f} images/s op by op "
        f"({threads} threads)"
    )
    path = Path(output)
    Picture(picture(images, shown)).save(path)
    print(f"before and after: {path.resolve()}")
