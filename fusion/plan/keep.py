"""Passes that decide where groups end: each marks values to be stored, with a reason.

A value that no pass marks is never stored: it lives in registers inside the kernels of its users.
"""

from __future__ import annotations

from ..graph.node import static_channels
from ..kinds.base import DEAR, Reads
from .draft import Draft

# A longer group compiles slowly, and its numbers per sample no longer fit into a GPU's registers.
# bench/constants.py, 512 calls in groups of at most 16, 32, 64, 128, 256, 512: the first run takes
# 2.2, 1.8, 1.7, 1.6, 2.8, 4.9 s of CPU time, later runs take 39, 40, 41, 40, 50, 53 ms.
MAX_GROUP_NODES = 128
# We assume that storing and reading back one element costs as much as this many operations on it.
# bench/constants.py: computing twice takes as long as storing at 3 operations for images of
# 512×512, and between 16 and 32 for 64×64; with 8 operations the ratio is 1.13 and 0.84.
RECOMPUTE_COST = 8
# Work up to this cost is repeated for every tap that reads its result, instead of being stored.
# It allows a conversion or a scale and shift; an estimate, not measured.
TAP_COST = 8


def keep_sources(draft: Draft) -> None:
    for p, node in enumerate(draft.program.nodes):
        if node.storage is not None:
            draft.keep[p] = "input"


def keep_everything_unfused(draft: Draft) -> None:
    if not draft.fuse:
        for p in range(len(draft.program.nodes)):
            kind = draft.kind(p)
            if kind is None or not kind.is_part:
                draft.keep.setdefault(p, "NDD_FUSION=0")


def keep_apart(draft: Draft) -> None:
    """Store the results of ops whose fused kernel is not compiled yet, where one op uses the result
    of another. So they run on the kernels of single ops."""
    users = draft.program.consumers() if draft.apart else []
    for p in draft.apart:
        op, kind = draft.node(p).op, draft.kind(p)
        if kind is not None and not kind.is_part and any(draft.node(u).op != op for u in users[p]):
            draft.keep.setdefault(p, "the kernel that fuses it is not compiled yet")


def keep_what_was_read_before(draft: Draft) -> None:
    for p in draft.also:
        draft.keep.setdefault(p, "it was read in an earlier run of this program")


def keep_outputs(draft: Draft) -> None:
    for p in draft.program.outputs:
        draft.keep.setdefault(p, "its value is asked for")


def keep_around_opaque(draft: Draft) -> None:
    """Store the results and the inputs of nodes that are not part of a kernel."""
    keep = draft.keep
    for p, kind in draft.pending():
        op = draft.node(p).op
        if not kind.is_fused:
            keep.setdefault(p, f"{op} works on memory")
            for i in draft.inputs[p]:
                keep.setdefault(i, f"{op} needs it in memory")
        elif kind.is_rename and p in keep:
            # The result is the input's memory under another shape, so it needs no kernel.
            for i in draft.inputs[p][:1]:
                keep.setdefault(i, f"{op} only renames its axes")


def keep_across_batches(draft: Draft) -> None:
    """Store a single tensor that a batch uses: it is computed once, not once per sample."""
    for p, inputs in enumerate(draft.inputs):
        for i in inputs:
            if draft.node(i).batch != draft.node(p).batch:
                draft.keep.setdefault(i, "one tensor serves all samples")


def keep_tables(draft: Draft) -> None:
    """Store inputs that a body reads as tables, at any position."""
    for p, kind in draft.pending():
        for k, i in enumerate(draft.inputs[p]):
            if kind.reads(k) is Reads.TABLE:
                draft.keep.setdefault(i, "it is looked up by position")


def keep_scattered(draft: Draft) -> None:
    """Store values that are read at several positions, unless they are cheap to compute there."""
    for p, kind in draft.pending():
        for k, i in enumerate(draft.inputs[p]):
            op = draft.node(p).op
            if kind.reads(k) is Reads.SCATTERED:
                held = _needs_memory(draft, i, p)
                if held is not None:
                    draft.keep.setdefault(held, f"{op} reads it at several positions")
            elif kind.reads(k) is Reads.ELSEWHERE:
                for held in _not_elsewhere(draft, i, kind.moved_axes(k)):
                    draft.keep.setdefault(held, f"{op} reads it at positions of its own")


def keep_not_computable(draft: Draft) -> None:
    """Store inputs of a core's loops that cannot be computed inside of these loops."""
    for p, kind in draft.pending():
        for k, i in enumerate(draft.inputs[p]):
            if kind.reads(k) is Reads.ONCE:
                for held in _not_computable(draft, i):
                    draft.keep.setdefault(held, f"{draft.node(p).op} reads it in loops of its own")


