"""Where the numbers of a picture file lie: lengths, counts, offsets and sizes, by format.

A mutation that hits one of these fields gets past more checks than one that hits any byte. A file
may be damaged already: a walk ends where it no longer makes sense.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Field(NamedTuple):
    """An unsigned number in a file."""

    at: int
    size: int  # bytes
    order: str  # ">" or "<"


def fields_of(name: str, data: bytes) -> list[Field]:
    """The fields of a file; its format is the first part of its name."""
    walk = _WALKS[name.partition("_")[0]]
    found = []
    try:
        for field in walk(data):
            if field.at + field.size <= len(data):
                found.append(field)
            if len(found) > 400:
                break
    except (struct.error, IndexError):
        pass
    return found


def _run(at: int, sizes: str, order: str) -> Iterator[Field]:
    """Fields that follow each other; their sizes as digits."""
    for size in map(int, sizes):
        yield Field(at, size, order)
        at += size


def _png(data: bytes) -> Iterator[Field]:
    at = 8
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        yield Field(at, 4, ">")
        if kind == b"IHDR":
            yield from _run(at + 8, "4411111", ">")
        at += 12 + size


def png_with_checksums(data: bytes) -> bytes:
    """The file with the checksum of every chunk made right."""
    out, at = bytearray(data), 8
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if at + 12 + size > len(data):
            break
        struct.pack_into(">I", out, at + 8 + size, zlib.crc32(data[at + 4 : at + 8 + size]))
        at += 12 + size
    return bytes(out)


def _jpeg(data: bytes, at: int = 2) -> Iterator[Field]:
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, (size,) = data[at + 1], struct.unpack_from(">H", data, at + 2)
        yield from _run(at + 1, "12", ">")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            yield from _run(at + 4, "1221" + "111" * data[at + 9], ">")
        elif marker == 0xDA:
            yield from _run(at + 4, "1" + "11" * data[at + 4] + "111", ">")
            return
        elif marker in (0xC4, 0xDB, 0xDD):
            yield from _run(at + 4, "1" * min(size - 2, 20), ">")
        at += 2 + size


def _bmp(data: bytes) -> Iterator[Field]:
    yield from _run(2, "4224" + "444224444444", "<")


def _tiff(data: bytes) -> Iterator[Field]:
    order = "<" if data[:2] == b"II" else ">"
    yield Field(4, 4, order)
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    yield Field(at, 2, order)
    (count,) = struct.unpack_from(f"{order}H", data, at)
    for entry in range(at + 2, at + 2 + 12 * min(count, 40), 12):
        tag, kind, values, where = struct.unpack_from(f"{order}HHII", data, entry)
        yield from _run(entry, "2244", order)
        width = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1}.get(kind, 4)
        if width * values > 4:  # the values are elsewhere
            each = min(width, 4)
            yield from _run(where, str(each) * min(values, 16), order)
        if tag == 347 and width * values > 4:  # tables of JPEG
            yield from _jpeg(data, where + 2)
        if tag in (273, 324) and values == 1:
            if data[where : where + 2] == b"\xff\xd8":
                yield from _jpeg(data, where + 2)
            else:
                yield from _run(where, "1" * 8, order)
    yield Field(at + 2 + 12 * count, 4, order)


def _webp(data: bytes) -> Iterator[Field]:
    yield Field(4, 4, "<")
    at = 12
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        yield Field(at + 4, 4, "<")
        inside = {
            b"VP8X": "133",
            b"VP8 ": "111111122",
            b"VP8L": "14",
            b"ALPH": "1",
            b"ANMF": "33333",
        }
        yield from (f for f in _run(at + 8, inside.get(kind, ""), "<"))
        at += 8 + size + size % 2


def _jp2(data: bytes) -> Iterator[Field]:
    if data[:4] == b"\xff\x4f\xff\x51":
        yield from _codestream(data, 2)
        return
    at, stop = 0, len(data)
    while at + 8 <= stop:
        size, kind = struct.unpack_from(">I4s", data, at)
        yield Field(at, 4, ">")
        if kind == b"jp2h":
            at += 8
            continue
        if kind == b"ihdr":
            yield from _run(at + 8, "442111", ">")
        elif kind == b"colr":
            yield from _run(at + 8, "1114", ">")
        elif kind == b"jp2c":
            yield from _codestream(data, at + 10)
            return
        at += max(size, 8)


def _codestream(data: bytes, at: int) -> Iterator[Field]:
    while at + 4 <= len(data):
        marker, size = struct.unpack_from(">HH", data, at)
        yield from _run(at, "22", ">")
        body = at + 4
        if marker == 0xFF51:
            (count,) = struct.unpack_from(">H", data, body + 34)
            yield from _run(body, "2" + "4" * 8 + "2" + "111" * min(count, 8), ">")
        elif marker == 0xFF90:
            yield from _run(body, "2411", ">")
        elif marker == 0xFF93:
            return
        else:
            yield from _run(body, "1" * min(size - 2, 14), ">")
        at += 2 + size


def _pnm(data: bytes) -> Iterator[Field]:
    """Numbers are text; a field is one digit of the header."""
    for digit in re.finditer(rb"[0-9]", data[:24]):
        yield Field(digit.start(), 1, "<")


_WALKS: dict[str, Callable[[bytes], Iterator[Field]]] = {
    "png": _png, "jpeg": _jpeg, "bmp": _bmp, "tiff": _tiff, "webp": _webp, "jp2": _jp2,
    "pnm": _pnm,
}  # fmt: skip
