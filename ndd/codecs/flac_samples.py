"""FLAC files in memory → samples, by a decoder of our own; unusual ones are left to libsndfile."""

from __future__ import annotations

import numpy as np

from ..fusion.graph.shapes import Array
from ..fusion.graph.storage import address_of
from ..kernels.common.memo import memoized
from ..kernels.cpu.helpers import function
from .pcm_samples import KINDS
from .sound_headers import Flac

_BITS_CODES = {8: 1, 16: 4, 24: 6}  # `FLAC_BITS` as frames tell them
_PAST = 32  # samples before each row that a predictor may read, though it multiplies them by zero
_DONE = 16  # the column of the job that tells how many samples were written


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
    """The samples of a file from its beginning on."""

    def __init__(self, data: Array, flac: Flac, frames: int, channels: int) -> None:
        self.channels = channels
        block = min(flac.block, frames)
        self._rows = np.zeros((channels, _PAST + block), np.int32)
        self._kept = data, checksum_tables()
        self._job = np.zeros(20, np.int64)
        self._job[:11] = (
            address_of(data), data.size, channels, flac.bits, _BITS_CODES[flac.bits], flac.block,
            flac.is_fixed, frames, address_of(self._kept[1]), address_of(self._rows) + 4 * _PAST,
            self._rows.strides[0],
        )  # fmt: skip
        self._job[12] = flac.offset

    def read(self, out: Array) -> int:
        """Write the next frames [frames, channels], and return how many could be decoded."""
        self._job[11] = KINDS[out.dtype.name]
        function("flac_frames")(address_of(self._job), address_of(out), len(out))
        return int(self._job[_DONE])
