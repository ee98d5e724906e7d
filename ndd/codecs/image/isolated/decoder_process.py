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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    Facts,
    Progress,
    Reply,
    Request,
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
# A group is decoded by one call of the native loop. One picture at a time cost 0.15 ms more of 1.2,
# because Python finds its memory out of the caches. CPU time of a photo, compared with decoding it
# here, for groups of 2, 4 and 8 in runs of 16: 1.178, 1.152 and 1.146.
_PICTURES_AT_ONCE = 8
_CHILD = f"{__package__}.child", "serve"  # what a decoder process runs


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
        self.outbox.reserve(PROGRESS_BYTES)
        self.waiting: deque[int] = deque()  # sizes of the groups whose answers nobody has taken
        self._group = 0  # the number of the first of these groups
        self._received = b""  # the beginning of their answers
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        shared = (theirs, answers, self.inbox.descriptor, self.outbox.descriptor)
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            own_process.command(*_CHILD, *shared, MEGABYTES, SECONDS),
            stdin=null, stdout=null, stderr=null, pass_fds=shared, env=own_process.environment(),
        )  # fmt: skip
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

    def post(self, groups: Sequence[Sequence[tuple[Request, Facts]]]) -> None:
        """Add tasks to those that the process works on; `take` returns its answers in order."""
        try:
            os.write(self._requests, b"".join(map(packed_group, groups)))
        except OSError:
            pass  # it has died, which `take` will find out
        except BaseException:
            self.stop()
            raise
        self.waiting.extend(map(len, groups))

    def take(self) -> list[Reply | str | None]:
        """The answers to the next group.

        If the process dies or hangs, one of them is a text that says so, and those to pictures that
        are neither done nor to blame are None.
        """
        count = self.waiting[0]
        try:
            answers: list[Reply | str | None] = [self._reply(SECONDS) for _ in range(count)]
        except ValueError as error:
            background.leave_at_exit()  # it was killed because this process ends
            self.stop()
            return self._outcome(count, str(error))
        except BaseException:
            self.stop()  # after Ctrl-C, its answers would be taken for those to the next files
            raise
        self.waiting.popleft()
        self._group += 1
        return answers

    def _outcome(self, count: int, cause: str) -> list[Reply | str | None]:
        """What is known of a group after the end of the process."""
        progress = Progress(self.outbox.bytes)
        finished = progress.finished(self._group, count)
        answers: list[Reply | str | None] = [DONE if f else None for f in finished]
        answers[progress.culprit(self._group, count)] = cause
        return answers

    def _reply(self, seconds: int) -> Reply:
        """The next answer, which may take this many seconds."""
        if self._received.startswith(PACKED_DONE):  # nearly always
            self._received = self._received[len(PACKED_DONE) :]
            return DONE
        while (found := unpacked_reply(self._received)) is None:
            if not self._is_readable(seconds):
                raise ValueError(f"its decoder process was stopped after {seconds} seconds")
            part = os.read(self._replies, _MOST_BYTES)
            if not part:
                raise ValueError(f"its decoder process died{_cause(self._process.wait())}")
            self._received += part
        reply, size = found
        self._received = self._received[size:]
        return reply

    def _is_readable(self, seconds: int) -> bool:
        """Wait for an answer; False if the process has worked on one file for this long."""
        place: int | None = None
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._ready.poll(min(left, _LOOK_SECONDS) * 1000):
                return True
            before, place = place, Progress(self.outbox.bytes).culprit(self._group, MOST_AT_ONCE)
            if before not in (None, place):
                end = time.monotonic() + seconds
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
        self.run: tuple[Any, DecodeRun] | None = None  # and the images it belongs to
        self.zeros: Array = np.zeros(0, np.uint8)


_local = _Local()


def of_this_thread() -> DecoderProcess:
    """The decoder process of the calling thread, started if there is none."""
    background.leave_at_exit()
    process = _local.process
    while process is not None and process.is_usable() and process.waiting:
        process.take()  # after an error, nobody needs the answers to the rest of a run
    if process is None or not process.is_usable():
        _local.process = None
        process = _local.process = DecoderProcess()
    return process


def begin_run(owner: Any, pictures: Sequence[WantedPicture]) -> None:
    """Have pictures of `owner` decoded; `next_of` takes them in the same order."""
    _local.run = None
    _local.run = (owner, DecodeRun(pictures))


