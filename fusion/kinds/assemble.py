"""Assemble: samples of several batches form one batch, in the memory where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from ..graph.storage import Joined, Storage
from .base import make
from .opaque import Opaque


@dataclass(frozen=True)
class Assemble(Opaque):
    """Sample s is number `params[s]` of the samples of all inputs, one input after the other."""

    @property
    def is_rename(self) -> bool:
        return True

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        stored = [x.stored for x in inputs]
        order, strides = node.params, None
        if any(s.strides is not None for s in stored):
            rows = [x.shapes.strides if s.strides is None else s.strides
                    for x, s in zip(inputs, stored, strict=True)]  # fmt: skip
            strides = np.concatenate(rows)[order]
        addresses = np.concatenate([s.addresses for s in stored])[order]
        made = Storage(
            addresses, Joined([s.owner for s in stored]), strides,
            external=any(s.external for s in stored),
        )  # fmt: skip
        made.readonly = any(s.readonly for s in stored)
        return made

    def check(self, node: Node) -> None:
        super().check(node)
        inputs = node.inputs
        assert len({(x.dtype, x.rank) for x in inputs}) == 1, f"{node}: different inputs"
        assert len(node.params) == node.count, f"{node}: {len(node.params)} indices"
        inside = (node.params >= 0) & (node.params < sum(x.count for x in inputs))
        assert inside.all(), f"{node}: no such sample"


def assemble(op: str, parts: Sequence[Node], order: Array) -> Node:
    """One batch of samples of several batches; `order` counts through all of their samples."""
    rows = np.concatenate([x.shapes.rows for x in parts])[order]
    first = parts[0]
    return make(op, Assemble(first.rank), parts, Shapes(rows), first.layout, True, order)
