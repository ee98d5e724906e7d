"""Short windows of images on a GPU: one kernel sums both dimensions, tile by tile (gpu/tiles.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.gpu import kernel as gpu_kernel
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


def images(dtype: Any) -> Any:
    rng = np.random.default_rng(0)
    return ndd.batch([rng.integers(0, 120, s).astype(dtype) for s in SHAPES], layout="HWC")


def check(program: Any, x: Any, count: int) -> None:
    """A program gives the bits of the CPU on a GPU, in so many kernels."""
    with ndd.EvalMode.deferred:
        wanted = arrays(program(x))
        result = program(x.gpu())
        assert kernels(result) == count
        assert_same(result, wanted)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_bits_are_those_of_the_cpu(name: str, dtype: Any) -> None:
    program, count = PROGRAMS[name]
    check(program, images(dtype), count)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f8"])
def test_all_types(dtype: str) -> None:
    check(blurred, images(dtype), 1)


@pytest.mark.parametrize("layout", ["CHW", "HW", "FCHW"])
def test_layouts(layout: str) -> None:
    """Planes, and images without channels: whatever lies outside of rows and columns is a loop."""
    rng = np.random.default_rng(2)
    shapes = [[{"F": 2, "C": 3, "H": h, "W": w}[a] for a in layout] for h, w, _ in SHAPES]
    samples = [rng.integers(0, 256, s).astype(np.uint8) for s in shapes]
    check(blurred, ndd.batch(samples, layout=layout), 1)


def test_a_new_sigma_makes_no_kernel() -> None:
    """There are two programs, one for windows that fit tiles; each is made once."""

    def added(*values: float) -> int:
        before = len(gpu_kernel._kernels)
        with ndd.EvalMode.deferred:
            sigma = ndd.batch([np.float32(v) for v in values])
            arrays(ndd.gaussian_blur(images(np.uint8).gpu(), sigma=sigma))
        return len(gpu_kernel._kernels) - before

    gpu_kernel._kernels.clear()
    assert added(0.5, 1.0, 2.0) == 1
    assert added(0.5, 2.7, 2.0) == 2
    assert added(0.1, 2.6, 1.7) == added(3.5, 0.1, 1.0) == added(2.0, 2.0, 2.0) == 0


def test_a_loop_whose_sigma_crosses_the_limit(mode: str) -> None:
    """Sizes stay, but tiles have as many results as the windows leave."""
    x = images(np.uint8)
    for last in (0.4, 2.6, 0.4, 4.0, 1.0, 3.0):
        sigma = ndd.batch([np.float32(v) for v in (last, 1.0, last)])
        wanted = arrays(ndd.gaussian_blur(x, sigma=sigma))
        assert_same(ndd.gaussian_blur(x.gpu(), sigma=sigma), wanted)


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
