"""WebP: the chunks of a file enter, its size leaves."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .sound import Extents, extents, require

_ANIMATED = 2  # a flag of VP8X
_FRAME_HEAD = 16  # bytes of an ANMF chunk before its own chunks


def check(data: memoryview) -> Extents:
    """Check the chunks of a file, and that all pictures in it are as large as its header says."""
    (size,) = struct.unpack_from("<I", data, 4)
    require(12 <= size + 8 <= len(data), f"{len(data) - 8} of {size} bytes")
    found = list(_chunks(data, 12, 8 + size))
    require(bool(found), "there is no picture")
    kind, at, _ = found[0]
    if kind != b"VP8X":
        return _picture(data, *found[0])
    flags = data[at]
    width, height = (int.from_bytes(data[k : k + 3], "little") + 1 for k in (at + 4, at + 7))
    canvas = extents("webp", height, width)
    if flags & _ANIMATED:
        _check_frames(data, canvas, found)
    else:
        pictures = [c for c in found if c[0] in (b"VP8 ", b"VP8L")]
        require(len(pictures) == 1, f"{len(pictures)} pictures")
        require(_picture(data, *pictures[0]) == canvas, "the picture does not fill its canvas")
    return canvas


def _chunks(data: memoryview, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, begin and end of the content) of all chunks."""
    while at < end:
        kind, size = struct.unpack_from("<4sI", data, at)
        at += 8
        require(size <= end - at, f"a chunk of {size} bytes reaches beyond the end")
        yield kind, at, at + size
        at += size + size % 2


def _picture(data: memoryview, kind: bytes, at: int, end: int) -> Extents:
    """The size of a picture."""
    if kind == b"VP8 ":
        require(end - at >= 10, "a picture ends early")
        require(data[at] & 1 == 0 and bytes(data[at + 3 : at + 6]) == b"\x9d\x01*", "no key frame")
        width, height = (v & 0x3FFF for v in struct.unpack_from("<HH", data, at + 6))
        first = (data[at] | data[at + 1] << 8 | data[at + 2] << 16) >> 5
        require(10 + first <= end - at, "its first partition ends early")
        return extents("webp", height, width)
    require(kind == b"VP8L" and end - at >= 5 and data[at] == 0x2F, f"a picture of kind {kind!r}")
    (bits,) = struct.unpack_from("<I", data, at + 1)
    require(bits >> 29 == 0, "an unknown version")
    return extents("webp", (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1)


def _check_frames(data: memoryview, canvas: Extents, chunks: list[tuple[bytes, int, int]]) -> None:
    """Frames of an animation lie inside of its canvas, and their pictures fill them."""
    frames = [(at, end) for kind, at, end in chunks if kind == b"ANMF"]
    require(bool(frames), "an animation without frames")
    for at, end in frames:
        require(end - at >= _FRAME_HEAD, "a frame ends early")
        left, top, width, height = (
            int.from_bytes(data[k : k + 3], "little") for k in range(at, at + 12, 3)
        )
        frame = Extents(height + 1, width + 1)
        inside = 2 * left + frame.width <= canvas.width and 2 * top + frame.height <= canvas.height
        require(inside, "a frame leaves the canvas")
        inner = [c for c in _chunks(data, at + _FRAME_HEAD, end) if c[0] in (b"VP8 ", b"VP8L")]
        require(len(inner) == 1 and _picture(data, *inner[0]) == frame, "a frame is not filled")
