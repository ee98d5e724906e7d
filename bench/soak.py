"""Runs the ResNet-50 train loop for minutes and measures whether its memory grows."""

from __future__ import annotations

import time

import numpy as np
import psutil

from . import peers, photos
from .contest import Process
from .harness import Row
from .peers import Job

WARM_SHARE = 0.2  # of the time, while pools and caches fill


def main(minutes: float, name: str = "ndd") -> list[Row]:
    """Slope of the resident memory in MB per minute, by least squares."""
    times, sizes = [], []
    with Process(peers.TRAIN[name], Job(photos.photos())) as process:
        process.wait()
        begin = time.perf_counter()
        while time.perf_counter() - begin < minutes * 60:
            process.ask(lead=0, batches=8)
            times.append((time.perf_counter() - begin) / 60)
            sizes.append(psutil.Process(process.pid).memory_info().rss / 2**20)
    first = int(len(times) * WARM_SHARE)
    slope = float(np.polyfit(times[first:], sizes[first:], 1)[0])
    print(
        f"{name}: {len(times) * 8 * 64} images in {minutes:g} minutes, RSS {sizes[first]:.1f} MB "
        f"after warming up, {sizes[-1]:.1f} MB at the end, slope {slope:+.3f} MB/min"
    )
    return [Row(f"soak, ResNet-50 train, {minutes:g} minutes", name, slope, "MB/min")]
