"""Starts and asks decoder processes: files enter, headers and pixels or errors leave.

Every thread that decodes has a decoder process of its own, which starts when it is first needed. A
process that dies, hangs or gives nonsense is replaced; that costs the file that it had.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....fusion.graph.shapes import Array
from ....fusion.graph.storage import address_of
from ..headers import Header
from .messages import (
    REPLY_SIZE,
    Facts,
    Reply,
    Request,
    Task,
    packed_request,
    unpacked_reply,
)

# What a decoder process may take for one file.
SECONDS = int(os.environ.get("NDD_ISOLATE_SECONDS", "30"))
MEGABYTES = int(os.environ.get("NDD_ISOLATE_MB", "2048"))
_START_SECONDS = 120  # importing takes half a second on an idle machine
_SMALLEST_BLOCK = 1 << 20

_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from ndd.codecs.image.isolated.child import serve
serve(*map(int, sys.argv[2:]))
"""


class OwnBlock:
    """Memory that this process shares with its decoder process, and may make larger.

    The seal keeps a hostile decoder process from making it smaller, which would kill us.
    """

    def __init__(self, name: str) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.bytes: Array = np.zeros(0, np.uint8)
        self.address = 0

    def reserve(self, size: int) -> None:
        """Make it at least this large."""
        if size <= self.bytes.size:
            return
        size = 1 << max(size - 1, _SMALLEST_BLOCK - 1).bit_length()
        os.ftruncate(self.descriptor, size)
        self.bytes = np.frombuffer(mmap.mmap(self.descriptor, size), np.uint8)
        self.address = address_of(self.bytes)


