"""torch's DataLoader with worker processes: torchvision v2 and Albumentations."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from . import ENDLESS, MEAN, SIZE, STD, Job

MEAN_1 = [m / 255 for m in MEAN]
STD_1 = [s / 255 for s in STD]


class Samples(Dataset):
    """An endless dataset: loads a source (a file or a decoded image), then transforms it."""

    def __init__(self, sources: Any, load: Callable[[Any], Any], transform: Any) -> None:
        self.sources, self.load, self.transform = sources, load, transform

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.load(self.sources[k % len(self.sources)])), k % 8


def _prepare(worker: int) -> None:
    """Limit every worker process to one thread."""
    torch.set_num_threads(1)
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(0)


def _load(job: Job, samples: Samples) -> Iterator[Any]:
    return iter(
        DataLoader(
            samples,
            batch_size=job.batch,
            num_workers=job.threads,
            persistent_workers=True,
            worker_init_fn=_prepare,
        )
    )


def evaluate(job: Job, library: str, area: bool = False) -> Iterator[Any]:
    return _load(job, Samples(job.files, *_LIBRARIES[library]("evaluate", area, False)))


def train(job: Job, library: str, area: bool = False) -> Iterator[Any]:
    return _load(job, Samples(job.files, *_LIBRARIES[library]("train", area, False)))


def ssl(job: Job, library: str) -> Iterator[Any]:
    _, transform = _LIBRARIES[library]("ssl", False, job.blur)
    images: Any = np.load(job.images)
    if library == "torchvision":
        images = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    for x, _ in _load(job, Samples(images, lambda image: image, transform)):
        yield x


def _torchvision(program: str, area: bool, blur: bool) -> tuple[Callable[[Any], Any], Any]:
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    first = {
        "evaluate": [v2.Resize((SIZE, SIZE), antialias=True)],
        "train": [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()],
        "ssl": [
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
            *([v2.GaussianBlur(9, (0.1, 2.0))] if blur else []),
            v2.RandomHorizontalFlip(),
        ],
    }[program]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN_1, STD_1)]

    def load(file: str) -> torch.Tensor:
        return decode_jpeg(read_file(file), mode=ImageReadMode.RGB)

    return load, v2.Compose([*first, *last])


def _albumentations(program: str, area: bool, blur: bool) -> tuple[Callable[[Any], Any], Any]:
    cv2 = importlib.import_module("cv2")
    A = importlib.import_module("albumentations")
    to_torch = importlib.import_module("albumentations.pytorch").ToTensorV2

    how = {"interpolation": cv2.INTER_AREA if area else cv2.INTER_LINEAR}
    first = {
        "evaluate": lambda: [A.Resize(SIZE, SIZE, **how)],
        "train": lambda: [A.RandomResizedCrop((SIZE, SIZE), **how), A.HorizontalFlip()],
        "ssl": lambda: [
            A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1),
            *([A.GaussianBlur((9, 9), (0.1, 2.0), p=1)] if blur else []),
            A.HorizontalFlip(),
        ],
    }[program]()
    transform = A.Compose([*first, A.Normalize(MEAN_1, STD_1, 255.0), to_torch()])

    def load(file: str) -> np.ndarray:
        return cv2.imread(file, cv2.IMREAD_COLOR_RGB)

    return load, lambda image: transform(image=image)["image"]


_LIBRARIES = {"torchvision": _torchvision, "albumentations": _albumentations}
