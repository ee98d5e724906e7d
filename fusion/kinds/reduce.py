"""Reduce: sums and extremes over whole axes; and PoolBatch, which turns a batch into one tensor.

The loops of a reduction compute its input on the fly. Its result is one number for many elements,
so it is stored, and its users read that number. A CPU needs one kernel for it; for a GPU we make
up to three nodes (see NOTE [order of summation] in kernels/ir/reduction.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.dtypes import DType
from ...kernels.ir.expr import Expr
from ...kernels.ir.reduction import DIVISOR, FOLD, Reduction, folded_count, lane_count
from ..graph.node import Node, static_channels
from ..graph.shapes import Array, Number, Shapes
from ..graph.storage import Storage
from .base import DEAR, Kind, Reads, Term, Terms, Work, interned, made_of, make
from .opaque import Opaque
from .pointwise import pointwise
from .view import drop_axes

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder


class Numbers(NamedTuple):
    """The numbers per sample that a reduction needs."""

    lanes: Array | None = None  # extents of the axis of lanes, if the result has one
    divisors: Number | None = None  # what the sum is divided by, if the result is a mean


NO_NUMBERS = Numbers()  # shared, because equal nodes are merged only if params are identical


@dataclass(frozen=True)
class Reduce(Kind):
    """Combines the values along `axes`; params = `Numbers`.

    The result has type `acc`; a mean, which is divided by a number per sample, is float64.
    """

    axes: tuple[int, ...]  # of the input, ascending
    combine: str  # add, min or max
    acc: DType
    is_mean: bool = False
    # If the divisor of a guarded mean is not positive, the result is 0 instead of the quotient.
    is_guarded: bool = False
    lane_axis: int | None = None  # the axis of the result that holds one partial result per lane

    has_core = True
    is_summary = True

    def infer(self, inputs: Sequence[Node]) -> DType:
        return dt.float64 if self.is_mean else self.acc

    def reads(self, i: int) -> Reads:
        return Reads.ONCE

    def cost(self) -> int:
        return DEAR

    def loops_over(self, dimension: int) -> bool:
        return dimension in self.axes

    def shares_loops(self, own: Node, other: Node) -> bool:
        """A sum and the sum of squares of the same integers; see `Reduction.second`."""
        if other.kind is not self or own.device is not None or self.is_mean:
            return False
        x, y = own.inputs[0], other.inputs[0]
        if self.acc.is_float or self.combine != "add" or not x.shapes.same_as(y.shapes):
            return False
        return x in y.inputs or y in x.inputs

    def check(self, node: Node) -> None:
        super().check(node)
        x = node.inputs[0]
        kept = [d for d in range(x.rank) if d not in self.axes]
        own = [a for a in range(self.rank) if a != self.lane_axis]
        assert len(kept) == len(own), f"{node} of {x}"
        same = node.shapes.rows[:, own] == x.shapes.rows[:, kept]
        assert same.all(), f"{node}: axes that are not reduced change"
        assert (node.params.lanes is None) == (self.lane_axis is None), f"{node}: lanes"
        assert (node.params.divisors is not None) == self.is_mean, f"{node}: divisors"

    # -- in a kernel ---------------------------------------------------------------------------

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source = lowering.inputs[position][0]
        given = [t for a, t in enumerate(terms) if a != self.lane_axis]
        own: list[Term] = []
        for d in range(lowering.nodes[source].rank):
            reduced = d in self.axes
            own.append((lowering.rank + self.axes.index(d), 0, ()) if reduced else given.pop(0))
        which, count = self._channels(lowering, position, source, terms)
        if count:
            own[-1] = (lowering.rank + len(self.axes), 0, ())
        value = yield source, tuple(own), None
        if value.dtype is dt.bool_:
            value = ex.cast(value, dt.uint8)
        if self.acc.is_float:
            value = ex.cast(value, self.acc)
        where: Terms = () if self.lane_axis is None else (terms[self.lane_axis],)
        core = Reduction(
            value, (None,) * len(self.axes), count, self.combine, self.acc,
            None if not where else where[0][0],
        )  # fmt: skip
        combined = Expr("core", self.acc, (), lowering.claim(position, where, core, which).attr)
        if not self.is_mean:
            return combined
        divisor = Expr("core", dt.int64, (), ("at", DIVISOR))
        mean = ex.cast(combined, dt.float64) / ex.cast(divisor, dt.float64)
        return ex.select(divisor > 0, mean, 0.0) if self.is_guarded else mean

    def _channels(
        self, lowering: Lowering, position: int, source: int, terms: Terms
    ) -> tuple[tuple[str, int], int]:
        """The requested channel (as `claim` takes it), and how many the core combines together.

        A CPU kernel combines interleaved channels together; 0: it combines them one by one.
        """
        node, x = lowering.nodes[position], lowering.nodes[source]
        channels = static_channels(node)
        if node.device is not None or channels is None or x.rank - 1 in self.axes:
            return ("at", 0), 0
        axis, count = channels
        where, k, path = terms[axis]
        if count == 1 or axis != self.rank - 1 or path:
            return ("at", 0), 0
        if where is None:
            return ("at", k), count
        return (("axis", where), count) if lowering.channels == (where, count) else (("at", 0), 0)

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node, place = binder.nodes[position], spec.columns
        numbers, shapes = node.params, node.inputs[0].shapes
        extents = [shapes.along(a) for a in self.axes]
        for k, n in enumerate(merged_dimensions(extents, binder.strides, spec)):
            rows[:, place["run_n", k]] = n
        lanes = numbers.lanes
        rows[:, place["run_lanes",]] = lane_count(math.prod(extents)) if lanes is None else lanes
        rows[:, place["run_divisor",]] = 1 if numbers.divisors is None else numbers.divisors
        step, at = binder.numbers(terms[0]) if terms else (0, 0)
        rows[:, place["lane_step",]], rows[:, place["lane_at",]] = step, at

    def bound_by(self, node: Node) -> Hashable | None:
        numbers = node.params
        is_known = numbers.lanes is None and not isinstance(numbers.divisors, np.ndarray)
        return (numbers.divisors,) if is_known else None

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        extents = node.inputs[0].shapes.rows[:, self.axes[k]]
        return np.zeros_like(extents), np.maximum(extents - 1, 0)


def merged_dimensions(
    extents: Sequence[Number], strides: Mapping[tuple[int, int], Number], spec: KernelSpec
) -> list[Number]:
    """Extents after merging into the last dimension those that are contiguous with it.

    The order of the values stays the same, and inner loops become longer. `strides`: those of the
    kernel's loads that its spec does not fix, by slot and axis.
    """
    assert spec.core is not None
    slots = {e.attr for e in ex.walk([spec.core.value]) if e.op == "load"}

    def stride(slot: int, k: int) -> Number:
        known, axis = spec.loads[slot].strides, spec.rank + k
        fixed = known[axis] if axis < len(known) else 0
        return strides[slot, axis] if fixed is None else fixed

    merged, last = list(extents), len(extents) - 1
    goes_on: Any = True  # a bool, or one per sample
    for k in range(last - 1, -1, -1):
        n = extents[k]
        for slot in slots:
            goes_on = goes_on & ((stride(slot, k) == stride(slot, last) * merged[last]) | (n == 1))
        merged[last] = merged[last] * (1 + goes_on * (n - 1))
        merged[k] = n + goes_on * (1 - n)
    return merged


@dataclass(frozen=True)
class PoolBatch(Opaque):
    """Turns a batch of equal shapes into one tensor with a new first axis, in the same memory."""

    @property
    def is_rename(self) -> bool:
        return True

    def compute(self, node: Node, inputs: list[Node], gpu: Any) -> Storage:
        storage = inputs[0].stored
        assert storage.dense and storage.strides is None, f"{inputs[0]} does not lie in one piece"
        return Storage(storage.addresses[:1], storage.owner, dense=True)

    def check(self, node: Node) -> None:
        assert node.rank == self.rank and node.count == 1, f"{node}: rank"
        assert node.inputs[0].shapes.uniform, f"{node}: samples differ"


def pool(op: str, x: Node) -> Node:
    """All samples of `x`, which have the same shape, as one tensor."""
    rows = np.concatenate([[x.count], x.shapes.rows[0]])[None]
    return make(op, PoolBatch(x.rank + 1), (x,), Shapes(rows), None, False)


def reduce(
    op: str, x: Node, axes: Sequence[int], combine: str, acc: DType, layout: str | None,
    divisors: Number | None = None, is_guarded: bool = False,
) -> Node:  # fmt: skip
    """Combine the values of `x` along `axes` (at least one) to a value of type `acc`.

    With `divisors` the result is a mean, as float64.
    """
    axes = sorted(axes)
    if static_channels(x) is not None and axes == [static_channels(x)[0]]:  # type: ignore[index]
        return _of_channels(op, x, axes[0], combine, acc, layout, divisors, is_guarded)
    if x.device is not None:
        lanes = lane_count(x.shapes.rows[:, axes].prod(axis=1))
        if (lanes > 1).any():
            x, axes = _in_lanes(op, x, axes, combine, acc, lanes)
        if (lanes > FOLD).any():
            x, axes = _in_lanes(op, x, axes, combine, acc, folded_count(lanes))
    kept = [d for d in range(x.rank) if d not in axes]
    is_mean = divisors is not None
    kind = interned(Reduce, len(kept), tuple(axes), combine, acc, is_mean, is_guarded)
    shapes = x.shapes.keeping(tuple(kept))
    numbers = Numbers(None, divisors) if is_mean else NO_NUMBERS
    return made_of(kind, op, (x,), shapes, layout, x.batch, numbers)


def _in_lanes(
    op: str, x: Node, axes: Sequence[int], combine: str, acc: DType, lanes: Array
) -> tuple[Node, list[int]]:
    """Partial results, one per lane, and the axis of the lanes.

    The lanes replace the last reduced axis, so neighbouring GPU threads read neighbouring values.
    """
    kept = [d for d in range(x.rank) if d not in axes]
    lane_axis = sum(d < axes[-1] for d in kept)
    rows = np.insert(x.shapes.rows[:, kept], lane_axis, lanes, axis=1)
    kind = Reduce(len(kept) + 1, tuple(axes), combine, acc, lane_axis=lane_axis)
    made = make(op, kind, (x,), Shapes(rows), None, x.batch, Numbers(lanes))
    return made, [lane_axis]


def _of_channels(
    op: str, x: Node, axis: int, combine: str, acc: DType, layout: str | None,
    divisors: Number | None, is_guarded: bool,
) -> Node:  # fmt: skip
    """Combine the channels of each pixel by an expression, because they are few."""
    rows = x.shapes.rows.copy()
    count, rows[:, axis] = int(rows[0, axis]), 1
    # All samples have the same number of channels, so they have the same divisor, too.
    assert divisors is None or isinstance(divisors, int), divisors
    divisor = divisors
    key = (axis, count, combine, acc, divisor, is_guarded)
    whole = [tuple(range(x.rank))]
    made = pointwise(op, _channels_combined, [x], whole, Shapes(rows), None, key, x.batch)
    return drop_axes(op, made, [axis], layout)


def _channels_combined(
    x: Expr, axis: int, count: int, combine: str, acc: DType, divisor: int | None, is_guarded: bool
) -> Expr:
    total = Reduction(x, (), 0, combine, acc).start
    for k in range(count):
        value = ex.at_axis(x, axis, k)
        value = ex.cast(ex.cast(value, dt.uint8) if x.dtype is dt.bool_ else value, acc)
        if combine == "add":
            total = total + value
        else:
            total = ex.select(value < total if combine == "min" else value > total, value, total)
    if divisor is None:
        return total
    if is_guarded and divisor <= 0:
        return ex.const(0.0, dt.float64)
    return ex.cast(total, dt.float64) / float(divisor)
