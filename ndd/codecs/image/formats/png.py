"""PNG: the chunks of a file enter, its size leaves.

Decoders allocate as many bytes as a chunk's length says before they read it, up to 2 GB.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

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


def still(data: memoryview) -> bytes | None:
    """The first frame of an animation as a file of its own; None for other files.

    When OpenCV, inside nvimgcodec, fails in the pixels of an animation, it returns its memory as
    if it had written all of it.
    """
    chunks = list(_chunks(data))
    kinds = [kind for kind, _, _ in chunks]
    if not {b"acTL", b"fcTL", b"fdAT"} & set(kinds):
        return None
    frames = [k for k, kind in enumerate(kinds) if kind == b"fcTL"] or [kinds.index(b"IDAT")]
    first = chunks[frames[0] : frames[1] if len(frames) > 1 else None]
    pixels = [data[at:end] for kind, at, end in first if kind == b"IDAT"]
    pixels = pixels or [data[at + 4 : end] for kind, at, end in first if kind == b"fdAT"]
    before = [c for c in chunks[: frames[0]] if c[0] not in (b"acTL", b"IDAT")]
    parts: list[bytes | memoryview] = [data[at - 8 : end + 4] for _, at, end in before]
    parts += [_chunk(b"IDAT", part) for part in pixels]
    return b"".join([SIGNATURE, *parts, _chunk(b"IEND", b"")])


def _chunks(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """(kind, begin and end of the content) of all chunks."""
    at = 8
    while at < len(data):
        size, kind = _HEAD.unpack_from(data, at)
        if kind == b"IEND":
            return
        yield kind, at + 8, at + 8 + size
        at += 12 + size


def _chunk(kind: bytes, content: bytes | memoryview) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return _HEAD.pack(len(content), kind) + content + checksum.to_bytes(4, "big")


def _check_chunks(data: memoryview, frame: Extents, colour: int) -> None:
    at, end = 8, len(data)
    has_pixels = has_palette = is_animated = False
    unpack = _HEAD.unpack_from
    while True:
        size, kind = unpack(data, at)
        require(size <= end - at - 12, f"a chunk of {size} bytes reaches beyond the end")
        if kind == b"IDAT":
            has_pixels = True
        elif kind == b"IEND":
            break
        elif kind == b"fcTL":
            require(size == 26, "a frame of the animation")
            fills = struct.unpack_from(">4I", data, at + 12) == (frame.width, frame.height, 0, 0)
            require(fills or is_animated, "the first frame of the animation is not whole")
            is_animated = True
        elif kind == b"fdAT":
            require(is_animated and size >= 4, "a frame of the animation")
        elif kind == b"PLTE":
            require(size % 3 == 0 and 0 < size <= 768, f"a palette of {size} bytes")
            has_palette = True
        elif kind == b"IHDR":
            require(at == 8, "IHDR occurs twice")
        at += 12 + size
    require(has_pixels, "there is no IDAT chunk")
    require(has_palette or colour != 3, "there is no palette")
