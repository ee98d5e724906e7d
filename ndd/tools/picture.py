"""Pictures: arrays of any element type enter, a grid in 8-bit RGB or PNG bytes leaves.

This uses only NumPy and zlib, so that looking at data needs no other package.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MAX_CHANNELS = 4  # grey, grey and alpha, RGB, RGBA
GAP_PX = 4
_WHITE = 255


def image_layout(shape: tuple[int, ...], layout: str | None) -> str | None:
    """The layout of a sample that is an image or a sequence of images, guessed if it has none.

    None if the sample is neither: too few axes, or more than four channels.
    """
    if layout is None:
        layout = _guess(shape)
    if layout is None or "H" not in layout or "W" not in layout:
        return None
    if len(layout.replace("C", "")) > 3 or layout.index("H") > layout.index("W"):
        return None
    channels = shape[layout.index("C")] if "C" in layout else 1
    return layout if 1 <= channels <= MAX_CHANNELS else None


def _guess(shape: tuple[int, ...]) -> str | None:
    if len(shape) == 2:
        return "HW"
    if len(shape) not in (3, 4):
        return None
    lead = "F" * (len(shape) - 3)
    if 1 <= shape[-1] <= MAX_CHANNELS:
        return f"{lead}HWC"
    return f"{lead}CHW" if 1 <= shape[-3] <= MAX_CHANNELS else None


def frames(array: Array, layout: str) -> list[Array]:
    """The images [H, W, C] of a sample: one, or those of a sequence."""
    lead = [a for a in layout if a not in "HWC"]
    if "C" not in layout:
        array, layout = array[..., None], f"{layout}C"
    array = array.transpose([layout.index(a) for a in [*lead, *"HWC"]])
    return list(array) if lead else [array]


def as_bytes(images: Sequence[Array]) -> list[Array]:
    """All images scaled to bytes.

    Floats in 0…1 are scaled, other values in 0…255 are kept. If there are negative values (from
    normalising) or larger ones, the whole range is stretched, with one scale for all images.
    """
    kind = images[0].dtype
    if kind == np.uint8:
        return list(images)
    if kind == np.bool_:
        return [i.astype(np.uint8) * _WHITE for i in images]
    if kind == np.uint16:
        return [(i >> 8).astype(np.uint8) for i in images]
    wide = [np.where(np.isfinite(i), i, 0).astype(np.float64) for i in images]
    low = min((float(i.min()) for i in wide if i.size), default=0.0)
    high = max((float(i.max()) for i in wide if i.size), default=0.0)
    if low >= 0 and high <= 1 and kind.kind == "f":
        low, high = 0.0, 1.0
    elif low >= 0 and high <= _WHITE:
        low, high = 0.0, float(_WHITE)
    scale = _WHITE / (high - low) if high > low else 0.0
    return [np.rint((i - low) * scale).astype(np.uint8) for i in wide]


def as_rgb(image: Array) -> Array:
    """A byte image [H, W, 1…4] as RGB; transparent pixels become white."""
    channels = image.shape[2]
    if channels in (2, 4):
        alpha = image[..., -1:].astype(np.uint16)
        colour = image[..., :-1].astype(np.uint16)
        image = ((colour * alpha + _WHITE * (255 - alpha) + 127) // 255).astype(np.uint8)
    return image.repeat(3, axis=2) if image.shape[2] == 1 else image


def shrunk(image: Array, size: int | None) -> Array:
    """Shrink an RGB image to sides of at most `size`, by averaging squares of pixels."""
    height, width = image.shape[:2]
    if size is None or max(height, width) <= size or not image.size:
        return image
    step = -(-max(height, width) // size)
    rows, columns = min(step, height), min(step, width)
    h, w = height // rows, width // columns
    squares = image[: h * rows, : w * columns].reshape(h, rows, w, columns, 3)
    small: Array = np.rint(squares.mean(axis=(1, 3))).astype(np.uint8)
    return small


def grid(images: Sequence[Array], columns: int) -> Array:
    """RGB images side by side, row after row, each in the upper left corner of its cell."""
    cell_h = max((i.shape[0] for i in images), default=0) or 1
    cell_w = max((i.shape[1] for i in images), default=0) or 1
    rows = -(-len(images) // columns)
    height, width = rows * (cell_h + GAP_PX) - GAP_PX, columns * (cell_w + GAP_PX) - GAP_PX
    sheet = np.full((height, width, 3), _WHITE, np.uint8)
    for k, image in enumerate(images):
        top, left = k // columns * (cell_h + GAP_PX), k % columns * (cell_w + GAP_PX)
        sheet[top : top + image.shape[0], left : left + image.shape[1]] = image
    return sheet


def png(rgb: Array) -> bytes:
    """An RGB image [H, W, 3] of bytes as a PNG file."""
    height, width, _ = rgb.shape
    # Filter 2 stores lines as differences from the line above, which compresses photos better.
    lines = np.empty((height, 1 + width * 3), np.uint8)
    lines[:, 0] = 2
    flat = np.ascontiguousarray(rgb).reshape(height, width * 3)
    lines[0, 1:] = flat[0]
    lines[1:, 1:] = flat[1:] - flat[:-1]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
