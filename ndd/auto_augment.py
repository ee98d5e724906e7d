"""Automatic augmentation: every sample gets augmentations that are chosen at random.

>>> import ndd
>>> photos = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout="HWC", batch_size=4)
>>> rng = ndd.random.RNG(seed=1234)
>>> ndd.auto_augment.rand_augment(photos, n=2, m=9, rng=rng).shape[3]
(48, 64, 3)
"""

from __future__ import annotations

from .ops.augment.automatic import auto_augment, rand_augment, trivial_augment

__all__ = ["auto_augment", "rand_augment", "trivial_augment"]
