"""Calls of pointwise ops with plain numbers take a shorter way when they come again: the same values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ndd
from ndd.core import call
from tests.helpers import arrays, assert_same

PHOTOS = [np.arange(n * 12, dtype=np.uint8).reshape(n, 4, 3) for n in (3, 1, 2)]
NUMBERS = [1, 1.0, True, 0, 0.0, -0.0, 0.37, 2]
CHOICES = [{}, {"dtype": ndd.float32}, {"dtype": ndd.int16}]


@pytest.fixture
def shorter(monkeypatch):
    """How many calls took the shorter way."""
    found = []
    plain = call.PlainCall.node

    def node(self, *arguments):
        found.append(arguments)
        return plain(self, *arguments)

    monkeypatch.setattr(call.PlainCall, "node", node)
    return found


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_numbers_and_choices(kind, shorter):
    """A number per sample never takes that way."""
    photos = ndd.batch([p.astype(kind) for p in PHOTOS], layout="HWC")
    for _ in range(2):
        for number, choices in itertools.product(NUMBERS, CHOICES):
            got = ndd.brightness(photos, brightness=number, brightness_shift=-0.0, **choices)
            numbers = ndd.batch([np.float32(number)] * 3)
            wanted = ndd.brightness(photos, brightness=numbers, brightness_shift=-0.0, **choices)
            assert_same(arrays(got), arrays(wanted), f"{number!r} {choices}")
            assert got.dtype == wanted.dtype and got.layout == "HWC"
    assert len(shorter) >= len(NUMBERS) * len(CHOICES)


def test_defaults_and_none(shorter):
    photos = ndd.batch(PHOTOS, layout="HWC")
    wanted = arrays(ndd.brightness_contrast(photos, contrast=0.5, contrast_center=128.0))
    for _ in range(3):
        got = ndd.brightness_contrast(photos, contrast=0.5, contrast_center=None)
        assert_same(arrays(got), wanted, "None is the default")
        assert_same(arrays(ndd.brightness_contrast(photos, contrast=0.5)), wanted, "left out")
    assert shorter


def test_batches_and_tensors(shorter):
    photos = ndd.batch(PHOTOS, layout="HWC")
    for _ in range(2):
        ndd.brightness(photos, brightness=0.5)
        one = ndd.brightness(ndd.tensor(PHOTOS[0], layout="HWC"), brightness=0.5)
        assert isinstance(one, ndd.Tensor)
        many = ndd.brightness(ndd.tensor(PHOTOS[0], layout="HWC"), brightness=0.5, batch_size=2)
        assert isinstance(many, ndd.Batch) and len(many) == 2
        assert_same(arrays(many), [np.asarray(one)] * 2, "a batch of one tensor")
    assert len(shorter) >= 2 and all(others[-2] is None for _, _, others in shorter)


def test_refused_as_before(shorter):
    photos = ndd.batch(PHOTOS, layout="HWC")
    for _ in range(2):
        ndd.brightness(photos, brightness=0.5)
        with pytest.raises(TypeError, match="brightness"):
            ndd.brightness(photos, brightness="bright")
        with pytest.raises((TypeError, ValueError), match="bool"):
            ndd.brightness(ndd.batch([p > 3 for p in PHOTOS], layout="HWC"), brightness=0.5)
