"""Which samples of a value may be bad: decoders and readers note failures, nodes remember them.

A decoder that goes on after a failure fills the sample with zeros. Everything computed from that
sample is as bad as it is, so each node knows the failures of all that it was made from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .shapes import Array

if TYPE_CHECKING:
    from .node import Definition, Node


class Doubt(NamedTuple):
    """The failures of one call, which may come to be known only when it is computed.

    `origin` is the sample of that call that each sample of the node comes from, or -1.
    """

    failures: Collection[int]
    origin: Array


Doubts = tuple[Doubt, ...]


def doubted(failures: Collection[int], count: int) -> Doubts:
    """The doubts of the call itself, which has `count` samples."""
    return (Doubt(failures, np.arange(count)),)


def inherited(definition: Definition, count: int) -> Doubts:
    """The doubts of a node, from those of its inputs."""
    found: Doubts = ()
    for i, x in enumerate(definition.inputs):
        if x.doubts:
            found = _joined(found, _moved(definition, i, x, count))
    return found


def _moved(definition: Definition, i: int, x: Node, count: int) -> Doubts:
    chosen = definition.kind.chosen(definition, i)
    if chosen is None:
        if x.count == count:
            return x.doubts
        chosen = np.zeros(count, np.int64)  # a single tensor is the same in all samples
    return picked(x.doubts, chosen)


def picked(doubts: Doubts, chosen: Array) -> Doubts:
    """The doubts of a selection of samples."""
    return tuple([Doubt(d.failures, d.origin[chosen]) for d in doubts])


def side_by_side(nodes: Sequence[Node]) -> Doubts:
    """The doubts of a batch whose samples are these single values."""
    found = []
    for k, node in enumerate(nodes):
        for d in node.doubts:
            origin = np.full(len(nodes), -1, np.int64)
            origin[k] = d.origin[0]
            found.append(Doubt(d.failures, origin))
    return tuple(found)


def _joined(some: Doubts, others: Doubts) -> Doubts:
    """Both, those that are equal once."""
    if not some or some is others:
        return others
    new = [d for d in others if not any(_same(d, known) for known in some)]
    return (*some, *new)


def _same(a: Doubt, b: Doubt) -> bool:
    if a.failures is not b.failures:
        return False
    return a.origin is b.origin or np.array_equal(a.origin, b.origin)


def valid_samples(doubts: Doubts, count: int) -> Array:
    """Whether each sample is good, as far as its failures are known by now."""
    valid = np.ones(count, np.bool_)
    for failures, origin in doubts:
        if failures:
            valid &= ~np.isin(origin, list(failures))
    return valid
