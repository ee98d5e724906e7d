"""JPEG files → the numbers in their headers. Only imported to compile something."""

from __future__ import annotations

import numpy as np

from . import primitives as prims

_get_u8, _get_i64 = prims.get_u8, prims.get_i64  # type: ignore[attr-defined]
_get_u32, _put_i64 = prims.get_u32, prims.put_i64  # type: ignore[attr-defined]
_EXIF = int(np.frombuffer(b"Exif", np.uint32)[0])
# A decoder goes through the whole picture for each scan, and a scan takes at least 11 bytes. Files
# that could make it visit more pixels than this, in about a second, are left to Python's checks.
_SCAN_BYTES = 11
_MAX_VISITS = 1 << 33


def jpeg_frames(files, count, frames):  # type: ignore[no-untyped-def]
    """Read the header of each file (address, size) into a row of `formats.jpeg.JpegFrame`."""
    for s in range(count):
        data, size = _get_i64(files, 2 * s), _get_i64(files, 2 * s + 1)
        height, width, channels, exif, exif_end = 0, 0, 0, 0, 0
        is_good, is_progressive, at = False, False, 2
        if size >= 4 and _get_u8(data, 0) == 0xFF and _get_u8(data, 1) == 0xD8:
            while at + 4 <= size and _get_u8(data, at) == 0xFF:
                marker = _get_u8(data, at + 1)
                if marker == 0xFF:  # padding
                    at += 1
                    continue
                begin = at + 4
                end = at + 2 + (_get_u8(data, at + 2) << 8 | _get_u8(data, at + 3))
                if marker < 0xC0 or 0xD0 <= marker <= 0xD9 or end < begin or end > size:
                    break  # a marker without content, or an invalid length
                if marker == 0xDA:  # start of the pixels
                    has_scans = is_progressive or _get_u8(data, begin) < channels
                    visits = size // _SCAN_BYTES * height * width
                    is_good = height > 0 and not (has_scans and visits > _MAX_VISITS)
                    break
                is_table = marker == 0xC4 or marker == 0xC8 or marker == 0xCC
                if 0xC3 <= marker <= 0xCF and not is_table:
                    break  # a frame of an unusual kind, perhaps a second one
                if 0xC0 <= marker <= 0xC2:  # Huffman-coded: baseline, extended, progressive
                    if height > 0 or end - begin < 6:
                        break
                    channels, is_progressive = _get_u8(data, begin + 5), marker == 0xC2
                    is_usual = channels == 1 or channels == 3
                    if _get_u8(data, begin) != 8 or not is_usual or end - begin != 6 + 3 * channels:
                        break
                    height = _get_u8(data, begin + 1) << 8 | _get_u8(data, begin + 2)
                    width = _get_u8(data, begin + 3) << 8 | _get_u8(data, begin + 4)
                    if height == 0 or width == 0:
                        break
                elif marker == 0xE1 and exif == 0 and end - begin >= 6:
                    is_exif = _get_u32(data + begin, 0) == _EXIF
                    if is_exif and _get_u8(data, begin + 4) == _get_u8(data, begin + 5) == 0:
                        exif, exif_end = begin + 6, end
                at = end
        if not is_good:
            height, width, channels, exif, exif_end = 0, 0, 0, 0, 0
        _put_i64(frames, 5 * s, height)
        _put_i64(frames, 5 * s + 1, width)
        _put_i64(frames, 5 * s + 2, channels)
        _put_i64(frames, 5 * s + 3, exif)
        _put_i64(frames, 5 * s + 4, exif_end)
