"""The header of a JPEG file, without a library: half of what an image costs before it is decoded.

Only of plain files. Of everything else nothing is said here, so that nvimgcodec decides about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_RST0, _SOI, _EOI, _SOS, APP1 = 0xD0, 0xD8, 0xD9, 0xDA, 0xE1
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive, with Huffman codes


class Frame(NamedTuple):
    """What the file says of its picture."""

    height: int
    width: int
    channels: int
    exif: memoryview | None  # the TIFF structure in its EXIF block


def segments(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """(marker, begin, end of its content) of all segments; the last is where the pixels begin,
    unless something is wrong before."""
    at, size = 2, len(data)
    while at + 4 <= size and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        end = at + 2 + (data[at + 2] << 8 | data[at + 3])
        if marker < 0xC0 or _RST0 <= marker <= _EOI or end < at + 4 or end > size:
            return  # has no content, or no place here
        yield marker, at + 4, end
        if marker == _SOS:
            return
        at = end


def exif_in(data: memoryview, begin: int, end: int) -> memoryview | None:
    """The TIFF structure in a segment, if that is an EXIF block."""
    return data[begin + 6 : end] if bytes(data[begin : begin + 6]) == b"Exif\0\0" else None


def frame_of(data: memoryview) -> Frame | None:
    """The frame of a plain file that is well-formed up to its pixels; None of any other."""
    if len(data) < 4 or data[0] != 0xFF or data[1] != _SOI:
        return None
    found, exif = None, None
    for marker, at, end in segments(data):
        if marker == _SOS:
            return found and Frame(*found, exif)
        if marker in _FRAMES:
            if found or end - at < 6:
                return None
            channels = data[at + 5]
            if data[at] != 8 or channels not in (1, 3) or end - at != 6 + 3 * channels:
                return None
            found = (data[at + 1] << 8 | data[at + 2], data[at + 3] << 8 | data[at + 4], channels)
            if not found[0] or not found[1]:
                return None
        elif marker == APP1 and exif is None:
            exif = exif_in(data, at, end)
    return None
