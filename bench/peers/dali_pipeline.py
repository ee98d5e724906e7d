"""The oracle's pipeline mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def

from . import MEAN, SIZE, STD, Job


def _run(job: Job, graph: Callable[[], Any]) -> Iterator[Any]:
    built = pipeline_def(batch_size=job.batch, num_threads=job.threads, device_id=None)(graph)()
    built.build()
    while True:
        yield built.run()


def _files(job: Job) -> Any:
    names = job.endless
    return fn.readers.file(files=names, labels=[k % 8 for k in range(len(names))])


def _to_torch(outputs: Iterator[Any]) -> Iterator[Any]:
    for images, labels in outputs:
        # no copy is needed: measured, the pipeline does not reuse buffers that are still held
        yield torch.from_dlpack(images.as_tensor()), torch.from_dlpack(labels.as_tensor())


def decode(job: Job) -> Iterator[Any]:
    """Decode from files, because a pipeline must begin with a reader or a source."""
    for (images,) in _run(job, lambda: fn.decoders.image(_files(job)[0])):
        yield images


def evaluate(job: Job) -> Iterator[Any]:
    def graph() -> Any:
        jpegs, labels = _files(job)
        x = fn.resize(fn.decoders.image(jpegs), size=[SIZE, SIZE])
        return fn.crop_mirror_normalize(x, mean=MEAN, std=STD), labels

    return _to_torch(_run(job, graph))


def train(job: Job) -> Iterator[Any]:
    def graph() -> Any:
        jpegs, labels = _files(job)
        x = fn.random_resized_crop(fn.decoders.image(jpegs), size=[SIZE, SIZE])
        mirror = fn.random.coin_flip()
        return fn.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD), labels

    return _to_torch(_run(job, graph))


def train_fused(job: Job) -> Iterator[Any]:
    """Like `train`, but the decoder does the crop."""

    def graph() -> Any:
        jpegs, labels = _files(job)
        x = fn.decoders.image_random_crop(
            jpegs, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        x = fn.resize(x, size=[SIZE, SIZE])
        mirror = fn.random.coin_flip()
        return fn.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD), labels

    return _to_torch(_run(job, graph))


def ssl(job: Job) -> Iterator[Any]:
    images = np.load(job.images)
    n = job.batch
    source = cycle([images[k : k + n] for k in range(0, len(images) - n + 1, n)])

    def graph() -> Any:
        x = fn.external_source(source=lambda: next(source), layout="HWC", no_copy=True)
        x = fn.color_twist(
            x,
            brightness=fn.random.uniform(range=(0.6, 1.4)),
            contrast=fn.random.uniform(range=(0.6, 1.4)),
            saturation=fn.random.uniform(range=(0.6, 1.4)),
            hue=fn.random.uniform(range=(-36.0, 36.0)),
        )
        if job.blur:
            x = fn.gaussian_blur(x, sigma=fn.random.uniform(range=(0.1, 2.0)), window_size=9)
        mirror = fn.random.coin_flip()
        return fn.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD)

    for (x,) in _run(job, graph):
        yield torch.from_dlpack(x.as_tensor())
