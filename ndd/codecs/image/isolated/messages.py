"""What a process asks its decoder process, and what that answers: numbers of fixed size.

Nothing is pickled. The decoder process may be in the hands of a hostile file, so its answers are
only numbers and a text, and the process that asked checks them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ....fusion.graph.shapes import Array
from ..headers import COLOURS, NATIVE, Header

CODECS = ("jpeg", "png", "bmp", "tiff", "webp", "jpeg2k", "pnm")
DTYPES = tuple(NATIVE.values())
COLOUR_NAMES = tuple(COLOURS)
MAX_TEXT = 1000
NO_FILE = np.zeros(0, np.uint8)


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


class Request(NamedTuple):
    """A task: the file lies in one block of shared memory, and its pixels go to another."""

    task: int
    begin: int = 0  # where the file lies in its block
    length: int = 0
    target: int = 0  # where the pixels go
    inbox: int = 0  # sizes of the blocks, which may have grown
    outbox: int = 0
    colour: int = 0
    fast_idct: int = 0
    top: int = 0  # the region, if `bottom` is not negative
    left: int = 0
    bottom: int = -1
    right: int = -1
    rows: int = 0  # extents of the pixels to write
    columns: int = 0
    depth: int = 0


class Reply(NamedTuple):
    """Whether it is done; if not, a text says why."""

    is_done: bool
    facts: Facts
    text: str


_REQUEST = struct.Struct(f"<{len(Request._fields) + len(Facts._fields)}q")
_REPLY = struct.Struct(f"<{1 + len(Facts._fields)}qH")  # the text follows
REQUEST_SIZE, REPLY_SIZE = _REQUEST.size, _REPLY.size


def packed_request(request: Request, facts: Facts) -> bytes:
    return _REQUEST.pack(*request, *facts)


def unpacked_request(data: bytes) -> tuple[Request, Facts]:
    numbers = _REQUEST.unpack(data)
    cut = len(Request._fields)
    return Request(*numbers[:cut]), Facts(*numbers[cut:])


def packed_reply(reply: Reply) -> bytes:
    text = reply.text.encode(errors="replace")[:MAX_TEXT]
    return _REPLY.pack(reply.is_done, *reply.facts, len(text)) + text


def unpacked_reply(head: bytes, text: Callable[[int], bytes]) -> Reply:
    """A reply; `text` reads as many bytes as the head says."""
    is_done, *numbers, length = _REPLY.unpack(head)
    words = text(min(length, MAX_TEXT)).decode(errors="replace") if length else ""
    return Reply(is_done == 1, Facts(*numbers), words)
