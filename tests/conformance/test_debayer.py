"""debayer against the oracle (which calls OpenCV), in all modes and on both devices."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.ops.filters.debayer import ALGORITHMS
from tests.helpers import arrays

from .modes import error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import check, oracle_call, per_sample

POSITIONS = [[0, 0], [0, 1], [1, 0], [1, 1]]
SHAPES = [(12, 16), (2, 2), (4, 4), (40, 46), (2, 6), (6, 2), (6, 10), (8, 8), (10, 6)]
# Upstream computes these on the CPU.
KNOWN = [name for name in ALGORITHMS if name.endswith("_ocv")]


def raw(shapes, dtype="u1", seed=0):
    """Noise over the whole range of the type."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    return [rng.integers(0, np.iinfo(kind).max, s, kind, endpoint=True) for s in shapes]


def smooth(shape, seed=0):
    """An image with edges and slopes, unlike noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    waves = 90 * np.sin(x / 7.0) * np.cos(y / 11.0) + 40 * ((x // 13 + y // 9) % 2)
    return np.clip(waves + 100 + rng.normal(0, 3, shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("dtype", ["u1", "u2"])
@pytest.mark.parametrize("name", ["bilinear_ocv", "edgeaware_ocv", "gray_ocv"])
def test_equals_upstream(name, dtype, position):
    images = raw(SHAPES, dtype)
    got = check("debayer", images, layout="HW", blue_position=position, algorithm=name)
    assert got[0].layout == "HWC"


@pytest.mark.parametrize("position", POSITIONS)
def test_variable_gradients(position):
    """Upstream rounds halves differently in the outermost columns: see docs/differences.md."""
    images = [*raw([(2, 4), (4, 6), (6, 20)]), *raw([(200, 210)]), smooth((120, 90))]
    given = {"layout": "HW", "blue_position": position, "algorithm": "vng_ocv"}
    got = check("debayer", images, exact=False, **given)
    want = oracle_call("debayer", images, **given)
    for a, b in zip(got[0].arrays, want[0].arrays, strict=True):
        np.testing.assert_array_equal(a[:, 2:-8], b[:, 2:-8])


def test_a_position_per_sample():
    images = raw(SHAPES[:4])
    for name in KNOWN[:2]:
        check("debayer", images, layout="HW", blue_position=per_sample(POSITIONS), algorithm=name)


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("HW", (6, 8)), ("HWC", (6, 8, 1)), ("FHW", (3, 6, 8)), ("FHWC", (3, 6, 8, 1)),
     (None, (6, 8)), (None, (6, 8, 1)), (None, (3, 6, 8, 1))],
)  # fmt: skip
@pytest.mark.parametrize("name", KNOWN)
def test_layouts(layout, shape, name):
    images = raw([shape])
    for batch in (True, False):
        check(
            "debayer", images, layout=layout, batch=batch, exact=name != "vng_ocv",
            blue_position=[0, 1], algorithm=name,
        )  # fmt: skip


def test_names_in_capitals_and_the_default():
    image = ndd.tensor(raw([(8, 12)])[0], layout="HW")
    plain = ndd.debayer(image, blue_position=[1, 0])
    for name in ("bilinear_ocv", "BILINEAR_OCV", None):
        named = ndd.debayer(image, blue_position=[1, 0], algorithm=name)
        np.testing.assert_array_equal(np.asarray(plain), np.asarray(named))


# -- the definition ------------------------------------------------------------------------------


def mosaic(colour, shape, position):
    """What the sensors see of a constant colour."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    rows, columns = (y + position[0] + 1) % 2 == 0, (x + position[1] + 1) % 2 == 0
    return np.where(rows & columns, colour[2], np.where(rows | columns, colour[1], colour[0]))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_constant_colours_come_back(name, position):
    colour = np.array([200, 90, 40], np.uint8)
    image = mosaic(colour, (12, 14), position).astype(np.uint8)
    got = np.asarray(ndd.debayer(ndd.tensor(image), blue_position=position, algorithm=name))
    want = [117] if name == "gray_ocv" else colour  # 0.299 R + 0.587 G + 0.114 B
    np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))


