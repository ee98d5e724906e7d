"""The decoder process: requests and files enter, pixels in shared memory leave.

It reads headers and decodes pixels with nvimgcodec, under limits of memory and time. It ends when
the process that started it closes the pipe of requests, in whatever way.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
from pathlib import Path

import numpy as np

from ....fusion.graph.shapes import Array
from ..decode import decode_into
from ..headers import read_by_library
from .messages import (
    COLOUR_NAMES,
    REQUEST_SIZE,
    Facts,
    Reply,
    Request,
    Task,
    packed_reply,
    unpacked_request,
)

_M_PERTURB = -6  # of glibc's mallopt


class SharedBlock:
    """Memory that both processes see; the other one makes it larger."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.bytes: Array = np.zeros(0, np.uint8)

    def sized(self, size: int) -> Array:
        if self.bytes.size != size:
            self.bytes = np.frombuffer(mmap.mmap(self._descriptor, size), np.uint8)
        return self.bytes


def serve(
    requests: int, replies: int, inbox: int, outbox: int, megabytes: int, seconds: int
) -> None:
    """Answer requests until there are no more; arguments are descriptors and limits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _warm_up()
    _limit_memory(megabytes << 20)
    files, pixels = SharedBlock(inbox), SharedBlock(outbox)
    os.write(replies, packed_reply(Reply(True, Facts(), "")))
    while data := _read(requests):
        _limit_time(seconds)
        os.write(replies, packed_reply(_answer(data, files, pixels)))


def _warm_up() -> None:
    """Load everything that decoding needs before limits apply."""
    out = np.zeros((1, 1, 3), np.uint8)
    data = np.frombuffer(b"P6 1 1 255\n123", np.uint8)
    decode_into(read_by_library(data), "RGB", None, False, out)


def _limit_memory(more: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_time(seconds: int) -> None:
    """Processor time for the next task. The other process waits no longer; this is for a decoder
    that never ends while that process is stopped or gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _read(descriptor: int) -> bytes:
    """The next request; empty at the end."""
    data = b""
    while len(data) < REQUEST_SIZE:
        part = os.read(descriptor, REQUEST_SIZE - len(data))
        if not part:
            return b""
        data += part
    return data


def _answer(data: bytes, files: SharedBlock, pixels: SharedBlock) -> Reply:
    request, facts = unpacked_request(data)
    try:
        file = files.sized(request.inbox)[request.begin : request.begin + request.length]
        if request.task == Task.header:
            return Reply(True, Facts.of(read_by_library(file)), "")
        _decode(request, facts, file, pixels.sized(request.outbox))
    except (ValueError, MemoryError) as error:
        return Reply(False, facts, str(error) or "there is not enough memory for it")
    return Reply(True, facts, "")


def _fill_fresh_memory(byte: int) -> None:
    """Have the C library fill all memory that it hands out and takes back; 0 switches that off.

    It costs a photo 6 % of its time.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # glibc
        set_option(_M_PERTURB, byte)


def _decode(request: Request, facts: Facts, file: Array, block: Array) -> None:
    header = facts.header(file)
    shape = request.rows, request.columns, request.depth
    size = int(np.prod(shape)) * header.dtype.bytes
    out = block[request.target : request.target + size]
    # Memory holds pixels of other pictures. JPEG decoders write all rows or fail; others may not.
    is_trusted = header.codec == "jpeg"
    _fill_fresh_memory(0 if is_trusted else 165)
    if not is_trusted:
        out[...] = 0
    region = None
    if request.bottom >= 0:
        region = request.top, request.left, request.bottom, request.right
    colour, fast = COLOUR_NAMES[request.colour], bool(request.fast_idct)
    decode_into(header, colour, region, fast, out.view(header.dtype.np).reshape(shape))
