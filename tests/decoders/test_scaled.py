"""Scaled decoding: close to exact decoding, only where it is asked for and where enough pixels are left."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from PIL import Image

import ndd

pytest.importorskip("simplejpeg")
HEIGHT, WIDTH = 360, 484


def picture(k=0, height=HEIGHT, width=WIDTH):
    rows, columns, channels = np.mgrid[0:height, 0:width, 0:3]
    waves = np.sin(rows / 23 + channels + k) + np.cos(columns / 31) + (columns > width // 2)
    return np.uint8(np.clip(100 + 45 * waves, 0, 255))


def file(pixels, kind="JPEG", **options):
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, kind, quality=92, **options)
    return np.frombuffer(target.getvalue(), np.uint8)


def turned(pixels):
    exif = Image.Exif()
    exif[0x0112] = 6
    return file(pixels, exif=exif.tobytes())


JPEG = file(picture())


def small(files, size, scaled=None, **options):
    x = ndd.decoders.image(ndd.batch(files), scaled_decode=scaled, **options)
    return ndd.resize(x, size=size)


def arrays(batch):
    return [np.array(t) for t in batch.tensors]


def is_scaled(files, size, scaled=None):
    with ndd.EvalMode.deferred:
        return "(scaled)" in str(ndd.explain(small(files, size, scaled)))


def psnr(a, b):
    return 10 * np.log10(255**2 / max(((a.astype(float) - b) ** 2).mean(), 1e-9))


@pytest.mark.parametrize("size, factor", [((90, 121), 2), ((45, 60), 4), ((22, 30), 8)])
def test_scaled_is_close_to_exact(size, factor):
    assert is_scaled([JPEG], size, True)
    for mode in ("deferred", "eager", "sync_cpu"):
        with getattr(ndd.EvalMode, mode):
            [exact], [scaled] = arrays(small([JPEG], size)), arrays(small([JPEG], size, True))
        assert scaled.shape == exact.shape and psnr(scaled, exact) > 42
        assert not np.array_equal(scaled, exact)


def test_twice_the_target_is_left():
    """A side of 360 may become 180, for a target of up to 90."""
    assert is_scaled([JPEG], (90, 100), True)
    assert not is_scaled([JPEG], (91, 100), True)
    exact, scaled = (arrays(small([JPEG], (91, 100), s))[0] for s in (False, True))
    np.testing.assert_array_equal(scaled, exact)


def test_only_where_it_is_asked_for():
    size = (45, 60)
    assert not is_scaled([JPEG], size)
    with ndd.fusion_options(scaled_decode=True):
        assert is_scaled([JPEG], size)
        assert not is_scaled([JPEG], size, False)
    assert not is_scaled([JPEG], size)


def test_what_cannot_be_scaled_is_exact():
    """Other formats, rotated photos and photos that are small enough, in one batch with a JPEG."""
    files = [file(picture(1), "PNG"), turned(picture(2)), file(picture(3, 60, 80)), JPEG]
    exact, scaled = (arrays(small(files, (40, 50), s)) for s in (False, True))
    for k in range(3):
        np.testing.assert_array_equal(scaled[k], exact[k])
    assert not np.array_equal(scaled[3], exact[3]) and psnr(scaled[3], exact[3]) > 42


def test_grey_and_single_pixels():
    grey = {"output_type": "GRAY"}
    exact, scaled = (arrays(small([JPEG], (45, 60), s, **grey))[0] for s in (False, True))
    assert exact.shape == (45, 60, 1) and psnr(scaled, exact) > 42
    with ndd.EvalMode.deferred:
        x = ndd.decoders.image(ndd.batch([JPEG]), scaled_decode=True)
        for options in ({"antialias": False}, {"interp_type": "INTERP_NN"}):
            assert "(scaled)" not in str(ndd.explain(ndd.resize(x, size=[20, 20], **options)))


def test_windows_stay_where_they_are():
    """A region of interest and a random window, mirrored in one direction."""
    for call in (
        lambda x: ndd.resize(x, size=[20, 25], roi_start=[0.1, 0.9], roi_end=[0.8, 0.2], roi_relative=True),
        lambda x: ndd.random_resized_crop(
            x, size=[16, 20], random_area=[0.5, 0.9], rng=ndd.random.RNG(seed=3)
        ),
    ):  # fmt: skip
        with ndd.EvalMode.deferred:
            made = [ndd.decoders.image(ndd.batch([JPEG]), scaled_decode=s) for s in (False, True)]
            results = [call(x) for x in made]
            assert "(scaled)" in str(ndd.explain(results[1]))
            exact, scaled = (arrays(r)[0] for r in results)
        assert psnr(scaled, exact) > 38


def test_the_picture_itself_stays_exact():
    x = ndd.decoders.image(ndd.batch([JPEG]), scaled_decode=True)
    y = ndd.resize(x, size=[20, 25])
    assert arrays(y)[0].shape == (20, 25, 3)
    np.testing.assert_array_equal(arrays(x)[0], arrays(ndd.decoders.image(ndd.batch([JPEG])))[0])


def test_damaged_files():
    damaged = JPEG[: len(JPEG) // 8].copy()
    with pytest.raises(ValueError, match=r"sample 1 \(jpeg\): its pixels cannot be decoded"):
        small([JPEG, damaged], (20, 25), True).evaluate()
    filled = arrays(small([JPEG, damaged], (20, 25), True, on_error="fill"))
    assert filled[0].any() and not filled[1].any()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(
        ImportError, match=r"`scaled_decode` needs .*: pip install .ndd-fusion\[scaled\]"
    ):
        small([JPEG], (20, 25), True)
