"""The price of isolated decoding: photos decoded here and in decoder processes, in turns.

CPU time counts this process and its decoder processes together, because that is what a machine
pays; it also depends less on what else runs than wall time does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ndd
from ndd.codecs.image.isolated import decoder_process

from .harness import ROUNDS, Row, ratio, rotated
from .photos import photos

BATCH, BATCHES = 64, 4


def programs(size: int) -> dict[str, Callable[[bool], None]]:
    """Decode only, and decode, resize and normalise; the argument says whether to isolate."""
    files = [np.fromfile(f, np.uint8) for f in photos()[: BATCH * BATCHES]]
    batches = [ndd.batch(files[k : k + size]) for k in range(0, len(files), size)]

    def decode(isolate: bool) -> None:
        for batch in batches:
            ndd.decoders.image(batch, isolate=isolate).evaluate()

    def evaluate(isolate: bool) -> None:
        for batch in batches:
            x = ndd.decoders.image(batch, isolate=isolate)
            x = ndd.resize(x, resize_shorter=256)
            ndd.crop_mirror_normalize(x, crop=[224, 224], mean=[124.0], std=[58.0]).evaluate()

    return {"decode": decode, "decode + resize + normalise": evaluate}


def cpu_seconds() -> float:
    """Processor time of this process and of its decoder processes, all threads of each."""
    total = time.process_time()
    for pid in list(decoder_process._running):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def timed(run: Callable[[bool], None], isolate: bool) -> tuple[float, float]:
    gc.collect()
    cpu, wall = cpu_seconds(), time.perf_counter()
    run(isolate)
    return cpu_seconds() - cpu, time.perf_counter() - wall


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for threads in (1, 2):
        with ndd.EvalContext(num_threads=threads), ndd.EvalMode.deferred:
            for name, run in programs(BATCH).items():
                rows += _contest(f"isolated: {name}, {threads} thread(s)", run, rounds)
    return rows


def _contest(workload: str, run: Callable[[bool], None], rounds: int) -> list[Row]:
    samples: dict[str, list[tuple[float, float]]] = {"here": [], "isolated": []}
    for isolate in (False, True):
        run(isolate)  # compiles kernels and starts processes
    for r in range(2 * rounds):
        for name in rotated([*samples], r):
            samples[name].append(timed(run, name == "isolated"))
    photos_each = BATCH * BATCHES
    rows: list[Row] = []
    for k, what in enumerate(("CPU", "wall")):
        part = [
            Row.of(f"{workload}, {what}", name, [s[k] / photos_each for s in found])
            for name, found in samples.items()
        ]
        print(f"{workload}, {what}: {part[0].value * 1e3:.3f} ms here, {part[1].value * 1e3:.3f} "
              f"isolated, {ratio(part[1], part[0]) ** -1:.3f} times")  # fmt: skip
        rows += part
    return rows
