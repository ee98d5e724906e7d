"""A pass that stores values which a kernel would compute again and again for the same result.

A value may depend on fewer axes than the loops around it, like `sin(row)` in `image * sin(row)`.
CPU kernels hoist what depends on outer loops only: a number per sample, or per row of an image. But
a number per column is needed in the innermost loop of every row, and on a GPU every element
computes all it needs. If such a value is dear, it is stored first and then read.
"""

from __future__ import annotations

from ...kernels.ir.expr import Expr, op_cost, walk
from .draft import Draft
from .groups import lower_groups
from .lowering import Lowering

# A repeated value of this cost or more is stored, on CPUs.
# bench/constants.py, computed in every row / stored, for 375×500 and 64×64 pixels: 0.97 and 0.95
# with 8 multiplications, 1.12 and 1.09 with 16, 1.35 and 1.22 with 32, 2.5 and 2.3 with one sine.
REPEATED_COST = 16
# On GPUs, storing takes a launch of its own, which lasts as long as about this many operations on
# each of the million elements of a small batch. An estimate: nothing was measured on a GPU.
REPEATED_COST_ON_GPU = 64


def store_repeated(draft: Draft) -> None:
    """Store dear values that a kernel would compute again along an axis they do not depend on."""
    while draft.fuse:
        found = {p for group in draft.groups.values() for p in _repeated(draft, group)}
        found -= draft.keep.keys()
        if not found:
            return
        for p in found:
            draft.keep[p] = "it repeats along an axis, dearer to compute again than to read"
        lower_groups(draft)


def _repeated(draft: Draft, group: Lowering) -> list[int]:
    """The values of a kernel to be stored; what they are computed from needs no storing then."""
    is_gpu = draft.node(group.root).device is not None
    limit = REPEATED_COST_ON_GPU if is_gpu else REPEATED_COST
    again = _computed_again(group, is_gpu)
    found: list[int] = []
    inside: set[int] = set()
    for p, value in sorted(group.computed(), reverse=True, key=lambda place: place[0]):
        kind = draft.kind(p)
        assert kind is not None
        if p in inside:
            inside.update(draft.inputs[p])
        elif value in again and not (kind.is_part or kind.is_rename):
            if sum(op_cost(e) for e in walk([value]) if e in again) >= limit:
                found.append(p)
                inside.update(draft.inputs[p])
    return found


def _computed_again(group: Lowering, is_gpu: bool) -> set[Expr]:
    """The expressions of a kernel that it computes again along an axis they do not depend on."""
    loops = group.loops()
    axes: dict[Expr, frozenset[int]] = {}
    found: set[Expr] = set()
    for e in walk(group.values()):
        axes[e] = group.own_axes(e).union(*(axes[a] for a in e.args))
        own = axes[e].intersection(loops)
        within = loops if is_gpu else loops[: loops.index(max(own))] if own else []
        if own and not own.issuperset(within):
            found.add(e)
    return found
