"""A failed value must not make a generator's state depend on when a background thread noticed the failure."""

from __future__ import annotations

import time

import numpy as np
import pytest

import ndd
from tests.decoders.fixtures import encoded, photo


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_a_generator_after_a_decode_error(pause: float, mode: str) -> None:
    broken = np.frombuffer(encoded(".png", photo(40, 50)), np.uint8).copy()
    broken[len(broken) // 2 :][:60] = 0  # the header is whole, the pixels are not
    ndd.random.set_seed(5)
    if mode.startswith("sync"):
        with pytest.raises(ValueError):
            ndd.decoders.image(ndd.batch([broken]))
        return
    image = ndd.decoders.image(ndd.batch([broken]))
    time.sleep(pause)  # in eager mode, a background thread decodes meanwhile
    crop = ndd.random_resized_crop(image, size=[8, 8])
    state = str(ndd.random.get_default_rng().get_state())
    with pytest.raises(ValueError):
        crop.evaluate()
    other = ndd.random.RNG(seed=5)
    ndd.random_resized_crop(ndd.batch([photo(40, 50)], layout="HWC"), size=[8, 8], rng=other)
    assert state == str(other.get_state()) == str(ndd.random.get_default_rng().get_state())
