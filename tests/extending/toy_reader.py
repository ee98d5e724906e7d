"""A reader from outside the package: this file is complete.

It inherits shards, shuffling, epochs, checkpoints, error policies and read-ahead.
"""

from __future__ import annotations

import numpy as np

from ndd.kernels.ir import dtypes as dt
from ndd.readers import Reader


class Ramps:
    """`count` samples; sample i is a ramp of i + 1 numbers, and its length."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def name(self, index: int) -> str:
        return f"ramp {index}"

    def read(self, index: int):
        if index == 13:
            raise ValueError("an unlucky number")
        return np.arange(index + 1, dtype=np.float32), np.array([index + 1], np.int32)

    def fill(self, index: int, data=None):
        return np.zeros(0, np.float32), np.array([0], np.int32)

    def fingerprint(self) -> str:
        return f"ramps {self._count}"


class Ramp(Reader):
    """Reads ramps of numbers."""

    outputs = ((dt.float32, False), (dt.int32, True))

    def __init__(self, count: int, **options) -> None:
        self._ramps = Ramps(count)
        super().__init__(**options)

    def _list(self) -> Ramps:
        return self._ramps
