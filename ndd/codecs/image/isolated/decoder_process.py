"""Starts and asks decoder processes: files enter, headers and pixels or errors leave.

Every thread that decodes has a decoder process of its own, which starts when it is first needed. A
process that dies, hangs or gives nonsense is replaced; that costs the file that it had.
"""

from __future__ import annotations

import atexit
import fcntl
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import NamedTuple

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
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        shared = (theirs, answers, self.inbox.descriptor, self.outbox.descriptor)
        path = str(Path(__file__).resolve().parents[4])
        # -P: a file `ndd.py` in the current directory must not be imported.
        numbers = map(str, (*shared, MEGABYTES, SECONDS))
        command = [sys.executable, "-P", "-c", _PROGRAM, path, *numbers]
        # Memory that the C library hands out is filled, so that it never holds another picture.
        env = {**os.environ, "MALLOC_PERTURB_": "165"}
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=null, stdout=null, stderr=null, pass_fds=shared, env=env
        )
        os.close(theirs)
        os.close(answers)
        own = _running[self._process.pid] = Running(
            self._process, (self._requests, self._replies, *shared[2:])
        )
        self._end = weakref.finalize(self, _end, own)
        self._end.atexit = False  # see `_kill_all`
        self._waiting = select.poll()
        self._waiting.register(self._replies, select.POLLIN)
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

    def ask(self, data: Array, request: Request, facts: Facts) -> Reply:
        """Have a file worked on; raises a ValueError if the process does not answer."""
        self.inbox.reserve(data.size)
        self.inbox.bytes[: data.size] = data
        sizes = {"length": data.size, "inbox": self.inbox.bytes.size}
        message = request._replace(outbox=self.outbox.bytes.size, **sizes)
        try:
            os.write(self._requests, packed_request(message, facts))
            return self._reply(SECONDS)
        except BaseException:
            self.stop()  # also after Ctrl-C: its answer would be taken for that to the next file
            raise

    def _reply(self, seconds: int) -> Reply:
        data, deadline = b"", time.monotonic() + seconds
        while len(data) < REPLY_SIZE:
            left = deadline - time.monotonic()
            if left <= 0 or not self._waiting.poll(left * 1000):
                raise ValueError(f"its decoder process was stopped after {seconds} seconds")
            part = os.read(self._replies, REPLY_SIZE - len(data))
            if not part:
                raise ValueError(f"its decoder process died{_cause(self._process.wait())}")
            data += part
        return unpacked_reply(data)


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
        self.zeros: Array = np.zeros(0, np.uint8)


_local = _Local()


def of_this_thread() -> DecoderProcess:
    """The decoder process of the calling thread, started if there is none."""
    process = _local.process
    if process is None or not process.is_usable():
        _local.process = None
        process = _local.process = DecoderProcess()
    return process


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
    process, _local.process = _local.process, None
    if process is not None:
        process.forget()


atexit.register(_kill_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# -- tasks ---------------------------------------------------------------------------------------


def read_header(data: Array) -> Header:
    """The header of a file that our checks have found sound, as nvimgcodec reads it."""
    reply = of_this_thread().ask(data, Request(Task.header, 0, 0, 0), Facts())
    if not reply.is_done:
        raise ValueError(reply.text)
    try:
        return reply.facts.header(data)
    except IndexError:
        raise ValueError("its decoder process gave no header") from None


def decoded(header: Header, request: Request, nbytes: int) -> tuple[int, Array]:
    """The pixels of a picture, and their address; valid until this thread decodes the next one.

    Raises a ValueError if it cannot be decoded.
    """
    process = of_this_thread()
    process.outbox.reserve(nbytes)
    reply = process.ask(header.data, request, Facts.of(header))
    if not reply.is_done:
        raise ValueError(reply.text)
    return process.outbox.address, process.outbox.bytes[:nbytes]
