"""Pictures of a decoder enter, RGB pixels leave: the conversion of swscale, bit for bit.

NOTE [own conversion] swscale with the flags that give upstream's pixels has no fast code: it takes
longer than decoding H.264. So pictures with 8 bits and colours at half their size, which nearly all
videos have, are converted by a helper of our own (kernels/cpu/native/yuv_rows.py), which computes
the same bits in a quarter of the time, and only the rows that are wanted. PyAV does not tell where
a stream's colours lie between the columns. So the first picture of a stream is converted by
swscale, too, and the place that gives the same pixels is the one; if none does, swscale converts
all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of
from ...kernels.common.memo import Memo, memoized
from ...kernels.cpu.helpers import function
from .library import av_module

# SWS_BILINEAR | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND: colours are interpolated and rounded to the
# nearest. Upstream's pixels have been found to be these, bit for bit.
_EXACT = 0x2 | 0x2000 | 0x40000

# What a frame says of its colours (the numbers of ISO/IEC 23091-2) → how much red and blue
# contribute to its levels. swscale takes BT.601 if nothing is said.
_BT601, _BT709 = (0.299, 0.114), (0.2126, 0.0722)
_SHARES = {0: _BT601, 1: _BT709, 2: _BT601, 4: (0.30, 0.11), 5: _BT601, 6: _BT601,
           7: (0.212, 0.087), 9: (0.2627, 0.0593)}  # fmt: skip
_FULL_RANGE = 2
# Where colours lie → weights of a colour and of its neighbour, at even and at odd columns.
_SITES = {"between columns": (3, 1, 3, 1), "at even columns": (4, 0, 2, 2)}
_ELSEWHERE = ""
_LEAST_HEIGHT = 8
# What is known of streams: where their colours lie. A stream is known by what its decoder needs.
_sites: Memo[Any, str] = Memo("places of colours in videos", 256)


class Converter:
    """Converts pictures to RGB. Only one thread at a time may use it."""

    def __init__(self) -> None:
        self._scaler = av_module().video.reformatter.VideoReformatter()
        self._job = np.zeros(21, np.int64)

    def write(self, picture: Any, out: Array, stream: Any, top: int = 0) -> None:
        """Write rows of a picture, from `top` on, as RGB into memory [rows, W, 3]."""
        factors = _factors_of(picture)
        if factors is None or out.strides[1:] != (3, 1):
            out[...] = self._scaled(picture)[top : top + len(out)]
            return
        site = _sites.get(stream)
        if site is None:
            out[...] = self._compared(picture, factors, stream)[top : top + len(out)]
        elif site == _ELSEWHERE:
            out[...] = self._scaled(picture)[top : top + len(out)]
        else:
            self._convert(picture, out, factors, site, top)

    def _compared(self, picture: Any, factors: tuple[int, ...], stream: Any) -> Array:
        """A picture as swscale converts it; learns where the colours of the stream lie."""
        want = self._scaled(picture)
        own = np.empty(want.shape, np.uint8)
        same: list[str] = []
        for site in _SITES:
            self._convert(picture, own, factors, site, 0)
            if np.array_equal(own, want):
                same.append(site)
        if len(same) < len(_SITES):  # a picture without colours fits all of them
            _sites[stream] = same[0] if same else _ELSEWHERE
        return want

    def _convert(
        self, picture: Any, out: Array, factors: tuple[int, ...], site: str, top: int
    ) -> None:
        """Convert rows by our own helper."""
        job, planes = self._job, picture.planes
        for k, plane in enumerate(planes):
            job[2 * k : 2 * k + 2] = plane.buffer_ptr, plane.line_size
        job[6:10] = out.ctypes.data, out.strides[0], picture.width, picture.height
        job[10:17] = factors
        job[17:21] = _SITES[site]
        function("yuv420_rows")(address_of(job), top, len(out))

    def _scaled(self, picture: Any) -> Array:
        """The whole picture, converted by swscale."""
        av = av_module()
        try:
            # One thread: our pool has threads already, and swscale's own would hang every forked
            # child that frees the scaler of a thread that it does not have.
            made = self._scaler.reformat(picture, format="rgb24", interpolation=_EXACT, threads=1)
        except (av.error.FFmpegError, ValueError) as error:
            raise ValueError(f"its pixels cannot be converted to RGB: {error}") from None
        plane = made.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        pixels: Array = rows[: made.height, : 3 * made.width]
        return pixels.reshape(made.height, made.width, 3)


def _factors_of(picture: Any) -> tuple[int, ...] | None:
    """The numbers by which the helper converts a picture; None if swscale must do it."""
    kind = picture.format.name
    is_known = kind in ("yuv420p", "yuvj420p") and int(picture.colorspace) in _SHARES
    # For odd sizes and very low pictures swscale has other weights; interlaced ones have two of
    # each colour.
    is_even = not (picture.width % 2 or picture.height % 2) and picture.height >= _LEAST_HEIGHT
    if not is_known or not is_even or picture.interlaced_frame:
        return None
    is_full = kind == "yuvj420p" or int(picture.color_range) == _FULL_RANGE
    return _factors(*_SHARES[int(picture.colorspace)], is_full)


@memoized(16)
def _factors(red: float, blue: float, is_full: bool) -> tuple[int, ...]:
    """16 times the level of black; factors of the level, of V for red and green, of U for green and
    blue, with 13 bits behind the point, rounded as swscale rounds them; and 16 for the helper."""
    green = 1 - red - blue
    exact = (2 * (1 - red), -2 * (1 - red) * red / green, -2 * (1 - blue) * blue / green,
             2 * (1 - blue))  # fmt: skip
    wide = [round(x * (1 << 16) * 255 / 224) for x in exact]
    if is_full:
        level, black = 1 << 16, 0
        wide = [int(x * 224 / 255) for x in wide]
    else:
        level, black = (1 << 16) * 255 // 219, 16 * 16
    return (black, *((x + 4) >> 3 for x in (level, *wide)), 16)
