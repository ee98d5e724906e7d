"""experimental.median_blur: the median of a window around each pixel."""

from __future__ import annotations

import numpy as np

from ...core.schema import data, geometry, op
from ...fusion.graph import build
from ...fusion.kinds.neighbourhood import MAX_WINDOW
from ...fusion.kinds.ranking import Spans
from .morphology import LAYOUTS, image_axes
from .window_arguments import per_axis, refuse

_IMAGE = "image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')\n"


@op.graph(
    name="experimental.median_blur", layouts=LAYOUTS,
    sample=_IMAGE + "ndd.experimental.median_blur(image, window_size=5).shape\n=(48, 64, 3)",
)  # fmt: skip
def median_blur(
    input=data("Images, or sequences of them."),
    window_size=geometry(
        int, (3, 3), "Width and height of the window, odd, or one number for both.", vector=True
    ),
):  # fmt: skip
    """Replace each pixel by the median of a window, channel by channel.

    Outside, the pixels of the edge are repeated. A nan counts as larger than all numbers.
    """
    size = per_axis("window_size", window_size, 2)
    refuse(size < 1, "`window_size` must be positive, got {}", size)
    refuse(size % 2 == 0, "`window_size` must be odd, got {}", size)
    refuse(size > MAX_WINDOW, f"`window_size` must be at most {MAX_WINDOW}, got {{}}", size)
    too_many = size.prod(axis=1, keepdims=True)
    refuse(too_many >= 1 << 31, "`window_size` must span fewer than 2³¹ pixels, got {}", too_many)
    counts = size[:, None, ::-1].astype(np.int64)
    spans = Spans(counts, counts // 2)
    name = "experimental.median_blur"
    return build.ranking(name, input, image_axes(input), "clamp", "middle", spans)
