"""Bytes → files that are complete or absent, whatever happens while they are written."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_MOST_LINKS = 40  # as many as Linux follows


class NotRegularFileError(OSError):
    """What should be replaced is a device, a pipe, a link or a folder."""


def replace_file(path: Path, data: bytes, mode: int = 0o600, durable: bool = False) -> None:
    """Write a file under another name, then give it its own; other processes never see a part.

    Whatever exists and is no regular file (a device, a pipe, a link, a folder) is left alone, with
    an error: renaming a file over a device would remove it from the system. `durable` makes the
    file survive a power failure.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISREG(found.st_mode):
            raise NotRegularFileError(f"{str(path)!r} exists and is not a regular file")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                # Otherwise, after a power failure, the name may exist without its content.
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def mode_of_new_files() -> int:
    """The permissions that the user's umask gives a file; `replace_file` makes private ones."""
    mask = os.umask(0o077)  # it can only be read by setting another for a moment
    os.umask(mask)
    return 0o666 & ~mask


def followed(path: Path) -> Path:
    """The path of the file that a symbolic link names; any other path itself.

    /dev/stdout and its like lead to open files of this process, which must not be exchanged.
    """
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            return path
        path = path.parent.absolute() / path.readlink()
        if path.parts[1:2] == ("proc",):
            break
    raise NotRegularFileError(f"{str(path)!r} is not a regular file")
