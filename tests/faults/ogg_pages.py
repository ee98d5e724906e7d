"""Pages of Ogg files: their checksums are made right again, so that damage reaches the decoders."""

from __future__ import annotations

_HEADER = 27  # bytes of a page before the table of its segments


def _table() -> list[int]:
    found = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value >> 31 else 0)) & 0xFFFFFFFF
        found.append(value)
    return found


_TABLE = _table()


def checksum(page: bytes) -> int:
    """The CRC-32 of Ogg: not reflected, begins with 0."""
    value = 0
    for byte in page:
        value = (value << 8 & 0xFFFFFFFF) ^ _TABLE[value >> 24 ^ byte]
    return value


def with_checksums(data: bytes) -> bytes:
    """The same file with right checksums in all of its pages that are complete."""
    found = bytearray(data)
    at = data.find(b"OggS")
    while at >= 0:
        table = data[at + _HEADER : at + _HEADER + data[at + 26]] if at + 26 < len(data) else b""
        end = at + _HEADER + len(table) + sum(table)
        if at + 26 < len(data) and end <= len(data):
            found[at + 22 : at + 26] = bytes(4)
            found[at + 22 : at + 26] = checksum(bytes(found[at:end])).to_bytes(4, "little")
        at = data.find(b"OggS", at + 4)
    return bytes(found)
