"""The index of a video: bytes of a file enter; where its packets are, and its frames, leave.

NOTE [index]. FFmpeg can seek only to about a time. The index makes access to a frame exact: it
lists all packets in the order of decoding, and all frames in the order of display, each with the
packet that holds it and the packet to start decoding from. That is the last key frame before it in
both orders: a frame that precedes a key frame in display order, but follows it in decoding order
(an open group of pictures), needs the key frame before. Nothing is decoded to make an index, unless
the container has no times of display.

Most containers store packets as they are, so that the index can tell where in the file each one is,
and decoding needs no container at all. If a container changes them (MPEG-TS cuts them in pieces),
the index has a copy of the packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from ...kernels.common.memo import made_once
from ..image.limits import check_pixels
from .claims import check_claims
from .library import av_module, opened, reason

# A packet is looked for so many bytes behind the position that the container tells: Matroska tells
# where its block begins, which has a header.
_HEADER_BYTES = 64
# Containers without times of display, or with ones that FFmpeg guesses.
_UNTIMED = ("avi", "h264", "hevc", "m4v", "mjpeg", "obu", "gif")
# Codecs without frames that are decoded in another order than they are displayed.
_IN_ORDER = ("mjpeg", "vp8", "vp9", "av1", "libdav1d", "ffv1", "rawvideo", "png", "gif", "huffyuv")


@dataclass(frozen=True)
class VideoIndex:
    """All that is known about a video without decoding it."""

    codec: str  # FFmpeg's name of the decoder
    tag: str  # the container's name of the codec, which tells decoders about bugs of encoders
    extradata: bytes  # what the decoder needs before the first packet
    pixels: str  # FFmpeg's name of the pixel format; empty if only the frames tell
    width: int
    height: int
    time_base: tuple[int, int]
    rate: tuple[int, int]  # frames per second, on average
    packet_at: Array  # where each packet begins
    packet_size: Array
    frame_packet: Array  # the packet of each frame
    frame_key: Array  # the packet to start from
    frame_time: Array  # in units of the time base
    blob: Array | None = None  # the packets, if the file does not have them in one piece

    @property
    def frames(self) -> int:
        return len(self.frame_packet)

    @property
    def stream(self) -> tuple[str, str, bytes]:
        """What is the same for all videos that an encoder made with the same settings."""
        return self.codec, self.tag, self.extradata

    @made_once
    def packet_frame(self) -> Array:
        """The frame of each packet; -1 if it shows none."""
        found = np.full(len(self.packet_at), -1, np.int64)
        found[self.frame_packet] = np.arange(self.frames)
        return found

    def seconds(self) -> Array:
        """The time of each frame."""
        numerator, denominator = self.time_base
        return self.frame_time * numerator / denominator

    @property
    def fps(self) -> float:
        return self.rate[0] / self.rate[1] if self.rate[1] else 0.0


@dataclass
class _Packets:
    """What a container tells about its packets."""

    at: list[int]
    size: list[int]
    times: list[int | None]  # of display
    keys: list[bool]
    shown: list[bool]
    copies: list[bytes] | None  # the packets, as long as one of them is not found in the file


def build_index(data: Array) -> VideoIndex:
    """Index the first video stream of a file."""
    check_claims(data)
    av = av_module()
    with opened(data) as container:
        if not container.streams.video:
            raise ValueError("the file has no video stream")
        stream = container.streams.video[0]
        context = stream.codec_context
        if context is None:
            raise ValueError("the codec of its video stream is unknown")
        check_pixels(context.name, context.height, context.width)
        if not context.width or not context.height:
            raise ValueError("the size of its pictures is unknown")
        is_untimed = container.format.name in _UNTIMED and context.name not in _IN_ORDER
        try:
            packets = _demuxed(container, stream, data)
        except (av.error.FFmpegError, OverflowError, MemoryError) as error:
            raise ValueError(f"its container is damaged: {reason(error)}") from None
        claimed = stream.frames if "mp4" in container.format.name else 0
        if not packets.at or claimed > len(packets.at):
            raise ValueError(f"the header tells {claimed} frames, the file has {len(packets.at)}")
        facts = _facts(stream, context)
    blob = None
    if packets.copies is not None:
        blob = np.frombuffer(b"".join(packets.copies), np.uint8)
        packets.at = [0, *np.cumsum(packets.size)[:-1].tolist()]
    at, size = np.array(packets.at, np.int64), np.array(packets.size, np.int64)
    order = _order(packets)
    if order is None or is_untimed:
        from .cursor import displayed

        order = displayed(_made(facts, packets, at, size, np.arange(len(at)), blob), data)
    return _made(facts, packets, at, size, order, blob)


def _facts(stream: Any, context: Any) -> dict[str, Any]:
    rate = stream.average_rate or stream.guessed_rate or Fraction(0)
    return {
        "codec": context.name, "tag": context.codec_tag, "extradata": context.extradata or b"",
        "pixels": context.pix_fmt or "", "width": context.width, "height": context.height,
        "time_base": _pair(stream.time_base), "rate": _pair(rate),
    }  # fmt: skip


def _pair(value: Fraction | None) -> tuple[int, int]:
    return (1, 1) if value is None else (value.numerator, value.denominator)


def _demuxed(container: Any, stream: Any, data: Array) -> _Packets:
    found = _Packets([], [], [], [], [], [])
    held: list[bytes] = []
    is_direct = True
    is_vp8 = stream.codec_context.name == "vp8"
    for packet in container.demux(stream):
        if not packet.size:
            continue
        content = memoryview(packet)
        at = _position(packet, content, data) if is_direct else None
        if at is None:
            if is_direct:  # copy those that were found so far
                held = [
                    data[a : a + n].tobytes() for a, n in zip(found.at, found.size, strict=True)
                ]
            is_direct, at = False, 0
            held.append(bytes(content))
        found.at.append(at)
        found.size.append(packet.size)
        found.times.append(packet.pts)
        found.keys.append(packet.is_keyframe)
        # A packet of VP8 says in its first byte whether its picture is shown.
        found.shown.append(not packet.is_discard and not (is_vp8 and not content[0] & 0x10))
    found.copies = None if is_direct else held
    return found


def _position(packet: Any, content: memoryview, data: Array) -> int | None:
    """Where a packet is in the file, byte for byte; None if it is not."""
    begin, size = packet.pos, packet.size
    if begin is None or begin < 0:
        return None
    prefix = bytes(content[:16])
    end = begin + _HEADER_BYTES + len(prefix)
    offset = data[begin:end].tobytes().find(prefix)
    if offset < 0 or begin + offset + size > data.size:
        return None
    at: int = begin + offset
    return at if data[at : at + size].tobytes() == content else None


def _order(packets: _Packets) -> Array | None:
    """The packets whose pictures are shown, in the order of display; None if times do not tell."""
    shown = [k for k, is_shown in enumerate(packets.shown) if is_shown]
    times = [packets.times[k] for k in shown]
    if any(t is None for t in times) or len(set(times)) < len(times):
        return None
    return np.array(shown, np.int64)[np.argsort(np.array(times, np.int64), kind="stable")]


def _made(
    facts: dict[str, Any], packets: _Packets, at: Array, size: Array, order: Array,
    blob: Array | None,
) -> VideoIndex:  # fmt: skip
    """The index of packets that are displayed in this order."""
    keys = np.flatnonzero(packets.keys)
    rank = np.full(len(at), -1, np.int64)
    rank[order] = np.arange(len(order))
    start = _starts(order, rank, keys)
    # Pictures that depend on some before the first key frame cannot be decoded.
    order, start = order[start >= 0], start[start >= 0]
    times = [packets.times[k] for k in order.tolist()]
    if any(t is None for t in times) or len(set(times)) < len(times) or times != sorted(times):
        numerator, denominator = facts["rate"]
        step = Fraction(denominator, numerator or 1) / Fraction(*facts["time_base"])
        times = [round(k * step) for k in range(len(order))]
    return VideoIndex(
        **facts, packet_at=at, packet_size=size, frame_packet=order, frame_key=start,
        frame_time=np.array(times, np.int64), blob=blob,
    )  # fmt: skip


def _starts(order: Array, rank: Array, keys: Array) -> Array:
    """For each frame, the last key packet that precedes it in both orders; -1 if there is none."""
    if not len(keys):
        keys = np.zeros(1, np.int64)
    last = np.searchsorted(keys, order, side="right") - 1
    position = np.arange(len(order))
    while True:
        late = (last >= 0) & (rank[keys[last]] > position)
        if not late.any():
            break
        last[late] -= 1
    found: Array = np.where(last >= 0, keys[last], -1)
    return found
