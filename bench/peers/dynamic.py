"""Our library and the oracle's dynamic mode: the same programs with another import."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle
from typing import Any

import numpy as np

from . import MEAN, SIZE, STD, Job


def _begin(library: str, job: Job) -> Any:
    lib = importlib.import_module(library)
    lib.set_num_threads(job.threads)
    return lib


def _epoch(lib: Any, job: Job, mode: str, capture: bool) -> Iterator[Any]:
    names = job.endless
    reader = lib.readers.File(files=names, labels=[k % 8 for k in range(len(names))])
    with getattr(lib.EvalMode, mode) if mode else nullcontext():
        while True:
            yield from reader.next_epoch(batch_size=job.batch, capture=capture)


def _options(isolate: bool) -> dict[str, bool]:
    """Arguments of our decoder that the oracle's does not have."""
    return {"isolate": True} if isolate else {}


def decode(job: Job, library: str, isolate: bool = False) -> Iterator[Any]:
    lib, options = _begin(library, job), _options(isolate)
    encoded = [[np.fromfile(f, np.uint8) for f in chunk] for chunk in _first(job)]
    for batch in cycle([lib.batch(e) for e in encoded]):
        yield lib.decoders.image(batch, **options).evaluate()


def evaluate(
    job: Job, library: str, mode: str = "", capture: bool = False, isolate: bool = False
) -> Iterator[Any]:
    lib, options = _begin(library, job), _options(isolate)
    for jpegs, labels in _epoch(lib, job, mode, capture):
        x = lib.decoders.image(jpegs, **options)
        x = lib.resize(x, size=[SIZE, SIZE])
        x = lib.crop_mirror_normalize(x, mean=MEAN, std=STD)
        yield x.torch(), labels.torch()


def train(job: Job, library: str, mode: str = "", capture: bool = False) -> Iterator[Any]:
    lib = _begin(library, job)
    for jpegs, labels in _epoch(lib, job, mode, capture):
        x = lib.decoders.image(jpegs)
        x = lib.random_resized_crop(x, size=[SIZE, SIZE])
        mirror = lib.random.coin_flip(batch_size=job.batch)
        x = lib.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD)
        yield x.torch(), labels.torch()


def train_fused(job: Job, library: str, mode: str = "", capture: bool = False) -> Iterator[Any]:
    """Like `train`, but the decoder does the crop."""
    lib = _begin(library, job)
    for jpegs, labels in _epoch(lib, job, mode, capture):
        x = lib.decoders.image_random_crop(
            jpegs, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        x = lib.resize(x, size=[SIZE, SIZE])
        mirror = lib.random.coin_flip(batch_size=job.batch)
        x = lib.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD)
        yield x.torch(), labels.torch()


def ssl(job: Job, library: str) -> Iterator[Any]:
    lib = _begin(library, job)
    images = np.load(job.images)
    n = job.batch
    parts = [images[k : k + n] for k in range(0, len(images) - n + 1, n)]
    for batch in cycle([lib.batch(list(p), layout="HWC") for p in parts]):
        x = lib.color_twist(
            batch,
            brightness=lib.random.uniform(batch_size=n, range=(0.6, 1.4)),
            contrast=lib.random.uniform(batch_size=n, range=(0.6, 1.4)),
            saturation=lib.random.uniform(batch_size=n, range=(0.6, 1.4)),
            hue=lib.random.uniform(batch_size=n, range=(-36.0, 36.0)),
        )
        if job.blur:
            sigma = lib.random.uniform(batch_size=n, range=(0.1, 2.0))
            x = lib.gaussian_blur(x, sigma=sigma, window_size=9)
        mirror = lib.random.coin_flip(batch_size=n)
        yield lib.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD).torch()


def _first(job: Job) -> list[list[str]]:
    """Batches that hold each file at most once; an incomplete last batch is left out."""
    count = max(1, len(job.files) // job.batch)
    return [chunk for chunk, _ in zip(job.chunks, range(count))]
