"""Pictures of a decoder enter, RGB pixels leave: the conversion of swscale, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from .library import av_module

# SWS_BILINEAR | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND: colours are interpolated and rounded to the
# nearest. Upstream's pixels have been found to be these, bit for bit.
_EXACT = 0x2 | 0x2000 | 0x40000


class Converter:
    """Converts pictures to RGB. Only one thread at a time may use it."""

    def __init__(self) -> None:
        self._scaler = av_module().video.reformatter.VideoReformatter()

    def write(self, picture: Any, out: Array) -> None:
        """Write a picture as RGB into memory [H, W, 3]."""
        av = av_module()
        try:
            # One thread: our pool has threads already, and swscale's own would hang every forked
            # child that frees the scaler of a thread that it does not have.
            made = self._scaler.reformat(picture, format="rgb24", interpolation=_EXACT, threads=1)
        except (av.error.FFmpegError, ValueError) as error:
            raise ValueError(f"its pixels cannot be converted to RGB: {error}") from None
        plane = made.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        height, width, _ = out.shape
        out[...] = rows[:height, : 3 * width].reshape(height, width, 3)
