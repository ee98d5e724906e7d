"""Interpolating ops at their limits: sizes, scales, regions, nan and infinity, empty samples.

Every case has an exact result (the oracle's where it survives, else a reference's) or is an error
that says what is wrong; after either, the next call works.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from nvidia.dali.types import DALIInterpType

import ndd
from tests.reference import resample, warp

from .modes import error_everywhere
from .oracle import check, ndd_call, oracle_call

NAN, INF = float("nan"), float("inf")
KINDS = range(6)  # NN LINEAR CUBIC LANCZOS3 TRIANGULAR GAUSSIAN
NN, LINEAR = DALIInterpType.INTERP_NN, DALIInterpType.INTERP_LINEAR
IDENTITY = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def noise(shape, dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (1 + rng.random(shape)).astype(dtype)
    return rng.integers(0, 256, shape).astype(dtype)


def waves(h, w):
    """A smooth image: positions that differ in the last place matter little."""
    y, x = np.mgrid[:h, :w] / max(h, w)
    parts = [np.sin(5 * y + 3 * x), np.cos(7 * x), np.sin(4 * x * y + 1)]
    return np.rint(127 + 120 * np.stack(parts, axis=-1)).astype(np.uint8)


def picture():
    return ndd.tensor(noise((9, 13, 3)), layout="HWC")


def works():
    """Check that the next call works."""
    x = noise((9, 13, 3))
    got = np.array(ndd.resize(ndd.tensor(x, layout="HWC"), size=[9, 13]))
    np.testing.assert_array_equal(got, x)


# -- sizes and scales ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_resize_by_a_hundredth_to_a_hundred(kind):
    """Off by at most 1, in at most 1 of 10⁴ of all values; floats within 1e-5."""
    off = total = 0
    for small, large in (((3, 2), (307, 211)), ((1, 1), (101, 97)), ((1, 7), (103, 699))):
        for n_in, n_out in ((small, large), (large, small), (small, small)):
            for dtype in (np.uint8, np.float32):
                x = noise((*n_in, 3), dtype, kind)
                arguments = {"size": [float(n) for n in n_out], "interp_type": np.int32(kind)}
                (got,), (want,) = (f("resize", [x], layout="HWC", **arguments)[0].arrays
                                   for f in (ndd_call, oracle_call))  # fmt: skip
                assert got.shape == want.shape == (*n_out, 3)
                if dtype is np.float32:
                    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
                    continue
                difference = np.abs(got.astype(int) - want)
                assert difference.max() <= 1
                off, total = off + int((difference > 0).sum()), total + difference.size
    assert off <= 1e-4 * total, f"{off} of {total} are off by one"


@pytest.mark.parametrize("kind", [1, 2, 3, 5])
def test_filters_grow_to_8192_pixels(kind):
    """Upstream's filters stop growing, and sizes below a tenth of a pixel count as a tenth."""
    for n in (1366, 2049, 4100, 9001):
        for size in ([1.0, 1.0], [2.0, 0.001]):
            x = [noise((n, 1, 1), np.float32, n)]
            check("resize", x, layout="HWC", size=size, interp_type=np.int32(kind), rtol=1e-5)


def test_the_largest_image():
    """Resize 8192×8192 to 64×64."""
    x = noise((8192, 8192, 1))
    for kind in (0, 1, 3):
        check("resize", x, layout="HWC", batch=False, exact=False, max_off=1 / 4096,
              size=[64.0, 64.0], interp_type=np.int32(kind))  # fmt: skip
    got = np.array(ndd.warp_affine(ndd.tensor(x, layout="HWC"), size=[64, 64],
                                   matrix=[128, 0, 0, 0, 128, 0], interp_type=NN))  # fmt: skip
    np.testing.assert_array_equal(got, x[64::128, 64::128])
    turned = np.array(ndd.rotate(ndd.tensor(x[:4096], layout="HWC"), angle=90.0))
    np.testing.assert_array_equal(turned, np.rot90(x[:4096]))


def test_one_pixel_becomes_8192_by_8192():
    x = ndd.tensor(np.uint8([[[7]]]), layout="HWC")
    for kind in (0, 1):
        got = np.array(ndd.resize(x, size=[8192, 8192], interp_type=kind))
        assert got.shape == (8192, 8192, 1) and (got == 7).all()
    got = np.array(ndd.warp_affine(x, matrix=[1e-4, 0, 0, 0, 1e-4, 0], size=[8192, 8192]))
    assert got.shape == (8192, 8192, 1) and (got == 7).all()


