"""Boxes of an MP4 file that claim more frames than the file can have are found before FFmpeg, which
allocates 24 bytes for each of them, believes them."""

from __future__ import annotations

from ...fusion.graph.shapes import Array

_CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf")
_MAX_BOXES = 1 << 16


def check_claims(data: Array) -> None:
    """Refuse an MP4 file whose tables of samples are longer than the file."""
    if data[4:8].tobytes() not in (b"ftyp", b"moov", b"free", b"mdat", b"wide", b"skip", b"styp"):
        return
    pending, seen = [(0, data.size)], 0
    while pending:
        at, end = pending.pop()
        while at + 8 <= end and seen < _MAX_BOXES:
            seen += 1
            size, kind, header = _box(data, at, end)
            if size < header:
                break
            if kind in _CONTAINERS:
                pending.append((at + header, min(at + size, end)))
            elif kind in (b"stsz", b"trun"):
                _check_count(data, at + header, kind)
            at += size


def _box(data: Array, at: int, end: int) -> tuple[int, bytes, int]:
    """Size and name of a box, and the size of its header."""
    size, kind = _number(data, at, 4), data[at + 4 : at + 8].tobytes()
    if size == 1:
        return _number(data, at + 8, 8), kind, 16
    return (size or end - at), kind, 8


def _check_count(data: Array, at: int, kind: bytes) -> None:
    if kind == b"stsz":
        each, count = _number(data, at + 4, 4), _number(data, at + 8, 4)
    else:
        flags = _number(data, at, 4) & 0xFFFFFF
        each, count = 1, _number(data, at + 4, 4)
        each = 4 * bin(flags & 0xF00).count("1") or 1
    if count * (each or 4) > data.size:
        raise ValueError(f"the header tells {count} frames, the file has {data.size} bytes")


def _number(data: Array, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size].tobytes(), "big")
