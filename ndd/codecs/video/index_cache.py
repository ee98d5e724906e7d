"""Indexes of videos are kept: those of bytes in memory, those of files on disk.

NOTE [index file]. An index on disk is one file: a line of JSON, then its arrays. A reader reads the
line of every file of a data set when it starts, and maps the arrays of a file into memory when it
decodes that file. The name of the file follows from path, size and time of the video, so that a
changed video has another index.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array
from ...kernels.common.disk_cache import cache_dir, digest, package_version, write_atomically
from ...kernels.common.memo import Memo, memoized
from .video_index import VideoIndex, build_index

VERSION = 1
_ARRAYS = ("packet_at", "packet_size", "frame_packet", "frame_key", "frame_time")
_in_memory: Memo[bytes, VideoIndex] = Memo("indexes of videos", 256)


def index_of_bytes(data: Array) -> VideoIndex:
    """The index of a file in memory; the same bytes are indexed once."""
    key = blake2b(np.ascontiguousarray(data).data, digest_size=16).digest()
    found = _in_memory.get(key)
    if found is None:
        found = _in_memory[key] = build_index(data)
    return found


@memoized(1)
def no_video() -> VideoIndex:
    """The index of a video without frames."""
    none = np.zeros(0, np.int64)
    return VideoIndex("", "", b"", "", 0, 0, (1, 1), (0, 1), none, none, none, none, none)


# -- files ---------------------------------------------------------------------------------------

_loaded: Memo[tuple[Any, ...], VideoIndex] = Memo("mapped indexes of videos", 512)
_FACTS = ("codec", "tag", "pixels", "width", "height", "time_base", "rate")
_ALIGNMENT = 64


class Known(NamedTuple):
    """What a reader needs to know about each file before it decodes any."""

    frames: int
    fps: float


def known(path: bytes) -> Known:
    """The number of frames of a file, from its index on disk; makes the index if there is none."""
    header = _header(path)
    if header is None:
        index = index_of_file(path)
        return Known(index.frames, index.fps)
    rate = header["rate"]
    return Known(header["lengths"][2], rate[0] / rate[1] if rate[1] else 0.0)


def index_of_file(path: bytes) -> VideoIndex:
    """The index of a file, mapped from disk; makes and stores it if there is none."""
    key = _key(path)
    found = _loaded.get(key)
    if found is None:
        found = _mapped(path)
        if found is None:
            found = build_index(mapped_file(path))
            write_atomically(_place(key), _bytes(found))
        _loaded[key] = found
    return found


def mapped_file(path: bytes) -> Array:
    """The bytes of a file, mapped into memory."""
    with Path(os.fsdecode(path)).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _key(path: bytes) -> tuple[Any, ...]:
    found = os.stat(path)  # noqa: PTH116  (paths are bytes)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(22, "Not a regular file", os.fsdecode(path))
    return os.path.abspath(path), found.st_size, found.st_mtime_ns  # noqa: PTH100


def _place(key: tuple[Any, ...]) -> Path:
    path, *rest = key
    name = digest(path, str(rest), package_version("av"), str(VERSION), length=32)
    return cache_dir() / "videos" / f"{name}.index"


def _header(path: bytes) -> dict[str, Any] | None:
    try:
        with _place(_key(path)).open("rb") as file:
            found: dict[str, Any] = json.loads(file.readline(1 << 20))
    except FileNotFoundError as error:
        if error.filename == path:
            raise
        return None
    except (ValueError, PermissionError):
        return None
    return found if found.get("version") == VERSION else None


def _bytes(index: VideoIndex) -> bytes:
    arrays = [np.ascontiguousarray(getattr(index, name), np.int64) for name in _ARRAYS]
    blob = b"" if index.blob is None else index.blob.tobytes()
    header = {
        "version": VERSION, **{name: getattr(index, name) for name in _FACTS},
        "extradata": index.extradata.hex(), "lengths": [len(a) for a in arrays],
        "blob": len(blob) if index.blob is not None else None,
    }  # fmt: skip
    line = json.dumps(header).encode()
    line += b" " * (-(len(line) + 1) % _ALIGNMENT) + b"\n"
    return line + b"".join(a.tobytes() for a in arrays) + blob


def _mapped(path: bytes) -> VideoIndex | None:
    """The stored index of a file; None if there is none, or if it is damaged."""
    header = _header(path)
    if header is None:
        return None
    memory = mapped_file(os.fsencode(_place(_key(path))))
    at = memory[: 1 << 20].tobytes().index(b"\n") + 1
    arrays: dict[str, Any] = {}
    for name, length in zip(_ARRAYS, header["lengths"], strict=True):
        arrays[name] = np.frombuffer(memory[at : at + 8 * length], np.int64)
        at += 8 * length
    blob = header["blob"]
    if memory.size != at + (blob or 0):
        return None
    facts = {name: header[name] for name in _FACTS}
    for name in ("time_base", "rate"):
        facts[name] = tuple(facts[name])
    return VideoIndex(
        **facts, **arrays, extradata=bytes.fromhex(header["extradata"]),
        blob=None if blob is None else memory[at:],
    )  # fmt: skip
