"""Pages of Ogg Vorbis files that hold the headers: bytes enter, an error leaves if some are lost.

libsndfile refuses a file that lacks one of its three headers, but loses 5 KB of memory each time.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from ..fusion.graph.shapes import Array

_HEAD = 27  # bytes of a page before the table of its segments
_HEADERS = 3  # packets before the sound
_MAX_MAGICS = 64  # places that are looked at; a damaged file may have any number of them
_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class _Page(NamedTuple):
    begin: int
    end: int
    serial: bytes  # of its stream
    number: int  # in its stream
    packets: int  # that end in it


def check_vorbis_headers(data: Array) -> None:
    """Refuse an Ogg Vorbis file if a page with one of its headers is damaged or missing.

    Like libsndfile, it takes no notice of anything that is no page with a right checksum. Whatever
    is unusual, or no Vorbis at all, is left to libsndfile.
    """
    head = data[: _HEAD + 8].tobytes()
    if head[:4] != b"OggS" or head[_HEAD:] != b"\x1e\x01vorbis":
        return
    first = _page(data, 0)
    if first is None:
        return  # libsndfile loses nothing
    packets, number, at = first.packets, 0, first.end
    looked = 0
    while packets < _HEADERS:
        found = None
        while found is None:
            at = _find_magic(data, at)
            looked += 1
            if at < 0:
                raise ValueError("it ends before its headers do")
            if looked > _MAX_MAGICS:
                return
            found = _page(data, at)
            at += 1
        if found.serial != first.serial:
            return
        number += 1
        if found.number != number:
            raise ValueError(f"page {number} is damaged, which has headers")
        packets, at = packets + found.packets, found.end


def _find_magic(data: Array, at: int) -> int:
    """The next place where a page may begin; -1 if there is none."""
    step = 1 << 16
    while at < data.size:
        found = data[at : at + step + 3].tobytes().find(b"OggS")
        if found >= 0:
            return at + found
        at += step
    return -1


def _page(data: Array, at: int) -> _Page | None:
    """The page that begins at a place, if its checksum is right."""
    head = data[at : at + _HEAD].tobytes()
    if len(head) < _HEAD:
        return None
    sizes = data[at + _HEAD : at + _HEAD + head[26]].tobytes()
    end = at + _HEAD + len(sizes) + sum(sizes)
    if len(sizes) < head[26] or end > data.size:
        return None
    page = data[at:end].tobytes()
    if checksum(page[:22] + bytes(4) + page[26:]) != int.from_bytes(head[22:26], "little"):
        return None
    ended = sum(size < 255 for size in sizes)
    return _Page(at, end, head[14:18], int.from_bytes(head[18:22], "little"), ended)


def checksum(page: bytes) -> int:
    """The CRC-32 of Ogg: that of zlib with bits in the other order, and no complements."""
    value = zlib.crc32(page.translate(_TURNED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{value:032b}"[::-1], 2)