@pytest.mark.parametrize("fill", [None, 40.0])
@pytest.mark.parametrize("interp", [NN, LINEAR])
def test_warps_by_a_hundredth_to_a_hundred(interp, fill):
    """Scale about the centre and rotate; images of more than one pixel also match the reference."""
    other = {} if fill is None else {"fill_value": fill}
    for h, w in ((301, 300), (1, 1), (2, 9)):
        x = waves(h, w)
        for scale in (0.01, 0.1, 1.0, 10.0, 100.0):
            c, s = scale * np.cos(0.4), scale * np.sin(0.4)
            matrix = np.float32([[c, -s, 0], [s, c, 0]])
            matrix[:, 2] = (w / 2, h / 2) - matrix[:, :2] @ (32, 24)
            arguments = {"matrix": matrix, "size": [48.0, 64.0], "interp_type": interp, **other}
            (got,), (want,) = (f("warp_affine", [x], layout="HWC", **arguments)[0].arrays
                               for f in (ndd_call, oracle_call))  # fmt: skip
            exact = warp.affine(x, matrix, (48, 64), fill, interp is LINEAR)
            exact = warp.converted(exact, np.uint8)
            for reference in (want, exact):
                difference = np.abs(got.astype(int) - reference)
                assert interp is NN or difference.max() <= 1
                assert (difference > 0).mean() <= 0.01, (h, w, scale)


@pytest.mark.parametrize("angle", [1e-30, 1e20, 1e30, -3e38, 720.25])
def test_rotate_by_any_angle(angle):
    """Upstream's angle is a float32 in radians, so a huge angle is reduced to the same remainder."""
    for h, w in ((24, 31), (1, 1), (1, 60)):
        for size in ({}, {"size": [1.0, 1.0]}, {"size": [3.0, 200.0]}, {"keep_size": True}):
            (got,), (want,) = (f("rotate", [waves(h, w)], layout="HWC", angle=angle, **size)[0].arrays
                               for f in (ndd_call, oracle_call))  # fmt: skip
            assert got.shape == want.shape
            difference = np.abs(got.astype(int) - want)
            assert difference.max() <= 1 and (difference > 0).sum() <= max(1, 0.01 * got.size)


def test_perspective_and_remap_at_large_scales():
    x = waves(90, 120)
    for scale in (0.01, 1.0, 100.0):
        matrix = np.float32([[scale, 0.1, 3], [-0.1, scale, 5], [1e-4, 2e-4, 1]])
        got = ndd.experimental.warp_perspective(
            ndd.tensor(x, layout="HWC"), matrix=matrix, pixel_origin="center"
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        want = cv2.warpPerspective(x, matrix.astype(np.float64), (120, 90), flags=flags)
        difference = np.abs(np.array(got).astype(int) - want)
        assert difference.max() <= 1 and (difference > 0).mean() <= 0.01
        mapx, mapy = np.meshgrid(np.float32(scale) * np.arange(120, dtype=np.float32),
                                 np.float32(scale) * np.arange(90, dtype=np.float32))  # fmt: skip
        got = ndd.experimental.remap(
            ndd.tensor(x, layout="HWC"), mapx, mapy, pixel_origin="center", interp=LINEAR
        )
        want = cv2.remap(x, mapx, mapy, cv2.INTER_LINEAR, borderValue=0)
        # OpenCV rounds positions to 1/32 pixel
        assert np.abs(np.array(got).astype(int) - want).max() <= 3


def test_results_that_no_memory_can_hold():
    """The result exceeds the address space of a process (128 TiB), so it fails on every machine."""
    x = ndd.tensor(noise((4, 4, 1), np.float32), layout="HWC")
    before = ndd.memory_stats()
    for text, program in (
        ("resize: the result is too large: 2.81e+14 bytes in 1 samples",
         lambda: np.array(ndd.resize(x, size=[2**24, 2**22]))),
        ("zeros: the result is too large: 5.63e+14 bytes in 1 samples",
         lambda: np.array(ndd.zeros(shape=[2**46], dtype=ndd.float64))),
    ):  # fmt: skip
        error_everywhere(ValueError, text, program)
        works()
    assert ndd.memory_stats().peak < before.peak + 10**6


# -- regions of interest -------------------------------------------------------------------------


def region(x, start, end, size, **arguments):
    return np.array(ndd.resize(x, size=size, roi_start=start, roi_end=end, **arguments).cpu())


@pytest.mark.parametrize("kind", KINDS)
def test_regions_outside_are_the_border(kind):
    """Regions outside of the image on every side, near and far. Upstream reads foreign memory or crashes."""
    x = noise((9, 13, 3), np.float32)
    image = ndd.tensor(x, layout="HWC")
    for away in (20.0, 500.0, 1e5, 1e9):
        for side_y in (-1, 0, 1):
            for side_x in (-1, 0, 1):
                start = []
                for side, n in ((side_y, 9), (side_x, 13)):
                    start.append(0.0 if side == 0 else -away if side < 0 else n + away)
                rows = {-1: x[:1], 0: x, 1: x[-1:]}[side_y]
                wanted = {-1: rows[:, :1], 0: rows, 1: rows[:, -1:]}[side_x]
                end = [s + n for s, n in zip(start, (9, 13), strict=True)]
                got = region(image, start, end, [9, 13], interp_type=kind, antialias=False)
                if kind == 5 and 0 in (side_y, side_x):  # blurs even at scale 1
                    assert np.isfinite(got).all()
                    continue
                wanted = np.broadcast_to(wanted, (9, 13, 3))
                np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=f"{start} {end}")
    works()