def next_of(owner: Any, sample: int, picture: Callable[[int], WantedPicture]) -> tuple[int, Array]:
    """Address and bytes of a picture, which should be the next of the run of this thread.

    If it is not, `picture` says what to decode.
    """
    if _local.run is None or _local.run[0] is not owner or _local.run[1].next != sample:
        begin_run(owner, [picture(sample)])
    assert _local.run is not None
    return _local.run[1].take()


def header_of(owner: Any, sample: int) -> Header | None:
    """The header of a picture that is the next of the run of this thread; None if it is not."""
    run = _local.run
    return run[1].header if run is not None and run[0] is owner and run[1].next == sample else None


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
    process, _local.process, _local.run = _local.process, None, None
    if process is not None:
        process.forget()


forks.in_child(_forget_all)


# -- tasks ---------------------------------------------------------------------------------------


def read_header(data: Array) -> Header:
    """The header of a file that our checks have found sound, as nvimgcodec reads it."""
    process = of_this_thread()
    process.inbox.reserve(data.size)
    process.inbox.bytes[: data.size] = data
    sizes = {"inbox": process.inbox.bytes.size, "outbox": process.outbox.bytes.size}
    process.post([[(Request(Task.header, length=data.size, **sizes), Facts())]])
    (reply,) = process.take()
    if not isinstance(reply, Reply) or not reply.is_done:
        raise ValueError(reply.text if isinstance(reply, Reply) else reply)
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

    It works on the next group while this thread works on the last.
    """

    def __init__(self, pictures: Sequence[WantedPicture]) -> None:
        self._left = deque(pictures)
        self._lost: dict[int, str] = {}  # pictures that have ended a process, and how
        self._known: dict[int, Array | str] = {}  # pixels, or what is wrong
        self._last: Array | None = None  # keeps what the caller has been given
        self._begin()

    def _begin(self) -> None:
        """Have the pictures decoded that are left."""
        self._process = process = of_this_thread()
        settled = {*self._lost, *self._known}
        pictures = [p for p in self._left if p.sample not in settled]
        files = _offsets([p.header.data.size for p in pictures])
        pixels = _offsets([p.nbytes for p in pictures], PROGRESS_BYTES)
        process.inbox.reserve(files[-1])
        process.outbox.reserve(pixels[-1])
        inbox, outbox = process.inbox.bytes, process.outbox.bytes.size
        requests = []
        for picture, begin, target in zip(pictures, files, pixels, strict=False):
            data = picture.header.data
            size = data.size
            inbox[begin : begin + size] = data
            wanted = picture.request
            request = Request(wanted[0], begin, size, target, inbox.size, outbox, *wanted[6:])
            requests.append((request, Facts.of(picture.header)))
        starts = range(0, len(pictures), _PICTURES_AT_ONCE)
        process.post([requests[k : k + _PICTURES_AT_ONCE] for k in starts])
        placed = [*zip(pictures, pixels, strict=False)]
        self._groups = deque(placed[k : k + _PICTURES_AT_ONCE] for k in starts)

    @property
    def next(self) -> int | None:
        """The number of the next picture."""
        return self._left[0].sample if self._left else None

    @property
    def header(self) -> Header:
        """The header of the next picture."""
        return self._left[0].header

    def take(self) -> tuple[int, Array]:
        """Address and bytes of the next picture, valid until the next one is taken.

        Raises a ValueError if it cannot be decoded.
        """
        sample = self._left[0].sample
        while sample not in self._known and sample not in self._lost:
            self._receive()
        self._left.popleft()
        found = self._lost.get(sample) or self._known.pop(sample)
        if isinstance(found, str):
            raise ValueError(found)
        self._last = found
        return address_of(found), found

    def _receive(self) -> None:
        group, outbox = self._groups.popleft(), self._process.outbox.bytes
        answers = self._process.take()
        for (picture, target), answer in zip(group, answers, strict=True):
            if isinstance(answer, str):
                self._lost[picture.sample] = answer
            elif answer is not None and answer.is_done:
                self._known[picture.sample] = outbox[target : target + picture.nbytes]
            elif answer is not None:
                self._known[picture.sample] = answer.text
        if any(not isinstance(answer, Reply) for answer in answers):
            self._begin()  # by another process


def _offsets(sizes: list[int], first: int = 0) -> list[int]:
    """Offsets of blocks that follow each other, aligned, and their end."""
    return list(itertools.accumulate((-(-size // 64) * 64 for size in sizes), initial=first))
