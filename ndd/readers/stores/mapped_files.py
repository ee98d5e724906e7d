"""Parts of local files that are mapped into memory: files and places enter, their bytes leave.

Nothing is copied: the bytes are those of the system's page cache. Nobody may write to them, and ops
get a copy (core/mapped_inputs.py), because others may change the file at any time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import Held, Storage, array_at
from ...kernels.cpu.bus_errors import PAGE, protect
from ..contents import Contents

if TYPE_CHECKING:
    from .byte_files import LocalFile


class _Part:
    """The part of a mapped file that ends with the last byte that a batch needs of it."""

    def __init__(self, file: LocalFile, end: int) -> None:
        self._file, self._map, self._end = file, file.mapped(), end
        self.path = file.path
        self.begin: int = self._map.address

    def touch(self, begin: Array, end: Array) -> None:
        """Bring the bytes between offsets into memory."""
        runs = _runs(begin, end)
        if len(runs):
            self._map.touch(runs)

    def has(self, address: int) -> bool:
        return 0 <= address - self.begin < self._end

    def is_long(self) -> bool:
        """Whether the file has all bytes of this part now."""
        return self._size() >= self._end

    def end(self) -> int | None:
        """Where the bytes ended when somebody looked, or end now, if that is in this part."""
        end = min(self._size(), self._map.lost_from() - self.begin)
        return None if end >= self._end else end

    def _size(self) -> int:
        return os.fstat(self._file.descriptor).st_size


class MappedFiles:
    """What batches hold of the files that their samples lie in."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts

    def protect(self) -> None:
        """Turn what was lost into zeros, from now on."""
        protect()

    def is_whole(self) -> bool:
        """Whether all files still are as long as they were."""
        return all(part.end() is None for part in self._parts)

    def check(self, addresses: Array, sizes: Array) -> None:
        """Raise the error of the first sample whose file has become shorter."""
        for part in self._parts:
            end = part.end()
            if end is None:
                continue
            for k in np.flatnonzero(addresses + sizes > part.begin + end).tolist():
                if part.has(int(addresses[k])) and sizes[k]:
                    what = "was truncated while it was read"
                    if part.is_long():
                        what = "was truncated for a while, or cannot be read"
                    raise ValueError(
                        f"{part.path!r} {what}: {sizes[k]} bytes at offset "
                        f"{addresses[k] - part.begin} are wanted, but there is nothing from {end} "
                        f"on"
                    )


class MappedContents(Contents):
    """Parts of files that could all be mapped."""

    def __init__(self, addresses: Array, sizes: Array, owner: Held) -> None:
        self._addresses, self._sizes, self._owner = addresses, sizes, owner

    def __len__(self) -> int:
        return len(self._addresses)

    def __getitem__(self, k: Any) -> Any:
        """A copy: only those who ask for the storage know what it is."""
        if isinstance(k, slice):
            return MappedContents(self._addresses[k], self._sizes[k], self._owner)
        protect()
        shape = (int(self._sizes[k]),)
        found = array_at(int(self._addresses[k]), shape, np.dtype(np.uint8)).copy()
        try:
            self._owner.mapped.check(self._addresses[k : k + 1], self._sizes[k : k + 1])  # type: ignore[union-attr]
        except ValueError as error:
            return error
        return found

    def storage(self) -> tuple[Storage, Array]:
        storage = Storage(self._addresses, self._owner, dense=len(self._addresses) == 1)
        storage.readonly = True
        return storage, self._sizes


def map_parts(
    files: Mapping[int, LocalFile], numbers: Array, offsets: Array, ends: Array
) -> MappedContents | None:
    """Parts of files in memory; None if a file has become shorter, or there is no room for maps."""
    protect()
    parts: list[_Part] = []
    addresses = offsets.copy()
    try:
        for number, file in files.items():
            own = slice(None) if len(files) == 1 else np.flatnonzero(numbers == number)
            begin, end = offsets[own], ends[own]
            part = _Part(file, int(end.max()))
            parts.append(part)
            addresses[own] += part.begin
            part.touch(begin, end)
    except OSError:
        return None
    mapped = MappedFiles(parts)
    if not mapped.is_whole():
        return None
    return MappedContents(addresses, ends - offsets, Held(parts, mapped))


def _runs(begin: Array, end: Array) -> Array:
    """Parts of a file in order, those together that nearly touch each other, as rows of begin and
    end."""
    order = np.argsort(begin, kind="stable")
    first, last = begin[order], np.maximum.accumulate(end[order])
    starts = np.flatnonzero(np.append(True, first[1:] > last[:-1] + PAGE))
    stops = np.append(starts[1:], len(first)) - 1
    runs: Array = np.stack([first[starts], last[stops]], 1)
    return runs[runs[:, 1] > runs[:, 0]]
