"""CRC-32C, as TFRecord files use it: bytes in memory enter, masked checksums leave."""

from __future__ import annotations

import numpy as np

from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of
from ...kernels.common.memo import memoized
from ...kernels.cpu.helpers import function

_POLYNOMIAL = 0x82F63B78


@memoized(1)
def checksum_tables() -> Array:
    """Row 0 advances a checksum by one byte, row k by the byte before k more bytes."""
    rows = np.empty((8, 256), np.uint32)
    value = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        value = np.where(value & 1, value >> 1 ^ np.uint32(_POLYNOMIAL), value >> 1)
    rows[0] = value
    for k in range(1, 8):
        rows[k] = rows[k - 1] >> 8 ^ rows[0][rows[k - 1] & 255]
    return rows


def masked(checksums: Array) -> Array:
    """Checksums as they are stored."""
    value = checksums.astype(np.uint32)
    return (value >> 15 | value << 17) + np.uint32(0xA282EAD8)


def of_lengths(lengths: Array) -> Array:
    """Masked checksums of 64-bit numbers."""
    table = checksum_tables()[0]
    value = np.full(len(lengths), 0xFFFFFFFF, np.uint32)
    for byte in np.ascontiguousarray(lengths, "<u8").view(np.uint8).reshape(-1, 8).T:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return masked(~value)


def of_memory(addresses: Array, sizes: Array) -> Array:
    """Masked checksums of parts of memory."""
    parts = np.empty((len(addresses), 3), np.int64)
    parts[:, 0], parts[:, 1] = addresses, sizes
    table = checksum_tables()
    function("crc32c_parts")(address_of(parts), len(parts), address_of(table))
    return masked(parts[:, 2])