def test_chroma_correlation():
    """Upstream has `default_npp` on the GPU only; this is its description, in NumPy."""
    image = raw([(14, 18)], seed=4)[0].astype(np.int64)
    p = np.pad(image, 2, mode="reflect")

    def at(y, x):
        return p[2 + y : 2 + y + image.shape[0], 2 + x : 2 + x + image.shape[1]]

    across, down = at(0, -1) + at(0, 1), at(-1, 0) + at(1, 0)
    bend_x = abs(at(0, -2) + at(0, 2) - 2 * image)
    bend_y = abs(at(-2, 0) + at(2, 0) - 2 * image)
    green = np.where(bend_x < bend_y, (across + 1) >> 1, (down + 1) >> 1)
    green = np.where(bend_x == bend_y, (across + down + 2) >> 2, green)
    y, x = np.mgrid[:14, :18]
    green = np.where((y + x) % 2 == 1, image, green)  # with blue at (0, 0), even sums are chroma
    got = ndd.debayer(
        ndd.tensor(image.astype(np.uint8)), blue_position=[0, 0], algorithm="default_npp"
    )
    np.testing.assert_array_equal(np.asarray(got)[..., 1], green)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_empty_samples(name):
    shapes = [(0, 4), (4, 0), (6, 4), (0, 0)]
    images = raw(shapes)
    out = ndd.debayer(ndd.batch(images, layout="HW"), blue_position=[0, 0], algorithm=name)
    channels = 1 if name == "gray_ocv" else 3
    assert [a.shape for a in arrays(out)] == [(*s, channels) for s in shapes]
    alone = ndd.debayer(ndd.tensor(images[2]), blue_position=[0, 0], algorithm=name)
    np.testing.assert_array_equal(arrays(out)[2], np.asarray(alone))


# -- modes, devices, fusion ----------------------------------------------------------------------

IMAGES = raw([(12, 16), (8, 22), (2, 4), (4, 6)], seed=5)


def plain(name):
    return lambda x: ndd.debayer(x, blue_position=ndd.batch(POSITIONS), algorithm=name)


def chain(x):
    """Pointwise ops and views before and after."""
    x = ndd.expand_dims(ndd.cast(x * 0.5 + 3, dtype=ndd.uint8), axes=[2], new_axis_names="C")
    x = ndd.flip(x, vertical=1)
    x = ndd.debayer(x, blue_position=ndd.batch(POSITIONS))
    x = ndd.color_twist(x, saturation=1.2)
    return ndd.crop_mirror_normalize(
        x, crop=[4, 4], mirror=ndd.batch([0, 1, 1, 0]), out_of_bounds_policy="pad"
    )


def resized(x):
    return ndd.resize(ndd.debayer(x, blue_position=[1, 0], algorithm="edgeaware_ocv"), size=[7, 9])


