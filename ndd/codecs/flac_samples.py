"""FLAC files in memory → samples, by a decoder of our own; damaged ones are left to libsndfile."""

from __future__ import annotations

import numpy as np

from ..fusion.graph.shapes import Array
from ..fusion.graph.storage import address_of
from ..kernels.common.memo import memoized
from ..kernels.cpu.helpers import function
from .pcm_samples import KINDS
from .sound_headers import Flac

_BITS_CODES = {8: 1, 12: 2, 16: 4, 20: 5, 24: 6}  # as frames tell them; no others can be told
_PAST = 32  # samples before each row that a predictor may read, though it multiplies them by zero
_UNKNOWN = 1 << 36  # a number of samples that no file tells
_NEAR = 1024  # bytes before a place within which no frame is looked for
_AT, _NEXT, _HAVE, _USED, _DONE, _LEFT_OUT = range(12, 18)  # columns of the job, see the decoder


@memoized(1)
def checksum_tables() -> Array:
    """Tables of CRC-16, and as row 8 that of CRC-8.

    Row 0 advances a checksum by one byte, row k by the byte before k more bytes.
    """
    rows = np.empty((9, 256), np.uint16)
    for row, bits, polynomial in ((0, 16, 0x8005), (8, 8, 0x07)):
        value = np.arange(256, dtype=np.int64) << (bits - 8)
        for _ in range(8):
            value = value << 1 ^ np.where(value >> (bits - 1) & 1, polynomial | 1 << bits, 0)
        rows[row] = value
    for k in range(1, 8):
        rows[k] = rows[k - 1] << 8 ^ rows[0][rows[k - 1] >> 8]
    return rows


class FlacSamples:
    """The samples of a file from one of them on."""

    def __init__(self, data: Array, flac: Flac, frames: int, channels: int, first: int = 0) -> None:
        self.channels = channels
        block = min(flac.block, frames)
        self._rows = np.zeros((channels, _PAST + block), np.int32)
        self._kept = data, checksum_tables()
        self._offset = flac.offset
        self._job = np.zeros(20, np.int64)
        self._job[:11] = (
            address_of(data), data.size, channels, flac.bits, _BITS_CODES.get(flac.bits, -1),
            flac.block, flac.is_fixed, frames, address_of(self._kept[1]),
            address_of(self._rows) + 4 * _PAST, self._rows.strides[0],
        )  # fmt: skip
        self._go_to(flac.offset, 0)
        if first:
            self._seek(first)

    def read(self, out: Array) -> int:
        """Write the next frames [frames, channels], and return how many could be decoded."""
        self._job[11] = KINDS[out.dtype.name]
        function("flac_frames")(address_of(self._job), address_of(out), len(out))
        return int(self._job[_DONE])

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows the frames that were decoded, but a tag of MP3 files."""
        rest = self._kept[0][int(self._job[_AT]) :]
        return not rest.size or (rest.size == 128 and rest[:3].tobytes() == b"TAG")

    def _go_to(self, at: int, begin: int, left_out: int = 0) -> None:
        """Decode the frame at a byte next, and leave out some of its samples."""
        self._job[[_AT, _NEXT, _HAVE, _USED, _LEFT_OUT]] = at, begin, 0, 0, left_out

    def _seek(self, first: int) -> None:
        """Go to the frame that has a sample, or to one that is not far before it."""
        low, high = self._offset, self._kept[0].size
        found = low, 0
        while high - low > _NEAR:
            middle = (low + high) // 2
            at, begin = self._header(middle, high)
            if at < 0 or begin > first:
                high = middle
            else:
                found, low = (at, begin), at + 1
        self._go_to(*found)
        # What looks like a header may be none; then its checksum is wrong.
        if self.read(np.empty((1, self.channels), np.float32)):
            self._job[[_USED, _LEFT_OUT]] = 0, first - found[1]
        else:
            self._go_to(self._offset, 0, first)

    def _header(self, begin: int, end: int) -> tuple[int, int]:
        """The first header of a frame between two bytes, and its first sample; or -1."""
        function("flac_header")(address_of(self._job), begin, end)
        return int(self._job[_AT]), int(self._job[_NEXT])


def counted_frames(data: Array, flac: Flac, channels: int, told: int) -> int | None:
    """How many frames can be decoded, if they are so many as told, or all there are; else None."""
    samples = FlacSamples(data, flac, told or _UNKNOWN, channels)
    block = np.empty((flac.block, channels), np.int16)
    count = 0
    while got := samples.read(block):
        count += got
    return count if count == told or (not told and samples.is_at_end) else None
