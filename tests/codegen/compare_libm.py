"""Compare float32 sin and cos with the C library's for all float32 numbers. Run by hand (2 minutes):

python -m tests.codegen.compare_libm
"""

from __future__ import annotations

import ctypes
import ctypes.util

import numba
import numpy as np

from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import mathlib
from tests.codegen.test_mathlib import leaf, run

STEP = 1 << 24


def libm(name: str) -> object:
    """The C library's function, applied to an array."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]

    @numba.njit
    def over(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    return over


def main() -> None:
    for name in ("sin", "cos"):
        value = getattr(mathlib, name)(leaf(0, dt.float32))
        reference, out = libm(f"{name}f"), np.empty(STEP, np.float32)
        differing: list[float] = []
        worst = 0
        for first in range(0, 0x7F800000, STEP):  # sin is odd and cos is even, so x >= 0 covers all
            x = np.arange(first, min(first + STEP, 0x7F800000), dtype=np.uint32).view(np.float32)
            (got,) = run(name, (value,), x)
            want = out[: x.size]
            reference(x, want)
            units = np.abs(got.view(np.int32).astype(np.int64) - want.view(np.int32))
            worst = max(worst, int(units.max()))
            differing += x[units > 0].tolist()
        print(f"{name}: {len(differing)} differ, by {worst} at most: {differing[:20]}")


if __name__ == "__main__":
    main()
