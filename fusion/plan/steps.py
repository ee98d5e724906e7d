"""What a plan consists of: kernels, decoders and other steps, in segments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ...kernels.ir.spec import KernelSpec
from .lowering import Recipe


@dataclass(eq=False)
class KernelStep:
    """One generated kernel over all samples of a batch."""

    root: int  # position in the program of the value that its loops run over
    spec: KernelSpec
    recipe: Recipe
    members: tuple[int, ...]  # positions of all values that it computes
    device: Any  # the ordinal of a GPU, or None
    number: int = -1  # its place in the plan
    kernel: Any = None  # compiled on first use
    scratch: Any = None  # of a CPU kernel (kernels/cpu/cores.py), known with it
    columns: Any = None  # of a flat kernel (fusion/run/binder.py), known from its first run on

    by_sample: ClassVar[bool] = True  # every sample depends on its own inputs alone

    @property
    def reads(self) -> Iterable[int]:
        return (p for p, _ in self.recipe.loads)

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(p for p, _ in self.recipe.stores)


@dataclass(eq=False)
class OpaqueStep:
    """Anything that is not a generated kernel: aliases, sample choices, copies, host functions."""

    root: int
    inputs: tuple[int, ...]
    number: int = -1

    by_sample: ClassVar[bool] = False
    device: ClassVar[Any] = None

    @property
    def members(self) -> tuple[int, ...]:
        return (self.root,)

    @property
    def reads(self) -> Iterable[int]:
        return self.inputs

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.root,)


class DecodeStep(OpaqueStep):
    """Samples made one by one in host memory: a part of the kernels' pipeline that follows."""

    by_sample = True


Step = KernelStep | OpaqueStep


@dataclass(eq=False)
class Segment:
    """A run of decoders and kernels over the same samples, or one opaque step."""

    steps: list[Step]
    # Values that only this segment sees, and the slot of scratch memory of each: those that are
    # never needed at the same time share one.
    slots: dict[int, int] = field(default_factory=dict)
    last: tuple[int, ...] = ()  # values that nothing after this segment needs
    # its only step, if that is a CPU kernel over all elements of its operands (fusion/run/flat.py)
    flat: KernelStep | None = None


class Regional(NamedTuple):
    """A decoded value of which only a part may be needed: that which these kernels read."""

    root: int
    copies: tuple[int, ...]  # on other devices
    readers: tuple[KernelStep, ...]


@dataclass(eq=False)
class Plan:
    """What to run for a program shape; valid for every size, batch size and argument value."""

    steps: list[Step]
    keep: dict[int, str]  # what is stored, and why
    outputs: tuple[int, ...]
    renames: frozenset[int]  # values that are the memory of others: no bytes move, fused or not
    segments: list[Segment]
    regional: list[Regional]
    was_extended: bool = False  # later programs began with its results
