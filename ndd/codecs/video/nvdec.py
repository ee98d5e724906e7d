"""The video decoder of NVIDIA GPUs: packets enter, RGB frames in device memory leave.

PyNvVideoCodec drives it, on the stream of the context. Packets come from our index, as for the CPU,
and each picture is known by the number of its packet. This has never run, because there was no GPU
(docs/gpu.md); the tests put another decoder in place. RGB comes from NVIDIA's kernel, so pixels may
differ from those of the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, allocate
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from .decoded_videos import Clip, Videos
from .elementary import Elementary
from .selection import FILL
from .video_index import VideoIndex

# FFmpeg's name of a decoder → PyNvVideoCodec's name of the codec.
_CODECS = {"h264": "H264", "hevc": "HEVC", "vp8": "VP8", "vp9": "VP9", "av1": "AV1",
           "libdav1d": "AV1", "mpeg4": "MPEG4"}  # fmt: skip
_PIXELS = ("yuv420p",)  # of 8 bits; NVDEC's other formats differ from GPU to GPU

# (address in device memory, address in either memory, bytes)
Copies = list[tuple[int, int, int]]


@memoized(1)
def library() -> Any:
    """PyNvVideoCodec; None if it is not installed or does not load, with a warning that says so."""
    try:
        return import_module("PyNvVideoCodec")
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(
            f"videos are decoded on the CPU and copied to the GPU, because NVDEC needs the package "
            f"PyNvVideoCodec, which cannot be imported: {reason}", stacklevel=2,
        )  # fmt: skip
        return None


def suits(videos: Videos) -> bool:
    """Whether NVDEC can decode all videos of a batch."""
    known = all(c.video.codec in _CODECS and c.video.pixels in _PIXELS for c in videos.clips)
    return known and library() is not None


def on_gpu(op: str, x: Node, videos: Videos, shapes: Shapes, ordinal: int) -> Node:
    """A node of videos that NVDEC decodes into device memory, on the context's stream."""
    from ...runtime.context import current_context

    params = (videos, current_context())
    return build.host(op, _decode, [x], shapes, dt.uint8, "FHWC", x.batch, params, ordinal)


def _decode(node: Node, _inputs: list[Node], params: Any) -> Storage:
    from ...runtime.gpu_runtimes import runtime_of

    videos, context = params
    gpu = runtime_of(context, node.device)
    made = allocate(node.shapes, 1, gpu.take)
    for s, address in enumerate(made.addresses.tolist()):
        clip = videos.clips[s]
        size = 3 * clip.video.width * clip.video.height
        targets: dict[int, list[int]] = {}
        for k, number in enumerate(clip.frames.tolist()):
            targets.setdefault(number, []).append(address + k * size)
        _fill(gpu, targets.pop(FILL, []), np.resize(np.uint8(videos.fill), size))
        try:
            session = Session(clip, node.device, gpu.stream.handle)
            for number, frame in session.frames(sorted(targets)):
                copies = _copies(frame, clip.video, targets.pop(number))
                gpu.move(copies, [frame, made.owner])
            if targets:
                raise ValueError(f"frame {min(targets)} is missing in the stream")
        except ValueError as error:
            for left in targets.values():
                _fill(gpu, left, np.zeros(size, np.uint8))
            videos.failed(s, error)
        # The decoder must stay until its frames are copied.
        gpu.synchronize()
    return made


def _fill(gpu: Any, targets: list[int], frame: Array) -> None:
    gpu.move([(to, frame.ctypes.data, frame.nbytes) for to in targets], [frame])


def _copies(frame: Any, video: VideoIndex, targets: list[int]) -> Copies:
    """The copies of a decoded frame to its places: as a whole, or row by row."""
    view = frame.cuda()[0].__cuda_array_interface__
    height, width = video.height, video.width
    if tuple(view["shape"]) != (height, width, 3):
        raise ValueError(f"a frame has the shape {tuple(view['shape'])}, the header tells "
                         f"{height}x{width}")  # fmt: skip
    source, row = view["data"][0], 3 * width
    pitch = row if view.get("strides") is None else view["strides"][0]
    if pitch == row:
        return [(to, source, height * row) for to in targets]
    return [(to + y * row, source + y * pitch, row) for to in targets for y in range(height)]


class Session:
    """A decoder for one video."""

    def __init__(self, clip: Clip, ordinal: int, stream: int) -> None:
        lib, self._index = library(), clip.video
        self._data = clip.data() if clip.video.blob is None else clip.video.blob
        self._elementary = Elementary(clip.video)
        self._lib = lib
        self._decoder = lib.CreateDecoder(
            gpuid=ordinal, codec=getattr(lib.cudaVideoCodec, _CODECS[clip.video.codec]),
            cudacontext=0, cudastream=stream, usedevicememory=True,
            outputColorType=lib.OutputColorType.RGB,
        )  # fmt: skip

    def frames(self, wanted: list[int]) -> Iterator[tuple[int, Any]]:
        """Frames by their numbers, which are sorted; each must be copied before the next."""
        left = set(wanted)
        for begin, end in self._spans(wanted):
            for number in range(begin, end):
                yield from self._sent(self._packet(number, number == begin), number, left)
            yield from self._sent(b"", 0, left)  # the end of a stream: gives what was held back

    def _spans(self, wanted: list[int]) -> list[tuple[int, int]]:
        """Packets [begin, end) that the frames need, each span beginning with a key frame."""
        spans: list[tuple[int, int]] = []
        for frame in wanted:
            begin, end = int(self._index.frame_key[frame]), int(self._index.frame_packet[frame]) + 1
            if spans and begin <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], end)
            else:
                spans.append((begin, end))
        return spans

    def _packet(self, number: int, is_first: bool) -> bytes:
        at, size = int(self._index.packet_at[number]), int(self._index.packet_size[number])
        if at + size > self._data.size:
            raise ValueError(f"the file ends before packet {number}")
        content = self._elementary.packet(self._data[at : at + size].tobytes())
        return self._elementary.parameters + content if is_first else content

    def _sent(self, content: bytes, number: int, left: set[int]) -> Iterator[tuple[int, Any]]:
        """Send a packet; the wanted ones among the frames that come out."""
        packet = self._lib.PacketData()
        memory = np.frombuffer(content, np.uint8)
        packet.bsl, packet.bsl_data = memory.size, memory.ctypes.data if memory.size else 0
        packet.pts = packet.dts = number
        try:
            found = self._decoder.Decode(packet)
        except self._lib.PyNvVCException as error:
            raise ValueError(f"packet {number} cannot be decoded: {error}") from None
        for frame in found:
            shown = int(self._index.packet_frame[frame.getPTS()])
            if shown in left:
                left.remove(shown)
                yield shown, frame
