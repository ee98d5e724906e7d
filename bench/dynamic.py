"""Measures programs that change: every iteration applies two of twelve ops, in random order.

People write RandAugment this way. Each order of two ops is another program, and fusing it needs
another kernel. A process runs 120 iterations: with an empty cache of kernels, a second time with
the same cache, and with a cache that has all kernels; by default, without tiers (`NDD_TIERS=0`:
every program waits for its fused kernels) and op by op (`NDD_FUSION=0`).

Also: the time to the first batch of the demo's program, with an empty cache, after `python -m ndd
warm`, and with a warm cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .harness import Row, rotated, show

ITERATIONS, BATCH, HEIGHT, WIDTH = 120, 16, 375, 500
SLOW_SECONDS = 0.15  # an iteration that compiled something
WAYS: dict[str, dict[str, str]] = {
    "ndd": {},
    "ndd, NDD_TIERS=0": {"NDD_TIERS": "0"},
    "ndd, NDD_FUSION=0": {"NDD_FUSION": "0"},
}


def main(rounds: int = 3) -> list[Row]:
    rounds = min(rounds, 3)  # a run that compiles every program takes most of a minute
    rows = [*changing(rounds), *first_batches(rounds)]
    show(rows, "ndd, NDD_FUSION=0", 1, "s")
    return rows


def changing(rounds: int) -> list[Row]:
    """The program that changes, with an empty cache, once more, and with everything compiled."""
    samples: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        for more in WAYS.values():
            _child("program", more, warm)
        for r in range(rounds):
            for name in rotated(list(WAYS), r):
                own = Path(folder) / f"{list(WAYS).index(name)}-{r}"
                for cache, place in (("empty", own), ("second run's", own), ("warm", warm)):
                    found = _child("program", WAYS[name], place)
                    samples.setdefault((cache, name), []).append(found)
    rows = []
    for (cache, name), runs in samples.items():
        workload = f"2 of 12 ops in random order, {ITERATIONS} iterations, {cache} cache"
        rows.append(Row.of(workload, name, [r["seconds"] for r in runs]))
        rows.append(Row.of(f"{workload}, CPU time", name, [r["cpu"] for r in runs]))
        rows.append(Row.of(f"{workload}, slow ones", name, [r["slow"] for r in runs], "count"))
    return rows


def first_batches(rounds: int) -> list[Row]:
    """The demo's first batch, from the call to the result, in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        prepared, warm = Path(folder) / "prepared", Path(folder) / "warm"
        command = [sys.executable, "-m", "ndd", "warm"]
        subprocess.run(
            command, env=os.environ | {"NDD_CACHE_DIR": str(prepared)}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        _child("demo", {}, warm)
        samples: dict[str, list[float]] = {"empty cache": [], "after warm": [], "warm cache": []}
        for r in range(rounds):
            again = Path(folder) / f"prepared-{r}"
            subprocess.run(["cp", "-r", str(prepared), str(again)], check=True)
            places = (Path(folder) / f"empty-{r}", again, warm)
            for name, place in zip(samples, places, strict=True):
                samples[name].append(_child("demo", {}, place)["seconds"])
    return [Row.of("first batch of the demo", f"ndd, {n}", s) for n, s in samples.items()]


def _child(what: str, more: dict[str, str], cache: Path) -> dict[str, float]:
    """What a new process measured."""
    command = [sys.executable, "-m", "bench.dynamic", what]
    environment = os.environ | {"NDD_CACHE_DIR": str(cache)} | more
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


# -- in the new process ----------------------------------------------------------------------------


def program() -> dict[str, float]:
    """Run the program that changes; its seconds, and how many iterations were slow."""
    import numpy as np

    import ndd

    rng = np.random.default_rng(0)
    shape = (HEIGHT, WIDTH, 3)
    photos = ndd.batch([rng.integers(0, 256, shape, np.uint8) for _ in range(BATCH)], layout="HWC")
    ops = _ops(ndd)
    times, begun = [], time.process_time()
    for _ in range(ITERATIONS):
        chosen = rng.choice(len(ops), 2, replace=False)
        start = time.perf_counter()
        x: Any = photos
        for k in chosen:
            x = ops[k](x)
        x = ndd.crop_mirror_normalize(x, crop=[224, 224], mean=[124, 116, 104], std=[58, 57, 57])
        x.evaluate()
        times.append(time.perf_counter() - start)
    slow = sum(t > SLOW_SECONDS for t in times)
    return {"seconds": sum(times), "slow": slow, "cpu": time.process_time() - begun}


def _ops(ndd: Any) -> list[Any]:
    return [
        lambda x: ndd.brightness(x, brightness=1.2),
        lambda x: ndd.contrast(x, contrast=1.3),
        lambda x: ndd.saturation(x, saturation=0.7),
        lambda x: ndd.hue(x, hue=20.0),
        lambda x: ndd.color_twist(x, hue=-10.0, saturation=1.2),
        lambda x: 255 - x,
        lambda x: x & 0xF0,
        lambda x: ndd.flip(x),
        lambda x: ndd.rotate(x, angle=10.0, keep_size=True),
        lambda x: ndd.warp_affine(x, matrix=[1.0, 0.1, 0.0, 0.0, 1.0, 0.0]),
        lambda x: ndd.gaussian_blur(x, sigma=1.0),
        lambda x: ndd.erase(x, anchor=[100.0, 100.0], shape=[60.0, 60.0], axis_names="HW"),
    ]


def demo() -> dict[str, float]:
    """The seconds of the demo's first batch, from the reader to the result."""
    import ndd
    from ndd.tools.demo import BATCH_SIZE, augment

    from . import photos

    files = photos.photos()[:BATCH_SIZE]
    start = time.perf_counter()
    jpegs, _ = ndd.readers.File(files=files, labels=[0] * len(files))(batch_size=BATCH_SIZE)
    augment(jpegs)[0].evaluate()
    return {"seconds": time.perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps({"program": program, "demo": demo}[sys.argv[1]]()))
