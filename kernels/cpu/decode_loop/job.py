"""Encoded pictures and compiled kernels → processed samples, in memory that the caller gives.

Threads that decode through Python need the GIL for only a few microseconds per sample, but for
these they wait for each other and for the thread that builds the next batch (7 to 11 ms of every 60
for ResNet-50's batches of 64). So each thread calls one native function that claims sample after
sample. It leaves samples that it cannot decode to Python, which also raises their errors.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_int64, c_void_p, cast, pointer
from typing import Any, NamedTuple

import numpy as np

from ...common import background
from ...common.memo import memoized
from ..helpers import compiling
from ..runtime import CpuKernel, link, native, new_target
from . import decoder
from .nvimgcodec_c import FORMATS, Library
from .structures import EncodedPicture, Job, Kernel

Array = np.ndarray[Any, Any]


class Pictures(NamedTuple):
    """The encoded pictures of a batch, and how to decode them."""

    rows: Array  # an `EncodedPicture` per sample; the caller owns the files they point to
    colour: str  # a key of FORMATS, unless somebody else decodes them
    fast_idct: bool
    library: Library
    job: Callable[..., DecodeJob]  # makes the job; arguments as of DecodeJob


def sample_kernel(
    code: CpuKernel, table: Array, moved: list[int], pixels: list[int], scratch: int | None
) -> Kernel:
    """The structure of a kernel; the caller keeps `code` alive.

    `moved` are the columns whose addresses are relative to scratch memory, and `pixels` those for
    the decoded picture; `scratch` is the column for the address of the kernel's own scratch memory.
    """
    return Kernel(
        entry=code.address, table=pointer(c_int64.from_buffer(table.data)), width=table.shape[1],
        scratch=-1 if scratch is None else scratch,
        moved=(c_int64 * len(moved))(*moved), moved_count=len(moved),
        pixels=(c_int64 * len(pixels))(*pixels), pixels_count=len(pixels),
    )  # fmt: skip


class DecodeJob:
    """The samples of a batch, which any number of threads may process together.

    A job keeps its pictures and tables alive. The caller owns the files, results and scratch
    memory, and must keep them until the last `run` has returned.
    """

    def __init__(
        self, pictures: Pictures, targets: Array, in_scratch: bool, kernels: list[Kernel],
        between: int, state: Job | None = None, yields: bool = True,
    ) -> None:  # fmt: skip
        self._pictures = pictures
        rows = pictures.rows
        rows["target"] = targets
        spec, form = FORMATS.get(pictures.colour, (0, 0))
        # Others may want to see how far it is, and give memory for its state.
        self._job = Job() if state is None else state
        self._job.__init__(  # type: ignore[misc]
            next=0, count=len(rows), pictures=pointer(EncodedPicture.from_buffer(rows.data)),
            in_scratch=in_scratch, spec=spec, format=form, between=between,
            kernels=(Kernel * len(kernels))(*kernels), kernel_count=len(kernels),
            yields=yields,
        )  # fmt: skip
        self._loop = loop(pictures.library.functions)

    def prepare(self, threads: int) -> None:
        """Tell how many threads will call `run`."""

    def run(self, scratch: int) -> None:
        """Process samples until none is left; no other thread may use `scratch` meanwhile."""
        own = decoder.of_thread(self._pictures.library, self._pictures.fast_idct)
        if own.is_good:
            self._loop(addressof(self._job), addressof(own.state), scratch)

    def run_held(self, begin: int, end: int, scratch: int) -> None:
        """Process those samples of [begin, end) whose pixels are held (structures.HELD)."""
        part = Job.from_buffer_copy(self._job)
        part.next, part.count, part.yields = begin, end, False
        self._loop(addressof(part), 0, scratch)

    def left(self) -> list[int]:
        """Samples that fall back to Python; call it after all threads have returned."""
        return np.flatnonzero(~self._pictures.rows["done"]).tolist()


@memoized(4)
def loop(functions: Any) -> Callable[[int, int, int], int]:
    """The native function `run(job, decoder, scratch)`, whose arguments are addresses.

    Every process compiles it anew, in a few milliseconds, so it always matches the structures.
    """
    return background.uninterrupted(_linked, functions)


def _linked(functions: Any) -> Callable[[int, int, int], int]:
    with compiling:
        import llvmlite.binding as llvm

        from . import code

        module = llvm.parse_assembly(code.source())
        for function in module.functions:
            if function.is_declaration:  # from nvimgcodec, or from libc, which it links
                address = cast(getattr(functions, function.name), c_void_p).value
                llvm.add_symbol(function.name, address)
        return native(*link(code.NAME, new_target().emit_object(module)))
