"""`python -m bench.ray`: images/s of a Ray Data pipeline with ndd, torchvision, Albumentations.

JPEG files in Arrow tables → decode → random resized crop to 224² → mirror → uint8 tensors, by two
workers with a CPU each. Beside it: the same ndd code in a plain loop on two threads, without Ray.

The rate of a run counts from its third block to its last one, so that neither the start of Ray's
actors nor imports are in it. CPU time is that of all processes, so it tells the overhead of Ray
also on a machine that has other things to do. The order of the contestants changes every round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Set before anything loads OpenMP: idle threads must not spin while others work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import numpy as np

from . import photos
from .harness import rotated

ROWS, SIZE, CPUS = 64, 224, 2
# Rows of a block, Ray's unit of work: one of 64 rows makes its fixed cost (tens of ms) dominate.
BLOCK = 256
Columns = dict[str, Any]


# -- the contestants: what a worker does with a batch of rows -------------------------------------


def ndd_views(columns: Columns) -> Columns:
    """Ours: one plan for the whole batch."""
    import ndd

    x = ndd.decoders.image(columns["data"])
    x = ndd.random_resized_crop(x, size=[SIZE, SIZE])
    flips = ndd.random.coin_flip(batch_size=x.batch_size)
    return {"image": ndd.flip(x, horizontal=flips)}


class Torchvision:
    """torchvision's transforms, image by image."""

    def __init__(self) -> None:
        import torch
        from torchvision.transforms import v2

        torch.set_num_threads(1)
        self.views = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()])

    def __call__(self, columns: Columns) -> Columns:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        images = []
        for data in columns["data"]:
            encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            view = self.views(decode_jpeg(encoded, mode=ImageReadMode.RGB))
            images.append(view.permute(1, 2, 0).numpy())
        return {"image": np.stack(images)}


class Albumentations:
    """Albumentations after OpenCV's decoder, image by image."""

    def __init__(self) -> None:
        import albumentations
        import cv2

        cv2.setNumThreads(1)
        crop = albumentations.RandomResizedCrop(size=(SIZE, SIZE))
        self.views = albumentations.Compose([crop, albumentations.HorizontalFlip(p=0.5)])

    def __call__(self, columns: Columns) -> Columns:
        import cv2

        images = []
        for data in columns["data"]:
            image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
            images.append(self.views(image=image)["image"])
        return {"image": np.stack(images)}


# -- runs -----------------------------------------------------------------------------------------


def tables() -> list[Any]:
    """The photos, in Arrow tables."""
    import pyarrow as pa

    data = [Path(path).read_bytes() for path in photos.photos()]
    return [pa.table({"data": data[k : k + BLOCK]}) for k in range(0, len(data), BLOCK)]


def plain(sources: list[Any], count: int) -> Speed:
    """A loop without Ray, which queues a batch before it takes the one before: no thread waits."""
    import ndd
    from ndd.integrations.table_columns import batches_of, to_numpy

    ndd.set_num_threads(CPUS)

    def batches() -> Iterator[Any]:
        queued = None
        for k in range(count):
            for first in range(0, BLOCK, ROWS):
                rows = sources[k % len(sources)].slice(first, ROWS)
                images, queued = queued, ndd_views(batches_of(rows))["image"]
                if images is not None:
                    yield to_numpy(images)
        yield to_numpy(queued)

    return rate(batches())


def with_ray(worker: Any, format: str, sources: list[Any], count: int) -> Speed:
    """A Ray Data pipeline."""
    import ray

    references = [ray.put(table) for table in sources]
    rows = ray.data.from_arrow_refs([references[k % len(references)] for k in range(count)])
    made = rows.map_batches(
        worker, batch_size=ROWS, batch_format=format, num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=CPUS),
    )  # fmt: skip
    return rate(batch["image"] for batch in made.iter_batches(batch_size=None))


class Speed(NamedTuple):
    """What a run achieved."""

    images_per_second: float
    cpu_ms: float  # per image, of this process and all that it started: Ray's own, too

    def __str__(self) -> str:
        return f"{self.images_per_second:6.0f} images/s, {self.cpu_ms:5.2f} ms of CPU per image"


def rate(batches: Iterator[np.ndarray]) -> Speed:
    """The speed from the third batch (or block of results) on: by then both workers are at work."""
    begin, images = 0.0, 0
    before: dict[Any, float] = {}
    for k, batch in enumerate(batches):
        assert batch.shape[1:] == (SIZE, SIZE, 3) and batch.dtype == np.uint8
        if k == 2:
            begin, before = time.perf_counter(), cpu_seconds()
        elif k > 2:
            images += len(batch)
    seconds = time.perf_counter() - begin
    # Workers of an earlier run that end meanwhile count neither before nor after.
    used = sum(now - before.get(process, 0.0) for process, now in cpu_seconds().items())
    return Speed(images / seconds, 1e3 * used / images)


def cpu_seconds() -> dict[Any, float]:
    """CPU time of this process and of all processes below it."""
    import psutil

    own = psutil.Process()
    found = {}
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=24, help="of 256 images, in each run")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--without-peers", action="store_true", help="only the overhead of Ray")
    chosen = parser.parse_args()
    import ray

    import ndd.integrations.ray as ndd_ray

    sources = tables()
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="error",
             object_store_memory=1 << 30)  # fmt: skip
    runs: dict[str, Callable[[], Speed]] = {
        "ndd, no Ray, 2 threads": lambda: plain(sources, chosen.blocks),
        "ndd": lambda: with_ray(ndd_ray.Augment(ndd_views), "pyarrow", sources, chosen.blocks),
        "torchvision": lambda: with_ray(Torchvision, "numpy", sources, chosen.blocks),
        "Albumentations": lambda: with_ray(Albumentations, "numpy", sources, chosen.blocks),
    }
    if chosen.without_peers:
        runs = {name: run for name, run in runs.items() if name.startswith("ndd")}
    found: dict[str, list[Speed]] = {name: [] for name in runs}
    for r in range(chosen.rounds):
        for name in rotated(list(runs), r):
            try:
                found[name].append(runs[name]())
            except ImportError as error:
                print(f"{name}: left out, {error}")
            else:
                print(f"{name}: {found[name][-1]}", flush=True)
    for name, rates in found.items():
        if rates:
            middle = Speed(*(statistics.median(column) for column in zip(*rates, strict=True)))
            print(f"{name:24s} {middle}  ({len(rates)} rounds)")
    ray.shutdown()


if __name__ == "__main__":
    main()