@pytest.mark.parametrize("kind", KINDS)
def test_regions_of_any_extent(kind):
    """Regions that are empty, thin, reversed, or up to 10⁵ times as large as the image."""
    x = noise((9, 13, 3), np.float32)
    for start, end in (
        ([4.0, 5.0], [4.0, 5.0]), ([4.0, 5.0], [4.0005, 5.0]), ([9.0, 13.0], [0.0, 0.0]),
        ([7.3, 1.2], [2.1, 11.9]),
    ):  # fmt: skip
        check("resize", [x], layout="HWC", size=[5.0, 7.0], roi_start=start, roi_end=end,
              interp_type=np.int32(kind), rtol=1e-5)  # fmt: skip
    if kind:  # with NN upstream reads foreign memory
        for reach in (50.0, 1e3, 1e5):
            check("resize", [x], layout="HWC", size=[5.0, 7.0], roi_start=[-reach, 0.0],
                  roi_end=[reach, 13.0], interp_type=np.int32(kind), rtol=1e-5)  # fmt: skip


def test_regions_that_reach_far_to_one_side():
    """Positions inside of the image keep their weights, however far away other positions are."""
    x = noise((1, 64, 1), np.float32)
    image = ndd.tensor(x, layout="HWC")
    wide = region(image, [0.0, 0.0], [1.0, 4096.0], [1, 4096])
    np.testing.assert_array_equal(wide[:, :64], x)
    np.testing.assert_array_equal(wide[:, 64:], np.full((1, 4032, 1), x[0, -1]))
    back = region(image, [0.0, 4096.0], [1.0, 0.0], [1, 4096])
    np.testing.assert_array_equal(back, wide[:, ::-1])


# -- sizes that are none or odd ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "stretch", "not_larger", "not_smaller"])
def test_zero_negative_and_tiny_sizes(mode):
    x = noise((9, 13, 3), np.float32)
    for size in ([0.0, 0.0], [0.0, 5.0], [-4.0, 0.0], [-9.0, -13.0], [1e-9, 1e-9], [-1e-30, 2.0],
                 [0.4, 0.6], [0.099, 0.101]):  # fmt: skip
        check("resize", [x], layout="HWC", size=size, mode=mode, rtol=1e-5)
    for name in ("resize_shorter", "resize_longer"):
        for size in (0.0, -3.0, 1e-6):
            check("resize", [x], layout="HWC", rtol=1e-5, **{name: size})
    for limit in (0.0, -1.0, 0.001, 1e30):
        check("resize", [x], layout="HWC", size=[5.0, 5.0], mode=mode, max_size=limit, rtol=1e-5)


