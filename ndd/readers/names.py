"""Stores many file names in little memory: one block of bytes and the end of each name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np


class Names:
    """A list of byte strings, with 8 bytes of overhead for each; a Python object has 33."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = [np.zeros(1, np.int64)]
        self.checksum = 0  # CRC-32 of all names

    def add(self, names: Sequence[bytes]) -> None:
        """Append names."""
        start = len(self._text)
        self._text += b"".join(names)
        lengths = np.fromiter(map(len, names), np.int64, len(names))
        self._ends.append(np.cumsum(lengths) + start)

    def finish(self) -> None:
        """No more names will come."""
        self._ends = [np.concatenate(self._ends)]
        # Computed here because saving a state must not take longer for a larger data set.
        self.checksum = zlib.crc32(self._text)

    def __len__(self) -> int:
        return sum(map(len, self._ends)) - 1

    def __getitem__(self, index: int) -> bytes:
        ends = self._ends[0]
        return bytes(self._text[ends[index] : ends[index + 1]])
