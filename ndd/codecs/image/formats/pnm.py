"""PNM (PBM, PGM, PPM; as text and binary): the header of a file enters, its size leaves."""

from __future__ import annotations

import re

from .sound import Extents, extents, require

_SPACE = rb"(?:[ \t\n\v\f\r]|#[^\n\r]*[\n\r])"
_NUMBER = _SPACE + rb"+([0-9]{1,10})"
_HEADER = {
    kinds: re.compile(rb"P" + kinds + _NUMBER * count + _SPACE)
    for kinds, count in ((b"[14]", 2), (b"[2356]", 3))
}
_LONGEST_HEADER = 1 << 16  # comments may be long


def check(data: memoryview) -> Extents:
    """Check the header of a file, and that all of its pixels are there."""
    kind = data[1] - ord("0")
    pattern = _HEADER[b"[14]" if kind in (1, 4) else b"[2356]"]
    header = pattern.match(bytes(data[:_LONGEST_HEADER]))
    require(header is not None, "its header")
    assert header is not None
    width, height, *highest = map(int, header.groups())
    found = extents("pnm", height, width)
    require(not highest or 1 <= highest[0] <= 65535, f"the highest value is {highest}")
    channels = 3 if kind in (3, 6) else 1
    needed = _needed(kind, found, channels, 2 if highest and highest[0] > 255 else 1)
    left = len(data) - header.end()
    require(left >= needed, f"{left} of {needed} bytes of pixels")
    return found


def _needed(kind: int, size: Extents, channels: int, width: int) -> int:
    """The fewest bytes that hold the pixels."""
    if kind == 4:
        return (size.width + 7) // 8 * size.height
    count = size.height * size.width * channels
    if kind in (5, 6):
        return count * width
    return count if kind == 1 else 2 * count - 1  # text: numbers, and spaces between them
