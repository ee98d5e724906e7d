"""RandAugment and TrivialAugment of decoded photos, beside torchvision's and the oracle's pipeline.

The oracle has them in its pipelines only. All run on one thread, with 16 photos of about 375×500.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from collections.abc import Callable
from typing import Any

import numpy as np

import ndd
from ndd.ops.augment import policies

from .harness import ROUNDS, Row, compare, optional, show
from .resample import Runs
from .transforms import COUNT, photos

PROGRAMS: dict[
    str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]
] = {
    "rand_augment n=2 m=9": (
        lambda x: ndd.auto_augment.rand_augment(x, 2, 9),
        lambda v: v.RandAugment(2, 9),
        lambda auto, x: auto.rand_augment.rand_augment(x, n=2, m=9),
    ),
    "trivial_augment": (
        lambda x: ndd.auto_augment.trivial_augment(x),
        lambda v: v.TrivialAugmentWide(),
        lambda auto, x: auto.trivial_augment.trivial_augment_wide(x),
    ),
    "auto_augment image_net": (
        lambda x: ndd.auto_augment.auto_augment(x, "reduced_image_net"),
        lambda v: v.AutoAugment(),
        lambda auto, x: auto.auto_augment.apply_auto_augment(
            auto.auto_augment.get_reduced_image_net_policy(), x
        ),
    ),
}


def ours(program: Callable[[Any], Any], images: list[np.ndarray]) -> Callable[[], object]:
    batch = ndd.batch(images, layout="HWC")
    context = ndd.EvalContext(num_threads=1)

    def once() -> object:
        with context:
            return program(batch).evaluate()

    return once


def pipeline(program: Callable[[Any, Any], Any], images: list[np.ndarray]) -> Runs:
    """The oracle's pipeline, which gets the photos from host memory."""
    if optional("nvidia.dali.auto_aug.rand_augment") is None:
        return {}
    import nvidia.dali.auto_aug as auto
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.auto_aug import auto_augment, trivial_augment  # noqa: F401

    @pipeline_def(batch_size=len(images), num_threads=1, device_id=None, enable_conditionals=True)
    def made() -> Any:
        x = fn.external_source([images], cycle=True, layout="HWC")
        return program(auto, x)

    running = made()
    running.build()
    return {"oracle pipeline": lambda: running.run()}


def torchvision(make: Callable[[Any], Any], images: list[np.ndarray]) -> Runs:
    torch, vision = optional("torch"), optional("torchvision.transforms.v2")
    if torch is None or vision is None:
        return {}
    torch.set_num_threads(1)
    planes = [torch.from_numpy(i).permute(2, 0, 1).contiguous() for i in images]
    transform = make(vision)
    return {"torchvision": lambda: [transform(p) for p in planes]}


def mixed(images: list[np.ndarray], rounds: int) -> list[Row]:
    """A batch in which every photo gets another augmentation, beside the mean of batches in which
    all photos get the same one."""
    rng = ndd.random.RNG(seed=1)

    def alone(name: str) -> Callable[[], object]:
        others = [n for n in policies.RAND if n != name]
        return ours(
            lambda x: ndd.auto_augment.rand_augment(x, 1, 9, rng=rng, excluded=others), images
        )

    singles = [alone(name) for name in policies.RAND]
    runs: Runs = {
        "ndd": ours(lambda x: ndd.auto_augment.rand_augment(x, 1, 9, rng=rng), images),
        "ndd, all alike": lambda: [run() for run in singles],
    }
    rows = compare("augmentations, every photo another one, 1 thread", runs, rounds, divide=COUNT)
    for row in rows:
        if row.name == "ndd, all alike":  # 14 batches
            row.value /= len(singles)
            row.samples = [s / len(singles) for s in row.samples]
    show(rows, "ndd, all alike")
    return rows


def main(rounds: int = ROUNDS) -> list[Row]:
    images = photos()
    rows = mixed(images, rounds)
    for name, (own, vision, oracle) in PROGRAMS.items():
        runs = {"ndd": ours(own, images)} | pipeline(oracle, images) | torchvision(vision, images)
        found = compare(f"{name}, photos ~375×500, 1 thread", runs, rounds, divide=COUNT)
        show(found, "ndd")
        rows += found
    return rows
