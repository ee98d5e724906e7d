"""Colour ops against the oracle: values, types, layouts, arguments, modes and errors."""

from __future__ import annotations

import numpy as np
import pytest

import ndd

from .modes import error_everywhere, same_everywhere
from .oracle import check, ndd_call, oracle_call, per_sample

RNG_SEED = 7
SIZES = [(5, 7), (1, 1), (16, 33), (3, 2)]
INTENSITY = ["brightness", "contrast", "brightness_contrast"]
CHROMA = ["hue", "saturation", "hsv", "color_twist"]
ARGUMENTS = {
    "brightness": dict(brightness=1.37, brightness_shift=-0.11),
    "contrast": dict(contrast=0.63, contrast_center=91.5),
    "brightness_contrast": dict(brightness=1.2, brightness_shift=0.07, contrast=1.3),
    "hue": dict(hue=41.0),
    "saturation": dict(saturation=1.83),
    "hsv": dict(hue=-73.5, saturation=0.4, value=1.21),
    "color_twist": dict(brightness=0.9, contrast=1.4, hue=200.0, saturation=0.7),
}


def values(shape, dtype, seed=RNG_SEED):
    """Random values over the useful range of a type, which is the whole range for small integers."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.uniform(-0.3, 1.3, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def images(dtype="uint8", channels=3, lead=(), sizes=SIZES):
    return [values((*lead, h, w, channels), dtype, seed) for seed, (h, w) in enumerate(sizes)]


# -- values --------------------------------------------------------------------------------------


# every pair of types for one op of a family, the ends of the range for the others
INTENSITY_TYPES = [
    ("float32", "uint8"),
    ("int16", None),
    ("uint8", "float32"),
    ("int32", "int16"),
    ("uint8", None),
    ("int16", "uint8"),
    ("int32", None),
    ("float32", None),
    ("float32", "int32"),
]
CHROMA_TYPES = [
    ("float32", "float32"),
    ("uint8", "float16"),
    ("int16", None),
    ("int32", "int32"),
    ("uint8", None),
    ("float16", None),
    ("float32", None),
    ("float32", "int16"),
]


@pytest.mark.parametrize(
    ("op", "dtype", "out"),
    [("brightness_contrast", *pair) for pair in INTENSITY_TYPES]
    + [("color_twist", *pair) for pair in CHROMA_TYPES]
    + [(op, *pair) for op in ("brightness", "contrast") for pair in INTENSITY_TYPES[:4]]
    + [(op, *pair) for op in ("hue", "saturation", "hsv") for pair in CHROMA_TYPES[:3]],
)
def test_types(op, dtype, out):
    given = {} if out is None else {"dtype": out}
    check(op, images(dtype), layout="HWC", rtol=0, **ARGUMENTS[op], **given)


@pytest.mark.parametrize("op", INTENSITY + CHROMA)
def test_defaults_and_extremes(op):
    """Without arguments, and where results saturate."""
    check(op, images(), layout="HWC", rtol=0)
    for factor in (0.0, -2.0, 1e6):
        name = "hue" if op == "hue" else next(n for n in ARGUMENTS[op] if n != "hue")
        check(op, images(), layout="HWC", **{name: factor})


@pytest.mark.parametrize("op", INTENSITY + CHROMA)
def test_layouts_and_sizes(op):
    args = ARGUMENTS[op]
    check(op, images(lead=(2,)), layout="FHWC", **args)
    check(op, images(lead=(3,)), layout="DHWC", **args)
    check(op, images(lead=(3,)), **args)  # no layout: the first allowed one of that rank
    check(op, images(), **args)
    check(op, images(), batch=False, layout="HWC", **args)
    check(op, [values((0, 4, 3), "uint8"), values((4, 0, 3), "uint8")], layout="HWC", **args)
    check(op, images(sizes=[(0, 4), (3, 3)]), layout="HWC", **args)


@pytest.mark.parametrize("op", INTENSITY)
@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_intensity_of_any_channels(op, channels):
    check(op, images(channels=channels), layout="HWC", **ARGUMENTS[op])


@pytest.mark.parametrize("op", INTENSITY + CHROMA)
def test_per_sample_arguments(op):
    args = {n: per_sample([v, v / 2, -v, 0.0]) for n, v in ARGUMENTS[op].items()}
    check(op, images(), layout="HWC", rtol=0, **args)
    one = next(iter(ARGUMENTS[op]))
    mixed = {**ARGUMENTS[op], one: args[one]}
    check(op, images(), layout="HWC", rtol=0, **mixed)
    # a tensor with an argument per sample becomes a batch; one-element vectors count as numbers
    check(op, images()[0], layout="HWC", **mixed)
    check(op, images(), layout="HWC", **{one: per_sample([[0.5], [1.5], [2.5], [3.5]])})
    check(op, images(), layout="HWC", **{one: per_sample([1, 0, 2, -1])})
    check(op, images(), layout="HWC", **{one: np.float32(0.75)})


@pytest.mark.parametrize("op", ["hue", "hsv", "color_twist"])
def test_many_angles(op):
    """Where colours nearly cancel, one unit in the angle's sine is already more than 1e-6."""
    angles = np.random.default_rng(3).uniform(-720, 720, 200).astype(np.float32)
    points = [values((1, 15, 3), "float32", s) for s in range(len(angles))]
    given = {**ARGUMENTS[op], "hue": per_sample(angles), "dtype": "float32"}
    check(op, points, layout="HWC", **given)
    bytes_ = [values((4, 64, 3), "uint8", s) for s in range(len(angles))]
    check(op, bytes_, layout="HWC", **{**given, "dtype": "uint8"})


