"""What a process asks its decoder process, and what that answers: numbers of fixed size.

Nothing is pickled. The decoder process may be in the hands of a hostile file, so its answers are
only numbers and a text, and the process that asked checks them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ....fusion.graph.shapes import Array
from ....kernels.cpu.decode_loop.structures import PICTURE, Job
from ..headers import COLOURS, NATIVE, Header

# Plain JPEG files are the first ones: their requests are made without a `Facts`.
CODECS = ("jpeg", "png", "bmp", "tiff", "webp", "jpeg2k", "pnm")
DTYPES = tuple(NATIVE.values())
COLOUR_NAMES = tuple(COLOURS)
MAX_TEXT = 1000
MOST_AT_ONCE = 16  # pictures of a group
SLOTS = 2  # groups that a decoder process has at once
# The first bytes of the block of pixels tell how far the decoder process is.
PROGRESS_BYTES = 4096
_STATE_AT, _ROWS_AT = 64, 1024


class Progress:
    """How far a decoder process is with a group of pictures; both processes see it.

    If the process dies, the other one learns here which picture it was working on, and which ones
    are done although there was no reply.
    """

    def __init__(self, block: Array) -> None:
        head = block[:PROGRESS_BYTES]
        self._words = head[:_STATE_AT].view(np.int64)
        self._claimed = head[_STATE_AT : _STATE_AT + 8].view(np.int64)  # `Job.next`
        self._head = head
        size = MOST_AT_ONCE * PICTURE.itemsize
        self.rows = head[_ROWS_AT : _ROWS_AT + size].view(PICTURE)

    @property
    def state(self) -> Job:
        """The state of the native loop."""
        return Job.from_buffer(self._head[_STATE_AT:_ROWS_AT].data)

    def begin(self, group: int, count: int) -> Array:
        """A group begins, in the native loop; returns the rows of its pictures."""
        self.rows[:] = 0
        self._claimed[0] = 0
        self._words[:2] = group, -1
        return self.rows[:count]

    def work_on(self, picture: int) -> None:
        """The process works on this picture of the group, outside of the native loop."""
        self._words[1] = picture

    def finished(self, group: int, count: int) -> list[bool]:
        """Which pictures of a group are done."""
        if self._words[0] != group:
            return [False] * count
        return [bool(done) for done in self.rows["done"][:count]]

    def culprit(self, group: int, count: int) -> int:
        """The picture of a group that the process was working on when it died."""
        found = int(self._words[1]) if self._words[0] == group else 0
        found = int(self._claimed[0]) - 1 if found == -1 else found
        return min(max(found, 0), count - 1)  # whatever a hostile process has written


class Task(IntEnum):
    """What to do with a file."""

    header = 0
    decode = 1


class Facts(NamedTuple):
    """The header of a picture as numbers."""

    codec: int = 0
    height: int = 0
    width: int = 0
    channels: int = 0
    dtype: int = 0
    is_cmyk: int = 0
    orientation: int = 1

    @staticmethod
    def of(header: Header) -> Facts:
        codec, dtype = CODECS.index(header.codec), DTYPES.index(header.dtype)
        size = header.height, header.width, header.channels
        return Facts(codec, *size, dtype, header.is_cmyk, header.orientation)

    def header(self, data: Array) -> Header:
        """The header; raises an IndexError or a ValueError if a number makes no sense."""
        size = self.height, self.width, self.channels
        if min(*size, self.codec, self.dtype) < 0 or not 1 <= self.orientation <= 8:
            raise ValueError(f"{self} is no header")
        codec, dtype = CODECS[self.codec], DTYPES[self.dtype]
        return Header(codec, *size, dtype, bool(self.is_cmyk), self.orientation, data)


# A task: the file lies in one block of shared memory, and its pixels go to another.
REQUEST = np.dtype(
    [
        (name, np.int64)
        for name in (
            "task",
            *("begin", "length"),  # where the file lies in its block
            *("target", "nbytes"),  # where the pixels go
            *("inbox", "outbox"),  # sizes of the blocks, which may have grown
            *("colour", "fast_idct"),
            *("top", "left", "bottom", "right"),  # the region, if `bottom` is positive
            *("rows", "columns", "depth"),  # extents of the pixels to write
            *Facts._fields,
        )
    ]
)  # fmt: skip


def facts_of(request: Any) -> Facts:
    """The header in a request."""
    return Facts(*(int(request[name]) for name in Facts._fields))


class Reply(NamedTuple):
    """Whether it is done; if not, a text says why."""

    is_done: bool
    facts: Facts
    text: str


_REPLY = struct.Struct(f"<{1 + len(Facts._fields)}qH")  # the text follows
_COUNT = struct.Struct("<q")


def packed_group(requests: Array) -> bytes:
    """A message with the requests of a group, which are replied to together."""
    return _COUNT.pack(len(requests)) + requests.tobytes()


def unpacked_group(read: Callable[[int], bytes]) -> Array:
    """The next group; empty at the end. `read` gives this many bytes, or none at the end."""
    head = read(_COUNT.size)
    data = read(_COUNT.unpack(head)[0] * REQUEST.itemsize) if head else b""
    return np.frombuffer(data, REQUEST)


DONE = Reply(True, Facts(), "")


def packed_reply(reply: Reply) -> bytes:
    text = reply.text.encode(errors="replace")[:MAX_TEXT]
    return _REPLY.pack(reply.is_done, *reply.facts, len(text)) + text


PACKED_DONE = packed_reply(DONE)


def unpacked_reply(data: bytes) -> tuple[Reply, int] | None:
    """The reply that some bytes begin with, and its length; None if it is not complete yet."""
    if len(data) < _REPLY.size:
        return None
    is_done, *numbers, length = _REPLY.unpack_from(data)
    end = _REPLY.size + min(length, MAX_TEXT)
    if len(data) < end:
        return None
    text = data[_REPLY.size : end].decode(errors="replace")
    return Reply(is_done == 1, Facts(*numbers), text), end
