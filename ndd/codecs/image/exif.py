"""EXIF orientation: JPEG, PNG, TIFF and WebP files enter, orientations from 1 to 8 leave."""

from __future__ import annotations

import struct

import numpy as np

from .formats import jpeg

_TAG = 0x0112
_TYPE_SIZES = {1: "B", 3: "H", 4: "I"}  # byte, short, long
_MAX_ENTRIES = 4096


def orientation_of(codec: str, data: bytes | memoryview) -> int:
    """The EXIF orientation, 1 to 8; 1 (upright) if there is none or it is invalid."""
    find = _FINDERS.get(codec)
    if find is None:
        return 1
    try:
        block = find(memoryview(data).cast("B"))
    except (struct.error, IndexError):
        return 1
    return 1 if block is None else orientation_in(block)


def orientation_in(block: memoryview) -> int:
    """The EXIF orientation in an EXIF block, with 1 as the default."""
    try:
        found = _from_tiff(block)
    except (struct.error, IndexError):
        return 1
    return found if 1 <= found <= 8 else 1


def is_transposed(orientation: int) -> bool:
    """Whether rows of the stored picture are columns of the upright one."""
    return orientation >= 5


def upright(
    stored: np.ndarray[tuple[int, ...], np.dtype[np.generic]], orientation: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """The stored pixels as an upright view."""
    if orientation in (3, 4, 6, 7):
        stored = stored[::-1]
    if orientation in (2, 3, 7, 8):
        stored = stored[:, ::-1]
    return stored.swapaxes(0, 1) if is_transposed(orientation) else stored


def stored_region(
    region: tuple[int, int, int, int], height: int, width: int, orientation: int
) -> tuple[int, int, int, int]:
    """Where a region (top, left, bottom, right) of the upright picture lies in the stored one.

    `height` and `width` are those of the stored picture.
    """
    top, left, bottom, right = region
    if is_transposed(orientation):
        top, left, bottom, right = left, top, right, bottom
    if orientation in (3, 4, 6, 7):
        top, bottom = height - bottom, height - top
    if orientation in (2, 3, 7, 8):
        left, right = width - right, width - left
    return top, left, bottom, right


def _from_tiff(block: memoryview) -> int:
    """The orientation tag in the first directory of a TIFF structure, such as an EXIF block."""
    order = {b"II": "<", b"MM": ">"}.get(bytes(block[:2]))
    if order is None:
        return 1
    (magic,) = struct.unpack_from(f"{order}H", block, 2)
    if magic != 42:
        return 1
    (directory,) = struct.unpack_from(f"{order}I", block, 4)
    (entries,) = struct.unpack_from(f"{order}H", block, directory)
    for k in range(min(entries, _MAX_ENTRIES)):
        at = directory + 2 + 12 * k
        tag, kind, count = struct.unpack_from(f"{order}HHI", block, at)
        if tag == _TAG:
            size = _TYPE_SIZES.get(kind)
            if size is None or count != 1:
                return 1
            (value,) = struct.unpack_from(f"{order}{size}", block, at + 8)
            return int(value)
    return 1


def _in_jpeg(data: memoryview) -> memoryview | None:
    blocks = (jpeg.exif_in(data, at, end) for m, at, end in jpeg.segments(data) if m == jpeg.APP1)
    return next((block for block in blocks if block is not None), None)


def _in_png(data: memoryview) -> memoryview | None:
    at = 8
    while at + 8 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind = bytes(data[at + 4 : at + 8])
        if kind == b"eXIf":
            return data[at + 8 : at + 8 + size]
        at += 12 + size
    return None


def _in_webp(data: memoryview) -> memoryview | None:
    at = 12
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<I", data, at + 4)
        if bytes(data[at : at + 4]) == b"EXIF":
            block = data[at + 8 : at + 8 + size]
            return block[6:] if bytes(block[:6]) == b"Exif\0\0" else block
        at += 8 + size + size % 2
    return None


def _whole(data: memoryview) -> memoryview | None:
    return data


_FINDERS = {"jpeg": _in_jpeg, "png": _in_png, "webp": _in_webp, "tiff": _whole}