@pytest.mark.parametrize("op", ["hue", "saturation", "color_twist"])
def test_image_type_has_no_effect(op):
    for name in ("RGB", "BGR", "GRAY"):
        check(op, images(), layout="HWC", image_type=name, **ARGUMENTS[op])


# -- colour spaces -------------------------------------------------------------------------------

SPACES = ["RGB", "BGR", "GRAY", "YCbCr"]
PAIRS = [(a, b) for a in SPACES for b in SPACES if a != b]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_color_spaces(source, target):
    channels = 1 if source == "GRAY" else 3
    args = dict(image_type=source, output_type=target)
    check("color_space_conversion", images(channels=channels), layout="HWC", **args)
    check("color_space_conversion", values((256, 1024, channels), "uint8"), layout="HWC", **args)
    check("color_space_conversion", images(channels=channels), batch=False, **args)


@pytest.mark.parametrize("layout", ["FHWC", "DHWC", "FDHWC", None])
def test_color_space_layouts(layout):
    lead = (2, 3) if layout == "FDHWC" else (2,)
    for target in ("GRAY", "YCbCr"):
        args = dict(image_type="RGB", output_type=target)
        check("color_space_conversion", images(lead=lead), layout=layout, **args)


def test_color_space_of_nothing():
    """The oracle fails on empty images; here they stay empty."""
    args = dict(image_type="RGB", output_type="GRAY")
    (result,) = ndd_call("color_space_conversion", images(sizes=[(0, 4), (2, 2)]), **args)
    assert result.shapes == [(0, 4, 1), (2, 2, 1)]
    assert (
        result.arrays[1].tolist()
        == oracle_call("color_space_conversion", images(sizes=[(0, 4), (2, 2)])[1:], **args)[0]
        .arrays[0]
        .tolist()
    )


# -- however it runs -----------------------------------------------------------------------------


@pytest.mark.parametrize("op", INTENSITY + CHROMA)
def test_same_everywhere(op):
    batch = ndd.batch(images(sizes=[(40, 50), (1, 1), (64, 31)]), layout="HWC")
    name, value = next(iter(ARGUMENTS[op].items()))
    args = {**ARGUMENTS[op], name: ndd.batch([value, value / 3, 0.0])}
    same_everywhere(lambda: ndd.flip(getattr(ndd, op)(batch, **args, dtype=ndd.float32)))


def test_numbers_of_a_part():
    """A loop that is split where a part ends still uses the arguments of that part."""
    batch = ndd.batch(images(sizes=[(6, 50), (1, 1)]), layout="HWC")
    factor = ndd.batch([2.0, 0.5])
    (got,) = same_everywhere(
        lambda: ndd.cat(batch, ndd.brightness(batch, brightness=factor), batch, axis=1)
    )
    bright = check(
        "brightness",
        images(sizes=[(6, 50), (1, 1)]),
        layout="HWC",
        brightness=per_sample([2.0, 0.5]),
    )[0]
    for result, x, y in zip(
        got.arrays, images(sizes=[(6, 50), (1, 1)]), bright.arrays, strict=True
    ):
        assert np.array_equal(result, np.concatenate([x, y, x], axis=1))


