"""jpeg_compression_distortion: what is left of images after JPEG compression."""

from __future__ import annotations

import numpy as np

from ...codecs.image.jpeg_round_trip import MAX_EXTENT, round_trip
from ...core.errors import user_site
from ...core.schema import data, geometry, op
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...kernels.ir import dtypes as dt

_IMAGE = "image = ndd.ones(shape=[40, 60, 3], dtype=ndd.uint8, layout='HWC')\n"


@op.graph(
    layouts="HWC FHWC",
    needs_channels=3,
    mixed=True,
    sample=_IMAGE + "ndd.jpeg_compression_distortion(image, quality=10).shape\n=(40, 60, 3)",
)
def jpeg_compression_distortion(
    input=data("RGB images or sequences of uint8."),
    quality=geometry(int, 50, "Quality from 1 (worst) to 100; others are clamped to this range."),
    *,
    ordinal,
):
    """Compress images to JPEG, with halved chroma resolution, and decode them again.

    The codec runs on the CPU; images on a GPU are copied there and back.
    """
    x = input
    if x.dtype is not dt.uint8:
        raise TypeError(f"`input` must be of uint8, got {x.dtype}")
    _check_extents(x)
    if x.device is not None:
        x = build.transfer(x, None)
    qualities = np.broadcast_to(np.clip(quality, 1, 100), x.count).tolist()
    node = build.mapped(
        "jpeg_compression_distortion", _distort, x, x.shapes, dt.uint8, x.layout, qualities
    )
    node.result.site = user_site()
    return node if ordinal is None else build.transfer(node, ordinal)


def _check_extents(x: Node) -> None:
    sizes = x.shapes.rows[:, -3:-1]
    bad = np.flatnonzero((sizes > MAX_EXTENT).any(axis=1))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"sample {s} of shape {x.shapes.tuples[s]} is too large for JPEG: height and width may "
            f"be {MAX_EXTENT} at most"
        )


def _distort(qualities: list[int], sample: int, x: Array, out: Array) -> None:
    for pixels, result in zip(_frames(x), _frames(out), strict=True):
        try:
            round_trip(pixels, qualities[sample], result)
        except ValueError as error:
            raise ValueError(f"sample {sample}: {error}") from None


def _frames(x: Array) -> list[Array]:
    return [x] if x.ndim == 3 else list(x)
