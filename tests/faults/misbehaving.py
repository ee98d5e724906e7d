"""A decoder process that does what a word at the end of a file says, to test the one that asks."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from ndd.codecs.image.isolated import child
from ndd.codecs.image.isolated.messages import Facts, Reply, Request, Task, unpacked_request

_answer = child._answer


def _misbehaving(data: bytes, files: child.SharedBlock, pixels: child.SharedBlock) -> Reply:
    request, facts = unpacked_request(data)
    file = files.sized(request.inbox)[request.begin : request.begin + request.length]
    end = bytes(file[-9:])
    if b"[crash]" in end:
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"[hang]" in end:
        time.sleep(600)
    if b"[exit]" in end:
        os._exit(7)
    if b"[explode]" in end:
        return _exploded(request, facts)
    if b"[lie]" in end:
        return Reply(request.task == Task.header, Facts(99, -1, 2**62, 0, -7), "cannot tell")
    return _answer(data, files, pixels)


def _exploded(request: Request, facts: Facts) -> Reply:
    """Takes more memory than is allowed."""
    try:
        held: list[Any] = [bytes(64 << 20) for _ in range(1000)]
    except MemoryError:
        return Reply(False, facts, "there is not enough memory for it")
    raise AssertionError(f"{len(held)} blocks: there is no limit")


child._answer = _misbehaving
serve = child.serve
