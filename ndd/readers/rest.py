"""Resuming with another number of shards: what was left of an epoch enters, new shards leave.

A state tells how far each rank had come, because ranks stay in step. What they had left is put
together, in the order of the ranks, and divided among the new ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.shapes import Array
from .order import Order, Position, RestOfEpoch

# Divisions of one epoch, and ranks of all of them; more in a state are a mistake.
_MAX_DIVISIONS = 1000
_MAX_RANKS = 1 << 18


class Division(NamedTuple):
    """Ranks that an epoch was divided among, and where one of them was."""

    num_shards: int
    shard_id: int
    at: Position

    def as_list(self) -> list[int]:
        """Numbers for a state."""
        return [self.num_shards, self.shard_id, *self.at]


def parse_divisions(given: Any, where: str, samples: int) -> list[Division]:
    """Divisions of this many samples from a state."""
    found = []
    good = isinstance(given, list) and len(given) <= _MAX_DIVISIONS
    for row in given if good else [None]:
        numbers = row if isinstance(row, list) and len(row) == 6 else [-1]
        if not all(type(n) is int and n >= 0 for n in numbers) or numbers[1] >= numbers[0]:
            raise ValueError(f"{where}: the state has no valid position: rest is {given!r:.200}")
        found.append(Division(numbers[0], numbers[1], Position(*numbers[2:])))
    # No reader has more shards than samples.
    counts = [division.num_shards for division in found]
    if max(counts, default=0) > samples or sum(counts) > _MAX_RANKS:
        raise ValueError(
            f"{where}: the state has no valid position: {samples} samples among {counts!s:.200} "
            f"shards"
        )
    return found


def divide(order: Order, divisions: list[Division], wraps: bool) -> tuple[RestOfEpoch | None, int]:
    """This rank's part of what several divisions left of an epoch, and its pass.

    There is none if nothing was left.
    """
    left, pass_ = _left_by_ranks(order, divisions[0], wraps)
    for division in divisions[1:]:
        parts = [left[slice(*cut(len(left), k, division.num_shards))]
                 for k in range(division.num_shards)]  # fmt: skip
        left = np.concatenate([part[division.at.taken :] for part in parts])
    if not len(left):
        return None, pass_
    own = left[slice(*cut(len(left), order.shard_id, order.num_shards))]
    # A rank that gets nothing repeats a sample, because ranks must have equally many batches.
    own = own if len(own) else left[-1:]
    smallest, largest = len(left) // order.num_shards, -(-len(left) // order.num_shards)
    return RestOfEpoch(pass_, own, smallest, largest), pass_


def cut(count: int, part: int, parts: int) -> tuple[int, int]:
    """Begin and end of a part of a list."""
    return count * part // parts, count * (part + 1) // parts


def _left_by_ranks(order: Order, division: Division, wraps: bool) -> tuple[Array, int]:
    first = order.of_rank(0, division.num_shards)  # makes the list that all ranks share
    ranks = [first.of_rank(k, division.num_shards) for k in range(division.num_shards)]
    at = division.at
    places = [(at.pass_, at.offset)] * len(ranks)
    if wraps:
        # All ranks have used equally many samples, but their passes differ in length.
        used = ranks[division.shard_id].used_before(at.pass_) + at.offset
        places = [rank.normal(0, used) for rank in ranks]
    left = [
        np.asarray(rank.samples(pass_)[offset + at.taken :], np.int64)
        for rank, (pass_, offset) in zip(ranks, places, strict=True)
    ]
    return np.concatenate(left), max(pass_ for pass_, _ in places)
