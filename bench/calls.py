"""Measures what each op call of the ResNet-50 train loop costs its caller, as a share of the batch.

It counts CPU time of the calling thread: in eager mode the executor starts while calls are still
being made, and a call may wait for the GIL while the executor prepares a kernel. Such a wait delays
nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import ndd

from . import photos
from .harness import Row, show
from .peers import MEAN, SIZE, STD

BATCH, LEAD, BATCHES = 64, 8, 40


def main(batches: int = BATCHES) -> list[Row]:
    files = (photos.photos() * 8)[: BATCH * (LEAD + batches)]
    reader = ndd.readers.File(files=files, labels=[0] * len(files))
    spent: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., Any], *data: Any, **options: Any) -> Any:
        start = time.thread_time()
        result = call(*data, **options)
        spent.setdefault(name, []).append(time.thread_time() - start)
        return result

    ends: list[float] = []
    # no prefetching: another thread would make the calls, and this thread would not pay for them
    epoch = reader.next_epoch(batch_size=BATCH, prefetch=0)
    for _ in range(LEAD + batches):
        jpegs, labels = next(epoch)
        x = timed("decoders.image", ndd.decoders.image, jpegs)
        x = timed("random_resized_crop", ndd.random_resized_crop, x, size=[SIZE, SIZE])
        mirror = timed("random.coin_flip", ndd.random.coin_flip, batch_size=BATCH)
        x = timed("crop_mirror_normalize", ndd.crop_mirror_normalize, x, mirror=mirror,
                  mean=MEAN, std=STD)  # fmt: skip
        x.torch(), labels.torch()
        ends.append(time.perf_counter())
    periods = [b - a for a, b in zip(ends[LEAD - 1 :], ends[LEAD:])]
    rows = [
        Row.of(
            f"op calls, share of a batch of {BATCH}", name,
            [100 * s / median(periods) for s in seconds[LEAD:]], "%",
        )
        for name, seconds in spent.items()
    ]  # fmt: skip
    show(rows, "", 1, "%")
    return rows
