"""Makes data sets once and keeps them: JPEG files that cost as much to decode as photos do.

A picture is a pile of ellipses of all sizes (edges), each with its own strength of 1/f noise
(texture), with a little blur and sensor noise. So it has the statistics of a photo: at quality 95
and ~400×500 pixels a file has ~110 KB, and libjpeg-turbo takes ~1.25 ms of a core to decode it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

QUALITY = 95
COUNT = 512
ELLIPSES = 120
TEXTURE = 60.0  # out of 255; gives files of 110 KB at quality 95
VERSION = 1  # increment it if pictures change


def folder() -> Path:
    """The folder that keeps data sets between runs."""
    return Path(os.environ.get("NDD_BENCH_DIR") or Path(tempfile.gettempdir()) / "ndd-bench")


def photos(count: int = COUNT) -> list[str]:
    """Files of ~400×500 pixels, all of different sizes, ~110 KB each."""
    return _files(f"photos-{count}", count, (340, 461), (420, 581))


def squares(size: int, count: int) -> list[str]:
    """Files of `size`×`size` pixels."""
    return _files(f"squares-{size}-{count}", count, (size, size + 1), (size, size + 1))


def small_images(count: int = 256) -> Path:
    """A .npy file of photos at 224×224, decoded: count × 224 × 224 × 3 bytes."""
    path = folder() / f"small-{count}-v{VERSION}.npy"
    if not path.exists():
        import cv2

        decoded = (cv2.imread(f, cv2.IMREAD_COLOR_RGB) for f in photos()[:count])
        images = [cv2.resize(i, (224, 224), interpolation=cv2.INTER_AREA) for i in decoded]
        partial = path.with_suffix(f".{os.getpid()}.npy")
        np.save(partial, np.stack(images))
        partial.replace(path)
    return path


def _files(name: str, count: int, heights: tuple[int, int], widths: tuple[int, int]) -> list[str]:
    target = folder() / f"{name}-v{VERSION}"
    if not target.exists():
        _write(target, count, heights, widths)
    return sorted(str(f) for f in target.glob("class*/*.jpg"))


def _write(target: Path, count: int, heights: tuple[int, int], widths: tuple[int, int]) -> None:
    import cv2

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent))  # renamed when complete
    print(f"making {count} pictures in {target}", flush=True)

    def write(k: int) -> None:
        rng = np.random.default_rng([VERSION, k])
        file = partial / f"class{k % 8}" / f"{k:05d}.jpg"
        file.parent.mkdir(exist_ok=True)
        image = picture(rng, int(rng.integers(*heights)), int(rng.integers(*widths)))
        cv2.imwrite(str(file), image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(count)))
    try:
        partial.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(partial)


def picture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """One picture, height × width × 3 bytes."""
    import cv2

    image = np.empty((height, width, 3), np.float32)
    image[:] = rng.uniform(60, 200, 3)
    strength = np.full((height, width), 0.5, np.float32)
    for _ in range(ELLIPSES):
        radius = 2 + max(height, width) / 2 * rng.uniform(0.02, 1) ** 2.5
        centre = int(rng.integers(width)), int(rng.integers(height))
        axes = int(radius), 1 + int(radius * rng.uniform(0.3, 1))
        angle = float(rng.uniform(0, 180))
        colour = (rng.uniform(20, 235) + rng.normal(0, 25, 3)).tolist()
        cv2.ellipse(image, centre, axes, angle, 0, 360, colour, -1, cv2.LINE_AA)
        cv2.ellipse(strength, centre, axes, angle, 0, 360, float(rng.uniform(0.1, 1)), -1)
    image += (_pink(rng, height, width) * strength * TEXTURE)[..., None]
    image += np.stack([_pink(rng, height, width) for _ in range(3)], -1) * 5
    image = cv2.GaussianBlur(image, (0, 0), 0.6)  # as by a lens
    image += rng.normal(0, 2.5, (height, width, 1)) + rng.normal(0, 1, image.shape)  # sensor noise
    return np.clip(image, 0, 255).astype(np.uint8)


def _pink(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Noise with an amplitude of 1/frequency and a standard deviation of 1."""
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)
    frequency = np.maximum(np.hypot(rows, columns), 1 / max(height, width))
    shape = frequency.shape
    waves = (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / frequency
    noise = np.fft.irfft2(waves, (height, width))
    return (noise / noise.std()).astype(np.float32)
