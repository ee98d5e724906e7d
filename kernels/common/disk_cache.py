"""The disk cache of generated kernels: readable source, with the compiled code beside it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from .memo import memoized

_MAGIC = b"ndd-kernel-2\n"


def cache_dir() -> Path:
    """`NDD_CACHE_DIR`, or a folder in the user's cache directory."""
    chosen = os.environ.get("NDD_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ndd"


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
    """Write a file so that no other process ever sees only a part of it.

    A cache that cannot be written (read-only home, full disk) is no error, just slower.
    """
    import tempfile

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            Path(temporary).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


def store_object(path: Path, source: str, symbol: str, code: bytes) -> None:
    """Store compiled code with a digest of its source, its entry point and a checksum."""
    body = digest(source, length=64).encode() + b"\n" + symbol.encode() + b"\n" + code
    write_atomically(path, _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def load_object(path: Path, source: str) -> tuple[str, bytes] | None:
    """Symbol and code of a stored object; None if it is missing, damaged or of another source."""
    try:
        data = path.read_bytes()
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
