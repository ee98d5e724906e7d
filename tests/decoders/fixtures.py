"""Small encoded images of every kind, made by encoders or written by hand."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import pytest

from ndd.codecs.image import decode as codec

Array = np.ndarray[Any, Any]
HEIGHT, WIDTH = 37, 53


def photo(height: int = HEIGHT, width: int = WIDTH, seed: int = 0) -> Array:
    """An image of waves of different lengths, and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = [128 + 100 * np.sin(x / 7 + c) * np.cos(y / (5 + c)) for c in range(3)]
    image = np.stack(waves, axis=-1) + rng.normal(0, 6, (height, width, 3))
    return image.clip(0, 255).astype(np.uint8)


def encoded(kind: str, image: Array, *params: int) -> bytes:
    """Encode with OpenCV, which expects channels in BGR order."""
    done, data = cv2.imencode(kind, np.ascontiguousarray(image), list(params))
    assert done
    return data.tobytes()


# -- by hand -------------------------------------------------------------------------------------


def exif_block(orientation: int, order: str = "<") -> bytes:
    """EXIF data with an orientation and nothing else."""
    mark = b"II" if order == "<" else b"MM"
    entry = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(f"{order}HIH", 42, 8, 1) + entry + bytes(4)


def jpeg_segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def with_exif(jpeg: bytes, orientation: int, order: str = "<") -> bytes:
    """A JPEG file with its orientation in the usual place."""
    block = jpeg_segment(0xE1, b"Exif\0\0" + exif_block(orientation, order))
    return jpeg[:2] + block + jpeg[2:]


def _segments(jpeg: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Split a JPEG file into its headers and the coded pixels after them."""
    at, found = 2, []
    while True:
        marker, size = jpeg[at + 1], struct.unpack_from(">H", jpeg, at + 2)[0]
        found.append((marker, jpeg[at + 4 : at + 2 + size]))
        at += 2 + size
        if marker == 0xDA:
            return found, jpeg[at:-2]


def jpeg_of_planes(planes: list[Array], transform: int) -> bytes:
    """A JPEG file of any number of channels, each a grey scan; `transform` is that of Adobe's marker."""
    parts = [_segments(encoded(".jpg", p, cv2.IMWRITE_JPEG_QUALITY, 90)) for p in planes]
    out = b"\xff\xd8" + jpeg_segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, transform))
    out += b"".join(jpeg_segment(m, d) for m, d in parts[0][0] if m in (0xDB, 0xC4))
    components = b"".join(bytes([c + 1, 0x11, 0]) for c in range(len(planes)))
    size = struct.pack(">BHHB", 8, *planes[0].shape, len(planes))
    out += jpeg_segment(0xC0, size + components)
    for c, (_, pixels) in enumerate(parts):
        out += jpeg_segment(0xDA, bytes([1, c + 1, 0, 0, 63, 0])) + pixels
    return out + b"\xff\xd9"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(rows: list[bytes], width: int, depth: int, colour: int, extra: bytes = b"") -> bytes:
    """A PNG file of any colour type."""
    size = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + r for r in rows))
    parts = _chunk(b"IHDR", size), extra, _chunk(b"IDAT", pixels), _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def turned_tiff(tiff: bytes, orientation: int) -> bytes:
    """A TIFF file with another orientation, in a new directory at its end."""
    (at,) = struct.unpack_from("<I", tiff, 4)
    (count,) = struct.unpack_from("<H", tiff, at)
    entries = {}
    for k in range(count):
        entry = tiff[at + 2 + 12 * k : at + 14 + 12 * k]
        entries[struct.unpack_from("<H", entry)[0]] = entry
    entries[0x0112] = struct.pack("<HHII", 0x0112, 3, 1, orientation)
    tiff += bytes(len(tiff) % 2)
    directory = struct.pack("<H", len(entries)) + b"".join(entries[t] for t in sorted(entries))
    return tiff[:4] + struct.pack("<I", len(tiff)) + tiff[8:] + directory + bytes(4)


