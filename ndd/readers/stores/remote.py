"""Files behind URLs, by fsspec: parts of files enter, bytes leave; with retries and a cache."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...kernels.common.memo import memoized
from .block_cache import BLOCK_BYTES, BlockCache

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.1  # doubled after each attempt: 1.5 s in all
# An answer that takes longer counts as a failure. Servers under load answer within seconds.
TIMEOUT_SECONDS = 60.0
# Parts of a file that are this near to each other are read by one request, up to a total size: a
# request takes about as long as transferring this many bytes at 1 GB/s.
_GAP_BYTES, _REQUEST_BYTES = 1 << 16, 16 << 20
_OPENING = 16  # files of a batch whose sizes are asked for at the same time
# Errors that asking again does not change.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError)


@dataclass(frozen=True)
class RemoteOptions:
    """How to reach remote files."""

    storage_options: Mapping[str, Any] = field(default_factory=dict)
    cache_dir: str | None = None
    cache_bytes: int = 10 << 30
    timeout_seconds: float = TIMEOUT_SECONDS

    def cache(self) -> BlockCache | None:
        if self.cache_dir is None:
            return None
        return _cache(self.cache_dir, self.cache_bytes)


@memoized(16)
def _cache(folder: str, limit: int) -> BlockCache:
    return BlockCache(Path(folder), limit)


def file_system(url: str, options: RemoteOptions) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{url!r} needs fsspec: pip install 'ndd-fusion[remote]'") from None
    try:
        # Not kept: fsspec has a cache of its own, which it empties in the child of a fork.
        return fsspec.core.url_to_fs(url, **options.storage_options)  # type: ignore[no-any-return]
    except ImportError as error:  # the package of this protocol is missing
        raise ImportError(f"{url!r}: {error}") from None


class RemoteFile:
    """A file behind a URL."""

    def __init__(self, url: str, options: RemoteOptions | None = None) -> None:
        self.url, self.options = url, options or RemoteOptions()
        info = _info(url, self.options)
        if info.get("type") == "directory":
            raise IsADirectoryError(21, "Is a directory", url)
        if info.get("size") is None:
            raise OSError(22, "The server does not tell the size", url)
        self.size = int(info["size"])
        marks = ("ETag", "etag", "LastModified", "mtime", "last_modified", "created", "CRC")
        version = " ".join(str(info[m]) for m in marks if m in info)
        self.key = BlockCache.key(url, f"{self.size} {version}")

    def read_into(self, view: memoryview, offset: int) -> int:
        end = min(offset + len(view), self.size)
        if end <= offset:
            return 0
        (found,) = read_together([(self, offset, end)])
        if isinstance(found, Exception):
            raise found
        view[: len(found)] = found
        return len(found)


def _info(url: str, options: RemoteOptions) -> dict[str, Any]:
    def ask() -> dict[str, Any]:
        system, path = file_system(url, options)
        if getattr(system, "async_impl", False):
            from fsspec.asyn import sync

            return sync(system.loop, system._info, path, timeout=options.timeout_seconds)  # type: ignore[no-any-return]
        return system.info(path)  # type: ignore[no-any-return]

    pause = FIRST_PAUSE_SECONDS
    for attempt in range(ATTEMPTS):
        try:
            return ask()
        except Exception as error:
            if _is_final(error) or attempt == ATTEMPTS - 1:
                raise _named(error, url) from error
        _sleep(pause)
        pause *= 2
    raise AssertionError("the last attempt returns or raises")


def _sleep(seconds: float) -> None:
    """Wait, for a random time, so that many readers do not all ask again at once."""
    time.sleep(seconds * random.uniform(0.5, 1.5))


def _named(error: Exception, url: str) -> Exception:
    """The error with the URL as file name."""
    if isinstance(error, ImportError):
        return error
    kind = type(error) if _is_final(error) else OSError
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return kind(getattr(error, "errno", None) or 5, text, url)


Span = tuple[RemoteFile, int, int]


def read_together(parts: Sequence[Span]) -> list[memoryview | Exception]:
    """Parts of files (file, begin, end), or the error for each that cannot be read.

    Neighbours share a request, and requests are made at the same time.
    """
    spans = _merged(parts)
    found = _fetched(list(dict.fromkeys(spans)))
    results: list[memoryview | Exception] = []
    for (_, begin, end), span in zip(parts, spans, strict=True):
        data = found[span]
        if isinstance(data, Exception):
            results.append(data)
        else:
            results.append(memoryview(data)[begin - span[1] : end - span[1]])
    return results


def _merged(parts: Sequence[Span]) -> list[Span]:
    """For each part, the span to read, which may hold several parts."""
    order = sorted(range(len(parts)), key=lambda k: (id(parts[k][0]), parts[k][1]))
    spans: list[Span] = list(parts)
    group: list[int] = []

    def close() -> None:
        if group:
            end = max(parts[k][2] for k in group)
            for k in group:
                spans[k] = (parts[group[0]][0], parts[group[0]][1], end)
            group.clear()

    for k in order:
        file, begin, end = parts[k]
        if group:
            first = parts[group[0]]
            last = max(parts[g][2] for g in group)
            if file is not first[0] or begin - last > _GAP_BYTES or end - first[1] > _REQUEST_BYTES:
                close()
        group.append(k)
    close()
    return spans


def _fetched(spans: Sequence[Span]) -> dict[Span, bytes | Exception]:
    """The bytes of spans, from the cache where possible."""
    plain = [s for s in spans if s[0].options.cache() is None]
    found = dict(zip(plain, _requested(plain), strict=True))
    cached = [s for s in spans if s[0].options.cache() is not None]
    if cached:
        blocks = _blocks(cached)
        for file, begin, end in cached:
            numbers = range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            pieces = [blocks[file, n] for n in numbers]
            bad = next((p for p in pieces if isinstance(p, Exception)), None)
            whole = b"".join(pieces) if bad is None else b""  # type: ignore[arg-type]
            start = numbers[0] * BLOCK_BYTES if numbers else begin
            found[file, begin, end] = bad or whole[begin - start : end - start]
    return found


def _blocks(spans: Sequence[Span]) -> dict[tuple[RemoteFile, int], bytes | Exception]:
    """All blocks that the spans touch; missing ones are fetched and kept."""
    found: dict[tuple[RemoteFile, int], bytes | Exception] = {}
    missing: list[Span] = []
    for file, begin, end in spans:
        cache = file.options.cache()
        assert cache is not None
        for n in range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            first, last = n * BLOCK_BYTES, min((n + 1) * BLOCK_BYTES, file.size)
            block = cache.get(file.key, n, last - first)
            if block is not None:
                found[file, n] = block
            elif (file, first, last) not in missing:
                missing.append((file, first, last))
    runs = _merged(missing)
    once = list(dict.fromkeys(runs))
    data = dict(zip(once, _requested(once), strict=True))
    for (file, first, last), run in zip(missing, runs, strict=True):
        got = data[run]
        number = first // BLOCK_BYTES
        if isinstance(got, Exception):
            found[file, number] = got
            continue
        found[file, number] = piece = got[first - run[1] : last - run[1]]
        cache = file.options.cache()
        if cache is not None:
            cache.put(file.key, number, piece)
    return found


def _requested(spans: Sequence[Span]) -> list[bytes | Exception]:
    """The bytes of spans from their servers; what fails is asked for again, after a pause."""
    found: list[bytes | Exception] = [OSError()] * len(spans)
    left = list(range(len(spans)))
    pause = FIRST_PAUSE_SECONDS
    for attempt in range(ATTEMPTS):
        if attempt:
            _sleep(pause)
            pause *= 2
        for k, data in zip(left, _asked([spans[k] for k in left]), strict=True):
            found[k] = _checked(spans[k], data)
        left = [k for k in left if isinstance(found[k], Exception) and not _is_final(found[k])]
        if not left:
            break
    return found


def _is_final(data: Any) -> bool:
    """Whether asking again would not help."""
    # HTTP: fsspec says that a file is missing for whatever reason its size is not told.
    status = getattr(getattr(data, "__cause__", None), "status", 404)
    return isinstance(data, _FINAL) and status < 500


def _checked(span: Span, data: Any) -> bytes | Exception:
    file, begin, end = span
    if isinstance(data, BaseException):
        error = data if isinstance(data, Exception) else OSError(str(data))
        return _named(error, file.url)
    if len(data) == file.size != end - begin:  # the server does not know ranges
        data = data[begin:end]
    if len(data) != end - begin:
        text = f"the server sent {len(data)} of {end - begin} bytes at offset {begin}"
        return OSError(5, text, file.url)
    return bytes(data)


def _asked(spans: Sequence[Span]) -> list[Any]:
    """One attempt to get the bytes of spans, or an error for each."""
    results: list[Any] = [None] * len(spans)
    groups: dict[int, tuple[Any, float, list[int], list[str]]] = {}
    for k, (file, _, _) in enumerate(spans):
        try:
            system, path = file_system(file.url, file.options)
        except Exception as error:
            results[k] = error
            continue
        entry = groups.setdefault(id(system), (system, file.options.timeout_seconds, [], []))
        entry[2].append(k)
        entry[3].append(path)
    for system, timeout, numbers, paths in groups.values():
        begins, ends = [spans[k][1] for k in numbers], [spans[k][2] for k in numbers]
        try:
            data = _cat_ranges(system, paths, begins, ends, timeout)
        except Exception as error:
            data = [error] * len(numbers)
        for k, piece in zip(numbers, data, strict=True):
            results[k] = piece
    return results


def _cat_ranges(
    system: Any, paths: list[str], begins: list[int], ends: list[int], timeout: float
) -> list[Any]:
    if getattr(system, "async_impl", False):
        from fsspec.asyn import sync

        return sync(  # type: ignore[no-any-return]
            system.loop, system._cat_ranges, paths, begins, ends, on_error="return",
            timeout=timeout,
        )  # fmt: skip
    return system.cat_ranges(paths, begins, ends, on_error="return")  # type: ignore[no-any-return]


def list_folders(url: str, options: RemoteOptions) -> dict[str, list[str]]:
    """The files of a remote folder (as ".") and of each of its folders: names without folders."""
    system, root = file_system(url, options)
    found: dict[str, list[str]] = {".": []}
    for entry in _entries(system, root.rstrip("/")):
        name = entry["name"].rstrip("/").rpartition("/")[2]
        if entry["type"] == "directory":
            inside = _entries(system, entry["name"].rstrip("/"))
            found[name] = [e["name"].rpartition("/")[2] for e in inside if e["type"] == "file"]
        else:
            found["."].append(name)
    return found


def _entries(system: Any, path: str) -> list[dict[str, Any]]:
    # Some object stores list the folder itself, as an empty file.
    return [e for e in system.ls(path, detail=True) if e["name"].rstrip("/") != path]


def read_whole_files(urls: Sequence[str], options: RemoteOptions) -> list[memoryview | Exception]:
    """All bytes of each file, or the error if it cannot be read."""
    with ThreadPoolExecutor(_OPENING) as pool:
        opened = list(pool.map(lambda url: _opened(url, options), urls))
    chosen = [k for k, file in enumerate(opened) if isinstance(file, RemoteFile)]
    parts: list[Span] = [(f, 0, f.size) for f in opened if isinstance(f, RemoteFile)]
    results: list[Any] = list(opened)
    for k, data in zip(chosen, read_together(parts), strict=True):
        results[k] = data
    return results


def _opened(url: str, options: RemoteOptions) -> RemoteFile | Exception:
    try:
        return RemoteFile(url, options)
    except Exception as error:
        return error
