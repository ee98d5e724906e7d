"""Protobuf messages: bytes enter, their fields leave; lengths are checked, nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...fusion.graph.shapes import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ValueError(f"its message is invalid at byte {at}")


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field: an integer, or the bytes of its content."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = varint(data, at)
        wire = tag & 7
        value: int | memoryview
        if wire == VARINT:
            value, at = varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(wire, -1)
            if wire == BYTES:
                size, at = varint(data, at)
            if not 0 <= size <= len(data) - at or tag < 8:
                raise ValueError(f"its message is invalid at byte {begin}")
            value = data[at : at + size]
            at += size
        yield tag >> 3, wire, value


def signed(value: int) -> int:
    """A 64-bit number as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def int32s(wire: int, value: int | memoryview) -> list[int]:
    """Integers of a repeated field, packed or not."""
    if isinstance(value, int):
        return [_int32(value)]
    if wire != BYTES:
        raise ValueError("its message has integers of another type")
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(_int32(number))
    return found


def _int32(value: int) -> int:
    """As C++ does it: the lower 32 bits."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def floats(wire: int, value: int | memoryview) -> Array:
    """Float32 numbers of a repeated field, packed or not."""
    if isinstance(value, int) or wire not in (BYTES, FIXED32) or len(value) % 4:
        raise ValueError("its message has floats of another type")
    return np.frombuffer(bytes(value), "<f4").astype(np.float32)


def content(value: int | memoryview) -> memoryview:
    """The content of a field that has one."""
    if isinstance(value, int):
        raise ValueError("its message has a number in place of bytes")
    return value
