"""A folder with blocks of remote files, up to a limit of bytes: the least recently used ones go."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from ...kernels.common import forks
from ...kernels.common.disk_cache import write_atomically

# One request for about ten pictures; a random access to one of them fetches no more than this.
BLOCK_BYTES = 1 << 20
# The folder is tidied up when it has grown by this part of its limit, because listing it is slow.
_SLACK = 0.1


class BlockCache:
    """Blocks of files by URL, version and number. Processes may share the folder."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._lock = forks.lock()
        self._added = self._limit  # so that the first block that is added tidies up
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def key(url: str, version: str) -> str:
        """The name of a file's blocks."""
        return hashlib.sha256(f"{url}\n{version}".encode("utf-8", "replace")).hexdigest()[:40]

    def _path(self, key: str, number: int) -> Path:
        return self._folder / f"{key}-{number:x}.block"

    def get(self, key: str, number: int, size: int) -> bytes | None:
        """A block, if it is here and has the right size."""
        path = self._path(key, number)
        try:
            found = path.read_bytes()
            os.utime(path)  # it was used now
        except OSError:
            return None
        return found if len(found) == size else None

    def put(self, key: str, number: int, block: bytes) -> None:
        """Keep a block; a full disk is no error."""
        with contextlib.suppress(OSError):
            write_atomically(self._path(key, number), block)
        with self._lock:
            self._added += len(block)
            if self._added < self._limit * _SLACK:
                return
            self._added = 0
        self._tidy()

    def _tidy(self) -> None:
        """Remove the blocks that were not used for the longest time."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".block"):
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        room = self._limit * (1 - _SLACK)
        for _, size, path in sorted(found):
            if total <= room:
                return
            with contextlib.suppress(OSError):
                Path(path).unlink()
            total -= size
