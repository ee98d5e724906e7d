"""The decoder process: requests and files enter, pixels in shared memory leave.

It reads headers and decodes pixels with nvimgcodec, under limits of memory and time. It ends when
the process that started it closes the pipe of requests, in whatever way.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import resource
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....fusion.graph.shapes import Array
from ....fusion.graph.storage import address_of
from ....kernels.cpu.decode_loop import nvimgcodec_c
from ....kernels.cpu.decode_loop.job import DecodeJob, Pictures
from ....kernels.cpu.decode_loop.structures import PICTURE
from ..decode import decode_into
from ..headers import read_by_library
from ..nvimgcodec import nvimgcodec
from .messages import (
    CODECS,
    COLOUR_NAMES,
    DONE,
    PACKED_DONE,
    SLOTS,
    Facts,
    Progress,
    Reply,
    Task,
    facts_of,
    packed_reply,
    unpacked_group,
)

_M_PERTURB = -6  # of glibc's mallopt
_LOOP_FIELDS = (
    *zip(("height", "width", "channels"), ("rows", "columns", "depth"), strict=True),
    *((name, name) for name in ("top", "left", "bottom", "right")),
)  # of the native loop, and their names in requests
_fill_byte = 0


class SharedBlock:
    """Memory that both processes see; the other one makes it larger."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.bytes: Array = np.zeros(0, np.uint8)
        self.address = 0

    def sized(self, size: int) -> Array:
        if self.bytes.size != size:
            self.bytes = np.frombuffer(mmap.mmap(self._descriptor, size), np.uint8)
            self.address = address_of(self.bytes)
        return self.bytes

    @property
    def progress(self) -> Progress:
        """What the block of pixels begins with."""
        return Progress(self.bytes)


def serve(*numbers: str) -> None:
    """Answer requests until there are no more; arguments are descriptors and limits."""
    requests, replies, megabytes, seconds, *descriptors = map(int, numbers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _warm_up()
    _limit_memory(megabytes << 20)
    blocks = [SharedBlock(d) for d in descriptors]
    os.write(replies, PACKED_DONE)
    for number in itertools.count():
        group = unpacked_group(partial(_read, requests))
        if not len(group):
            return
        _limit_time(seconds * len(group))
        slot = number % SLOTS
        os.write(replies, _answers(number, group, *blocks[2 * slot : 2 * slot + 2]))


def _warm_up() -> None:
    """Load everything that decoding needs before limits apply."""
    out = np.zeros((1, 1, 3), np.uint8)
    data = np.frombuffer(b"P6 1 1 255\n123", np.uint8)
    decode_into(read_by_library(data), "RGB", None, False, out)
    library = _library()
    if library is not None:
        pictures = Pictures(np.zeros(1, PICTURE), "RGB", False, library, DecodeJob)
        DecodeJob(pictures, np.zeros(1, np.int64), False, [], 0).run(0)  # makes a decoder


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


def _read(descriptor: int, size: int) -> bytes:
    """The next bytes; none at the end."""
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            return b""
        data += part
    return data


def _answers(number: int, group: Array, files: SharedBlock, pixels: SharedBlock) -> bytes:
    """The packed replies to a group of requests, whose number is `number`."""
    files.sized(int(group["inbox"][0]))
    pixels.sized(int(group["outbox"][0]))
    progress = pixels.progress
    rows = progress.begin(number, len(group))
    if group["task"][0] == Task.decode:
        _decode_natively(group, rows, files, pixels)
    if rows["done"].all():
        return PACKED_DONE * len(group)
    return b"".join(_answers_one_by_one(group, rows, files, pixels))


def _answers_one_by_one(
    group: Array, rows: Array, files: SharedBlock, pixels: SharedBlock
) -> Iterator[bytes]:
    is_done, progress = rows["done"].tolist(), pixels.progress
    for k, request in enumerate(group):
        if is_done[k]:
            yield PACKED_DONE
            continue
        progress.work_on(k)
        reply = _answer(request, files.bytes, pixels.bytes)
        rows["done"][k] = reply.is_done
        yield packed_reply(reply)


def _answer(request: Any, files: Array, pixels: Array) -> Reply:
    facts = facts_of(request)
    try:
        file = files[request["begin"] :][: request["length"]]
        if request["task"] == Task.header:
            return Reply(True, Facts.of(read_by_library(file)), "")
        _decode(request, facts, file, pixels)
    except (ValueError, MemoryError) as error:
        return Reply(False, facts, str(error) or "there is not enough memory for it")
    return DONE


def _library() -> Any:
    return nvimgcodec_c.library(nvimgcodec) if nvimgcodec_c.is_enabled else None


def _suit_loop(group: Array) -> Array:
    """For which pictures the native loop gives the same pixels as `decode_into`."""
    is_plain = (group["codec"] == CODECS.index("jpeg")) & (group["orientation"] == 1)
    is_region = group["bottom"] > 0
    is_narrow = is_region & (group["left"] == 0) & (group["right"] == 1)  # see `_decodable`
    return is_plain & (group["is_cmyk"] == 0) & ~is_narrow & (group["nbytes"] > 0)  # type: ignore[no-any-return]


def _decode_natively(group: Array, rows: Array, files: SharedBlock, pixels: SharedBlock) -> None:
    """Decode pictures of a group by the native loop; it skips those that it cannot decode.

    Python code between two pictures finds its memory out of the caches: that took 150 µs each.
    """
    first, library = group[0], _library()
    colour = COLOUR_NAMES[first["colour"]]
    if library is None or colour not in nvimgcodec_c.FORMATS:
        return
    _fill_fresh_memory(0)
    rows["data"] = files.address + group["begin"]
    rows["length"] = np.where(_suit_loop(group), group["length"], 0)
    for own, name in _LOOP_FIELDS:
        rows[own] = group[name]
    pictures = Pictures(rows, colour, bool(first["fast_idct"]), library, DecodeJob)
    targets, state = pixels.address + group["target"], pixels.progress.state
    # Nothing else runs in this process: to yield after each picture cost 1 to 2 % of its time.
    DecodeJob(pictures, targets, False, [], 0, state, yields=False).run(0)


def _fill_fresh_memory(byte: int) -> None:
    """Have the C library fill all memory that it hands out and takes back; 0 switches that off.

    It costs a photo 6 % of its time.
    """
    global _fill_byte
    if byte == _fill_byte:
        return
    _fill_byte = byte
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # glibc
        set_option(_M_PERTURB, byte)


def _decode(request: Any, facts: Facts, file: Array, block: Array) -> None:
    header = facts.header(file)
    shape = tuple(int(request[name]) for name in ("rows", "columns", "depth"))
    size = int(np.prod(shape)) * header.dtype.bytes
    out = block[request["target"] :][:size]
    # Memory holds pixels of other pictures. JPEG decoders write all rows or fail; others may not.
    is_trusted = header.codec == "jpeg"
    _fill_fresh_memory(0 if is_trusted else 165)
    if not is_trusted:
        out[...] = 0
    region = None
    if request["bottom"] > 0:
        top, left, bottom, right = (int(request[n]) for n in ("top", "left", "bottom", "right"))
        region = top, left, bottom, right
    colour, fast = COLOUR_NAMES[request["colour"]], bool(request["fast_idct"])
    decode_into(header, colour, region, fast, out.view(header.dtype.np).reshape(shape))