EMPTY_SIZES = [
    {"size": [4.0, 4.0]}, {"size": [0.0, 0.0]}, {"resize_shorter": 3.0}, {"resize_longer": 3.0},
    {"resize_y": 4.0}, {"resize_x": 4.0}, {"resize_y": 4.0, "mode": "not_larger"},
    {"resize_y": 4.0, "mode": "not_smaller"}, {"size": [3.0, 4.0], "mode": "not_smaller"},
    {"size": [3.0, 4.0], "max_size": 2.0}, {"resize_shorter": 3.0, "max_size": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("shape", [(0, 9, 3), (9, 0, 3), (0, 0, 3), (4, 9, 0)])
def test_empty_samples(shape):
    """An image without pixels gives an empty result, or an error if the result needs pixels."""
    x = np.zeros(shape, np.uint8)
    for arguments in EMPTY_SIZES:
        check("resize", [x], layout="HWC", **arguments)
    for op in ("water", "sphere"):
        check(op, [x], layout="HWC")
    check("warp_affine", [x], layout="HWC", matrix=IDENTITY)
    empty = ndd.tensor(x, layout="HWC")
    assert ndd.jitter(empty).shape == shape
    assert ndd.experimental.warp_perspective(empty, matrix=np.eye(3)).shape == shape
    assert ndd.tensor_resize(empty, sizes=[3, 3, 3]).shape == tuple(3 if n else 0 for n in shape)
    if 0 in shape[:2]:
        calls = {
            "rotate": lambda: ndd.rotate(empty, angle=30.0),
            "warp_affine": lambda: ndd.warp_affine(empty, matrix=IDENTITY, size=[2, 2]),
            "experimental.remap": lambda: ndd.experimental.remap(
                empty, np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
            ),
            "random_resized_crop": lambda: ndd.random_resized_crop(empty, size=[3, 3]),
            "resize_crop_mirror": lambda: ndd.resize_crop_mirror(empty, size=[4, 4], crop=[2, 2]),
        }
        for op, call in calls.items():
            error_everywhere(ValueError, f"{op}: sample 0 of shape {shape} has no pixels", call)
    works()


def test_one_empty_sample_among_others():
    x = [noise((5, 6, 3)), np.zeros((0, 6, 3), np.uint8), noise((7, 8, 3))]
    check("resize", x, layout="HWC", size=[4.0, 3.0])
    with pytest.raises(ValueError, match=r"sample 1 of shape \(0, 6, 3\) has no pixels"):
        ndd.warp_affine(ndd.batch(x, layout="HWC"), matrix=IDENTITY, size=[2, 2])
    works()


# -- numbers that are none -----------------------------------------------------------------------

SIZES = "must be finite and at most 1073741824 in magnitude"
REFUSED = {
    "resize size": (lambda v: ndd.resize(picture(), size=[v, 5.0]), f"resize: `size` {SIZES}"),
    "resize_x": (lambda v: ndd.resize(picture(), resize_x=v), f"resize: `resize_x` {SIZES}"),
    "resize_shorter": (
        lambda v: ndd.resize(picture(), resize_shorter=v), f"resize: `resize_shorter` {SIZES}"),
    "resize roi_start": (
        lambda v: ndd.resize(picture(), size=[5.0, 5.0], roi_start=[v, 0.0], roi_end=[5.0, 5.0]),
        f"resize: `roi_start` {SIZES}"),
    "resize roi_end": (
        lambda v: ndd.resize(picture(), size=[5.0, 5.0], roi_start=[0.0, 0.0], roi_end=[5.0, v]),
        f"resize: `roi_end` {SIZES}"),
    "tensor_resize scales": (
        lambda v: ndd.tensor_resize(picture(), scales=[v, 1.0, 1.0]),
        f"tensor_resize: `scales` {SIZES}"),
    "tensor_resize alignment": (
        lambda v: ndd.tensor_resize(picture(), sizes=[2.0, 2.0, 2.0], alignment=[v]),
        f"tensor_resize: `alignment` {SIZES}"),
    "resize_crop_mirror crop": (
        lambda v: ndd.resize_crop_mirror(picture(), size=[5.0, 5.0], crop=[v, 3.0]),
        "resize_crop_mirror: `crop` is out of range"),
    "resize_crop_mirror crop_pos_x": (
        lambda v: ndd.resize_crop_mirror(picture(), size=[5, 5], crop=[3, 3], crop_pos_x=v),
        "resize_crop_mirror: `crop_pos_x` must lie in [0, 1]"),
    "random_resized_crop size": (
        lambda v: ndd.random_resized_crop(picture(), size=[v, 3.0]),
        "random_resized_crop: argument `size` must be a 64-bit integer"),
    "random_resized_crop random_area": (
        lambda v: ndd.random_resized_crop(picture(), size=[3, 3], random_area=[v, 1.0]),
        "random_resized_crop: `random_area` must be a range of positive numbers"),
    "rotate size": (
        lambda v: ndd.rotate(picture(), angle=3.0, size=[v, 4.0]),
        "rotate: `size` is out of range"),
    "warp_affine size": (
        lambda v: ndd.warp_affine(picture(), matrix=IDENTITY, size=[v, 4.0]),
        "warp_affine: `size` is out of range"),
    "warp_perspective size": (
        lambda v: ndd.experimental.warp_perspective(picture(), matrix=np.eye(3), size=[v, 4.0]),
        "experimental.warp_perspective: `size` is out of range"),
    "paste ratio": (
        lambda v: ndd.paste(picture(), ratio=v, fill_value=[1]), "paste: `ratio` "),
    "paste min_canvas_size": (
        lambda v: ndd.paste(picture(), ratio=2.0, fill_value=[1], min_canvas_size=v),
        "paste: `min_canvas_size` is out of range"),
}  # fmt: skip
ANGLES = {
    "rotate": lambda v: ndd.rotate(picture(), angle=v),
    "rotate, size kept": lambda v: ndd.rotate(picture(), angle=v, keep_size=True),
    "bbox_rotate": lambda v: ndd.bbox_rotate(
        np.float32([[0.1, 0.2, 0.3, 0.4]]), angle=v, input_shape=[9, 13]
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_are_refused(name):
    call, text = REFUSED[name]
    for value in (NAN, INF, 1e38):
        error_everywhere(ValueError, text, lambda value=value: call(value))
    works()


@pytest.mark.parametrize("name", ANGLES)
def test_angles_that_are_refused(name):
    for value, text in ((NAN, "nan"), (INF, "inf"), (-INF, "-inf"), (1e39, "inf")):
        text = f"{name.partition(',')[0]}: `angle` must be finite, got {text}"
        error_everywhere(ValueError, text, lambda value=value: ANGLES[name](value))
    works()


def test_sizes_that_are_refused():
    for size in (0.0, -1.0):
        error_everywhere(ValueError, f"warp_affine: `size` must be positive, got {size:g}",
                         lambda s=size: ndd.warp_affine(picture(), matrix=IDENTITY, size=[s, 4.0]))  # fmt: skip
        error_everywhere(ValueError, f"rotate: `size` must be positive, got {size:g}",
                         lambda s=size: ndd.rotate(picture(), angle=1.0, size=[s, 4.0]))  # fmt: skip
    error_everywhere(ValueError, "`size` must not be negative, got [-1, 3]",
                     lambda: ndd.random_resized_crop(picture(), size=[-1, 3]))  # fmt: skip
    error_everywhere(ValueError, "resize: `max_size` must be a number, got nan",
                     lambda: ndd.resize(picture(), size=[5, 5], max_size=NAN))  # fmt: skip
    error_everywhere(ValueError, "resize: the result is too large: shape (1000000000, 1000000000, 3)",
                     lambda: ndd.resize(picture(), size=[1e9, 1e9]))  # fmt: skip
    error_everywhere(ValueError, "resize: the region is too large: 1638400000 weights along one axis",
                     lambda: ndd.resize(picture(), size=[2e5, 1.0],
                                        roi_start=[-5e8, 0.0], roi_end=[5e8, 9.0]))  # fmt: skip
    works()


@pytest.mark.parametrize("value", [NAN, INF, -INF, 3e38, -3e38, 3e9, 1e-45])
def test_matrices_of_any_numbers(value):
    """A nan position lies outside of the image: it gives the fill value or a border pixel."""
    x = noise((9, 13, 3))
    border = np.concatenate([x[[0, -1]].ravel(), x[:, [0, -1]].ravel()])
    image = ndd.tensor(x, layout="HWC")
    for k in range(6):
        matrix = np.float32(IDENTITY)
        matrix[k] = value
        for interp in (NN, LINEAR):
            for fill in (None, 7.0):
                arguments = {"interp_type": interp, "fill_value": fill}
                got = np.array(ndd.warp_affine(image, matrix=matrix, **arguments))
                assert got.shape == x.shape
                if k in (2, 5) and not abs(value) < 1e9:
                    assert np.isin(got, border if fill is None else [7]).all()
        if np.isfinite(value):
            assert np.array(ndd.warp_affine(image, matrix=matrix, inverse_map=False)).any()
        else:
            with pytest.raises(ValueError, match="`matrix` of sample 0 has no inverse"):
                ndd.warp_affine(image, matrix=matrix, inverse_map=False)
    for k in range(9):
        matrix = np.eye(3, dtype=np.float32)
        matrix.flat[k] = value
        for rule in ("constant", "replicate", "reflect", "reflect_101", "wrap"):
            got = ndd.experimental.warp_perspective(image, matrix=matrix, border_mode=rule)
            assert np.array(got).shape == x.shape
    maps = np.full((4, 5), value, np.float32)
    assert np.array(ndd.experimental.remap(image, maps, maps)).shape == (4, 5, 3)
    for name in ("ampl_x", "freq_y", "phase_x"):
        got = np.array(ndd.water(image, fill_value=7.0, **{name: value}))
        assert np.isin(got, [7, *x.ravel()]).all()
    works()


def test_singular_matrices():
    for numbers in ([0.0] * 6, [1.0, 2.0, 0.0, 2.0, 4.0, 1.0]):
        got = np.array(ndd.warp_affine(picture(), matrix=numbers))
        assert got.shape == (9, 13, 3)
        error_everywhere(ValueError, "warp_affine: `matrix` of sample 0 has no inverse",
                         lambda n=numbers: ndd.warp_affine(picture(), matrix=n, inverse_map=False))  # fmt: skip
    flat = np.array(ndd.warp_affine(picture(), matrix=[0, 0, 3.5, 0, 0, 2.5]))
    assert (flat == np.array(picture())[2, 3]).all()
    works()


def test_images_that_are_constants():
    """Pending `ones` are a constant in the kernel, without strides."""
    with ndd.EvalMode.deferred:
        for op, arguments in (
            (ndd.rotate, {"angle": 30.0, "keep_size": True}), (ndd.warp_affine, {"matrix": IDENTITY}),
            (ndd.resize, {"size": [9, 13]}), (ndd.resize, {"size": [4, 40], "interp_type": 3}),
            (ndd.experimental.warp_perspective, {"matrix": np.eye(3)}),
        ):  # fmt: skip
            x = ndd.ones(shape=[9, 13, 3], dtype=ndd.uint8, layout="HWC")
            assert (np.array(op(x, **arguments)) == 1).all()


# -- simulated GPU -------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_same_on_a_gpu(monkeypatch):
    """The GPU gives the same bits as the CPU, for small versions of the cases above."""
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = noise((9, 13, 3))

    def results(device):
        image = ndd.tensor(x, layout="HWC", device=device)
        for kind, start, end in (
            (1, [500.0, 500.0], [510.0, 600.0]), (3, [-1e5, 1e5], [-1e5 + 5, 1e5 + 7]),
            (2, [1e6, 3.0], [2.0, 1e6]), (0, [-3e3, -2e3], [2e3, 4e3]), (1, [9.0, 13.0], [0.0, 0.0]),
            (5, [4.0, 5.0], [4.0, 5.0]), (1, [1e9, 1e9], [1e9, 1e9]),
        ):  # fmt: skip
            yield region(image, start, end, [4, 5], interp_type=kind, antialias=False)
        yield ndd.resize(image, size=[1, -13])
        for k, value in ((0, NAN), (2, INF), (4, -3e38)):
            matrix = np.float32(IDENTITY)
            matrix[k] = value
            yield ndd.warp_affine(image, matrix=matrix, fill_value=7.0)
        yield ndd.warp_affine(image, matrix=[100, 0, -600, 0, 100, -400], size=[12, 12])
        yield ndd.resize(ndd.tensor(x[:0], layout="HWC", device=device), size=[4, 4])
        with pytest.raises(ValueError, match=r"sample 0 of shape .* has no pixels"):
            ndd.rotate(ndd.tensor(x[:0], layout="HWC", device=device), angle=3.0)
        yield ndd.resize(image, size=[9, 13])

    pairs = zip(results("cpu"), results("gpu"), strict=True)
    for k, (cpu, gpu) in enumerate(pairs):
        a, b = (np.asarray(v if isinstance(v, np.ndarray) else v.cpu()) for v in (cpu, gpu))
        assert a.shape == b.shape and a.tobytes() == b.tobytes(), f"result {k}"


def test_the_reference_is_as_wide_as_upstream():
    """`tests/reference` and the op agree on where filters stop growing."""
    x = noise((9001, 1, 1), np.float32)
    got = np.array(ndd.resize(ndd.tensor(x, layout="HWC"), size=[1, 1]))
    want = resample.resize(x, (0, 1), (1, 1), ((0, 9001), (0, 1)), ("linear", "linear"))
    np.testing.assert_allclose(got, want, rtol=1e-5)
