"""The graph: what calls build and flushes run.

A `Node` says how a value follows from others; it is never changed except to receive its result.
What it does is split in two: `static` is interned and goes into plan keys (what kernel), `params`
holds per-sample numbers (which window, which order) and goes into the table at launch.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr

Array = np.ndarray[Any, Any]
# Channel axes up to this extent are unrolled in kernels (grey, grey+alpha, RGB, RGBA).
MAX_STATIC_CHANNELS = 4
SAMPLE_ALIGNMENT = 64  # of ragged samples, in bytes: one cache line


class Shapes:
    """Shapes of all samples as one int64 array [samples, rank]; results are cached."""

    __slots__ = (
        "_extents", "_packed", "_strides", "_tuples", "_uniform", "_volumes",
        "count", "rank", "rows",
    )  # fmt: skip

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.count: int = rows.shape[0]
        self.rank: int = rows.shape[1]
        self._extents: dict[int, int | None] = {}
        self._packed: dict[int, tuple[Array, int, bool]] = {}
        self._tuples: list[tuple[int, ...]] | None = None
        self._uniform: bool | None = None
        self._volumes: Array | None = None
        self._strides: Array | None = None

    @staticmethod
    def of(shapes: Sequence[Sequence[int]], rank: int) -> Shapes:
        return Shapes(np.array(shapes, np.int64).reshape(len(shapes), rank))

    @property
    def tuples(self) -> list[tuple[int, ...]]:
        if self._tuples is None:
            self._tuples = [tuple(r) for r in self.rows.tolist()]
        return self._tuples

    @property
    def uniform(self) -> bool:
        if self._uniform is None:
            rows = self.rows
            self._uniform = len(rows) <= 1 or bool((rows == rows[0]).all())
        return self._uniform

    @property
    def volumes(self) -> Array:
        if self._volumes is None:
            self._volumes = self.rows.prod(axis=1)
        return self._volumes

    @property
    def strides(self) -> Array:
        """Element strides of contiguous samples of these shapes."""
        if self._strides is None:
            out = np.ones_like(self.rows)
            for d in range(self.rank - 2, -1, -1):
                out[:, d] = out[:, d + 1] * self.rows[:, d + 1]
            self._strides = out
        return self._strides

    def same_as(self, other: Shapes) -> bool:
        if self is other:
            return True
        return self.rows.shape[1] == other.rows.shape[1] and bool((self.rows == other.rows).all())

    def extent(self, axis: int) -> int | None:
        """The extent of an axis if all samples agree on it."""
        if axis not in self._extents:
            column = self.rows[:, axis]
            alike = len(column) > 0 and bool((column == column[0]).all())
            self._extents[axis] = int(column[0]) if alike else None
        return self._extents[axis]

    def packed(self, itemsize: int) -> tuple[Array, int, bool]:
        """(offsets, bytes in all, dense) of samples laid one after the other in fresh memory.

        Equal samples have no gaps between them; others are aligned.
        """
        found = self._packed.get(itemsize)
        if found is None:
            sizes = self.volumes * itemsize
            dense = self.uniform
            if not dense:
                sizes = -(-sizes // SAMPLE_ALIGNMENT) * SAMPLE_ALIGNMENT
            ends = np.cumsum(sizes)
            found = self._packed[itemsize] = (
                ends - sizes,
                int(ends[-1]) if len(ends) else 0,
                dense,
            )
        return found


class Pointwise(NamedTuple):
    """Each output element from one element of each input."""

    expr: Expr
    axes: tuple[tuple[int, ...], ...]  # output axis of every dimension of every input
    same: tuple[tuple[bool, ...], ...]  # dimensions that have exactly the output's extent
    rank: int


class View(NamedTuple):
    """Output position → input position, axis by axis: `step * o[axis] + offset`.

    params = (step, offset): int64 [samples or 1, input rank]; step is None if all are 1.
    A dimension in `checked` may fall outside the input: there the value is that of input 1.
    """

    axes: tuple[int | None, ...]
    unit: tuple[bool, ...]  # step is known to be 1
    still: tuple[bool, ...]  # and the offset is known to be 0
    rank: int
    checked: tuple[int, ...] = ()
    fill_axes: tuple[int, ...] = ()
    onto: bool = False  # every input element is read exactly once
    relabel: bool = False  # only unit axes come or go: the memory does not change


class Merge(NamedTuple):
    """The value of the first input in whose part the position lies (cat, stack).

    Input k is a `View` node with checked dimensions; the last one is the fallback.
    """

    parts: int
    rank: int


class Resample(NamedTuple):
    """Interpolation along some axes, each by itself; the result is float32.

    params: one `kernels.ir.taps.Taps` for each of the axes.
    """

    axes: tuple[int, ...]
    rank: int


class Alias(NamedTuple):
    """The same memory under another shape or type (reshape, reinterpret)."""

    rank: int


class Samples(NamedTuple):
    """Another choice of samples of the same batch; params = indices."""

    rank: int


class Host(NamedTuple):
    """A Python function of the input values; params are passed on to it."""

    function: Any
    rank: int


class Decode(NamedTuple):
    """Every sample by itself, by a Python function that writes it into the result's memory.

    `function(params, sample, out)` runs on threads of the pool, so it should release the GIL. If
    `has_regions`, `params.windowed(start, size)` makes only a part of every picture,
    `params.held(sample, shape, dtype)` tells where the thread has it, if it has it anyway, and
    `params.native(encoded, shapes, dtype)` what the native loop
    (kernels/cpu/decode_loop) needs to decode them.
    """

    function: Any
    rank: int
    has_regions: bool


class Transfer(NamedTuple):
    """A copy to the node's device."""

    rank: int