class DecoderProcess:
    """A process that decodes one file at a time."""

    def __init__(self) -> None:
        self.inbox, self.outbox = OwnBlock("ndd-files"), OwnBlock("ndd-pixels")
        self.waiting = 0  # answers that nobody has taken yet
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        shared = (theirs, answers, self.inbox.descriptor, self.outbox.descriptor)
        path = str(Path(__file__).resolve().parents[4])
        # -P: a file `ndd.py` in the current directory must not be imported.
        numbers = map(str, (*shared, MEGABYTES, SECONDS))
        command = [sys.executable, "-P", "-c", _PROGRAM, path, *numbers]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=null, stdout=null, stderr=null, pass_fds=shared
        )
        os.close(theirs)
        os.close(answers)
        own = _running[self._process.pid] = Running(
            self._process, (self._requests, self._replies, *shared[2:])
        )
        self._end = weakref.finalize(self, _end, own)
        self._end.atexit = False  # see `_kill_all`
        self._ready = select.poll()
        self._ready.register(self._replies, select.POLLIN)
        try:
            self._reply(_START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def is_usable(self) -> bool:
        return self._end.alive and self._process.poll() is None

    def forget(self) -> None:
        """Leave the process to others."""
        self._end.detach()

    def stop(self) -> None:
        """End the process at once; what it has written stays readable."""
        self._end()

    def post(self, requests: Sequence[tuple[Request, Facts]]) -> None:
        """Add tasks to those that the process works on; `take` returns its answers in order."""
        sizes = {"inbox": self.inbox.bytes.size, "outbox": self.outbox.bytes.size}
        messages = [packed_request(r._replace(**sizes), facts) for r, facts in requests]
        try:
            os.write(self._requests, b"".join(messages))
        except OSError:
            pass  # it has died, which `take` will find out
        except BaseException:
            self.stop()
            raise
        self.waiting += len(messages)

    def take(self) -> Reply:
        """The next answer; raises a ValueError if the process does not give it."""
        try:
            reply = self._reply(SECONDS)
        except BaseException:
            self.stop()  # also after Ctrl-C: its answer would be taken for that to the next file
            raise
        self.waiting -= 1
        return reply

    def _reply(self, seconds: int) -> Reply:
        deadline = time.monotonic() + seconds

        def read(size: int) -> bytes:
            data = b""
            while len(data) < size:
                left = deadline - time.monotonic()
                if left <= 0 or not self._ready.poll(left * 1000):
                    raise ValueError(f"its decoder process was stopped after {seconds} seconds")
                part = os.read(self._replies, size - len(data))
                if not part:
                    raise ValueError(f"its decoder process died{_cause(self._process.wait())}")
                data += part
            return data

        return unpacked_reply(read(REPLY_SIZE), read)


def _cause(status: int) -> str:
    if status >= 0:
        return f" with exit code {status}"
    try:
        return f" of {signal.Signals(-status).name}"
    except ValueError:
        return f" of signal {-status}"


class Running(NamedTuple):
    """A decoder process, and what we share with it."""

    process: subprocess.Popen[bytes]
    descriptors: tuple[int, ...]


# All of this process, by their numbers; not a cache.
_running: dict[int, Running] = {}


def _end(own: Running) -> None:
    _running.pop(own.process.pid, None)
    own.process.kill()
    for descriptor in own.descriptors:
        os.close(descriptor)
    own.process.wait()


class _Local(threading.local):
    """What belongs to one thread."""

    def __init__(self) -> None:
        self.process: DecoderProcess | None = None
        self.run: tuple[Any, DecodeRun] | None = None  # and the images it belongs to
        self.zeros: Array = np.zeros(0, np.uint8)


_local = _Local()


def of_this_thread() -> DecoderProcess:
    """The decoder process of the calling thread, started if there is none."""
    process = _local.process
    if process is None or not process.is_usable():
        _local.process = None
        process = _local.process = DecoderProcess()
    while process.waiting:  # after an error, nobody needs the answers to the rest of a run
        process.take()
    return process


def begin_run(owner: Any, pictures: Sequence[WantedPicture]) -> None:
    """Have pictures of `owner` decoded; `next_of` takes them in the same order."""
    _local.run = None
    _local.run = (owner, DecodeRun(pictures))


def next_of(owner: Any, picture: WantedPicture) -> tuple[int, Array]:
    """Address and bytes of a picture, which should be the next of the run of this thread."""
    if _local.run is None or _local.run[0] is not owner or _local.run[1].next != picture.sample:
        begin_run(owner, [picture])
    assert _local.run is not None
    return _local.run[1].take()


def zeros(nbytes: int) -> int:
    """The address of zeros, valid until this thread asks for the next ones."""
    _local.zeros = np.zeros(nbytes, np.uint8)
    return address_of(_local.zeros)


def _kill_all() -> None:
    """At exit. Descriptors stay open: a thread that still decodes must not find them reused."""
    for own in list(_running.values()):
        own.process.kill()
        own.process.wait()


def _forget_all() -> None:
    """In a forked child, where decoder processes belong to the parent."""
    for own in _running.values():
        own.process.returncode = 0  # not ours to wait for
        for descriptor in own.descriptors:
            os.close(descriptor)
    _running.clear()
    process, _local.process, _local.run = _local.process, None, None
    if process is not None:
        process.forget()


atexit.register(_kill_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# -- tasks ---------------------------------------------------------------------------------------


def read_header(data: Array) -> Header:
    """The header of a file that our checks have found sound, as nvimgcodec reads it."""
    process = of_this_thread()
    process.inbox.reserve(data.size)
    process.inbox.bytes[: data.size] = data
    process.post([(Request(Task.header, length=data.size), Facts())])
    reply = process.take()
    if not reply.is_done:
        raise ValueError(reply.text)
    try:
        return reply.facts.header(data)
    except IndexError:
        raise ValueError("its decoder process gave no header") from None


class WantedPicture(NamedTuple):
    """A picture to decode: its number, its header, and what of it is wanted."""

    sample: int
    header: Header
    request: Request

    @property
    def nbytes(self) -> int:
        request = self.request
        return request.rows * request.columns * request.depth * self.header.dtype.bytes


class DecodeRun:
    """Pictures that the decoder process of this thread decodes one after the other.

    It works on the next one while this thread works on the last, and neither sleeps in between.
    """

    def __init__(self, pictures: Sequence[WantedPicture]) -> None:
        self._process = process = of_this_thread()
        files = _offsets([p.header.data.size for p in pictures])
        pixels = _offsets([p.nbytes for p in pictures])
        process.inbox.reserve(files[-1])
        process.outbox.reserve(pixels[-1])
        self._pictures = deque(zip(pictures, pixels, strict=False))
        requests = []
        for picture, begin, target in zip(pictures, files, pixels, strict=False):
            data = picture.header.data
            process.inbox.bytes[begin : begin + data.size] = data
            place = {"begin": begin, "length": data.size, "target": target}
            requests.append((picture.request._replace(**place), Facts.of(picture.header)))
        process.post(requests)

    @property
    def next(self) -> int | None:
        """The number of the next picture."""
        return self._pictures[0][0].sample if self._pictures else None

    def take(self) -> tuple[int, Array]:
        """Address and bytes of the next picture, valid until the run after this one begins.

        Raises a ValueError if it cannot be decoded.
        """
        picture, target = self._pictures.popleft()
        try:
            reply = self._process.take()
        except ValueError:
            rest = [picture for picture, _ in self._pictures]
            if rest:
                self.__init__(rest)  # type: ignore[misc]
            raise
        if not reply.is_done:
            raise ValueError(reply.text)
        outbox = self._process.outbox
        return outbox.address + target, outbox.bytes[target : target + picture.nbytes]


def _offsets(sizes: list[int]) -> list[int]:
    """Offsets of blocks that follow each other, aligned, and their end."""
    return list(itertools.accumulate((-(-size // 64) * 64 for size in sizes), initial=0))
