"""A decoder process that does what a word at the end of a file says, to test the one that asks."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any

from ndd.codecs.image.isolated import child
from ndd.codecs.image.isolated.messages import Facts, Reply, Task, facts_of
from ndd.fusion.graph.shapes import Array
from ndd.kernels.cpu.decode_loop.job import DecodeJob
from ndd.kernels.cpu.decode_loop.structures import EncodedPicture

_answer = child._answer


def _end_of(address: int, length: int) -> bytes:
    return ctypes.string_at(address + max(0, length - 10), min(10, length))


def _misbehaving(request: Any, files: Array, pixels: Array) -> Reply:
    end = bytes(files[request["begin"] :][: request["length"]][-10:])
    if b"[crash]" in end:
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"[hang]" in end:
        time.sleep(600)
    if b"[exit]" in end:
        os._exit(7)
    if b"[explode]" in end:
        return _exploded(facts_of(request))
    if b"[lie]" in end:
        return Reply(
            bool(request["task"] == Task.header), Facts(99, -1, 2**62, 0, -7), "cannot tell"
        )
    return _answer(request, files, pixels)


class MisbehavingJob(DecodeJob):
    """A native loop that dies or hangs at [native] and [stuck], and leaves other words to Python."""

    def run(self, scratch: int) -> None:
        count = self._job.count
        for k in range(count):
            row: EncodedPicture = self._job.pictures[k]
            end = _end_of(row.data, row.length) if row.length else b""
            self._job.next = k + 1
            if b"[native]" in end:
                os.kill(os.getpid(), signal.SIGSEGV)
            if b"[stuck]" in end:
                time.sleep(600)
            if end.endswith(b"]"):
                continue
            self._job.next, self._job.count = k, k + 1
            super().run(scratch)
        self._job.count = count


def _exploded(facts: Facts) -> Reply:
    """Takes more memory than is allowed."""
    try:
        held: list[Any] = [bytes(64 << 20) for _ in range(1000)]
    except MemoryError:
        return Reply(False, facts, "there is not enough memory for it")
    raise AssertionError(f"{len(held)} blocks: there is no limit")


child._answer = _misbehaving
child.DecodeJob = MisbehavingJob  # type: ignore[misc]
serve = child.serve
