"""Decodes frames: an index and the bytes of a file enter, pictures of single frames leave.

NOTE [frames]. A decoder gets every packet from a key frame on, tagged with its number, and gives
pictures in the order of display with the tags of their packets. So it is known which frame a
picture is, whatever times the container tells. Pictures that nobody wants and that no other picture
refers to are not decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from .library import av_module, reason
from .video_index import VideoIndex

_EARLIER_STARTS = 2  # more would take long in damaged videos, where frames are missing, too


class Cursor:
    """A decoder at a place of a video. Only one thread at a time may use it."""

    def __init__(self, index: VideoIndex, data: Array) -> None:
        self._make(index, data)
        self._context = self._opened()

    def _make(self, index: VideoIndex, data: Array) -> None:
        self.index, self.data = index, data
        self._next = -1  # the packet to send next; -1 if there is no start yet
        self._last = -1  # the last frame that came out
        self._skipped: set[int] = set()  # packets that were not decoded since the start
        self._ready: dict[int, Any] = {}  # pictures that came out before they were asked for
        self._is_drained = False
        self.wanted: Collection[int] = range(index.frames)  # frames that will be asked for

    def _opened(self) -> Any:
        av, index = av_module(), self.index
        context = av.codec.CodecContext.create(index.codec, "r")
        if index.extradata:
            context.extradata = index.extradata
        if index.tag.strip("\0"):
            context.codec_tag = index.tag
        # Threads of the decoder would add delay; the pool already works on several videos.
        context.thread_count = 1
        context.copy_opaque = True
        return context

    def fits(self, index: VideoIndex) -> bool:
        """Whether the decoder can go on with another video."""
        own = self.index
        return own is index or (own.codec, own.tag, own.extradata, own.width, own.height) == (
            index.codec, index.tag, index.extradata, index.width, index.height)  # fmt: skip

    def go_on(self, index: VideoIndex, data: Array) -> None:
        """Decode another video that `fits`."""
        if self.index is index and self.data is data:
            return
        self._make(index, data)

    def picture(self, frame: int) -> Any:
        """The picture of a frame, in the decoder's pixel format."""
        if not self._follows(frame):
            self._start(int(self.index.frame_key[frame]))
        av = av_module()
        try:
            picture = self._decoded(frame)
            if picture is None:
                picture = self._decoded_from_earlier(frame)
        except (av.error.FFmpegError, OverflowError, MemoryError) as error:
            self._next = -1
            raise ValueError(f"frame {frame} cannot be decoded: {reason(error)}") from None
        except ValueError:
            self._next = -1
            raise
        self._ready = {k: p for k, p in self._ready.items() if k >= frame}
        self._check(picture, frame)
        return picture

    def _decoded(self, frame: int) -> Any:
        """Decode up to a frame; None if it does not come out."""
        while frame not in self._ready:
            if self._is_drained or self._last > frame:
                return None
            self._send(frame)
        return self._ready[frame]

    def _decoded_from_earlier(self, frame: int) -> Any:
        """Decode up to a frame that does not come out from the key frame before it.

        A stream may be refreshed part by part: at its key frames a decoder can begin, but it shows
        nothing before all parts have come, which takes up to the next key frame.
        """
        keys = self.index.frame_key
        for packet in np.unique(keys[keys < self._begin])[: -1 - _EARLIER_STARTS : -1].tolist():
            self._start(packet)
            picture = self._decoded(frame)
            if picture is not None:
                return picture
        raise ValueError(f"frame {frame} is missing in the stream")

    def _follows(self, frame: int) -> bool:
        """Whether decoding can go on to a frame, and a start closer to it does not exist."""
        if frame in self._ready:
            return True
        index = self.index
        return (
            self._next >= 0
            and self._last < frame
            and int(index.frame_key[frame]) <= max(self._next, self._begin)
            and int(index.frame_packet[frame]) not in self._skipped
            and not self._is_drained
        )

    def _start(self, packet: int) -> None:
        if self._context.is_open:
            self._context.flush_buffers()
        self._begin = self._next = packet
        self._last, self._is_drained = -1, False
        self._skipped.clear()
        self._ready.clear()

    def _send(self, frame: int) -> None:
        """Send the next packet, and take the pictures that come out."""
        index, number = self.index, self._next
        if number >= len(index.packet_at):
            self._is_drained = True
            pictures = self._context.decode(None)
        else:
            self._choose(number)
            pictures = self._context.decode(self._packet(number))
            self._next += 1
        for picture in pictures:
            # The VP9 decoder loses the tag of the first picture after a flush, not its time.
            tag = picture.pts if picture.opaque is None else picture.opaque
            shown = -1 if tag is None else int(index.packet_frame[tag])
            if shown >= frame:
                self._ready[shown] = picture
            self._last = max(self._last, shown)

    def _choose(self, number: int) -> None:
        """Leave out a picture that nobody wants, if no other picture refers to it."""
        if self.index.codec == "libdav1d":
            return  # it reads the choice only when it is opened
        is_wanted = int(self.index.packet_frame[number]) in self.wanted
        mode = "DEFAULT" if is_wanted else "NONREF"
        if self._context.skip_frame != mode:
            self._context.skip_frame = mode
        if not is_wanted:
            self._skipped.add(number)

    def _packet(self, number: int) -> Any:
        index = self.index
        memory = self.data if index.blob is None else index.blob
        at, size = int(index.packet_at[number]), int(index.packet_size[number])
        if at + size > memory.size:
            raise ValueError(f"the file ends before packet {number}")
        # Decoders read some bytes beyond a packet. Memory that FFmpeg allocates has zeros there.
        packet = av_module().Packet(size)
        packet.update(memory[at : at + size])
        packet.pts = packet.dts = number
        packet.opaque = number
        return packet

    def _check(self, picture: Any, frame: int) -> None:
        index = self.index
        if picture.is_corrupt:
            raise ValueError(f"frame {frame} is damaged")
        if (picture.width, picture.height) != (index.width, index.height):
            raise ValueError(
                f"frame {frame} has {picture.height}x{picture.width} pixels, the header tells "
                f"{index.height}x{index.width}"
            )


_threads = threading.local()


def cursor(index: VideoIndex, data: Array) -> Cursor:
    """The decoder of this thread, at a place of a video."""
    found: Cursor | None = getattr(_threads, "cursor", None)
    if found is None or not found.fits(index):
        found = _threads.cursor = Cursor(index, data)
    else:
        found.go_on(index, data)
    return found


def displayed(index: VideoIndex, data: Array) -> Array:
    """The packets in the order in which the decoder shows their pictures: decodes all of them."""
    av = av_module()
    one = Cursor(index, data)
    one.wanted = range(len(index.packet_at))
    order: list[int] = []
    try:
        one._start(0)
        while not one._is_drained:
            one._ready.clear()
            one._send(0)
            order += one._ready
    except (av.error.FFmpegError, OverflowError, MemoryError) as error:
        raise ValueError(f"packet {one._next} cannot be decoded: {reason(error)}") from None
    return np.array(order, np.int64)
