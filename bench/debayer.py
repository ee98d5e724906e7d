"""Demosaicing of raw frames, on one thread, beside the oracle and OpenCV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import ROUNDS, Row, compare, optional, show
from .resample import Runs, libraries

COUNT, HEIGHT, WIDTH = 8, 720, 1280
# Algorithm → OpenCV's code for blue at (0, 0), and the types that it takes.
CASES = {
    "bilinear_ocv": ("COLOR_BayerBG2RGB", "u1 u2"),
    "edgeaware_ocv": ("COLOR_BayerBG2RGB_EA", "u1"),
    "vng_ocv": ("COLOR_BayerBG2RGB_VNG", "u1"),
}


def frames(dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    high = np.iinfo(dtype).max
    return [rng.integers(0, high, (HEIGHT, WIDTH)).astype(dtype) for _ in range(COUNT)]


def runs_of(images: list[np.ndarray], name: str, code: str) -> Runs:
    def run(lib: Any, context: Any) -> Callable[[], object]:
        batch = lib.batch(images, layout="HW")

        def once() -> object:
            with context:
                return lib.debayer(batch, blue_position=[0, 0], algorithm=name).evaluate()

        return once

    runs: Runs = {library: run(*pair) for library, pair in libraries().items()}
    cv2 = optional("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
        number = getattr(cv2, code)
        runs["opencv"] = lambda: [cv2.cvtColor(i, number) for i in images]
    return runs


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for name, (code, dtypes) in CASES.items():
        for dtype in dtypes.split():
            runs = runs_of(frames(dtype), name, code)
            kind = np.dtype(dtype).name
            workload = f"debayer {name}, {COUNT} × {HEIGHT}×{WIDTH} {kind}, 1 thread"
            part = compare(workload, runs, rounds)
            show(part, "oracle")
            rows += part
    return rows
