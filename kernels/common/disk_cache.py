"""The disk cache of generated kernels: readable source, with the compiled code beside it.

Whoever can write to this cache decides what we run, so it is used only if that is nobody but this
user and root (trust.py). Else it is off, with one warning.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from . import trust
from .memo import Memo, memoized
from .replacing import replace_file

_MAGIC = b"ndd-kernel-2\n"
# A process that compiles a kernel keeps the others waiting for this long at most: then they compile
# it, too. The slowest kernels take 5 s on a busy machine.
LOCK_SECONDS = 30.0
_LOCK_POLL_SECONDS = 5e-3
# The cache of a user without a home. Nothing can be there, not even for root.
_NOWHERE = Path(os.devnull) / "ndd"

_folders: Memo[Path, bool] = Memo("folders of kernels", 256)
_reported: Memo[str, bool] = Memo("warnings about the kernel cache", 256)  # each is given once


def cache_dir() -> Path:
    """`NDD_CACHE_DIR`, or a folder in the user's cache directory; it may not exist."""
    chosen = os.environ.get("NDD_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the specification says to ignore such values
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # no HOME, and no entry in the password file
            return _NOWHERE
    return base / "ndd" if base.is_absolute() else _NOWHERE


def is_usable(folder: Path) -> bool:
    """Whether code in a folder of the cache is safe to run; makes the folder if it is missing."""
    folder = folder.absolute()
    known = _folders.get(folder)
    if known is None:
        known = _folders[folder] = _is_safe(folder)
    return known


def _is_safe(folder: Path) -> bool:
    try:
        reason = None if folder.is_relative_to(_NOWHERE) else trust.make_folder(folder)
    except OSError:
        return False  # it does not exist and cannot be made (a read-only home), so nothing is there
    if reason is not None:
        report(
            f"the kernel cache {folder} is not used: {reason}. Every process compiles its kernels "
            "anew; set NDD_CACHE_DIR to a folder that only you can write to"
        )
    return reason is None and not folder.is_relative_to(_NOWHERE)


def report(text: str) -> None:
    """Warn about the cache, once for each text."""
    if text not in _reported:
        _reported[text] = True
        warnings.warn(f"ndd: {text}.", RuntimeWarning, stacklevel=2)


def digest(*parts: str | bytes, length: int = 8) -> str:
    """A short hash of some content."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part.encode() if isinstance(part, str) else part)
        h.update(b"\0")
    return h.hexdigest()[:length]


@memoized(64)
def package_version(name: str) -> str:
    """The installed version of a package; does not import the package."""
    from importlib.metadata import PackageNotFoundError, version  # 30 ms, so not at the top

    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file of the cache so that no other process ever sees only a part of it.

    A cache that cannot be written (read-only home, full disk) is no error, just slower.
    """
    if is_usable(path.parent):
        with contextlib.suppress(OSError):
            replace_file(path, data)


def store_object(path: Path, source: str, symbol: str, code: bytes) -> None:
    """Store compiled code with a digest of its source, its entry point and a checksum."""
    body = digest(source, length=64).encode() + b"\n" + symbol.encode() + b"\n" + code
    write_atomically(path, _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def load_object(path: Path, source: str) -> tuple[str, bytes] | None:
    """Symbol and code of a stored object; None if it is missing, damaged or of another source."""
    try:
        data = _read(path) if is_usable(path.parent) else b""
    except OSError:
        return None
    if not data.startswith(_MAGIC):
        return None
    checksum, _, body = data[len(_MAGIC) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    of, _, rest = body.partition(b"\n")
    if of.decode() != digest(source, length=64):
        return None
    symbol, _, code = rest.partition(b"\n")
    return symbol.decode(), code


def _read(path: Path) -> bytes:
    """The content of a file; empty if others may have written to it."""
    # The opened file is checked, not its name, which could be given to another one meanwhile.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        reason = trust.danger_of_file(path, os.fstat(file.fileno()))
        if reason is None:
            return file.read()
    report(f"a file of the kernel cache is not used: {reason}; it is compiled anew")
    return b""


def cached_object(
    path: Path, source: str, make: Callable[[], tuple[str, bytes]]
) -> tuple[str, bytes]:
    """Symbol and code of an object: from disk, or made now by one of the processes that need it."""
    found = load_object(path, source)
    if found is None:
        with one_process(path):
            found = load_object(path, source)
            if found is None:
                found = make()
                store_object(path, source, *found)
    return found


@contextlib.contextmanager
def one_process(path: Path) -> Iterator[None]:
    """Let one process at a time make what belongs at `path`, for at most `LOCK_SECONDS`.

    A block must not contain another one. All locks of a folder are bytes of one file, at a place
    that the name decides, so that nothing has to be removed. The kernel drops such a lock when its
    process ends, however it ends, and a forked child does not inherit it.
    """
    file = _lock_file(path.parent) if is_usable(path.parent) else None
    if file is None:
        yield
        return
    try:
        place, end = int(digest(path.name, length=15), 16), time.monotonic() + LOCK_SECONDS
        while not _is_locked(file, place) and time.monotonic() < end:
            time.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(file)  # drops the lock


def _lock_file(folder: Path) -> int | None:
    """The opened file of a folder's locks; None if it cannot be made, or is not ours."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(folder / "compiling.lock", flags, 0o600)
    except OSError:
        return None
    if trust.danger_of_file(folder, os.fstat(file)) is None:
        return file
    os.close(file)
    return None


def _is_locked(file: int, place: int) -> bool:
    """Whether this process has the lock now, or cannot have any."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True
