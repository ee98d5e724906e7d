"""PNG: the chunks of a file enter, its size leaves.

Decoders allocate as many bytes as a chunk's length says before they read it, up to 2 GB.
"""

from __future__ import annotations

import struct

from .sound import Extents, extents, require

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_HEAD = struct.Struct(">I4s")


def check(data: memoryview) -> Extents:
    """Check the chunks of a file up to its end mark."""
    size, kind = _HEAD.unpack_from(data, 8)
    require(kind == b"IHDR" and size == 13, "it does not begin with IHDR")
    width, height, depth, colour, method, filtering, interlace = struct.unpack_from(
        ">IIBBBBB", data, 16
    )
    require(max(width, height) < 2**31, f"its size is {height}x{width}")
    found = extents("png", height, width)
    require(depth in _DEPTHS.get(colour, ()), f"colour type {colour} with {depth} bits")
    require(method == 0 and filtering == 0 and interlace <= 1, "unknown methods")
    _check_chunks(data, found, colour)
    return found


def _check_chunks(data: memoryview, frame: Extents, colour: int) -> None:
    at, end = 8, len(data)
    has_pixels = has_palette = False
    unpack = _HEAD.unpack_from
    while True:
        size, kind = unpack(data, at)
        require(size <= end - at - 12, f"a chunk of {size} bytes reaches beyond the end")
        if kind == b"IDAT":
            has_pixels = True
        elif kind == b"IEND":
            break
        elif kind == b"fcTL":
            _check_animation(data, at + 8, frame)
        elif kind == b"PLTE":
            require(size % 3 == 0 and 0 < size <= 768, f"a palette of {size} bytes")
            has_palette = True
        elif kind == b"IHDR":
            require(at == 8, "IHDR occurs twice")
        at += 12 + size
    require(has_pixels, "there is no IDAT chunk")
    require(has_palette or colour != 3, "there is no palette")


def _check_animation(data: memoryview, at: int, frame: Extents) -> None:
    """A frame of an animation lies inside of the picture."""
    width, height, left, top = struct.unpack_from(">4I", data, at + 4)
    inside = left + width <= frame.width and top + height <= frame.height
    require(inside and width > 0 and height > 0, "a frame of the animation leaves the picture")
