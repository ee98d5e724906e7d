"""The content of a file, read into pooled memory."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import numpy as np

from ..fusion.graph import Array
from ..kernels.memory import POOL


def read_file(path: bytes | str | os.PathLike[Any], read_ahead: bool = False) -> Array:
    """All bytes of a file. Not mapped: a file that shrinks must not become a bus error."""
    # without O_NONBLOCK, opening a named pipe would wait for a writer
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
            text = os.strerror(code) if code == errno.EISDIR else "Not a regular file"
            raise OSError(code, text, path)
        if read_ahead:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        array: Array = np.asarray(POOL.take(status.st_size))
        view, done = memoryview(array.data), 0
        while done < len(view):
            count = os.readv(descriptor, [view[done:]])
            if count == 0:
                break  # it has become shorter meanwhile
            done += count
        return array[:done]
    finally:
        os.close(descriptor)
