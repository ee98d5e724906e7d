"""PyAV, the binding of FFmpeg: containers are opened, damaged ones become a ValueError."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...fusion.graph.shapes import Array
from ...kernels.common.memo import memoized

# Containers that may be opened. FFmpeg knows others that are lists of further files or addresses,
# which a data set must not be able to open.
FORMATS = (
    "mov,mp4,matroska,webm,avi,flv,mpegts,mpeg,ivf,ogg,asf,nut,mxf,mjpeg,h264,hevc,m4v,obu,gif,y4m"
)


@memoized(1)
def av_module() -> Any:
    """PyAV, which is an optional dependency."""
    try:
        import av
    except ImportError:
        raise ImportError('PyAV is not installed: pip install "ndd-fusion[video]"') from None
    # FFmpeg's own messages go nowhere: an error says which file and which frame is damaged.
    av.logging.set_level(None)
    return av


@contextmanager
def opened(data: Array) -> Iterator[Any]:
    """An open container in memory."""
    av = av_module()
    options = {"format_whitelist": FORMATS}
    try:
        # A memory view has no `read`; BytesIO would copy a mapped file, `_Bytes` does not.
        container = av.open(_Bytes(data), options=options, metadata_errors="ignore")
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise ValueError(f"{data.size} bytes are not a video file: {reason(error)}") from None
    try:
        yield container
    finally:
        container.close()


class _Bytes(io.RawIOBase):
    """A file over memory."""

    def __init__(self, data: Array) -> None:
        self._view, self._at = memoryview(data.data), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        end = len(self._view) if size < 0 else self._at + size
        found = bytes(self._view[self._at : end])
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, len(self._view))[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at


def reason(error: Exception) -> str:
    """What FFmpeg says, without the number and the name of the file."""
    return str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
