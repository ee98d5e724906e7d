"""Filters of bytes whose sums are stored as bytes at once: the same bits as sums in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.cpu.native.block_sizes import MEAN_TAPS
from tests.helpers import arrays

BORDERS = ("reflect_101", "clamp", "wrap", "reflect_1001")
RNG = np.random.default_rng(0)
IMAGES = [
    RNG.integers(0, 256, shape, dtype=np.uint8)
    for shape in ((40, 61, 3), (3, 4, 3), (1, 1, 3), (64, 7, 1), (33, 70, 4), (5, 11, 3))
]
MEANS = [np.full((n, m), 1 / (n * m), np.float32) for n, m in ((3, 3), (5, 5), (1, 3), (7, 1))]
WINDOWS = {
    "means": MEANS,
    "large mean": [np.full((11, 11), 1 / 121, np.float32)],
    "even means": [np.full((n, m), 1 / (n * m), np.float32) for n, m in ((2, 2), (2, 3))],
    "a mean of too many": [np.full((9, 15), 1 / 135, np.float32)],
    "all the same, no mean": [np.full((3, 3), 0.2, np.float32)],
    "any": [RNG.normal(0, 0.4, (3, 3)).astype(np.float32), np.float32([[0.7]])],
    "few": [np.eye(5, dtype=np.float32) * 0.3],
    "means of few": [
        np.eye(5, dtype=np.float32) / 5,
        np.float32([[0, 1, 0], [1, 1, 1], [0, 1, 0]]) / 5,
        np.float32([[1, -0.0, 1], [-0.0, -0.0, 1]]) / 3,
    ],
    "not a number": [np.float32([[0.5, np.nan, 0.5]])],
}
Program = Any


def _equal(x: Any, weights: np.ndarray, then: Program = lambda y: y, **options: Any) -> None:
    """Compare with sums that are stored as float32 and rounded by NumPy."""
    window = ndd.tensor(weights)
    found = arrays(then(ndd.filter(x, window, **options)))
    sums = arrays(then(ndd.filter(x, window, dtype=ndd.float32, **options)))
    for got, total in zip(found, sums, strict=True):
        wanted = np.rint(np.fmin(np.fmax(total, 0), 255)).astype(np.uint8)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("name", WINDOWS)
def test_sums_are_rounded_as_those_in_float32(name: str, border: str) -> None:
    for image in IMAGES:
        for weights in WINDOWS[name]:
            _equal(ndd.batch([image], layout="HWC"), weights, border=border)


@pytest.mark.parametrize(
    "weights", [MEANS[1], WINDOWS["any"][0], WINDOWS["means of few"][0]], ids=["mean", "any", "few"]
)
def test_parts_mirrored_images_and_other_anchors(weights: np.ndarray) -> None:
    x = ndd.batch([IMAGES[0], IMAGES[4][..., :3]], layout="HWC")
    _equal(x, weights, anchor=[0, 2])
    _equal(x, weights, mode="valid")
    _equal(x, weights, lambda y: ndd.flip(y, horizontal=1, vertical=1))
    _equal(x, weights, lambda y: y.slice[5:30, 7:60])
    _equal(x, weights, lambda y: y.slice[3:30, 3:9])
    frames = RNG.integers(0, 256, (3, 30, 50, 3), dtype=np.uint8)
    _equal(ndd.batch([frames], layout="FHWC"), weights)
    _equal(ndd.batch([IMAGES[0][..., 0]], layout="HW"), weights)


def test_samples_have_windows_of_their_own() -> None:
    x = ndd.batch([IMAGES[0]] * 3, layout="HWC")
    windows = [MEANS[1], WINDOWS["any"][0], WINDOWS["few"][0]]
    with ndd.EvalMode.deferred:
        y = ndd.filter(x, ndd.batch(windows))
        source = ndd.explain(y).groups[-1].source
        found = arrays(y)
    for got, weights in zip(found, windows, strict=True):
        wanted = arrays(ndd.filter(x, ndd.tensor(weights)))[0]
        np.testing.assert_array_equal(got, wanted)
    assert source is not None
    text = Path(source).read_text()
    assert "mean_down(" in text and "mean_of(" in text and "sum_to_bytes_1(" in text


def test_means_of_the_largest_and_of_all_sums() -> None:
    """The division is exact, and so is a mean of 255s."""
    for taps in range(3, MEAN_TAPS + 1, 2):
        sums = np.arange(255 * taps + 1)
        by = int(taps).bit_length() - 1
        factor = -(-(65536 << by) // taps)
        assert factor < 65536 and sums[-1] + taps // 2 < 65536
        found = ((sums + taps // 2) * factor >> 16) >> by
        np.testing.assert_array_equal(found, np.rint(sums / taps))
        # How far a sum tap by tap may be from the mean: see NOTE [means of bytes].
        assert 256 * (taps + 1) / 2**24 < 1 / (2 * taps)
    white = ndd.batch([np.full((20, 40, 3), 255, np.uint8)], layout="HWC")
    for weights in (*MEANS, *WINDOWS["large mean"]):
        assert (arrays(ndd.filter(white, ndd.tensor(weights)))[0] == 255).all()
