"""Random numbers: generators, and ops that draw from them.

>>> import ndd
>>> ndd.random.set_seed(1234)
>>> flips = ndd.random.coin_flip(batch_size=4)
>>> rng = ndd.random.RNG(seed=5678)
>>> ndd.random.uniform(range=[0.0, 1.0], shape=[3], rng=rng).shape
(3,)
"""

from __future__ import annotations

from .ops.random.draws import beta, choice, coin_flip, normal, uniform
from .runtime.rng import RNG, get_default_rng, set_seed

__all__ = [
    "RNG",
    "beta",
    "choice",
    "coin_flip",
    "get_default_rng",
    "normal",
    "set_seed",
    "uniform",
]
