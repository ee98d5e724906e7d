"""Frames: the frames of sequences as samples of their own, and the way back, in the same memory.

Ops whose arguments differ from frame to frame work on frames as samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.node import Definition, Node
from ..graph.shapes import Array, Shapes, firsts, numbered
from ..graph.storage import Storage
from .base import make
from .opaque import Opaque, renamed
from .pointwise import copy


@dataclass(frozen=True)
class Frames(Opaque):
    """The frames (positions along the first axis) of all samples, one after the other."""

    @property
    def is_rename(self) -> bool:
        return True

    def chosen(self, definition: Definition, i: int) -> Array:
        counts = definition.inputs[0].shapes.rows[:, 0]
        return np.repeat(np.arange(len(counts)), counts)

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        x = inputs[0]
        found = renamed(x)
        counts = x.shapes.rows[:, 0]
        nbytes = np.repeat(x.shapes.rows[:, 1:].prod(axis=1) * x.dtype.bytes, counts)
        found.addresses = np.repeat(found.addresses, counts) + nbytes * numbered(counts)
        return found

    def check(self, node: Node) -> None:
        super().check(node)
        x = node.inputs[0]
        assert x.rank == self.rank + 1, f"{node} of {x}"
        assert node.count == x.shapes.rows[:, 0].sum(), f"{node}: frames of {x}"


@dataclass(frozen=True)
class Sequences(Opaque):
    """Runs of samples, joined along a new first axis; params = the length of each run.

    The samples of a run lie in memory one after the other (see `Shapes.runs`).
    """

    @property
    def is_rename(self) -> bool:
        return True

    def chosen(self, definition: Definition, i: int) -> Array:
        return firsts(definition.params)  # all frames of a sequence come from one sample

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        found = renamed(inputs[0])
        found.addresses = found.addresses[firsts(node.params)]
        return found

    def check(self, node: Node) -> None:
        super().check(node)
        x = node.inputs[0]
        assert x.rank + 1 == self.rank, f"{node} of {x}"
        runs = node.params if x.shapes.uniform else x.shapes.runs
        assert runs is not None and np.array_equal(runs, node.params), f"{node} of {x}"
        assert np.array_equal(node.shapes.rows[:, 0], node.params), f"{node}: runs"
        assert (node.params > 0).all(), f"{node}: empty runs"


def frames(op: str, x: Node) -> Node:
    """All frames of `x` as a batch; frames are the first axis."""
    rows = np.repeat(x.shapes.rows[:, 1:], x.shapes.rows[:, 0], axis=0)
    layout = None if x.layout is None else x.layout[1:] or None
    return make(op, Frames(x.rank - 1), (x,), Shapes(rows), layout, True)


def sequences(op: str, x: Node, counts: Array, batch: bool) -> Node:
    """The reverse: `counts` (all positive) consecutive samples form a sequence."""
    if not x.shapes.uniform:
        x = copy(op, x, shapes=Shapes(x.shapes.rows, counts))
    rows = np.column_stack([counts, x.shapes.rows[firsts(counts)]])
    layout = None if x.layout is None else f"F{x.layout}"
    return make(op, Sequences(x.rank + 1), (x,), Shapes(rows), layout, batch, counts)
