"""experimental.dilate, erode and median_blur against OpenCV and SciPy, which give the same values.

The oracle has these ops on GPUs only.
"""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
import scipy.ndimage

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from ndd.kernels.ir import networks
from tests.helpers import arrays

from .modes import error_everywhere, same_everywhere
from .oracle import record

X = ndd.experimental
SHAPES = [(31, 37, 3), (1, 1, 3), (8, 5, 3), (1, 70, 3), (2, 3, 3)]
MASKS = [(3, 3), (5, 5), (1, 1), (4, 2), (1, 9), (11, 7), (90, 64)]
TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?"]
SCIPY = {"reflect": "reflect", "reflect_101": "mirror", "wrap": "wrap", "replicate": "nearest"}
CV2 = {"constant": cv2.BORDER_CONSTANT, "replicate": cv2.BORDER_REPLICATE,
       "reflect": cv2.BORDER_REFLECT, "reflect_101": cv2.BORDER_REFLECT_101}  # fmt: skip
OF_CV2 = {"dilate": cv2.dilate, "erode": cv2.erode}
OF_SCIPY = {"dilate": scipy.ndimage.maximum_filter, "erode": scipy.ndimage.minimum_filter}


def images(shapes=SHAPES, dtype="u1", seed=0):
    """Values of the whole range of a type, many of them equal."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return [np.round(rng.normal(0, 3, s), 1).astype(kind) for s in shapes]
    if kind.kind == "b":
        return [rng.random(s) < 0.1 for s in shapes]
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return [
        np.where(rng.random(s) < 0.5, rng.integers(0, 9, s, kind),
                 rng.integers(low, high, s, kind, endpoint=True))
        for s in shapes
    ]  # fmt: skip


def by_plane(image, layout, function):
    """Apply a function to each plane of an image or sequence.

    SciPy computes in float64 and does not know all types, so it gets the ranks of the values.
    """
    values, ranks = np.unique(image, return_inverse=True)
    spatial = [layout.index("H"), layout.index("W")]
    moved = np.moveaxis(ranks.reshape(image.shape).astype(np.int32), spatial, [-2, -1])
    planes = [function(np.ascontiguousarray(moved[k])) for k in np.ndindex(moved.shape[:-2])]
    back = np.stack(planes).reshape(moved.shape) if image.ndim > 2 else planes[0]
    return values[np.moveaxis(back, [-2, -1], spatial)]


def extreme(
    name, image, layout="HWC", mask=(3, 3), anchor=(-1, -1), iterations=1, border="constant"
):
    """The result of SciPy, whose origin is the distance of the anchor from the middle."""
    size = [1 + iterations * (n - 1) for n in mask]
    at = [iterations * (n // 2 if a == -1 else a) for a, n in zip(anchor, mask, strict=True)]
    origin = [a - n // 2 for a, n in zip(at, size, strict=True)]
    mode = SCIPY.get(border, "nearest")  # what a constant border adds never wins
    return by_plane(
        image, layout,
        lambda p: OF_SCIPY[name](p, size=size[::-1], mode=mode, origin=origin[::-1]),
    )  # fmt: skip


def median(image, size, layout="HWC"):
    size = (size, size) if isinstance(size, int) else size
    return by_plane(
        image, layout, lambda p: scipy.ndimage.median_filter(p, size=size[::-1], mode="nearest")
    )


def check(found, wanted):
    found = found if isinstance(found, list) else arrays(found)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


# -- dilate and erode ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dilate", "erode"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4", "f8"])
def test_extremes_equal_opencv(name, dtype):
    samples = images(dtype=dtype)
    batch = ndd.batch(samples, layout="HWC")
    for mask, (border, flag) in itertools.product(MASKS[:6], CV2.items()):
        kernel = np.ones(mask[::-1], np.uint8)
        # OpenCV mirrors only once, so narrow images are compared with SciPy alone.
        wide = [k for k, s in enumerate(samples) if min(s.shape[:2]) > 7 or border == "constant"]
        found = arrays(getattr(X, name)(batch, mask_size=mask, border_mode=border))
        for k in wide:
            want = OF_CV2[name](samples[k], kernel, borderType=flag).reshape(found[k].shape)
            record(f"experimental.{name} (OpenCV)", [found[k]], [want])
            np.testing.assert_array_equal(found[k], want)


@pytest.mark.parametrize("name", ["dilate", "erode"])
@pytest.mark.parametrize("dtype", TYPES)
def test_extremes_of_all_types(name, dtype):
    samples = images(dtype=dtype)
    found = getattr(X, name)(ndd.batch(samples, layout="HWC"), mask_size=[3, 4])
    check(found, [extreme(name, s, mask=(3, 4)) for s in samples])


@pytest.mark.parametrize("name", ["dilate", "erode"])
@pytest.mark.parametrize("border", ["constant", "replicate", "reflect", "reflect_101", "wrap"])
def test_masks_anchors_and_borders(name, border):
    samples = images([(31, 37, 3), (12, 11, 3), (1, 30, 3)])
    batch, op = ndd.batch(samples, layout="HWC"), getattr(X, name)
    for mask in MASKS:
        got = op(batch, mask_size=mask, border_mode=border)
        check(got, [extreme(name, s, mask=mask, border=border) for s in samples])
    for anchor in ((0, 0), (4, 2), (0, 1), (3, -1)):
        got = op(batch, mask_size=[5, 3], anchor=anchor, border_mode=border)
        check(got, [extreme(name, s, "HWC", (5, 3), anchor, 1, border) for s in samples])


LAYOUTS = {"HW": (9, 40), "HWC": (9, 40, 4), "CHW": (3, 9, 40), "FHWC": (3, 9, 40, 2),
           "FCHW": (2, 3, 9, 40)}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [None, 1, 6])
def test_layouts(layout, channels):
    shape = [channels if c == "C" and channels else n
             for c, n in zip(layout, LAYOUTS[layout], strict=True)]  # fmt: skip
    smaller = [n if c == "C" else n - 1 for c, n in zip(layout, shape, strict=True)]
    for dtype in ("u1", "f4"):
        samples = images([shape, smaller], dtype)
        batch = ndd.batch(samples, layout=layout)
        got = X.dilate(batch, mask_size=[4, 3])
        assert got.layout == layout
        check(got, [extreme("dilate", s, layout, (4, 3)) for s in samples])
        check(X.median_blur(batch), [median(s, 3, layout) for s in samples])
        one = X.erode(ndd.tensor(samples[0], layout=layout), mask_size=5)
        np.testing.assert_array_equal(np.asarray(one), extreme("erode", samples[0], layout, (5, 5)))


def test_no_layout_follows_from_the_rank():
    for shape, layout in (((9, 12), "HW"), ((9, 12, 3), "HWC"), ((2, 9, 12, 3), "FHWC")):
        (sample,) = images([shape])
        found = X.dilate(ndd.tensor(sample))
        np.testing.assert_array_equal(np.asarray(found), extreme("dilate", sample, layout))


@pytest.mark.parametrize("name", ["dilate", "erode"])
def test_iterations_repeat_the_operation(name):
    samples = images()
    batch, op = ndd.batch(samples, layout="HWC"), getattr(X, name)
    for times in range(4):
        got = arrays(op(batch, mask_size=[3, 2], iterations=times))
        again = batch
        for _ in range(times):
            again = op(again, mask_size=[3, 2])
        check(again, got)
        kernel = np.ones((2, 3), np.uint8)
        check(got, [OF_CV2[name](s, kernel, iterations=times) for s in samples])


def test_arguments_per_sample():
    samples = images()
    batch = ndd.batch(samples, layout="HWC")
    masks = [[3, 5], [2, 2], [9, 1], [1, 1], [70, 80]]
    anchors = [[0, 4], [-1, 1], [8, -1], [0, 0], [69, 0]]
    times = [1, 2, 0, 3, 1]
    got = X.dilate(
        batch, mask_size=ndd.batch([np.int32(m) for m in masks]),
        anchor=ndd.batch([np.int32(a) for a in anchors]),
        iterations=ndd.batch([np.int32(t) for t in times]),
    )  # fmt: skip
    rows = zip(samples, masks, anchors, times, strict=True)
    check(got, [extreme("dilate", s, "HWC", m, a, t) for s, m, a, t in rows])
    one = ndd.tensor(samples[0], layout="HWC")
    sizes = [3, 5, 1]
    many = X.erode(one, mask_size=ndd.batch([np.int32(n) for n in sizes]))
    check(many, [extreme("erode", samples[0], mask=(n, n)) for n in sizes])


@pytest.mark.parametrize("layout", ["FHWC", "FCHW"])
def test_arguments_per_frame(layout):
    shapes = [(3, 9, 40, 2), (2, 8, 30, 2), (4, 1, 5, 2)]
    if layout == "FCHW":
        shapes = [(f, c, h, w) for f, h, w, c in shapes]
    samples = images(shapes)
    rng = np.random.default_rng(3)
    masks = [rng.integers(1, 9, (s[0], 2)) for s in shapes]
    anchors = [rng.integers(0, m) for m in masks]
    batch = ndd.batch(samples, layout=layout)

    def program():
        found = X.dilate(batch, mask_size=ndd.batch(masks), anchor=ndd.batch(anchors))
        return found, ndd.flip(found, horizontal=1, vertical=1), found.slice[::-1]

    want = [
        np.stack([
            extreme("dilate", f, layout[1:], m, a) for f, m, a in zip(*rows, strict=True)
        ])
        for rows in zip(samples, masks, anchors, strict=True)
    ]  # fmt: skip
    check(program()[0], want)
    check(program()[2], [w[::-1] for w in want])
    same_everywhere(program)


# -- median_blur -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_medians_of_all_types(dtype):
    samples = images(dtype=dtype)
    batch = ndd.batch(samples, layout="HWC")
    for size in (3, 5, 7, (1, 3), (9, 5)):
        check(X.median_blur(batch, window_size=size), [median(s, size) for s in samples])


@pytest.mark.parametrize("size", [1, 3, 5, 7, 9, 17, 31, 65])
def test_medians_equal_opencv(size):
    samples = images([(40, 50, 3), (33, 70, 1), (66, 3, 4), (1, 1, 3)])
    found = arrays(X.median_blur(ndd.batch(samples[:1], layout="HWC"), window_size=size))
    np.testing.assert_array_equal(found[0], cv2.medianBlur(samples[0], size))
    for s in samples:
        found = np.asarray(X.median_blur(ndd.tensor(s, layout="HWC"), window_size=size))
        want = cv2.medianBlur(s, size).reshape(s.shape)
        record("experimental.median_blur (OpenCV)", [found], [want])
        np.testing.assert_array_equal(found, want)


def test_medians_per_sample():
    samples = images()
    sizes = [[3, 3], [5, 5], [5, 3], [1, 1], [21, 41]]
    found = X.median_blur(
        ndd.batch(samples, layout="HWC"), window_size=ndd.batch([np.int32(s) for s in sizes])
    )
    check(found, [median(s, n) for s, n in zip(samples, sizes, strict=True)])


def test_networks_select_the_median():
    rng = np.random.default_rng(0)
    for side in networks.SIDES:
        for values in [rng.integers(0, 5, (side, side)), *rng.random((500, side, side))]:
            columns = [networks.sort_values(list(c), min, max) for c in values]
            assert all(c == sorted(c) for c in columns)
            assert networks.middle_of_columns(columns, min, max) == np.median(values)


# -- what is not a usual image ---------------------------------------------------------------------


def test_empty_samples_and_tiny_images():
    shapes = [(0, 5, 3), (5, 0, 3), (1, 1, 3), (2, 1, 3)]
    samples = images(shapes)
    batch = ndd.batch(samples, layout="HWC")
    for size in (3, 5, 7):
        for found in (X.dilate(batch, mask_size=size), X.median_blur(batch, window_size=size)):
            assert [a.shape for a in arrays(found)] == shapes
        check(arrays(X.dilate(batch, mask_size=size))[2:],
              [extreme("dilate", s, mask=(size, size)) for s in samples[2:]])  # fmt: skip
        check(arrays(X.median_blur(batch, window_size=size))[2:],
              [median(s, size) for s in samples[2:]])  # fmt: skip


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nan_and_infinity(dtype):
    """Extremes propagate nan as NumPy's do; a median counts it as the largest value."""
    (x,) = images([(12, 40)], dtype)
    x[3, 4], x[8, 30:34], x[6, 6], x[7, 20] = np.nan, -np.nan, np.inf, -np.inf
    x[0, 0], x[0, 1] = -0.0, 0.0
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1, mode="edge"), (3, 3))
    flat = windows.reshape(*x.shape, 9)
    t = ndd.tensor(x, layout="HW")
    np.testing.assert_array_equal(np.asarray(X.dilate(t)), flat.max(axis=-1))
    np.testing.assert_array_equal(np.asarray(X.erode(t)), flat.min(axis=-1))
    np.testing.assert_array_equal(np.asarray(X.median_blur(t)), np.sort(flat, axis=-1)[..., 4])


