"""Chains of ops that a process has not run before, so that their fused kernels are compiled beside it.

The process starts with an empty cache, runs each op once, and then draws chain after chain. A chain runs op by op
until the process beside has compiled its kernel, then fused, and gives the same bits all the time.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import ndd
from ndd.fusion.run.tiers import TIERS
from tests.decoders.fixtures import photo

LENGTH = 3
OPS: tuple[Callable[[Any], Any], ...] = (
    ndd.flip,
    lambda x: ndd.brightness(x, brightness=1.25),
    lambda x: ndd.contrast(x, contrast=0.75),
    lambda x: ndd.crop(x, crop=[16, 20]),
    lambda x: ndd.saturation(x, saturation=0.5),
    lambda x: ndd.hue(x, hue=30.0),
)


class NewChains:
    """Draws chains; `run` computes one."""

    def __init__(self, seed: int) -> None:
        os.environ["NDD_TIERS"], os.environ["NDD_CACHE_DIR"] = "1", tempfile.mkdtemp()
        self._random = random.Random(seed)
        self._images = ndd.batch([photo(24 + k, 30, seed=k) for k in range(3)], layout="HWC")
        for op in OPS:
            op(self._images).evaluate()
        TIERS._at_once = 0  # the first chains do not wait for their kernels either

    def drawn(self) -> tuple[Callable[[Any], Any], ...]:
        return tuple(self._random.choice(OPS) for _ in range(LENGTH))

    def run(self, chain: tuple[Callable[[Any], Any], ...]) -> np.ndarray[Any, Any]:
        x = self._images
        for op in chain:
            x = op(x)
        flat = [np.asarray(t).ravel() for t in x.tensors]
        return np.concatenate(flat)

    def expected(self, chain: tuple[Callable[[Any], Any], ...]) -> np.ndarray[Any, Any]:
        """The same, with every op computed before the next one is called."""
        with ndd.EvalMode.sync_full:
            return self.run(chain)
