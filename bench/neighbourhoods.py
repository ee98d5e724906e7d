"""Blurs and filters of decoded images on one thread, and a blur between a resize and a normalise.

OpenCV writes into arrays that exist already, so that its time does not depend on the allocator.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import ROUNDS, Row, optional
from .resample import MEAN, STD, Runs, both, finish, photos

COUNT = 32
SIZES = ((400, 500), (224, 224))
SIGMAS = (1.0, 3.0)
WINDOWS = (3, 7)
Program = Callable[[Any, Any], Any]


def pictures(height: int, width: int, count: int = COUNT) -> list[np.ndarray]:
    """Parts of photos, all of one size."""
    big = photos(1)[0]
    tiled = np.tile(big, (-(-height // big.shape[0]) + 1, -(-width // big.shape[1]) + 1, 1))
    return [np.ascontiguousarray(tiled[k : k + height, k : k + width]) for k in range(count)]


def blurs(rounds: int) -> list[Row]:
    rows: list[Row] = []
    for sigma in SIGMAS:
        size = 2 * int(np.ceil(3 * sigma)) + 1

        def program(lib: Any, x: Any, sigma: float = sigma) -> Any:
            return lib.gaussian_blur(x, sigma=sigma)

        def opencv(cv2: Any, x: Any, out: Any, size: int = size, sigma: float = sigma) -> None:
            cv2.GaussianBlur(x, (size, size), sigma, dst=out)

        rows += _everywhere(f"gaussian_blur σ={sigma:g}", program, opencv, rounds)
    return rows


def filters(rounds: int) -> list[Row]:
    rng = np.random.default_rng(5)
    rows: list[Row] = []
    for n in WINDOWS:
        window = rng.random((n, n)).astype(np.float32)
        window /= window.sum()

        def program(lib: Any, x: Any, window: Any = window) -> Any:
            return lib.filter(x, lib.as_tensor(window))

        def opencv(cv2: Any, x: Any, out: Any, window: Any = window) -> None:
            cv2.filter2D(x, -1, window, dst=out)

        rows += _everywhere(f"filter {n}×{n}", program, opencv, rounds)
    return rows


def _everywhere(
    name: str, program: Program, opencv: Callable[[Any, Any, Any], None], rounds: int
) -> list[Row]:
    """The rows of one op for images of all sizes."""
    cv2 = optional("cv2")
    rows: list[Row] = []
    for h, w in SIZES:
        images = pictures(h, w)
        runs = both(images, program)
        if cv2 is not None:
            cv2.setNumThreads(1)
            runs["opencv"] = _opencv(cv2, images, opencv)
        rows += finish(f"{name}, {COUNT} × {h}×{w}×3 u8, 1 thread", runs, rounds)
    return rows


def _opencv(cv2: Any, images: list[np.ndarray], one: Callable[[Any, Any, Any], None]) -> Any:
    outs = [np.empty_like(i) for i in images]

    def run() -> None:
        for image, out in zip(images, outs):
            one(cv2, image, out)

    return run


def chains(rounds: int) -> list[Row]:
    """Resize, colours, blur, flip and normalise, without a resized image in memory."""
    rows: list[Row] = []
    for size, count in ((224, COUNT), (1080, 2)):
        images = photos(count)

        def program(lib: Any, x: Any, size: int = size) -> Any:
            x = lib.resize(x, size=[size, size])
            x = lib.color_twist(x, brightness=1.1, contrast=0.9, saturation=1.2, hue=10.0)
            x = lib.flip(lib.gaussian_blur(x, sigma=1.0), horizontal=1)
            return lib.crop_mirror_normalize(x, mean=MEAN, std=STD)

        runs: Runs = both(images, program)
        name = f"resize {size}² → color_twist → gaussian_blur → flip → normalise"
        rows += finish(f"{name}, {count} photos, 1 thread", runs, rounds)
    return rows


def main(rounds: int = ROUNDS) -> list[Row]:
    return blurs(rounds) + filters(rounds) + chains(rounds)
