"""Core: the part of a kernel that computes more than an expression.

A kernel loops over its output and evaluates expressions at each point. Some values need more than
that: a sum over neighbours, a window, a whole axis. Such a computation is a `Core`, and a kernel
has room for one. The kernel's expressions read it through the leaf "core".

A core that keeps rows of what it reads may have a core of its own inside, which computes these rows
one by one: a blur of resized images is one kernel and has no resized image in memory. What the
outer core reads is then an expression with leaves "core" that stand for the inner one.

A core defines its own columns of the table and one renderer per back-end. Nothing else in the
spec, the binder or the back-ends knows which cores exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .expr import Expr, walk

if TYPE_CHECKING:
    from ..cpu.cores import CpuCore
    from ..gpu.cores import GpuCore
    from .spec import KernelSpec

Array = np.ndarray[Any, Any]
Column = tuple[str | int, ...]

# Axes of a core behind those of the output: up to three dimensions, and its channels. The axes of
# a core inside of it come after these.
CORE_AXES = 4


@dataclass(frozen=True)
class Core(ABC):
    """A computation over dimensions of its own, which are numbered after the output axes.

    `value` is what it reads at one position. It is an expression over loads that have more strides
    than the output has axes: one more for each dimension of the core, and one for its channels.
    """

    value: Expr
    axes: tuple[int | None, ...]  # output axis that each dimension follows, if it follows one
    # The number of channels computed together, whose axis comes after the dimensions; 0 if the core
    # computes a single number.
    channels: int = 0
    # Computes rows of what this core reads.
    inner: Core | None = field(default=None, kw_only=True)

    @property
    def lanes(self) -> int:
        return max(self.channels, 1)

    @property
    def chain(self) -> tuple[Core, ...]:
        """This core and the one inside of it."""
        return (self,) if self.inner is None else (self, *self.inner.chain)

    @property
    def gives_rows(self) -> bool:
        """Whether a core around this one may take rows from it."""
        return False

    @property
    def takes_rows(self) -> bool:
        """Whether a core inside of this one may compute the rows that it reads."""
        return False

    @property
    def gives_frames(self) -> bool:
        """Whether a core around this one may take blocks of frames from it, one per lane."""
        return False

    @property
    def takes_frames(self) -> bool:
        """Whether a core inside of this one may compute the frames that it reads."""
        return False

    def takes(self, inner: Core) -> bool:
        """Whether `inner` may compute what this core reads."""
        rows = self.takes_rows and inner.gives_rows
        return rows or (self.takes_frames and inner.gives_frames)

    def beside(self, other: Core) -> Core | None:
        """One core that computes this one's results and, numbered after them, those of `other`;
        None if they do not share their loops."""
        return None

    def extent(self, k: int) -> Column:
        """The column that holds the extent of what it reads along dimension `k`."""
        raise NotImplementedError(f"{type(self).__name__} has no core inside")

    @abstractmethod
    def columns(self) -> dict[Column, str]:
        """Its columns of the table, and how each is read: "i64", "i32", "f32" (bits) or "index"."""

    def depth(self, loops: int) -> int:
        """How many of the kernel's loops, counted from outside, its value depends on."""
        return loops

    @abstractmethod
    def operations(self, spec: KernelSpec, table: Array) -> Array:
        """Operations at each point of the output, per sample; for estimates (kernel_report)."""

    @abstractmethod
    def cpu_renderer(self) -> type[CpuCore]:
        """The class that writes the core into CPU kernels."""

    @abstractmethod
    def gpu_renderer(self) -> type[GpuCore]:
        """The class that writes the core into GPU kernels."""


def constant_parts(spec: KernelSpec, value: Expr | None = None) -> dict[Expr, None]:
    """The parts of what a core reads that are the same everywhere in a sample, in order.

    `value`: the core's, if a back-end has rewritten it.
    """
    assert spec.core is not None
    found: dict[Expr, None] = {}
    for e in walk([value or spec.core.value]):
        if e.op == "load":
            is_constant = spec.loads[e.attr].is_scalar
        elif e.op == "index":
            is_constant = spec.indices[e.attr].axis is None
        else:
            is_constant = bool(e.args) and all(a in found or a.op == "const" for a in e.args)
        if is_constant:
            found[e] = None
    return found
