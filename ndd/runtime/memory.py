"""Statistics of the host memory pool, and the limit on free memory that it keeps."""

from __future__ import annotations

import operator
from typing import NamedTuple

from ..kernels.common.buffers import POOL


class MemoryStats(NamedTuple):
    """Bytes of host memory that results and scratch memory take."""

    live: int  # held by tensors, batches, arrays that share their memory, and running kernels
    free: int  # kept for reuse
    peak: int  # the most that was ever live
    limit: int  # free memory beyond this goes back to the system


def memory_stats() -> MemoryStats:
    """Host memory of results: in use, kept for reuse, highest use so far, and limit.

    Memory is free again when its last holder is gone: a Batch, or a torch tensor made from it.

    >>> import ndd
    >>> x = ndd.zeros(shape=[1000], dtype=ndd.float32).evaluate()
    >>> ndd.memory_stats().live >= 4000
    True
    """
    return MemoryStats(*POOL.stats())


def set_memory_limit(nbytes: int) -> None:
    """Keep at most `nbytes` of free memory for reuse; by default 1 GiB, or NDD_POOL_MB.

    >>> import ndd
    >>> ndd.set_memory_limit(1 << 30)
    """
    number = operator.index(nbytes)
    if number < 0:
        raise ValueError(f"set_memory_limit: the limit must not be negative, got {number}")
    POOL.set_limit(number)
