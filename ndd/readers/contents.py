"""Reads files: paths enter, their bytes in pooled memory leave."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.shapes import Array
from ..fusion.graph.storage import Held, Storage, address_of
from ..kernels.common.buffers import POOL

# Files that are open at a time and share a block of memory. Processes may often open only 1024.
_GROUP = 64
ALIGNMENT = 64
Path = bytes | str | os.PathLike[Any]


def read_file(path: Path, read_ahead: bool = False) -> Array:
    """All bytes of a file."""
    (found,) = read_files([path], read_ahead)
    if isinstance(found, Exception):
        raise found
    return found


class Place(NamedTuple):
    """The place of a file's bytes in a shared block of memory."""

    block: Array
    begin: int
    end: int


class Contents(Sequence["Array | Exception"]):
    """All bytes of each file, or the error if it could not be read."""

    def __init__(self, places: list[Place | Exception]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, k: Any) -> Any:
        place = self.places[k]
        if isinstance(place, Place):
            return place.block[place.begin : place.end]
        return Contents(place) if isinstance(place, list) else place

    def storage(self) -> tuple[Storage, Array] | None:
        """The storage of all files, and their sizes; None if one of them could not be read."""
        places = self.places
        if any(isinstance(place, Exception) for place in places):
            return None
        blocks, begins, ends = zip(*places, strict=True)
        owners = {id(block): block for block in blocks}
        starts = {k: address_of(block) for k, block in owners.items()}
        begin = np.array(begins, np.int64)
        addresses = begin + np.array([starts[id(block)] for block in blocks], np.int64)
        storage = Storage(addresses, Held(list(owners.values())), dense=len(places) == 1)
        return storage, np.array(ends, np.int64) - begin


class PackedContents(Contents):
    """Parts of files that could all be read, in one block of memory."""

    def __init__(self, block: Array, begins: Array, ends: Array) -> None:
        self._block, self._begins, self._ends = block, begins, ends

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return PackedContents(self._block, self._begins[k], self._ends[k])
        return self._block[self._begins[k] : self._ends[k]]

    def storage(self) -> tuple[Storage, Array]:
        addresses = self._begins + address_of(self._block)
        storage = Storage(addresses, Held([self._block]), dense=len(self._begins) == 1)
        return storage, self._ends - self._begins


def read_files(paths: Sequence[Path], read_ahead: bool = False) -> Contents:
    """The contents of files.

    They are copied: mapping a file of 110 KB for one batch takes longer. Files share
    memory, because allocating a block for each takes nearly as long as reading it.
    """
    found: list[Place | Exception] = []
    for begin in range(0, len(paths), _GROUP):
        found += _read_group(paths[begin : begin + _GROUP], read_ahead)
    return Contents(found)


def _read_group(paths: Sequence[Path], read_ahead: bool) -> list[Place | Exception]:
    try:
        return _read_together(paths, read_ahead)
    except MemoryError as error:  # read them one by one to find the file that is too large
        if len(paths) == 1:
            return [error]
        return [place for path in paths for place in _read_group([path], read_ahead)]


def _read_together(paths: Sequence[Path], read_ahead: bool) -> list[Place | Exception]:
    opened: list[int] = []
    found: list[Any] = []  # (descriptor, begin, end), later a Place; or an error
    end = 0
    try:
        for path in paths:
            try:
                descriptor, size = open_regular(path, opened)
            except (OSError, ValueError) as error:
                found.append(error)
                continue
            if read_ahead:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            found.append((descriptor, end, end + size))
            end += -(-size // ALIGNMENT) * ALIGNMENT
        whole: Array = np.asarray(POOL.take(end))
        view = memoryview(whole.data)
        for k, place in enumerate(found):
            if isinstance(place, tuple):
                try:
                    found[k] = Place(whole, place[1], _read(view, *place))
                except OSError as error:
                    found[k] = error
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return found


def open_regular(path: Path, opened: list[int]) -> tuple[int, int]:
    """Descriptor and size of a file."""
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    opened.append(descriptor)
    status = os.fstat(descriptor)
    if stat.S_IFMT(status.st_mode) != stat.S_IFREG:
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        text = os.strerror(code) if code == errno.EISDIR else "Not a regular file"
        raise OSError(code, text, path)
    return descriptor, status.st_size


def _read(view: memoryview, descriptor: int, begin: int, end: int) -> int:
    """Read a file into its place, and return where its content ends."""
    while begin < end:
        count = os.readv(descriptor, [view[begin:end]])
        if count == 0:
            break  # the file has become shorter meanwhile
        begin += count
    return begin