def test_views_as_input():
    (x,) = images([(20, 50, 3)])
    batch = ndd.batch([x, x[:, :20]], layout="HWC")
    turned = ndd.transpose(batch, perm=[1, 0, 2], output_layout="HWC")
    check(X.dilate(turned, mask_size=[3, 5]),
          [extreme("dilate", s.swapaxes(0, 1), mask=(3, 5)) for s in (x, x[:, :20])])  # fmt: skip
    strided = ndd.as_tensor(x[::2, ::-3], layout="HWC")
    np.testing.assert_array_equal(np.asarray(X.median_blur(strided)), median(x[::2, ::-3], 3))


# -- fusion ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("border", ["constant", "reflect", "reflect_101", "wrap"])
def test_fused_in_all_modes(border):
    batch = ndd.batch(images(), layout="HWC")
    mirror = ndd.batch([1, 0, 1, 0, 1])
    masks = ndd.batch([np.int32(m) for m in ([3, 3], [5, 5], [9, 2], [1, 12], [30, 40])])

    def program():
        bright = ndd.brightness(batch, brightness=1.4)
        grown = X.dilate(bright, mask_size=masks, border_mode=border)
        shrunk = X.erode(batch, mask_size=masks, border_mode=border)
        plain = ndd.flip(shrunk, horizontal=mirror, vertical=1)
        inside = ndd.crop(X.dilate(batch, mask_size=3), crop=[6, 6], out_of_bounds_policy="pad")
        return (
            ndd.crop_mirror_normalize(grown, mirror=mirror, mean=[1.0, 2, 3], std=[2.0, 3, 4]),
            plain, inside, ndd.transpose(X.erode(batch), perm=[2, 0, 1]), shrunk.slice[0],
        )  # fmt: skip

    same_everywhere(program)


