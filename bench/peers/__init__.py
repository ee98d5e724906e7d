"""The contestants: each loop is a generator of batches, and it runs in its own process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

MEAN = [123.675, 116.28, 103.53]
STD = [58.395, 57.12, 57.375]
SIZE = 224
# Readers get every file so often that no epoch ends during a measurement: we time a running loop,
# and do not charge loaders with workers for refilling their queues.
ENDLESS = 1 << 16  # a multiple of all batch sizes
DALI = "nvidia.dali.experimental.dynamic"


@dataclass(frozen=True)
class Job:
    """The work that all contestants of a workload get."""

    files: list[str]
    batch: int = 64
    threads: int = 2
    images: str = ""  # a .npy file of decoded images, for workloads that begin with those
    blur: bool = False  # the SSL program has a Gaussian blur

    @property
    def endless(self) -> list[str]:
        """The files, repeated up to `ENDLESS` names."""
        return (self.files * -(-ENDLESS // len(self.files)))[:ENDLESS]

    @property
    def chunks(self) -> Iterator[list[str]]:
        """Files of batch 0, 1, 2, …"""
        names = self.endless
        for first in range(0, ENDLESS, self.batch):
            yield names[first : first + self.batch]


@dataclass(frozen=True)
class Contestant:
    """A loop: a function of a module in this folder, called with a Job and `options`."""

    module: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)
    ahead: int = 6  # most batches that it makes in advance

    def as_json(self, job: Job) -> str:
        return json.dumps({**asdict(self), "job": asdict(job)})


def random_crop(draw: random.Random, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a window of random area and aspect ratio."""
    for _ in range(10):
        area = draw.uniform(0.08, 1) * height * width
        ratio = 2 ** draw.uniform(-0.415, 0.415)  # 3:4 … 4:3
        h, w = round((area / ratio) ** 0.5), round((area * ratio) ** 0.5)
        if 0 < h <= height and 0 < w <= width:
            return draw.randint(0, height - h), draw.randint(0, width - w), h, w
    return 0, 0, height, width


def _dynamic(name: str, **options: Any) -> Contestant:
    return Contestant("dynamic", name, options)


def _ours(name: str) -> dict[str, Contestant]:
    return {
        "ndd": _dynamic(name, library="ndd"),
        "ndd deferred": _dynamic(name, library="ndd", mode="deferred"),
        "ndd capture": _dynamic(name, library="ndd", capture=True),
    }


def _oracle(name: str) -> dict[str, Contestant]:
    return {
        "oracle dynamic": _dynamic(name, library=DALI),
        "oracle capture": _dynamic(name, library=DALI, capture=True),
        "oracle pipeline": Contestant("dali_pipeline", name),
    }


def _others(name: str) -> dict[str, Contestant]:
    return {
        "torchvision + DataLoader": Contestant("workers", name, {"library": "torchvision"}),
        "Albumentations + DataLoader": Contestant("workers", name, {"library": "albumentations"}),
        "Albumentations area + DataLoader": Contestant(
            "workers", name, {"library": "albumentations", "area": True}
        ),
        "OpenCV + threads": Contestant("threaded", name, {"library": "cv2"}),
        "OpenCV area + threads": Contestant("threaded", name, {"library": "cv2", "area": True}),
        "kornia-rs + threads": Contestant("threaded", name, {"library": "kornia_rs"}),
        "SPDL": Contestant("spdl_pipeline", name, ahead=16),
    }


def _decoders() -> dict[str, Contestant]:
    names = {
        "simplejpeg": "simplejpeg",
        "OpenCV": "cv2",
        "torchvision": "torchvision",
        "kornia-rs": "kornia_rs",
        "Pillow": "PIL",
    }
    return {n: Contestant("threaded", "decode", {"library": m}) for n, m in names.items()}


DECODE = {
    "ndd": _dynamic("decode", library="ndd"),
    "ndd isolated": _dynamic("decode", library="ndd", isolate=True),
    "oracle dynamic": _dynamic("decode", library=DALI),
    "oracle pipeline": Contestant("dali_pipeline", "decode"),
    **_decoders(),
    "SPDL": Contestant("spdl_pipeline", "decode", ahead=16),
}
# Measured in the same rounds as the loops whose speed they bound.
REFERENCES = {f"decode only: {n}": _decoders()[n] for n in ("simplejpeg", "OpenCV")}
EVAL = {
    **_ours("evaluate"),
    "ndd isolated": _dynamic("evaluate", library="ndd", isolate=True),
    **_oracle("evaluate"),
    **_others("evaluate"),
    **REFERENCES,
}
TRAIN = {
    **_ours("train"),
    **_oracle("train"),
    "oracle dynamic, fused decode": _dynamic("train_fused", library=DALI),
    "oracle capture, fused decode": _dynamic("train_fused", library=DALI, capture=True),
    "oracle pipeline, fused decode": Contestant("dali_pipeline", "train_fused"),
    **_others("train"),
}
SSL = {
    "ndd": _dynamic("ssl", library="ndd"),
    "oracle dynamic": _dynamic("ssl", library=DALI),
    "oracle pipeline": Contestant("dali_pipeline", "ssl"),
    "torchvision + DataLoader": Contestant("workers", "ssl", {"library": "torchvision"}),
    "Albumentations + DataLoader": Contestant("workers", "ssl", {"library": "albumentations"}),
    "OpenCV + threads": Contestant("threaded", "ssl", {"library": "cv2"}),
    "kornia": Contestant("kornia_batch", "ssl"),
}
