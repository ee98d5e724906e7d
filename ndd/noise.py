"""Noise for images and other tensors.

>>> import ndd
>>> image = ndd.zeros(shape=[4, 6, 3], dtype=ndd.uint8, layout="HWC")
>>> rng = ndd.random.RNG(seed=1234)
>>> ndd.noise.gaussian(image, stddev=5.0, rng=rng).shape
(4, 6, 3)
"""

from __future__ import annotations

from .ops.random.noises import gaussian, salt_and_pepper, shot

__all__ = ["gaussian", "salt_and_pepper", "shot"]
