"""Many regions on one canvas, copied row by row: what multi_paste does on a CPU.

A kernel that chooses for each element between all regions takes longer with each of them, and so
does its compilation. A list of rectangles does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, address_of, allocate, contiguous
from ...kernels.cpu.helpers import function
from ...kernels.cpu.native import rectangles as at
from ...runtime.context import EvalContext, current_context


class PastedRegions(NamedTuple):
    """For each sample and region [samples, regions, 2]: its start in the source, its height and
    width, its place on the canvas. `ids`: the sample of the only input that is read, or None if
    region k is one of input k."""

    start: Array
    extents: Array
    place: Array
    ids: Array | None


class _PasteJob(NamedTuple):
    regions: PastedRegions
    context: EvalContext


def paste_list(inputs: tuple[Node, ...], size: Array, layout: str, regions: PastedRegions) -> Node:
    """PastedRegions pasted onto canvases of zeros of these sizes, later ones onto earlier ones."""
    first = inputs[0]
    job = _PasteJob(regions, current_context())
    return build.host(
        "multi_paste", _paste, inputs, Shapes(size), first.dtype, layout, first.batch, job, None
    )


def _paste(node: Node, inputs: list[Node], job: _PasteJob) -> Storage:
    itemsize = node.dtype.bytes
    storage = allocate(node.shapes, itemsize)
    entries = _entries(node, inputs, job.regions, storage)
    copy, address, each = function("copy_rectangles"), address_of(entries), entries.shape[1]

    def fill(sample: int, worker: int) -> None:
        copy(address, sample * each, (sample + 1) * each)

    job.context.thread_pool.parallel_for(node.count, fill)
    return storage


def _entries(node: Node, inputs: list[Node], regions: PastedRegions, storage: Storage) -> Array:
    """Per sample, an entry that clears the canvas and one for each region."""
    sources = [contiguous(x) if x.stored.strides is not None else x.stored for x in inputs]
    if regions.ids is None:
        rows = np.stack([x.shapes.rows for x in inputs], axis=1)
        addresses = np.stack([s.addresses for s in sources], axis=1)
    else:
        rows, addresses = inputs[0].shapes.rows[regions.ids], sources[0].addresses[regions.ids]
    canvas = node.shapes.rows
    planes = canvas[:, :1] if node.rank == 4 else 1
    pixel = canvas[:, -1:] * node.dtype.bytes
    source_row, target_row = rows[:, :, -2] * pixel, canvas[:, -2:-1] * pixel
    entries = np.zeros((node.count, 1 + rows.shape[1], at.ENTRY), np.int64)
    clear, copies = entries[:, 0], entries[:, 1:]
    clear[:, at.TARGET] = storage.addresses
    clear[:, at.PLANES] = clear[:, at.ROWS] = 1
    clear[:, at.NBYTES] = node.shapes.volumes * node.dtype.bytes
    y, x = np.moveaxis(regions.start, 2, 0)
    copies[:, :, at.SOURCE] = addresses + y * source_row + x * pixel
    y, x = np.moveaxis(regions.place, 2, 0)
    copies[:, :, at.TARGET] = storage.addresses[:, None] + y * target_row + x * pixel
    copies[:, :, at.PLANES] = planes
    copies[:, :, at.ROWS] = regions.extents[:, :, 0]
    copies[:, :, at.NBYTES] = regions.extents[:, :, 1] * pixel
    copies[:, :, at.SOURCE_ROW], copies[:, :, at.TARGET_ROW] = source_row, target_row
    copies[:, :, at.SOURCE_PLANE] = rows[:, :, -3] * source_row
    copies[:, :, at.TARGET_PLANE] = canvas[:, -3:-2] * target_row
    return entries
