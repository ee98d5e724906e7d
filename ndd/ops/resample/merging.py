"""Merge two resamples into one: an option that trades exactness for sampling only once.

    with ndd.fusion_options(merge_resamples=True):
        x = ndd.rotate(ndd.resize(x, size=[224, 224]), angle=10)   # samples x once

Each is an affine map from its result to its input, so both together are one such map. The filter,
the rounding and the border of the first resample are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...runtime.context import merging, scales_decoding, set_merging, set_scaled_decoding
from .resize_geometry import Frame


@contextmanager
def fusion_options(*, merge_resamples: bool = False, scaled_decode: bool = False) -> Iterator[None]:
    """Allow fusion to change bits of the results, for the calls in a `with` block.

    `merge_resamples`: a resize, rotate or warp_affine of the result of another one samples only
    once, from the input of the first; `explain` shows such calls as `resize+rotate`.

    `scaled_decode`: where a resize shrinks a JPEG by more than 4, the decoder decodes only 1/2, 1/4
    or 1/8 of its pixels per side, never less than twice the target; `explain` shows `decoders.image
    (scaled)`. The argument of the same name does this for one decoder.

    As a decorator the options apply to the calls of one function.

    >>> import ndd
    >>> image = ndd.zeros(shape=[40, 60, 3], dtype=ndd.uint8, layout="HWC")
    >>> with ndd.fusion_options(merge_resamples=True):
    ...     turned = ndd.rotate(ndd.resize(image, size=[20, 30]), angle=90.0)
    >>> turned.shape
    (30, 20, 3)
    >>> ndd.fusion_options(merge_resamples=True)(ndd.resize)(image, size=[4, 6]).shape
    (4, 6, 3)
    """
    before = merging(), scales_decoding()
    set_merging(merge_resamples)
    set_scaled_decoding(scaled_decode)
    try:
        yield
    finally:
        set_merging(before[0])
        set_scaled_decoding(before[1])


class Sampling(NamedTuple):
    """How a resampled value follows from its input, kept for a call that may merge with it."""

    source: Node
    op: str
    axes: tuple[int, ...]
    frame: Frame | None  # None unless it only resizes
    matrices: Array  # float64 [samples or 1, n, n + 1]: from the result to the input, (x, y, z)


def remember(node: Node, source: Node, op: str, axes: tuple[int, ...],
             frame: Frame | None, matrices: Array | None = None) -> None:  # fmt: skip
    """Record on a new node how it was sampled, if a later call may merge with it."""
    external = source.storage is not None and source.storage.external
    if not merging() or external:  # external memory may change before the merge
        return
    if matrices is None:
        assert frame is not None
        matrices = frame_matrices(frame)
    node.result.sampling = Sampling(source, op, axes, frame, matrices)


def merged_with(x: Node, axes: tuple[int, ...]) -> Sampling | None:
    """The resample that made `x`, if a call along `axes` may merge with it."""
    if not merging() or x.result.sampling is None or x.result.sampling.axes != axes:
        return None
    found: Sampling = x.result.sampling
    return found


def frame_matrices(f: Frame) -> Array:
    """A resize as matrices; a frame has its axes as (z, y, x), a matrix as (x, y, z)."""
    scale = ((f.hi.astype(np.float64) - f.lo) / np.maximum(f.out, 1))[:, ::-1]
    n = scale.shape[1]
    matrices = np.zeros((len(scale), n, n + 1))
    matrices[:, range(n), range(n)] = scale
    matrices[:, :, n] = f.lo[:, ::-1]
    return matrices


def framed(first: Frame, second: Frame) -> Frame:
    """The frame of one resize that replaces two."""
    scale = (first.hi.astype(np.float64) - first.lo) / np.maximum(first.out, 1)
    lo, hi = (first.lo + scale * edge for edge in (second.lo, second.hi))
    return Frame(first.extents, second.out, lo.astype(np.float32), hi.astype(np.float32))


def composed(first: Array, second: Array) -> Array:
    """One matrix [..., n, n + 1] for two warps: `first` of the input, then `second` of the result.

    Matrices map outputs to inputs, so a position of the last output goes through `second` first:
    A (B p + b) + a = (A B) p + (A b + a).
    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    offset = a[..., :, :-1] @ b[..., :, -1:] + a[..., :, -1:]
    return np.concatenate([a[..., :, :-1] @ b[..., :, :-1], offset], axis=-1)
