"""TIFF and BigTIFF: the first directory of a file enters, its size leaves.

A decoder that finds fewer strips or tiles than the picture needs, or smaller pictures in them,
leaves the rest of its memory as it was: with pixels of pictures that it decoded before.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ....fusion.graph.shapes import Array
from ..limits import MAX_CHANNELS, check_pixels
from . import jpeg
from .sound import Extents, extents, require

_MAX_ENTRIES = 4096
_TYPES = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}  # unsigned integers, by their numbers in files
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4,
          16: 8, 17: 8, 18: 8}  # fmt: skip
_BITS = (1, 2, 4, 8, 16, 32, 64)
_SEPARATE = 2  # every channel has its own strips or tiles
_PALETTE, _YCBCR = 3, 6  # kinds of colour


class _Tag(IntEnum):
    width = 256
    height = 257
    bits = 258
    compression = 259
    colour = 262
    strip_offsets = 273
    channels = 277
    strip_rows = 278
    strip_sizes = 279
    planes = 284
    palette = 320
    tile_width = 322
    tile_height = 323
    tile_offsets = 324
    tile_sizes = 325
    jpeg_tables = 347


class _Compression(IntEnum):
    """The kinds that nvimgcodec decodes."""

    none = 1
    huffman = 2
    fax3 = 3
    fax4 = 4
    lzw = 5
    jpeg = 7
    deflate = 8
    packbits = 32773
    old_deflate = 32946


class _Grid(NamedTuple):
    """The strips or tiles of a picture."""

    height: int  # of one of them
    width: int
    offsets: Array
    sizes: Array


def check(data: memoryview) -> Extents:
    """Check the first directory, and that strips or tiles lie in the file and fill the picture."""
    directory = _Directory(data)
    found = extents("tiff", directory.one(_Tag.height), directory.one(_Tag.width))
    channels = directory.one(_Tag.channels, 1)
    require(1 <= channels <= MAX_CHANNELS, f"{channels} channels")
    bits = set(directory.values(_Tag.bits, 1).tolist())
    require(len(bits) == 1 and bits <= set(_BITS), f"{sorted(bits)} bits in a value")
    if directory.one(_Tag.colour, 0) == _PALETTE:
        colours = len(directory.values(_Tag.palette))
        require(colours == 3 << min(bits), f"a palette of {colours} values")
    planes = directory.one(_Tag.planes, 1)
    require(planes in (1, _SEPARATE), f"planes of kind {planes}")
    compression = directory.one(_Tag.compression, 1)
    require(compression in set(_Compression), f"compression {compression} is not supported")
    grid = _grid(directory, found, channels if planes == _SEPARATE else 1)
    _check_inside(data, grid)
    inner = 1 if planes == _SEPARATE else channels
    if compression == _Compression.none and directory.one(_Tag.colour, 0) != _YCBCR:
        _check_plain(grid, found, inner * bits.pop())
    elif compression == _Compression.jpeg:
        _check_jpegs(data, grid, found, inner)
    return found


class _Directory:
    """The entries of the first directory: for each tag its type, its count and where they are."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        order = self.order = "<" if bytes(data[:2]) == b"II" else ">"
        (version,) = struct.unpack_from(f"{order}H", data, 2)
        self.is_big = version == 43
        if self.is_big:
            require(struct.unpack_from(f"{order}HH", data, 4) == (8, 0), "its header")
        word = "Q" if self.is_big else "I"
        (at,) = struct.unpack_from(f"{order}{word}", data, 8 if self.is_big else 4)
        (count,) = struct.unpack_from(f"{order}{'Q' if self.is_big else 'H'}", data, at)
        require(0 < count <= _MAX_ENTRIES, f"a directory of {count} entries")
        entry = struct.Struct(f"{order}HH{word}")
        inline, step = (8, 20) if self.is_big else (4, 12)
        self.entries: dict[int, tuple[int, int, int]] = {}
        at += 8 if self.is_big else 2
        for begin in range(at, at + count * step, step):
            tag, kind, length = entry.unpack_from(data, begin)
            place = begin + entry.size
            if length * _SIZES.get(kind, 1) > inline:
                (place,) = struct.unpack_from(f"{order}{word}", data, place)
            if tag in set(_Tag):
                require(tag not in self.entries, f"tag {tag} occurs twice")
                fits = place + length * _SIZES.get(kind, 1) <= len(data)
                require(fits and length > 0, f"the values of tag {tag} reach beyond the end")
            self.entries.setdefault(tag, (kind, length, place))

    def values(self, tag: int, default: int | None = None) -> Array:
        """The numbers of a tag."""
        if tag not in self.entries:
            require(default is not None, f"tag {tag} is missing")
            return np.array([default], np.uint64)
        kind, count, place = self.entries[tag]
        require(kind in _TYPES, f"tag {tag} is of type {kind}")
        dtype = np.dtype(self.order + _TYPES[kind])
        return np.frombuffer(self.data, dtype, count, place).astype(np.uint64)

    def one(self, tag: int, default: int | None = None) -> int:
        """The first number of a tag."""
        return int(self.values(tag, default)[0])


