"""Starts and asks decoder processes: files enter, headers and pixels or errors leave.

Every thread that decodes has a decoder process of its own, which starts when it is first needed. A
process that dies, hangs or gives nonsense is replaced; that costs the file that it had.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from ctypes import memmove
from typing import NamedTuple, TypeAlias

import numpy as np

from ....fusion.graph.shapes import Array
from ....fusion.graph.storage import address_of
from ....kernels.common import background, forks, own_process
from ..headers import Header
from .messages import (
    DONE,
    MOST_AT_ONCE,
    PACKED_DONE,
    PROGRESS_BYTES,
    REQUEST,
    SLOTS,
    Progress,
    Reply,
    Task,
    packed_group,
    unpacked_reply,
)

# What a decoder process may take for one file.
SECONDS = int(os.environ.get("NDD_ISOLATE_SECONDS", "30"))
MEGABYTES = int(os.environ.get("NDD_ISOLATE_MB", "2048"))
_START_SECONDS = 120  # importing takes half a second on an idle machine
_SMALLEST_BLOCK = 1 << 20
_MOST_BYTES = 1 << 16  # of answers read at once
_LOOK_SECONDS = 1.0  # how often to look whether a process that does not answer makes progress
_CHILD = f"{__package__}.child", "serve"  # what a decoder process runs
Answers: TypeAlias = "list[Reply | str | None]"


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


class Slot(NamedTuple):
    """Files of a group of pictures, and their pixels."""

    inbox: OwnBlock
    outbox: OwnBlock

    @staticmethod
    def new() -> Slot:
        made = Slot(OwnBlock("ndd-files"), OwnBlock("ndd-pixels"))
        made.outbox.reserve(PROGRESS_BYTES)
        return made

    def place(self, requests: Array, addresses: Array) -> None:
        """Copy the files into shared memory, and note in the requests where everything lies."""
        lengths = requests["length"].tolist()
        begins, files = _offsets(lengths)
        targets, pixels = _offsets(requests["nbytes"].tolist(), PROGRESS_BYTES)
        self.inbox.reserve(files)
        self.outbox.reserve(pixels)
        requests["begin"], requests["target"] = begins, targets
        requests["inbox"], requests["outbox"] = self.inbox.bytes.size, self.outbox.bytes.size
        for begin, address, length in zip(begins, addresses.tolist(), lengths, strict=True):
            memmove(self.inbox.address + begin, address, length)


class DecoderProcess:
    """A process that decodes groups of files; while we use the pixels of one, it has the next."""

    def __init__(self) -> None:
        self._slots = tuple(Slot.new() for _ in range(SLOTS))
        self.waiting: deque[tuple[Slot, Array]] = deque()  # groups whose answers nobody has taken
        self._posted = 0  # how many groups there were so far
        self._received = b""  # the beginning of their answers
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        blocks = [block.descriptor for slot in self._slots for block in slot]
        shared = (theirs, answers, *blocks)
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            own_process.command(*_CHILD, theirs, answers, MEGABYTES, SECONDS, *blocks),
            stdin=null, stdout=null, stderr=null, pass_fds=shared, env=own_process.environment(),
        )  # fmt: skip
        os.close(theirs)
        os.close(answers)
        own = _running[self._process.pid] = Running(
            self._process, (self._requests, self._replies, *blocks)
        )
        self._end = weakref.finalize(self, _end, own)
        self._end.atexit = False  # see `_kill_all`
        self._ready = select.poll()
        self._ready.register(self._replies, select.POLLIN)
        try:
            self._replied(1, _START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def is_usable(self) -> bool:
        return self.is_alive and self._process.poll() is None

    @property
    def is_alive(self) -> bool:
        """Whether nobody has ended it or seen its end."""
        return self._end.alive

    def forget(self) -> None:
        """Leave the process to others."""
        self._end.detach()

    def stop(self) -> None:
        """End the process at once; what it has written stays readable."""
        self._end()

    def post(self, requests: Array, addresses: Array) -> None:
        """Add a group of files, given by their addresses, to at most one that nobody has taken."""
        slot = self._slots[self._posted % SLOTS]
        slot.place(requests, addresses)
        try:
            os.write(self._requests, packed_group(requests))
        except OSError:
            pass  # it has died, which `take` will find out
        except BaseException:
            self.stop()
            raise
        self.waiting.append((slot, requests))
        self._posted += 1

    def take(self) -> tuple[Array, Answers]:
        """Addresses of the pixels of the next group, valid until two more are posted, and answers.

        If the process dies or hangs, one answer is a text that says so, and those to pictures that
        are neither done nor to blame are None.
        """
        slot, requests = self.waiting[0]
        try:
            answers = self._replied(len(requests), SECONDS)
        except ValueError as error:
            background.leave_at_exit()  # it was killed because this process ends
            self.stop()
            answers = self._outcome(len(requests), str(error))
        except BaseException:
            self.stop()  # after Ctrl-C, its answers would be taken for those to the next files
            raise
        self.waiting.popleft()
        return slot.outbox.address + requests["target"], answers

    def _outcome(self, count: int, cause: str) -> Answers:
        """What is known of a group after the end of the process."""
        finished = self._progress.finished(self._first, count)
        answers: Answers = [DONE if f else None for f in finished]
        answers[self._progress.culprit(self._first, count)] = cause
        return answers

    @property
    def _first(self) -> int:
        """The number of the first group whose answers nobody has taken."""
        return self._posted - len(self.waiting)

    @property
    def _progress(self) -> Progress:
        """How far the process is with that group."""
        return Progress(self._slots[self._first % SLOTS].outbox.bytes)

    def _replied(self, count: int, seconds: int) -> Answers:
        """The answers to a group of files, each of which may take this many seconds."""
        all_done = PACKED_DONE * count
        while len(self._received) < len(all_done) and all_done.startswith(self._received):
            self._receive(seconds)
        if self._received.startswith(all_done):  # nearly always
            self._received = self._received[len(all_done) :]
            return [DONE] * count
        return [self._reply(seconds) for _ in range(count)]

    def _reply(self, seconds: int) -> Reply:
        while (found := unpacked_reply(self._received)) is None:
            self._receive(seconds)
        reply, size = found
        self._received = self._received[size:]
        return reply

    def _receive(self, seconds: int) -> None:
        """Wait for more of an answer."""
        if not self._is_readable(seconds):
            raise ValueError(f"its decoder process was stopped after {seconds} seconds")
        part = os.read(self._replies, _MOST_BYTES)
        if not part:
            raise ValueError(f"its decoder process died{_cause(self._process.wait())}")
        self._received += part

    def _is_readable(self, seconds: int) -> bool:
        """Wait for an answer; False if the process has worked on one file for this long."""
        place: int | None = None
        left = float(seconds)
        while left > 0:
            begin = time.monotonic()
            if self._ready.poll(min(left, _LOOK_SECONDS) * 1000):
                return True
            # It counts no more than that if all processes were stopped meanwhile.
            left -= min(time.monotonic() - begin, 2 * _LOOK_SECONDS)
            before, place = place, self._progress.culprit(self._first, MOST_AT_ONCE)
            if before not in (None, place):
                left = float(seconds)
        return False


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
    background.leave_at_exit()
    process = _local.process
    while process is not None and process.is_usable() and process.waiting:
        process.take()  # after an error, nobody needs the answers to the rest of a batch
    if process is None or not process.is_usable():
        _local.process = None
        process = _local.process = DecoderProcess()
    return process


def zeros(nbytes: int) -> int:
    """The address of zeros, valid until this thread asks for the next ones."""
    _local.zeros = np.zeros(nbytes, np.uint8)
    return address_of(_local.zeros)


@background.before_exit
def _kill_all() -> None:
    """At exit, after the threads of the package have ended.

    Descriptors stay open: a thread that still decodes must not find them reused.
    """
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


forks.in_child(_forget_all)


# -- tasks ---------------------------------------------------------------------------------------


def read_header(data: Array) -> Header:
    """The header of a file that our checks have found sound, as nvimgcodec reads it."""
    requests = np.zeros(1, REQUEST)
    requests["task"], requests["length"] = Task.header, data.size
    process = of_this_thread()
    process.post(requests, np.array([address_of(data)]))
    _, (reply,) = process.take()
    if not isinstance(reply, Reply) or not reply.is_done:
        raise ValueError(reply.text if isinstance(reply, Reply) else reply)
    try:
        return reply.facts.header(data)
    except IndexError:
        raise ValueError("its decoder process gave no header") from None


def _offsets(sizes: list[int], first: int = 0) -> tuple[list[int], int]:
    """Offsets of blocks that follow each other, aligned, and their end."""
    aligned = (-(-size // 64) * 64 for size in sizes)
    *offsets, end = itertools.accumulate(aligned, initial=first)
    return offsets, end
