"""FITS files: a file enters, type, shape and place of the array of one of its HDUs leave.

A file is a row of HDUs. Each has a header, lines of 80 characters in blocks of 2880 bytes, and
then its data, which is padded to whole blocks, too.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array
from .byte_files import ByteFile

_BLOCK_BYTES, _CARD_BYTES = 2880, 80
_MAX_HEADER_BLOCKS = 4096  # 12 MB of text
_TYPES = {8: ">u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
# Files have no unsigned types (or signed bytes): they store numbers with an offset.
_OFFSETS = {8: (-128, "i1"), 16: (2**15, "u2"), 32: (2**31, "u4"), 64: (2**63, "u8")}
_INTEGER = re.compile(r"[+-]?\d{1,18}")


class FitsImage(NamedTuple):
    """The array of an HDU."""

    bits: int
    shape: tuple[int, ...]
    offset: int
    scale: float
    zero: float

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * abs(self.bits) // 8

    def values(self, raw: Array) -> Array:
        """The array of its bytes, in the native byte order, with its offset and scale."""
        stored = raw.view(_TYPES[self.bits]).reshape(self.shape)
        if self.scale == 1 and self.zero == 0:
            return stored.astype(stored.dtype.newbyteorder("="))
        if self.scale == 1 and self.bits in _OFFSETS and self.zero == _OFFSETS[self.bits][0]:
            kind = np.dtype(_OFFSETS[self.bits][1])
            # Adding half of the range flips the first bit.
            high = np.array(1 << abs(self.bits) - 1, kind.str.replace("i", "u"))
            plain = stored.astype(stored.dtype.newbyteorder("=")).view(high.dtype)
            found: Array = (plain ^ high).view(kind)
            return found
        kind = np.dtype(np.float32 if abs(self.bits) <= 16 or self.bits == -32 else np.float64)
        return (stored * self.scale + self.zero).astype(kind)


def find_image(file: ByteFile, number: int) -> FitsImage:
    """The image of HDU `number`, counted from 1."""
    at = 0
    for hdu in range(1, number + 1):
        if at >= file.size:
            raise ValueError(f"HDU {number} is wanted, but there are {hdu - 1}")
        cards, begin = _header(file, at, hdu == 1)
        shape, nbytes = _extent(cards, at)
        if nbytes > file.size - begin:
            raise ValueError(
                f"HDU {hdu} at offset {at} has {nbytes} bytes of data, but {file.size - begin} are "
                f"left"
            )
        if hdu == number:
            return _image(cards, shape, at, begin)
        at = begin + -(-nbytes // _BLOCK_BYTES) * _BLOCK_BYTES
    raise ValueError(f"HDUs are counted from 1, got {number}")


def _header(file: ByteFile, at: int, is_first: bool) -> tuple[dict[str, str], int]:
    """The entries of a header, and where it ends."""
    cards: dict[str, str] = {}
    block = bytearray(_BLOCK_BYTES)
    for number in range(_MAX_HEADER_BLOCKS):
        begin = at + number * _BLOCK_BYTES
        if file.read_into(memoryview(block), begin) < _BLOCK_BYTES:
            raise ValueError(f"the file ends inside of the header at offset {at}")
        text = block.decode("latin1")
        if number == 0 and text[:9] != ("SIMPLE  =" if is_first else "XTENSION="):
            raise ValueError("not a FITS file" if is_first else f"no header at offset {at}")
        for card in (text[k : k + _CARD_BYTES] for k in range(0, _BLOCK_BYTES, _CARD_BYTES)):
            name = card[:8].rstrip()
            if name == "END":
                return cards, begin + _BLOCK_BYTES
            if card[8:10] == "= ":
                cards.setdefault(name, card[10:].partition("/")[0].strip())
    raise ValueError(f"the header at offset {at} has no end")


def _integer(cards: dict[str, str], name: str, default: int | None, at: int) -> int:
    text = cards.get(name)
    if text is None and default is not None:
        return default
    if text is None or not _INTEGER.fullmatch(text):
        raise ValueError(f"{name} of the header at offset {at} must be an integer, got {text!r}")
    return int(text)


def _extent(cards: dict[str, str], at: int) -> tuple[tuple[int, ...], int]:
    """The shape of the data, and its size in bytes with everything behind the array."""
    bits = _integer(cards, "BITPIX", None, at)
    rank = _integer(cards, "NAXIS", None, at)
    if bits not in _TYPES or not 0 <= rank <= 32:
        raise ValueError(f"the header at offset {at} has BITPIX {bits} and NAXIS {rank}")
    axes = [_integer(cards, f"NAXIS{k}", None, at) for k in range(rank, 0, -1)]
    more = _integer(cards, "PCOUNT", 0, at)
    groups = _integer(cards, "GCOUNT", 1, at)
    if min([*axes, more, groups]) < 0:
        raise ValueError(f"the header at offset {at} has a negative extent")
    elements = math.prod(axes) if axes else 0
    return tuple(axes), abs(bits) // 8 * groups * (more + elements)


def _image(cards: dict[str, str], shape: tuple[int, ...], at: int, begin: int) -> FitsImage:
    kind = cards.get("XTENSION", "'IMAGE'").strip("' ")
    if cards.get("ZIMAGE") == "T":
        raise ValueError(f"the HDU at offset {at} is compressed, which is not supported")
    if kind != "IMAGE":
        raise ValueError(f"the HDU at offset {at} is no image but {kind!r:.40}")
    if not shape:
        raise ValueError(f"the HDU at offset {at} has no data")
    numbers = []
    for name, default in (("BSCALE", 1.0), ("BZERO", 0.0)):
        try:
            numbers.append(float(cards.get(name, default)))
        except ValueError:
            raise ValueError(
                f"{name} of the header at offset {at} must be a number, got {cards[name]!r}"
            ) from None
    return FitsImage(_integer(cards, "BITPIX", None, at), shape, begin, *numbers)
