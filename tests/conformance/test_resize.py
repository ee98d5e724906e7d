"""The resize family against the oracle: filters, sizes, regions, layouts, types, errors."""

from __future__ import annotations

import numpy as np
import nvidia.dali.types as upstream_types
import pytest

import ndd
from tests.conformance.oracle import check, compare, ndd_call, oracle_call, per_sample
from tests.reference import resample

F32 = np.float32
KINDS = range(6)  # NN LINEAR CUBIC LANCZOS3 TRIANGULAR GAUSSIAN
RTOL = 1e-6  # one unit in the last place of floats between 1 and 2


def images(seed: int, shapes, dtype=np.uint8) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return [(1 + rng.random(s)).astype(dtype) for s in shapes]
    low = -300 if np.dtype(dtype).kind == "i" else 0
    high = 256 if dtype == np.uint8 else 3000
    return [rng.integers(low, high, s).astype(dtype) for s in shapes]


PHOTOS = [(40, 61, 3), (97, 33, 3), (7, 5, 3)]


def agree(op: str, x, layout="HWC", **arguments):
    """Both libraries agree. Resized unsigned integers are equal, those of windows included. Of signed
    integers (upstream rounds values between -0.5 and 0 to -1), one in ten thousand may be off by
    one."""
    got, want = (f(op, x, layout=layout, **arguments) for f in (ndd_call, oracle_call))
    exact = op != "random_resized_crop" and x[0].dtype in (np.uint8, np.uint16)
    compare(op, got, want, exact=exact, max_off=1e-4, rtol=RTOL)
    return got


# -- filters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_filters(kind, dtype):
    x = images(kind, PHOTOS, dtype)
    for antialias in (True, False):
        # the scales 2/3, 3/4 and 2 make halves up to the last bits, which must be right, too
        for size in ([23.0, 37.0], [60.0, 44.0], [30.0, 122.0], [3.0, 5.0]):
            agree("resize", x, size=size, interp_type=np.int32(kind), antialias=antialias)


