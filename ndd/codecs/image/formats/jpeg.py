"""Reads JPEG headers without nvimgcodec, which halves the cost of an image before decoding."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ....fusion.graph.shapes import Array
from ....fusion.graph.storage import address_of
from ....kernels.cpu.helpers import function
from .sound import Extents, extents, require

_RST0, _EOI, _SOS, APP1 = 0xD0, 0xD9, 0xDA, 0xE1
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 … SOF15
_MAX_CHANNELS = 4
# A scan of a progressive file takes a few bytes, and a decoder goes through the whole picture for
# it. Usual files have about ten.
_MAX_SCANS = 100


class FrameHeader(NamedTuple):
    """What the header of a JPEG file tells about its picture."""

    height: int
    width: int
    channels: int


def check(data: memoryview) -> Extents:
    """Check the segments of a file up to its pixels."""
    frame = frame_of(data)
    return extents("jpeg", frame.height, frame.width)


def frame_of(data: memoryview) -> FrameHeader:
    """The frame header of a file or of a picture in a TIFF file."""
    frame: FrameHeader | None = None
    for marker, at, end in segments(data):
        if marker in _FRAMES:
            require(frame is None, "there are two frame headers")
            frame = _frame(data, at, end)
        elif marker == _SOS:
            require(frame is not None, "there is no frame header before the pixels")
            assert frame is not None
            scans = bytes(data[end:]).count(b"\xff\xda") + 1
            require(scans <= _MAX_SCANS, f"{scans} scans")
            return frame
    require(False, "its header ends before the pixels")
    raise AssertionError


def _frame(data: memoryview, at: int, end: int) -> FrameHeader:
    require(end - at >= 6, "its frame header ends early")
    height, width = data[at + 1] << 8 | data[at + 2], data[at + 3] << 8 | data[at + 4]
    channels = data[at + 5]
    require(1 <= channels <= _MAX_CHANNELS and end - at == 6 + 3 * channels, f"{channels} channels")
    require(height > 0 and width > 0, f"its size is {height}x{width}")
    for sampling in data[at + 7 : end : 3]:
        require(1 <= sampling >> 4 <= 4 and 1 <= sampling & 15 <= 4, "a sampling factor")
    return FrameHeader(height, width, channels)


class JpegFrame(IntEnum):
    """Columns of the table of JPEG headers.

    A plain file is well-formed up to its pixels and has 8 bits and 1 or 3 channels. The row of any
    other file is 0, so that nvimgcodec decides about it.
    """

    height = 0
    width = 1
    channels = 2
    exif_begin = 3  # where the TIFF structure in the EXIF block begins
    exif_end = 4  # 0 if there is no EXIF block


def segments(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """(marker, begin and end of its content) of all segments, up to the start of the pixels or the
    first error."""
    at, size = 2, len(data)
    while at + 4 <= size and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        end = at + 2 + (data[at + 2] << 8 | data[at + 3])
        if marker < 0xC0 or _RST0 <= marker <= _EOI or end < at + 4 or end > size:
            return  # a marker without content, or one that must not occur here
        yield marker, at + 4, end
        if marker == _SOS:
            return
        at = end


def exif_in(data: memoryview, begin: int, end: int) -> memoryview | None:
    """The TIFF structure in a segment, or None if the segment is not an EXIF block."""
    return data[begin + 6 : end] if bytes(data[begin : begin + 6]) == b"Exif\0\0" else None


def frames(addresses: Array, lengths: Array) -> Array:
    """A table of `JpegFrame` rows, one per file. Native code fills it: Python would take a tenth of
    the time that a batch needs before decoding."""
    files = np.stack([addresses, lengths], axis=1)
    found = np.empty((len(files), len(JpegFrame)), np.int64)
    function("jpeg_frames")(address_of(files), len(files), address_of(found))
    return found
