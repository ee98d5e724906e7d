"""The native loop decodes images to the same pixels as Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndd
from ndd.codecs.image.nvimgcodec import nvimgcodec
from ndd.kernels.cpu.decode_loop import nvimgcodec_c
from tests.decoders.fixtures import areas_decoded, as_bytes, files
from tests.helpers import arrays, assert_same, run_python

GOOD = ("jpeg", "jpeg_grey", "jpeg_progressive", "jpeg_422", "jpeg_exif1")
OTHERS = ("png", "jpeg_exif6", "jpeg_cmyk")  # the native loop does not support these


def batch(*names: str) -> ndd.Batch:
    return ndd.batch([as_bytes(files()[name]) for name in names])


def both(program: Any, patch: pytest.MonkeyPatch) -> None:
    """A program gives the same with and without the native loop, and uses it."""
    patch.setattr(nvimgcodec_c, "is_enabled", False)
    with ndd.EvalMode.deferred:
        wanted = arrays(program())
    patch.setattr(nvimgcodec_c, "is_enabled", True)
    assert nvimgcodec_c.library(nvimgcodec) is not None
    with pytest.MonkeyPatch.context() as inner, ndd.EvalMode.deferred:
        inner.setattr("ndd.codecs.image.decode.Images.held", None)  # how Python would decode them
        assert_same(program(), wanted)


def region_of(x: ndd.Batch) -> ndd.Batch:
    return ndd.resize(ndd.crop(x, crop=[9, 11], crop_pos_x=1.0, crop_pos_y=0.3), size=[7, 8])


@pytest.mark.parametrize("colour", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize("part", [False, True])
def test_same_pixels(colour: str, part: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(fast: bool) -> ndd.Batch:
        x = ndd.decoders.image(batch(*GOOD), output_type=colour, use_fast_idct=fast)
        return region_of(x) if part else ndd.flip(x) * 2.0

    for fast in (False, True):
        both(lambda fast=fast: program(fast), monkeypatch)


def test_what_the_loop_leaves_is_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("jpeg", "png", "jpeg_exif6", "jpeg_422", "jpeg_cmyk", "jpeg")
    monkeypatch.setattr(nvimgcodec_c, "is_enabled", False)
    wanted = arrays(region_of(ndd.decoders.image(batch(*names)).evaluate()))
    monkeypatch.setattr(nvimgcodec_c, "is_enabled", True)
    for threads in (1, 3):
        with ndd.EvalContext(num_threads=threads), ndd.EvalMode.deferred:
            assert_same(region_of(ndd.decoders.image(batch(*names))), wanted)


def test_damaged_files_and_those_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = as_bytes(files()["jpeg"])
    cut = whole[: len(whole) * 9 // 10].copy()  # behind the header
    wanted = arrays(ndd.decoders.image(ndd.batch([whole])))[0]
    for _ in range(3):
        with (
            ndd.EvalMode.deferred,
            pytest.raises(ValueError, match=r"sample 1 .*cannot be decoded"),
        ):
            ndd.decoders.image(ndd.batch([whole, cut, whole])).evaluate()
        filled = arrays(ndd.decoders.image(ndd.batch([cut, whole]), on_error="fill"))
        assert not filled[0].any() and np.array_equal(filled[1], wanted)


def test_all_pictures_of_a_plain_batch_are_decoded_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ndd.codecs.image.decode._decoded", None)  # how Python would decode them
    areas = areas_decoded(monkeypatch)
    monkeypatch.setattr("ndd.codecs.image.decode._decoded", None)
    assert len(arrays(ndd.decoders.image(batch(*GOOD)))) == len(areas) == len(GOOD)


def test_another_version_of_the_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    nvimgcodec_c.library.cache_clear()
    monkeypatch.setattr(nvimgcodec_c, "_VERSION", 77)
    try:
        assert nvimgcodec_c.library(nvimgcodec) is None
        assert ndd.decoders.image(batch("jpeg")).evaluate().shape == [(37, 53, 3)]
    finally:
        nvimgcodec_c.library.cache_clear()


def test_the_environment_switches_it_off() -> None:
    code = "from ndd.kernels.cpu.decode_loop import nvimgcodec_c; print(nvimgcodec_c.is_enabled)"
    assert run_python(code, NDD_NATIVE_LOOP="0") == "False"


def test_a_forked_process_decodes_with_decoders_of_its_own() -> None:
    """Decoders of the parent are not used again: helper threads do not survive a fork."""
    code = """
        import os, warnings, ndd
        from ndd.kernels.cpu.decode_loop import decoder
        from tests.decoders.fixtures import as_bytes, files
        from tests.helpers import arrays
        ndd.set_num_threads(1)

        def decoded():
            with ndd.EvalMode.deferred:  # else a thread in the background may decode
                found = arrays(ndd.decoders.image(ndd.batch([as_bytes(files()["jpeg"])] * 3)))
            return found, decoder._own.decoders[False]

        before, first = decoded()
        warnings.simplefilter("ignore", DeprecationWarning)  # os.fork with threads
        child = os.fork()
        after, second = decoded()
        assert all((a == b).all() for a, b in zip(before, after, strict=True))
        assert (first is second) == bool(child)
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            print("both")
    """
    assert run_python(code) == "both"
