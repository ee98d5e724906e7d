"""Assertions about every program and every plan; they run in all tests.

A kernel checks nothing, so a plan that reads a value before it is written, or a view that leaves
its input, would silently give wrong results.
"""

from __future__ import annotations

from collections import Counter

from .program import Program
from .steps import KernelStep, Plan


def check_program(program: Program) -> None:
    """Assert that every pending node is valid for its kind and comes after its inputs."""
    for p, node in enumerate(program.nodes):
        kind = node.kind
        if node.storage is not None or kind is None:
            assert not program.inputs[p], f"{node} is there and has inputs"
            continue
        assert all(i < p for i in program.inputs[p]), f"{node} comes before its inputs"
        kind.check(node)


def check_plan(program: Program, plan: Plan) -> None:
    """Assert that values are stored once, before they are read, and that no output is missing."""
    written: set[int] = {p for p, n in enumerate(program.nodes) if n.storage is not None}
    for step in plan.steps:
        missing = [program.nodes[p] for p in step.reads if p not in written]
        assert not missing, f"{step} reads {missing} before it is there"
        again = [program.nodes[p] for p in step.writes if p in written]
        assert not again, f"{step} writes {again} again"
        written.update(step.writes)
        if isinstance(step, KernelStep):
            _check_kernel(program, step)
    assert written.issuperset(plan.outputs), "a result is not computed"
    assert written.issuperset(plan.keep), "a value that is to be stored is not"
    segmented = [s for segment in plan.segments for s in segment.steps]
    assert segmented == plan.steps, "segments are not the steps"
    _check_scratch(plan)


def _check_kernel(program: Program, step: KernelStep) -> None:
    spec, recipe = step.spec, step.recipe
    assert len(spec.loads) == len(recipe.loads) and len(spec.stores) == len(recipe.stores)
    assert len(spec.windows) == len(recipe.windows) and len(spec.indices) == len(recipe.indices)
    assert len(spec.cores) == len(recipe.cores)
    assert not spec.is_tabulated or step.device is None
    for access, (p, terms) in zip(
        (*spec.loads, *spec.stores), (*recipe.loads, *recipe.stores), strict=True
    ):
        node = program.nodes[p]
        assert access.dtype is node.dtype, f"{step}: {node} is read as {access.dtype}"
        assert recipe.flat or len(terms) in (node.rank, 1), f"{step}: {node} has {len(terms)} terms"
    for p in step.members:
        node = program.nodes[p]
        assert node.kind is not None and node.kind.is_fused, f"{node} is no part of a kernel"
        assert node.device == step.device, f"{node} is on another device"


def _check_scratch(plan: Plan) -> None:
    """Assert that values that are needed at the same time have different slots."""
    for segment in plan.segments:
        left = Counter(p for step in segment.steps for p in set(step.reads) if p in segment.slots)
        taken: dict[int, int] = {}  # slot → value
        for step in segment.steps:
            for p in step.writes:
                if p in segment.slots:
                    assert segment.slots[p] not in taken, f"two values share scratch at {step}"
                    taken[segment.slots[p]] = p
            for p in set(step.reads):
                if p in left:
                    left[p] -= 1
                    if not left[p]:
                        taken.pop(segment.slots[p], None)
