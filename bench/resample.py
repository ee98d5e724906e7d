"""Resize + normalise of decoded photos, rotate and warp_affine, on one thread.

Photos are ~400×500, as they come from a data set: all of different sizes, smooth with some noise.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from collections.abc import Callable
from typing import Any

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show

COUNT = 32
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
Runs = dict[str, Callable[[], object]]


def photos(count: int = COUNT) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    result = []
    for k in range(count):
        h, w = 350 + 3 * k, 540 - 2 * k
        y, x = np.mgrid[:h, :w] / 60.0
        waves = [np.sin(x * a + y * b) for a, b in ((1, 0.3), (0.2, 1), (0.7, -0.6))]
        noise = rng.normal(0, 8, (h, w, 3))
        result.append(np.clip(np.stack(waves, -1) * 90 + 128 + noise, 0, 255).astype(np.uint8))
    return result


def libraries(threads: int = 1) -> dict[str, tuple[Any, Any]]:
    """Our library and the oracle, each with a context of so many threads."""
    found = {"ndd": (ndd, ndd.EvalContext(num_threads=threads))}
    dali = optional("nvidia.dali.experimental.dynamic")
    if dali is not None:
        found["oracle"] = (dali, dali.EvalContext(num_threads=threads))
    return found


def both(
    images: list[np.ndarray],
    program: Callable[[Any, Any], Any],
    layout: str = "HWC",
    threads: int = 1,
) -> Runs:
    def run(lib: Any, context: Any) -> Callable[[], object]:
        batch = lib.batch(images, layout=layout)

        def once() -> object:
            with context:
                return program(lib, batch).evaluate()

        return once

    return {name: run(*library) for name, library in libraries(threads).items()}


def resize_normalise(rounds: int) -> list[Row]:
    images = photos()

    def program(lib: Any, batch: Any) -> Any:
        small = lib.resize(batch, size=[224, 224])
        return lib.crop_mirror_normalize(small, mean=MEAN, std=STD)

    runs = both(images, program)
    torch, cv2 = optional("torch"), optional("cv2")
    torchvision = optional("torchvision.transforms.v2.functional")
    if torch is not None and torchvision is not None:
        torch.set_num_threads(1)
        planes = [torch.from_numpy(i).permute(2, 0, 1).contiguous() for i in images]
        mean, std = [m / 255 for m in MEAN], [s / 255 for s in STD]

        def vision() -> object:
            done = []
            for p in planes:
                small = torchvision.resize(p, [224, 224], antialias=True)
                done.append(torchvision.normalize(small.float().div_(255), mean, std))
            return torch.stack(done)

        runs["torchvision AA"] = vision
    if cv2 is not None:
        cv2.setNumThreads(1)
        f = np.float32

        def opencv() -> object:
            out = np.empty((len(images), 3, 224, 224), f)
            for k, i in enumerate(images):
                small = cv2.resize(i, (224, 224), interpolation=cv2.INTER_AREA)
                out[k] = ((small - f(MEAN)) / f(STD)).transpose(2, 0, 1)
            return out

        runs["opencv area"] = opencv
    return finish(f"resize 224² AA + normalise, {COUNT} photos ~400×500, 1 thread", runs, rounds)


def warps(rounds: int) -> list[Row]:
    angle = 25.0
    images = [p[:256, :256] for p in photos(8)]
    images = [np.ascontiguousarray(np.tile(i, (2, 2, 1))) for i in images]
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    matrix = np.float32([[c, s, 256 - 256 * (c + s)], [-s, c, 256 + 256 * (s - c)]])
    cv2 = optional("cv2")

    def opencv() -> object:
        how = {"flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, "borderMode": cv2.BORDER_REPLICATE}
        return [cv2.warpAffine(i, matrix, (512, 512), **how) for i in images]

    programs = {
        "rotate 25°": lambda lib, x: lib.rotate(x, angle=angle, keep_size=True),
        "warp_affine 25°": lambda lib, x: lib.warp_affine(x, matrix=lib.tensor(matrix)),
    }
    rows: list[Row] = []
    for name, program in programs.items():
        runs = both(images, program)
        if cv2 is not None:
            cv2.setNumThreads(1)
            runs["opencv"] = opencv
        runs |= torch_warps(images, angle)
        rows += finish(f"{name} bilinear, 8 × 512×512×3 u8, 1 thread", runs, rounds)
    return rows


def torch_warps(images: list[np.ndarray], angle: float) -> Runs:
    """grid_sample and kornia, on batches of floats, the only type they take."""
    torch, kornia = optional("torch"), optional("kornia.geometry.transform")
    if torch is None:
        return {}
    torch.set_num_threads(1)
    batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    theta = torch.tensor([[c, s, 0], [-s, c, 0]], dtype=torch.float32).expand(len(images), 2, 3)

    def grid_sample() -> object:
        grid = torch.nn.functional.affine_grid(theta, batch.shape, align_corners=False)
        turned = torch.nn.functional.grid_sample(
            batch.float(), grid, padding_mode="border", align_corners=False
        )
        return turned.round_().byte()

    runs: Runs = {"torch grid_sample": grid_sample}
    if kornia is not None:
        angles = torch.full((len(images),), angle)
        runs["kornia"] = lambda: kornia.rotate(batch.float(), angles).round_().byte()
    return runs


def finish(workload: str, runs: Runs, rounds: int) -> list[Row]:
    rows = compare(workload, runs, rounds)
    show(rows, "oracle")
    return rows


def main(rounds: int = ROUNDS) -> list[Row]:
    return resize_normalise(rounds) + warps(rounds)
