"""equalize and clahe, against OpenCV and Pillow, on one thread."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import ROUNDS, Row, optional
from .resample import COUNT, Runs, both, finish, photos

SIZES = ((400, 500), (224, 224))
TILES, LIMIT = 8, 2.0


def images(height: int, width: int) -> list[np.ndarray]:
    """Photos of one size: repeated as far as needed, then cut."""
    tiled = (np.tile(photo, (2, 2, 1))[:height, :width] for photo in photos())
    return [np.ascontiguousarray(image) for image in tiled]


def equalize(colours: list[np.ndarray], channels: int) -> Runs:
    pixels = [image[..., :channels] for image in colours]
    runs = both([np.ascontiguousarray(p) for p in pixels], lambda lib, x: lib.equalize(x))
    runs |= opencv(pixels, lambda cv2: cv2.equalizeHist)
    pillow = optional("PIL.Image")
    if pillow is not None:
        made = [pillow.fromarray(p if channels == 3 else p[..., 0]) for p in pixels]
        change = optional("PIL.ImageOps").equalize  # type: ignore[union-attr]
        runs["pillow"] = lambda: [change(image) for image in made]
    return runs


def clahe(colours: list[np.ndarray], channels: int, luma_only: bool = False) -> Runs:
    pixels = [np.ascontiguousarray(image[..., :channels]) for image in colours]

    def program(lib: Any, x: Any) -> Any:
        return lib.clahe(x, tiles_x=TILES, tiles_y=TILES, clip_limit=LIMIT, luma_only=luma_only)

    def local(cv2: Any) -> Callable[[np.ndarray], np.ndarray]:
        return cv2.createCLAHE(LIMIT, (TILES, TILES)).apply

    return both(pixels, program) | opencv(pixels, local, luma_only)


def opencv(pixels: list[np.ndarray], make: Callable[[Any], Any], luma_only: bool = False) -> Runs:
    """OpenCV works on one channel; colours are split and merged again."""
    cv2 = optional("cv2")
    if cv2 is None:
        return {}
    cv2.setNumThreads(1)
    change = make(cv2)

    def one(image: np.ndarray) -> object:
        if image.shape[2] == 1:
            return change(image[..., 0])
        if not luma_only:
            return cv2.merge([change(plane) for plane in cv2.split(image)])
        light, a, b = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2LAB))
        return cv2.cvtColor(cv2.merge([change(light), a, b]), cv2.COLOR_LAB2RGB)

    owned = [np.ascontiguousarray(p) for p in pixels]
    return {"opencv": lambda: [one(image) for image in owned]}


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for height, width in SIZES:
        colours = images(height, width)
        of = f"{COUNT} × {height}×{width}"
        for name, runs in (
            (f"equalize, {of}×3 u8", equalize(colours, 3)),
            (f"equalize, {of}×1 u8", equalize(colours, 1)),
            (f"clahe of lightness, {of}×3 u8", clahe(colours, 3, luma_only=True)),
            (f"clahe of channels, {of}×3 u8", clahe(colours, 3)),
            (f"clahe, {of}×1 u8", clahe(colours, 1)),
        ):
            rows += finish(f"{name}, 1 thread", runs, rounds)
    return rows
