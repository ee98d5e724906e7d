"""Passes that form groups around stored values and lower them to kernels."""

from __future__ import annotations

from ...kernels.cpu.helpers import looks_up_many
from ...kernels.ir.tabulate import tabulated
from ..kinds.base import Kind, Terms
from .draft import Draft
from .keep import MAX_GROUP_NODES, share_loops
from .lowering import CoreConflictError, Lowering
from .steps import DecodeStep, KernelStep, OpaqueStep, Step


def lower_groups(draft: Draft) -> None:
    """Make a kernel or another step for every stored value.

    If lowering finds that a kernel would need its core at two places, that value is stored, too.
    """
    while True:
        draft.groups, draft.opaque = {}, {}
        try:
            for p in sorted(draft.keep):
                _lower_one(draft, p)
        except CoreConflictError as conflict:
            draft.keep[conflict.position] = conflict.reason
        else:
            return


def _lower_one(draft: Draft, p: int) -> None:
    kind, inputs = draft.kind(p), draft.inputs[p]
    if kind is None:
        return
    if kind.is_fused and not (kind.is_rename and inputs[0] in draft.keep):
        draft.groups[p] = _lowered(draft, p)
    else:
        made = OpaqueStep if kind.is_fused or not kind.by_sample else DecodeStep
        draft.opaque[p] = made(p, inputs)


def _lowered(draft: Draft, root: int, inline: frozenset[int] = frozenset()) -> Lowering:
    program = draft.program
    return Lowering(program.nodes, program.inputs, draft.keep, root, inline)


def store_on_the_way(draft: Draft) -> None:
    """Let kernels store results that they compute anyway, or keep these in registers if no other
    step reads them. Later results come first, so the readers of each result are final by then.
    """
    if not draft.fuse:
        return
    readers = _readers(draft)
    for p in sorted(draft.groups, reverse=True):
        kind = draft.kind(p)
        # Every reader must run after the value is stored, so only the first one can store it.
        first = min(readers[p], default=None)
        if first in draft.groups and kind is not None and _may_absorb(draft, p, kind, first):
            assert first is not None
            if p in draft.apart and draft.node(p).op != draft.node(first).op:
                continue
            _absorb(draft, p, first, readers)


def _may_absorb(draft: Draft, p: int, kind: Kind, reader: int) -> bool:
    """Whether the kernel of `reader` may compute and store `p`, too."""
    if kind.may_store_on_the_way:
        return True
    core = draft.groups[reader].core_at
    return core is not None and share_loops(draft, p, core)


def _readers(draft: Draft) -> dict[int, set[int]]:
    """Roots of the steps that read each stored value."""
    found: dict[int, set[int]] = {p: set() for p in draft.keep}
    for root, group in draft.groups.items():
        for p, _ in group.loads:
            found[p].add(root)
    for root, step in draft.opaque.items():
        for p in step.inputs:
            found[p].add(root)
    return found


def _absorb(draft: Draft, p: int, reader: int, readers: dict[int, set[int]]) -> None:
    group, own = draft.groups[reader], draft.groups[p]
    node, into = draft.node(p), draft.node(reader)
    if node.batch != into.batch or node.device != into.device:
        return
    if len({*group.members, *own.members}) > MAX_GROUP_NODES:
        return
    if not all(_is_onto(draft, terms, into.rank) for q, terms in group.loads if q == p):
        return  # lowering would find this, too, but slowly if it is read at many positions
    a, b = own.core_at, group.core_at
    if a is not None and b is not None and not share_loops(draft, a, b):
        return
    inline = frozenset({p, *group.stores} - {reader})
    try:
        merged = _lowered(draft, reader, inline)
    except CoreConflictError:
        return
    where = merged.places(p)
    if len(where) != 1 or where[0][2] is not None or not _is_onto(draft, where[0][1], into.rank):
        return
    readers[p].discard(reader)
    if not readers[p] and p not in draft.outputs:
        del draft.keep[p]  # no other step reads it, so it stays in registers
        merged = _lowered(draft, reader, inline - {p})
    del draft.groups[p]
    draft.groups[reader] = merged
    for root, old in ((p, own), (reader, group)):
        for q, _ in old.loads:
            readers[q].discard(root)
    for q, _ in merged.loads:
        readers[q].add(reader)


def _is_onto(draft: Draft, terms: Terms, rank: int) -> bool:
    """Whether every element of the operand is visited exactly once over the output domain."""
    axes = [axis for axis, _, _ in terms]
    if sorted(-1 if a is None else a for a in axes) != list(range(rank)):
        return False
    return all(
        what == "view" and draft.node(p).definition.kind.is_onto
        for _, _, path in terms
        for what, p, _ in path
    )


def spell_out_bilinear(draft: Draft) -> None:
    """Write bilinear reads as four taps each, unless the back-end reads whole lines of them."""
    for group in draft.groups.values():
        group.spell_out_bilinear()


def make_steps(draft: Draft) -> None:
    """Collect all steps, in the order of their results."""
    steps: dict[int, Step] = {**draft.opaque}
    for root, group in draft.groups.items():
        spec, recipe = group.finish()
        device = draft.node(root).device
        steps[root] = KernelStep(root, spec, recipe, tuple(sorted(group.members)), device)
    draft.steps = [steps[p] for p in sorted(steps)]
    for number, step in enumerate(draft.steps):
        step.number = number


def tabulate_bytes(draft: Draft) -> None:
    """Look up expensive functions of one byte on CPUs; a GPU computes faster than it reads."""
    for step in draft.steps:
        if isinstance(step, KernelStep) and step.device is None:
            step.spec = tabulated(step.spec, looks_up_many())
