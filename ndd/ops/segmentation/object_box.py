"""The box of a random object of a label map: segmentation.random_object_bbox."""

from __future__ import annotations

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, allocate, array_at
from ...kernels.ir import dtypes as dt
from ...runtime.context import EvalContext, current_context
from ...runtime.rng import Draw, draw_of, unit, unit_of
from ..geometry.window import on_device
from ..random.crop import RNG_DOC
from .objects import MAX_DIMS, Objects, objects_of

_LABELS = (dt.bool_, dt.uint8, dt.int8, dt.uint16, dt.int16, dt.uint32, dt.int32)
# Draws per sample that are made together: the first decides, the others choose classes.
_AT_ONCE = 4
_NONE = np.empty(0, np.int64)  # no objects


class _ObjectChoice(NamedTuple):
    """What a call chooses by; arrays have one row per sample, or one for all."""

    draw: Draw
    context: EvalContext
    probability: Array
    background: Array
    classes: list[Array] | None
    weights: list[Array] | None
    threshold: Array | None
    k_largest: int | None
    ignores_class: bool
    remembers: bool
    has_ends: bool
    # What was chosen, once it is known: results that are evaluated one by one share it.
    made: list[Storage]


@op.graph(
    name="segmentation.random_object_bbox",
    sample="""labels = ndd.tensor([[0, 1, 1], [0, 0, 1], [2, 0, 0]], dtype=ndd.uint8)
start, shape = ndd.segmentation.random_object_bbox(labels, classes=[1])
[int(v) for v in start], [int(v) for v in shape]
=([0, 1], [2, 2])""",
    outputs=None,
)
def random_object_bbox(
    input=data("Label maps of 1 to 6 dimensions; integers of up to 32 bits."),
    background=geometry(int, None, "Label of what is no object; 0 if omitted, or a label that is "
                        "not in `classes`."),
    cache_objects=static(bool, False, "Remember the objects of label maps, and recognise maps that "
                         "were seen before by a hash of their contents."),
    class_weights=geometry(float, None, "Relative probabilities of `classes`; of the labels from 1 "
                           "on if these are omitted.", ragged=True),
    classes=geometry(int, None, "Labels of objects; all but `background` if omitted.", ragged=True),
    foreground_prob=geometry(float, 1.0, "Probability of choosing an object at all."),
    format=static(("anchor_shape", "start_end", "box"), "anchor_shape", "What is returned: "
                  "anchor_shape (two results), start_end (two results) or box (start and end in "
                  "one result)."),
    ignore_class=static(bool, False, "Choose among all objects, and not a class first."),
    k_largest=static(int, None, "Choose only among this many largest boxes (of the class)."),
    output_class=static(bool, False, "Whether to return also the label, or the background label if "
                        "no object was chosen."),
    threshold=geometry(int, None, "Least extents of the box, one for each axis or one for all.",
                       vector=True),
    rng=static("RNG", None, RNG_DOC),
):  # fmt: skip
    """Choose a random object of a label map, and return the box around it.

    An object is a set of connected elements with the same label; neighbours share a face. First a
    class is chosen, then one of its objects. The result is the whole area if no object is to be
    chosen (see `foreground_prob`), or if there is none that meets the conditions.
    """
    x = input
    if x.dtype not in _LABELS:
        raise TypeError(f"labels must be integers of up to 32 bits, got {x.dtype}")
    if not 1 <= x.rank <= MAX_DIMS:
        raise ValueError(f"label maps must have 1 to {MAX_DIMS} dimensions, got {x.rank}")
    if k_largest is not None and k_largest < 1:
        raise ValueError(f"`k_largest` must be at least 1, got {k_largest}")
    if ignore_class and not (classes is None and class_weights is None and not output_class):
        raise ValueError("`ignore_class` excludes `classes`, `class_weights` and `output_class`")
    if threshold is not None and threshold.shape[1] not in (1, x.rank):
        raise ValueError(
            f"`threshold` must have 1 or {x.rank} values, got {threshold.shape[1]}"
        )  # fmt: skip
    labels, weights, others = _classes(classes, class_weights, background, x.count)
    choice = _ObjectChoice(
        draw_of(rng), current_context(), foreground_prob, others, labels, weights, threshold,
        k_largest, ignore_class, cache_objects, format != "anchor_shape", [],
    )  # fmt: skip
    on_host = x if x.device is None else build.transfer(x, None)
    shapes = Shapes(np.full((x.count, 1), 2 * x.rank + 1, np.int64))
    name = "segmentation.random_object_bbox"
    found = build.host(name, _choose, [on_host], shapes, dt.int32, None, x.batch, choice, None)
    dims = x.rank
    parts = [(0, 2 * dims)] if format == "box" else [(0, dims), (dims, 2 * dims)]
    results = [_columns(name, found, low, high) for low, high in parts]
    if output_class:
        label = _columns(name, found, 2 * dims, 2 * dims + 1)
        results.append(build.drop_axes(name, label, [0], None))
    placed = [on_device(node, x.device) for node in results]
    return placed[0] if len(placed) == 1 else placed


def _columns(name: str, x: Node, low: int, high: int) -> Node:
    start = np.full((x.count, 1), low, np.int64)
    size = np.full((x.count, 1), high - low, np.int64)
    return build.index_axes(
        name, x, start, np.ones_like(start), size, [], [0], [], None, x.batch
    )  # fmt: skip


# -- arguments -----------------------------------------------------------------------------------


