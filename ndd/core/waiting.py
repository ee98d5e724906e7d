"""Finds the pending values that read some memory, before the user gets that memory to write to."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ..fusion.graph.node import Node
from ..fusion.graph.storage import Storage


class Waiting:
    """Handles on pending nodes, without keeping them alive."""

    FEWEST = 256  # handles before the first sweep; a sweep takes 30 µs

    def __init__(self) -> None:
        self.handles: list[weakref.ref[Any]] = []
        self.limit = self.FEWEST  # beyond it, call `sweep`

    def sweep(self) -> None:
        """Drop handles whose nodes are not pending any more."""
        self.limit = max(self.FEWEST, 2 * len(self.pending()))

    def pending(self) -> list[Node]:
        """The nodes that are still pending; the handles on all others are dropped."""
        # Two steps, each atomic, because other threads keep adding to the list.
        seen = self.handles[:]
        del self.handles[: len(seen)]
        found = [(r, h._node) for r in seen if (h := r()) is not None and is_pending(h._node)]
        self.handles.extend([r for r, _ in found])
        return [n for _, n in found]


def is_pending(node: Node) -> bool:
    return node.result.storage is None and node.result.error is None


def readers(nodes: Iterable[Node], memory: Storage) -> list[Node]:
    """Those of the pending nodes whose values depend on what is in some memory now."""
    reads: dict[Node, bool] = {}
    owners = memory.owners()
    return [n for n in nodes if is_pending(n) and _reads(n, owners, reads)]


def _reads(node: Node, owners: list[Any], known: dict[Node, bool]) -> bool:
    """Whether a pending node reads memory of these owners, directly or by way of its inputs.

    Does not recurse. Another thread may compute a node meanwhile; then it has no inputs any more.
    """
    stack = [(node, node.inputs)]
    while stack:
        n, inputs = stack[-1]
        pending = [i for i in inputs if i.result.storage is None]
        ahead = next((i for i in pending if i not in known), None)
        if ahead is not None:
            stack.append((ahead, ahead.inputs))
            continue
        stored = [s for i in inputs if (s := i.result.storage) is not None]
        held = [owner for s in stored for owner in s.owners()]
        known[n] = any(known[i] for i in pending) or any(a is b for a in held for b in owners)
        stack.pop()
    return known[node]
