"""Headers of JPEG files, without a library: half of what an image costs before it is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of
from ...kernels.cpu.helpers import function

_RST0, _EOI, _SOS, APP1 = 0xD0, 0xD9, 0xDA, 0xE1


class JpegFrame(IntEnum):
    """What a plain file says of its picture: columns of a row of numbers.

    Plain is a file that is well-formed up to its pixels, of 8 bits and 1 or 3 channels. All numbers
    are 0 for any other, so that nvimgcodec decides about it.
    """

    height = 0
    width = 1
    channels = 2
    exif_begin = 3  # of the TIFF structure in its EXIF block
    exif_end = 4  # 0 if there is none


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


def frames(addresses: Array, lengths: Array) -> Array:
    """A `JpegFrame` of each file, by native code (cpu/native/jpeg_headers.py): in Python this
    would be a tenth of what a batch costs before it is decoded."""
    files = np.stack([addresses, lengths], axis=1)
    found = np.empty((len(files), len(JpegFrame)), np.int64)
    function("jpeg_frames")(address_of(files), len(files), address_of(found))
    return found
