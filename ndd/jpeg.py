"""The header of a JPEG file, without a library: half of what an image costs before it is decoded.

Only of plain files. Of everything else nothing is said here, so that nvimgcodec decides about it.
"""

from __future__ import annotations

from typing import NamedTuple

_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive, with Huffman codes


class Frame(NamedTuple):
    """What the file says of its picture."""

    height: int
    width: int
    channels: int
    exif: memoryview | None  # the TIFF structure in its EXIF block


def frame_of(data: memoryview) -> Frame | None:
    """The frame of a file that is well-formed up to its pixels; None of any other."""
    size = len(data)
    if size < 4 or data[0] != 0xFF or data[1] != _SOI:
        return None
    at, found, exif = 2, None, None
    while at + 4 <= size:
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == _SOS:
            return found and Frame(*found, exif)
        length = data[at + 2] << 8 | data[at + 3]
        if marker < 0xC0 or marker in (_SOI, _EOI) or 0xD0 <= marker <= 0xD7 or marker == 0xFF:
            return None  # padding, or what has no place here
        if length < 2 or at + 2 + length > size:
            return None
        if marker in _FRAMES:
            if found or length < 8:
                return None
            channels = data[at + 9]
            if data[at + 4] != 8 or channels not in (1, 3) or length != 8 + 3 * channels:
                return None
            found = (data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8], channels)
            if not found[0] or not found[1]:
                return None
        elif marker == _APP1 and exif is None and bytes(data[at + 4 : at + 10]) == b"Exif\0\0":
            exif = data[at + 10 : at + 2 + length]
        at += 2 + length
    return None
