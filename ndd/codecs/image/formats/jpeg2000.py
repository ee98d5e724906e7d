"""JPEG 2000: the boxes and the main header of a file or of a raw codestream enter, its size leaves.

NOTE [JP2 headers are checked here] When OpenJPEG, inside nvimgcodec 0.9, rejects the main header of
a JP2 file, it writes through a pointer that its caller (OpenCV) seems not to have initialised:
valgrind finds an invalid write in opj_jp2_read_header, and mutated files crashed the process some
calls later. So we reject such headers first. Raw codestreams take another path, but tiles without
width divide by zero there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ..limits import MAX_CHANNELS
from .sound import Extents, UnsoundError, extents, require

RAW = b"\xff\x4f\xff\x51"  # SOC and SIZ
_SOT = 0xFF90
_TILE_PART = 14  # bytes of the shortest one: SOT and SOD


def check(data: memoryview) -> Extents:
    """Check the main header of a file, in boxes or not."""
    return _Header(data if bytes(data[:4]) == RAW else _codestream(data)).checked()


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
        require(head <= size <= len(data) - at, f"a box has the length {size}")
        at += size
    raise UnsoundError("there is no codestream")


class _Header:
    """Marker segments from SIZ to the first tile, by ISO 15444-1, annex A."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.components = 0
        self.extents = Extents(0, 0)

    def checked(self) -> Extents:
        require(bytes(self.data[:4]) == RAW, "the codestream does not begin with SOC and SIZ")
        at = 2
        seen: set[int] = set()
        while True:
            (marker,) = struct.unpack_from(">H", self.data, at)
            if marker == _SOT:
                break
            check = _SEGMENTS.get(marker)
            require(check is not None, f"the marker {marker:04x} is not known")
            assert check is not None
            (size,) = struct.unpack_from(">H", self.data, at + 2)
            body = self.data[at + 4 : at + 2 + size]
            require(2 <= size == len(body) + 2, f"the segment {marker:04x} ends early")
            require(marker != 0xFF51 or not seen, "SIZ occurs twice")
            check(self, body)
            seen.add(marker)
            at += 2 + size
        require({0xFF51, 0xFF52, 0xFF5C} <= seen, "SIZ, COD or QCD is missing")
        return self.extents

    def siz(self, body: memoryview) -> None:
        x1, y1, x0, y0, width, height, tx, ty, count = struct.unpack_from(">8IH", body, 2)
        self.components = count
        require(len(body) == 36 + 3 * count, "SIZ: its length")
        require(1 <= count <= MAX_CHANNELS, f"SIZ: {count} components")
        require(x0 < x1 < 2**31 and y0 < y1 < 2**31, "SIZ: the image is empty or too large")
        require(width > 0 and height > 0, "SIZ: tiles are empty")
        require(tx <= x0 < tx + width and ty <= y0 < ty + height, "SIZ: no tile at the origin")
        tiles = -(-(x1 - tx) // width) * -(-(y1 - ty) // height)
        require(tiles <= min(65535, len(self.data) // _TILE_PART), f"SIZ: {tiles} tiles")
        self.extents = extents("jpeg2k", y1 - y0, x1 - x0)
        for depth, dx, dy in struct.iter_unpack(">3B", body[36:]):
            require((depth & 0x7F) + 1 <= 31 and dx > 0 and dy > 0, "SIZ: a component")

    def cod(self, body: memoryview) -> None:
        style, _order, layers, mixing = struct.unpack_from(">BBHB", body)
        require(style <= 7 and layers > 0 and mixing <= 1, "COD: its values")
        self._coding(style, body[5:])

    def coc(self, body: memoryview) -> None:
        rest = self._component(body)
        require(rest[0] <= 1, "COC: its values")
        self._coding(rest[0], rest[1:])

    def _coding(self, style: int, body: memoryview) -> None:
        levels, width, height, flags, transform = struct.unpack_from(">5B", body)
        precincts = body[5:]
        require(levels <= 32 and transform <= 1 and flags <= 0x40, "coding style: its values")
        require(width <= 8 and height <= 8 and width + height <= 8, "coding style: code blocks")
        wanted = levels + 1 if style & 1 else 0
        require(len(precincts) == wanted, "coding style: its length")
        require(all(p >> 4 and p & 15 for p in precincts[1:]), "coding style: precincts")

    def qcd(self, body: memoryview) -> None:
        kind = body[0] & 0x1F
        size = len(body) - 1
        fits = {0: size >= 1, 1: size == 2, 2: size >= 2 and size % 2 == 0}
        require(fits.get(kind, False), "quantisation: its length")

    def qcc(self, body: memoryview) -> None:
        self.qcd(self._component(body))

    def _component(self, body: memoryview) -> memoryview:
        """The bytes after the number of a component."""
        wide = self.components > 256
        (number,) = struct.unpack_from(">H" if wide else ">B", body)
        require(number < self.components, f"component {number} of {self.components}")
        return body[2 if wide else 1 :]

    def rgn(self, body: memoryview) -> None:
        require(len(self._component(body)) == 2, "RGN: its length")

    def poc(self, body: memoryview) -> None:
        each = 9 if self.components > 256 else 7
        require(0 < len(body) <= 31 * each and len(body) % each == 0, "POC: its length")

    def tlm(self, body: memoryview) -> None:
        require(len(body) >= 2 and body[1] & 0x8F == 0 and body[1] >> 4 & 3 < 3, "TLM: its values")
        each = (2 + 2 * (body[1] >> 6 & 1)) + (body[1] >> 4 & 3)
        require((len(body) - 2) % each == 0, "TLM: its length")

    def crg(self, body: memoryview) -> None:
        require(len(body) == 4 * self.components, "CRG: its length")

    def anything(self, body: memoryview) -> None:
        require(len(body) >= 2, "a segment is empty")


_SEGMENTS: dict[int, Callable[[_Header, memoryview], None]] = {
    0xFF50: _Header.anything,  # CAP
    0xFF51: _Header.siz, 0xFF52: _Header.cod, 0xFF53: _Header.coc,
    0xFF55: _Header.tlm, 0xFF5C: _Header.qcd, 0xFF5D: _Header.qcc, 0xFF5E: _Header.rgn,
    0xFF5F: _Header.poc, 0xFF63: _Header.crg, 0xFF64: _Header.anything,  # COM
}  # fmt: skip
