"""Host memory for results: pooled, aligned, and returned when the last user drops it.

NOTE [fresh memory is slow] Writing into pages that the system has just mapped runs at about a tenth
of the speed of reused memory (4 GB/s against 44), so freed blocks are kept and reused.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict, deque
from typing import Any

import numpy as np

from . import forks

ALIGNMENT = 64
# Freed blocks are kept up to this many bytes; beyond it they go back to the system.
POOL_LIMIT_BYTES = int(os.environ.get("NDD_POOL_MB", "1024")) << 20


Array = np.ndarray[Any, Any]


class Block:
    """Memory of the pool, which many buffers use one after the other."""

    __slots__ = ("address", "memory", "places")

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        start = memory.__array_interface__["data"][0]
        self.address: int = start + (-start) % ALIGNMENT  # the first aligned one
        # The last offsets that somebody asked for, and their addresses: programs on small data make
        # values of the same shape again and again, and adding takes them 0.6 µs.
        self.places: tuple[Array | None, Array | None] = None, None


class Buffer:
    """A block of host memory; it returns to the pool when no array made from it is left."""

    __slots__ = ("__weakref__", "_block", "_pool", "address", "handed_out", "nbytes")

    def __init__(self, pool: Pool, block: Block, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = block.address
        self.handed_out = False  # whether somebody outside of this package may write to it
        self._pool, self._block = pool, block

    def at(self, offsets: Array) -> Array:
        """Addresses of the places at these offsets; nobody may change either array."""
        known, addresses = self._block.places
        if addresses is None or known is not offsets:
            addresses = self.address + offsets
            self._block.places = offsets, addresses
        return addresses

    @property
    def __array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": data, "version": 3}

    def __del__(self) -> None:
        try:
            block = self._block
        except AttributeError:  # an interrupt came before `__init__` had begun
            return
        self._pool.give_back(block)


class _Allocation(weakref.ref[Array]):
    """Memory of a block, while it exists.

    It refers to the array, not to the block: when a cycle of objects is collected, references to
    its blocks are cleared, although their buffers then return them to the pool. Python's collector
    does not look at arrays.
    """

    __slots__ = ("nbytes",)
    __hash__ = object.__hash__  # arrays have no hash
    __eq__ = object.__eq__
    nbytes: int


class Pool:
    """Free blocks by size class. All methods are thread-safe.

    An interrupt may end any method in the middle, a destructor that gives a block back among them.
    Then the block is gone, and a count is wrong until `_recount` compares it with what exists.
    """

    def __init__(self, limit: int = POOL_LIMIT_BYTES) -> None:
        self._free: dict[int, list[Block]] = defaultdict(list)
        self._lock = forks.lock()  # garbage collection in take() may run a Buffer's __del__
        self._limit = limit
        self._allocations: set[_Allocation] = set()
        # Memory that does not exist any more. A C function adds to it, which nothing interrupts.
        self._gone: deque[Any] = deque()
        self._total_bytes = 0  # of `_allocations`
        self.free_bytes = 0
        self.peak_bytes = 0

    @property
    def live_bytes(self) -> int:
        """Bytes in use."""
        return self.stats()[0]

    def _recount(self) -> None:
        self._note_gone()
        self._total_bytes = sum(a.nbytes for a in self._allocations)
        self.free_bytes = sum(size * len(blocks) for size, blocks in self._free.items())

    def _note_gone(self) -> None:
        while self._gone:
            allocation = self._gone.popleft()
            if allocation in self._allocations:
                self._allocations.remove(allocation)
                self._total_bytes -= allocation.nbytes

    def stats(self) -> tuple[int, int, int, int]:
        """Bytes in use, bytes kept, the peak of bytes in use, and the limit of bytes kept."""
        with self._lock:
            self._recount()
            live = self._total_bytes - self.free_bytes
            return live, self.free_bytes, self.peak_bytes, self._limit

    def set_limit(self, nbytes: int) -> None:
        """Keep at most this many bytes of freed blocks."""
        with self._lock:
            self._limit = nbytes
            for size in sorted(self._free, reverse=True):
                while self._free[size] and self.free_bytes > nbytes:
                    self._free[size].pop()
                    self.free_bytes -= size

    def take(self, nbytes: int) -> Buffer:
        """A block of at least `nbytes` bytes, with arbitrary content."""
        size = _size_class(nbytes + ALIGNMENT)
        with self._lock:
            blocks = self._free.get(size)
            block = blocks.pop() if blocks else None
            if block is not None:
                self.free_bytes -= size
                live = self._total_bytes - self.free_bytes
                if live > self.peak_bytes:
                    self.peak_bytes = live
        if block is None:
            block = self._allocate(size, nbytes)
        return Buffer(self, block, nbytes)

    def _allocate(self, size: int, nbytes: int) -> Block:
        try:
            block = Block(np.empty(size, np.uint8))
        except MemoryError:
            # NumPy's own error cannot be rebuilt with another message, so it could not name the op.
            raise MemoryError(f"there is no memory for {nbytes / 1e9:,.1f} GB") from None
        allocation = _Allocation(block.memory, self._gone.append)
        allocation.nbytes = size
        with self._lock:
            self._allocations.add(allocation)
            self._note_gone()
            self._total_bytes += size
            self.peak_bytes = max(self.peak_bytes, self._total_bytes - self.free_bytes)
        return block

    def give_back(self, block: Block) -> None:
        size = block.memory.size
        with self._lock:
            if self.free_bytes + size <= self._limit:
                self._free[size].append(block)
                self.free_bytes += size

    def clear(self) -> None:
        """Return all free blocks to the system."""
        with self._lock:
            self._free.clear()
            self.free_bytes = 0


def _size_class(nbytes: int) -> int:
    """Round up to an eighth of a power of two, so ragged batches of similar size share blocks."""
    if nbytes <= 1024:
        return -(-nbytes // 128) * 128
    step = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


POOL = Pool()
