"""Polygons of chosen masks: segmentation.select_masks."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import data, op, static
from ...fusion.graph.node import Node, source
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, address_of, allocate
from ...kernels.cpu.annotations import object_slots as at
from ...kernels.cpu.helpers import function
from ...kernels.ir import dtypes as dt
from ..boxes.annotated import packed_on_host
from ..geometry.window import on_device


@op.graph(
    name="segmentation.select_masks",
    sample="""polygons = ndd.tensor([[0, 0, 3], [1, 3, 7]])
vertices = ndd.zeros(shape=[7, 2])
chosen, points = ndd.segmentation.select_masks(ndd.tensor([1]), polygons, vertices)
[int(v) for v in chosen[0]], points.shape
=([1, 0, 4], (4, 2))""",
    outputs=2,
)
def select_masks(
    mask_ids=data("Ids of the masks to keep, int32, each once."),
    polygons=data("Polygons [n, 3], int32: id of the mask, first vertex, and end of its vertices."),
    vertices=data("Vertices [m, …] of any type."),
    reindex_masks=static(bool, False, "Replace ids of masks by their positions in `mask_ids`."),
):
    """Keep the polygons of some masks, and their vertices.

    Returns polygons and vertices, in the order of `mask_ids`. How many remain depends on their
    values, so the call reads them at once.
    """
    for name, node, rank in (("mask_ids", mask_ids, 1), ("polygons", polygons, 2)):
        if node.dtype is not dt.int32:
            raise TypeError(f"`{name}` must be int32, got {node.dtype}")
        if node.rank != rank:
            raise ValueError(f"`{name}` must have {rank} dimensions, got {node.rank}")
    if bool((polygons.shapes.rows[:, 1] != 3).any()):
        s = int(np.flatnonzero(polygons.shapes.rows[:, 1] != 3)[0])
        raise ValueError(
            f"`polygons` must have 3 columns (mask, first vertex, end), got shape "
            f"{polygons.shapes.tuples[s]} in sample {s}"
        )
    if vertices.rank != 2:
        raise ValueError(f"`vertices` must have 2 dimensions, got {vertices.rank}")
    held = [packed_on_host(n) for n in (mask_ids, polygons, vertices)]
    rows = np.zeros((mask_ids.count, at.POLYGON_ROW), np.int64)
    for k, node in enumerate(held):
        rows[:, 2 * k], rows[:, 2 * k + 1] = node.stored.addresses, node.shapes.rows[:, 0]
    rows[:, at.VERTEX_BYTES] = vertices.shapes.rows[:, 1] * vertices.dtype.bytes
    rows[:, at.REINDEXES] = reindex_masks
    run = function("select_polygons")
    run(address_of(rows), 0, len(rows))
    _check(rows, held)
    found = []
    for slot, count, like in (
        (at.OUT_POLYGONS, at.FOUND_POLYGONS, polygons),
        (at.OUT_VERTICES, at.FOUND_VERTICES, vertices),
    ):
        extents = np.stack([rows[:, count], like.shapes.rows[:, 1]], axis=1)
        found.append((like, Shapes(extents), allocate(Shapes(extents), like.dtype.bytes)))
        rows[:, slot] = found[-1][2].addresses
    run(address_of(rows), 0, len(rows))
    return [_result(like, shapes, memory) for like, shapes, memory in found]


def _result(like: Node, shapes: Shapes, memory: Storage) -> Node:
    return on_device(source(memory, shapes, like.dtype, None, like.batch), like.device)


def _check(rows: Array, held: list[Node]) -> None:
    """Raise an error if an id or a polygon is wrong."""
    bad = np.flatnonzero(rows[:, at.PROBLEM] != at.FINE)
    if not len(bad):
        return
    s = int(bad[0])
    problem, culprit = rows[s, at.PROBLEM], int(rows[s, at.CULPRIT])
    if problem in (at.REPEATED, at.MISSING):
        number = int(convert.arrays_of(held[0])[s][culprit])
        what = "is repeated" if problem == at.REPEATED else "has no polygon"
        raise ValueError(f"mask {number} of `mask_ids` {what} in sample {s}")
    number, first, last = convert.arrays_of(held[1])[s][culprit].tolist()
    if problem == at.REVERSED:
        raise ValueError(
            f"polygon {culprit} of sample {s} ends before it begins: {first} to {last}"
        )
    raise ValueError(
        f"polygon {culprit} of sample {s} has the vertices {first} to {last}, but there are "
        f"{int(rows[s, at.VERTEX_COUNT])}"
    )
