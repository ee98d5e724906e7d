"""Rows of large results, which are stored past the caches."""

import numpy as np
import pytest

import ndd
from ndd.fusion.run import binder
from ndd.kernels.cpu import streamed_rows

SIZES = [(5, 7), (3, 1400), (1, 1), (16, 64), (40, 33), (2, 4500), (0, 3)]


def pictures(dtype: type = np.uint8) -> ndd.Batch:
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (h, w, 3)).astype(dtype) for h, w in SIZES]
    return ndd.batch(images, layout="HWC")


def flipped(x: ndd.Batch) -> ndd.Batch:
    flags = ndd.batch([np.int32(k % 2) for k in range(x.batch_size)])
    return ndd.flip(x, horizontal=flags)


PROGRAMS = {
    "planes": lambda x: ndd.crop_mirror_normalize(x, mean=[1, 2, 3], std=[4, 5, 6]),
    "mirrored planes": lambda x: ndd.crop_mirror_normalize(flipped(x), mean=[1, 2, 3], std=[4]),
    "halves": lambda x: ndd.crop_mirror_normalize(x, mean=[1], std=[3], dtype=ndd.float16),
    "channels": lambda x: ndd.normalize(x, mean=np.float32([[[1, 2, 3]]]), stddev=2),
    "all elements": lambda x: ndd.cast(x, dtype=ndd.float64) * 0.1,
    "bytes": lambda x: ndd.brightness(flipped(x), brightness=1.5, brightness_shift=0.1),
    "blurred planes": lambda x: ndd.crop_mirror_normalize(
        ndd.gaussian_blur(flipped(x), sigma=1.0), mean=[1, 2, 3], std=[4, 5, 6]
    ),
    "resized planes": lambda x: ndd.crop_mirror_normalize(
        ndd.resize(x.slice[:, :, :], size=[13, 29]), mean=[1, 2, 3], std=[4, 5, 6]
    ),
}


@pytest.fixture
def streams(monkeypatch):
    """A function that says whether all results are stored past the caches."""

    def choose(always: bool) -> None:
        monkeypatch.setattr(binder, "is_streamed", lambda nbytes: always)
        binder._templates.clear()

    yield choose
    binder._templates.clear()


def results(program, x: ndd.Batch) -> list[np.ndarray]:
    with ndd.EvalMode.sync_cpu:
        return [np.asarray(t).copy() for t in program(x)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_streamed_results_are_the_same(name, streams):
    x = pictures()
    if name == "resized planes":
        x = ndd.batch([np.asarray(t) for t in x if np.asarray(t).size], layout="HWC")
    streams(False)
    expected = results(PROGRAMS[name], x)
    streams(True)
    for _ in range(2):  # the second time from a template
        found = results(PROGRAMS[name], x)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
def test_neighbouring_samples_share_lines(threads, streams):
    """Samples are so small that several end in one line, which different threads write."""
    streams(True)
    before = ndd.get_num_threads()
    ndd.set_num_threads(threads)
    try:
        values = [np.full((3, 3, 3), k % 256, np.uint8) for k in range(6000)]
        made = ndd.cast(ndd.batch(values, layout="HWC"), dtype=ndd.float32)
        for k, t in enumerate(made):
            assert (np.asarray(t) == k % 256).all()
    finally:
        ndd.set_num_threads(before)


def test_the_size_of_the_result_decides(monkeypatch):
    monkeypatch.setattr(streamed_rows, "stream_from", lambda: 1000)
    assert streamed_rows.is_streamed(1000) and not streamed_rows.is_streamed(999)


def test_the_largest_cache_is_found():
    assert 1 << 17 <= streamed_rows.last_cache_bytes() <= 1 << 34


@pytest.fixture
def asked(monkeypatch):
    """The sizes of results for which somebody asks whether to store them past the caches."""
    sizes: list[int] = []

    def note(nbytes: int) -> bool:
        sizes.append(nbytes)
        return False

    monkeypatch.setattr(binder, "is_streamed", note)
    return sizes


def zeros() -> ndd.Batch:
    return ndd.batch([np.zeros((200, 300, 3), np.uint8)] * 24, layout="HWC")


def test_values_between_steps_are_not_streamed(asked):
    """They are in scratch memory, where the next step reads them while they are hot."""
    with ndd.EvalMode.deferred:
        y = ndd.resize(zeros(), size=[200, 310])
        ndd.resize(y, size=[100, 150], dtype=ndd.float32).evaluate()
    assert asked == [24 * 100 * 150 * 3 * 4]


def test_costly_values_are_not_streamed(asked):
    with ndd.EvalMode.deferred:
        ndd.color_twist(zeros(), hue=20, saturation=1.5, dtype=ndd.float32).evaluate()
        ndd.crop(zeros(), crop=[220, 330], out_of_bounds_policy="clamp").evaluate()
        ndd.pad(zeros(), align=[64, 64, 1]).evaluate()
        assert asked == []
        ndd.cast(zeros(), dtype=ndd.float32).evaluate()
    assert asked == [24 * 200 * 300 * 3 * 4]