PROGRAMS = [*map(plain, ALGORITHMS), chain, resized]
NAMES = [*ALGORITHMS, "chain", "resized"]


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_same_bits_in_all_modes(program):
    same_everywhere(lambda: program(ndd.batch(IMAGES, layout="HW")))


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_same_bits_on_the_gpu(program):
    same_on_the_gpu(program, IMAGES, "HW")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_kernel_equals_its_reference(name, monkeypatch):
    """Whole images, and parts of them in another order: mirrored, cropped, padded, every third."""
    from ndd.kernels.cpu import runtime
    from tests.helpers import forget_plans
    from tests.reference.kernels import ReferenceKernel

    def results():
        x = ndd.debayer(ndd.batch(IMAGES, layout="HW"), blue_position=ndd.batch(POSITIONS),
                        algorithm=name)  # fmt: skip
        parts = ndd.crop(x, crop=[7, 5], crop_pos_x=0.3, out_of_bounds_policy="pad")
        both = ndd.flip(x, horizontal=1, vertical=1)
        return [arrays(y) for y in (x, parts, both, both.slice[::3, 1::2])]

    with ndd.EvalMode.deferred:
        found = results()
        forget_plans(monkeypatch)
        monkeypatch.setattr(runtime, "get_kernel", ReferenceKernel)
        wanted = results()
    for ours, theirs in zip(found, wanted, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_channels_first_without_a_layout():
    """The kernel loops over channels that it does not know to be channels."""
    x = ndd.batch(IMAGES[:2], layout="HW")
    plain = arrays(ndd.debayer(x, blue_position=[0, 1]))
    moved = ndd.transpose(ndd.debayer(x, blue_position=[0, 1]), perm=[2, 0, 1],
                          transpose_layout=False)  # fmt: skip
    for a, b in zip(plain, arrays(moved.slice[:, 1:, ::-1]), strict=True):
        np.testing.assert_array_equal(a.transpose(2, 0, 1)[:, 1:, ::-1], b)


@pytest.mark.parametrize("name", ["bilinear_ocv", "vng_ocv"])
def test_only_a_region_of_a_decoded_frame_is_read(name):
    from tests.decoders.fixtures import encoded, photo

    frames = [photo(h, w) for h, w in ((64, 90), (120, 66))]
    files = [np.frombuffer(encoded(".png", f), np.uint8) for f in frames]

    def part(x, **window):
        x = ndd.debayer(x, blue_position=[1, 0], algorithm=name)
        return ndd.crop(x, crop=[20, 31], **window)

    def decoded():
        return ndd.decoders.image(ndd.batch(files), output_type=ndd.types.GRAY)

    for window in ({}, dict(crop_pos_x=0.0, crop_pos_y=1.0), dict(crop_pos_x=1.0, crop_pos_y=0.0)):
        whole = decoded().evaluate()
        for a, b in zip(
            arrays(part(whole, **window)), arrays(part(decoded(), **window)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_work_after_it_is_in_the_same_kernel():
    with ndd.EvalMode.deferred:
        x = ndd.debayer(ndd.batch(IMAGES[:2], layout="HW"), blue_position=[0, 0])
        text = str(ndd.explain(ndd.color_twist(x, hue=20.0)))
    assert "debayer → color_twist" in text, text


# -- errors --------------------------------------------------------------------------------------


def test_errors():
    image = ndd.tensor(raw([(8, 12)])[0], layout="HW")
    error_everywhere(
        ValueError, "height and width of `input` must be even, sample 0 has shape (7, 12)",
        lambda: ndd.debayer(ndd.zeros(shape=[7, 12], dtype=ndd.uint8), blue_position=[0, 0]),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`blue_position` must be 0 or 1 each, got (0, 2)",
        lambda: ndd.debayer(image, blue_position=[0, 2]),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`blue_position` must have 2 values, got 1",
        lambda: ndd.debayer(image, blue_position=1),
    )  # fmt: skip
    error_everywhere(
        TypeError, "argument `blue_position` is required", lambda: ndd.debayer(image)
    )  # fmt: skip
    error_everywhere(
        ValueError, "`algorithm` must be one of bilinear_ocv, edgeaware_ocv, vng_ocv, gray_ocv, "
        "default_npp, got 'nope'",
        lambda: ndd.debayer(image, blue_position=[0, 0], algorithm="nope"),
    )  # fmt: skip
    error_everywhere(
        TypeError, "`algorithm` 'vng_ocv' takes uint8 only, got u16",
        lambda: ndd.debayer(
            ndd.zeros(shape=[8, 8], dtype=ndd.uint16), blue_position=[0, 0], algorithm="vng_ocv"
        ),
    )  # fmt: skip
    error_everywhere(
        TypeError, "element type i32 is not supported",
        lambda: ndd.debayer(ndd.zeros(shape=[8, 8]), blue_position=[0, 0]),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`input` must have one channel, sample 0 of shape (4, 4, 3) (HWC) has 3; give "
        "sequences the layout FHW",
        lambda: ndd.debayer(ndd.zeros(shape=[4, 4, 3], dtype=ndd.uint8), blue_position=[0, 0]),
    )  # fmt: skip
