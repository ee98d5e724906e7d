"""How much host memory is in use, and how much of what is free is kept."""

from __future__ import annotations

import operator
from typing import NamedTuple

from ..kernels.common.buffers import POOL


class MemoryStats(NamedTuple):
    """Bytes of host memory that results and scratch take."""

    live: int  # held by tensors, batches, what was made from them, and running kernels
    free: int  # kept to be used again
    peak: int  # the most that was ever live
    limit: int  # free memory beyond this goes back to the system


def memory_stats() -> MemoryStats:
    """Host memory of results: in use, kept for reuse, the highest use so far, and the cap.

    Memory comes back when the last consumer drops it: a Batch, or a torch tensor made from it.

    >>> import ndd
    >>> x = ndd.zeros(shape=[1000], dtype=ndd.float32).evaluate()
    >>> ndd.memory_stats().live >= 4000
    True
    """
    return MemoryStats(*POOL.stats())


def set_memory_limit(nbytes: int) -> None:
    """Keep at most so many bytes of free memory for reuse; 1 GiB, or NDD_POOL_MB, by default.

    >>> import ndd
    >>> ndd.set_memory_limit(1 << 30)
    """
    number = operator.index(nbytes)
    if number < 0:
        raise ValueError(f"set_memory_limit: the limit must not be negative, got {number}")
    POOL.set_limit(number)
