"""A loop body over pictures, and helpers that watch the threads that work ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import ndd

COUNT, SIZE = 26, 4


def ahead_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.endswith("-ahead")]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def augmented(number: int, jpegs: ndd.Batch, _labels: ndd.Batch, rng: Any = None) -> ndd.Batch:
    x = ndd.decoders.image(jpegs)
    x = ndd.random_resized_crop(x, size=[16, 18], rng=rng)
    mirror = ndd.random.coin_flip(batch_size=SIZE)
    x = ndd.crop_mirror_normalize(x, mirror=mirror, dtype=ndd.float32)
    return x * 2.0 + x.slice[:, 0:1]
