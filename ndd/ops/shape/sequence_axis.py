"""per_frame: values with one entry for each frame, as arguments of ops on sequences."""

from __future__ import annotations

from ...core.schema import data, op, static
from ...fusion.graph import build

_VIDEO = "video = ndd.zeros(shape=[3, 48, 64, 3], dtype=ndd.uint8, layout='FHWC')\n"
_SIGMA = "sigma = ndd.per_frame(ndd.tensor([0.5, 1.0, 2.0]))\n"


@op.graph(sample=_VIDEO + _SIGMA + "ndd.gaussian_blur(video, sigma=sigma).shape\n=(3, 48, 64, 3)")
def per_frame(
    input=data("Values; the first axis counts frames."),
    replace=static(bool, False, "Whether to rename a first axis that has another name than F."),
):
    """Mark the first axis as frames, so that an op on sequences takes one value for each frame.

    Only the layout changes: its first letter becomes F.
    """
    x = input
    if x.rank == 0:
        raise ValueError("`input` must have at least one dimension, got a scalar")
    layout = x.layout or "F" + "*" * (x.rank - 1)
    if layout[0] != "F" and not replace:
        raise ValueError(
            f"the layout of `input` must begin with F, got {layout!r}; use replace=True to rename "
            "its first axis"
        )
    return build.relabel("per_frame", x, "F" + layout[1:])