@lru_cache(maxsize=None, typed=True)  # typed: named tuples of different classes compare equal
def intern(static: Any) -> Any:
    """The one object for equal statics, so that plan keys can compare by identity."""
    return static


class Storage:
    """A materialised value: one address per sample.

    `strides` (elements) is None when every sample is contiguous. `owner` keeps the memory alive.
    """

    __slots__ = ("addresses", "dense", "external", "owner", "readonly", "strides")

    def __init__(
        self,
        addresses: Array,
        owner: Any,
        strides: Array | None = None,
        dense: bool = False,
        external: bool = False,
    ) -> None:
        self.addresses = addresses
        self.owner = owner
        self.strides = strides
        self.dense = dense  # samples lie one after the other with no gap
        self.external = external  # somebody else's memory, which may change under us
        self.readonly = False  # and which nobody may write through us


class Site(NamedTuple):
    """Where the user called."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Node:
    """One value: how it is made (until it is made), its metadata, and its result."""

    __slots__ = (
        "__weakref__", "batch", "context", "count", "device", "dtype", "error", "export", "handle",
        "inputs", "layout", "op", "origin", "params", "promise", "rank", "report", "sampling",
        "shapes", "site", "source_info", "static", "storage", "token",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        static: Any,
        inputs: tuple[Node, ...],
        shapes: Shapes,
        dtype: DType,
        layout: str | None,
        batch: bool,
        device: Any = None,
        params: Any = None,
        storage: Storage | None = None,
    ) -> None:
        self.op = op
        self.static = static
        self.inputs = inputs
        self.params = params
        self.shapes = shapes
        self.rank = shapes.rank
        self.count = shapes.count
        self.dtype = dtype
        self.layout = layout
        self.batch = batch
        self.device = device  # None: host memory; else the ordinal of a GPU
        self.storage = storage
        self.error: BaseException | None = None
        self.handle: weakref.ref[Any] | None = None  # the user's Tensor or Batch, if it lives
        self.site: Site | None = None
        self.context: Any = None
        self.promise: Any = None  # (record, position) of the plan that fused through this value
        self.report: Any = None  # the plan that produced it, for explain()
        self.source_info: Any = None
        self.origin: Any = None  # see ndd.loop.replay
        self.export: Any = None  # a torch tensor of its value, made in advance for the caller
        self.sampling: Any = None  # see ndd.ops.resample.merging
        self.token: tuple[bool, int] | None = None  # see fusion.plan.program.token

    def is_live(self) -> bool:
        """Whether the user can still ask for this value."""
        return self.handle is not None and self.handle() is not None

    def __repr__(self) -> str:
        state = "done" if self.storage is not None else "pending"
        return f"<{self.op} {self.dtype} {self.layout or ''} {self.shapes.tuples} {state}>"


def source(
    storage: Storage,
    shapes: Shapes,
    dtype: DType,
    layout: str | None = None,
    batch: bool = False,
    device: Any = None,
) -> Node:
    """A node that already has its value."""
    return Node("source", None, (), shapes, dtype, layout, batch, device, storage=storage)


def static_channels(node: Node) -> tuple[int, int] | None:
    """(axis, extent) of the channel axis if it is small and equal in all samples."""
    layout, rank = node.layout, node.rank
    if layout:
        axis = layout.find("C")
        if axis < 0:
            return None
    elif rank >= 3:
        axis = rank - 1
    else:
        return None
    extent = node.shapes.extent(axis)
    return (axis, extent) if extent is not None and 0 < extent <= MAX_STATIC_CHANNELS else None
