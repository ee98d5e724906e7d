"""Scaled decoding: where a resize shrinks a JPEG a lot, its decoder can shrink it first.

The inverse transforms of a JPEG decoder can give 1/2, 1/4 or 1/8 of the pixels per side. That is
several times as fast, but not exact: pixels are means over blocks before they are resampled. It
happens only if the caller asks for it, and leaves at least twice as many pixels as the target has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...codecs.image.scaled import ScaledImages, decode_scaled, factors
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir.taps import NEAREST
from .resize_geometry import Frame

KEPT = 2.0  # times as many pixels per side as the target has, at least


def decoded_smaller(
    x: Node, axes: Sequence[int], f: Frame, kinds: tuple[Array, Array]
) -> tuple[Node, Frame]:
    """A node that decodes less than `x` does, and where to resize it; both as they are if the
    resize does not shrink enough, or takes single pixels.

    Results must not depend on the mode, so this is done even if `x` has been computed already."""
    if tuple(axes) != (0, 1) or any(bool((k == NEAREST).any()) for k in kinds):
        return x, f
    spans = np.abs(f.hi - f.lo) / (KEPT * np.maximum(f.out, 1))
    encoded, images = x.result.scaling
    found = factors(images, spans.min(axis=1))
    if not (found > 1).any():
        return x, f
    rows = x.shapes.rows.copy()
    rows[:, :2] = -(-rows[:, :2] // found[:, None])
    node = build.decode(
        f"{x.op} (scaled)", decode_scaled, encoded, Shapes(rows), x.dtype, "HWC",
        ScaledImages(images, found),
    ).like(source_info=x.source_info)  # fmt: skip
    node.result.site = x.result.site
    part = found[:, None].astype(np.float32)
    return node, Frame(rows[:, :2], f.out, f.lo / part, f.hi / part)