def test_fused_medians_in_all_modes():
    batch = ndd.batch(images(dtype="f4"), layout="HWC")
    mirror = ndd.batch([1, 0, 1, 0, 1])
    sizes = ndd.batch([np.int32(m) for m in (3, 5, 7, 1, 3)])

    def program():
        smooth = X.median_blur(batch * 2.0 - 1.0, window_size=sizes)
        return (
            ndd.crop_mirror_normalize(smooth, mirror=mirror, mean=[1.0, 2, 3], std=[2.0, 3, 4]),
            ndd.flip(X.median_blur(batch), vertical=mirror), X.median_blur(batch).slice[:, 1:],
        )  # fmt: skip

    same_everywhere(program)


@pytest.mark.parametrize("op", [X.dilate, X.median_blur])
def test_work_before_and_after_is_one_kernel(op):
    batch = ndd.batch(images(), layout="HWC")
    with ndd.EvalMode.deferred:
        bright = ndd.brightness(batch, brightness=1.4)
        out = ndd.crop_mirror_normalize(op(bright), mirror=1, mean=[1.0, 2, 3], std=[2.0, 3, 4])
        assert len(ndd.explain(out).groups) == 1


def test_new_windows_compile_nothing():
    batch = ndd.batch(images(), layout="HWC")
    ops = (
        lambda n: X.dilate(batch, mask_size=n, iterations=n), lambda n: X.erode(batch, mask_size=n),
        lambda n: X.median_blur(batch, window_size=n),
    )  # fmt: skip
    for op in ops:
        op(3).evaluate()
    before = cpu_runtime.compile_count
    for op in ops:
        for n in range(1, 12, 2):
            op(n).evaluate()
        op(ndd.batch([np.int32(n) for n in (5, 1, 3, 7, 9)])).evaluate()
    assert cpu_runtime.compile_count == before


