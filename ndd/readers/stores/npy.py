"""Headers of .npy files: a file enters, type, shape and place of its array leave; no pickle."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from ...kernels.ir import dtypes as dt
from .byte_files import ByteFile

_MAGIC = b"\x93NUMPY"
# Headers of plain arrays have about 100 bytes. Longer ones exist only for structured types.
_MAX_HEADER_BYTES = 1 << 16
_FIRST_BYTES = 256
_ITEM = re.compile(
    r"""\s*(['"])(\w+)\1\s*:\s*(['"][^'"]*['"]|True|False|\([\d\s,L]*\)|\[.*\])\s*,?"""
)


class NpyHeader(NamedTuple):
    """The array of a file."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: ByteFile) -> NpyHeader:
    """The checked header: the array lies inside of the file."""
    first = bytearray(min(_FIRST_BYTES, file.size))
    del first[file.read_into(memoryview(first), 0) :]
    if first[:6] != _MAGIC or len(first) < 12:
        raise ValueError("not a .npy file")
    version = first[6]
    if version not in (1, 2, 3):
        raise ValueError(f"version {version} of the format is not known")
    begin = 10 if version == 1 else 12
    length = int.from_bytes(first[8:begin], "little")
    if length > min(_MAX_HEADER_BYTES, file.size - begin):
        raise ValueError(f"the header at offset {begin} has {length} bytes, too many")
    if begin + length > len(first):
        first = bytearray(begin + length)
        if file.read_into(memoryview(first), 0) < len(first):
            raise ValueError(f"the file ends inside of the header at offset {begin}")
    text = first[begin : begin + length].decode("latin1" if version < 3 else "utf-8", "replace")
    return _checked(_items(text, begin), begin + length, file.size)


def _items(text: str, begin: int) -> dict[str, str]:
    """The entries of a header. They are not evaluated, only matched."""
    text = text.strip()
    found: dict[str, str] = {}
    if text[:1] == "{" and text[-1:] == "}":
        at, end = 1, len(text) - 1
        while match := _ITEM.match(text, at, end):
            found[match[2]] = match[3]
            at = match.end()
        if text[at:end].strip() == "" and {"descr", "fortran_order", "shape"} <= set(found):
            return found
    raise ValueError(f"the header at offset {begin} is not a .npy header: {text[:80]!r}")


def _checked(items: dict[str, str], offset: int, size: int) -> NpyHeader:
    dtype = _dtype(items["descr"])
    numbers = re.findall(r"\d+", items["shape"])
    if items["shape"][0] != "(" or items["fortran_order"] not in ("True", "False"):
        raise ValueError(f"the header is invalid: shape {items['shape']}")
    if len(numbers) > 32 or any(len(n) > 18 for n in numbers):
        raise ValueError(f"the shape is too large: {items['shape'][:80]}")
    header = NpyHeader(dtype, tuple(map(int, numbers)), items["fortran_order"] == "True", offset)
    if header.nbytes > size - offset:
        raise ValueError(
            f"an array of {header.nbytes} bytes (shape {header.shape}, {dtype}) at offset "
            f"{offset}, but {size - offset} bytes are left"
        )
    return header


def _dtype(descr: str) -> np.dtype[np.generic]:
    match = re.fullmatch(r"""['"]([<>|=]?)([biuf])([1248])['"]""", descr)
    found = np.dtype(f"{match[1]}{match[2]}{match[3]}") if match and descr[1:-1] != "<b1" else None
    if found is None or dt.from_numpy(found.newbyteorder("=")) is None:
        raise ValueError(f"elements of type {descr} are not supported")
    return found
