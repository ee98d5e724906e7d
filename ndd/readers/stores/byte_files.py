"""Files that hold many records: parts of files enter, their bytes in pooled memory leave."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...fusion.graph.shapes import Array
from ...kernels.common import forks
from ...kernels.common.buffers import POOL
from ...kernels.common.threads import ThreadPool, get_num_threads
from ...kernels.cpu.bus_errors import NOT_LOST, FileMap
from ..contents import ALIGNMENT, Contents, PackedContents, Place, open_regular, read_files
from .mapped_files import map_parts

if TYPE_CHECKING:
    from .remote import RemoteOptions

# Files that a reader keeps open. Processes may often open only 1024.
_OPEN = 64
# Parts of a file that are this near to each other are read at once: a system call takes about as
# long as copying this many bytes.
_GAP_BYTES = 1 << 12
# So many bytes are read by two threads, in pieces: copying 110 KB from the page cache takes 14 µs,
# and handing work to another thread 80 µs.
_SHARED_BYTES = 2 << 20
_PIECE_BYTES = 1 << 20
# Runs of neighbours of this mean size stay in mapped files. In CPU time per run, copied and mapped:
# 1 KB 1.9 and 2.1 µs, 4 KB 2.2 and 1.9, 16 KB 2.9 and 2.0, 64 KB 4.9 and 2.0, 256 KB 13.2 and 2.5.
_MAPPED_BYTES = 1 << 14
# Where there are more files than stay open, a batch must need this much of each: mapping and
# unmapping a file takes 6 µs, and looking at 110 KB of it for the first time 7 µs.
_MAP_BYTES = 1 << 20
Numbers = Sequence[int] | Array
# No container that we read at once (an index, a list) is larger than this by honest means.
_MAX_WHOLE_BYTES = 16 << 30


class ByteFile(Protocol):
    """An open file. Several threads read from it at once."""

    size: int

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill the view from an offset on; returns fewer bytes only at the end of the file."""
        ...


