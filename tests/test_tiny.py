"""Smoke test of ten seconds: the main job in all modes, its plan, and an error."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from tests.helpers import arrays, kernels, samples


def job(images: ndd.Batch) -> ndd.Batch:
    images = ndd.flip(images, horizontal=1)
    images = ndd.crop(images, crop=(3, 3))
    images = ndd.cast(images, dtype=ndd.float32)
    images = (images - 127.5) / 64.0
    return ndd.transpose(images, perm=[2, 0, 1])


def by_hand(image: np.ndarray) -> np.ndarray:
    top, left = (round((n - 3) * 0.5 + 1e-9) for n in image.shape[:2])
    window = image[:, ::-1][top : top + 3, left : left + 3].astype(np.float32)
    return ((window - np.float32(127.5)) / np.float32(64)).transpose(2, 0, 1)


def test_main_job_in_every_mode(mode: str) -> None:
    data = samples()
    result = job(ndd.batch(data, layout="HWC"))
    assert result.layout == "CHW" and result.shape == [(3, 3, 3)] * 3
    for got, image in zip(arrays(result), data, strict=True):
        np.testing.assert_array_equal(got, by_hand(image))


def test_main_job_is_one_kernel() -> None:
    with ndd.EvalMode.deferred:
        assert kernels(job(ndd.batch(samples(), layout="HWC"))) == 1


def test_wrong_call_says_so(mode: str) -> None:
    with pytest.raises(ValueError, match=r"crop: .*sample 2.*called at .*test_tiny.py:\d+"):
        ndd.crop(ndd.batch(samples(), layout="HWC"), crop=(4, 4))
    assert float(ndd.tensor([1.0, 2.0])[1] + 1) == 3.0