# From extents to extents: all orders of the three passes, and scales that make halves.
VOLUMES = [
    ((10, 31, 23), (36, 2, 5)), ((13, 4, 33), (17, 5, 23)), ((7, 9, 13), (14, 18, 26)),
    ((12, 23, 15), (6, 11, 7)), ((16, 3, 18), (12, 2, 13)), ((8, 8, 5), (21, 21, 24)),
    ((9, 21, 12), (13, 31, 18)), ((2, 5, 30), (30, 9, 2)), ((1, 13, 3), (1, 13, 34)),
    ((13, 4, 14), (26, 15, 32)), ((18, 7, 12), (20, 33, 24)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_volumes(kind, dtype):
    """Equal bits: the axes are interpolated one by one, in upstream's order."""
    seen = set()
    for number, (before, after) in enumerate(VOLUMES):
        x = images(number, [(*before, 1 + number % 3)], dtype)
        for antialias in (True, False):
            arguments = {
                "size": [float(n) for n in after], "interp_type": np.int32(kind),
                "antialias": antialias,
            }  # fmt: skip
            got, want = (
                f("resize", x, layout="DHWC", **arguments) for f in (ndd_call, oracle_call)
            )
            compare("resize", got, want, exact=True, rtol=0)
            seen.add(passes(before, after, resample.KINDS[kind], antialias))
    assert kind == 0 or len(seen) == 6


def passes(before, after, kind: str, antialias: bool) -> tuple[int, ...]:
    numbers = []
    for n, m in zip(before, after, strict=True):
        r, count = np.float32(0.5), 1
        if kind != "nn":
            _, r, count = resample.spread(kind, resample.radius(kind, m, 0, n, antialias))
        numbers.append((n, m, 0, n, r, count))
    return tuple(resample.order(numbers))


@pytest.mark.parametrize("kind", KINDS)
def test_regions(kind):
    """Regions that are fractional, far from the origin, or reversed, where rounding of positions matters."""
    rng = np.random.default_rng(kind)
    x = images(kind, [(190, 210, 3)] * 4)
    for size in ([64.0, 64.0], [50.0, 301.0]):
        corners = rng.uniform(0, 1, (2, 4, 2)).astype(F32) * F32([190, 210])
        corners[1] = np.where(np.abs(corners[0] - corners[1]) < 3, corners[0] / 2, corners[1])
        start, end = (per_sample(list(c)) for c in corners)
        agree("resize", x, size=size, roi_start=start, roi_end=end, interp_type=np.int32(kind))


def test_region_outside():
    """Border pixels are repeated. (Far outside, upstream crashes; with NN it reads other memory.)"""
    x = images(5, PHOTOS, np.float32)
    roi = {"roi_start": [-0.3, -0.2], "roi_end": [1.2, 1.4], "roi_relative": True}
    agree("resize", x, size=[31.0, 45.0], **roi)
    far = ndd_call(
        "resize", x, layout="HWC", size=[2.0, 2.0], roi_start=[500.0, 500.0], roi_end=[510.0, 600.0]
    )[0]
    for result, image in zip(far.arrays, x, strict=True):
        np.testing.assert_allclose(result, np.broadcast_to(image[-1, -1], (2, 2, 3)), rtol=1e-6)
    nearest = ndd_call(
        "resize",
        x,
        layout="HWC",
        size=[4.0, 1.0],
        interp_type=0,
        roi_start=[-9.0, 0.0],
        roi_end=[-1.0, 1.0],
    )[0]
    for result, image in zip(nearest.arrays, x, strict=True):
        np.testing.assert_array_equal(result, np.broadcast_to(image[0, 0], (4, 1, 3)))


def test_empty_region_is_widened():
    x = images(6, PHOTOS, np.float32)
    agree("resize", x, size=[4.0, 3.0], roi_start=[2.3, 1.0], roi_end=[2.3, 1.0])
    agree("resize", x, resize_y=4.0, roi_start=[2.0, 1.0], roi_end=[2.0, 4.0], mode="stretch")


def test_halves_are_rounded_as_upstream_does():
    """Scales of two make exact halves, which upstream rounds to even in SIMD blocks, else away from zero."""
    rng = np.random.default_rng(1)
    for dtype in (np.uint8, np.uint16):
        for layout in ("HWC", "CHW"):
            for _ in range(12):
                h, w = (int(v) for v in rng.integers(1, 90, 2))
                sy, sx = rng.choice([0.5, 1.0, 2.0, 4.0], 2)
                shape = [max(1, int(h * sy)), max(1, int(w * sx))]
                size = [max(1.0, shape[0] / sy), max(1.0, shape[1] / sx)]
                shape.insert(0 if layout == "CHW" else 2, 3)
                x = images(int(rng.integers(99)), [tuple(shape)], dtype)
                aa = bool(rng.integers(2))
                check("resize", x, layout=layout, size=[float(int(v)) for v in size], antialias=aa,
                      exact=float(int(size[0])) == size[0] and float(int(size[1])) == size[1])  # fmt: skip


def test_positions_of_nearest_pixels():
    """Ties are decided by rounding: 6.5 * 100 / 13 is 50, but row 6 is taken from row 49."""
    rows = np.arange(100, dtype=F32).reshape(100, 1, 1)
    for n_out in (13, 92, 247, 60):
        got = agree("resize", [rows], size=[float(n_out), 1.0], interp_type=np.int32(0))
        want = resample.nn_positions(100, n_out, 0, 100, innermost=False)
        np.testing.assert_array_equal(got[0].arrays[0].ravel(), want)
        agree(
            "resize", [rows.transpose(1, 0, 2)], size=[1.0, float(n_out)], interp_type=np.int32(0)
        )


def test_min_and_mag_filters():
    x = images(8, PHOTOS)
    for smaller, larger in ((0, 1), (1, 0), (2, 5)):
        filters = {"min_filter": np.int32(smaller), "mag_filter": np.int32(larger)}
        for size in ([20.0, 100.0], [61.0, 33.0], [97.0, 40.0]):
            agree("resize", x, size=size, **filters)
    agree("resize", x, size=[20.0, 80.0], interp_type=np.int32(2), min_filter=np.int32(0))
    agree("resize", x, size=[20.0, 80.0], interp_type=per_sample([0, 2, 5]))
    got = ndd.resize(ndd.tensor(x[0], layout="HWC"), size=[20, 30], interp_type=ndd.types.INTERP_NN)
    np.testing.assert_array_equal(
        np.asarray(got), resample.resize(x[0], (0, 1), (20, 30), ((0, 40), (0, 61)), ("nn", "nn"))
    )


def test_filters_by_the_enums_of_both_libraries_and_by_name():
    x = ndd.tensor(images(8, PHOTOS)[0], layout="HWC")
    cubic, nearest = (np.asarray(ndd.resize(x, size=[20, 70], interp_type=k)) for k in (2, 0))
    assert not np.array_equal(cubic, nearest)
    for given in (upstream_types.INTERP_CUBIC, ndd.types.INTERP_CUBIC, "INTERP_CUBIC"):
        both = {"min_filter": given, "mag_filter": given}
        for arguments in ({"interp_type": given}, both):
            got = ndd.resize(x, size=[20, 70], **arguments)
            np.testing.assert_array_equal(np.asarray(got), cubic)
            cut = [
                np.asarray(ndd.random_resized_crop(x, size=[9, 9], rng=ndd.random.RNG(1), **how))
                for how in (arguments, {"interp_type": 2})
            ]
            np.testing.assert_array_equal(*cut)
    for wrong in ("CUBIC", upstream_types.RGB):
        with pytest.raises((TypeError, ValueError), match="resize: argument `interp_type`"):
            ndd.resize(x, size=[20, 70], interp_type=wrong)


@pytest.mark.parametrize("n_in, n_out", [(1, 1), (1, 100), (100, 1), (300, 3), (3, 300), (7, 5)])
def test_extreme_sizes(n_in, n_out):
    x = images(9, [(n_in, n_in, 3), (n_in, 1, 3)])
    for kind in KINDS:
        agree("resize", x, size=[float(n_out), float(n_out)], interp_type=np.int32(kind))


def test_thirds():
    """From 2 to 3 pixels, results are multiples of 1/36: one in 36 is a half up to the last bits,
    which depend on upstream's order of the axes (NOTE [order of sums])."""
    for shape, size in (((6, 4, 3), [9.0, 6.0]), ((4, 90, 3), [6.0, 6.0])):
        x = images(9, [shape] * 20)
        for kind in (1, 2, 3):
            agree("resize", x, size=size, interp_type=np.int32(kind))


def test_large_images():
    x = images(10, [(480, 640, 3), (375, 500, 3), (333, 501, 3), (400, 400, 3)])
    for arguments in (
        {"size": [224.0, 224.0]},
        {"resize_shorter": 256.0},
        {"size": [240.0, 320.0]},
    ):
        agree("resize", x, **arguments)
    roi = {"roi_start": [0.11, 0.23], "roi_end": [0.83, 0.77], "roi_relative": True}
    agree("resize", x, size=[224.0, 224.0], **roi)


# -- sizes ---------------------------------------------------------------------------------------


def random_arguments(rng, spatial: str) -> dict:
    """Random arguments that give a size, with any mode, limit, region and rounding."""
    axes = len(spatial)
    sizes = [round(float(rng.uniform(1, 70)), int(rng.integers(0, 3))) for _ in range(axes)]
    signed = [0.0 if rng.random() < 0.15 else -s if rng.random() < 0.15 else s for s in sizes]
    way = rng.choice(["size", "sides", "side", "shorter", "longer"])
    names = {"D": "resize_z", "H": "resize_y", "W": "resize_x"}
    if way == "size":
        arguments = {"size": signed}
    elif way == "sides":
        arguments = {names[n]: s for n, s in zip(spatial, signed, strict=True)}
    elif way == "side":
        arguments = {names[spatial[int(rng.integers(axes))]]: sizes[0]}
    else:
        arguments = {f"resize_{way}": sizes[0]}
    if "resize_shorter" not in arguments and "resize_longer" not in arguments:
        arguments["mode"] = str(rng.choice(["default", "stretch", "not_larger", "not_smaller"]))
    if rng.random() < 0.4:
        limits = [float(v) for v in rng.integers(1, 80, axes)]
        arguments["max_size"] = limits if rng.random() < 0.5 else limits[0]
    if rng.random() < 0.4:
        start, extent = rng.uniform(0, 0.5, axes), rng.uniform(0.1, 0.5, axes)
        ends = [start, start + extent]
        if rng.random() < 0.5:
            ends.reverse()
        arguments |= {
            "roi_start": ends[0].tolist(),
            "roi_end": ends[1].tolist(),
            "roi_relative": True,
        }
    if rng.random() < 0.3:
        arguments["subpixel_scale"] = False
    return arguments


@pytest.mark.parametrize("layout, count", [("HWC", 150), ("DHWC", 40)])
def test_sizes(layout, count):
    rng = np.random.default_rng(len(layout))
    spatial = layout[:-1]
    for _ in range(count):
        shape = [*(int(v) for v in rng.integers(1, 60 if layout == "HWC" else 14, len(spatial))), 2]
        arguments = random_arguments(rng, spatial)
        x = images(1, [tuple(shape)], np.float32)
        try:
            agree("resize", x, layout=layout, antialias=False, **arguments)
        except AssertionError as error:
            raise AssertionError(f"shape {shape}, {arguments}: {error}") from error


def test_sizes_per_sample():
    x = images(11, PHOTOS)
    agree("resize", x, size=per_sample([[21.0, 30.5], [0.0, -31.0], [47.0, 11.0]]))
    agree("resize", x, resize_shorter=per_sample([21.0, 30.5, 9.0]), max_size=33.0)
    agree("resize", x, resize_x=per_sample([21.0, -30.0, 11.0]), resize_y=17.0)
    one = images(12, [(40, 61, 3)])[0]
    many = ndd.resize(
        ndd.tensor(one, layout="HWC"), resize_x=ndd.batch([np.float32(9), np.float32(20)])
    )
    assert [t.shape for t in many.tensors] == [(6, 9, 3), (13, 20, 3)]


def test_save_attrs():
    for layout, shape in (("HWC", (5, 6, 3)), ("DHWC", (4, 5, 6, 3))):
        size = [3.0] * (len(layout) - 1)
        agree("resize", images(1, [shape] * 2), layout=layout, size=size, save_attrs=True)


def test_empty_inputs():
    agree("resize", [np.zeros((0, 9, 3), np.uint8)], size=[5.0, 4.0])
    agree("resize", [np.zeros((0, 9, 3), np.uint8)], resize_x=4.0)
    agree("resize", [np.zeros((4, 9, 0), np.uint8)], size=[5.0, 4.0])


# -- layouts and types ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", "FHWC CHW FCHW CFHW DHWC FDHWC CDHW FCDHW CFDHW".split())
def test_layouts(layout):
    extents = {"F": 2, "C": 2, "D": 6, "H": 11, "W": 17}
    x = images(3, [tuple(extents[letter] for letter in layout)] * 2, np.float32)
    spatial = [extents[letter] for letter in layout if letter in "DHW"]
    agree("resize", x, layout=layout, size=[n * 0.7 for n in spatial])
    agree("resize", x, layout=layout, size=[n * 2.0 for n in spatial], roi_start=[1.0] * len(spatial),
          roi_end=[float(n) for n in spatial], interp_type=np.int32(2))  # fmt: skip


def test_missing_layout():
    for shape in ((9, 11, 3), (2, 9, 11, 3)):
        agree("resize", images(1, [shape], np.float32), layout=None, size=[5.0, 6.0])


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_types(dtype):
    x = [np.abs(a) for a in images(2, PHOTOS, np.dtype(dtype))]
    if dtype == "int16":  # not across 0: upstream makes -1 of values between -0.5 and 0
        x = [-1 - a for a in x]
    agree("resize", x, size=[23.0, 37.0])
    agree("resize", x, size=[23.0, 37.0], dtype="float32")
    agree("resize", x, size=[23.0, 137.0], interp_type=np.int32(2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types(dtype):
    """Types that only ndd supports: computed as float32, rounded once."""
    x = ndd.cast(ndd.batch(images(2, PHOTOS, np.float32), layout="HWC"), dtype=getattr(ndd, dtype))
    wide = ndd.cast(x, dtype=ndd.float32)
    want = ndd.cast(ndd.resize(wide, size=[20, 70]), dtype=getattr(ndd, dtype))
    got = ndd.resize(x, size=[20, 70])
    assert got.dtype == getattr(ndd, dtype)
    full = ndd.resize(x, size=[20, 70], dtype=ndd.float32)
    assert full.dtype == ndd.float32
    for a, b in zip(
        ndd.cast(got, dtype=ndd.float32).tensors,
        ndd.cast(want, dtype=ndd.float32).tensors,
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_old_arguments_have_no_effect():
    x = images(2, PHOTOS)
    want = ndd_call("resize", x, layout="HWC", size=[20.0, 30.0])[0]
    old = {"minibatch_size": 5, "temp_buffer_hint": 100, "image_type": ndd.types.RGB}
    for op in ("resize", "experimental.resize"):
        got = ndd_call(op, x, layout="HWC", size=[20.0, 30.0], **old)[0]
        for a, b in zip(got.arrays, want.arrays, strict=True):
            np.testing.assert_array_equal(a, b)


# -- the other ops -------------------------------------------------------------------------------


def test_resize_crop_mirror():
    x = images(4, PHOTOS)
    op = "resize_crop_mirror"
    agree(op, x, size=[51.0, 59.0])
    agree(op, x, size=[51.0, 59.0], crop=[30.0, 40.0], mirror=per_sample([0, 1, 1]))
    agree(op, x, resize_shorter=47.0, crop=[30.7, 40.2], crop_pos_x=per_sample([0.0, 0.31, 1.0]))
    agree(op, x, size=[51.0, 59.0], crop_w=20.0, crop_h=0.0, crop_pos_y=0.3, rounding="truncate")
    agree(op, x, size=[19.0, 20.0], crop=[23.0, 26.0])  # the border is repeated
    agree(
        op,
        x,
        size=[20.0, -20.0],
        crop=[8.0, 9.0],
        roi_start=[1.0, 0.5],
        roi_end=[6.0, 4.0],
        mirror=1,
    )
    agree(op, x, size=[50.0, 60.0], crop=[30.0, 40.0], dtype="float32", interp_type=np.int32(0))
    rows = np.arange(8, dtype=F32).reshape(1, 8, 1)
    got = agree(op, [rows], size=[1.0, 8.0], crop=[1.0, 4.0], crop_pos_x=0.25, mirror=1)
    np.testing.assert_array_equal(got[0].arrays[0].ravel(), [4, 3, 2, 1])


def test_windows_of_scaled_images():
    """Regions that rounding has moved by parts of a pixel: every bit decides a weight."""
    rng = np.random.default_rng(7)
    for seed in range(12):
        x = images(seed, [tuple(rng.integers(20, 90, 2)) + (3,) for _ in range(3)])
        size = int(rng.integers(16, 80))
        agree(
            "resize_crop_mirror", x, resize_shorter=float(size),
            crop=rng.integers(4, size + 1, 2).astype(np.float32),
            crop_pos_x=per_sample(rng.random(3).tolist()),
            crop_pos_y=per_sample(rng.random(3).tolist()),
            mirror=per_sample(rng.integers(0, 4, 3).tolist()),
        )  # fmt: skip


def test_crop_of_sequences_and_volumes():
    x = images(4, [(4, 10, 12, 2)], np.float32)
    crop = [2.0, 4.0, 5.0]
    agree("resize_crop_mirror", x, layout="FHWC", size=[8.0, 9.0], crop=crop)
    for mirror in (1, 2, 5):
        agree(
            "resize_crop_mirror", x, layout="DHWC", size=[6.0, 8.0, 9.0], crop=crop, mirror=mirror
        )
    # upstream mirrors the frames of a sequence vertically
    plain, mirrored = (
        ndd_call("resize_crop_mirror", x, layout="FHWC", size=[8.0, 9.0], mirror=m)[0].arrays[0]
        for m in (0, 1)
    )
    np.testing.assert_allclose(mirrored, plain[:, :, ::-1], rtol=1e-5)


@pytest.mark.parametrize("rounding", ["round", "truncate", "ceil"])
def test_tensor_resize(rounding):
    rng = np.random.default_rng(0)
    for axes in ([0], [1], [1, 0]):
        for _ in range(8):
            x = images(1, [tuple(int(v) for v in rng.integers(1, 30, 2))], np.float32)
            scales = [float(v) for v in rng.uniform(0.1, 3, len(axes))]
            agree("tensor_resize", x, layout=None, axes=axes, scales=scales, size_rounding=rounding,
                  alignment=float(rng.choice([0.0, 0.5, 0.3])))  # fmt: skip
            sizes = [float(v) for v in rng.integers(-20, 20, len(axes))]
            agree("tensor_resize", x, layout=None, axes=axes, sizes=sizes, interp_type=np.int32(2))


def test_tensor_resize_of_other_ranks():
    agree("tensor_resize", images(1, [(9,)], np.float32), layout=None, sizes=[4.0])
    x = images(1, [(5, 6, 7)], np.float32)
    agree("tensor_resize", x, layout=None, sizes=[4.0], axes=[1])
    agree("tensor_resize", x, layout="HWC", sizes=[4.0, 9.0], axis_names="WH")
    agree("tensor_resize", x, layout=None, sizes=9.0, max_size=8.0)
    agree("tensor_resize", x, layout=None, sizes=[5.0, 6.0, 7.0])
    # upstream blurs axes here that it was not asked to resize
    got = ndd.tensor_resize(ndd.tensor(x[0]), sizes=[10], axes=[0], interp_type=5)
    for k in range(6):
        column = ndd.tensor_resize(
            ndd.tensor(x[0][:, k : k + 1]), sizes=[10], axes=[0], interp_type=5
        )
        np.testing.assert_allclose(np.asarray(got)[:, k : k + 1], np.asarray(column), rtol=1e-6)


# -- errors --------------------------------------------------------------------------------------

WRONG = [
    ("resize", {}, "the size must be given in one way"),
    ("resize", {"size": [5.0, 5.0], "resize_x": 3.0}, "got size and resize_x"),
    ("resize", {"resize_shorter": 5.0, "resize_longer": 5.0}, "one way"),
    ("resize", {"resize_shorter": 5.0, "mode": "stretch"}, "`mode` cannot be combined"),
    ("resize", {"size": [5.0, 5.0], "mode": "fit"}, "`mode` must be one of default, stretch"),
    ("resize", {"size": [5.0, 5.0, 5.0]}, "`size` must have 2 values, got 3"),
    ("resize", {"size": [5.0, 5.0], "max_size": [1.0, 2.0, 3.0]}, "`max_size` needs 1 or 2"),
    ("resize", {"size": [5.0, 5.0], "roi_start": [1.0, 1.0]}, "must be given together"),
    ("resize", {"size": [5.0, 5.0], "roi_start": [1.0] * 3, "roi_end": [2.0] * 3}, "must have 2"),
    ("resize", {"size": [5.0, 5.0], "dtype": "int16"}, r"`dtype` must be the input's \(u8\)"),
    ("resize", {"size": [5.0, 5.0], "interp_type": np.int32(7)}, "`interp_type` must be an Interp"),
    ("tensor_resize", {"sizes": [5.0] * 3, "scales": [1.0] * 3}, "one of `sizes` and `scales`"),
    ("tensor_resize", {"sizes": [5.0, 5.0]}, "`sizes` must have 3 values, got 2"),
    ("tensor_resize", {"sizes": [5.0], "axes": [7]}, "axis 7 is out of range"),
    ("tensor_resize", {"scales": [0.5] * 3, "mode": "not_larger"}, "`scales` cannot be combined"),
    ("tensor_resize", {"scales": [0.5] * 3, "size_rounding": "up"}, "`size_rounding` must be one"),
    ("resize_crop_mirror", {"size": [5.0, 5.0], "crop_w": 3.0}, "crop_w and crop_h"),
    (
        "resize_crop_mirror",
        {"size": [5.0, 5.0], "crop": [3.0, 3.0], "crop_pos_x": 2.0},
        "crop_pos_x",
    ),
]


@pytest.mark.parametrize("op, arguments, message", WRONG)
def test_errors(op, arguments, message):
    """Both libraries refuse; our message names the mistake, and the next call works."""
    x = images(1, [(6, 7, 3)])
    with pytest.raises(Exception):  # noqa: B017  (whatever upstream raises)
        oracle_call(op, x, layout="HWC", **arguments)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        ndd_call(op, x, layout="HWC", **arguments)
    assert str(caught.value).startswith(f"{op}: ") and "called at" in str(caught.value)
    assert ndd_call("resize", x, layout="HWC", size=[5.0, 5.0])[0].shapes == [(5, 5, 3)]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, -1e12])
def test_numbers_that_are_no_sizes(number):
    """Upstream crashes on some of these."""
    x = ndd.tensor(images(1, [(6, 7, 3)])[0], layout="HWC")
    for arguments in (
        {"size": [number, 5.0]}, {"resize_x": number}, {"resize_shorter": number},
        {"size": [5.0, 5.0], "roi_start": [number, 0.0], "roi_end": [5.0, 5.0]},
        {"size": [5.0, 5.0], "roi_start": [0.0, 0.0], "roi_end": [5.0, number]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="must be finite and at most"):
            ndd.resize(x, **arguments)
    with pytest.raises(ValueError, match="too large"):
        ndd.resize(x, size=[1e9, 1e9])
    with pytest.raises(TypeError, match="i32 is not supported"):
        ndd.resize(ndd.tensor(np.zeros((4, 4, 3), np.int32), layout="HWC"), size=[2, 2])
