"""Objects of label maps: connected elements with the same label, and the boxes around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of, array_at, as_array, contiguous
from ...kernels.common.buffers import POOL
from ...kernels.common.memo import Memo
from ...kernels.cpu.annotations import object_slots as at
from ...kernels.cpu.helpers import function
from ...kernels.ir import dtypes as dt
from ...runtime.context import EvalContext

MAX_DIMS = at.MAX_DIMS


class Objects:
    """The objects of one label map, in the order of their first elements."""

    __slots__ = ("boxes", "by_label", "labels")

    def __init__(self, labels: Array, boxes: Array) -> None:
        self.labels = labels  # [objects] int32
        self.boxes = boxes  # [objects, 2, dims] int32: starts, then ends
        # Label → the numbers of its objects, both in ascending order.
        self.by_label: dict[int, Array] = {}
        if len(labels):
            order = labels.argsort(kind="stable")
            ordered = labels[order]
            first = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist()]
            for begin, end in zip(first, [*first[1:], len(order)], strict=True):
                self.by_label[int(ordered[begin])] = order[begin:end]


# A map with many objects takes much memory, so the limit is not a matter of count alone.
_MAX_KEPT = 1 << 16  # objects of one map
_known: Memo[tuple[Any, ...], Objects] = Memo("objects of label maps", 4096)


def objects_of(
    node: Node, wanted: Array, skipped: Array | None, context: EvalContext, remembers: bool
) -> list[Objects | None]:
    """The objects of all samples that are wanted; `skipped` is a label per sample to leave out.

    With `remembers`, maps that were seen before are looked up, and all labels are kept, so that
    other arguments find them, too.
    """
    samples = np.flatnonzero(wanted).tolist()
    found: list[Objects | None] = [None] * node.count
    keys: dict[int, tuple[Any, ...]] = {}
    if remembers:
        keys = _digests(node, samples)
        skipped = None
        for s, key in keys.items():
            found[s] = _known.get(key)
        samples = [s for s in samples if found[s] is None]

    def search(chunk: int, worker: int) -> None:
        s = samples[chunk]
        labels = np.ascontiguousarray(as_array(node.stored, node, s))
        found[s] = _search(labels, None if skipped is None else int(skipped[s]))

    if samples:
        context.thread_pool.parallel_for(len(samples), search)
    if remembers:
        for s in samples:
            kept = found[s]
            if kept is not None and len(kept.labels) <= _MAX_KEPT:
                _known[keys[s]] = kept
    return found


def _search(labels: Array, skipped: int | None) -> Objects:
    """Find the objects of one label map."""
    dims = labels.ndim
    if labels.dtype.itemsize == 1 and labels.dtype.kind in "bu":
        kind, labels = dt.uint8, labels.view(np.uint8)
    else:
        kind, labels = dt.int32, labels.astype(np.int32, copy=False)  # uint32 wraps around
    if labels.size == 0:
        return Objects(np.empty(0, np.int32), np.empty((0, 2, dims), np.int32))
    lines = labels.size // labels.shape[-1]
    # There are at most as many runs as elements. Pooled memory has its pages already.
    runs, boxes = POOL.take(16 * labels.size), POOL.take(8 * dims * labels.size)
    first = np.empty(lines + 1, np.int64)
    row = np.zeros(at.OBJECT_ROW, np.int64)
    row[: at.OBJECTS] = (
        address_of(labels), dims, lines, skipped is not None, skipped or 0, runs.address,
        address_of(first), boxes.address,
    )  # fmt: skip
    row[at.EXTENTS : at.EXTENTS + dims] = labels.shape
    function(f"find_objects_{kind}")(address_of(row), 0, 1)
    count = int(row[at.OBJECTS])
    number = np.dtype(np.int32)
    return Objects(
        array_at(runs.address, (count,), number).copy(),
        array_at(boxes.address, (count, 2, dims), number).copy(),
    )


def _digests(node: Node, samples: list[int]) -> dict[int, tuple[Any, ...]]:
    """A key for the label map of each of these samples: type, shape and a hash of its contents."""
    storage = node.stored if node.stored.strides is None else contiguous(node)
    rows = np.empty((len(samples), 6), np.int64)
    rows[:, 0] = storage.addresses[samples]
    rows[:, 1] = node.shapes.sizes(node.dtype.bytes)[samples]
    function("hash_bytes")(address_of(rows), 0, len(rows))
    hashes, shapes, name = rows[:, 2:].tobytes(), node.shapes.tuples, node.dtype.name
    return {
        s: (name, shapes[s], hashes[32 * k : 32 * k + 32]) for k, s in enumerate(samples)
    }  # fmt: skip
