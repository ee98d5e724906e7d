"""Indexing: `Tensor.__getitem__` and `Batch.slice[...]`. Integers and slices give views; a mask of
booleans lists the positions that it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from ...core import convert, enumerations
from ...core.arguments import host_numbers
from ...core.call import call_stage, wrap
from ...core.empty import with_axes
from ...core.errors import at_site, user_site
from ...core.handle import Handle, finish_call
from ...core.inputs import input_node, on_host
from ...core.schema import Param
from ...core.tensor import Tensor, tensor_node
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...kernels.common import trace
from ...kernels.ir import dtypes as dt
from ...loop.calls import made

_INDEX = Param("geometry", int, name="index")
_FAR = 2**62  # beyond every extent, and still safe to add to one


def getitem(owner: Any, key: Any) -> Any:
    """The part of every sample that `key` describes."""
    return made("index", (owner,), (key,), _getitem)


def _getitem(_op: str, inputs: Sequence[Any], choices: Sequence[Any]) -> Any:
    (owner,), (key,) = inputs, choices
    stage = call_stage("index") if trace.active else None
    try:
        node = _index_any(input_node(_INDEX, owner), key, isinstance(owner, Tensor))
        finish_call((node,), user_site())
    except Exception as error:
        raise at_site(error, "index", user_site()) from error.__cause__
    finally:
        if stage is not None:
            stage.end()
    return wrap(node)


def _index_any(x: Node, key: Any, single: bool) -> Any:
    if x.dtype.is_enum:
        return enumerations.moved([x], lambda nodes: _index(nodes[0], key, single))
    return _index(x, key, single)


def _index(x: Node, key: Any, single: bool) -> Node:
    items = list(key) if isinstance(key, tuple) else [key]
    if x.count == 0 and x.rank == 0:
        x = with_axes(x, len(items) - (Ellipsis in items))
    if x.rank == 0 and any(item is not Ellipsis for item in items):
        raise IndexError("a scalar cannot be indexed")
    items = _expand(items, x.rank)
    x = _masked(x, items, single)
    count = x.count
    rows = x.shapes.rows
    start = np.zeros((count, x.rank), np.int64)
    step = np.ones((count, x.rank), np.int64)
    size = np.array(rows)
    dropped: list[int] = []
    moved: list[int] = []
    stepped: list[int] = []
    for d, item in enumerate(items):
        extent = rows[:, d]
        if isinstance(item, slice):
            if item.start is None and item.stop is None and item.step is None:
                continue
            plain = _plain_range(item, x.shapes.facts[1 + d]) if x.shapes.facts else None
            first, by, length = _range(item, extent, single) if plain is None else plain
            start[:, d], step[:, d], size[:, d] = first, by, length
            moved.append(d)
            if item.step is not None:
                stepped.append(d)
        else:
            where = _integer(item, count, single)
            bad = np.flatnonzero((where < -extent) | (where >= extent))
            if len(bad):
                s = int(bad[0])
                raise IndexError(
                    f"index {int(where[s % len(where)])} is out of range for axis {d} of extent "
                    f"{int(extent[s])} (sample {s}, shape {x.shapes.tuples[s]})"
                )
            start[:, d] = np.where(where < 0, where + extent, where)
            dropped.append(d)
            moved.append(d)
    layout = x.layout and "".join(n for d, n in enumerate(x.layout) if d not in dropped)
    return build.index_axes(
        "slice", x, start, step, size, dropped, moved, stepped, layout or None, x.batch
    )


def _masked(x: Node, items: list[Any], single: bool) -> Node:
    """The positions of `x` that masks among the items choose; the items become full slices."""
    listed = []
    for d, item in enumerate(items):
        mask = _mask_node(item)
        if mask is None:
            continue
        if mask.batch and single:
            raise TypeError("a Tensor cannot be indexed with a Batch")
        if mask.batch and mask.count != x.count:
            raise ValueError(
                f"Inconsistent batch size: {x.count} != {mask.count}: the batch has {x.count} "
                f"samples, the mask has {mask.count}"
            )
        listed.append(_chosen(x, d, mask))
        items[d] = slice(None)
    return build.take("slice", x, listed, x.batch) if listed else x


def _mask_node(item: Any) -> Node | None:
    """A vector of booleans per sample; None if the item is something else."""
    if isinstance(item, list) and item and all(isinstance(v, (bool, np.bool_)) for v in item):
        item = np.array(item)
    is_array = isinstance(item, np.ndarray) and item.dtype == np.bool_
    is_mask = is_array or (isinstance(item, Handle) and item.dtype is dt.bool_)
    if not is_mask or item.ndim == 0:
        return None
    node = tensor_node(item, None, None, None, True) if is_array else input_node(_INDEX, item)
    if node.rank != 1:
        raise TypeError(
            f"a mask chooses positions of one axis, so it has one dimension; got {node.rank}"
        )
    return node


def _chosen(x: Node, axis: int, mask: Node) -> build.Listed:
    """The positions along an axis where the mask is true."""
    extents = x.shapes.rows[:, axis]
    lengths = mask.shapes.rows[:, 0]
    bad = np.flatnonzero(lengths != extents)
    if len(bad):
        s = int(bad[0])
        raise IndexError(
            f"the mask has {int(lengths[s % len(lengths)])} elements, but axis {axis} of sample "
            f"{s} of shape {x.shapes.tuples[s]} has {int(extents[s])}"
        )
    arrays = convert.arrays_of(on_host(mask)) if mask.count else []
    if not mask.batch:
        arrays = arrays * x.count
    places = [np.flatnonzero(a) for a in arrays]
    counts = np.array([len(p) for p in places], np.int64)
    return build.Listed(axis, np.concatenate([np.zeros(0, np.int64), *places]), counts)


def _expand(items: list[Any], rank: int) -> list[Any]:
    """One item per axis: Ellipsis expands, and None counts as a full slice."""
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexError("only one Ellipsis is allowed")
    given = len(items) - len(dots)
    if given > rank:
        raise IndexError(f"too many indices: {given} for {rank} dimensions")
    if dots:
        k = dots[0]
        items = [*items[:k], *[slice(None)] * (rank - given), *items[k + 1 :]]
    items = [slice(None) if i is None else i for i in items]
    return items + [slice(None)] * (rank - len(items))


def _integer(item: Any, count: int, single: bool) -> Array:
    """One number for all samples, or one for each."""
    if isinstance(item, (bool, int, float, np.integer, np.floating, np.bool_)):
        return np.array([max(-_FAR, min(_FAR, int(item)))], np.int64)
    if isinstance(item, (list, str, bytes)):
        raise TypeError(
            f"an index must be an integer, a slice or a scalar tensor, got {type(item).__name__}"
        )
    node = (
        input_node(_INDEX, item)
        if isinstance(item, Handle)
        else tensor_node(item, None, None, None, True)
    )
    if node.rank:
        raise TypeError(f"an index tensor must be a scalar, got {node.rank} dimensions")
    if node.batch and single:
        raise TypeError("a Tensor cannot be indexed with a Batch")
    if node.batch and node.count != count:
        raise ValueError(
            f"Inconsistent batch size: {count} != {node.count}: the batch has {count} samples, "
            f"the index has {node.count}"
        )
    return host_numbers("index", node, int, False)


def _plain_range(item: slice, extent: int) -> tuple[int, int, int] | None:
    """What `_range` finds if all samples have one extent and the slice has Python's integers; with
    NumPy it would take 70 µs. None if there is more to it."""
    if any(type(v) not in (int, NoneType) for v in (item.start, item.stop, item.step)):
        return None
    if item.step == 0:
        return None  # `_range` says what is wrong
    first, last, by = item.indices(extent)
    length = len(range(first, last, by))
    return first if length > 0 else 0, by if length > 1 else 1, length


def _range(item: slice, extent: Array, single: bool) -> tuple[Array, Array, Array]:
    """(first, step, length) of a slice in every sample, clipped as Python does."""
    count = len(extent)
    by = np.ones(1, np.int64) if item.step is None else _integer(item.step, count, single)
    if bool((by == 0).any()):
        raise ValueError("a slice step cannot be zero")
    forward = by > 0
    low, high = np.where(forward, 0, -1), np.where(forward, extent, extent - 1)
    first = np.where(forward, low, high)
    last = np.where(forward, high, low)
    if item.start is not None:
        first = _clip(_integer(item.start, count, single), extent, low, high)
    if item.stop is not None:
        last = _clip(_integer(item.stop, count, single), extent, low, high)
    span = np.where(forward, last - first, first - last)
    length = np.maximum(-(-span // np.abs(by)), 0)
    first = np.where(length > 0, first, 0)
    by = np.where(length > 1, by, 1)  # a huge step that is never taken must not overflow
    return first, by, length


def _clip(value: Array, extent: Array, low: Array, high: Array) -> Array:
    value = np.clip(value, -_FAR, _FAR)
    value = np.where(value < 0, value + extent, value)
    return np.clip(value, low, high)


__all__ = ["getitem"]
