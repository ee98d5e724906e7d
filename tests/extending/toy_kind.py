"""A kind of computation from outside the package: the largest of the last few elements.

This file is complete: the kind with its rules, its core with a renderer per device, and an op
that uses it. The op fuses with those before and after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ndd.core.schema import data, geometry, op, static
from ndd.fusion.kinds.base import DEAR, Kind, Reads, make
from ndd.kernels.cpu.cores import CpuCore, indented
from ndd.kernels.gpu.cores import GpuCore
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.core import Core


@dataclass(frozen=True)
class RunningMax(Kind):
    """`out[i] = max(x[i - n + 1 … i])` along one axis, as float32; params = n per sample."""

    axis: int

    has_core = True

    def infer(self, inputs):
        return dt.float32

    def reads(self, i):
        return Reads.SCATTERED

    def cost(self):
        return DEAR

    def check(self, node):
        super().check(node)
        assert (node.params >= 1).all(), f"{node}: empty window"

    def lower(self, lowering, position, terms, guard):
        own = list(terms)
        own[self.axis] = (lowering.rank, 0, ())  # the core's own dimension
        value = yield lowering.inputs[position][0], tuple(own), None
        where = terms[self.axis]
        core = LargestOfRun(ex.cast(value, dt.float32), (where[0],))
        return lowering.claim(position, (where,), core, ("at", 0))

    def bind(self, binder, rows, spec, position, terms):
        step, at = binder.numbers(terms[0])
        for name, number in (("step", step), ("at", at), ("length", binder.nodes[position].params)):
            rows[:, spec.columns[f"run_{name}",]] = number

    def region(self, node, k, low, high):
        return low - node.params + 1, high


@dataclass(frozen=True)
class LargestOfRun(Core):
    def columns(self):
        return {("run_step",): "index", ("run_at",): "index", ("run_length",): "i32"}

    def operations(self, spec, table):
        return table[:, spec.columns["run_length",]] * (ex.cost(self.value) + 1)

    def cpu_renderer(self):
        return _OnCpu

    def gpu_renderer(self):
        return _OnGpu

    @property
    def place(self):
        """Source of the last element's position, computed from the output position."""
        o = "0" if self.axes[0] is None else f"o_{self.axes[0]}"
        return f"run_step * {o} + run_at"


class _OnCpu(CpuCore):
    def line(self) -> Iterator[str]:
        yield f"last = {self.spec.core.place}"
        yield "largest = f32(-inf)"
        yield "for p in range(max(last - run_length + 1, 0), last + 1):"
        lines, value = self.element(["p"])
        yield from indented([*lines, f"largest = choose({value} > largest, {value}, largest)"])

    def read(self, e) -> str:
        return "largest"


class _OnGpu(GpuCore):
    block = 128

    def lines(self) -> Iterator[str]:
        yield f"last = {self.spec.core.place} + lane * 0"
        lines, value = self.element(["last"], prefix="f")
        yield from [*lines, f"largest = {value}"]
        yield "for k in range(1, run_length):"
        lines, value = self.element(["tl.maximum(last - k, 0)"])
        yield from indented([*lines, f"largest = tl.where({value} > largest, {value}, largest)"])

    def name(self, e) -> str:
        return "largest"


@op.graph(layouts="HWC CHW")
def toy_running_max(
    input=data("Images."),
    length=geometry(int, 3, "How many elements to look back at."),
    axis=static(int, 0, "The axis along which to look."),
):
    """The largest of the last few elements."""
    x = input
    if (length < 1).any():
        raise ValueError(f"`length` must be positive, got {int(length.min())}")
    kind, counts = RunningMax(x.rank, axis), np.broadcast_to(length, x.count)
    return make("toy_running_max", kind, [x], x.shapes, x.layout, x.batch, counts)