# -- all of them ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def files() -> dict[str, bytes]:
    """One small file of every kind, by name; the name begins with the format."""
    rgb = photo()
    bgr, grey = rgb[..., ::-1], np.ascontiguousarray(rgb[..., 1])
    alpha = np.concatenate([bgr, rgb[..., :1]], axis=-1)
    deep = rgb.astype(np.uint16) * 257 + 3
    deep_alpha = np.concatenate([deep, 65535 - deep[..., :1]], axis=-1)
    planes = [np.ascontiguousarray(rgb[..., c]) for c in range(3)]
    black = 255 - grey // 3
    quality = (cv2.IMWRITE_JPEG_QUALITY, 85)
    sampling = cv2.IMWRITE_JPEG_SAMPLING_FACTOR
    found = {"jpeg": encoded(".jpg", bgr, *quality)}
    factors = {"444": 0x111111, "422": 0x211111, "440": 0x121111, "411": 0x411111}
    for name, factor in factors.items():
        found[f"jpeg_{name}"] = encoded(".jpg", bgr, *quality, sampling, factor)
    found["jpeg_progressive"] = encoded(".jpg", bgr, *quality, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    found["jpeg_restart"] = encoded(".jpg", bgr, *quality, cv2.IMWRITE_JPEG_RST_INTERVAL, 2)
    found["jpeg_grey"] = encoded(".jpg", grey, *quality)
    found["jpeg_rgb"] = jpeg_of_planes(planes, 0)
    found["jpeg_cmyk"] = jpeg_of_planes([*planes, black], 0)
    found["jpeg_ycck"] = jpeg_of_planes([*planes, black], 2)
    for orientation in range(1, 9):
        found[f"jpeg_exif{orientation}"] = with_exif(found["jpeg"], orientation)
    found["jpeg_exif6_big"] = with_exif(found["jpeg"], 6, ">")

    palette = np.random.default_rng(1).integers(0, 256, (32, 3), dtype=np.uint8).tobytes()
    indices = [(r // 8).tobytes() for r in grey]
    see_through = _chunk(b"tRNS", bytes(range(0, 256, 8)))
    both = np.stack([grey, 255 - grey], axis=-1)
    deep_both = np.stack([deep[..., 0], 65535 - deep[..., 0]], axis=-1).astype(">u2")
    found |= {
        "png": encoded(".png", bgr),
        "png_grey": encoded(".png", grey),
        "png_alpha": encoded(".png", alpha),
        "png_16": encoded(".png", deep),
        "png_16_grey": encoded(".png", deep[..., 0]),
        "png_16_alpha": encoded(".png", deep_alpha),
        "png_grey_alpha": png([r.tobytes() for r in both], WIDTH, 8, 4),
        "png_16_grey_alpha": png([r.tobytes() for r in deep_both], WIDTH, 16, 4),
        "png_palette": png(indices, WIDTH, 8, 3, _chunk(b"PLTE", palette)),
        "png_palette_alpha": png(indices, WIDTH, 8, 3, _chunk(b"PLTE", palette) + see_through),
        "png_1bit": png([np.packbits(r > 128).tobytes() for r in grey], WIDTH, 1, 0),
        "png_exif6": png([r.tobytes() for r in rgb], WIDTH, 8, 2, _chunk(b"eXIf", exif_block(6))),
        "bmp": encoded(".bmp", bgr),
        "bmp_grey": encoded(".bmp", grey),
        "bmp_alpha": encoded(".bmp", alpha),
        "tiff": encoded(".tiff", bgr),
        "tiff_plain": encoded(".tiff", bgr, cv2.IMWRITE_TIFF_COMPRESSION, 1),
        "tiff_deflate": encoded(".tiff", bgr, cv2.IMWRITE_TIFF_COMPRESSION, 8),
        "tiff_grey": encoded(".tiff", grey),
        "tiff_16": encoded(".tiff", deep),
        "tiff_float": encoded(".tiff", (bgr / 255).astype(np.float32)),
        "webp": encoded(".webp", bgr, cv2.IMWRITE_WEBP_QUALITY, 80),
        "webp_lossless": encoded(".webp", bgr, cv2.IMWRITE_WEBP_QUALITY, 101),
        "webp_alpha": encoded(".webp", alpha, cv2.IMWRITE_WEBP_QUALITY, 101),
        "jp2": encoded(".jp2", bgr),
        "jp2_grey": encoded(".jp2", grey),
        "jp2_16": encoded(".jp2", deep),
        "pnm": encoded(".ppm", bgr),
        "pnm_grey": encoded(".pgm", grey),
        "pnm_1bit": encoded(".pbm", (grey > 128).astype(np.uint8)),
        "pnm_16": encoded(".ppm", deep),
        "pnm_text": b"P3 2 2 255\n" + b" ".join(b"%d" % (20 * k) for k in range(12)) + b"\n",
    }
    for orientation in (3, 6):
        found[f"tiff_exif{orientation}"] = turned_tiff(found["tiff_plain"], orientation)
    return found


def as_bytes(data: bytes) -> Array:
    """The bytes of a file as an array."""
    return np.frombuffer(data, np.uint8)


def areas_decoded(patch: pytest.MonkeyPatch) -> list[int]:
    """A list that collects the areas of all images decoded from now on, in Python or natively."""
    areas: list[int] = []
    decode, native = codec._decoded, codec.Images.native

    def spy(*arguments: Any, **named: Any) -> Any:
        image = decode(*arguments, **named)
        areas.append(image.height * image.width)
        return image

    def spy_native(*arguments: Any) -> Any:
        found = native(*arguments)
        if found is not None:
            pictures = found.rows[found.rows["length"] > 0]
            areas.extend((pictures["height"] * pictures["width"]).tolist())
        return found

    patch.setattr(codec, "_decoded", spy)
    patch.setattr(codec.Images, "native", spy_native)
    return areas
