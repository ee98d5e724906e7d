"""A random element of a mask: segmentation.random_mask_pixel."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, allocate, array_at, as_array
from ...kernels.ir import dtypes as dt
from ...runtime.context import EvalContext, current_context
from ...runtime.rng import Draw, draw_of
from ..geometry.window import on_device
from ..random.crop import RNG_DOC

_SHORT = 4096  # elements among which the chosen one is searched directly


class _PixelChoice(NamedTuple):
    draw: Draw
    context: EvalContext
    foreground: Array
    threshold: Array
    value: Array | None


@op.graph(
    name="segmentation.random_mask_pixel",
    sample="""mask = ndd.tensor([[0, 0, 1], [0, 0, 0]], dtype=ndd.uint8)
[int(v) for v in ndd.segmentation.random_mask_pixel(mask, foreground=1)]
=[0, 2]""",
    rejects="bfloat16",
)
def random_mask_pixel(
    input=data("Masks of any number of dimensions."),
    foreground=geometry(int, 0, "Whether to choose among the foreground only (not 0), or among all "
                        "elements."),
    threshold=geometry(float, None, "Elements above it are foreground; 0 if omitted."),
    value=geometry(int, None, "Elements equal to it are foreground, instead of `threshold`."),
    rng=static("RNG", None, RNG_DOC),
):  # fmt: skip
    """Choose a random element of a mask, and return its position.

    All elements are equally likely, or all of the foreground. If there is no foreground, the
    position is that of any element.
    """
    x = input
    if threshold is not None and value is not None:
        raise ValueError("`threshold` and `value` exclude each other")
    if x.rank == 0:
        raise ValueError("masks must have at least 1 dimension, got a number")
    empty = np.flatnonzero(x.shapes.volumes == 0)
    if len(empty):
        s = int(empty[0])
        raise ValueError(f"masks must not be empty, got shape {x.shapes.tuples[s]} in sample {s}")
    limit = np.zeros(1, np.float32) if threshold is None else threshold
    choice = _PixelChoice(draw_of(rng), current_context(), foreground, limit, value)
    on_host = x if x.device is None else build.transfer(x, None)
    shapes = Shapes(np.full((x.count, 1), x.rank, np.int64))
    found = build.host(
        "segmentation.random_mask_pixel", _choose, [on_host], shapes, dt.int64, None, x.batch,
        choice, None,
    )  # fmt: skip
    return on_device(found, x.device)


def _choose(node: Node, inputs: list[Node], choice: _PixelChoice) -> Storage:
    x = inputs[0]
    words = choice.draw.blocks(0, np.arange(x.count))
    # 64 random bits: masks may have more than 2³² elements
    numbers = [int(a) << 32 | int(b) for a, b in zip(words[0], words[1], strict=True)]
    foreground = np.broadcast_to(choice.foreground, (x.count,)).tolist()
    thresholds = np.broadcast_to(choice.threshold, (x.count,)).tolist()
    values = None if choice.value is None else np.broadcast_to(choice.value, (x.count,)).tolist()
    places = [n * v >> 64 for n, v in zip(numbers, x.shapes.volumes.tolist(), strict=True)]
    chosen = [s for s in range(x.count) if foreground[s]]

    def search(chunk: int, worker: int) -> None:
        s = chosen[chunk]
        mask = as_array(x.stored, x, s)
        hits = _above(mask, thresholds[s]) if values is None else mask == values[s]
        hits = hits.reshape(-1)
        count = int(np.count_nonzero(hits))
        if count:
            places[s] = _nth(hits, numbers[s] * count >> 64)

    choice.context.thread_pool.parallel_for(len(chosen), search)
    storage = allocate(node.shapes, 8)
    out = array_at(int(storage.addresses[0]), (x.count, x.rank), np.dtype(np.int64))
    rest = np.array(places, np.int64)
    for axis in reversed(range(x.rank)):
        extent = x.shapes.rows[:, axis]
        out[:, axis], rest = rest % extent, rest // extent
    return storage


def _above(mask: Array, threshold: float) -> Array:
    if mask.dtype.kind == "b":
        mask = mask.view(np.uint8)
    if mask.dtype.kind == "f" or not math.isfinite(threshold):
        return mask > threshold
    # An integer exceeds a number if it exceeds the integer below. Comparing integers is exact, and
    # many times as fast as converting them.
    return mask > math.floor(threshold)


def _nth(hits: Array, n: int) -> int:
    """The place of hit n, found by counting halves."""
    low, high = 0, len(hits)
    while high - low > _SHORT:
        middle = (low + high) // 2
        before = int(np.count_nonzero(hits[low:middle]))
        if n < before:
            high = middle
        else:
            low, n = middle, n - before
    return low + int(np.flatnonzero(hits[low:high])[n])
