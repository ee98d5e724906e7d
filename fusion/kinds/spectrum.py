"""Transform: the power of the frequencies of frames of a signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.spectrum import WINDOW_GROUP, Spectrum
from ..graph.node import Node
from ..graph.shapes import Array, Shapes
from .base import Terms, Work, make
from .tabled import NUMBERS, Tabled

if TYPE_CHECKING:
    from ...kernels.ir.spec import KernelSpec
    from ..plan.lowering import Lowering
    from ..run.binder import Binder


class Framing(NamedTuple):
    """Where the frames of each sample begin, and how long they are."""

    step: Array
    pad: Array  # samples before the signal that the first frame begins with
    length: Array  # of the window
    size: Array  # of the transform


@dataclass(frozen=True)
class Transform(Tabled):
    """The spectra of frames, as float32; params = `Framing`.

    Inputs: the signal, the window, and the tables of the transform (see `Spectrum`).
    """

    time_axis: int  # of the two axes of the result; the other one are the frequencies
    is_mirrored: bool
    is_magnitude: bool

    gives_frames = True

    def check(self, node: Node) -> None:
        super().check(node)
        signal, window, *tables = node.inputs
        frames: Framing = node.params
        assert signal.rank == 1 and self.rank == 2 and self.time_axis in (0, 1), f"{node}: axes"
        assert window.dtype is dt.float32, f"{node}: window"
        room = -(-frames.length // WINDOW_GROUP) * WINDOW_GROUP
        assert (window.shapes.volumes == room).all(), f"{node}: window"
        assert ((frames.length > 0) & (frames.length <= frames.size)).all(), f"{node}: lengths"
        assert (frames.step > 0).all(), f"{node}: steps"
        assert len(tables) == (2 if node.device is None else 1), f"{node}: tables"
        bins = node.shapes.rows[:, 1 - self.time_axis]
        assert (bins == frames.size // 2 + 1).all(), f"{node}: frequencies"

    def lower(self, lowering: Lowering, position: int, terms: Terms, guard: Expr | None) -> Work:
        source, window, *tables = lowering.inputs[position]
        where = terms[1 - self.time_axis], terms[self.time_axis]
        value = yield source, ((lowering.first_dimension(where), 0, ()),), None
        core = Spectrum(
            ex.cast(value, dt.float32), (where[0][0],), 0, where[1][0],
            lowering.slot(window, NUMBERS, None),
            tuple(lowering.slot(t, NUMBERS, None) for t in tables),
            self.is_mirrored, self.is_magnitude,
        )  # fmt: skip
        return lowering.claim(position, where, core, ("at", 0))

    def bind(
        self, binder: Binder, rows: Array, spec: KernelSpec, position: int, terms: Terms
    ) -> None:
        node, place = binder.nodes[position], spec.columns
        frames: Framing = node.params
        samples = node.inputs[0].shapes.rows[:, 0]
        for name, number in zip(Framing._fields, frames, strict=True):
            rows[:, place["frame", name]] = number
        rows[:, place["frame", "samples"]] = samples
        for name, term in zip(("frequency", "time"), terms, strict=True):
            rows[:, place[f"{name}_step",]], rows[:, place[f"{name}_at",]] = binder.numbers(term)

    def region(self, node: Node, k: int, low: Array, high: Array) -> tuple[Array, Array]:
        n = node.inputs[0].shapes.rows[:, 0]
        return np.zeros_like(n), np.maximum(n - 1, 0)


def transform(
    op: str, x: Node, shapes: Shapes, layout: str, frames: Framing, window: Node,
    tables: Sequence[Node], is_mirrored: bool, is_magnitude: bool,
) -> Node:  # fmt: skip
    """The spectra of frames of a signal; the axis "t" of the layout is time."""
    kind = Transform(2, layout.index("t"), is_mirrored, is_magnitude)
    return make(op, kind, (x, window, *tables), shapes, layout, x.batch, frames)
