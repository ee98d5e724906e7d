"""Cost of one op call on a tiny batch (8 images of 4×4×3), in each mode, beside the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show

CALLS = 20


def contestants(mode: str) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 256, (4, 4, 3), dtype=np.uint8) for _ in range(8)]
    runs: dict[str, Callable[[], object]] = {}
    for name, lib in (("ndd", ndd), ("oracle", optional("nvidia.dali.experimental.dynamic"))):
        if lib is None:
            continue
        batch = lib.batch(samples, layout="HWC")
        runs[name] = _loop(lib, batch, getattr(lib.EvalMode, mode))
    return runs


def _loop(lib: object, batch: object, mode: object) -> Callable[[], object]:
    def run() -> None:
        with mode:
            for _ in range(CALLS):
                lib.brightness(batch, brightness=1.5).evaluate()

    return run


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for mode in ("deferred", "eager", "sync_cpu", "sync_full"):
        part = compare(f"one op call, {mode}", contestants(mode), rounds, CALLS)
        show(part, "oracle", 1e6, "µs")
        rows += part
    return rows
