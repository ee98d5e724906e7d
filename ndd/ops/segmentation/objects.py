"""Objects of label maps: connected elements with the same label, and the boxes around them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of, array_at, as_array
from ...kernels.common.buffers import POOL
from ...kernels.common.memo import Memo
from ...kernels.cpu.annotations import object_slots as at
from ...kernels.cpu.helpers import function
from ...kernels.ir import dtypes as dt
from ...runtime.context import EvalContext

MAX_DIMS = at.MAX_DIMS


class Objects(NamedTuple):
    """The objects of one label map, in the order of their first elements."""

    labels: Array  # [objects] int32
    boxes: Array  # [objects, 2, dims] int32: starts, then ends


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
    maps = {s: np.ascontiguousarray(as_array(node.stored, node, s)) for s in samples}
    keys: dict[int, tuple[Any, ...]] = {}
    if remembers:
        keys = _digests(maps)
        skipped = None
        found = [_known.get(keys[s]) if s in keys else None for s in range(node.count)]
        samples = [s for s in samples if found[s] is None]

    def search(chunk: int, worker: int) -> None:
        s = samples[chunk]
        found[s] = _search(maps[s], None if skipped is None else int(skipped[s]))

    context.thread_pool.parallel_for(len(samples), search)
    for s, key in keys.items():
        kept = found[s]
        if kept is not None and len(kept.labels) <= _MAX_KEPT:
            _known[key] = kept
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


def _digests(maps: dict[int, Array]) -> dict[int, tuple[Any, ...]]:
    """A key for each label map: type, shape and a hash of its contents."""
    rows = np.zeros((len(maps), 6), np.int64)
    for row, array in zip(rows, maps.values(), strict=True):
        row[:2] = address_of(array), array.nbytes
    function("hash_bytes")(address_of(rows), 0, len(rows))
    return {
        s: (array.dtype.str, array.shape, row[2:].tobytes())
        for row, (s, array) in zip(rows, maps.items(), strict=True)
    }
