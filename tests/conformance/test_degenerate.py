"""Images for which neighbourhoods, reductions and histograms hardly exist: one test for each op.

Every op meets every case that its types allow: a window larger than the image, 1×1, empty samples,
NaN and infinities, and constant images (a deviation of 0, a histogram of one level). The oracle
says what is right. It has no morphology on the CPU; there SciPy and the definition do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import ndd
from tests.helpers import arrays

from .oracle import oracle_call
from .test_normalize import normalized

WEIGHTS = np.linspace(-0.2, 0.4, 45, dtype=np.float32).reshape(5, 9)  # larger than most images
SHAPES = [(1, 1, 3), (2, 3, 3), (1, 7, 3), (4, 2, 3)]
EMPTY = [(0, 5, 3), (4, 0, 3), (0, 0, 3), (2, 2, 3)]
Op = Callable[[Any, Any], Any]  # of a library and a batch

WINDOWS: dict[str, Op] = {
    "gaussian_blur": lambda lib, x: lib.gaussian_blur(x, sigma=3.0),
    "laplacian": lambda lib, x: lib.laplacian(x, window_size=9),
    "filter": lambda lib, x: lib.filter(x, lib.as_tensor(WEIGHTS)),
}
RANKS: dict[str, Op] = {
    "experimental.dilate": lambda lib, x: lib.experimental.dilate(x, mask_size=[9, 5]),
    "experimental.erode": lambda lib, x: lib.experimental.erode(x, mask_size=[9, 5]),
    "experimental.median_blur": lambda lib, x: lib.experimental.median_blur(x, window_size=[9, 5]),
}
HISTOGRAMS: dict[str, Op] = {
    "equalize": lambda lib, x: lib.equalize(x),
    "clahe": lambda lib, x: lib.clahe(x, tiles_x=3, tiles_y=5, clip_limit=2.0),
}
SUMMARIES: dict[str, Op] = {
    **{
        f"reductions.{name}": lambda lib, x, name=name: getattr(lib.reductions, name)(x)
        for name in ("sum", "mean", "mean_square", "rms", "min", "max")
    },
    **{
        f"reductions.{name}": lambda lib, x, name=name: getattr(lib.reductions, name)(
            x, lib.reductions.mean(x)
        )
        for name in ("variance", "std_dev")
    },
    "normalize": lambda lib, x: lib.normalize(x),
}
OPS = WINDOWS | RANKS | HISTOGRAMS | SUMMARIES
FLOATING = WINDOWS | RANKS | SUMMARIES  # ops that take float32


def upstream_result(name: str, images: list[np.ndarray]) -> list[np.ndarray]:
    """The oracle's results, or SciPy's for ops that it has on GPUs only."""
    import nvidia.dali.experimental.dynamic as upstream

    if name not in RANKS:
        with upstream.EvalMode.sync_cpu:
            made = OPS[name](upstream, upstream.batch(images, layout="HWC"))
            return [np.array(t) for t in made.tensors]
    filters = {
        "dilate": "maximum_filter",
        "erode": "minimum_filter",
        "median_blur": "median_filter",
    }
    change = getattr(scipy.ndimage, filters[name.split(".")[1]])
    return [change(i, size=(5, 9, 1), mode="nearest") if i.size else i for i in images]


def assert_near(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    """Integers are equal; floats are within 1e-6 of the largest value, and NaN is where it is."""
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * largest)


def found(name: str, images: list[np.ndarray]) -> list[np.ndarray]:
    return arrays(OPS[name](ndd, ndd.batch(images, layout="HWC")))


def noise(shapes: list[tuple[int, ...]], dtype: type = np.uint8) -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [rng.integers(0, 256, s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("name", OPS)
def test_windows_larger_than_the_image_and_single_pixels(name):
    images = noise(SHAPES)
    want = normalized(images) if name == "normalize" else upstream_result(name, images)
    assert_near(found(name, images), [np.asarray(w, np.float32) if name == "normalize" else w
                                      for w in want])  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_empty_samples(name):
    """The others of the batch are computed; reductions of nothing are those of the oracle."""
    images = noise(EMPTY)
    got = found(name, images)
    if name in SUMMARIES and name != "normalize":
        assert_near(got, upstream_result(name, images))
        return
    assert [a.shape for a in got] == EMPTY
    assert_near(got[3:], found(name, images[3:]))


@pytest.mark.parametrize("name", OPS)
def test_constant_images(name):
    """All values are equal: deviations are 0, histograms have one level, windows see no change."""
    for level in (0, 7, 255):
        images = [np.full(s, level, np.uint8) for s in ((9, 11, 3), (1, 1, 3))]
        got = found(name, images)
        if name in ("normalize", "laplacian") or name.endswith(("variance", "std_dev")):
            assert not any(a.any() for a in got)
        elif name in RANKS or name in ("gaussian_blur", "equalize"):
            assert all((a == level).all() for a in got)
        assert_near(got, upstream_result(name, images))


@pytest.mark.parametrize("name", FLOATING)
def test_nan_and_infinity(name):
    """They stay where they are read: the other rows of a batch, and the other images, are finite."""
    plain = noise([(9, 30, 3)], np.float32)[0]
    images = [plain.copy() for _ in range(4)]
    for image, value in zip(images, (np.nan, np.inf, -np.inf), strict=False):
        image[4, 5, 1] = value
    got = found(name, images)
    alone = found(name, [plain])[0]
    assert_near(got[3:], [alone])
    if name in SUMMARIES and name != "normalize":
        assert_near(got, upstream_result(name, images))
        return
    if name == "normalize":
        assert not any(np.isfinite(a).all() for a in got[:3])
        return
    if name not in RANKS:
        assert_near(got, upstream_result(name, images))
    for a in got[:3]:
        far = np.s_[:, 15:]
        np.testing.assert_array_equal(a[far], alone[far])


RAW = {"bilinear_ocv": 4, "edgeaware_ocv": 4, "vng_ocv": 8, "gray_ocv": 4}


@pytest.mark.parametrize("algorithm", RAW)
def test_debayer(algorithm):
    """It has no single pixels: extents are even. Its window is larger than 2×2 and 4×2 images."""
    shapes = [(2, 2), (4, 2), (2, 8), (4, 4), (6, 6)]
    given = dict(blue_position=[0, 1], algorithm=algorithm, layout="HW")
    want = oracle_call("debayer", noise(shapes), **given)[0].arrays
    program = dict(blue_position=[0, 1], algorithm=algorithm)
    got = arrays(ndd.debayer(ndd.batch(noise(shapes), layout="HW"), **program))
    assert_near(got, want)
    empty = [(0, 4), (4, 0), (0, 0), (4, 4)]
    got = arrays(ndd.debayer(ndd.batch(noise(empty), layout="HW"), **program))
    assert [a.shape[:2] for a in got] == empty
    flat = arrays(ndd.debayer(ndd.batch([np.full((8, 10), 7, np.uint8)], layout="HW"), **program))
    assert (flat[0] == 7).all()
