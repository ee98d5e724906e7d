"""BMP: the header of a file enters, its size leaves."""

from __future__ import annotations

import struct

from .sound import Extents, extents, require

_OLD_HEADER = 12
_HEADERS = (_OLD_HEADER, 40, 52, 56, 64, 108, 124)
_PLAIN, _RLE8, _RLE4, _MASKS = 0, 1, 2, 3
_BITS = {_PLAIN: (1, 4, 8, 16, 24, 32), _RLE8: (8,), _RLE4: (4,), _MASKS: (16, 32)}


def check(data: memoryview) -> Extents:
    """Check the header of a file, and that its palette and pixels lie in it."""
    start, size = struct.unpack_from("<II", data, 10)
    require(size in _HEADERS, f"a header of {size} bytes")
    compression, colours = _PLAIN, 0
    if size == _OLD_HEADER:
        width, height, planes, bits = struct.unpack_from("<HHHH", data, 18)
    else:
        width, height, planes, bits, compression = struct.unpack_from("<iiHHI", data, 18)
        (colours,) = struct.unpack_from("<I", data, 46)
    found = extents("bmp", abs(height), width)
    require(planes == 1 and bits in _BITS.get(compression, ()), f"{bits} bits, kind {compression}")
    palette = _palette(size, bits, colours, compression)
    require(14 + size + palette <= start <= len(data), f"its pixels begin at {start}")
    if compression in (_PLAIN, _MASKS):
        # Decoders read whole rows, with their padding.
        needed = (width * bits + 31) // 32 * 4 * abs(height)
        require(start + needed <= len(data), f"{len(data) - start} of {needed} bytes of pixels")
    return found


def _palette(header: int, bits: int, colours: int, compression: int) -> int:
    """Bytes between the header and the pixels."""
    if bits > 8:
        return 12 if header == 40 and compression == _MASKS else 0
    require(colours <= 1 << bits, f"a palette of {colours} colours for {bits} bits")
    return 3 << bits if header == _OLD_HEADER else 4 * (colours or 1 << bits)
