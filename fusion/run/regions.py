"""Finds the region of a decoded image that later kernels read, so that only it is decoded.

The regions follow from the recipes that also fill the kernels' tables: a kernel reads position
`step * i + offset` of a dimension, for all `i` of an output axis or of the range its core reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...kernels.common.memo import memoized
from ...kernels.ir.core import CORE_AXES
from ...kernels.ir.expr import walk
from ...kernels.ir.spec import KernelSpec
from ..graph.node import Node
from ..graph.shapes import Array, Number, Shapes, within
from ..graph.storage import Storage
from ..kinds.base import Term
from ..plan.lowering import Recipe
from ..plan.steps import KernelStep, Regional
from .binder import Binder

# Regions that save less than this part of the pixels are not worth a wrapper object per image.
MIN_SPARED = 1 / 16


class Region(NamedTuple):
    """The regions of all samples along the first two axes, [samples, 2] each."""

    start: Array
    size: Array

    def shapes(self, node: Node) -> Shapes:
        """The shapes of the regions of a node's samples."""
        return Shapes(np.concatenate([self.size, node.shapes.rows[:, 2:]], axis=1))

    def placed(self, storage: Storage, node: Node) -> Storage:
        """The memory of the regions as kernels address it: they count positions from the corner of
        the whole image."""
        return Storage(storage.addresses - self._before(node), storage.owner, self._strides(node))

    def held(self, storage: Storage, node: Node) -> Storage:
        """The memory of the regions themselves; undoes `placed`."""
        return Storage(storage.addresses + self._before(node), storage.owner)

    def _strides(self, node: Node) -> Array:
        return self.shapes(node).strides

    def _before(self, node: Node) -> Array:
        """Bytes from where the whole image would begin to the region."""
        elements: Array = (self.start * self._strides(node)[:, :2]).sum(axis=1)
        return elements * node.dtype.bytes


def regions_of(regional: Iterable[Regional], binder: Binder) -> dict[int, Region]:
    """The regions of decoded values [H, W, …], and of their copies, that kernels read."""
    found: dict[int, Region] = {}
    for root, copies, readers in regional:
        region = _region(binder.nodes[root], {root, *copies}, readers, binder)
        if region is not None:
            found |= dict.fromkeys((root, *copies), region)
    return found


def _region(
    node: Node, places: set[int], readers: Iterable[KernelStep], binder: Binder
) -> Region | None:
    """The region that covers the reads of all these kernels; None for the whole image."""
    extents = node.shapes.rows[:, :2]
    low, high = extents.copy(), np.zeros_like(extents)
    for step in readers:
        spec, recipe = step.spec, step.recipe
        for slot, (source, terms) in enumerate(recipe.loads):
            if source not in places:
                continue
            if recipe.flat or slot in _scattered(spec):
                return None
            for d in range(2):
                first, last = _span(binder, spec, recipe, terms[d])
                low[:, d] = np.minimum(low[:, d], first)
                high[:, d] = np.maximum(high[:, d], last + 1)
    low = within(low, np.maximum(extents - 1, 0))
    size = np.minimum(np.maximum(high, np.minimum(low + 1, extents)), extents) - low
    if size.prod(axis=1).sum() > (1 - MIN_SPARED) * extents.prod(axis=1).sum():
        return None
    return Region(low, size)


@memoized(4096)
def _scattered(spec: KernelSpec) -> frozenset[int]:
    """Slots of loads whose positions the kernel computes."""
    values = (*spec.values, *(core.value for core in spec.cores))
    kinds = ("fetch", "bilinear", "lookup")
    return frozenset(e.attr for e in walk(values) if e.op in kinds)


def _span(binder: Binder, spec: KernelSpec, recipe: Recipe, term: Term) -> tuple[Array, Array]:
    """The lowest and the highest position that a term takes, per sample."""
    root = binder.nodes[recipe.root]
    axis = term[0]
    rank = len(spec.extents)
    begin: Number = 0
    end = np.zeros(root.count, np.int64)
    if axis is not None and axis < rank:
        end = np.maximum(root.shapes.rows[:, axis] - 1, 0)
    elif axis is not None:
        number, k = divmod(axis - rank, CORE_AXES)
        position, places = recipe.cores[number]
        node = binder.nodes[position]
        # A dimension that a reduction sums over is no dimension of its result.
        asked = (end, end) if k >= len(places) else _span(binder, spec, recipe, places[k])
        begin, end = node.definition.kind.region(node, k, *asked)
    step, offset = binder.numbers(term)
    ends = step * begin + offset, step * end + offset
    return np.minimum(*ends), np.maximum(*ends)
