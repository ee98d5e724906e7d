"""Pictures and compiled kernels go in; decoded and processed samples come out, in their memory.

Threads that decode need Python only for a few microseconds per sample, but then they wait for each
other, and for whoever builds the next batch meanwhile (7 to 11 ms of every 60 for ResNet-50's
batches of 64). So a thread calls one native function, which claims sample after sample. What it
cannot decode it leaves to Python, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_int64, c_void_p, cast, pointer
from typing import Any, NamedTuple

import numpy as np

from ...common.memo import memoized
from ..runtime import CpuKernel, link, native, new_target
from . import decoder
from .nvimgcodec_c import FORMATS, Library
from .structures import EncodedPicture, Job, Kernel

Array = np.ndarray[Any, Any]


class Pictures(NamedTuple):
    """What to decode."""

    rows: Array  # an `EncodedPicture` per sample; the files belong to who gives their addresses
    colour: str  # a key of FORMATS
    fast_idct: bool
    library: Library


def sample_kernel(code: CpuKernel, table: Array, moved: list[int], scratch: int | None) -> Kernel:
    """A kernel of a job. `moved`: columns of its table that count from scratch memory; `scratch`:
    the column for an address in it. The machine code belongs to `code`, which the caller keeps."""
    return Kernel(
        entry=code.address, table=pointer(c_int64.from_buffer(table.data)), width=table.shape[1],
        scratch=-1 if scratch is None else scratch,
        moved=(c_int64 * len(moved))(*moved), moved_count=len(moved),
    )  # fmt: skip


class DecodeJob:
    """The samples of a batch, for any number of threads.

    It keeps alive what its structures point to: pictures and tables. Files, results and scratch
    memory belong to the caller, who has to keep them until the last `run` has returned.
    """

    def __init__(
        self, pictures: Pictures, targets: Array, in_scratch: bool, kernels: list[Kernel],
        between: int,
    ) -> None:  # fmt: skip
        self._pictures = pictures
        rows = pictures.rows
        rows["target"] = targets
        spec, form = FORMATS[pictures.colour]
        self._job = Job(
            count=len(rows), pictures=pointer(EncodedPicture.from_buffer(rows.data)),
            in_scratch=in_scratch, spec=spec, format=form, between=between,
            kernels=(Kernel * len(kernels))(*kernels), kernel_count=len(kernels),
        )  # fmt: skip
        self._loop = loop(pictures.library.functions)

    def run(self, scratch: int) -> None:
        """Work until no sample is left, with scratch memory that no other thread uses."""
        own = decoder.of_thread(self._pictures.library, self._pictures.fast_idct)
        if own.is_good:
            self._loop(addressof(self._job), addressof(own.state), scratch)

    def left(self) -> list[int]:
        """Samples that Python has to take care of, when all threads have returned."""
        return np.flatnonzero(~self._pictures.rows["done"]).tolist()


@memoized(4)
def loop(functions: Any) -> Callable[[int, int, int], int]:
    """The native function: `run(job, decoder, scratch)` takes addresses.

    Every process compiles it anew, in a few milliseconds, so that it always fits the structures.
    """
    import llvmlite.binding as llvm

    from . import code

    module = llvm.parse_assembly(code.source())
    for function in module.functions:
        if function.is_declaration:  # one of the library, or of libc, which it is linked with
            address = cast(getattr(functions, function.name), c_void_p).value
            llvm.add_symbol(function.name, address)
    return native(*link(code.NAME, new_target().emit_object(module)))
