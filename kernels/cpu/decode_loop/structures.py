"""Takes the samples of a batch through decoding and kernels, without the interpreter.

Threads that decode need Python only for a few microseconds per sample, but then they wait for each
other, and for whoever builds the next batch meanwhile (7 to 11 ms of every 60 for ResNet-50's
batches of 64). So a thread calls one native function, which claims sample after sample. What it
cannot decode it leaves to Python, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from functools import cache
from typing import Any


class _Cells(IntEnum):
    """Names of the cells of a block of 64-bit numbers."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last: list[Any]) -> int:
        return count


class Job(_Cells):
    """What threads share; its kernels follow."""

    next = auto()  # the sample that nobody has claimed yet
    count = auto()
    done = auto()  # address of a number per sample: 1 if it is done
    pictures = auto()  # address of a `Picture` per sample
    targets = auto()  # address of the addresses that they are decoded to
    in_scratch = auto()  # 1 if those count from the thread's scratch memory
    spec = auto()  # colours, and how they are arranged, as nvimgcodec numbers them
    format = auto()
    between = auto()  # bytes of scratch memory before what is a kernel's own
    kernels = auto()


class Kernel(_Cells):
    """A kernel that runs on every decoded sample."""

    entry = auto()
    table = auto()
    width = auto()  # of a row of the table, in cells
    scratch = auto()  # column for the address of scratch memory; -1 if it needs none
    moved = auto()  # address of the columns that count from the thread's scratch memory
    moved_count = auto()


class Picture(_Cells):
    """An encoded picture. Length 0: not for this loop. Bottom 0: all of it."""

    data = auto()
    length = auto()
    height = auto()  # of the result
    width = auto()
    channels = auto()
    top = auto()
    left = auto()
    bottom = auto()
    right = auto()


class Own(_Cells):
    """What a thread decodes with: see ndd/codecs/image/native_decoder.py."""

    instance = auto()
    decoder = auto()
    params = auto()
    info = auto()
    view = auto()
    # objects that are used again and again
    stream = auto()
    part = auto()
    image = auto()
    future = auto()
    result = auto()
    results = auto()
    # functions
    new_stream = auto()
    new_part = auto()
    new_image = auto()
    decode = auto()
    wait = auto()
    ask = auto()
    free_future = auto()
    free_stream = auto()
    free_image = auto()
    give_way = auto()  # to a thread that has no core
    # addresses of fields of `info` and `view`
    at_height = auto()
    at_width = auto()
    at_stride = auto()
    at_channels = auto()
    at_buffer = auto()
    at_spec = auto()
    at_format = auto()
    at_start = auto()
    at_end = auto()


@cache
def function() -> Callable[[int, int, int], int]:
    """The loop: `run(job, own, scratch)` works until no sample of the job is left."""
    import llvmlite.binding as llvm

    from ..runtime import link, native, new_target
    from . import code as loop_ir

    module = llvm.parse_assembly(loop_ir.source())
    return native(*link(loop_ir.NAME, new_target().emit_object(module)))
