"""Sound picture files of every kind, small ones: what mutations begin with.

Those in sound/ were written by Pillow, because OpenCV cannot write their kinds.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.decoders.fixtures import _chunk, encoded, files, photo

SOUND = Path(__file__).with_name("sound")


@lru_cache(maxsize=1)
def corpus() -> dict[str, bytes]:
    """All files by name; the name begins with the format."""
    import cv2

    found = dict(files())
    bgr = photo()[..., ::-1]
    compression, rows = cv2.IMWRITE_TIFF_COMPRESSION, cv2.IMWRITE_TIFF_ROWSPERSTRIP
    grey = np.ascontiguousarray(bgr[..., 0])
    found["tiff_jpeg"] = encoded(".tiff", bgr, compression, 7)
    found["tiff_jpeg_grey"] = encoded(".tiff", grey, compression, 7)
    found["tiff_jpeg_strips"] = encoded(".tiff", bgr, compression, 7, rows, 16)
    found["tiff_packbits"] = encoded(".tiff", bgr, compression, 32773)
    found["tiff_strips"] = encoded(".tiff", bgr, compression, 1, rows, 5)
    small = photo(32, 48)
    found["tiff_tiled"] = tiff(small, [(322, 16), (323, 16)])
    found["tiff_planes"] = tiff(small, [(284, 2)])
    found["tiff_grey_alpha"] = tiff(small[..., :2], [(262, 1), (338, 2)])
    found["tiff_cmyk"] = tiff(np.concatenate([small, small[..., :1]], -1), [(262, 5)])
    found["tiff_five"] = tiff(np.concatenate([small, small[..., :2]], -1), [])
    found["tiff_big_endian"] = tiff(small, [], ">")
    found["bmp_rle"] = rle_bmp(grey[:, :50])
    found["bmp_16bit"] = bmp_16bit(grey[:, :51])
    found["png_interlaced"] = interlaced_png(grey)
    found["jp2_raw"] = found["jp2"][found["jp2"].index(b"\xff\x4f\xff\x51") :]
    found["webp_extended"] = extended_webp(found["webp"], bytes(26))
    return found | {path.stem: path.read_bytes() for path in sorted(SOUND.iterdir())}


def tiff(pixels: Any, tags: list[tuple[int, int]], order: str = "<") -> bytes:
    """An uncompressed TIFF file with these tags beside the usual ones."""
    height, width, channels = pixels.shape
    given = {256: width, 257: height, 259: 1, 262: 2, 277: channels, 284: 1, **dict(tags)}
    planes = np.split(pixels, channels, -1) if given[284] == 2 else [pixels]
    side = given.get(322)
    if side:
        corners = [(y, x) for y in range(0, height, side) for x in range(0, width, side)]
        parts = [p[y : y + side, x : x + side].tobytes() for p in planes for y, x in corners]
    else:
        parts = [p.tobytes() for p in planes]
    ends = np.cumsum([8, *map(len, parts)])
    bits = struct.pack(f"{order}{channels}H", *[8] * channels)
    places = struct.pack(f"{order}{len(parts)}I", *ends[:-1].tolist())
    sizes = struct.pack(f"{order}{len(parts)}I", *map(len, parts))
    at, many = int(ends[-1]), len(parts)
    after = at + len(bits)
    entries = [(tag, 3, 1, struct.pack(f"{order}HH", value, 0)) for tag, value in given.items()]

    def listed(tag: int, kind: int, count: int, values: bytes, place: int) -> None:
        fits = len(values) <= 4
        where = values.ljust(4, b"\0") if fits else struct.pack(f"{order}I", place)
        entries.append((tag, kind, count, where))

    listed(258, 3, channels, bits, at)
    listed(324 if side else 273, 4, many, places, after)
    listed(325 if side else 279, 4, many, sizes, after + len(places))
    directory = struct.pack(f"{order}H", len(entries))
    directory += b"".join(struct.pack(f"{order}HHI", *e[:3]) + e[3] for e in sorted(entries))
    mark = b"II" if order == "<" else b"MM"
    start = struct.pack(f"{order}2sHI", mark, 42, after + len(places) + len(sizes))
    return start + b"".join(parts) + bits + places + sizes + directory + bytes(4)


def _bmp(width: int, height: int, bits: int, kind: int, palette: bytes, pixels: bytes) -> bytes:
    start = 14 + 40 + len(palette)
    head = struct.pack("<2sIHHI", b"BM", start + len(pixels), 0, 0, start)
    head += struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, kind, len(pixels), 0, 0, 0, 0)
    return head + palette + pixels


def rle_bmp(grey: Any) -> bytes:
    """A BMP file with runs of equal bytes, and runs of different ones."""
    rows = b""
    for row in grey[::-1]:
        first = b"".join(bytes([2, int(v)]) for v in row[:20:2])
        rest = row[20:].tobytes()
        rows += first + bytes([0, len(rest)]) + rest + bytes(len(rest) % 2) + b"\0\0"
    palette = b"".join(bytes([k, k, k, 0]) for k in range(256))
    return _bmp(grey.shape[1], len(grey), 8, 1, palette, rows + b"\0\1")


def bmp_16bit(grey: Any) -> bytes:
    """A BMP file of 5 bits for each colour."""
    rows = [(r.astype("<u2") >> 3).tobytes() for r in grey[::-1]]
    return _bmp(grey.shape[1], len(grey), 16, 0, b"", b"".join(r + bytes(len(r) % 4) for r in rows))


def interlaced_png(grey: Any) -> bytes:
    """A PNG file whose rows come in seven passes."""
    import zlib

    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
              (1, 0, 2, 1))  # fmt: skip
    parts = [grey[y::dy, x::dx] for y, x, dy, dx in passes]
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for part in parts for row in part))
    head = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 1)
    chunks = _chunk(b"IHDR", head), _chunk(b"IDAT", data), _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def extended_webp(webp: bytes, exif: bytes) -> bytes:
    """A WebP file with the extended header and an EXIF chunk."""
    height, width = photo().shape[:2]
    head = struct.pack("<4sIB3x", b"VP8X", 10, 8)
    head += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBP" + head + webp[12:] + struct.pack("<4sI", b"EXIF", len(exif)) + exif
    return b"RIFF" + struct.pack("<I", len(body)) + body
