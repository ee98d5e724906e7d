"""Passes that cut the steps into segments and assign slots of scratch memory to values."""

from __future__ import annotations

from .draft import Draft
from .steps import DecodeStep, KernelStep, Regional, Segment, Step


def cut_segments(draft: Draft) -> None:
    """Cut the steps into runs over the same samples: a sample goes through all steps of a segment
    while it is in the caches."""
    for step in draft.steps:
        last = draft.segments[-1].steps[-1] if draft.segments else None
        if last is not None and _may_follow(draft, last, step):
            draft.segments[-1].steps.append(step)
        else:
            draft.segments.append(Segment([step]))


def _may_follow(draft: Draft, last: Step, step: Step) -> bool:
    return (
        step.by_sample
        and last.by_sample
        and step.device == last.device
        and draft.node(step.root).batch == draft.node(last.root).batch
    )


def mark_flat_segments(draft: Draft) -> None:
    """Mark segments that consist of one CPU kernel over all elements of its operands, with one
    result."""
    for segment in draft.segments:
        step = segment.steps[0]
        if len(segment.steps) == 1 and isinstance(step, KernelStep) and step.device is None:
            is_flat = step.recipe.flat and len(step.recipe.stores) == 1
            segment.flat = step if is_flat else None


def find_regions(draft: Draft) -> None:
    """Find decoded values that only kernels read, directly or as copies on another device."""
    readers: dict[int, list[Step]] = {}
    for step in draft.steps:
        for p in step.reads:
            readers.setdefault(p, []).append(step)
    for step in draft.steps:
        kind = draft.kind(step.root)
        if isinstance(step, DecodeStep) and kind is not None and kind.has_regions:
            regional = _regional(draft, step, readers)
            if regional is not None:
                draft.regional.append(regional)


def _regional(draft: Draft, step: Step, readers: dict[int, list[Step]]) -> Regional | None:
    places = [step.root]
    kernels: list[KernelStep] = []
    for p in places:  # the loop appends to it
        if p in draft.outputs:
            return None
        for reader in readers.get(p, ()):
            kind = draft.kind(reader.root)
            if isinstance(reader, KernelStep):
                kernels.append(reader)
            elif kind is not None and kind.is_copy:
                places.append(reader.root)
            else:
                return None
    return Regional(step.root, tuple(places[1:]), tuple(kernels))


def allot_scratch(draft: Draft) -> None:
    """Find the last reader of every value that is not an output, and assign slots of scratch
    memory."""
    segments = draft.segments
    made = {p: s for s, segment in enumerate(segments) for t in segment.steps for p in t.writes}
    inner = made.keys() - set(draft.outputs)
    ends = {p: (s, t) for s, segment in enumerate(segments)
            for t, step in enumerate(segment.steps) for p in step.reads if p in inner}  # fmt: skip
    for s, segment in enumerate(segments):
        segment.last = tuple(p for p, (end, _) in ends.items() if end == s)
        free: list[int] = []
        count = 0
        for t, step in enumerate(segment.steps):
            for p in step.writes:
                if p in ends and ends[p][0] == s and step.by_sample:
                    if not free:
                        free.append(count)
                        count += 1
                    segment.slots[p] = free.pop()
            free += {
                segment.slots[p] for p in step.reads if p in segment.slots and ends[p] == (s, t)
            }
