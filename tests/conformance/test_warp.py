"""rotate, warp_affine, warp_perspective, remap, water and sphere, against the oracle where it is
exact, and against float64 references, OpenCV and scipy."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import scipy.ndimage
from nvidia.dali.types import DALIInterpType

import ndd
from tests.helpers import nothing_compiled
from tests.reference import warp as reference

from .modes import error_everywhere, same_everywhere
from .oracle import ndd_call, oracle_call, per_sample, record

NN, LINEAR, CUBIC = (
    DALIInterpType.INTERP_NN,
    DALIInterpType.INTERP_LINEAR,
    DALIInterpType.INTERP_CUBIC,
)
SIZES = [(24, 31), (17, 40), (33, 12)]
ANGLES = [0.0, 45.0, -45.0, 90.0, 135.0, 180.0, 225.0, 270.0, 315.0, 360.0, -720.0, 1e6, 1e-4, 33.3, -512.75]  # fmt: skip


def images(dtype="uint8", lead=(), channels=3, sizes=SIZES, seed=0):
    """Noise over the whole range of bytes, or [-128, 128) for signed and floating types."""
    rng = np.random.default_rng(seed)
    low = 0 if np.dtype(dtype).kind == "u" else -128
    return [
        (rng.random((*lead, *s, channels)) * 256 + low).astype(dtype) for s in sizes
    ]  # fmt: skip


def near(got, want, scale=256.0, nearest=False):
    """Off by at most 1 in at most 1 of 100 integers; floats within 1e-3 of full scale.

    With NN a pixel may be its neighbour, so 1 of 100 values may differ by any amount.
    """
    assert got.shape == want.shape
    if got.size == 0:
        return
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    if nearest:
        assert np.mean(difference > 0) <= 0.01
    elif got.dtype.kind == "f":
        assert difference.max() <= 1e-3 * scale
    else:
        assert difference.max() <= 1
        assert np.mean(difference > 0) <= 0.01


def check(op, *inputs, layout="HWC", **kwargs):
    """Both libraries agree on kind, shapes, type, layout and values; returns ours."""
    (want,) = oracle_call(op, *inputs, layout=layout, **kwargs)
    (got,) = ndd_call(op, *inputs, layout=layout, **kwargs)
    for field in ("batch", "shapes", "dtype", "layout"):
        assert getattr(got, field) == getattr(want, field), field
    default = NN if op in ("water", "sphere") else LINEAR
    nearest = kwargs.get("interp_type", default) == NN
    record(op, got.arrays, want.arrays)
    flat = [np.concatenate([a.reshape(-1) for a in r.arrays]) for r in (got, want)]
    near(*flat, nearest=nearest)
    return got


def ours(op, *inputs, layout="HWC", **kwargs):
    (got,) = ndd_call(op, *inputs, layout=layout, **kwargs)
    return got.arrays


def matrices(count=3, ndim=2, seed=0):
    """Affine maps close to the identity."""
    rng = np.random.default_rng(seed)
    square = np.eye(ndim) + rng.uniform(-0.3, 0.3, (count, ndim, ndim))
    offset = rng.uniform(-6, 6, (count, ndim, 1)) * (1 if ndim == 2 else 0.3)
    return list(np.concatenate([square, offset], axis=-1).astype(np.float32))


# -- warp_affine ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [None, 77.5])
@pytest.mark.parametrize("interp", [NN, LINEAR])
def test_affine_filters_and_borders(interp, fill):
    kwargs = {} if fill is None else {"fill_value": fill}
    for seed in range(5):
        matrix = per_sample(matrices(seed=seed))
        check("warp_affine", images(seed=seed), matrix=matrix, interp_type=interp, **kwargs)
        check(
            "warp_affine", images(seed=seed), matrix=matrix, interp_type=interp, size=[29, 18],
            inverse_map=False, **kwargs,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "out"),
    [("uint8", "float32"), ("int16", None), ("int16", "float32"), ("int32", None),
     ("float32", None), ("float32", "uint8"), ("float32", "int16")],
)  # fmt: skip
def test_affine_types(dtype, out):
    kwargs = {"dtype": out} if out else {}
    for name in ("dtype", "output_dtype"):
        if out:
            kwargs = {name: out}
        check(
            "warp_affine", images(dtype), matrix=per_sample(matrices()), fill_value=-3.5, **kwargs
        )


@pytest.mark.parametrize("dtype", ["uint16", "int8", "float16"])
def test_affine_types_that_are_an_addition(dtype):
    """The same as a warp of the float32 values, rounded once."""
    x = [np.trunc(np.abs(a) / 2).astype(dtype) for a in images("float32")]
    kwargs = {"matrix": per_sample(matrices()), "fill_value": 3.0}
    exact = ours("warp_affine", [a.astype(np.float32) for a in x], **kwargs)
    for a, b in zip(ours("warp_affine", x, **kwargs), exact, strict=True):
        assert np.array_equal(a, reference.converted(b, dtype))
    for a, b in zip(ours("warp_affine", x, dtype="float32", **kwargs), exact, strict=True):
        assert np.array_equal(a, b)


def test_affine_of_bfloat16_is_an_addition():
    values = [np.trunc(a / 2) for a in images("float32")]
    x = ndd.cast(ndd.batch(values, layout="HWC"), dtype=ndd.bfloat16)
    kwargs = {"matrix": ndd.batch(matrices()), "fill_value": 3.0}
    exact = ndd.warp_affine(ndd.batch(values, layout="HWC"), **kwargs)
    warped = ndd.warp_affine(x, **kwargs)
    assert warped.dtype == ndd.bfloat16
    for a, b in zip(warped.tensors, exact.tensors, strict=True):
        got, want = (np.array(ndd.cast(t, dtype=ndd.float32)) for t in (a, b))
        assert np.allclose(got, want, rtol=2**-8, atol=0)


@pytest.mark.parametrize(
    ("layout", "lead"), [("FHWC", (2,)), ("DHWC", (9,)), ("FDHWC", (2, 6)), (None, (2,))]
)
def test_affine_layouts(layout, lead):
    ndim = 3 if layout and "D" in layout else 2
    x = images(lead=lead, channels=2)
    for interp in (NN, LINEAR):
        for kwargs in ({}, {"fill_value": 200.0}):
            matrix = per_sample(matrices(ndim=ndim))
            check("warp_affine", x, layout=layout, matrix=matrix, interp_type=interp, **kwargs)
    if ndim == 3:
        check("warp_affine", x, layout=layout, matrix=matrices(ndim=3)[1], size=[4, 20, 13])


@pytest.mark.parametrize("channels", [1, 5])
def test_any_number_of_channels(channels):
    """More than four channels are an innermost loop."""
    x = images(channels=channels)
    check("rotate", x, angle=per_sample([20.0 + k for k in range(len(x))]))
    check("warp_affine", x, matrix=[0.9, 0.2, 1.0, -0.1, 1.1, 2.0], fill_value=7.0)


@pytest.mark.parametrize("layout", ["CHW", "FCHW", "CDHW", "FCDHW"])
def test_channels_in_front_are_an_addition(layout):
    """The result equals that of the channels-last layout, transposed."""
    last = layout.replace("C", "") + "C"
    lead = {"H": (), "F": (2,), "D": (3,)}[last[0]] if "FD" not in last else (2, 3)
    x = images(lead=lead)
    matrix = per_sample(matrices(ndim=3 if "D" in layout else 2))
    kwargs = {"matrix": matrix, "fill_value": 9.0}
    place = layout.index("C")
    moved = ours("warp_affine", [np.moveaxis(a, -1, place) for a in x], layout=layout, **kwargs)
    for a, b in zip(moved, ours("warp_affine", x, layout=last, **kwargs), strict=True):
        assert np.array_equal(np.moveaxis(a, place, -1), b)


def test_affine_matrix_per_frame():
    x = images(lead=(3,))
    frames = [np.stack(matrices(seed=s)) for s in range(3)]
    check("warp_affine", x, layout="FHWC", matrix=per_sample(frames, layout="F**"))
    check(
        "warp_affine", x, layout="FHWC", matrix=per_sample(frames, layout="F**"), inverse_map=False
    )
    check("warp_affine", x, frames, layout=("FHWC", "F**"), fill_value=3.0)


def test_affine_forms_of_the_matrix():
    """All ways to pass a matrix mean the same: list, rows, array, tensor, by position, integers."""
    x = ndd.tensor(images()[0], layout="HWC")
    values = np.array([[0.75, 0.25, 1.0], [0.0, 1.0, 2.0]], np.float32)
    (want,) = oracle_call("warp_affine", images()[0], layout="HWC", matrix=values)
    flat = values.reshape(-1)
    rows = values.tolist()
    forms = [flat.tolist(), tuple(flat.tolist()), rows, values, flat, values.astype(np.float64),
             ndd.tensor(values), ndd.tensor(flat), ndd.tensor(values.astype(np.float16))]  # fmt: skip
    for form in forms:
        near(np.array(ndd.warp_affine(x, matrix=form)), want.arrays[0])
        near(np.array(ndd.warp_affine(x, form)), want.arrays[0])
    shifted = np.array(ndd.warp_affine(x, matrix=np.array([[1, 0, 2], [0, 1, 0]])))
    assert np.array_equal(shifted[:, :-2], images()[0][:, 2:])


def test_affine_takes_transforms():
    x = ndd.batch(images(), layout="HWC")
    turned = ndd.transforms.rotation(angle=ndd.batch([10.0, 50.0, 90.0]), center=[8.0, 9.0])
    got = ndd.warp_affine(x, matrix=turned, fill_value=0.0)
    for image, matrix, result in zip(images(), turned.tensors, got.tensors, strict=True):
        want = reference.affine(image, np.array(matrix), fill=0.0)
        near(np.array(result), reference.converted(want, np.uint8))


def test_shifts_by_whole_pixels_are_exact():
    x = images("float32")[0]
    for dx, dy in ((0, 0), (3, -2), (-31, 24), (1000000, 0), (-4, 5)):
        for interp in (NN, LINEAR):
            (got,) = ours("warp_affine", [x], matrix=[1.0, 0.0, dx, 0.0, 1.0, dy], fill_value=-9.0,
                          interp_type=interp)  # fmt: skip
            want = reference.affine(x, [[1, 0, dx], [0, 1, dy]], fill=-9.0, linear=False)
            assert np.array_equal(got, want.astype(np.float32))


# (a, b, c) of x' = a x + b y + c. Running sums stay within one power of two, cross many, cross
# zero, or go backwards; their steps are ties in the last place, vanish in it, or are zero.
RUNS = [(0.9, 0.2, 3.1), (0.37, -0.81, 200.3), (-0.9, 0.01, 700.7), (0.77, 0.3, -301.3),
        (0.75 + 2**-15, 0.0, 260.0), (2**-3 + 2**-16, 1.0, 129.0), (-(0.5 + 2**-16), 3.0, 300.0),
        (1e-5, 1.0, 300.0), (1e-9, 1.0, 300.0), (0.0, 0.5, 7.25), (1.0, 0.0, 0.0)]  # fmt: skip


def test_positions_are_running_sums(monkeypatch):
    """Positions are equal to the last bit (NOTE [running sums]); between black and white
    stripes, an interpolated value shows its position."""
    monkeypatch.setenv("NDD_GPU", "simulate")
    stripes = np.zeros((1, 1000, 1), np.float32)
    stripes[:, 1::2] = 1
    x = [stripes] * len(RUNS)
    matrix = [np.float32([[a, b, c], [0, 0, 0.5]]) for a, b, c in RUNS]
    (want,) = oracle_call("warp_affine", x, layout="HWC", matrix=per_sample(matrix), size=[3, 800])
    got = ndd.warp_affine(ndd.batch(x, layout="HWC"), matrix=ndd.batch(matrix), size=[3, 800])
    mirrored = ndd.flip(ndd.warp_affine(
        ndd.batch(x, layout="HWC"), matrix=ndd.batch(matrix), size=[3, 800]
    ))  # fmt: skip
    on_gpu = ndd.warp_affine(
        ndd.batch(x, layout="HWC").gpu(), matrix=ndd.batch(matrix), size=[3, 800]
    )
    for a, b, c, d in zip(want.arrays, got.tensors, mirrored.tensors, on_gpu.cpu(), strict=True):
        assert np.array_equal(np.array(b), a)
        assert np.array_equal(np.array(c), a[:, ::-1])
        assert np.array_equal(np.array(d), a)


def test_large_images():
    """On noise, an error of half a thousandth of a pixel would change one value in 50."""
    rng = np.random.default_rng(3)
    for shape in ((300, 700, 3), (620, 270, 1)):
        x = rng.integers(0, 256, shape, np.uint8)
        kwargs = {"matrix": np.float32([[0.9, -0.3, 120.5], [0.31, 0.88, -70.25]])}
        for more in ({"fill_value": 50.0}, {"interp_type": NN}):
            (want,) = oracle_call("warp_affine", [x], layout="HWC", **kwargs, **more)
            (got,) = ours("warp_affine", [x], **kwargs, **more)
            assert np.mean(got != want.arrays[0]) <= 1e-4
            assert "interp_type" in more or np.abs(got.astype(int) - want.arrays[0]).max() <= 1
        check("rotate", [x], angle=25.0)
        check("rotate", [x], angle=171.0, interp_type=NN)


# -- positions that are none ---------------------------------------------------------------------

WILD = [np.nan, np.inf, -np.inf, 1e38, -1e38, 3e9, -3e9]


@pytest.mark.parametrize("fill", [None, 7.0])
@pytest.mark.parametrize("interp", [NN, LINEAR])
def test_wild_matrices(interp, fill):
    """A nan position gives the fill value or a pixel of the border."""
    image = images("float32", sizes=[(5, 6)])[0]
    kwargs = {} if fill is None else {"fill_value": fill}
    for wild in WILD:
        for k in range(6):
            matrix = np.array([1, 0, 0, 0, 1, 0], np.float32)
            matrix[k] = wild
            (got,) = ours(
                "warp_affine", [image], matrix=matrix.reshape(2, 3), interp_type=interp, **kwargs
            )
            assert np.isfinite(got).all()
            if k in (2, 5):  # all of the result is outside
                pixels = image if fill is None else np.float32([fill])
                distance = np.abs(got.reshape(-1, 1) - pixels.reshape(1, -1)).min(axis=1)
                assert distance.max() <= 1e-4


def test_wild_volumes_and_projections():
    volume = images("float32", lead=(3,), sizes=[(5, 6)])[0]
    image = volume[0]
    for wild in WILD:
        for k in range(12):
            matrix = np.eye(3, 4, dtype=np.float32)
            matrix.flat[k] = wild
            for kwargs in ({}, {"fill_value": 7.0}):
                (got,) = ours("warp_affine", [volume], layout="DHWC", matrix=matrix, **kwargs)
                assert np.isfinite(got).all()
        for k in range(9):
            matrix = np.eye(3, dtype=np.float32)
            matrix.flat[k] = wild
            for border in ("constant", "reflect", "reflect_101", "wrap"):
                (got,) = ours(PERSPECTIVE, [image], matrix=matrix, border_mode=border)
                assert np.isfinite(got).all()


# -- rotate --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [None, 77.5])
@pytest.mark.parametrize("interp", [NN, LINEAR])
def test_rotate_angles(interp, fill):
    kwargs = {} if fill is None else {"fill_value": fill}
    for k, angle in enumerate(ANGLES):
        x = images(seed=k)
        check("rotate", x, angle=angle, interp_type=interp, **kwargs)
    check("rotate", images(), angle=per_sample([30.0, 90.0, -200.0]), interp_type=interp, **kwargs)
    check("rotate", images(), angle=30.0, keep_size=True, interp_type=interp, **kwargs)
    check("rotate", images(), angle=30.0, size=[50, 21], interp_type=interp, **kwargs)


def test_rotate_canvas():
    """Sizes of the result for many angles and extents; one kernel."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        shapes = [(*rng.integers(1, 40, 2), 1) for _ in range(8)]
        angles = rng.uniform(-1000, 1000, 8)
        angles[:2] = rng.integers(-16, 17, 2) * 45
        x = [np.zeros(s, np.uint8) for s in shapes]
        turned = per_sample([np.float32(a) for a in angles])
        (want,) = oracle_call("rotate", x, layout="HWC", angle=turned)
        (got,) = ndd_call("rotate", x, layout="HWC", angle=turned)
        assert got.shapes == want.shapes, (shapes, angles)
        for shape, angle, result in zip(shapes, angles, got.shapes, strict=True):
            w, h = reference.canvas([shape[1], shape[0]], reference.turn(angle))
            assert result == (h, w, 1)


