"""A plan under construction, which the passes read and write."""

from __future__ import annotations

from typing import Any

from ..kinds.base import Kind
from .lowering import Lowering
from .program import Program
from .steps import OpaqueStep, Plan, Regional, Segment, Step

Keep = dict[int, str]


class Draft:
    """A program, and the decisions of the passes so far."""

    def __init__(
        self,
        program: Program,
        fuse: bool,
        also: frozenset[int] = frozenset(),
        apart: frozenset[int] = frozenset(),
    ) -> None:
        self.program = program
        self.fuse = fuse
        self.also = also  # values that were read after an earlier run of this program
        self.apart = apart  # values whose ops run one by one for now (fusion/run/tiers.py)
        self.outputs = tuple(sorted({*program.outputs, *also}))
        self.keep: Keep = {}  # positions of stored values, with the reason for each
        self.groups: dict[int, Lowering] = {}  # kernels, by the position of their root
        self.opaque: dict[int, OpaqueStep] = {}
        self.steps: list[Step] = []
        self.segments: list[Segment] = []
        self.regional: list[Regional] = []

    @property
    def inputs(self) -> list[tuple[int, ...]]:
        return self.program.inputs

    def node(self, p: int) -> Any:
        return self.program.nodes[p]

    def kind(self, p: int) -> Kind | None:
        """The kind of a pending value; None if the value is in memory."""
        node = self.program.nodes[p]
        return None if node.storage is not None else node.kind

    def pending(self) -> list[tuple[int, Kind]]:
        """All values that must be computed, in order, with their kinds."""
        kinds = ((p, self.kind(p)) for p in range(len(self.program.nodes)))
        return [(p, kind) for p, kind in kinds if kind is not None]

    def plan(self) -> Plan:
        renames = frozenset(p for p, kind in self.pending() if kind.is_rename)
        return Plan(self.steps, self.keep, self.outputs, renames, self.segments, self.regional)