def test_color_space_same_everywhere():
    batch = ndd.batch(images(sizes=[(40, 50), (1, 1), (64, 31)]), layout="HWC")

    rgb, ycbcr, gray = (ndd.types.DALIImageType[n] for n in ("RGB", "YCbCr", "GRAY"))

    def program():
        x = ndd.color_space_conversion(batch, image_type=rgb, output_type=ycbcr)
        y = ndd.color_space_conversion(ndd.flip(x), image_type=ycbcr, output_type=gray)
        return ndd.brightness(y, brightness=1.5)

    same_everywhere(program)


# -- errors --------------------------------------------------------------------------------------

IMAGE = np.zeros((4, 5, 3), np.uint8)


@pytest.mark.parametrize("op", INTENSITY + CHROMA)
def test_errors(op):
    f = getattr(ndd, op)
    name = next(iter(ARGUMENTS[op]))

    def tensor(x=IMAGE, layout="HWC"):
        return ndd.tensor(x, layout=layout)

    allowed = "allowed layouts: HWC, FHWC, DHWC"
    error_everywhere(
        ValueError,
        f"{op}: the layout 'CHW' does not match any of the {allowed}",
        lambda: f(tensor(layout="CHW")),
    )
    error_everywhere(
        ValueError,
        f"{op}: the number of dimensions 2 does not match any of the {allowed}",
        lambda: f(tensor(IMAGE[0], None)),
    )
    error_everywhere(
        TypeError, f"{op}: element type bool is not supported", lambda: f(tensor(IMAGE > 0))
    )
    error_everywhere(
        ValueError,
        f"{op}: Inconsistent batch size: 2 != 3",
        lambda: f(ndd.batch([IMAGE] * 2), **{name: ndd.batch([1.0, 2.0, 3.0])}),
    )
    error_everywhere(
        ValueError,
        f"argument `{name}` must be a number or one number per sample, got shape (2,)",
        lambda: f(tensor(), **{name: [1.0, 2.0]}),
    )
    error_everywhere(
        TypeError,
        f"{op}: argument `{name}`: cannot make a tensor from str",
        lambda: f(tensor(), **{name: "much"}),
    )
    error_everywhere(TypeError, f"{op}: `input` is missing: got None", lambda: f(None))
    with pytest.raises(TypeError, match="positional argument"):
        f()
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such'"):
        f(tensor(), no_such=1)
    if op in CHROMA:
        text = f"{op}: `input` must have 3 channels, sample 1 of shape (4, 5, 1) (HWC) has 1"
        error_everywhere(ValueError, text, lambda: f(ndd.batch([IMAGE, IMAGE[..., :1]])))
    check(op, images(), layout="HWC", **ARGUMENTS[op])


def test_color_space_errors():
    f, T = ndd.color_space_conversion, ndd.types.DALIImageType
    image = ndd.tensor(IMAGE, layout="HWC")
    error_everywhere(
        ValueError,
        "conversion from RGB to RGB is not supported",
        lambda: f(image, image_type=T.RGB, output_type=T.RGB),
    )
    error_everywhere(
        ValueError,
        "conversion from RGB to ANY_DATA is not supported",
        lambda: f(image, image_type=T.RGB, output_type=T.ANY_DATA),
    )
    error_everywhere(
        ValueError,
        "GRAY images have 1 channels, sample 0 of shape (4, 5, 3) has 3",
        lambda: f(image, image_type=T.GRAY, output_type=T.RGB),
    )
    error_everywhere(
        TypeError,
        "only uint8 images can be converted, got f32",
        lambda: f(ndd.tensor(IMAGE.astype(np.float32)), image_type=T.RGB, output_type=T.GRAY),
    )
    error_everywhere(
        ValueError,
        "the layout 'CHW' does not match any of the allowed layouts",
        lambda: f(ndd.tensor(IMAGE, layout="CHW"), image_type=T.RGB, output_type=T.GRAY),
    )
    error_everywhere(
        ValueError,
        "argument `output_type` must be one of RGB, BGR, GRAY, YCbCr",
        lambda: f(image, image_type=T.RGB, output_type="CMYK"),
    )
    error_everywhere(
        TypeError,
        "argument `output_type` is required",
        lambda: f(image, image_type=T.RGB, output_type=None),
    )
    check("color_space_conversion", images(), layout="HWC", image_type="RGB", output_type="GRAY")
