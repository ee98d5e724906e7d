"""Which part of a decoded image the kernels after it read, so that only that part is decoded.

Answers come from the recipes that also fill the kernels' tables: a kernel reads position
`step * i + offset` of a dimension, for all `i` of an output axis or of the taps along it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...kernels.ir.expr import walk
from ...kernels.ir.spec import KernelSpec
from ...kernels.ir.taps import NEAREST, NEAREST_SUM, Taps
from ..graph.node import Array, Node, Shapes, Storage
from ..run.binder import Binder
from .lowering import Recipe, Term, Terms
from .planner import KernelStep, Regional

# Regions that spare less than this part of the pixels are not worth a wrapper each.
MIN_SPARED = 1 / 16


class Region(NamedTuple):
    """A window of all samples along the first two axes, [samples, 2] each."""

    start: Array
    size: Array

    def shapes(self, node: Node) -> Shapes:
        """Of the windows of a node's samples."""
        return Shapes(np.concatenate([self.size, node.shapes.rows[:, 2:]], axis=1))

    def placed(self, storage: Storage, node: Node) -> Storage:
        """Memory that holds the windows alone, as kernels see it: they count positions from the
        corner of the whole picture."""
        return Storage(storage.addresses - self._before(node), storage.owner, self._strides(node))

    def held(self, storage: Storage, node: Node) -> Storage:
        """The memory of the windows themselves; undoes `placed`."""
        return Storage(storage.addresses + self._before(node), storage.owner)

    def _strides(self, node: Node) -> Array:
        return self.shapes(node).strides

    def _before(self, node: Node) -> Array:
        """Bytes from where the whole picture would begin to the window."""
        elements: Array = (self.start * self._strides(node)[:, :2]).sum(axis=1)
        return elements * node.dtype.bytes


def regions_of(regional: Iterable[Regional], binder: Binder) -> dict[int, Region]:
    """The windows of decoded values [H, W, …], and of their copies, that kernels read."""
    found: dict[int, Region] = {}
    for root, copies, readers in regional:
        region = _region(binder.nodes[root], {root, *copies}, readers, binder)
        if region is not None:
            found |= dict.fromkeys((root, *copies), region)
    return found


def _region(
    node: Node, places: set[int], readers: Iterable[KernelStep], binder: Binder
) -> Region | None:
    """The window that all of these kernels read together; None for the whole picture."""
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
    low = _within(low, np.maximum(extents - 1, 0))
    size = np.minimum(np.maximum(high, np.minimum(low + 1, extents)), extents) - low
    if size.prod(axis=1).sum() > (1 - MIN_SPARED) * extents.prod(axis=1).sum():
        return None
    return Region(low, size)


@lru_cache(maxsize=4096)
def _scattered(spec: KernelSpec) -> frozenset[int]:
    """Loads whose positions a kernel computes."""
    values = spec.values if spec.sampler is None else (*spec.values, spec.sampler.value)
    kinds = ("fetch", "bilinear", "lookup")
    return frozenset(e.attr for e in walk(values) if e.op in kinds)


def _span(binder: Binder, spec: KernelSpec, recipe: Recipe, term: Term) -> tuple[Array, Array]:
    """The lowest and the highest position that a term takes, per sample."""
    root = binder.nodes[recipe.root]
    axis = term[0]
    rank = len(spec.extents)
    begin = end = np.zeros(root.count, np.int64)
    if axis is not None and axis < rank:
        end = np.maximum(root.shapes.rows[:, axis] - 1, 0)
    elif axis is not None:
        assert recipe.sampler is not None
        begin, end = _taps_span(binder, root, *recipe.sampler, axis - rank)
    step, offset = binder.numbers(term)
    ends = step * begin + offset, step * end + offset
    return np.minimum(*ends), np.maximum(*ends)


def _taps_span(
    binder: Binder, root: Node, position: int, terms: Terms, k: int
) -> tuple[Array, Array]:
    """The lowest and the highest input pixel of interpolated dimension `k`, as far as it exists.

    A pixel wider than it is, because sums of steps are rounded (see kernels/ir/taps.py).
    """
    node = binder.nodes[position]
    dimension = node.static.axes[k]
    taps: Taps = node.params[k]
    step, at = binder.numbers(terms[k])
    axis = terms[k][0]
    n = 1 if axis is None else root.shapes.rows[:, axis]
    n_in = node.inputs[0].shapes.rows[:, dimension]
    scale, begin = taps.scale.astype(np.float64), taps.origin
    is_nearest = (taps.kind == NEAREST) | (taps.kind == NEAREST_SUM)
    with np.errstate(invalid="ignore", over="ignore"):
        if is_nearest.any():
            begin = begin + is_nearest * (0.5 * scale)
        s = at * scale + begin, (at + step * (n - 1)) * scale + begin
        low, high = np.minimum(*s), np.maximum(*s)
        is_known = bool(((low > -_FAR) & (high < _FAR)).all())
    if not is_known:  # nobody knows where such positions end up: all may be read
        return np.zeros_like(n_in), n_in - 1
    rounding = 1 + (node.shapes.rows[:, dimension] * n_in >> 23)
    first = taps.base + np.floor(low).astype(np.int64) - rounding
    last = taps.base + np.ceil(high).astype(np.int64) + taps.count + rounding
    return _within(first, n_in - 1), _within(last, n_in - 1)


_FAR = 2.0**40  # positions beyond this are not looked at


def _within(values: Array, highest: Array) -> Array:
    # np.clip takes three times as long for short arrays
    return np.minimum(np.maximum(values, 0), highest)