def _not_computable(draft: Draft, p: int) -> list[int]:
    """The values to store so that `p` can be computed in the loops of a core."""
    found: list[int] = []
    users = draft.program.consumers()
    stack, seen = [p], {p}
    while stack:
        q = stack.pop()
        kind = draft.kind(q)
        if q in draft.keep or kind is None:
            continue
        if not kind.can_loop():
            if kind.stores_its_users and len(users[q]) == 1:
                return [p]  # store it after the operations that follow its only use
            found.append(q)
            continue
        stack += [i for i in draft.inputs[q] if i not in seen]
        seen.update(draft.inputs[q])
    return found


def keep_channels_apart(draft: Draft) -> None:
    """Store a value if a core would loop over its channels and they are computed differently.

    The mean of all elements after `color_twist` of 400×500×3 bytes takes 0.2 ms an image with the
    twisted image in scratch memory, and 2.0 ms with a loop over channels.
    """
    for p, kind in draft.pending():
        for i in draft.inputs[p] if kind.has_core else ():
            channels = static_channels(draft.node(i))
            if channels is None or channels[1] == 1 or draft.node(i).device is not None:
                continue
            if kind.loops_over(channels[0]) and _tells_apart(draft, i, channels[0]):
                op = draft.node(p).op
                draft.keep.setdefault(i, f"{op} loops over channels that are computed differently")


def _tells_apart(draft: Draft, p: int, axis: int) -> bool:
    """Whether `p`, or what it is computed from at the same position, tells elements apart."""
    stack, seen = [p], {p}
    while stack:
        q = stack.pop()
        kind = draft.kind(q)
        if q in draft.keep or kind is None:
            continue
        if kind.tells_apart(axis):
            return True
        rank = draft.node(q).rank
        own = [
            i
            for k, i in enumerate(draft.inputs[q])
            if kind.reads(k) is Reads.OWN and draft.node(i).rank == rank and i not in seen
        ]
        seen.update(own)
        stack += own
    return False


def keep_summaries(draft: Draft) -> None:
    """Store a summary, or a value computed from one, if its user would compute it per element.

    A summary is one number for many elements, such as a sum.
    """
    small: list[bool] = []
    for p, inputs in enumerate(draft.inputs):
        kind = draft.kind(p)
        if kind is None:
            small.append(False)
            continue
        spread = [
            i
            for k, i in enumerate(inputs)
            if kind.reads(k) is not Reads.OWN or draft.node(i).rank != draft.node(p).rank
        ]
        for i in spread:
            if small[i]:
                draft.keep.setdefault(i, "it is one number for many elements")
        small.append(kind.is_summary or any(small[i] for i in inputs if i not in spread))


def _needs_memory(draft: Draft, p: int, reader: int) -> int | None:
    """The value to store so that `reader` can read `p` anywhere; None if nothing must be stored."""
    # Such a reader computes each element once for all positions that read it, row by row.
    once = _on_cpu(draft, reader, "keeps_rows")
    start, left = p, DEAR if once else TAP_COST
    while p not in draft.keep:
        kind = draft.kind(p)
        assert kind is not None
        if _fits_inside(draft, reader, p):
            return None
        again = kind.cost_in_rows() if once else kind.cost_anywhere()
        if again is None:
            return start if kind.stores_its_users else p
        left -= again
        varying = [
            i
            for k, i in enumerate(draft.inputs[p])
            if draft.node(i).rank and kind.reads(k) is not Reads.TABLE
        ]
        pending = [i for i in varying if i not in draft.keep]
        if left < 0 or len(varying) > 1:
            return start
        if not pending:
            return None
        p = pending[0]
    return None


def _not_elsewhere(draft: Draft, p: int, axes: frozenset[int] | None) -> list[int]:
    """The values to store so that `p` can be computed at other positions along `axes`. Each element
    is computed for one reader, so it costs no more there."""
    found: list[int] = []
    stack = [(p, axes)]
    seen = set(stack)
    while stack:
        q, moved = stack.pop()
        kind = draft.kind(q)
        if q in draft.keep or kind is None or moved == frozenset():
            continue
        if kind.cost_moved(moved) is None:
            found.append(p if kind.stores_its_users else q)
            continue
        for k, i in enumerate(draft.inputs[q]):
            if draft.node(i).rank and kind.reads(k) is not Reads.TABLE:
                place = (i, kind.passed_on(k, moved))
                if place not in seen:
                    seen.add(place)
                    stack.append(place)
    return found


