"""SPDL: its pipeline of threads, decoding and scaling by FFmpeg."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import spdl.io
import torch
from spdl.pipeline import PipelineBuilder

from . import MEAN, SIZE, STD, Job, random_crop

SCALE = f"scale={SIZE}:{SIZE}:flags=bilinear,format=rgb24"  # bilinear with antialiasing


def _run(job: Job, source: Any, stage: Callable[[Any], Any]) -> Iterator[Any]:
    spdl.io.load_image(job.files[0])  # fail here, because the pipeline would only skip the file
    builder = PipelineBuilder().add_source(source)
    builder = builder.pipe(stage, concurrency=job.threads, output_order="input").add_sink(2)
    pipeline = builder.build(num_threads=job.threads)
    with pipeline.auto_stop():
        yield from pipeline


def _normalised(frames: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    x = spdl.io.to_torch(spdl.io.convert_frames(frames)).permute(0, 3, 1, 2)
    x = x.to(torch.float32, memory_format=torch.contiguous_format)
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in (MEAN, STD))
    return x.sub_(mean).div_(std), torch.arange(len(frames)) % 8


def decode(job: Job) -> Iterator[Any]:
    encoded = cycle([Path(f).read_bytes() for f in job.files])

    def stage(chunk: list[bytes]) -> list[Any]:
        kept = None
        for data in chunk:
            kept = spdl.io.to_numpy(spdl.io.load_image(data))
        return [kept]

    return _run(job, ([next(encoded) for _ in range(job.batch)] for _ in cycle([0])), stage)


def evaluate(job: Job) -> Iterator[Any]:
    torch.set_num_threads(1)  # in each of the pipeline's threads

    def stage(files: list[str]) -> Any:
        packets = [spdl.io.demux_image(f) for f in files]
        return _normalised([spdl.io.decode_packets(p, filter_desc=SCALE) for p in packets])

    return _run(job, job.chunks, stage)


def train(job: Job) -> Iterator[Any]:
    torch.set_num_threads(1)
    draw = random.Random(0)

    def one(file: str) -> Any:
        packets = spdl.io.demux_image(file)
        y, x, h, w = random_crop(draw, packets.codec.height, packets.codec.width)
        flip = "hflip," if draw.random() < 0.5 else ""
        # exact=1: do not round to whole chroma samples
        filters = f"crop={w}:{h}:{x}:{y}:exact=1,{flip}{SCALE}"
        return spdl.io.decode_packets(packets, filter_desc=filters)

    return _run(job, job.chunks, lambda files: _normalised([one(f) for f in files]))
