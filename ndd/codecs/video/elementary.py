"""Packets of a container → the elementary stream that hardware decoders take.

MP4 and Matroska keep the parameters of a stream beside its packets, and store H.264 and HEVC with
the length of each unit before it. A hardware decoder wants the parameters first, and a start code
before each unit, as MPEG-TS has them.
"""

from __future__ import annotations

from .video_index import VideoIndex

_START = b"\0\0\0\1"
_LENGTHS = {"h264": 4, "hevc": 21}  # where the extra data tells how many bytes a length has
_AV1_HEADER = 4  # bytes of the extra data before the sequence header


class Elementary:
    """Makes the packets of one video what a hardware decoder expects."""

    def __init__(self, index: VideoIndex) -> None:
        extra, codec = index.extradata, index.codec
        self._length = 0  # bytes of the length before each unit; 0 if there are start codes
        self.parameters = extra if codec == "mpeg4" else b""  # to send before the first packet
        if codec in ("av1", "libdav1d"):
            self.parameters = extra[_AV1_HEADER:]
        if codec in _LENGTHS and extra[:1] == b"\1":
            if len(extra) <= _LENGTHS[codec]:
                raise ValueError("the parameters of its stream are cut off")
            self._length = (extra[_LENGTHS[codec]] & 3) + 1
            self.parameters = _units_of_h264(extra) if codec == "h264" else _units_of_hevc(extra)
        elif codec in _LENGTHS:
            self.parameters = extra

    def packet(self, content: bytes) -> bytes:
        """A packet with start codes."""
        if not self._length:
            return content
        found, at = bytearray(), 0
        while at < len(content):
            begin = at + self._length
            at = begin + int.from_bytes(content[at:begin], "big")
            if at > len(content):
                raise ValueError("a unit is longer than its packet")
            found += _START + content[begin:at]
        return bytes(found)


def _units_of_h264(extra: bytes) -> bytes:
    """The parameter sets of `avcC`: those of the sequence, then those of pictures."""
    found, at = b"", 5
    for mask in (31, 255):
        part, at = _units(extra, at + 1, extra[at] & mask if at < len(extra) else 0)
        found += part
    return found


def _units_of_hevc(extra: bytes) -> bytes:
    """The parameter sets of `hvcC`, which has an array of each kind."""
    found, at = b"", 23
    for _ in range(extra[22] if len(extra) > 22 else 0):
        part, at = _units(extra, at + 3, int.from_bytes(extra[at + 1 : at + 3], "big"))
        found += part
    return found


def _units(extra: bytes, at: int, count: int) -> tuple[bytes, int]:
    """So many units with two bytes of length each, and where they end."""
    found = b""
    for _ in range(count):
        begin = at + 2
        at = begin + int.from_bytes(extra[at:begin], "big")
        if at > len(extra):
            raise ValueError("the parameters of its stream are cut off")
        found += _START + extra[begin:at]
    return found, at