def test_rotate_by_right_angles_is_exact():
    x = images("float32")
    for quarter in range(-9, 9):
        for interp in (NN, LINEAR):
            got = ours("rotate", x, angle=90.0 * quarter, interp_type=interp, fill_value=0.0)
            for a, b in zip(got, x, strict=True):
                assert np.array_equal(a, np.rot90(b, quarter))


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32"])
def test_rotate_types(dtype):
    check("rotate", images(dtype), angle=33.0, fill_value=-2.5)
    check("rotate", images(dtype), angle=33.0, dtype="float32")


def test_rotate_sequences():
    x = images(lead=(3,))
    check("rotate", x, layout="FHWC", angle=33.0)
    check("rotate", x, layout="FHWC", angle=per_sample([33.0, 90.0, 1.0]), fill_value=0.0)
    frames = per_sample([[30.0, 40.0, 90.0], [1.0, 2.0, 3.0], [0.0, 170.0, 181.0]], layout="F")
    check("rotate", x, layout="FHWC", angle=frames)
    check("rotate", x, layout="FHWC", angle=frames, keep_size=True)


def test_rotate_volumes():
    rng = np.random.default_rng(5)
    x = images(lead=(7,), channels=1)
    for interp in (NN, LINEAR):
        for kwargs in ({}, {"fill_value": 10.0}):
            for _ in range(4):
                axis = rng.standard_normal(3).astype(np.float32).tolist()
                angle = float(np.float32(rng.uniform(-400, 400)))
                check(
                    "rotate", x, layout="DHWC", angle=angle, axis=axis, interp_type=interp, **kwargs
                )
    axes = per_sample([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    check("rotate", x, layout="DHWC", angle=per_sample([90.0, 20.0, 45.0]), axis=axes)
    check("rotate", x, layout="DHWC", angle=20.0, axis=[1.0, 1.0, 0.0], size=[5, 20, 30])
    check("rotate", x, layout="DHWC", angle=20.0, axis=[1.0, 1.0, 0.0], keep_size=True)
    y = images(lead=(2, 5), channels=2)
    check("rotate", y, layout="FDHWC", angle=20.0, axis=[1.0, 1.0, 0.0], fill_value=5.0)
    # around z a volume turns like its planes, the other way round
    flat = ours("rotate", x, layout="FHWC", angle=-35.0)
    solid = ours("rotate", x, layout="DHWC", angle=35.0, axis=[0.0, 0.0, 2.0])
    for a, b in zip(flat, solid, strict=True):
        near(a, b)


def test_rotate_tiny_and_empty():
    for shape in ((1, 1, 3), (1, 7, 3), (5, 1, 3), (2, 2, 3)):
        for angle in (0.0, 30.0, 45.0, 90.0):
            x = np.full(shape, 200, np.uint8)
            got = check("rotate", x, angle=angle)
            assert (got.arrays[0] == 200).all()
    none = ours("rotate", [np.zeros((5, 6, 0), np.uint8)], angle=90.0)
    assert none[0].shape == (6, 5, 0)
    error_everywhere(
        ValueError, "rotate: sample 0 of shape (0, 6, 3) has no pixels to read",
        lambda: ndd.rotate(ndd.tensor(np.zeros((0, 6, 3), np.uint8), layout="HWC"), angle=30.0),
    )  # fmt: skip


def test_one_kernel_for_all_sizes_and_angles():
    ours("rotate", images(), angle=12.0, fill_value=0.0)
    ours("warp_affine", images(), matrix=per_sample(matrices()), fill_value=0.0)
    with nothing_compiled():
        for k in range(5):
            x = images(sizes=[(9 + k, 30), (40, 8 + k), (k + 1, 3)], seed=k)
            ours("rotate", x, angle=per_sample([k * 30.0, 5.0, 90.0]), fill_value=2.0 * k)
            ours("rotate", x, angle=7.0 * k, fill_value=1.0, keep_size=True)
            matrix = per_sample(matrices(seed=k))
            ours("warp_affine", x, matrix=matrix, fill_value=1.0, size=[20 + k, 9])


# -- warp_perspective ----------------------------------------------------------------------------

PERSPECTIVE, REMAP = "experimental.warp_perspective", "experimental.remap"
BORDERS = ("constant", "replicate", "reflect", "reflect_101", "wrap")
INTERP = {"nn": NN, "linear": LINEAR, "cubic": CUBIC}
CV_BORDERS = {"constant": cv2.BORDER_CONSTANT, "replicate": cv2.BORDER_REPLICATE,
              "reflect": cv2.BORDER_REFLECT, "reflect_101": cv2.BORDER_REFLECT_101,
              "wrap": cv2.BORDER_WRAP}  # fmt: skip


def homographies(count=3, seed=0):
    rng = np.random.default_rng(seed)
    matrix = np.eye(3) + rng.uniform(-0.2, 0.2, (count, 3, 3))
    matrix[:, :2, 2] *= 20
    matrix[:, 2, :2] *= 0.02
    return list(matrix.astype(np.float32))


@pytest.mark.parametrize("interp", list(INTERP))
@pytest.mark.parametrize("border", BORDERS)
def test_perspective(border, interp):
    """Against the reference; and against the oracle, which rounds positions to 1/32 of a pixel,
    where they are multiples of it."""
    for seed, origin in enumerate(("corner", "center", "corner")):
        x, matrix = images("float32", channels=1, seed=seed), homographies(seed=seed)
        kwargs = dict(border_mode=border, interp_type=INTERP[interp], pixel_origin=origin)
        kwargs |= {"fill_value": 40.0, "size": [30, 50]}
        got = ours(PERSPECTIVE, x, matrix=per_sample(matrix), **kwargs)
        for image, m, result in zip(x, matrix, got, strict=True):
            want = reference.perspective(image, m, (30, 50), 40.0, border, interp, origin)
            near(result, want, nearest=interp == "nn")
        # OpenCV's cubic filter reads other pixels if the position is far outside
        shifts = (-7.25, 0.03125, 20.75) if interp != "cubic" else (-3.25, 0.03125, 4.75)
        if interp == "cubic":
            del kwargs["size"]
        for shift in shifts:
            step = np.array([[1, 0, shift], [0, 1, -shift], [0, 0, 1]], np.float32)
            check(PERSPECTIVE, x, matrix=step, **kwargs)


def test_perspective_follows_the_oracle():
    """In an image that changes slowly, 1/32 of a pixel changes values by less than one."""
    y, x = np.mgrid[:24, :31]
    slow = [((x * 3 + y * 2 + k)[..., None] + [0, 50, 100]).astype(np.uint8) for k in range(3)]
    m = np.array([[0.7, 0.1, 3], [0.05, 0.6, 4], [0.001, 0, 1]], np.float32)  # stays inside
    for origin in ("corner", "center"):
        (want,) = oracle_call(PERSPECTIVE, slow, layout="HWC", matrix=m, pixel_origin=origin)
        (got,) = ndd_call(PERSPECTIVE, slow, layout="HWC", matrix=m, pixel_origin=origin)
        assert (got.shapes, got.dtype, got.layout) == (want.shapes, want.dtype, want.layout)
        record(PERSPECTIVE, got.arrays, want.arrays)
        for a, b in zip(got.arrays, want.arrays, strict=True):
            assert np.abs(a.astype(int) - b).max() <= 1


def test_perspective_follows_opencv():
    image = images("float32", channels=1)[0]
    for seed in range(4):
        (m,) = homographies(1, seed)
        for flag, interp in ((cv2.INTER_NEAREST, NN), (cv2.INTER_LINEAR, LINEAR)):
            for border in BORDERS:
                want = cv2.warpPerspective(
                    image, m.astype(np.float64), (40, 30), flags=flag | cv2.WARP_INVERSE_MAP,
                    borderMode=CV_BORDERS[border], borderValue=(11.0,),
                )  # fmt: skip
                (got,) = ours(
                    PERSPECTIVE, [image], matrix=m, size=[30, 40], interp_type=interp,
                    pixel_origin="center", border_mode=border, fill_value=[11.0],
                )  # fmt: skip
                difference = np.abs(got[..., 0] - want)
                if interp == NN:
                    assert np.mean(difference > 0) <= 0.01
                else:  # 1/64 pixel in both directions, times the largest slope of noise
                    assert difference.max() <= 256 / 32
                    assert difference.mean() <= 2.0


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
def test_perspective_types_and_layouts(dtype):
    (m,) = homographies(1)
    x = images(dtype)
    wide = ours(PERSPECTIVE, [a.astype(np.float32) for a in x], matrix=m, fill_value=3.0)
    got = ours(PERSPECTIVE, x, matrix=m, fill_value=3.0)
    for a, b in zip(got, wide, strict=True):
        assert a.dtype == np.dtype(dtype)
        assert np.array_equal(a, reference.converted(b, dtype))
    if dtype != "uint8":
        return
    for layout, place in (("CHW", 0), ("FCHW", 1), ("FHWC", 3)):
        moved = [np.moveaxis(a[None] if "F" in layout else a, -1, place) for a in x]
        again = ours(PERSPECTIVE, moved, layout=layout, matrix=m, fill_value=3.0)
        for a, b in zip(again, got, strict=True):
            back = np.moveaxis(a, place, -1)
            assert np.array_equal(back[0] if "F" in layout else back, b)
    flat = ours(PERSPECTIVE, [a[..., 0] for a in x], layout="HW", matrix=m, fill_value=3.0)
    assert all(np.array_equal(a, b[..., 0]) for a, b in zip(flat, got, strict=True))


def test_perspective_arguments():
    x = images()
    far = np.array([[1, 0, 500], [0, 1, 0], [0, 0, 1]], np.float32)
    for fill in ([7.5, 8.6, 300.0], [6.5, -3.0, 254.5], 9.0):
        (want,) = oracle_call(PERSPECTIVE, x, layout="HWC", matrix=far, fill_value=fill)
        got = ours(PERSPECTIVE, x, matrix=far, fill_value=fill)
        assert all(np.array_equal(a, b) for a, b in zip(got, want.arrays, strict=True))
    for size in ([7], [2.6, 3.4], [4, 9]):
        (want,) = oracle_call(PERSPECTIVE, x, layout="HWC", matrix=far, size=size)
        (got,) = ndd_call(PERSPECTIVE, x, layout="HWC", matrix=far, size=size)
        assert got.shapes == want.shapes
    # the inverse matrix, by position, as a list
    (m,) = homographies(1)
    back = np.linalg.inv(m.astype(np.float64)).astype(np.float32)
    first = ours(PERSPECTIVE, x, matrix=back)
    for a, b in zip(first, ours(PERSPECTIVE, x, matrix=m, inverse_map=False), strict=True):
        near(a, b)
    (again,) = ndd_call(PERSPECTIVE, x, [back] * 3, layout=("HWC", None))
    assert all(np.array_equal(a, b) for a, b in zip(again.arrays, first, strict=True))
    frames = per_sample([np.stack(homographies(2, s)) for s in range(3)], layout="F**")
    sequence = images(lead=(2,))
    got = ours(PERSPECTIVE, sequence, layout="FHWC", matrix=frames)
    for k, a in enumerate(got):
        for f in range(2):
            one = ours(PERSPECTIVE, [sequence[k][f]], matrix=homographies(2, k)[f])
            assert np.array_equal(a[f], one[0])


# -- remap ---------------------------------------------------------------------------------------


def maps(sizes=((20, 25), (31, 9), (8, 44)), seed=0):
    rng = np.random.default_rng(seed)
    return [
        [(rng.random(s) * 50 - 8).astype(np.float32) for s in sizes],
        [(rng.random(s) * 40 - 8).astype(np.float32) for s in sizes],
    ]


@pytest.mark.parametrize("interp", list(INTERP))
@pytest.mark.parametrize("origin", ["corner", "center"])
def test_remap_follows_the_reference(origin, interp):
    x, (mapx, mapy) = images("float32"), maps()
    got = ours(REMAP, x, mapx, mapy, layout=("HWC", "HW", "HW"), interp=INTERP[interp],
               pixel_origin=origin)  # fmt: skip
    for a, image, mx, my in zip(got, x, mapx, mapy, strict=True):
        near(a, reference.remap(image, mx, my, interp, origin), nearest=interp == "nn")


def test_remap_follows_scipy_and_opencv():
    image, (mapx, mapy) = images("float32", channels=1)[0], maps()
    mx, my = mapx[0], mapy[0]
    (got,) = ours(REMAP, [image], [mx], [my], layout=("HWC", "HW", "HW"),
                  pixel_origin="center")  # fmt: skip
    want = scipy.ndimage.map_coordinates(
        image[..., 0], [my, mx], order=1, mode="grid-constant", cval=0.0
    )
    near(got[..., 0], want)
    grid_x, grid_y = (np.round(m * 32) / 32 for m in (mx, my))  # OpenCV's precision
    for flag, interp in (
        (cv2.INTER_LINEAR, LINEAR),
        (cv2.INTER_CUBIC, CUBIC),
        (cv2.INTER_NEAREST, NN),
    ):
        (got,) = ours(REMAP, [image], [grid_x], [grid_y], layout=("HWC", "HW", "HW"),
                      pixel_origin="center", interp=interp)  # fmt: skip
        want = cv2.remap(image, grid_x, grid_y, flag, borderMode=cv2.BORDER_CONSTANT)
        ties = (
            (grid_x % 1 == 0.5) | (grid_y % 1 == 0.5) if interp == NN else np.zeros(mx.shape, bool)
        )
        near(got[..., 0][~ties], want[~ties])


def test_remap_identity_sequences_and_wild_maps():
    x = images()
    grids = [np.mgrid[: a.shape[0], : a.shape[1]].astype(np.float32) for a in x]
    same = ours(REMAP, x, [g[1] for g in grids], [g[0] for g in grids],
                layout=("HWC", None, None), pixel_origin="center")  # fmt: skip
    assert all(np.array_equal(a, b) for a, b in zip(same, x, strict=True))
    same = ours(REMAP, x, [g[1][..., None] for g in grids], [g[0][..., None] for g in grids],
                layout=("HWC", None, None), interp=NN)  # fmt: skip
    assert all(np.array_equal(a, b) for a, b in zip(same, x, strict=True))

    sequence, (mapx, mapy) = images(lead=(2,)), maps()
    shared = ours(REMAP, sequence, mapx, mapy, layout=("FHWC", "HW", "HW"))
    by_frame = [[np.stack([m, m]) for m in kind] for kind in (mapx, mapy)]
    for a, b in zip(
        shared, ours(REMAP, sequence, *by_frame, layout=("FHWC", "FHW", "FHW")), strict=True
    ):
        assert np.array_equal(a, b)
    for k in range(2):
        frame = ours(REMAP, [s[k] for s in sequence], mapx, mapy, layout=("HWC", None, None))
        assert all(np.array_equal(a[k], b) for a, b in zip(shared, frame, strict=True))

    wild = np.array([WILD], np.float32)
    for interp in (NN, LINEAR, CUBIC):
        (got,) = ours(
            REMAP, [x[0]], [wild], [np.zeros_like(wild)], layout=("HWC", None, None), interp=interp
        )
        assert (got == 0).all()


# -- water and sphere ----------------------------------------------------------------------------


@pytest.mark.parametrize("interp", [NN, LINEAR])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_water_and_sphere(dtype, interp):
    for sizes in (SIZES, [(1, 1), (1, 9), (7, 2)], [(150, 203), (60, 80), (3, 3)]):
        x = images(dtype, sizes=sizes)
        check("water", x, interp_type=interp)
        check(
            "water", x, ampl_x=3.3, ampl_y=7.7, freq_x=0.11, freq_y=0.37, phase_x=0.3, phase_y=1.7,
            fill_value=5.7, interp_type=interp,
        )  # fmt: skip
        check("sphere", x[1:], interp_type=interp, fill_value=90.0)
        check("water", x, interp_type=interp, mask=per_sample([0, 1, 2]))
        check("sphere", x[1:], interp_type=interp, mask=per_sample([0, 1]))


def test_water_and_sphere_follow_the_reference():
    x = images()
    for a, b in zip(ours("water", x, fill_value=3.0), x, strict=True):
        assert np.array_equal(a, reference.water(b, fill=3.0))
    for a, b in zip(ours("sphere", x), x, strict=True):
        assert np.array_equal(a, reference.sphere(b))
    # the default frequency, to the last bit
    large = images(channels=1, sizes=[(200, 300)])
    (want,) = oracle_call("water", large, layout="HWC")
    assert np.array_equal(ours("water", large)[0], want.arrays[0])
    # a sphere of one pixel is that pixel
    one = ours("sphere", [np.full((1, 1, 3), 9, np.uint8)])
    assert (one[0] == 9).all()
    # one mask for all works here, upstream ignores it; so does a wave for each sample
    assert all(np.array_equal(a, b) for a, b in zip(ours("water", x, mask=0), x, strict=True))
    waves = ours("water", x, ampl_x=per_sample([1.0, 5.0, 9.0]), ampl_y=np.float32(2.0))
    for a, b, ax in zip(waves, x, (1.0, 5.0, 9.0), strict=True):
        assert np.array_equal(a, reference.water(b, ampl=(ax, 2.0)))


def test_fill_values_are_cut_and_wrap():
    for fill in (2.7, 300.0, -3.0):
        check("water", images(), fill_value=fill, ampl_x=1000.0, phase_x=1.0)


def test_water_layouts_are_an_addition():
    x = images()
    want = ours("water", x)
    channels = ours("water", [np.moveaxis(a, -1, 0) for a in x], layout="CHW")
    frames = ours("water", [np.stack([a, a]) for a in x], layout="FHWC")
    for a, b, c in zip(want, channels, frames, strict=True):
        assert np.array_equal(a, np.moveaxis(b, 0, -1))
        assert np.array_equal(a, c[0])
        assert np.array_equal(a, c[1])


def test_wild_waves():
    x = images("float32")
    for wild in WILD:
        for name in ("ampl_x", "freq_y", "phase_x"):
            for interp in (NN, LINEAR):
                for a in ours("water", x, interp_type=interp, **{name: np.float32(wild)}):
                    assert np.isfinite(a).all()


# -- jitter --------------------------------------------------------------------------------------


def moves(result, width):
    """How far every pixel of an image of numbered pixels has moved, in y and x."""
    row, column = np.divmod(result[..., 0].astype(int), width)
    y, x = np.mgrid[: result.shape[0], : result.shape[1]]
    return row - y, column - x


@pytest.mark.parametrize("degree", [1, 2, 7])
def test_jitter_moves_by_up_to_half_its_degree(degree):
    size, border = (80, 100), 4
    numbered = np.arange(size[0] * size[1], dtype=np.float32).reshape(*size, 1)
    (got,) = ours("jitter", [numbered], nDegree=degree, rng=ndd.random.RNG(seed=1))
    inner = slice(border, -border)
    y, x = (m[inner, inner] for m in moves(got, size[1]))
    # uniform in (-n/2, n/2) from the centre of the pixel: whole moves up to (n + 1) // 2
    most = degree // 2 + degree % 2 if degree > 1 else 0
    expected = {k: max(0.0, min(k + 0.5, degree / 2) - max(k - 0.5, -degree / 2)) / degree
                for k in range(-most, most + 1)}  # fmt: skip
    for moved in (y, x):
        shares = {k: float(np.mean(moved == k)) for k in expected}
        assert np.isin(moved, list(expected)).all()
        for k, share in shares.items():
            assert abs(share - expected[k]) < 0.02, (k, share, expected[k])
    assert degree == 1 or abs(np.corrcoef(x.reshape(-1), y.reshape(-1))[0, 1]) < 0.05


def test_jitter_is_a_function_of_the_generator():
    x = images()
    first = ours("jitter", x, rng=ndd.random.RNG(seed=7))
    again = ours("jitter", x, rng=ndd.random.RNG(seed=7))
    other = ours("jitter", x, rng=ndd.random.RNG(seed=8))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    rng = ndd.random.RNG(seed=7)
    batch = ndd.batch([x[0], x[0]], layout="HWC")
    one, two = ndd.jitter(batch, rng=rng), ndd.jitter(batch, rng=rng)
    assert not np.array_equal(np.array(one.tensors[0]), np.array(one.tensors[1]))
    assert not np.array_equal(np.array(one.tensors[0]), np.array(two.tensors[0]))

    def program():
        return ndd.jitter(ndd.batch(x, layout="HWC") + 0, nDegree=9, rng=ndd.random.RNG(seed=3))

    same_everywhere(program)


def test_jitter_mask_fill_and_layout():
    x = images()
    masked = ours("jitter", x, mask=per_sample([0, 1, 0]), rng=ndd.random.RNG(seed=7))
    whole = ours("jitter", x, rng=ndd.random.RNG(seed=7))
    for k, (a, b, c) in enumerate(zip(masked, whole, x, strict=True)):
        assert np.array_equal(a, b if k == 1 else c)
    far = ours("jitter", x, nDegree=10**6, fill_value=77.9, rng=ndd.random.RNG(seed=7))
    assert np.mean(far[0] == 77) > 0.9
    channels = ours(
        "jitter", [np.moveaxis(a, -1, 0) for a in x], layout="CHW", rng=ndd.random.RNG(seed=7)
    )
    assert all(
        np.array_equal(np.moveaxis(a, 0, -1), b) for a, b in zip(channels, whole, strict=True)
    )
    smooth = ours(
        "jitter", [np.full((9, 9, 1), 5.0, np.float32)], interp_type=LINEAR, fill_value=5.0
    )
    assert np.allclose(smooth[0], 5.0)


# -- all modes, errors ---------------------------------------------------------------------------


def test_the_same_in_all_modes():
    x = ndd.batch(images(), layout="HWC")
    matrix = ndd.batch(matrices())

    def program():
        warped = ndd.warp_affine(x + 0, matrix=matrix, fill_value=7.0, dtype=ndd.float32)
        turned = ndd.rotate(ndd.flip(x), angle=ndd.batch([10.0, 20.0, 30.0]), interp_type=NN)
        waves = ndd.water(ndd.brightness(x, brightness=1.25), interp_type=LINEAR)
        far = ndd.experimental.warp_perspective(x, matrix=homographies(1)[0], border_mode="wrap")
        return [ndd.flip(warped) * 2.0, turned, ndd.sphere(waves), far]

    same_everywhere(program)


def image():
    return ndd.tensor(images()[0], layout="HWC")


def volume():
    return ndd.tensor(images(lead=(3,))[0], layout="DHWC")


IDENTITY = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "text", "call"),
    [
        (ValueError, "warp_affine: `matrix` is missing", lambda: ndd.warp_affine(image())),
        (ValueError, "warp_affine: the matrix is given twice, by position and as `matrix`",
         lambda: ndd.warp_affine(image(), IDENTITY, matrix=IDENTITY)),
        (ValueError, "warp_affine: `matrix` must have the shape (2, 3) or 6 values, got shape (5,)",
         lambda: ndd.warp_affine(image(), matrix=[1.0] * 5)),
        (ValueError, "warp_affine: `matrix` must have the shape (2, 3) or 6 values, got shape (3, 3)",
         lambda: ndd.warp_affine(image(), matrix=np.eye(3))),
        (ValueError, "warp_affine: `matrix` must have the shape (3, 4) or 12 values, got shape (6,)",
         lambda: ndd.warp_affine(volume(), matrix=IDENTITY)),
        (ValueError, "warp_affine: `matrix` of sample 1 has no inverse",
         lambda: ndd.warp_affine(ndd.batch(images(), layout="HWC"), inverse_map=False,
                                 matrix=ndd.batch([np.eye(2, 3), np.zeros((2, 3)), np.eye(2, 3)]))),
        (ValueError, "warp_affine: `size` must have 2 values, got 1",
         lambda: ndd.warp_affine(image(), matrix=IDENTITY, size=[4])),
        (ValueError, "warp_affine: `size` must be positive, got 0",
         lambda: ndd.warp_affine(image(), matrix=IDENTITY, size=[0, 4])),
        (ValueError, "warp_affine: `size` is out of range: nan",
         lambda: ndd.warp_affine(image(), matrix=IDENTITY, size=[float("nan"), 4])),
        (ValueError, "warp_affine: the result is too large: shape (100000000, 100000000, 3)",
         lambda: ndd.warp_affine(image(), matrix=IDENTITY, size=[1e8, 1e8])),
        (ValueError, "warp_affine: `interp_type` must be one of INTERP_NN, INTERP_LINEAR, got INTERP_CUBIC",
         lambda: ndd.warp_affine(image(), matrix=IDENTITY, interp_type=CUBIC)),
        (TypeError, "warp_affine: element type f64 is not supported",
         lambda: ndd.warp_affine(np.zeros((3, 3, 3)), matrix=IDENTITY)),
        (TypeError, "warp_affine: results of type i64 are not supported",
         lambda: ndd.warp_affine(image(), matrix=IDENTITY, dtype=ndd.int64)),
        (ValueError, "warp_affine: sample 0 of shape (0, 4, 3) has no pixels to read",
         lambda: ndd.warp_affine(np.zeros((0, 4, 3), np.uint8), matrix=IDENTITY, size=[2, 2])),
        (ValueError, "rotate: `angle` must be finite, got nan",
         lambda: ndd.rotate(image(), angle=float("nan"))),
        (ValueError, "rotate: `angle` must be finite, got inf",
         lambda: ndd.rotate(image(), angle=float("inf"), keep_size=True)),
        (ValueError, "rotate: `angle` must have one number, got 2 for sample 0 of shape",
         lambda: ndd.rotate(image(), angle=[1.0, 2.0])),
        (ValueError, "rotate: `axis` is required for volumes",
         lambda: ndd.rotate(volume(), angle=1.0)),
        (ValueError, "rotate: `axis` must have 3 values, got 2",
         lambda: ndd.rotate(volume(), angle=1.0, axis=[1.0, 2.0])),
        (ValueError, "rotate: `axis` must be finite and not zero, got (0.0, 0.0, 0.0)",
         lambda: ndd.rotate(volume(), angle=1.0, axis=[0.0, 0.0, 0.0])),
        (ValueError, "experimental.warp_perspective: `border_mode` must be one of constant, replicate",
         lambda: ndd.experimental.warp_perspective(image(), matrix=np.eye(3), border_mode="no")),
        (ValueError, "experimental.warp_perspective: `pixel_origin` must be one of corner, center, got 'x'",
         lambda: ndd.experimental.warp_perspective(image(), matrix=np.eye(3), pixel_origin="x")),
        (ValueError, "experimental.warp_perspective: `fill_value` has 2 values, but sample 0 of shape (24, 31, 3) has 3",
         lambda: ndd.experimental.warp_perspective(image(), matrix=np.eye(3), fill_value=[1.0, 2.0])),
        (ValueError, "experimental.remap: mapx and mapy must have the same shape, got (2, 3) and (3, 2)",
         lambda: ndd.experimental.remap(image(), np.zeros((2, 3)), np.zeros((3, 2)))),
        (ValueError, "experimental.remap: `mapx` must be a map of rows and columns, got 1 dimensions",
         lambda: ndd.experimental.remap(image(), np.zeros(3), np.zeros(3))),
        (ValueError, "experimental.remap: `mapx` of shape (2, 2, 3) has 3 channels in sample 0, wanted 1",
         lambda: ndd.experimental.remap(image(), np.zeros((2, 2, 3)), np.zeros((2, 2, 3)))),
        (ValueError, "water: `interp_type` must be one of INTERP_NN, INTERP_LINEAR, got INTERP_CUBIC",
         lambda: ndd.water(image(), interp_type=CUBIC)),
        (ValueError, "sphere: the layout 'DHWC' does not match any of the allowed layouts",
         lambda: ndd.sphere(volume())),
    ],
)  # fmt: skip
def test_errors(kind, text, call):
    error_everywhere(kind, text, call)
    assert np.array_equal(np.array(ndd.rotate(image(), angle=0.0)), images()[0])
