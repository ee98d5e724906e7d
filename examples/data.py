"""Draws the pictures of the examples: JPEG files in one folder per class."""

from __future__ import annotations

import argparse
import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ndd.codecs.image.decode import nvimgcodec

CLASSES = ("across", "discs", "upright")  # sorted, as readers number them


def draw(kind: str, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A picture of stripes or discs in two colours, with a little grain."""
    y, x = np.mgrid[0:height, 0:width] / 10.0
    phase = rng.uniform(0, 6, 2)
    waves = {
        "across": np.sin(3 * y + phase[0]),
        "upright": np.sin(3 * x + phase[0]),
        "discs": np.sin(2 * y + phase[0]) * np.sin(2 * x + phase[1]) * 2 - 0.5,
    }[kind]
    dark, light = rng.uniform(0, 90, 3), rng.uniform(160, 255, 3)
    image = np.where(waves[..., None] > 0, light, dark) + rng.normal(0, 6, (height, width, 3))
    return image.clip(0, 255).astype(np.uint8)


def jpeg_encoder() -> Callable[[np.ndarray], bytes]:
    """A function that encodes pictures."""
    codec = nvimgcodec()
    encoder = codec.Encoder(
        device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY,
        backends=[codec.Backend(codec.BackendKind.CPU_ONLY)],
    )
    return lambda picture: bytes(encoder.encode(codec.as_image(picture), codec="jpeg"))


def write_jpegs(root: Path, per_class: int = 16, size: int = 96, seed: int = 0) -> Path:
    """Fill `root` with folders of pictures, all of different sizes."""
    encode = jpeg_encoder()
    rng = np.random.default_rng(seed)
    for kind in CLASSES:
        (root / kind).mkdir(parents=True, exist_ok=True)
        for k in range(per_class):
            height, width = (int(n) for n in rng.integers(size, size + size // 2, 2))
            (root / kind / f"{k:04d}.jpg").write_bytes(encode(draw(kind, height, width, rng)))
    return root


def arguments(description: str, per_class: int = 16, size: int = 96) -> argparse.ArgumentParser:
    """The options that all examples share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--data", type=Path, help="a folder of folders of pictures; else generated")
    parser.add_argument("--per-class", type=int, default=per_class, help="pictures to generate")
    parser.add_argument("--size", type=int, default=size, help="about their height and width")
    return parser


def folder(chosen: argparse.Namespace, seed: int = 0) -> Path:
    """The folder of pictures: the user's, or a new one with generated pictures."""
    if chosen.data is not None:
        return chosen.data
    root = Path(tempfile.mkdtemp(prefix="ndd-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return write_jpegs(root, chosen.per_class, chosen.size, seed)