def keep_joined_joins(draft: Draft) -> None:
    """Store joined parts that are joined again: each part adds a test to every element."""
    for p, kind in draft.pending():
        for part in draft.inputs[p] if kind.is_join else ():
            inner = draft.inputs[part][0]
            found = draft.kind(inner)
            if found is not None and found.is_join:
                draft.keep.setdefault(inner, "it is one of many joined parts")


def keep_shared(draft: Draft) -> None:
    """Store an expensive value that is needed at several places, so it is computed once.

    A place is a kernel and the moves (views, broadcasts) between its result and the value.
    """
    keep = draft.keep
    users = draft.program.consumers()
    costs = _costs(draft)
    ids: dict[tuple[int, int], int] = {}  # (place of the user, user) → number of the place
    places: list[set[int]] = [set() for _ in users]
    for p in range(len(users) - 1, -1, -1):
        mine = places[p]
        for user in users[p]:
            start = ids.setdefault((-1, user), len(ids))
            ends = (start,) if user in keep else places[user]
            moves = _moves(draft, user, p)
            mine.update(ids.setdefault((e, user), len(ids)) if moves else e for e in ends)
        if p in keep or draft.kind(p) is None or len(mine) <= 1:
            continue
        if costs[p] * (len(mine) - 1) > RECOMPUTE_COST:
            keep[p] = f"needed at {len(mine)} places, dearer to compute again than to store"


def _moves(draft: Draft, user: int, p: int) -> bool:
    """Whether `user` reads its input `p` at other positions than its own."""
    kind = draft.kind(user)
    return kind is None or any(
        kind.reads(k) is not Reads.OWN for k, i in enumerate(draft.inputs[user]) if i == p
    )


def _costs(draft: Draft) -> list[int]:
    """Cost of computing each value from values in memory, capped at DEAR."""
    costs = [0] * len(draft.inputs)
    for p, kind in draft.pending():
        costs[p] = min(kind.cost() + sum(costs[i] for i in draft.inputs[p]), DEAR)
    return costs


def keep_all_but_one_core(draft: Draft) -> None:
    """Store all but the last core where several meet, because a kernel has room for only one.

    A core that takes rows or frames may have one inside that gives them.
    """
    carried: list[int | None] = []  # the core in the kernel that would compute each value
    for p, inputs in enumerate(draft.inputs):
        kind = draft.kind(p)
        own = kind is not None and kind.has_core
        met: dict[int, list[int]] = {}  # core → inputs that carry it
        for i in dict.fromkeys(inputs):
            core = carried[i]
            if core is not None and i not in draft.keep:
                met.setdefault(core, []).append(i)
        stay = [p] if own else list(met)[-1:]
        if not own and len(met) > 1:
            stay += [core for core in met if share_loops(draft, stay[0], core)][:1]
        if own:
            stay += [core for core in met if _fits_inside(draft, p, core)][:1]
        for core, through in met.items():
            if core not in stay:
                held = through[0] if len(through) == 1 else core
                draft.keep[held] = "a kernel computes one resample, filter or reduction"
        carried.append(stay[0] if stay else None)


def share_loops(draft: Draft, p: int, q: int) -> bool:
    """Whether one core may compute two values that need one."""
    kind = draft.kind(p)
    return p != q and kind is not None and kind.shares_loops(draft.node(p), draft.node(q))


def _fits_inside(draft: Draft, p: int, inner: int) -> bool:
    """Whether the core of `inner` may be inside of the core of `p`."""
    return any(
        _on_cpu(draft, p, f"takes_{what}") and _on_cpu(draft, inner, f"gives_{what}")
        for what in ("rows", "frames")
    )


def _on_cpu(draft: Draft, p: int, what: str) -> bool:
    """Whether a value is computed on the CPU by a kind that does `what`; GPUs keep no rows."""
    kind = draft.kind(p)
    return kind is not None and getattr(kind, what) and draft.node(p).device is None


def keep_long_chains(draft: Draft) -> None:
    groups: list[set[int]] = []  # by value: the nodes of a kernel that would compute it
    for p, inputs in enumerate(draft.inputs):
        if draft.kind(p) is None:
            groups.append(set())
            continue
        parts = {i: groups[i] for i in inputs if i not in draft.keep}
        group = set().union({p}, *parts.values())
        while len(group) > MAX_GROUP_NODES:
            largest = max(parts, key=lambda i: len(parts[i]))
            draft.keep[largest] = f"the group has reached {MAX_GROUP_NODES} operations"
            del parts[largest]
            group = set().union({p}, *parts.values())
        groups.append(group)
