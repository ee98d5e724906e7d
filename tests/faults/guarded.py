"""Memory between pages that nobody may touch: whoever reads or writes beyond an end crashes at once.

`array` gives inputs, which are also protected from writing. `guard_the_pool` puts all results of the library
into such memory, and keeps what was given back inaccessible for a while, so that late users crash, too.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from typing import Any

import numpy as np

from ndd.kernels.common.buffers import ALIGNMENT, Block, Buffer, Pool

PAGE = mmap.PAGESIZE
NONE, READ, WRITE = 0, 1, 2
_SLACK_BYTE = 0xC7
_QUARANTINE = 64  # regions that were given back and are inaccessible

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Region:
    """Whole pages between two inaccessible ones."""

    def __init__(self, nbytes: int) -> None:
        self.size = max(1, -(-nbytes // PAGE)) * PAGE
        try:
            # Unmapped when it is deallocated, not by a `__del__` of the region: a garbage collection may call that
            # one first, and then that of a buffer which still looks at the memory.
            self._memory = mmap.mmap(
                -1, self.size + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
        except (OSError, OverflowError) as error:
            raise MemoryError(f"there is no memory for {nbytes / 1e9:,.1f} GB") from error
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.begin, self.end = start + PAGE, start + PAGE + self.size
        for guard in (start, self.end):
            _libc.mprotect(guard, PAGE, NONE)

    def protect(self, access: int) -> None:
        if _libc.mprotect(self.begin, self.size, access):
            raise MemoryError(f"there is no memory for {self.size / 1e9:,.1f} GB")


# -- inputs --------------------------------------------------------------------------------------


class Inputs:
    """Arrays of the caller in guarded memory, which is used again after some cases."""

    def __init__(self, regions: int = 32, pages: int = 8) -> None:
        self._regions = deque(Region(pages * PAGE) for _ in range(regions))

    def array(self, values: np.ndarray[Any, Any], at_end: bool) -> np.ndarray[Any, Any]:
        """A copy whose last byte ends at a guard, or whose first byte begins there; nobody may write to it."""
        region = self._regions[0]
        assert values.nbytes <= region.size, values.shape
        self._regions.rotate(-1)
        region.protect(READ | WRITE)
        place = region.end - values.nbytes if at_end else region.begin
        memory = (ctypes.c_uint8 * values.nbytes).from_address(place)
        made = np.frombuffer(memory, np.uint8).view(values.dtype).reshape(values.shape)
        made[...] = values
        region.protect(READ)
        return made


# -- results -------------------------------------------------------------------------------------


class _GuardedBlock(Block):
    """A block of the pool that ends at a guard, up to alignment; the bytes in between are checked."""

    __slots__ = ("behind", "region")

    def __init__(self, region: Region, nbytes: int) -> None:
        self.region = region
        self.address = (region.end - nbytes) // ALIGNMENT * ALIGNMENT
        self.behind = self.address + nbytes
        self.places = None, None
        ctypes.memset(self.behind, _SLACK_BYTE, region.end - self.behind)

    def check(self) -> None:
        nbytes = self.region.end - self.behind
        if ctypes.string_at(self.behind, nbytes) != bytes([_SLACK_BYTE]) * nbytes:
            overruns.append(f"something wrote behind a buffer that ends at {self.behind:#x}")


overruns: list[str] = []
filling = 0x55  # of fresh memory; nothing that depends on it is right


def guard_the_pool() -> None:
    """Put all pooled memory between guards, from now on."""
    free: dict[int, list[Region]] = {}
    quarantine: deque[Region] = deque()
    give_back = Pool.give_back

    def take(self: Pool, nbytes: int) -> Buffer:
        size = max(1, -(-nbytes // PAGE)) * PAGE
        known = free.get(size)
        region = known.pop() if known else Region(nbytes)
        region.protect(READ | WRITE)
        block = _GuardedBlock(region, nbytes)
        ctypes.memset(block.address, filling, nbytes)
        return Buffer(self, block, nbytes)

    def given_back(self: Pool, block: Block) -> None:
        if not isinstance(block, _GuardedBlock):
            give_back(self, block)
            return
        block.check()
        region = block.region
        region.protect(NONE)
        if region.size <= 1 << 20:
            quarantine.append(region)
        if len(quarantine) > _QUARANTINE:
            oldest = quarantine.popleft()
            free.setdefault(oldest.size, []).append(oldest)

    Pool.take = take  # type: ignore[method-assign]
    Pool.give_back = given_back  # type: ignore[method-assign]