# -- errors ----------------------------------------------------------------------------------------


def tensor(shape=(4, 5, 3), layout="HWC"):
    return ndd.zeros(shape=list(shape), dtype=ndd.uint8, layout=layout)


def test_errors_of_extremes():
    x = tensor()
    for text, call in {
        "`border_mode` must be one of constant, replicate, clamp, reflect, reflect_1001, "
        "reflect_101, wrap, got 'mirror'": lambda: X.dilate(x, border_mode="mirror"),
        "`mask_size` must be positive, got (0, 3)": lambda: X.erode(x, mask_size=[0, 3]),
        "`mask_size` must have 1 or 2 values, got 3": lambda: X.erode(x, mask_size=[1, 2, 3]),
        "`anchor` must have 1 or 2 values, got 3": lambda: X.erode(x, anchor=[1, 2, 3]),
        "`anchor` must lie within the mask, or be -1, got (3, 0)": lambda: X.dilate(
            x, anchor=[3, 0]
        ),
        "got (-2, 0)": lambda: X.dilate(x, anchor=[-2, 0]),
        "`iterations` must not be negative, got -1": lambda: X.dilate(x, iterations=-1),
        "the layout 'DHWC' does not match any of the allowed layouts: HW, HWC, FHWC, CHW, FCHW":
            lambda: X.dilate(tensor((2, 4, 5, 3), "DHWC")),
    }.items():  # fmt: skip
        error_everywhere(ValueError, text, call)
    two = ndd.batch([np.zeros((4, 5, 3), np.uint8)] * 2, layout="HWC")
    error_everywhere(
        ValueError, "`mask_size` must be positive, got (3, -1) for sample 1",
        lambda: X.dilate(two, mask_size=ndd.batch([np.int32([3, 3]), np.int32([3, -1])])),
    )  # fmt: skip
    frames = tensor((2, 4, 5, 3), "FHWC")
    error_everywhere(
        ValueError, "`mask_size` must have 1 or 2 values, or 2 for each of 2 frames, got 6",
        lambda: X.dilate(frames, mask_size=ndd.tensor(np.ones((3, 2), np.int32))),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`mask_size` must be positive, got (1, 0) for frame 1",
        lambda: X.dilate(frames, mask_size=ndd.tensor(np.int32([[1, 1], [1, 0]]))),
    )  # fmt: skip


def test_errors_of_medians():
    x = tensor()
    for text, call in {
        "`window_size` must be odd, got 4 for axis 1": lambda: X.median_blur(x, window_size=[3, 4]),
        "`window_size` must be positive, got -3 for axis 0": lambda: X.median_blur(
            x, window_size=-3
        ),
        "`window_size` must have 1 or 2 values, got 3": lambda: X.median_blur(
            x, window_size=[3, 3, 3]
        ),
        "`window_size` must be at most 1048576, got": lambda: X.median_blur(
            x, window_size=(1 << 20) + 1
        ),
        "`window_size` must span fewer than 2³¹ pixels, got": lambda: X.median_blur(
            x, window_size=(1 << 18) + 1
        ),
    }.items():
        error_everywhere(ValueError, text, call)