def _grid(directory: _Directory, picture: Extents, planes: int) -> _Grid:
    """The strips or tiles, as many as the picture needs."""
    is_tiled = _Tag.tile_width in directory.entries
    if is_tiled:
        height, width = directory.one(_Tag.tile_height), directory.one(_Tag.tile_width)
        whole = height % 16 == 0 and width % 16 == 0
        require(height > 0 and width > 0 and whole, f"tiles of {height}x{width}")
        check_pixels("tiff", height, width)
        places, sizes = _Tag.tile_offsets, _Tag.tile_sizes
    else:
        height = min(directory.one(_Tag.strip_rows, picture.height), picture.height)
        width = picture.width
        require(height > 0, "strips without rows")
        places, sizes = _Tag.strip_offsets, _Tag.strip_sizes
    needed = -(-picture.height // height) * -(-picture.width // width) * planes
    grid = _Grid(height, width, directory.values(places), directory.values(sizes))
    require(len(grid.offsets) == len(grid.sizes) == needed, f"it needs {needed} strips or tiles")
    return grid


def _check_inside(data: memoryview, grid: _Grid) -> None:
    largest = np.uint64(len(data))
    inside = (grid.sizes > 0) & (grid.sizes <= largest) & (grid.offsets <= largest)
    inside &= grid.offsets + grid.sizes <= largest
    require(bool(inside.all()), "a strip or tile reaches beyond the end")


def _rows(grid: _Grid, picture: Extents) -> Array:
    """The rows of each strip or tile; those of tiles are always whole."""
    count = len(grid.offsets)
    rows = np.full(count, grid.height, np.int64)
    if grid.width == picture.width:
        per_plane = -(-picture.height // grid.height)
        last = picture.height - (per_plane - 1) * grid.height
        rows[per_plane - 1 :: per_plane] = last
    return rows


def _check_plain(grid: _Grid, picture: Extents, bits: int) -> None:
    """Uncompressed strips hold all of their rows."""
    needed = _rows(grid, picture) * ((grid.width * bits + 7) // 8)
    require(bool((grid.sizes.astype(np.int64) >= needed).all()), "a strip or tile is too short")


def _check_jpegs(data: memoryview, grid: _Grid, picture: Extents, channels: int) -> None:
    """JPEG pictures in strips or tiles are as large as these, and have their channels."""
    rows_of = _rows(grid, picture).tolist()
    places = zip(grid.offsets.tolist(), grid.sizes.tolist(), rows_of, strict=True)
    for offset, size, rows in places:
        part = data[offset : offset + size]
        require(bytes(part[:2]) == b"\xff\xd8", "a strip or tile is not JPEG")
        frame = jpeg.frame_of(part)
        same = frame.width == grid.width and rows <= frame.height <= grid.height
        require(same, f"JPEG of {frame.height}x{frame.width} in a strip or tile of {rows} rows")
        require(frame.channels == channels, f"JPEG of {frame.channels} channels, not {channels}")
