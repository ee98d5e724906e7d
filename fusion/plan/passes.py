"""Where groups end. Each rule is one function that marks values to be kept, with a reason.

A value that no rule marks is never stored: it lives in registers inside the kernels of its users.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ...kernels.ir.expr import Expr, cost, walk
from ..graph.node import Merge, Pointwise, Resample, View
from .program import Program

# A longer group compiles slowly, and its per-sample numbers no longer fit in a GPU's registers.
# bench/constants.py, 512 calls in groups of at most 16, 32, 64, 128, 256, 512: the first run takes
# 2.2, 1.8, 1.7, 1.6, 2.8, 4.9 s of CPU time, later runs 39, 40, 41, 40, 50, 53 ms.
MAX_GROUP_NODES = 128
# Storing and reading back one element is taken to cost as much as this many operations on it.
# bench/constants.py, computed twice / stored: even at 3 operations for images of 512×512, between
# 16 and 32 for 64×64; with 8 operations 1.13 and 0.84.
RECOMPUTE_COST = 8

Keep = dict[int, str]
# Work up to this cost is done again for every tap that reads its result, rather than stored.
# A conversion or a scale and shift; an estimate, not measured.
TAP_COST = 8
FUSIBLE = (Pointwise, View, Merge, Resample)


def keep_outputs(program: Program, keep: Keep) -> None:
    for p in program.outputs:
        keep.setdefault(p, "its value is asked for")


def keep_inputs_of_opaque(program: Program, keep: Keep) -> None:
    for p, inputs in enumerate(program.inputs):
        node = program.nodes[p]
        if node.storage is not None:
            continue
        if not isinstance(node.static, FUSIBLE):
            keep.setdefault(p, f"{node.op} works on memory")
            for i in inputs:
                keep.setdefault(i, f"{node.op} needs it in memory")
        elif isinstance(node.static, View) and node.static.relabel and p in keep:
            # the result is the input's memory under another shape: no kernel at all
            for i in inputs[:1]:
                keep.setdefault(i, f"{node.op} only renames its axes")


def keep_across_batches(program: Program, keep: Keep) -> None:
    """A single tensor computed for a whole batch is computed once, not once per sample."""
    for p, inputs in enumerate(program.inputs):
        for i in inputs:
            if program.nodes[i].batch != program.nodes[p].batch:
                keep.setdefault(i, "one tensor serves all samples")


def keep_tables(program: Program, keep: Keep) -> None:
    """Inputs that a body indexes freely must be in memory."""
    for p, inputs in enumerate(program.inputs):
        static = program.nodes[p].static
        if isinstance(static, Pointwise):
            for i in _looked_up(static.expr):
                keep.setdefault(inputs[i], "it is looked up by position")


def keep_scattered(program: Program, keep: Keep) -> None:
    """What is read at computed positions is in memory, unless it is cheap to compute there."""
    for p, inputs in enumerate(program.inputs):
        static = program.nodes[p].static
        if program.nodes[p].storage is not None:
            continue
        if isinstance(static, Resample):
            scattered: tuple[int, ...] = (0,)
        elif isinstance(static, Pointwise):
            scattered = _scattered(static.expr)
        else:
            continue
        for i in scattered:
            held = _needs_memory(program, keep, inputs[i])
            if held is not None:
                keep.setdefault(held, f"{program.nodes[p].op} reads it at several positions")


def _needs_memory(program: Program, keep: Keep, p: int) -> int | None:
    """The value to store so that `p` can be read anywhere; None if there is no need."""
    start, left = p, TAP_COST
    while p not in keep:
        static = program.nodes[p].static
        if isinstance(static, View) and not static.checked:
            p = program.inputs[p][0]
            continue
        if not isinstance(static, Pointwise) or not _is_local(static.expr):
            return start if isinstance(static, Pointwise) else p
        left -= _cost(static.expr)
        varying = [i for i in program.inputs[p] if program.nodes[i].rank and i not in keep]
        stored = [i for i in program.inputs[p] if program.nodes[i].rank and i in keep]
        if left < 0 or len(varying) + len(stored) > 1:
            return start
        if not varying:
            return None
        p = varying[0]
    return None


def keep_all_but_one_resample(program: Program, keep: Keep) -> None:
    """A kernel interpolates one value; where several meet, all but the last are stored."""
    carried: list[bool] = []
    for p, inputs in enumerate(program.inputs):
        node = program.nodes[p]
        own = isinstance(node.static, Resample) and node.storage is None
        found = [i for i in dict.fromkeys(inputs) if carried[i] and i not in keep]
        for i in found[:-1] if not own else found:
            keep[i] = "a kernel interpolates one value"
        carried.append(own or bool(found))


def keep_nested_merges(program: Program, keep: Keep) -> None:
    """Joined parts that are joined again are stored: each part adds a test to every element."""
    for p in range(len(program.nodes)):
        if isinstance(program.nodes[p].static, Merge):
            for part in program.inputs[p]:
                inner = program.inputs[part][0]
                if isinstance(program.nodes[inner].static, Merge):
                    keep.setdefault(inner, "it is one of many joined parts")


def keep_shared(program: Program, keep: Keep) -> None:
    """A dear value that is needed at several places is computed once and stored.

    A place is a kernel and the moves (views, broadcasts) on the way from its result to the value.
    """
    users = program.consumers()
    costs = _costs(program)
    ids: dict[tuple[int, int], int] = {}  # a number for every place: (place of the user, user)
    places: list[set[int]] = [set() for _ in program.nodes]
    for p in range(len(program.nodes) - 1, -1, -1):
        mine = places[p]
        for user in users[p]:
            start = ids.setdefault((-1, user), len(ids))
            ends = (start,) if user in keep else places[user]
            moves = _moves(program, user, p)
            mine.update(ids.setdefault((e, user), len(ids)) if moves else e for e in ends)
        if p in keep or program.nodes[p].storage is not None or len(mine) <= 1:
            continue
        if costs[p] * (len(mine) - 1) > RECOMPUTE_COST:
            keep[p] = f"needed at {len(mine)} places, dearer to compute again than to store"


def keep_long_chains(program: Program, keep: Keep) -> None:
    groups: list[set[int]] = []  # the operations that a kernel for each value would have
    for p, inputs in enumerate(program.inputs):
        if program.nodes[p].storage is not None:
            groups.append(set())
            continue
        parts = {i: groups[i] for i in inputs if i not in keep}
        group = set().union({p}, *parts.values())
        while len(group) > MAX_GROUP_NODES:
            largest = max(parts, key=lambda i: len(parts[i]))
            keep[largest] = f"the group has reached {MAX_GROUP_NODES} operations"
            del parts[largest]
            group = set().union({p}, *parts.values())
        groups.append(group)


PASSES: tuple[Callable[[Program, Keep], None], ...] = (
    keep_outputs,
    keep_inputs_of_opaque,
    keep_across_batches,
    keep_tables,
    keep_scattered,
    keep_nested_merges,
    keep_shared,
    keep_all_but_one_resample,
    keep_long_chains,
    keep_inputs_of_opaque,  # again, for views that the passes before have turned into results
)


def choose_kept(program: Program, fuse: bool, also: frozenset[int] = frozenset()) -> Keep:
    """Positions whose value is stored, with the reason. Sources are in memory already."""
    keep: Keep = {p: "input" for p, n in enumerate(program.nodes) if n.storage is not None}
    if not fuse:
        for p in range(len(program.nodes)):
            if not _is_part(program, p):
                keep.setdefault(p, "NDD_FUSION=0")
    for p in also:
        keep.setdefault(p, "it was read in an earlier run of this program")
    for apply in PASSES:
        apply(program, keep)
    return keep


def _is_part(program: Program, p: int) -> bool:
    """A part of cat or stack has no value of its own outside its window."""
    static = program.nodes[p].static
    return isinstance(static, View) and bool(static.checked) and len(program.inputs[p]) == 1


@lru_cache(maxsize=4096)
def _looked_up(expr: Expr) -> tuple[int, ...]:
    return tuple(e.attr for e in walk([expr]) if e.op == "lookup")


_cost = lru_cache(maxsize=4096)(cost)
_ELSEWHERE = ("fetch", "bilinear")


@lru_cache(maxsize=4096)
def _scattered(expr: Expr) -> tuple[int, ...]:
    return tuple(dict.fromkeys(e.attr[0] for e in walk([expr]) if e.op in _ELSEWHERE))


@lru_cache(maxsize=4096)
def _is_local(expr: Expr) -> bool:
    """Whether a body only reads elements of its inputs, wherever it is asked for."""
    return not any(e.op in ("index", "lookup", "extent", *_ELSEWHERE) for e in walk([expr]))


def _moves(program: Program, p: int, of: int) -> bool:
    """Whether a node reads one of its inputs at other positions than its own."""
    static = program.nodes[p].static
    if isinstance(static, View):
        return not all(static.unit) or not all(static.still)
    if isinstance(static, Resample):
        return True
    if isinstance(static, Pointwise):
        return not all(
            all(same) for i, same in zip(program.inputs[p], static.same, strict=True) if i == of
        )
    return True


def _costs(program: Program) -> list[int]:
    """Cost of computing each value from memory, capped: beyond a limit all are dear."""
    costs = [0] * len(program.nodes)
    for p, inputs in enumerate(program.inputs):
        node = program.nodes[p]
        if node.storage is None:
            own = 1
            if isinstance(node.static, Pointwise):
                own = _cost(node.static.expr)
            elif isinstance(node.static, Resample):
                own = 1000
            costs[p] = min(own + sum(costs[i] for i in inputs), 1000)
    return costs
