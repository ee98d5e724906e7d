"""Checks the main header of a JPEG 2000 file: its bytes enter, a problem or None leaves.

NOTE [JP2 headers are checked here] When OpenJPEG, inside nvimgcodec 0.9, rejects the main header of
a JP2 file, it writes through a pointer that its caller (OpenCV) seems not to have initialised:
valgrind finds an invalid write in opj_jp2_read_header, and mutated files crashed the process some
calls later. So we reject such headers first. For raw codestreams, without JP2 boxes, OpenJPEG
takes another path, which writes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

_SOC_SIZ = b"\xff\x4f\xff\x51"
_SOT = 0xFF90
_MAX_COMPONENTS = 16384


def problem_of(data: memoryview) -> str | None:
    """The problem of a JP2 file's main header; None if it is sound, or if the file has no boxes."""
    if bytes(data[:4]) == _SOC_SIZ:
        return None
    try:
        return _Header(_codestream(data)).problem()
    except (struct.error, IndexError):
        return "the main header ends early"
    except _UnsoundError as error:
        return str(error)


class _UnsoundError(Exception):
    pass


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise _UnsoundError(what)


def _codestream(data: memoryview) -> memoryview:
    """The contents of the box jp2c."""
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        head = 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, at + 8)
            head = 16
        if kind == b"jp2c":
            return data[at + head :]
        _require(size >= head, f"a box has the length {size}")
        at += size
    raise _UnsoundError("there is no codestream")


class _Header:
    """Marker segments from SIZ to the first tile, by ISO 15444-1, annex A."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.components = 0

    def problem(self) -> str | None:
        _require(bytes(self.data[:4]) == _SOC_SIZ, "the codestream does not begin with SOC and SIZ")
        at = 2
        seen: set[int] = set()
        while True:
            (marker,) = struct.unpack_from(">H", self.data, at)
            if marker == _SOT:
                break
            check = _SEGMENTS.get(marker)
            _require(check is not None, f"the marker {marker:04x} is not known")
            assert check is not None
            (size,) = struct.unpack_from(">H", self.data, at + 2)
            body = self.data[at + 4 : at + 2 + size]
            _require(2 <= size == len(body) + 2, f"the segment {marker:04x} ends early")
            _require(marker != 0xFF51 or not seen, "SIZ occurs twice")
            check(self, body)
            seen.add(marker)
            at += 2 + size
        _require({0xFF51, 0xFF52, 0xFF5C} <= seen, "SIZ, COD or QCD is missing")
        return None

    def siz(self, body: memoryview) -> None:
        x1, y1, x0, y0, width, height, tx, ty, count = struct.unpack_from(">8IH", body, 2)
        self.components = count
        _require(1 <= count <= _MAX_COMPONENTS and len(body) == 36 + 3 * count, "SIZ: its length")
        _require(x0 < x1 < 2**31 and y0 < y1 < 2**31, "SIZ: the image is empty or too large")
        _require(width > 0 and height > 0, "SIZ: tiles are empty")
        _require(tx <= x0 < tx + width and ty <= y0 < ty + height, "SIZ: no tile at the origin")
        tiles = -(-(x1 - tx) // width) * -(-(y1 - ty) // height)
        _require(tiles <= 65535, f"SIZ: {tiles} tiles")
        for depth, dx, dy in struct.iter_unpack(">3B", body[36:]):
            _require((depth & 0x7F) + 1 <= 31 and dx > 0 and dy > 0, "SIZ: a component")

    def cod(self, body: memoryview) -> None:
        style, _order, layers, mixing = struct.unpack_from(">BBHB", body)
        _require(style <= 7 and layers > 0 and mixing <= 1, "COD: its values")
        self._coding(style, body[5:])

    def coc(self, body: memoryview) -> None:
        rest = self._component(body)
        _require(rest[0] <= 1, "COC: its values")
        self._coding(rest[0], rest[1:])

    def _coding(self, style: int, body: memoryview) -> None:
        levels, width, height, flags, transform = struct.unpack_from(">5B", body)
        precincts = body[5:]
        _require(levels <= 32 and transform <= 1 and flags <= 0x40, "coding style: its values")
        _require(width <= 8 and height <= 8 and width + height <= 8, "coding style: code blocks")
        wanted = levels + 1 if style & 1 else 0
        _require(len(precincts) == wanted, "coding style: its length")
        _require(all(p >> 4 and p & 15 for p in precincts[1:]), "coding style: precincts")

    def qcd(self, body: memoryview) -> None:
        kind = body[0] & 0x1F
        size = len(body) - 1
        fits = {0: size >= 1, 1: size == 2, 2: size >= 2 and size % 2 == 0}
        _require(fits.get(kind, False), "quantisation: its length")

    def qcc(self, body: memoryview) -> None:
        self.qcd(self._component(body))

    def _component(self, body: memoryview) -> memoryview:
        """The bytes after the number of a component."""
        wide = self.components > 256
        (number,) = struct.unpack_from(">H" if wide else ">B", body)
        _require(number < self.components, f"component {number} of {self.components}")
        return body[2 if wide else 1 :]

    def rgn(self, body: memoryview) -> None:
        _require(len(self._component(body)) == 2, "RGN: its length")

    def poc(self, body: memoryview) -> None:
        each = 9 if self.components > 256 else 7
        _require(0 < len(body) <= 31 * each and len(body) % each == 0, "POC: its length")

    def tlm(self, body: memoryview) -> None:
        _require(len(body) >= 2 and body[1] & 0x8F == 0 and body[1] >> 4 & 3 < 3, "TLM: its values")
        each = (2 + 2 * (body[1] >> 6 & 1)) + (body[1] >> 4 & 3)
        _require((len(body) - 2) % each == 0, "TLM: its length")

    def crg(self, body: memoryview) -> None:
        _require(len(body) == 4 * self.components, "CRG: its length")

    def anything(self, body: memoryview) -> None:
        _require(len(body) >= 2, "a segment is empty")


_SEGMENTS: dict[int, Callable[[_Header, memoryview], None]] = {
    0xFF50: _Header.anything,  # CAP
    0xFF51: _Header.siz, 0xFF52: _Header.cod, 0xFF53: _Header.coc,
    0xFF55: _Header.tlm, 0xFF5C: _Header.qcd, 0xFF5D: _Header.qcc, 0xFF5E: _Header.rgn,
    0xFF5F: _Header.poc, 0xFF63: _Header.crg, 0xFF64: _Header.anything,  # COM
}  # fmt: skip
