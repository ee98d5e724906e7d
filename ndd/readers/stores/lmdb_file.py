"""LMDB databases: a file enters, rows of (offset, length) of values and keys leave.

LMDB's own library trusts its files: a damaged page crashes the process. Reading needs only a walk
through a tree of pages, so it is done here, and every number is checked against the file. Pages
are numbered from the begin of the file. A page has a head (number, flags, end of the list of
entries) and a list of places of entries. Entries of branches lead to pages, those of leaves hold
keys with values, and large values have pages of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...fusion.graph.shapes import Array
from .byte_files import ByteFile, is_url, open_bytes
from .columns import Columns
from .remote import RemoteOptions

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEAD_BYTES, _NODE_BYTES = 16, 8
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8  # flags of pages
_BIG = 1  # flag of an entry whose value has pages of its own
_MAX_DEPTH = 32
_NOWHERE = 2**64 - 1  # the root of an empty database
_head = struct.Struct("<QHHHH")
_meta = struct.Struct("<IIQQ" + "IHHQQQQQ" * 2 + "QQ")
_node = struct.Struct("<HHHH")


def data_path(path: str) -> str:
    """The file of a database, which is usually called data.mdb in a folder of its own."""
    if is_url(path):
        return path if path.endswith(".mdb") else f"{path.rstrip('/')}/data.mdb"
    return str(Path(path) / "data.mdb") if Path(path).is_dir() else path


class LmdbFile:
    """The tree of a database."""

    def __init__(self, path: str, remote: RemoteOptions | None = None) -> None:
        self._path = path
        self._file: ByteFile = open_bytes(path, remote)
        self._size = 512  # until the first page has told it
        first = self._meta(0)
        self._size = first[4]
        if self._size not in (512 << k for k in range(8)):
            raise self._damaged(0, f"pages of {self._size} bytes")
        second = self._meta(1)
        chosen = max(first, second, key=lambda meta: meta[-1])  # the last transaction
        self._depth, self._entries, self._root = chosen[14], chosen[18], chosen[19]
        self._pages = self._file.size // self._size
        self._seen = np.zeros(self._pages, bool)

    def _damaged(self, offset: int, what: str) -> ValueError:
        return ValueError(f"{self._path!r} is no LMDB file, or damaged: at offset {offset}: {what}")

    def _meta(self, number: int) -> tuple[int, ...]:
        offset = number * self._size
        raw = bytearray(_HEAD_BYTES + _meta.size)
        if self._file.read_into(memoryview(raw), offset) < len(raw):
            raise self._damaged(offset, "the file ends inside of a head")
        found = _meta.unpack_from(raw, _HEAD_BYTES)
        if _head.unpack_from(raw)[2] & _META == 0 or found[:2] != (_MAGIC, _VERSION):
            raise self._damaged(offset, "no head of a database")
        return found

    def rows(self) -> Array:
        """Offset and length of each value, then of its key, in the order of keys."""
        found = Columns(4)
        if self._root != _NOWHERE:
            for row in self._walk(self._root, 1):
                found.row(*row)
        if len(found) != self._entries:
            raise self._damaged(0, f"{len(found)} records, but its head says {self._entries}")
        return np.stack(found.finish(), 1) if len(found) else np.empty((0, 4), np.int64)

    def _page(self, number: int) -> tuple[bytearray, int, int]:
        """A page, its flags, and the number of its entries."""
        offset = number * self._size
        if not 2 <= number < self._pages:
            raise self._damaged(0, f"page {number}, but there are {self._pages}")
        if self._seen[number]:
            raise self._damaged(offset, "a page that is used twice")
        self._seen[number] = True
        page = bytearray(self._size)
        if self._file.read_into(memoryview(page), offset) < self._size:
            raise self._damaged(offset, "the file ends inside of a page")
        stored, _, flags, lower, _ = _head.unpack_from(page)
        if stored != number or not _HEAD_BYTES <= lower <= self._size or lower % 2:
            raise self._damaged(offset, "an invalid head of a page")
        return page, flags, (lower - _HEAD_BYTES) // 2

    def _walk(self, number: int, depth: int) -> Iterator[tuple[int, int, int, int]]:
        page, flags, count = self._page(number)
        offset = number * self._size
        if depth > min(self._depth, _MAX_DEPTH):
            raise self._damaged(offset, "the tree is deeper than its head says")
        for k in range(count):
            at = int.from_bytes(page[_HEAD_BYTES + 2 * k : _HEAD_BYTES + 2 * k + 2], "little")
            if at + _NODE_BYTES > self._size:
                raise self._damaged(offset, f"entry {k} lies outside of its page")
            low, high, kind, key_size = _node.unpack_from(page, at)
            if flags & _BRANCH:
                yield from self._walk(low | high << 16 | kind << 32, depth + 1)
            elif flags & _LEAF:
                key = at + _NODE_BYTES
                value = self._value(offset, page, key + key_size, low | high << 16, kind)
                yield (*value, offset + key, key_size)
            else:
                raise self._damaged(offset, f"a page of kind {flags}")

    def _value(
        self, offset: int, page: bytearray, at: int, size: int, kind: int
    ) -> tuple[int, int]:
        """Offset and length of a value, whose entry has its data at `at` in the page."""
        if kind & ~_BIG:
            raise self._damaged(offset, "a record with several values, or a named database")
        stored = 8 if kind & _BIG else size
        if at + stored > self._size:
            raise self._damaged(offset, "a record lies outside of its page")
        if not kind & _BIG:
            return offset + at, size
        number = int.from_bytes(page[at : at + 8], "little")
        begin = number * self._size + _HEAD_BYTES
        if not 2 <= number < self._pages or begin + size > self._file.size:
            raise self._damaged(offset, f"a value of {size} bytes on page {number}")
        return begin, size


def scan(path: str, remote: RemoteOptions | None = None) -> Array:
    """The values and keys of a database."""
    return LmdbFile(path, remote).rows()
