"""Writes the JPEG files of the demo: windows of real photographs if there are any, or of drawings.

The photographs are those that every wheel of scikit-image holds, and their licences let anybody use
them. Nothing of scikit-image is imported.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ndd

from ..codecs.image.jpeg_round_trip import encoded
from ..fusion.graph.shapes import Array

# Files of scikit-image, and who gave them to the public.
PHOTOGRAPHS = {
    "astronaut.png": "NASA, public domain",
    "chelsea.png": "Stefan van der Walt, CC0",
    "coffee.png": "Rachel Michetti, CC0",
    "rocket.jpg": "SpaceX, public domain",
}
_FOLDER = "skimage/data"
QUALITY = 90
SHORTEST = 0.7  # of each side of a picture is in a window


def drawing(height: int, width: int, seed: int) -> Array:
    """An image with soft colour gradients, discs and a little grain."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    image = np.empty((height, width, 3), np.float32)
    for c in range(3):
        fx, fy, phase = rng.uniform(0.5, 2.5, 3)
        image[..., c] = 128 + 70 * np.sin(fx * x / width * 3 + fy * y / height * 3 + phase * 2)
    for _ in range(6):
        cx, cy, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.06, 0.2) * height
        inside = (x - cx) ** 2 + (y - cy) ** 2 < r**2
        image[inside] = rng.uniform(20, 235, 3)
    image += rng.normal(0, 4, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def photographs(wheels: str | Path | None = None) -> dict[str, Array]:
    """The photographs by name, from a wheel in the folder `wheels` or an installed scikit-image;
    empty if there is neither."""
    files = _in_wheel(Path(wheels)) if wheels is not None else {}
    files = files or _installed()
    if len(files) < len(PHOTOGRAPHS):
        return {}
    data = ndd.batch([np.frombuffer(files[name], np.uint8) for name in PHOTOGRAPHS])
    images = ndd.decoders.image(data)
    return {Path(n).stem: np.array(t) for n, t in zip(PHOTOGRAPHS, images, strict=True)}


def _in_wheel(folder: Path) -> dict[str, bytes]:
    for path in sorted(folder.glob("scikit_image-*.whl")):
        with zipfile.ZipFile(path) as wheel:
            held = set(wheel.namelist())
            return {
                n: wheel.read(f"{_FOLDER}/{n}") for n in PHOTOGRAPHS if f"{_FOLDER}/{n}" in held
            }
    return {}


def _installed() -> dict[str, bytes]:
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        return {}
    folder = Path(spec.origin).parent / "data"
    return {n: (folder / n).read_bytes() for n in PHOTOGRAPHS if (folder / n).is_file()}


def write_data_set(folder: Path, count: int, wheels: str | Path | None = None) -> str:
    """Write `count` JPEG files, a folder for each picture; returns a line that tells what they are.

    A file is a window of its picture, so that all files and their sizes differ.
    """
    pictures = photographs(wheels)
    if pictures:
        credits = ", ".join(f"{Path(n).stem} ({by})" for n, by in PHOTOGRAPHS.items())
        about = f"{len(pictures)} photographs from scikit-image: {credits}"
    else:
        pictures = {f"drawing-{k}": drawing(380 + 20 * k, 500, k) for k in range(4)}
        about = f"{len(pictures)} drawings, because there are no photographs"
    rng = np.random.default_rng(0)
    names = list(pictures)
    for k in range(count):
        name = names[k % len(names)]
        target = folder / name / f"{k:04d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encoded(_window(pictures[name], rng), QUALITY))
    return f"windows of {about}"


def _window(picture: Array, rng: Any) -> Array:
    extents = picture.shape[:2]
    size = [int(n * rng.uniform(SHORTEST, 1.0)) for n in extents]
    top, left = (int(rng.integers(0, n - s + 1)) for n, s in zip(extents, size, strict=True))
    return np.ascontiguousarray(picture[top : top + size[0], left : left + size[1], :3])


def total_bytes(files: Sequence[Path]) -> int:
    return sum(f.stat().st_size for f in files)