class LocalFile:
    """A file of the operating system, closed when nobody uses it any more."""

    def __init__(self, path: bytes) -> None:
        self.path = os.fsdecode(path)
        self.descriptor = -1
        self._map: FileMap | None = None
        opened: list[int] = []
        try:
            self.descriptor, self.size = open_regular(path, opened)
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise

    def read_into(self, view: memoryview, offset: int) -> int:
        done = 0
        while done < len(view):
            count = os.preadv(self.descriptor, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def mapped(self) -> FileMap:
        """The file in memory; OSError if there is no room for that."""
        found = self._map
        if found is None or found.lost_from() != NOT_LOST:  # the lost places are zeros forever
            found = self._map = FileMap(self.descriptor, self.size)
        return found

    def __del__(self) -> None:
        if self.__dict__.get("descriptor", -1) >= 0:
            os.close(self.descriptor)


def is_url(path: str) -> bool:
    """Whether a path names something that is not a plain file (``s3://bucket/key``)."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.replace("+", "").replace("::", "").replace("-", "").isalnum()


def open_bytes(path: str, remote: RemoteOptions | None = None) -> ByteFile:
    """Open a path or a URL."""
    if is_url(path):
        from .remote import RemoteFile

        return RemoteFile(path, remote)
    return LocalFile(os.fsencode(path))


def read_whole(path: str, remote: RemoteOptions | None = None) -> bytes:
    """All bytes of a path or a URL, for lists and indexes."""
    file = open_bytes(path, remote)
    if file.size > _MAX_WHOLE_BYTES:
        raise ValueError(f"{path!r} has {file.size} bytes, too many for a list or an index")
    found = bytearray(file.size)
    count = file.read_into(memoryview(found), 0)
    return bytes(found[:count])


def read_anywhere(
    paths: Sequence[bytes], read_ahead: bool, remote: RemoteOptions | None = None
) -> Contents:
    """All bytes of each file, which may be a URL, or the error if it cannot be read."""
    urls = {
        k: os.fsdecode(p) for k, p in enumerate(paths) if b"://" in p and is_url(os.fsdecode(p))
    }
    if not urls:
        return read_files(paths, read_ahead)
    from .remote import RemoteOptions, read_whole_files

    found: list[Any] = list(read_whole_files(list(urls.values()), remote or RemoteOptions()))
    for k, data in enumerate(found):
        if not isinstance(data, Exception):
            block: Array = np.asarray(POOL.take(len(data)))
            memoryview(block.data)[: len(data)] = data
            found[k] = Place(block, 0, len(data))
    others = [p for k, p in enumerate(paths) if k not in urls]
    local = iter(read_files(others, read_ahead).places)
    remote_ones = iter(found)
    return Contents([next(remote_ones if k in urls else local) for k in range(len(paths))])


def _is_read(run: tuple[ByteFile, int, int, int], view: memoryview) -> bool:
    """Read a run of (file, offset, size, place in the view); whether it was there."""
    file, offset, size, place = run
    try:
        # It is shorter if the file has shrunk meanwhile.
        return file.read_into(view[place : place + size], offset) == size
    except OSError:
        return False


class ByteFiles:
    """The files of a data set, by number. A few of them stay open."""

    def __init__(
        self, paths: Sequence[str], remote: RemoteOptions | None = None, maps: bool = False
    ) -> None:
        self.paths, self.remote, self._maps = list(paths), remote, maps
        self._has_urls = any(map(is_url, self.paths))
        self._open: OrderedDict[int, ByteFile] = OrderedDict()
        self._lock = forks.lock()
        self._pool: ThreadPool | None = None  # a second thread for large reads
        self._pooling = forks.lock()  # held by the thread that uses it

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> ByteFile:
        with self._lock:
            found = self._open.get(number)
            if found is not None:
                self._open.move_to_end(number)
                return found
        made = open_bytes(self.paths[number], self.remote)
        with self._lock:
            self._open[number] = made
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        return made

    def read(self, number: int, offset: int, length: int) -> Array:
        """One part of a file."""
        (found,) = self.read_parts([number], [offset], [length])
        if isinstance(found, Exception):
            raise found
        return found

    def read_parts(self, numbers: Numbers, offsets: Numbers, lengths: Numbers) -> Contents:
        """Parts of files, in one block of memory, or the error for each that cannot be read."""
        where = [np.asarray(column, np.int64) for column in (numbers, offsets, lengths)]
        try:
            packed = None if self._has_urls else self._read_runs(*where)
            if packed is not None:
                return packed
            return Contents(self._read_together(*where))
        except MemoryError as error:  # read them one by one to find the part that is too large
            if len(numbers) == 1:
                return Contents([error])
            rows = zip(*(column.tolist() for column in where), strict=True)
            return Contents([self._alone(*row) for row in rows])

    def _read_runs(self, number: Array, offset: Array, length: Array) -> Contents | None:
        """Parts of local files; neighbours are read at once. None if a part cannot be read."""
        end = offset + length
        is_other = np.ones(len(number), bool)  # not in the same file as the part before
        np.not_equal(number[1:], number[:-1], out=is_other[1:])
        try:
            files = {n: self[n] for n in sorted({*number[is_other].tolist()})}
        except (OSError, ValueError):
            return None
        sizes = np.array([file.size for file in files.values()], np.int64)
        if len(files) > 1:
            sizes = sizes[np.searchsorted(np.array([*files]), number)]
        if ((offset < 0) | (end < offset) | (end > sizes)).any():
            return None
        gaps = offset[1:] - end[:-1]
        is_first = is_other
        is_first[1:] |= (gaps < 0) | (gaps > _GAP_BYTES)
        first = np.flatnonzero(is_first)
        if self._is_worth_maps(len(files), len(first), int((end - offset).sum())):
            local = {n: file for n, file in files.items() if isinstance(file, LocalFile)}
            mapped = map_parts(local, number, offset, end)
            if mapped is not None:
                return mapped
        begin, stop = offset[first], end[np.append(first[1:], len(end)) - 1]
        places = np.zeros(len(first) + 1, np.int64)
        np.cumsum(-(-(stop - begin) // ALIGNMENT) * ALIGNMENT, out=places[1:])
        block: Array = np.asarray(POOL.take(int(places[-1])))
        rows = zip(number[first].tolist(), begin.tolist(), (stop - begin).tolist(),
                   places[:-1].tolist(), strict=True)  # fmt: skip
        if not self._fill([(files[n], *row) for n, *row in rows], memoryview(block.data)):
            return None
        run = np.cumsum(is_first) - 1
        begins = places[run] + offset - begin[run]
        return PackedContents(block, begins, begins + end - offset)

    def keeps(self, mean_bytes: float) -> bool:
        """Whether parts of this size stay in mapped files, whatever their order."""
        maps = self._maps and not self._has_urls and len(self.paths) <= _OPEN
        return maps and mean_bytes >= _MAPPED_BYTES

    def _is_worth_maps(self, files: int, runs: int, nbytes: int) -> bool:
        """Whether so many bytes, in runs of neighbours in some files, should not be copied."""
        stays = len(self.paths) <= _OPEN or nbytes >= _MAP_BYTES * files
        return self._maps and stays and nbytes >= _MAPPED_BYTES * runs

    def _fill(self, runs: list[tuple[ByteFile, int, int, int]], view: memoryview) -> bool:
        """Read runs of (file, offset, size, place in the view); whether that was possible."""
        if sum(run[2] for run in runs) < _SHARED_BYTES or not self._pooling.acquire(False):
            return all(_is_read(run, view) for run in runs)
        try:
            if self._pool is None:
                self._pool = ThreadPool(min(2, get_num_threads()))
            pieces = [
                (file, at + k, min(_PIECE_BYTES, size - k), place + k)
                for file, at, size, place in runs
                for k in range(0, size, _PIECE_BYTES)
            ]
            good = [False] * len(pieces)

            def read(k: int, worker: int) -> None:
                good[k] = _is_read(pieces[k], view)

            self._pool.parallel_for(len(pieces), read)
            return all(good)
        finally:
            self._pooling.release()

    def _alone(self, number: int, offset: int, length: int) -> Place | Exception:
        try:
            where = (np.array([n], np.int64) for n in (number, offset, length))
            return self._read_together(*where)[0]
        except MemoryError as error:
            return error

    def _read_together(self, *where: Array) -> list[Place | Exception]:
        found: list[Any] = []
        end = 0
        for number, offset, length in zip(*(column.tolist() for column in where), strict=True):
            try:
                file = self[number]
                # Checked before memory is allocated: an index may be wrong or hostile.
                if offset < 0 or length < 0 or offset + length > file.size:
                    raise self._outside(number, offset, length, file.size)
            except (OSError, ValueError, ImportError) as error:
                found.append(error)
                continue
            found.append((file, number, offset, end, end + length))
            end += -(-length // ALIGNMENT) * ALIGNMENT
        whole: Array = np.asarray(POOL.take(end))
        view = memoryview(whole.data)
        if self._has_urls:
            self._fill_remote(whole, view, found)
        for k, part in enumerate(found):
            if isinstance(part, tuple) and not isinstance(part, Place):
                found[k] = self._filled(whole, view, *part)
        return found

    def _fill_remote(self, whole: Array, view: memoryview, found: list[Any]) -> None:
        """Read the parts of remote files, all at once."""
        from .remote import RemoteFile, read_together

        chosen = [
            k for k, p in enumerate(found) if isinstance(p, tuple) and isinstance(p[0], RemoteFile)
        ]
        parts = [
            (found[k][0], found[k][2], found[k][2] + found[k][4] - found[k][3]) for k in chosen
        ]
        for k, data in zip(chosen, read_together(parts), strict=True):
            begin, end = found[k][3:]
            if isinstance(data, Exception):
                found[k] = data
            else:
                view[begin:end] = data
                found[k] = Place(whole, begin, end)

    def _filled(
        self, whole: Array, view: memoryview,
        file: ByteFile, number: int, offset: int, begin: int, end: int,
    ) -> Place | Exception:  # fmt: skip
        try:
            count = file.read_into(view[begin:end], offset)
        except (OSError, ValueError) as error:
            return error
        if count != end - begin:  # the file has become shorter meanwhile
            return self._outside(number, offset, end - begin, offset + count)
        return Place(whole, begin, end)

    def _outside(self, number: int, offset: int, length: int, size: int) -> ValueError:
        return ValueError(
            f"{self.paths[number]!r} has {size} bytes, but {length} bytes at offset {offset} are "
            f"wanted"
        )
