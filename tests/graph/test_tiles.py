"""Short windows of images on a GPU: one kernel sums both dimensions, tile by tile (gpu/tiles.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu.tiles import TileSums
from ndd.kernels.ir.windows import MAX_TILED_TAPS, TILE
from tests.helpers import arrays, assert_same, kernels

pytestmark = pytest.mark.gpu

# More than a tile along either dimension, less than a window, and a single pixel.
SHAPES = ((40, 7, 3), (5, 70, 3), (1, 1, 3))
SIGMAS = (0.5, 1.2, 2.6)


def sigmas() -> Any:
    return ndd.batch([np.float32(s) for s in SIGMAS])


def blurred(x: Any) -> Any:
    return ndd.gaussian_blur(x, sigma=sigmas())


def normalised(x: Any) -> Any:
    mirror = ndd.batch([1, 0, 1])
    return ndd.crop_mirror_normalize(blurred(x), mirror=mirror, mean=[1.0, 2.0, 3.0], std=[3.0])


# Programs, and in how many kernels a GPU computes them.
PROGRAMS = {
    "alone": (blurred, 1),
    "normalised": (normalised, 1),
    "flipped": (lambda x: ndd.flip(blurred(x), horizontal=1, vertical=ndd.batch([0, 1, 1])), 1),
    "windows that differ": (lambda x: ndd.flip(ndd.gaussian_blur(x, window_size=[3, 7])), 1),
    "cut": (lambda x: ndd.crop(blurred(x), crop=[1, 1], crop_pos_x=1.0), 1),
    "padded": (
        lambda x: ndd.crop(blurred(x), crop=[41, 30], out_of_bounds_policy="pad", fill_values=7),
        1,
    ),
    "transposed": (lambda x: ndd.transpose(blurred(x), perm=[2, 1, 0]), 1),
    "colours before and after": (
        lambda x: ndd.color_twist(ndd.gaussian_blur(ndd.hue(x, hue=5.0), sigma=1.0), hue=9.0),
        2,
    ),
    "longest": (lambda x: ndd.gaussian_blur(x, window_size=MAX_TILED_TAPS), 1),
    "too long": (lambda x: ndd.gaussian_blur(x, window_size=MAX_TILED_TAPS + 2), 2),
    "every second row": (lambda x: blurred(x).slice[::2], 2),
    "one row": (lambda x: blurred(x).slice[0], 2),
}


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_bits_are_those_of_the_cpu(name: str, dtype: Any) -> None:
    program, count = PROGRAMS[name]
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 256, s).astype(dtype) for s in SHAPES]
    x = ndd.batch(samples, layout="HWC")
    with ndd.EvalMode.deferred:
        wanted = arrays(program(x))
        result = program(x.gpu())
        assert kernels(result) == count
        assert_same(result, wanted)


def test_frames() -> None:
    rng = np.random.default_rng(1)
    x = ndd.batch([rng.integers(0, 256, (n, 33, 9, 1), np.uint8) for n in (3, 1)], layout="FHWC")
    with ndd.EvalMode.deferred:
        result = ndd.gaussian_blur(x.gpu(), sigma=1.0)
        assert kernels(result) == 1
        assert_same(result, arrays(ndd.gaussian_blur(x, sigma=1.0)))


def test_explain_says_why_steps_need_a_stored_image() -> None:
    x = ndd.batch([np.zeros(SHAPES[0], np.uint8)], layout="HWC").gpu()
    with ndd.EvalMode.deferred:
        text = str(ndd.explain(ndd.gaussian_blur(x, sigma=1.0).slice[::2]))
    assert "a kernel computes whole tiles of it" in text


def test_a_tile_is_a_row_of_threads() -> None:
    """The reads along a row are shuffles only if a warp holds the row."""
    assert TileSums.block == TILE * TILE and TILE == 32
