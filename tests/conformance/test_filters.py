"""gaussian_blur, laplacian and filter against the oracle, in all modes and on both devices."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from ndd.kernels.ir.windows import BORDERS
from tests.helpers import arrays, samples

from .modes import error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import MAX_OFF, RTOL, ndd_call, oracle_call, per_sample, record

SHAPES = [(31, 37, 3), (1, 1, 3), (8, 5, 3), (1, 20, 3), (2, 3, 3)]
KERNELS = [(3, 3), (7, 5), (2, 4), (1, 1), (1, 9)]


def check(op, *inputs, **kwargs):
    """At most one integer in 10⁴ is off by one; floats are within 1e-6 of the largest value."""
    want, got = oracle_call(op, *inputs, **kwargs), ndd_call(op, *inputs, **kwargs)
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.dtype, ours.shapes, ours.layout) == (
            theirs.dtype,
            theirs.shapes,
            theirs.layout,
        )
        a, b = (np.concatenate([x.ravel() for x in r.arrays]) for r in (ours, theirs))
        record(op, [a], [b])
        finite = np.isfinite(b.astype(np.float64))
        np.testing.assert_array_equal(a[~finite], b[~finite])
        a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
        if ours.arrays[0].dtype.kind in "iu":
            assert np.abs(a - b).max(initial=0) <= 1
            assert (a != b).mean() <= MAX_OFF
        else:
            # `check_halves` tests float16 more strictly.
            rtol = 2e-3 if np.asarray(inputs[0][0]).dtype == np.float16 else RTOL
            assert np.abs(a - b).max(initial=0) <= rtol * np.abs(b).max(initial=0)
    return got


def check_halves(op, halves, **kwargs):
    """Upstream rounds products of float16 values to float16; we round the float32 result once.

    So the results of float16 images equal those of the same values as float32, which `check`
    compares with upstream's.
    """
    wide = check(op, [x.astype(np.float32) for x in halves], **kwargs)[0].arrays
    got = ndd_call(op, halves, **kwargs)[0].arrays
    floats = ndd_call(op, halves, dtype="float32", **kwargs)[0].arrays
    for a, b, c in zip(got, wide, floats, strict=True):
        assert a.dtype == np.float16 and a.tobytes() == b.astype(np.float16).tobytes()
        assert c.tobytes() == b.tobytes()


def batch_of(shapes, dtype, seed=0):
    return samples(shapes, np.dtype(dtype).type, seed=seed)


def kernel(shape, seed=0, scale=0.2):
    return (np.random.default_rng(seed).normal(0.05, scale, shape)).astype(np.float32)


LAYOUTS = {
    "HW": (9, 12), "HWC": (9, 12, 3), "CHW": (2, 9, 12), "FHW": (2, 9, 12), "FHWC": (2, 9, 12, 4),
    "FCHW": (2, 3, 9, 12), "CFHW": (3, 2, 9, 12), "DHW": (5, 6, 7), "DHWC": (5, 6, 7, 3),
    "CDHW": (2, 5, 6, 7), "FDHWC": (2, 4, 5, 6, 3), "FCDHW": (2, 2, 4, 5, 6), "W": (30,),
    "FWC": (2, 9, 3), "XY": (9, 12),
}  # fmt: skip


# -- gaussian_blur ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
)
def test_blur_types(dtype):
    images = batch_of(SHAPES, dtype)
    check("gaussian_blur", images, layout="HWC", sigma=1.0)
    check("gaussian_blur", images, layout="HWC", sigma=2.0, dtype="float32")


def test_halves():
    images = batch_of(SHAPES, "f2")
    check_halves("gaussian_blur", images, layout="HWC", sigma=1.0)
    check_halves("laplacian", images, layout="HWC", window_size=5, scale=0.01)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blur_layouts(layout):
    shape = LAYOUTS[layout]
    smaller = tuple(n if c == "C" else max(n - 1, 1) for c, n in zip(layout, shape, strict=True))
    for dtype in ("u1", "f4"):
        images = batch_of([shape, smaller], dtype)
        check("gaussian_blur", images, layout=layout, sigma=0.8)
        check("gaussian_blur", images, layout=layout, batch=False, window_size=5)
        check("laplacian", images, layout=layout, window_size=3)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.5, 1.0, 1.7, 3.0, 7.5])
def test_blur_windows(sigma):
    images = batch_of(SHAPES, "u1")
    check("gaussian_blur", images, layout="HWC", sigma=sigma)
    check("gaussian_blur", images, layout="HWC", sigma=[sigma, 2 * sigma])
    check("gaussian_blur", images, layout="HWC", sigma=sigma, window_size=5)
    check("gaussian_blur", images, layout="HWC", sigma=[0.0, sigma], window_size=[7, 0])


def test_blur_of_the_same_bits_as_upstream():
    images = batch_of(SHAPES, "f4")
    for sigma in (0.4, 1.0, 3.0):
        want = oracle_call("gaussian_blur", images, layout="HWC", sigma=sigma)[0].arrays
        got = ndd_call("gaussian_blur", images, layout="HWC", sigma=sigma)[0].arrays
        assert [a.tobytes() for a in got] == [a.tobytes() for a in want]


def test_blur_per_sample():
    images = batch_of(SHAPES, "u1")
    sigmas = per_sample([0.5, 3.0, 1.0, 0.25, 2.0])
    check("gaussian_blur", images, layout="HWC", sigma=sigmas)
    pairs = per_sample([[0.5, 1.0], [3.0, 0.2], [1.0, 1.0], [2.0, 0.5], [0.1, 4.0]])
    check("gaussian_blur", images, layout="HWC", sigma=pairs)
    check("gaussian_blur", images, layout="HWC", window_size=per_sample([1, 3, 5, 7, 19]))


def test_one_image_with_many_sigmas():
    image = batch_of([(9, 11, 3)], "u1")[0]
    sigmas = [0.5, 1.0, 3.0]
    many = ndd.gaussian_blur(
        ndd.tensor(image, layout="HWC"), sigma=ndd.batch([*map(np.float32, sigmas)])
    )
    one = [ndd.gaussian_blur(ndd.tensor(image, layout="HWC"), sigma=s) for s in sigmas]
    for a, b in zip(arrays(many), one, strict=True):
        np.testing.assert_array_equal(a, np.asarray(b))


def test_no_layout_means_all_axes():
    image = batch_of([(5, 6, 7)], "f4")[0]
    check("gaussian_blur", image, sigma=0.7)
    check("laplacian", image)


# -- laplacian -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4"])
def test_laplacian_types(dtype):
    images = batch_of(SHAPES, dtype)
    check("laplacian", images, layout="HWC", scale=0.1)
    check("laplacian", images, layout="HWC", dtype="float32")


@pytest.mark.parametrize("window", [3, 5, 9, 23, 31])
def test_laplacian_windows(window):
    images = batch_of(SHAPES, "f4")
    check("laplacian", images, layout="HWC", window_size=window)
    check("laplacian", images, layout="HWC", window_size=window, smoothing_size=1)
    check("laplacian", images, layout="HWC", window_size=[3, window], smoothing_size=[window, 5])
    check("laplacian", images, layout="HWC", window_size=window, normalized_kernel=True)
    check("laplacian", images, layout="HWC", window_size=[window, 5], scale=[0.25, -3.0])


def test_laplacian_per_sample():
    images = batch_of(SHAPES, "f4")
    sizes = per_sample([[3, 5], [7, 3], [3, 3], [5, 9], [11, 3]])
    check("laplacian", images, layout="HWC", window_size=sizes)
    check("laplacian", images, layout="HWC", smoothing_size=sizes, window_size=5)
    check("laplacian", images, layout="HWC", scale=per_sample([1.0, 2.0, 0.5, -1.0, 0.0]))


def test_laplacian_of_halves():
    images = batch_of(SHAPES, "i2")
    check("laplacian", images, layout="HWC", scale=0.125)


# -- filter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4"])
def test_filter_borders(border, dtype):
    images = batch_of(SHAPES, dtype)
    for shape in KERNELS:
        check("filter", images, kernel(shape), layout=("HWC", None), border=border)
        check("filter", images, kernel(shape), layout=("HWC", None), border=border, dtype="float32")


@pytest.mark.parametrize("border", BORDERS)
def test_filter_anchors(border):
    images = batch_of(SHAPES, "u1")
    for anchor in ([0, 0], [6, 4], [-1, 4], [5, -1]):
        check("filter", images, kernel((7, 5)), layout=("HWC", None), border=border, anchor=anchor)
    anchors = per_sample([[0, 0], [6, 4], [1, 1], [-1, 3], [2, -1]])
    check("filter", images, kernel((7, 5)), layout=("HWC", None), border=border, anchor=anchors)


@pytest.mark.parametrize("layout", ["HW", "HWC", "CHW", "FHW", "FHWC", "FCHW", "XY"])
def test_filter_layouts(layout):
    images = batch_of([LAYOUTS[layout]], "u1")
    check("filter", images, kernel((3, 4)), layout=(layout, None))
    check("filter", images, kernel((3, 4)), layout=(layout, None), batch=False, mode="valid")


def test_a_kernel_per_sample():
    images = batch_of(SHAPES, "f4")
    kernels = [kernel(shape, seed) for seed, shape in enumerate(KERNELS)]
    check("filter", images, kernels, layout=("HWC", None))


def test_fill_values():
    images = batch_of(SHAPES, "u1")
    numbers = [np.array(v, np.uint8) for v in (0, 255, 7, 1, 99)]
    check(
        "filter",
        images,
        kernel((5, 3)),
        np.array(7, np.uint8),
        layout=("HWC", None, None),
        border="constant",
    )
    check("filter", images, kernel((5, 3)), numbers, layout=("HWC", None, None), border="constant")
    for name in ("FILL", "const", "pad"):
        check("filter", images, kernel((5, 3)), numbers, layout=("HWC", None, None), border=name)
    for name in ("reflect", "reflect1001", "reflect101", "1001", "101", "Edge"):
        check("filter", images, kernel((5, 3)), layout=("HWC", None), border=name)


def test_filter_valid():
    images = batch_of([(31, 37, 3), (7, 5, 3), (9, 5, 3)], "u1")
    for anchor in ([-1, -1], [0, 4]):
        got = check(
            "filter", images, kernel((7, 5)), layout=("HWC", None), mode="valid", anchor=anchor
        )
    assert got[0].shapes == [(25, 33, 3), (1, 1, 3), (3, 1, 3)]


def test_filter_rounds_halves_to_even():
    half = np.array([[0.5]], np.float32)
    row = ndd.tensor(np.array([[1, 3, 5, 7]], np.uint8), layout="HW")
    assert np.asarray(ndd.filter(row, half)).tolist() == [[0, 2, 2, 4]]


@pytest.mark.parametrize("border", ["reflect_101", "reflect_1001", "clamp", "wrap", "constant"])
def test_weights_of_zero_change_no_bit(border):
    """Taps of bytes are left out if most weights are zeros; those of floats are not."""
    star = np.zeros((5, 5), np.float32)
    star[2], star[:, 2] = -0.3, 0.7
    minus = np.full((3, 3), -0.0, np.float32)
    minus[1, 1] = -1.5
    late = np.zeros((4, 6), np.float32)
    late[3, 5] = -2.0
    lines = [np.eye(7, dtype=np.float32) / 7, star, minus, late, -late[::-1], 0 * star, 0 * minus]
    bytes_ = [x * (x > 128) for x in batch_of(SHAPES, "u1")]  # with zeros, which make sums of -0
    for weights in lines:
        for turn in (0, 1):
            both = []
            for dtype in (np.uint8, np.float32):
                x = ndd.batch([b.astype(dtype) for b in bytes_], layout="HWC")
                y = ndd.filter(x, weights, border=border, dtype=ndd.float32)
                both.append([a.tobytes() for a in arrays(ndd.flip(y, horizontal=0, vertical=turn))])
            assert both[0] == both[1], (weights, turn)


def naive(x, w, anchor, border, fill=0.0):
    """The definition of a filter, in float64; the first axes of x are those of w."""
    out = np.zeros(x.shape, np.float64)
    modes = {"reflect_101": "reflect", "reflect_1001": "symmetric", "clamp": "edge", "wrap": "wrap"}
    widths = [(a, n - 1 - a) for a, n in zip(anchor, w.shape, strict=True)]
    widths += [(0, 0)] * (x.ndim - w.ndim)
    if border == "constant":
        padded = np.pad(x.astype(np.float64), widths, constant_values=fill)
    else:
        padded = np.pad(x.astype(np.float64), widths, mode=modes[border])
    for at in np.ndindex(*w.shape):
        part = tuple(slice(a, a + n) for a, n in zip(at, x.shape[: w.ndim], strict=True))
        out += w[at] * padded[part]
    return out


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("dtype", ["u1", "i1", "f2", "f4"])
def test_volumes_and_lines_equal_the_definition(border, dtype):
    """Upstream filters volumes and these types on the GPU only."""
    cases = [
        ((5, 6, 7, 2), "DHWC", (3, 2, 5)),
        ((2, 3, 4, 1), "DHWC", (7, 1, 3)),
        ((9, 3), "WC", (4,)),
    ]
    for shape, layout, size in cases:
        x, w = batch_of([shape], dtype)[0], kernel(size)
        anchor = tuple(n // 2 for n in size)
        y = ndd.filter(ndd.tensor(x, layout=layout), w, 3, border=border, dtype=ndd.float32)
        want = naive(x, w, anchor, border, 3.0)
        np.testing.assert_allclose(np.asarray(y), want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_weights_that_are_not_contiguous():
    x = batch_of([(9, 8, 3)], "f4")[0]
    w = kernel((4, 3))
    plain = ndd.filter(ndd.tensor(x, layout="HWC"), ndd.tensor(np.ascontiguousarray(w.T)))
    other = ndd.filter(ndd.tensor(x, layout="HWC"), ndd.as_tensor(w.T))
    np.testing.assert_array_equal(np.asarray(plain), np.asarray(other))


# -- degenerate data -------------------------------------------------------------------------------

OPS = {
    "gaussian_blur": lambda x: ndd.gaussian_blur(x, sigma=1.5),
    "laplacian": lambda x: ndd.laplacian(x, window_size=5),
    "filter": lambda x: ndd.filter(x, kernel((3, 5)), border="wrap"),
}


@pytest.mark.parametrize("name", OPS)
def test_empty_samples(name):
    shapes = [(0, 5, 3), (4, 0, 3), (4, 5, 3), (0, 0, 3)]
    out = OPS[name](ndd.batch(batch_of(shapes, "u1"), layout="HWC"))
    assert out.shape == shapes
    alone = OPS[name](ndd.tensor(batch_of(shapes, "u1")[2], layout="HWC"))
    np.testing.assert_array_equal(arrays(out)[2], np.asarray(alone))
    assert [a.shape for a in arrays(out)] == shapes


@pytest.mark.parametrize("border", ["reflect_101", "constant"])
def test_nan_and_infinity_stay_in_their_windows(border):
    x = np.ones((9, 11), np.float32)
    x[2, 3], x[7, 8] = np.nan, np.inf
    got = np.asarray(
        ndd.filter(ndd.tensor(x, layout="HW"), np.ones((3, 3), np.float32), border=border)
    )
    is_nan = np.zeros_like(x, bool)
    is_nan[1:4, 2:5] = True
    np.testing.assert_array_equal(np.isnan(got), is_nan)
    assert np.isinf(got[6:9, 7:10]).all() and np.isfinite(got[:5, 6:]).all()
    check("gaussian_blur", x, layout="HW", sigma=1.0)
    check("laplacian", x, layout="HW")


def test_constant_images_stay_constant():
    x = np.full((20, 30, 3), 77, np.uint8)
    for sigma in (0.3, 1.0, 4.0):
        y = ndd.gaussian_blur(ndd.tensor(x, layout="HWC"), sigma=sigma)
        np.testing.assert_array_equal(np.asarray(y), x)


# -- modes, devices, fusion ------------------------------------------------------------------------


def chain(x):
    """Pointwise ops, flips and a crop before and after a window."""
    x = ndd.color_twist(x, hue=20.0, saturation=1.3)
    x = ndd.gaussian_blur(x, sigma=ndd.batch([np.float32(s) for s in (0.5, 1.0, 2.0)]))
    x = ndd.flip(x, horizontal=ndd.batch([1, 0, 1]), vertical=ndd.batch([0, 1, 1]))
    return ndd.crop_mirror_normalize(
        x, crop=[9, 8], mirror=ndd.batch([0, 1, 1]), mean=[1.0, 2.0, 3.0]
    )


def padded(x):
    """A crop that extends beyond the blurred image, and stepped slices."""
    y = ndd.crop(
        ndd.gaussian_blur(x, sigma=1.0),
        crop=[30, 20],
        out_of_bounds_policy="pad",
        fill_values=[9.0],
    )
    return y.slice[::2, ::-3]


def blurred_padding(x):
    return ndd.gaussian_blur(
        ndd.pad(x, axis_names="HW", align=[16, 16], fill_value=200.0), sigma=2.0
    )


def two_windows(x):
    return ndd.laplacian(ndd.gaussian_blur(ndd.resize(x, size=[17, 13]), sigma=0.7), window_size=5)


def shared(x):
    y = ndd.gaussian_blur(x, sigma=1.0)
    return ndd.cat(y, ndd.flip(y), x - y > 3, axis=1)


PROGRAMS = [chain, padded, blurred_padding, two_windows, *OPS.values()]
IMAGES = batch_of([(12, 15, 3), (31, 10, 3), (9, 8, 3)], "u1", seed=5)


# `chain` contains colour ops, which need HWC.
COMBINATIONS = [(p, "HWC") for p in PROGRAMS] + [(p, "CHW") for p in PROGRAMS if p is not chain]


@pytest.mark.parametrize(("program", "layout"), COMBINATIONS)
def test_same_bits_in_all_modes(program, layout):
    images = IMAGES
    if layout == "CHW":
        images = [np.ascontiguousarray(x.transpose(2, 0, 1)) for x in IMAGES]
    same_everywhere(lambda: program(ndd.batch(images, layout=layout)))


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_bits_on_the_gpu(program):
    same_on_the_gpu(program, IMAGES, "HWC")


def test_work_around_a_blur_is_one_kernel():
    with ndd.EvalMode.deferred:
        text = str(ndd.explain(chain(ndd.batch(IMAGES, layout="HWC"))))
    assert "color_twist → gaussian_blur → flip → crop_mirror_normalize" in text, text


def test_new_windows_compile_nothing():
    images = ndd.batch(IMAGES, layout="HWC")

    def run(sigma, size, weights):
        outs = [ndd.gaussian_blur(images, sigma=sigma), ndd.laplacian(images, window_size=size)]
        return [arrays(o) for o in (*outs, ndd.filter(images, weights))]

    run(1.0, 3, kernel((3, 3)))
    before = cpu_runtime.compile_count
    run(2.5, 7, kernel((5, 9)))
    run([0.3, 4.0], [3, 9], kernel((1, 2)))
    assert cpu_runtime.compile_count == before


# -- errors ----------------------------------------------------------------------------------------


def image(dtype=np.uint8):
    return ndd.tensor(np.zeros((5, 6, 3), dtype), layout="HWC")


ERRORS = [
    (ValueError, "one of `sigma` and `window_size` must not be 0 for axis 0",
     lambda: ndd.gaussian_blur(image())),
    (ValueError, "`sigma` must be finite and not negative, got -1",
     lambda: ndd.gaussian_blur(image(), sigma=-1.0)),
    (ValueError, "`sigma` must be finite and not negative, got nan",
     lambda: ndd.gaussian_blur(image(), sigma=float("nan"))),
    (ValueError, "`sigma` is too large: 1e+09", lambda: ndd.gaussian_blur(image(), sigma=1e9)),
    (ValueError, "`window_size` must be odd, got 4 for axis 1",
     lambda: ndd.gaussian_blur(image(), window_size=[3, 4])),
    (ValueError, "`window_size` must not be negative, got -3",
     lambda: ndd.gaussian_blur(image(), window_size=-3)),
    (ValueError, "`sigma` must have 1 or 2 values, got 3",
     lambda: ndd.gaussian_blur(image(), sigma=[1.0, 1.0, 1.0])),
    (TypeError, "`dtype` must be the input's (u8) or float32, got i16",
     lambda: ndd.gaussian_blur(image(), sigma=1.0, dtype=ndd.int16)),
    (TypeError, "element type bool is not supported",
     lambda: ndd.gaussian_blur(image(np.bool_), sigma=1.0)),
    (ValueError, "the input must have one to three spatial dimensions",
     lambda: ndd.gaussian_blur(ndd.tensor(np.zeros((2, 3, 4)), layout="HCW"), sigma=1.0)),
    (ValueError, "got 4 dimensions",
     lambda: ndd.gaussian_blur(ndd.tensor(np.zeros((2, 3, 4, 5))), sigma=1.0)),
    (ValueError, "`window_size` must be odd, from 3 to 31, got 1 for axis 0",
     lambda: ndd.laplacian(image(), window_size=1)),
    (ValueError, "`smoothing_size` must be odd, from 1 to 31, got 33",
     lambda: ndd.laplacian(image(), smoothing_size=33)),
    (ValueError, "`scale` cannot be combined with `normalized_kernel`",
     lambda: ndd.laplacian(image(), scale=1.0, normalized_kernel=True)),
    (TypeError, "element type f64 is not supported", lambda: ndd.laplacian(image(np.float64))),
    (ValueError, "`filter` must have 2 dimensions, one for each spatial axis of `data`, got 3",
     lambda: ndd.filter(image(), np.ones((1, 3, 3), np.float32))),
    (ValueError, "`filter` must not be empty, got shape (0, 3)",
     lambda: ndd.filter(image(), np.ones((0, 3), np.float32))),
    (ValueError, "`border` must be one of reflect_101, reflect_1001, clamp, wrap, constant, got 'x'",
     lambda: ndd.filter(image(), kernel((3, 3)), border="x")),
    (ValueError, "`anchor` must lie within the filter, got (3, 0) for sample 0 with a filter of shape",
     lambda: ndd.filter(image(), kernel((3, 3)), anchor=[3, 0])),
    (ValueError, "`anchor` must have 2 values, got 3",
     lambda: ndd.filter(image(), kernel((3, 3)), anchor=[0, 0, 0])),
    (ValueError, "`filter` of shape (7, 3) must not be larger than the sample if `mode` is 'valid'",
     lambda: ndd.filter(image(), kernel((7, 3)), mode="valid")),
    (TypeError, "element type i64 is not supported",
     lambda: ndd.filter(image(np.int64), kernel((3, 3)))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "program"), ERRORS, ids=[e[1][:40] for e in ERRORS])
def test_errors(kind, text, program):
    error_everywhere(kind, text, program)
