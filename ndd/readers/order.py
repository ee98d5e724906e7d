"""The order of samples: a position enters, the indices of a batch leave; no data, no threads.

The samples of a reader are an endless sequence of *passes*: pass 0 goes once through the reader's
shard, pass 1 through it again (`stick`) or through the next shard, and so on. Each pass can be
shuffled. An epoch is a part of that sequence, and a `Position` says where in it a reader is. That
is the whole state, whatever the size of the data set.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..kernels.common import forks
from ..kernels.ir import philox

Array = np.ndarray[Any, Any]
# Pairs of keys that are drawn at a time; all at once, they would take five times the memory.
_PAIRS = 1 << 16
_MOST = 1 << 62  # no reader gets to such numbers, and sums of them have no end in practice
LAST_BATCH = ("wrap", "pad", "partial", "drop")


class Position(NamedTuple):
    """Epoch `epoch` began at sample `offset` of pass `pass_`, and used `taken` samples so far."""

    epoch: int = 0
    pass_: int = 0
    offset: int = 0
    taken: int = 0


class RestOfEpoch(NamedTuple):
    """Samples that take the place of a pass, after the number of ranks has changed."""

    pass_: int
    samples: Array
    smallest: int  # number of samples of the rank that has the fewest
    largest: int


def permutation(count: int, seed: int, purpose: int, number: int) -> Array:
    """A random order of `count` items, which depends only on the arguments, in every version.

    NumPy's shuffle may change with its version, and a checkpoint must outlive that.
    """
    keys = np.empty(((count + 1) // 2, 2), np.uint64)
    for begin in range(0, len(keys), _PAIRS):
        pairs = np.arange(begin, min(begin + _PAIRS, len(keys)))
        counter = (pairs & 0xFFFFFFFF, pairs >> 32, number & 0xFFFFFFFF, purpose)
        a, b, c, d = philox.blocks(counter, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
        keys[pairs, 0] = a.astype(np.uint64) << np.uint64(32) | b
        keys[pairs, 1] = c.astype(np.uint64) << np.uint64(32) | d
    found = np.argsort(keys.reshape(-1)[:count], kind="stable")
    return found.astype(np.int32) if count < 2**31 else found


class Order:
    """The passes of one reader over `count` samples."""

    _LIST, _PASS, _ALL, _FILES = range(4)  # purposes of permutations

    def __init__(
        self, count: int, shard_id: int, num_shards: int, stick: bool, shuffle: str, seed: int,
        files: Array | None = None,
    ) -> None:  # fmt: skip
        self.count, self.shard_id, self.num_shards = count, shard_id, num_shards
        self.stick, self.shuffle, self.seed = stick, shuffle, seed
        self._files = files  # the first sample of each file, then the number of samples
        self.rest: RestOfEpoch | None = None
        self._passes: dict[int, Array] = {}
        self._lock = forks.lock()
        # Folders are sorted by class, so shards of the plain list would hold few classes each.
        mixed = shuffle == "pass" and num_shards > 1
        self._list = permutation(count, seed, self._LIST, 0) if mixed else None

    def of_rank(self, shard_id: int, num_shards: int) -> Order:
        """The passes of another rank, with all samples, among this many ranks."""
        if num_shards != self.num_shards:
            found = Order(self.count, shard_id, num_shards, self.stick, self.shuffle, self.seed)
        else:
            found = copy.copy(self)
        found.shard_id, found._files, found.rest, found._passes = shard_id, self._files, None, {}
        return found

    def _bounds(self, pass_: int) -> tuple[int, int]:
        shard = self.shard_id if self.stick else (self.shard_id + pass_) % self.num_shards
        return self.count * shard // self.num_shards, self.count * (shard + 1) // self.num_shards

    def size(self, pass_: int) -> int:
        """Number of samples of a pass."""
        if self.rest is not None and pass_ == self.rest.pass_:
            return len(self.rest.samples)
        start, end = self._bounds(pass_)
        return end - start

    @property
    def largest(self) -> int:
        """Size of the largest shard."""
        return -(-self.count // self.num_shards)

    def extremes(self, pass_: int) -> tuple[int, int]:
        """Number of samples of the ranks that have the fewest and the most of a pass."""
        if self.rest is not None and pass_ == self.rest.pass_:
            return self.rest.smallest, self.rest.largest
        return self.count // self.num_shards, self.largest

    def samples(self, pass_: int) -> Array | range:
        """Indices of the samples of a pass, in order."""
        if self.rest is not None and pass_ == self.rest.pass_:
            return self.rest.samples
        start, end = self._bounds(pass_)
        if self.shuffle == "no":
            return range(start, end)
        with self._lock:
            found = self._passes.get(pass_)
            if found is None:
                found = self._shuffled(pass_, start, end)
                # Keep two: a batch may span two passes, and replacing a sample may need both.
                while len(self._passes) >= 2:
                    del self._passes[min(self._passes)]
                self._passes[pass_] = found
            return found

    def _shuffled(self, pass_: int, start: int, end: int) -> Array:
        if self.shuffle == "all":
            return permutation(self.count, self.seed, self._ALL, pass_)[start:end]
        if self.shuffle.startswith("files"):
            found = self._files_shuffled(pass_, start, end)
            if self.shuffle == "files":
                return found
            return found[permutation(len(found), self.seed, self._PASS, pass_)]
        chosen = permutation(end - start, self.seed, self._PASS, pass_) + start
        return chosen if self._list is None else self._list[chosen]

    def _files_shuffled(self, pass_: int, start: int, end: int) -> Array:
        """The samples from `start` to `end` if files come in a random order."""
        assert self._files is not None, "readers that shuffle files say where they begin"
        firsts, sizes = self._files[:-1], np.diff(self._files)
        order = permutation(len(sizes), self.seed, self._FILES, pass_)
        ends = np.cumsum(sizes[order])
        wanted = np.arange(start, end)
        slot = np.searchsorted(ends, wanted, "right")
        chosen = order[slot]
        found: Array = firsts[chosen] + wanted - (ends[slot] - sizes[chosen])
        return found

    def normal(self, pass_: int, offset: int) -> tuple[int, int]:
        """The same place, with an offset inside of its pass."""
        # All passes over a shard are equally long, and those over all shards are the whole list.
        turn, length = (1, self.size(pass_)) if self.stick else (self.num_shards, self.count)
        turns, offset = divmod(offset, max(1, length))
        pass_ += turns * turn
        while offset >= self.size(pass_):
            offset -= self.size(pass_)
            pass_ += 1
        return pass_, offset

    def used_before(self, pass_: int) -> int:
        """How many samples all passes before this one have."""
        if self.stick:
            return pass_ * self.size(0)
        rounds, rest = divmod(pass_, self.num_shards)  # a round goes through all shards
        return rounds * self.count + sum(self.size(p) for p in range(rest))

    @staticmethod
    def is_possible(at: Position) -> bool:
        """Whether some reader can be at this position."""
        return min(at) >= 0 and max(at) < _MOST

    def has(self, at: Position, wraps: bool) -> bool:
        """Whether a reader can be at this position."""
        if not self.is_possible(at):
            return False
        return at.offset < self.size(at.pass_) if wraps else (at.pass_, at.offset) == (at.epoch, 0)

    def stream(self, pass_: int, offset: int, count: int) -> list[int]:
        """`count` samples from a place on, over as many passes as needed."""
        found: list[int] = []
        while len(found) < count:
            pass_, offset = self.normal(pass_, offset)
            part = self.samples(pass_)[offset : offset + count - len(found)]
            found += part if isinstance(part, range) else part.tolist()
            offset += len(part)
        return found


class EpochPlan:
    """The `count` batches of an epoch, from a position on."""

    def __init__(self, order: Order, last: str, at: Position, batch_size: int) -> None:
        self.order, self.last, self.at, self.batch_size = order, last, at, batch_size
        self._size = order.size(at.pass_)
        smallest, largest = order.extremes(at.pass_)
        if last == "drop":
            self.count = max(0, smallest - at.taken) // batch_size
        else:
            # Use the largest shard, not the reader's: ranks that wait for each other must get
            # equally many batches. (Upstream gives larger shards one more.)
            self.count = -(-max(0, largest - at.taken) // batch_size)

    @property
    def wraps(self) -> bool:
        return self.last == "wrap"

    def indices(self, batches: range) -> list[list[int]]:
        """Samples of batches that follow each other."""
        size, count = self.batch_size, len(batches) * self.batch_size
        first = self.at.taken + batches.start * size
        if self.wraps:
            found = self.order.stream(self.at.pass_, self.at.offset + first, count)
            return [found[k : k + size] for k in range(0, count, size)]
        samples = self.order.samples(self.at.pass_)
        part, last = samples[first : first + count], int(samples[-1])
        found = list(part) if isinstance(part, range) else part.tolist()
        if self.last != "partial":
            found += [last] * (count - len(found))
        # At least one: a rank with a smaller shard repeats a sample instead of stopping early.
        return [found[k : k + size] or [last] for k in range(0, count, size)]

    def after(self, batches: int) -> Position:
        """The position after this many batches."""
        epoch, pass_, offset, taken = self.at
        return Position(epoch, pass_, offset, taken + batches * self.batch_size)

    def followers(self, batch: int, slot: int) -> Iterator[int]:
        """All other samples of the pass, starting with the next one."""
        first = self.at.taken + batch * self.batch_size + slot
        pass_, offset = self.at.pass_, first
        if self.wraps:
            pass_, offset = self.order.normal(pass_, self.at.offset + first)
        samples = self.order.samples(pass_)
        for step in range(1, len(samples)):
            yield int(samples[(offset + step) % len(samples)])

    def end(self) -> Position:
        """The position where the next epoch begins, even if this one is abandoned early."""
        epoch = self.at.epoch + 1
        if not self.wraps:
            return Position(epoch, epoch)
        used = self.at.taken + self.count * self.batch_size
        return Position(epoch, *self.order.normal(self.at.pass_, self.at.offset + used))
