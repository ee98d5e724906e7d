"""kornia: augmentation of a whole batch as float tensors, on torch's own threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import kornia.augmentation as K
import numpy as np
import torch

from . import MEAN, STD, Job


def ssl(job: Job) -> Iterator[Any]:
    torch.set_num_threads(job.threads)
    images, n = torch.from_numpy(np.load(job.images)), job.batch
    steps = [
        K.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1.0),
        *([K.RandomGaussianBlur((9, 9), (0.1, 2.0), p=1.0)] if job.blur else []),
        K.RandomHorizontalFlip(),
        K.Normalize(torch.tensor(MEAN) / 255, torch.tensor(STD) / 255),
    ]
    transform = K.AugmentationSequential(*steps)
    with torch.inference_mode():
        for part in cycle(images.split(n)[: len(images) // n]):
            yield transform(part.permute(0, 3, 1, 2).contiguous().float().div_(255))
