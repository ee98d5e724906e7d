"""Image decoders: the oracle's pixels for every format, option and region; errors; damaged files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.codecs.image import nvimgcodec as imgcodec
from tests.conformance.modes import MODES, error_everywhere, same_everywhere
from tests.conformance.oracle import ndd_call, oracle_call, record
from tests.decoders.fixtures import areas_decoded, as_bytes, files, photo, with_exif
from tests.helpers import ROOT, arrays, assert_same, line_of, run_python, worker_held

NAMES = tuple(files())
COLOURS = ("RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA")
TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32")
# Upstream crashes on the first file and refuses the others; ndd refuses all of them.
NOT_AS_THEY_ARE = ("jpeg_cmyk", "jpeg_ycck", "png_grey_alpha", "png_16_grey_alpha", "bmp_alpha")


def encoded(*names: str) -> ndd.Batch:
    return ndd.batch([as_bytes(files()[name]) for name in names])


def one(name: str) -> ndd.Tensor:
    return ndd.tensor(as_bytes(files()[name]))


def check(op: str, *names: str, **arguments: Any) -> None:
    """Both libraries give the same bits."""
    inputs = [as_bytes(files()[name]) for name in names]
    (ours,) = ndd_call(op, inputs, **arguments)
    (theirs,) = oracle_call(op, inputs, **arguments)
    where = f"{op} {names} {arguments}"
    assert (ours.dtype, ours.layout, ours.batch) == (theirs.dtype, theirs.layout, True), where
    record(op, ours.arrays, theirs.arrays)
    assert_same(ours.arrays, theirs.arrays, where)


# -- pixels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_format_in_every_colour_space(name: str) -> None:
    for colour in COLOURS:
        if colour == "ANY_DATA" and name in (*NOT_AS_THEY_ARE, "jpeg_grey"):
            continue
        check("decoders.image", name, output_type=colour)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype: str) -> None:
    for name in ("jpeg", "png_16", "tiff_float", "png_1bit", "jpeg_cmyk", "jp2_16"):
        for colour in ("RGB", "GRAY", "YCbCr"):
            check("decoders.image", name, output_type=colour, dtype=dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_samples_of_different_types_in_one_batch(dtype: str) -> None:
    for colour in ("RGB", "GRAY", "YCbCr"):
        check("decoders.image", "jpeg", "png_16", "tiff_float", output_type=colour, dtype=dtype)


def test_samples_with_different_channels() -> None:
    names = ("png", "png_grey", "png_alpha", "png_16_alpha")
    check("decoders.image", *names, output_type="ANY_DATA")
    shapes = [t.shape for t in ndd.decoders.image(encoded(*names), output_type="ANY_DATA")]
    assert [s[2] for s in shapes] == [3, 1, 4, 4]


def test_grey_jpeg_as_it_is() -> None:
    # where upstream 2.4.0 crashes
    grey = ndd.decoders.image(one("jpeg_grey"), output_type="ANY_DATA")
    assert_same(grey, ndd.decoders.image(one("jpeg_grey"), output_type="GRAY"))


@pytest.mark.parametrize("name", NOT_AS_THEY_ARE)
def test_kinds_without_a_plain_form(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be decoded as ANY_DATA"):
        ndd.decoders.image(one(name), output_type="ANY_DATA").evaluate()


def test_jpeg_options() -> None:
    for name in ("jpeg", "jpeg_progressive", "jpeg_422", "jpeg_exif1"):
        for flag in (True, False):
            check("decoders.image", name, use_fast_idct=flag)
            check("decoders.image", name, jpeg_fancy_upsampling=flag)
    fast = ndd.decoders.image(one("jpeg"), use_fast_idct=True)
    assert not np.array_equal(fast, ndd.decoders.image(one("jpeg")))


def test_orientation() -> None:
    turned = [f"jpeg_exif{k}" for k in range(1, 9)]
    turned += ["jpeg_exif6_big", "png_exif6", "tiff_exif3", "tiff_exif6"]
    for flag in (True, False):
        check("decoders.image", *turned, adjust_orientation=flag)
        check("peek_image_shape", *turned, adjust_orientation=flag)
    assert ndd.decoders.image(one("jpeg_exif6")).shape == (53, 37, 3)


def test_orientations_that_mean_nothing() -> None:
    plain = ndd.decoders.image(one("jpeg"))
    for orientation in (0, 9, 65535):
        data = as_bytes(with_exif(files()["jpeg"], orientation))
        assert_same(ndd.decoders.image(ndd.tensor(data)), plain)


def test_arguments_of_upstream_are_accepted() -> None:
    unused = {"affine": False, "cache_size": 100, "cache_type": "threshold", "cache_debug": False,
              "cache_threshold": 5, "cache_batch_copy": True, "device_memory_padding": 0,
              "device_memory_padding_jpeg2k": 0, "host_memory_padding": 0,
              "host_memory_padding_jpeg2k": 0, "hw_decoder_load": 0.5, "split_stages": True,
              "hybrid_huffman_threshold": 10, "memory_stats": True, "preallocate_height_hint": 5,
              "preallocate_width_hint": 5, "use_chunk_allocator": True}  # fmt: skip
    assert_same(ndd.decoders.image(one("jpeg"), **unused), ndd.decoders.image(one("jpeg")))


def test_old_names() -> None:
    assert ndd.experimental.decoders.image is ndd.decoders.image
    assert ndd.experimental.peek_image_shape is ndd.peek_image_shape


# -- regions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_region_equals_a_crop(name: str) -> None:
    whole = np.array(ndd.decoders.image(one(name)))
    height, width = whole.shape[:2]
    rng = np.random.default_rng(0)
    corners = [(0, 0, 1, 1), (0, 0, height, 1), (height - 1, width - 1, height, width)]
    for _ in range(20):
        top, left = rng.integers(0, height), rng.integers(0, width)
        corners.append((top, left, rng.integers(top, height) + 1, rng.integers(left, width) + 1))
    starts = ndd.batch([np.array([left, top], np.int32) for top, left, _, _ in corners])
    ends = ndd.batch([np.array([right, bottom], np.int32) for _, _, bottom, right in corners])
    batch = ndd.batch([as_bytes(files()[name])] * len(corners))
    got = arrays(ndd.decoders.image_slice(batch, start=starts, end=ends))
    assert_same(got, [whole[t:b, left:r] for t, left, b, r in corners], name)


def test_image_crop() -> None:
    names = ("jpeg", "jpeg_exif6", "png_16", "jpeg_exif3")
    check("decoders.image_crop", *names, crop=[20, 30], crop_pos_x=0.1, crop_pos_y=0.9)
    check("decoders.image_crop", *names, crop=[7.6, 3.2], dtype="float32", output_type="YCbCr")
    check("decoders.image_crop", *names, crop_h=10, crop_w=0, rounding="truncate")
    check("decoders.image_crop", *names, use_fast_idct=True, crop=[1, 20, 30])
    check("decoders.image_crop", "jpeg")


def test_image_slice() -> None:
    names = ("jpeg", "jpeg_exif6", "bmp")
    check("decoders.image_slice", *names, start=[5, 6], shape=[20, 10])
    check("decoders.image_slice", *names, rel_start=[0.1, 0.2], rel_end=[0.5, 0.9])
    check("decoders.image_slice", *names, start=[3], end=[9], axis_names="H")
    check("decoders.image_slice", *names, start=[3], end=[9], axes=[-1])
    batch = encoded(*names)
    anchor, shape = np.array([0.1, 0.2], np.float32), np.array([0.5, 0.5], np.float32)
    assert_same(
        ndd.decoders.image_slice(batch, anchor, shape),
        ndd.slice(ndd.decoders.image(batch), anchor, shape),
    )


def test_image_random_crop() -> None:
    batch = encoded("jpeg", "png", "jpeg_exif6")

    def draw(seed: int) -> ndd.Batch:
        return ndd.decoders.image_random_crop(batch, rng=ndd.random.RNG(seed=seed))

    shapes = ndd.peek_image_shape(batch)
    anchor, shape = ndd.random_crop_generator(shapes, rng=ndd.random.RNG(seed=5))
    assert_same(draw(5), ndd.slice(ndd.decoders.image(batch), anchor, shape, axis_names="HW"))
    assert_same(draw(5), draw(5))
    assert draw(5).shape != draw(6).shape


def test_peek_image_shape() -> None:
    for colour in COLOURS:
        check("peek_image_shape", "jpeg", "png_alpha", "jpeg_grey", image_type=colour)
    for dtype in ("int32", "uint32", "int64", "uint64", "float32", "float64"):
        check("peek_image_shape", "jpeg", dtype=dtype)


# -- as a node -----------------------------------------------------------------------------------


def test_shapes_are_known_before_decoding() -> None:
    with ndd.EvalMode.deferred:
        x = ndd.decoders.image(encoded("jpeg", "png_grey"), output_type="GRAY", dtype=ndd.float32)
        assert (x.shape, x.dtype, x.layout) == ([(37, 53, 1)] * 2, ndd.float32, "HWC")
        assert x._node.storage is None


def test_the_same_bits_in_every_mode() -> None:
    same_everywhere(
        lambda: ndd.flip(
            ndd.decoders.image(encoded("jpeg", "jpeg_exif6", "png"), dtype=ndd.float32)
        )
    )


def test_conversions_fuse_with_what_follows() -> None:
    x = ndd.decoders.image(encoded("jpeg", "png"), output_type="YCbCr", dtype=ndd.float32)
    y = ndd.flip(x) * 2.0
    del x
    assert len(ndd.explain(y).kernels) == 1


def first_part(batch: ndd.Batch) -> ndd.Batch:
    return ndd.crop(batch, crop=[9, 11], crop_pos_x=0.9, crop_pos_y=0.2)


FOLLOWING = {
    "crop": first_part,
    "slice": lambda x: ndd.slice(x, [5, 7], [20, 30], axes=[0, 1], normalized_anchor=False,
                                 normalized_shape=False),
    "index": lambda x: x.slice[3:20:4, 50:30:-3],
    "turned": lambda x: ndd.transpose(ndd.flip(first_part(x)), perm=[2, 1, 0]) * 2.0,
    "outside": lambda x: ndd.slice(x, [-6, 40], [20, 30], axes=[0, 1], normalized_anchor=False,
                                   normalized_shape=False, out_of_bounds_policy="pad",
                                   fill_values=[9.0]),
    "roi": lambda x: ndd.resize(x, size=[8, 9], roi_start=[0.1, 0.8], roi_end=[0.4, 0.55],
                                roi_relative=True),
    "cropped later": lambda x: first_part(ndd.resize(x, size=[40, 77], antialias=False)),
    "cropped before": lambda x: ndd.resize(ndd.flip(first_part(x)), size=[30, 31]),
    "nearest": lambda x: first_part(ndd.resize(x, size=[90, 20], interp_type=ndd.types.INTERP_NN)),
    "random": lambda x: ndd.random_resized_crop(x, size=[7, 6], random_area=[0.1, 0.2],
                                                rng=ndd.random.RNG(seed=5)),
    "two": lambda x: first_part(x) + ndd.crop(x, crop=[9, 11]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWING)
def test_only_what_is_read_is_decoded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded("jpeg", "jpeg_exif6", "png", "jpeg_progressive")
    whole = ndd.decoders.image(data).evaluate()
    wanted = arrays(FOLLOWING[name](whole))
    decoded = areas_decoded(monkeypatch)
    with ndd.EvalMode.deferred:
        result = FOLLOWING[name](ndd.decoders.image(data))
        before = ndd.explain(result).groups[0]
        assert_same(result, wanted)
        assert len(decoded) == 4 and sum(decoded) < 0.75 * 4 * 37 * 53
        for told in (before, ndd.explain(result).groups[0]):
            assert (told.written_bytes, told.whole_bytes) == (3 * sum(decoded), 3 * 4 * 37 * 53)
        # an image that is read itself is decoded as a whole, the second time right away
        for _ in range(2):
            del decoded[:]
            images = ndd.decoders.image(data)
            assert_same(FOLLOWING[name](images), wanted)
            assert_same(images, arrays(whole))
    assert decoded == [37 * 53] * 4


def test_a_training_step_is_one_kernel() -> None:
    """A number that a call needs at once does not flush the calls before it."""
    with ndd.EvalMode.eager, worker_held():
        x = ndd.decoders.image(encoded("jpeg", "png"))
        x = ndd.random_resized_crop(x, size=[8, 9])
        mirror = ndd.random.coin_flip(batch_size=2)
        x = ndd.crop_mirror_normalize(x, mirror=mirror, mean=[9.0], std=[2.0], dtype=ndd.float32)
        plan = ndd.explain(x)
        assert len(plan.kernels) == 1 and [g.kind for g in plan.groups] == ["opaque", "kernel"]
        x.evaluate()


def test_what_is_read_anywhere_is_decoded_as_a_whole() -> None:
    data = encoded("jpeg", "png")
    whole = ndd.decoders.image(data).evaluate()
    turned = arrays(ndd.rotate(whole, angle=ndd.batch([20.0, 45.0])))
    with ndd.EvalMode.deferred:
        assert_same(ndd.rotate(ndd.decoders.image(data), angle=ndd.batch([20.0, 45.0])), turned)
        assert_same(ndd.decoders.image(data) * 1.0, arrays(whole * 1.0))


def test_a_part_of_a_picture_goes_to_the_simulated_gpu() -> None:
    out = run_python(
        """
        import numpy as np
        import ndd
        import pytest
        from tests.decoders.fixtures import areas_decoded
        from tests.decoders.test_image import FOLLOWING, encoded
        decoded = areas_decoded(pytest.MonkeyPatch())
        data = encoded("jpeg", "jpeg_exif6", "png")
        for name in ("turned", "roi"):
            with ndd.EvalMode.deferred:
                wanted = FOLLOWING[name](ndd.decoders.image(data))
                got = FOLLOWING[name](ndd.decoders.image(data, device="gpu"))
                assert got.device.device_type == "gpu"
                for a, b in zip(got.cpu(), wanted, strict=True):
                    assert np.array_equal(a, b), name
        print(len(decoded), sum(decoded) < 0.75 * 12 * 37 * 53)
        """,
        NDD_GPU="simulate",
    )
    assert out == "12 True"


def test_on_the_simulated_gpu() -> None:
    out = run_python(
        """
        import numpy as np
        import ndd
        from tests.decoders.fixtures import as_bytes, files
        data = ndd.batch([as_bytes(files()[n]) for n in ("jpeg", "png_16")])
        for options in ({}, {"output_type": "YCbCr", "dtype": ndd.float32}):
            x = ndd.decoders.image(data, device="gpu", **options)
            assert x.device.device_type == "gpu"
            for a, b in zip(x.cpu(), ndd.decoders.image(data, **options), strict=True):
                assert np.array_equal(a, b)
        x = ndd.decoders.image_crop(data, crop=[4, 5], device="gpu")
        print(x.device, x.shape)
        """,
        NDD_GPU="simulate",
    )
    assert out == "gpu:0 [(4, 5, 3), (4, 5, 3)]"


def test_threads_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encoded(*(n for n in NAMES if n != "pnm_text"))
    with ndd.EvalContext(num_threads=1):
        first = ndd.decoders.image(batch).evaluate()
    with ndd.EvalContext(num_threads=8):
        assert_same(ndd.decoders.image(batch), first)


# -- files ---------------------------------------------------------------------------------------


def test_imread(tmp_path: Path) -> None:
    for name in ("jpeg", "png_grey"):
        (tmp_path / name).write_bytes(files()[name])
    picture = ndd.imread(tmp_path / "jpeg")
    assert isinstance(picture, ndd.Tensor)
    assert_same(picture, ndd.decoders.image(one("jpeg")))
    paths = [str(tmp_path / "jpeg"), tmp_path / "png_grey"]
    both = ndd.imread(paths, output_type="GRAY", dtype=ndd.float32)
    wanted = ndd.decoders.image(encoded("jpeg", "png_grey"), output_type="GRAY", dtype=ndd.float32)
    assert_same(both, wanted)
    with pytest.raises(FileNotFoundError, match=r"imread: cannot read .*nothing\.jpg") as caught:
        ndd.imread(str(tmp_path / "nothing.jpg"))
    assert line_of(caught.value).startswith("test_image.py:")
    with pytest.raises(ValueError, match="imread: no files"):
        ndd.imread([])


def test_numpy_files(tmp_path: Path) -> None:
    def saved(array: Any) -> Any:
        np.save(tmp_path / "x.npy", array)
        return as_bytes((tmp_path / "x.npy").read_bytes())

    plain = np.arange(12, dtype=np.float32).reshape(3, 4) / 2
    batch = ndd.batch([saved(plain), saved(np.asfortranarray(plain[:2]))])
    assert_same(ndd.decoders.numpy(batch), [plain, plain[:2]])
    (theirs,) = oracle_call("decoders.numpy", [saved(plain)], dtype="uint8")
    assert_same(ndd.decoders.numpy(ndd.batch([saved(plain)]), dtype=ndd.uint8), theirs.arrays)
    for array in (np.int64(3), np.zeros((0, 3)), plain.astype(">f4"), np.array([True, False])):
        got = np.asarray(ndd.decoders.numpy(ndd.tensor(saved(array))))
        np.testing.assert_array_equal(got, array)
    bad = {
        "the data ends before": saved(plain)[:-1],
        "arrays of object are not supported": as_bytes(
            b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
            + b" " * 14 + b"\n"
        ),
        "are not a .npy file": as_bytes(b"nonsense"),
    }  # fmt: skip
    bad["the data is longer"] = np.concatenate([saved(plain), saved(plain)[:3]])
    versioned = saved(plain).copy()
    versioned[6] = 9
    bad[r"its version \(9, 0\) is unknown"] = versioned
    for text, data in bad.items():
        with pytest.raises(ValueError, match=f"decoders.numpy: sample 0: .*{text}"):
            ndd.decoders.numpy(ndd.tensor(data))
    with pytest.raises(TypeError, match="different types, so `dtype` is needed: f32, i64"):
        ndd.decoders.numpy(ndd.batch([saved(plain), saved(np.zeros((1, 1), np.int64))]))


@pytest.mark.parametrize("name", ["u8", "i8", "i32", "u64", "i64", "f32", "f64", "bool"])
def test_numpy_files_of_several_types(name: str) -> None:
    """Converted as upstream converts them: rounded, halves away from zero, and saturated."""
    files = []
    for array in (
        np.arange(3, dtype=np.int32), np.array([1.5, 2.5, -3.5, 300], np.float32),
        np.array([True, False]), np.array([0.5, -0.5]), np.array([70000, -70000]),
        np.array([], np.uint16),
    ):  # fmt: skip
        stream = io.BytesIO()
        np.save(stream, array)
        files.append(as_bytes(stream.getvalue()))
    dtype = str(np.dtype(ndd.dtype(name).np))
    (theirs,) = oracle_call("decoders.numpy", files, dtype=dtype)
    got = ndd.decoders.numpy(ndd.batch(files), dtype=ndd.dtype(name))
    assert str(got.dtype) == theirs.dtype
    record("decoders.numpy", arrays(got), theirs.arrays)
    assert_same(got, theirs.arrays)


# -- errors --------------------------------------------------------------------------------------


def broken(name: str = "jpeg") -> Any:
    """A file with a valid header and truncated pixels."""
    return as_bytes(files()[name][: len(files()[name]) * 3 // 4])


def named(batch: ndd.Batch, *sources: str) -> ndd.Batch:
    """The same files with names."""
    return ndd.Batch._of(batch._node.like(source_info=list(sources)))


def test_no_image() -> None:
    bad = ndd.batch([as_bytes(files()["jpeg"]), as_bytes(b"hello, world")])
    text = "decoders.image: sample 1: 12 bytes that begin with b'hello, w' are not an image"
    error_everywhere(ValueError, text, lambda: ndd.decoders.image(bad))
    bad = named(bad, "a.jpg", "b/c.jpg")
    error_everywhere(ValueError, "sample 1 (b/c.jpg): 12 bytes", lambda: ndd.decoders.image(bad))
    empty = ndd.tensor(np.zeros(0, np.uint8))
    error_everywhere(ValueError, "sample 0: there is no data", lambda: ndd.decoders.image(empty))


def test_damaged_pixels() -> None:
    bad = named(ndd.batch([as_bytes(files()["jpeg"]), broken()]), "a.jpg", "b.jpg")
    messages = set()
    for mode in MODES:
        with mode, pytest.raises(ValueError) as caught:
            ndd.decoders.image(bad, dtype=ndd.float32).evaluate()
        messages.add(str(caught.value))
        assert line_of(caught.value).startswith("test_image.py:")
        assert ndd.decoders.image(one("png")).evaluate().shape == (37, 53, 3)
    (message,) = messages
    text = "decoders.image: sample 1 (b.jpg, jpeg): its pixels cannot be decoded as RGB"
    assert message.startswith(text)


def test_wrong_arguments() -> None:
    jpeg = one("jpeg")
    error_everywhere(
        TypeError, "encoded data must be one-dimensional uint8",
        lambda: ndd.decoders.image(ndd.zeros(shape=[4, 4], dtype=ndd.uint8)),
    )  # fmt: skip
    error_everywhere(
        TypeError, "`dtype` must be one of", lambda: ndd.decoders.image(jpeg, dtype=ndd.float64)
    )
    error_everywhere(
        ValueError, "`on_error` must be", lambda: ndd.decoders.image(jpeg, on_error="ignore")
    )
    error_everywhere(
        ValueError, 'use device="gpu"', lambda: ndd.decoders.image(jpeg, device="mixed")
    )
    error_everywhere(
        ValueError, "the window [-2…38, 12…42] leaves the image of 37x53 pixels: sample 0",
        lambda: ndd.decoders.image_crop(jpeg, crop=[40, 30]),
    )  # fmt: skip
    error_everywhere(
        ValueError, "leaves the image of 37x53 pixels",
        lambda: ndd.decoders.image_slice(jpeg, start=[5, 6], shape=[200, 10]),
    )  # fmt: skip
    error_everywhere(
        ValueError, "axis 2 is out of range",
        lambda: ndd.decoders.image_slice(jpeg, start=[0], shape=[1], axes=[2]),
    )  # fmt: skip


def test_too_many_pixels() -> None:
    before = ndd.decoders.get_max_pixels()
    assert before == 2**28
    try:
        ndd.decoders.set_max_pixels(37 * 53 - 1)
        with pytest.raises(ValueError, match="gives 37x53 pixels, more than the limit of 1960"):
            ndd.decoders.image(one("jpeg"))
        ndd.decoders.set_max_pixels(37 * 53)
        assert ndd.decoders.image(one("jpeg")).shape == (37, 53, 3)
    finally:
        ndd.decoders.set_max_pixels(before)
    with pytest.raises(ValueError, match="a positive integer is needed, got 0"):
        ndd.decoders.set_max_pixels(0)
    # a header of a few bytes claims 65500×65500 pixels
    bomb = as_bytes(b"P6 65500 65500 255\n" + bytes(64))
    with pytest.raises(ValueError, match="more than the limit of 268435456"):
        ndd.decoders.image(ndd.tensor(bomb))


def jpegs_of(batch: ndd.Batch) -> list[Path]:
    return [Path(name) for name in batch._node.source_info]


class TestOnError:
    """Policies for samples that cannot be decoded."""

    batch_of = ("jpeg", "png")

    @pytest.fixture(autouse=True)
    def empty_ledger(self) -> None:
        ndd.decoders.errors.clear()

    def batch(self) -> ndd.Batch:
        good = [as_bytes(files()[n]) for n in self.batch_of]
        nothing = as_bytes(b"nothing at all")
        return named(ndd.batch([broken(), good[0], nothing, good[1]]), *"abcd")

    def ledger(self) -> list[tuple[str, int]]:
        return sorted((e.file, e.index) for e in ndd.decoders.errors)

    def test_fill(self, mode: str) -> None:
        x = ndd.decoders.image(self.batch(), on_error="fill", dtype=ndd.float32)
        zeros = np.zeros((37, 53, 3), np.float32)
        good = arrays(ndd.decoders.image(encoded(*self.batch_of), dtype=ndd.float32))
        assert_same(x, [zeros, good[0], zeros, good[1]])
        assert x.valid.tolist() == [False, True, False, True]
        assert self.ledger() == [("a", 0), ("c", 2)]
        assert "sample 0 (a, jpeg)" in str(min(ndd.decoders.errors, key=lambda e: e.index).cause)

    def test_there_is_no_skip(self, mode: str) -> None:
        """Another picture would stand beside the label of the bad one."""
        for decode in (ndd.decoders.image, ndd.decoders.image_crop, ndd.decoders.audio):
            with pytest.raises(
                ValueError, match=r"would put other samples .*use on_error=\"fill\""
            ):
                decode(self.batch(), on_error="skip")

    def test_bad_samples_are_dropped_with_their_labels(self, mode: str) -> None:
        labels = ndd.batch([0, 1, 2, 3])
        x = ndd.decoders.image_crop(self.batch(), on_error="fill", crop=[4, 5])
        good = arrays(ndd.decoders.image_crop(encoded(*self.batch_of), crop=[4, 5]))
        assert_same(x.tensors[x.valid], good)
        assert labels.tensors[x.valid].torch().tolist() == [1, 3]
        assert self.ledger() == [("a", 0), ("c", 2)]

    def test_function(self) -> None:
        seen = []

        def instead(error: Any) -> Any:
            seen.append((error.file, error.index, type(error.cause)))
            return photo(3, 4) if error.file == "a" else None

        x = ndd.decoders.image(self.batch(), on_error=instead)
        good = arrays(ndd.decoders.image(encoded(*self.batch_of)))
        assert_same(x, [photo(3, 4), good[0], np.zeros((37, 53, 3), np.uint8), good[1]])
        assert x.valid.tolist() == [False, True, False, True]
        assert seen == [("a", 0, ValueError), ("c", 2, ValueError)]
        with pytest.raises(TypeError, match="must give an image of u8 and layout HWC, got float64"):
            ndd.decoders.image(self.batch(), on_error=lambda _: np.zeros((2, 2, 3)))

    def test_nothing_is_left(self) -> None:
        bad = ndd.tensor(as_bytes(b"nothing at all"))
        assert ndd.decoders.image(bad, on_error="fill").shape == (1, 1, 3)

    def test_a_bad_image_is_noted_once(self) -> None:
        """Its place in the batch does not matter; files without a name are told apart by their errors."""
        good, bad = as_bytes(files()["jpeg"]), as_bytes(b"nothing at all")
        for order, names in (((bad, good), "ab"), ((good, bad), "ba"), ((bad, bad), "ca")):
            ndd.decoders.image(named(ndd.batch(list(order)), *names), on_error="fill")
        assert self.ledger() == [("a", 0), ("c", 0)]
        ndd.decoders.errors.clear()
        for data in (b"one", b"two", b"one"):
            ndd.decoders.image(ndd.batch([as_bytes(data), good]), on_error="fill")
        assert self.ledger() == [("", 0), ("", 0)]
        assert ["one" in str(e.cause) for e in ndd.decoders.errors] == [True, False]

    def test_of_parts_and_in_advance(self, tmp_path: Path) -> None:
        """A loop over a reader: only regions of the images are decoded, in advance."""
        paths = [tmp_path / f"{k:02d}.jpg" for k in range(16)]
        for k, path in enumerate(paths):
            data = files()["jpeg"]
            path.write_bytes(data[:300] if k == 5 else b"" if k in (9, 14) else data)

        def run(policy: Any, prefetch: int) -> tuple[Any, ...]:
            ndd.decoders.errors.clear()
            ndd.random.set_seed(1)
            missing = [*paths[:7], tmp_path / "none.jpg", *paths[7:]]
            reader = ndd.readers.File(files=missing, on_error="skip")
            seen: list[Any] = []
            bad: list[str] = []
            for jpegs, _ in reader.next_epoch(4, prefetch=prefetch):
                x = ndd.decoders.image(jpegs, on_error=policy)
                x = ndd.random_resized_crop(x, size=[5, 6])
                seen.append([a.tobytes() for a in arrays(x)])
                bad.extend(f.name for f, ok in zip(jpegs_of(jpegs), x.valid, strict=True) if not ok)
            assert [len(s) for s in seen] == [4] * 5
            assert bad == ["05.jpg", "09.jpg", "14.jpg"]
            assert [(Path(e.file).name, e.index) for e in reader.errors] == [("none.jpg", 7)]
            return seen, [(Path(f).name, index) for f, index in self.ledger()]

        for policy in ("fill", lambda _: np.zeros((3, 4, 3), np.uint8)):
            wanted = run(policy, 0)
            assert wanted[1] == [("05.jpg", 1), ("09.jpg", 2), ("14.jpg", 3)]
            assert run(policy, 2) == wanted

    def test_missing_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.jpg").write_bytes(files()["jpeg"])
        paths = [tmp_path / "none.jpg", tmp_path / "a.jpg"]
        images = ndd.imread(paths, on_error="fill")
        assert_same(images.tensors[images.valid], [np.array(ndd.imread(paths[1]))])
        assert self.ledger() == [(str(paths[0]), 0)]


# -- damaged files -------------------------------------------------------------------------------


def test_damaged_files_never_crash() -> None:
    """Decode damaged files; 20,000 of them with NDD_STRESS=1."""
    count = 20_000 if os.environ.get("NDD_STRESS") == "1" else 1_400
    done = subprocess.run(
        [sys.executable, "-m", "tests.decoders.mutate", str(count)],
        cwd=ROOT, capture_output=True, text=True, timeout=60 + count / 20, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-2000:]}"
    result = json.loads(done.stdout)
    assert result["decoded"] > count / 10
    assert result["refused"] > count / 10
    assert result["decoded"] + result["refused"] >= count
    assert result["grown_mb"] < 200, result


def test_jpeg2000_headers_are_checked_first() -> None:
    """See NOTE [JP2 headers are checked here]."""
    data = bytearray(files()["jp2"])
    at = data.index(b"\xff\x51") + 3
    data[at] -= 1  # the length of SIZ
    with pytest.raises(ValueError, match=r"the JPEG 2000 header is damaged .*SIZ: its length"):
        ndd.decoders.image(ndd.tensor(as_bytes(bytes(data))))


def test_notes_about_gpu_libraries_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """A plain install has no GPU libraries, and nvimgcodec says so five times when it is loaded."""
    with imgcodec.without_notes():
        os.write(2, b"Failed to load nvjpeg library! Please install CUDA toolkit\n")
        os.write(2, b"Note: If using nvImageCodec's Python distribution, it is enough\nof others\n")
    assert capfd.readouterr().err == "of others\n"


def test_nothing_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ndd, numpy as np\n"
         "data = np.frombuffer(b'P6 9 9 255 abc', np.uint8)\n"
         "ndd.decoders.image(ndd.tensor(data), on_error='fill').evaluate()"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
