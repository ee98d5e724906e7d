"""Reductions and `normalize` of bytes, on one thread, beside the oracle and a read of the bytes.

The read is NumPy's `max` of the batch: it reads each byte once, with vector instructions and almost
no work on them. Its time is the least that a reduction can take. For `normalize`, which writes four
bytes for each one that it reads, the least is the conversion of the batch to float32. Single images
show what a call costs besides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import ROUNDS, Row, compare, show
from .resample import both

SIZES = ((400, 500, 3), (224, 224, 3))
COUNT = 32
HW = (0, 1)
Program = Callable[[Any, Any], Any]


def _simple(name: str, **arguments: Any) -> Program:
    return lambda lib, x: getattr(lib.reductions, name)(x, **arguments)


def _around(name: str, **arguments: Any) -> Program:
    def program(lib: Any, x: Any) -> Any:
        mean = lib.reductions.mean(x, **arguments)
        return getattr(lib.reductions, name)(x, mean, **arguments)

    return program


def _by_hand(lib: Any, x: Any) -> Any:
    return x - lib.reductions.mean(x, axes=HW, keep_dims=True)


REDUCTIONS: dict[str, Program] = {
    **{name: _simple(name) for name in ("sum", "mean", "mean_square", "rms", "min", "max")},
    **{name: _around(name) for name in ("variance", "std_dev")},
    **{f"{name} HW": _simple(name, axes=HW) for name in ("sum", "mean", "max")},
    "std_dev HW": _around("std_dev", axes=HW),
}
NORMALIZATIONS: dict[str, Program] = {
    "normalize": lambda lib, x: lib.normalize(x),
    "normalize HW": lambda lib, x: lib.normalize(x, axes=HW),
    "normalize, mean given": lambda lib, x: lib.normalize(x, mean=120.0),
    "normalize, both given": lambda lib, x: lib.normalize(x, mean=120.0, stddev=60.0),
    # the same work, so these two should take the same time
    "normalize HW, stddev given": lambda lib, x: lib.normalize(x, axes=HW, stddev=1.0),
    "x - mean HW": _by_hand,
}


ALONE = ("sum", "variance", "normalize HW")  # of single images


def contestants(count: int, size: tuple[int, ...], program: Program) -> dict[str, Any]:
    """Our library, the oracle, and the least work that reads (and writes) the same bytes."""
    images = np.random.default_rng(0).integers(0, 256, (count, *size), dtype=np.uint8)
    runs: dict[str, Any] = dict(both(list(images), program))
    if program in REDUCTIONS.values():
        runs["read (NumPy's max)"] = images.max
    else:
        floats = np.empty(images.shape, np.float32)
        runs["conversion (NumPy)"] = lambda: np.copyto(floats, images)
    return runs


def main(rounds: int = ROUNDS) -> list[Row]:
    programs = REDUCTIONS | NORMALIZATIONS
    rows: list[Row] = []
    for size in SIZES:
        for count, names in ((COUNT, tuple(programs)), (1, ALONE)):
            shape = "×".join(map(str, (count, *size)))
            for name in names:
                runs = contestants(count, size, programs[name])
                part = compare(f"{name}, {shape} u8, 1 thread", runs, rounds)
                show(part, "oracle", 1e6, "µs")
                rows += part
    return rows
