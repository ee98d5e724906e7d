"""RecordIO files: files and an index enter, rows of (offset, length) leave; also their parsing.

A record is one part or several. A part is a magic number, a word with the kind of part and its
length, and its data, padded to a multiple of four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ...fusion.graph.shapes import Array
from ...tools.outputs import write_output
from .byte_files import open_bytes
from .columns import Columns
from .remote import RemoteOptions
from .tfrecord_file import numbers

MAGIC = 0xCED7230A
_MAGIC_BYTES = np.frombuffer(struct.pack("<I", MAGIC), np.uint8)
_WHOLE, _FIRST, _LAST = 0, 1, 3  # kinds of parts; 2 is one between the first and the last
_part = struct.Struct("<II")
_header = struct.Struct("<IfQQ")  # flag, label, two numbers


def read_indexes(
    paths: Sequence[str], indexes: Sequence[str], remote: RemoteOptions
) -> list[Array]:
    """Rows for each file. One index may be for all files, whose offsets go on from file to file."""
    sizes = [open_bytes(path, remote).size for path in paths]
    if len(indexes) == len(paths):
        return [
            _rows(_offsets(index, remote), size, index)
            for index, size in zip(indexes, sizes, strict=True)
        ]
    offsets = _offsets(indexes[0], remote)
    found, begin = [], 0
    for size in sizes:
        own = offsets[(offsets >= begin) & (offsets < begin + size)] - begin
        found.append(_rows(own, size, indexes[0]))
        begin += size
    if len(offsets) and offsets[-1] >= begin:
        raise ValueError(
            f"index {indexes[0]!r} names offset {offsets[-1]}, but all files have {begin} bytes"
        )
    return found


def _offsets(index: str, remote: RemoteOptions) -> Array:
    found = np.sort(numbers(index, 2, remote)[:, 1])
    if len(found) == 0:
        raise ValueError(f"index {index!r} names no records")
    if found[0] < 0:
        raise ValueError(f"index {index!r} names offset {found[0]}")
    return found


def _rows(offsets: Array, size: int, index: str) -> Array:
    """A record ends where the next one begins."""
    if len(offsets) and offsets[-1] >= size:
        raise ValueError(
            f"index {index!r} names offset {offsets[-1]}, but the file has {size} bytes"
        )
    return np.stack([offsets, np.diff(offsets, append=size)], 1)


def scan(path: str, remote: RemoteOptions | None = None) -> Array:
    """The records of a file, found by their lengths."""
    file = open_bytes(path, remote)
    found, at, begin = Columns(2), 0, 0
    word = bytearray(_part.size)
    while at < file.size:
        if file.read_into(memoryview(word), at) < _part.size:
            raise _damaged(path, at, "the file ends inside of a part's head")
        magic, length = _part.unpack(word)
        kind, length = length >> 29, length & (1 << 29) - 1
        if magic != MAGIC:
            raise _damaged(path, at, "no magic number")
        if length > file.size - at - _part.size:
            raise _damaged(path, at, f"a part of {length} bytes, but fewer are left")
        at += _part.size + -(-length // 4) * 4
        if kind in (_WHOLE, _LAST):
            found.row(begin, min(at, file.size) - begin)
            begin = at
    return np.stack(found.finish(), 1) if len(found) else np.empty((0, 2), np.int64)


def _damaged(path: str, offset: int, what: str) -> ValueError:
    return ValueError(f"{path!r} is no RecordIO file, or damaged: at offset {offset}: {what}")


def payload(content: Array) -> Array:
    """The data of a record: a part of its bytes, or a copy if it has several parts."""
    parts: list[Array] = []
    at = 0
    while True:
        if len(content) - at < _part.size:
            raise ValueError(
                f"it ends after {len(content) - at} bytes of a part's head at byte {at}"
            )
        magic, length = _part.unpack_from(content.data, at)
        kind, length = length >> 29, length & (1 << 29) - 1
        if magic != MAGIC:
            raise ValueError(f"no magic number at byte {at}")
        begin = at + _part.size
        if length > len(content) - begin:
            raise ValueError(
                f"a part of {length} bytes at byte {at}, but {len(content) - begin} are left"
            )
        if (kind in (_WHOLE, _FIRST)) != (not parts) or kind > _LAST:
            raise ValueError(f"a part of kind {kind} at byte {at} does not belong there")
        if parts:
            parts.append(_MAGIC_BYTES)  # a record is cut where it holds the magic number
        parts.append(content[begin : begin + length])
        if kind in (_WHOLE, _LAST):
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        at = begin + -(-length // 4) * 4


def split(data: Array) -> tuple[Array, Array]:
    """The picture and the labels of a record."""
    if len(data) < _header.size:
        raise ValueError(
            f"its data has {len(data)} bytes, fewer than the {_header.size} of its header"
        )
    flag, label, _, _ = _header.unpack_from(data.data)
    if flag == 0:
        return data[_header.size :], np.array([label], np.float32)
    if flag > (len(data) - _header.size) // 4:
        raise ValueError(f"{flag} labels in {len(data) - _header.size} bytes of data")
    end = _header.size + 4 * flag
    return data[end:], np.frombuffer(data[_header.size : end].tobytes(), "<f4").astype(np.float32)


def write_index(path: str, index_path: str) -> int:
    """Write the index of a file; returns the number of records."""
    rows = scan(path)
    lines = (f"{k}\t{offset}\n" for k, offset in enumerate(rows[:, 0].tolist()))
    write_output(index_path, "".join(lines))
    return len(rows)
