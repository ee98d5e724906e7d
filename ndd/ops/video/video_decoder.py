"""decoders.video: video files in memory → sequences of frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...codecs.on_error import check_policy
from ...codecs.video import decoded_videos as codec
from ...codecs.video import nvdec
from ...codecs.video.decoded_videos import Clip, Videos
from ...codecs.video.index_cache import index_of_bytes, no_video
from ...codecs.video.selection import PAD_MODES, listed, ranged
from ...core import convert
from ...core.errors import user_site
from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.gpu.env import simulating
from ...kernels.ir import dtypes as dt
from ...loop.calls import this_thread
from ..images.image_decoders import encoded, errors, sources_of

_CLIP = """import av, io, numpy
file = io.BytesIO()
with av.open(file, "w", format="avi") as container:
    stream = container.add_stream("mjpeg", rate=25, width=32, height=16, pix_fmt="yuvj420p")
    for level in (0, 100, 200):
        frame = av.VideoFrame.from_ndarray(numpy.full((16, 32, 3), level, numpy.uint8), "rgb24")
        container.mux(stream.encode(frame))
    container.mux(stream.encode())
"""
_EXCLUDES = "Excludes `frames`."


@op.graph(
    name="decoders.video", mixed=True,
    sample=_CLIP + "video = ndd.decoders.video(ndd.tensor(list(file.getvalue()), dtype=ndd.uint8), "
    "frames=[2, 0])\nvideo.shape, video.layout, (video[:, 0, 0, 0] > 100).torch().tolist()\n"
    "=((2, 16, 32, 3), 'FHWC', [True, False])",
)  # fmt: skip
def video(
    encoded=data("Encoded videos: the bytes of files.", files=True),
    affine=static(bool, True, "Whether threads are bound to cores; without effect."),
    build_index=static(bool, True, "Accepted for compatibility; there is always an index."),
    end_frame=geometry(int, None, f"The frame to end before. {_EXCLUDES}"),
    fill_value=static("ints", (0,), "Colour of frames that are padded with a constant."),
    frames=geometry(
        int, None, "Numbers of the frames, in any order.", vector=True, uneven=True,
    ),
    on_error=static(
        "Policy", "raise",
        "What to do with a video that cannot be decoded: 'raise' an error, or 'fill' it, with "
        "black frames or with no frame at all. `ndd.decoders.errors` records failures.",
    ),
    pad_mode=static(
        tuple(PAD_MODES), "constant",
        "What to use for frames behind the end: 'none' makes the sequence shorter, 'constant' uses "
        "`fill_value`, 'edge' the last frame; 'reflect_1001' and 'reflect_101' turn back, with "
        "and without the last frame once more.",
    ),
    sequence_length=geometry(int, None, "Number of frames. Excludes `end_frame` and `frames`."),
    start_frame=geometry(int, None, f"The first frame, 0 by default. {_EXCLUDES}"),
    stride=geometry(int, None, f"Distance between frames, 1 by default. {_EXCLUDES}"),
    *,
    ordinal,
):  # fmt: skip
    """Decode videos: H.264, HEVC, VP8, VP9, AV1, MPEG-4, MJPEG and others, in MP4, MKV, WebM, AVI.

    Results have the layout FHWC. Frame counts and sizes are known from the container, and only
    frames that are used are decoded: slices and strides that follow leave out the others.
    """
    name = "decoders.video"
    if on_error not in ("raise", "fill"):
        check_policy(on_error, name)
        raise ValueError(f"{name}: `on_error` must be 'raise' or 'fill', got {on_error!r}")
    ranges = {"end_frame": end_frame, "sequence_length": sequence_length,
              "start_frame": start_frame, "stride": stride}  # fmt: skip
    _check_exclusive(frames, ranges)
    calls = _Calls(name, encoded, on_error == "raise")

    def choose(s: int, count: int) -> Array:
        if frames is not None:
            return listed(frames[s if len(frames) > 1 else 0], count, pad_mode)
        start, end, step, length = (
            _number(ranges[k], s) for k in ("start_frame", "end_frame", "stride", "sequence_length")
        )
        return ranged(count, start or 0, end, 1 if step is None else step, length, pad_mode)

    clips = [calls.clip(s, choose) for s in range(encoded.count)]
    node = decoded(name, encoded, Videos(clips, colour(fill_value), calls.failed), ordinal)
    return node.like(source_info=encoded.source_info)


def decoded(name: str, x: Node, videos: Videos, ordinal: int | None = None) -> Node:
    """The node of decoded videos."""
    shapes = Shapes.of([(len(c.frames), c.video.height, c.video.width, 3) for c in videos.clips], 4)
    if ordinal is not None and not simulating() and nvdec.suits(videos):
        node = nvdec.on_gpu(name, x, videos, shapes, ordinal)
        node.result.site = user_site()
        return node
    node = build.decode(
        name, codec.decode_sample, x, shapes, dt.uint8, "FHWC", videos, has_regions=True,
        has_frames=True,
    )  # fmt: skip
    node.result.site = user_site()
    return node if ordinal is None else build.transfer(node, ordinal)


def colour(given: Sequence[int]) -> tuple[int, ...]:
    """A fill value for three channels."""
    values = tuple(given)
    if len(values) not in (1, 3) or not all(0 <= v <= 255 for v in values):
        raise ValueError(f"`fill_value` must be 1 or 3 numbers from 0 to 255, got {list(values)}")
    return values if len(values) == 3 else values * 3


def _check_exclusive(frames: Any, ranges: dict[str, Any]) -> None:
    given = [name for name, value in ranges.items() if value is not None]
    if frames is not None and given:
        raise ValueError(f"`frames` and `{given[0]}` exclude each other")
    if ranges["end_frame"] is not None and ranges["sequence_length"] is not None:
        raise ValueError("`end_frame` and `sequence_length` exclude each other")


def _number(values: Any, s: int) -> int | None:
    if values is None:
        return None
    flat = np.ravel(values)
    return int(flat[s if len(flat) > 1 else 0])


class _Calls:
    """One call of the decoder: reads indexes when constructed, frames when evaluated."""

    def __init__(self, name: str, x: Node, is_strict: bool) -> None:
        self.name, self.is_strict = name, is_strict
        self.sources = sources_of(x)
        self.ahead = this_thread.failures  # set if the call is made in advance
        self.x = encoded(x)
        self.data: list[Array] = convert.arrays_of(self.x)

    def clip(self, s: int, choose: Callable[[int, int], Array]) -> Clip:
        content = self.data[s]
        try:
            index = index_of_bytes(content)
        except ValueError as error:
            self.failed(s, error)
            return Clip(no_video(), lambda: content, np.zeros(0, np.int64))
        try:
            chosen = choose(s, index.frames)
        except ValueError as error:
            source = f" ({self.sources[s]})" if self.sources[s] else ""
            raise ValueError(f"{error}, sample {s}{source}") from None
        return Clip(index, lambda: content, chosen)

    def failed(self, s: int, error: ValueError) -> None:
        source = f" ({self.sources[s]})" if self.sources[s] else ""
        problem = ValueError(f"sample {s}{source}: {error}")
        if self.is_strict:
            raise problem from None
        place = self.sources[s], s
        if self.ahead is None:
            errors.add(*place, problem)
        else:
            self.ahead.add(errors, *place, problem)
