"""The parts of a plan: kernels, decoders and other steps, in segments."""

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
    number: int = -1  # its index in the plan
    kernel: Any = None  # compiled on first use
    scratch: Any = None  # scratch memory of a CPU kernel (kernels/cpu/cores.py), set with `kernel`
    layout: Any = None  # of its table (fusion/run/table_layout.py), set on first use
    sized: Any = None  # see `sized_by` (fusion/run/binder.py), set on first use

    by_sample: ClassVar[bool] = True  # a sample depends only on the same sample of the inputs

    @property
    def reads(self) -> Iterable[int]:
        return (p for p, _ in self.recipe.loads)

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(p for p, _ in self.recipe.stores)


@dataclass(eq=False)
class OpaqueStep:
    """Any step that is not a generated kernel: aliases, sample choices, copies, host functions."""

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
    """Decodes samples one by one in host memory, in one pipeline with the kernels that follow."""

    by_sample = True


Step = KernelStep | OpaqueStep


@dataclass(eq=False)
class Segment:
    """A run of decoders and kernels over the same samples, or one opaque step."""

    steps: list[Step]
    # Values that only this segment uses → slot of scratch memory. Values that are never needed at
    # the same time share a slot.
    slots: dict[int, int] = field(default_factory=dict)
    last: tuple[int, ...] = ()  # values that no later segment needs
    # The only step, if it is a CPU kernel over all elements of its operands (fusion/run/flat.py).
    flat: KernelStep | None = None


class Regional(NamedTuple):
    """A decoded value of which only the region that these kernels read may be needed."""

    root: int
    copies: tuple[int, ...]  # positions of its copies on other devices
    readers: tuple[KernelStep, ...]


@dataclass(eq=False)
class Plan:
    """What to run for a program shape; valid for every size, batch size and argument value."""

    steps: list[Step]
    keep: dict[int, str]  # stored values, and why each is stored
    outputs: tuple[int, ...]
    renames: frozenset[int]  # values that share the memory of others: no bytes move, fused or not
    segments: list[Segment]
    regional: list[Regional]
    was_extended: bool = False  # later programs used its results
    tier: str = ""  # which kernels it uses and why, if that was decided (fusion/run/tiers.py)
    is_final: bool = False  # no better plan for the program will come
