"""TFRecord files and their indexes: a file enters, rows of (offset, length) of its records leave.

A record is its length (8 bytes), a checksum of the length (4), its data, and a checksum of that
(4).
An index has a line for each record: offset and length of all of that.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from ...fusion.graph.shapes import Array
from ...tools.outputs import write_output
from . import crc32c
from .byte_files import ByteFile, open_bytes, read_whole
from .columns import Columns

if TYPE_CHECKING:
    from .remote import RemoteOptions

HEAD_BYTES, TAIL_BYTES = 12, 4
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
# Small records are found in windows of this size, so that 10⁶ of them do not need 10⁶ reads.
_WINDOW_BYTES = 1 << 16
_head = struct.Struct("<QI")


def scan(path: str, remote: RemoteOptions | None = None) -> Array:
    """The records of a file, found by their lengths."""
    file = open_bytes(path, remote)
    found, checks = Columns(2), Columns(1)
    window, begin, at, last = memoryview(b""), 0, 0, 0
    buffer = bytearray(_WINDOW_BYTES)
    while at < file.size:
        if at + HEAD_BYTES > begin + len(window):
            # Reading on behind a head pays only if that reaches many others.
            wanted = HEAD_BYTES if at - last > _WINDOW_BYTES // 16 else _WINDOW_BYTES
            begin, window = at, _window(file, buffer, at, wanted)
            if len(window) < HEAD_BYTES:
                raise _damaged(path, at, f"the file ends after {len(window)} bytes of its head")
        length, check = _head.unpack_from(window, at - begin)
        if length > file.size - at - FRAME_BYTES:
            left = max(0, file.size - at - FRAME_BYTES)
            raise _damaged(path, at, f"it has {length} bytes by its head, but {left} are left")
        found.row(at, FRAME_BYTES + length)
        checks.row(check)
        last, at = at, at + FRAME_BYTES + length
    rows = np.stack(found.finish(), 1) if len(found) else np.empty((0, 2), np.int64)
    stored = checks.finish()[0]
    wrong = np.flatnonzero(crc32c.of_lengths(rows[:, 1] - FRAME_BYTES) != stored)
    if len(wrong):
        raise _damaged(path, int(rows[wrong[0], 0]), "the checksum of its length is wrong")
    return rows


def _window(file: ByteFile, buffer: bytearray, offset: int, size: int) -> memoryview:
    view = memoryview(buffer)[:size]
    return view[: file.read_into(view, offset)]


def _damaged(path: str, offset: int, what: str) -> ValueError:
    return ValueError(
        f"{path!r} is no TFRecord file, or damaged: record at offset {offset}: {what}"
    )


def read_index(path: str, data_path: str, remote: RemoteOptions | None = None) -> Array:
    """The records of an index file, which belongs to the file `data_path`."""
    rows = numbers(path, 2, remote)
    wrong = np.flatnonzero((rows[:, 0] < 0) | (rows[:, 1] < FRAME_BYTES))
    if len(wrong):
        raise ValueError(
            f"line {wrong[0] + 1} of index {path!r} must be the offset and the length of a record "
            f"(at least {FRAME_BYTES} bytes), got {rows[wrong[0]].tolist()}"
        )
    size = open_bytes(data_path, remote).size
    ends = np.flatnonzero(rows[:, 0] > size - rows[:, 1])
    if len(ends):
        raise ValueError(
            f"line {ends[0] + 1} of index {path!r} names bytes outside of {data_path!r}, which has "
            f"{size}: {rows[ends[0]].tolist()}"
        )
    return rows


def numbers(path: str, width: int, remote: RemoteOptions | None = None) -> Array:
    """A text file with `width` integers per line."""
    text = read_whole(path, remote)
    if not text.strip():
        return np.empty((0, width), np.int64)
    wanted = f"index {path!r} must have {width} integers per line"
    try:
        rows: Array = np.loadtxt(
            text.decode("ascii").splitlines(), np.int64, comments=None, ndmin=2
        )
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{wanted}: {error}") from None
    if rows.shape[1] != width:
        raise ValueError(f"{wanted}: line 1 has {rows.shape[1]}")
    return rows


def write_index(path: str, index_path: str) -> int:
    """Write the index of a file; returns the number of records."""
    rows = scan(path)
    write_output(index_path, "".join(f"{a} {b}\n" for a, b in rows.tolist()))
    return len(rows)