def _classes(
    classes: list[Array] | None, weights: list[Array] | None, background: Array | None, count: int
) -> tuple[list[Array] | None, list[Array] | None, Array]:
    """Labels and weights of each sample (or for all), and the background labels."""
    if classes is not None:
        classes = [c.reshape(-1) for c in classes]
    if weights is not None:
        weights = [np.maximum(w.reshape(-1).astype(np.float64), 0.0) for w in weights]
        bad = [w for w in weights if not np.isfinite(w).all()]
        if bad:
            raise ValueError(f"`class_weights` must be finite, got {bad[0].tolist()}")
    if classes is not None and weights is not None:
        for s in range(max(len(classes), len(weights))):
            n, m = len(classes[s % len(classes)]), len(weights[s % len(weights)])
            if n != m:
                raise ValueError(
                    f"`class_weights` must have as many values as `classes`: got {m} and {n} in "
                    f"sample {s}"
                )
    if background is not None:
        if classes is not None:
            _check_background(classes, background)
        elif weights is not None:
            classes = _numbered(weights, background, count)
        return classes, weights, background
    if classes is None:
        if weights is not None:
            classes = [np.arange(1, len(w) + 1) for w in weights]
        return classes, weights, np.zeros(1, np.int64)
    return classes, weights, np.array([_unused(set(c.tolist())) for c in classes], np.int64)


def _check_background(classes: list[Array], background: Array) -> None:
    for s in range(max(len(classes), len(background))):
        label = int(background[s % len(background)])
        if label in classes[s % len(classes)].tolist():
            raise ValueError(f"`classes` contains the background label {label} in sample {s}")


def _numbered(weights: list[Array], background: Array, count: int) -> list[Array]:
    """Consecutive labels for weights, without the background: from 0 on, unless that is it."""
    many = count if len(background) > 1 or len(weights) > 1 else 1
    result = []
    for s in range(many):
        labels = np.arange(len(weights[s % len(weights)]))
        result.append(labels + (labels >= background[s % len(background)]))
    return result


def _unused(classes: set[int]) -> int:
    label = 0
    while label in classes:
        label -= 1
    return label


# -- the choice ----------------------------------------------------------------------------------


def _choose(node: Node, inputs: list[Node], choice: _ObjectChoice) -> Storage:
    """Choose an object of each sample; writes start, end (or shape) and label."""
    if choice.made:
        return choice.made[0]
    x = inputs[0]
    samples = np.arange(x.count)
    words = choice.draw.blocks(np.arange(_AT_ONCE)[None, :], samples[:, None])
    wanted = unit(words[0][:, 0]) < np.broadcast_to(choice.probability, samples.shape)
    background = np.broadcast_to(choice.background, samples.shape)
    found = objects_of(x, wanted, background, choice.context, choice.remembers)
    storage = allocate(node.shapes, 4)
    out = array_at(int(storage.addresses[0]), (x.count, 2 * x.rank + 1), np.dtype(np.int32))
    out[:, : x.rank], out[:, x.rank : -1], out[:, -1] = 0, x.shapes.rows, background
    # Lists: taking single numbers out of arrays takes longer than all the rest of a choice.
    numbers, parts = words[1][:, 0].tolist(), words[2][:, 1:].tolist()
    least = None
    if choice.threshold is not None:
        least = np.broadcast_to(choice.threshold, (x.count, x.rank))
    for s, objects in enumerate(found):
        if objects is None:
            continue
        limits = None if least is None else least[s]
        k = _pick(objects, s, limits, int(background[s]), choice, (numbers[s], parts[s]))
        if k is not None:
            out[s, :-1], out[s, -1] = objects.boxes[k].reshape(-1), objects.labels[k]
    if not choice.has_ends:
        out[:, x.rank : -1] -= out[:, : x.rank]
    choice.made.append(storage)
    return storage


def _pick(
    objects: Objects, s: int, least: Array | None, background: int, choice: _ObjectChoice,
    words: tuple[int, list[int]],
) -> int | None:  # fmt: skip
    """The number of a random object, or None if none meets the conditions.

    The first of the words chooses an object, the others choose classes.
    """
    number, parts = words
    if choice.ignores_class:
        own = np.arange(len(objects.labels))
        if choice.remembers:
            own = np.flatnonzero(objects.labels != background)
        return _pick_one(objects, own, least, choice.k_largest, number)
    if choice.classes is not None:
        classes = choice.classes[s % len(choice.classes)].tolist()
    else:
        classes = [label for label in objects.by_label if label != background]
    weights = [1.0] * len(classes)
    if choice.weights is not None:
        weights = choice.weights[s % len(choice.weights)].tolist()
    for attempt in range(len(classes)):
        ends = list(itertools.accumulate(weights))
        if not ends[-1] > 0:
            return None
        if attempt == len(parts):
            parts.append(int(choice.draw.blocks(attempt + 1, s)[2]))
        part = unit_of(parts[attempt]) * ends[-1]
        c = min(bisect.bisect_right(ends, part), len(ends) - 1)
        own = objects.by_label.get(classes[c], _NONE)
        found = _pick_one(objects, own, least, choice.k_largest, number)
        if found is not None:
            return found
        weights[c] = 0.0
    return None


def _pick_one(
    objects: Objects, own: Array, least: Array | None, k_largest: int | None, number: int
) -> int | None:
    """One of the objects `own` that are large enough, chosen by a random word."""
    if least is not None or k_largest is not None:
        extents = objects.boxes[own, 1] - objects.boxes[own, 0]
        if least is not None:
            is_large = (extents >= least).all(axis=1)
            own, extents = own[is_large], extents[is_large]
        if k_largest is not None and k_largest < len(own):
            volumes = extents.prod(axis=1, dtype=np.int64)
            own = own[np.argsort(-volumes, kind="stable")[:k_largest]]
    if len(own) == 0:
        return None
    return int(own[number * len(own) >> 32])
