"""equalize and clahe against the oracle and OpenCV, in all modes and on both devices.

Every comparison is exact: upstream computes both as OpenCV does, and so do we, bit for bit. (Pillow's
`equalize` is another function: a level follows from the pixels below it, in whole steps.)
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from tests.helpers import arrays

from .modes import error_everywhere, same_everywhere
from .oracle import ndd_call, oracle_call, per_sample, record

SIZES = [(31, 37), (1, 1), (8, 5), (1, 20), (64, 48)]


def photo(shape, seed=0, center=110.0, spread=30.0):
    """A smooth image with noise: its histogram has gaps, peaks and a limited range."""
    rng = np.random.default_rng(seed)
    rows = np.sin(np.linspace(0, 3, shape[0]))[(..., *(None,) * (len(shape) - 1))]
    return np.clip(rng.normal(center, spread, shape) + 40 * rows, 0, 255).astype(np.uint8)


def photos(sizes=SIZES, tail=(3,), lead=()):
    return [photo((*lead, *size, *tail), seed) for seed, size in enumerate(sizes)]


def check(op, images, **kwargs):
    """The same bits, shapes and layouts as upstream."""
    want, got = oracle_call(op, images, **kwargs), ndd_call(op, images, **kwargs)
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.dtype, ours.shapes, ours.layout) == (
            theirs.dtype, theirs.shapes, theirs.layout,
        )  # fmt: skip
        record(op, ours.arrays, theirs.arrays)
        for a, b in zip(ours.arrays, theirs.arrays, strict=True):
            np.testing.assert_array_equal(a, b)
    return got


# -- equalize --------------------------------------------------------------------------------------

LAYOUTS = {
    "HW": ((), ()), "HWC": ((), (3,)), "CHW": ((3,), ()), "FHW": ((2,), ()), "FHWC": ((2,), (3,)),
    "FCHW": ((2, 3), ()),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equalize_layouts(layout):
    lead, tail = LAYOUTS[layout]
    images = photos(tail=tail, lead=lead)
    check("equalize", images, layout=layout)
    check("equalize", images, layout=layout, batch=False)


@pytest.mark.parametrize("channels", [1, 2, 4, 5, 9])
def test_equalize_channels(channels):
    check("equalize", photos(tail=(channels,)), layout="HWC")


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_equalize_without_layout(rank):
    check("equalize", photo((6, 9, 3, 2)[:rank]))


@pytest.mark.parametrize(
    "values", [[5], [5, 5, 5], [0, 255], [255, 0, 0], [10, 10, 20, 30], [0] * 999 + [1]]
)
def test_equalize_few_levels(values):
    image = np.array([values], np.uint8)
    check("equalize", image, layout="HW")
    np.testing.assert_array_equal(ndd_call("equalize", image, layout="HW")[0].arrays[0],
                                  cv2.equalizeHist(image))  # fmt: skip


def test_equalize_all_levels_alike():
    every = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(np.asarray(ndd.equalize(ndd.tensor(every, layout="HW"))), every)


def test_equalize_many_pixels():
    """More than 2**24 pixels, whose counts are not exact in float32."""
    image = np.tile(photo((512, 512)), (9, 9))
    np.testing.assert_array_equal(
        np.asarray(ndd.equalize(ndd.tensor(image, layout="HW"))), cv2.equalizeHist(image)
    )


# -- clahe -----------------------------------------------------------------------------------------

TILES = [(8, 8), (1, 1), (3, 5), (7, 2), (40, 50)]


def opencv(image, tiles, limit):
    made = cv2.createCLAHE(limit, tiles)
    planes = [made.apply(np.ascontiguousarray(image[..., c])) for c in range(image.shape[-1])]
    return np.stack(planes, axis=-1)


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("luma_only", [True, False])
def test_clahe_tiles(tiles, luma_only):
    x, y = tiles
    for channels in (1, 3):
        check("clahe", photos(tail=(channels,)), layout="HWC", tiles_x=x, tiles_y=y,
              clip_limit=2.0, luma_only=luma_only)  # fmt: skip


@pytest.mark.parametrize("limit", [-1.0, 0.0, 0.001, 0.5, 1.0, 1.5, 2.1, 4.0, 40.0, 300.0])
def test_clahe_limits(limit):
    check("clahe", photos(tail=(1,)), layout="HWC", tiles_x=4, tiles_y=3, clip_limit=limit)


@pytest.mark.parametrize("size", [(16, 16), (16, 17), (17, 16), (15, 17), (4, 4), (3, 9), (1, 7)])
def test_clahe_of_sizes_that_are_not_divisible(size):
    image = photo((*size, 1))
    got = check("clahe", image, layout="HWC", tiles_x=4, tiles_y=4, clip_limit=3.0)
    np.testing.assert_array_equal(got[0].arrays[0], opencv(image, (4, 4), 3.0))


@pytest.mark.parametrize("level", [0, 1, 100, 255])
def test_clahe_of_constant_images(level):
    images = [np.full((*size, 3), level, np.uint8) for size in SIZES]
    check("clahe", images, layout="HWC", tiles_x=2, tiles_y=3, clip_limit=2.0)
    check("clahe", images, layout="HWC", tiles_x=2, tiles_y=3, clip_limit=2.0, luma_only=False)


def test_clahe_bins_have_no_effect():
    for bins in (1, 64, 256, 1024):
        check("clahe", photos(), layout="HWC", tiles_x=2, tiles_y=2, clip_limit=2.0, bins=bins)


def test_clahe_per_sample():
    """Upstream takes one number for all samples; we also take one for each."""
    images = photos(tail=(1,))
    x, y, limits = [1, 2, 3, 4, 5], [3, 1, 8, 2, 4], [1.0, 2.0, 0.0, 3.5, 40.0]
    got = ndd_call("clahe", images, layout="HWC", tiles_x=per_sample(x), tiles_y=per_sample(y),
                   clip_limit=per_sample(limits))[0].arrays  # fmt: skip
    for k, image in enumerate(images):
        np.testing.assert_array_equal(got[k], opencv(image, (x[k], y[k]), limits[k]))


def test_one_image_with_many_limits():
    image, limits = photo((20, 30, 3)), [1.0, 2.0, 4.0]
    many = ndd.clahe(ndd.tensor(image, layout="HWC"), tiles_x=2, tiles_y=ndd.batch([1, 2, 3]),
                     clip_limit=ndd.batch([*map(np.float32, limits)]))  # fmt: skip
    for k, got in enumerate(arrays(many)):
        one = ndd.clahe(ndd.tensor(image, layout="HWC"), tiles_x=2, tiles_y=1 + k,
                        clip_limit=limits[k])  # fmt: skip
        np.testing.assert_array_equal(got, np.asarray(one))


def test_clahe_without_any_limit():
    """Upstream's limit overflows to 1 if it is huge; ours has no effect any more."""
    image = photo((40, 50, 1))
    results = [
        np.asarray(ndd.clahe(ndd.tensor(image, layout="HWC"), tiles_x=3, tiles_y=2, clip_limit=v))
        for v in (0.0, 256.0, 1e30, float("inf"), float("nan"))
    ]
    for got in results:
        np.testing.assert_array_equal(got, opencv(image, (3, 2), 0.0))


def test_lightness_of_all_colours():
    """Every 5th level of red with all greens and blues, through L*a*b* and back."""
    axis = np.arange(256, dtype=np.uint8)
    for red in range(0, 256, 51):
        image = np.stack(np.broadcast_arrays(np.uint8(red), axis[:, None], axis), axis=-1)
        lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
        lab[..., 0] = opencv(lab[..., :1], (2, 2), 2.0)[..., 0]
        got = ndd.clahe(ndd.tensor(image, layout="HWC"), tiles_x=2, tiles_y=2, clip_limit=2.0)
        np.testing.assert_array_equal(np.asarray(got), cv2.cvtColor(lab, cv2.COLOR_LAB2RGB))


# -- degenerate data -------------------------------------------------------------------------------

OPS = {
    "equalize": ndd.equalize,
    "clahe": lambda x: ndd.clahe(x, tiles_x=2, tiles_y=3, clip_limit=2.0),
    "clahe of channels": lambda x: ndd.clahe(
        x, tiles_x=3, tiles_y=2, clip_limit=1.5, luma_only=False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_empty_samples(name):
    sizes = [(0, 5), (4, 0), (4, 5), (0, 0)]
    out = OPS[name](ndd.batch(photos(sizes), layout="HWC"))
    assert out.shape == [(*size, 3) for size in sizes]
    alone = OPS[name](ndd.tensor(photos(sizes)[2], layout="HWC"))
    np.testing.assert_array_equal(arrays(out)[2], np.asarray(alone))


def test_no_frames():
    out = ndd.equalize(ndd.batch([photo((0, 4, 5, 3)[1:])[None][:0]], layout="FHWC"))
    assert [a.shape for a in arrays(out)] == [(0, 4, 5, 3)]


# -- modes, devices, fusion ------------------------------------------------------------------------


def chain(x):
    """Pointwise work before the histogram, and moves and arithmetic after the table."""
    x = ndd.equalize(ndd.brightness(x, brightness=ndd.batch([np.float32(v) for v in (0.5, 1, 2)])))
    x = ndd.flip(x, horizontal=ndd.batch([1, 0, 1]), vertical=ndd.batch([0, 1, 1]))
    return ndd.crop_mirror_normalize(
        x, crop=[9, 8], mirror=ndd.batch([0, 1, 1]), mean=[1.0, 2.0, 3.0]
    )


def local_chain(x):
    y = ndd.clahe(ndd.resize(x, size=[20, 17]), tiles_x=ndd.batch([1, 2, 3]), tiles_y=2,
                  clip_limit=3.0)  # fmt: skip
    return ndd.cast(ndd.flip(y), dtype=ndd.float32) * 0.5


def resized(x):
    return ndd.resize(ndd.equalize(x), size=[7, 9])


def twice(x):
    y = ndd.clahe(ndd.equalize(x), tiles_x=2, tiles_y=2, clip_limit=2.0)
    return ndd.cat(y, ndd.equalize(ndd.flip(y)), axis=1)


PROGRAMS = [chain, local_chain, resized, twice, *OPS.values()]
IMAGES = photos([(12, 15), (31, 10), (9, 8)])


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_bits_in_all_modes(program):
    same_everywhere(lambda: program(ndd.batch(IMAGES, layout="HWC")))


def test_same_bits_of_planes_in_all_modes():
    planes = [np.ascontiguousarray(x.transpose(2, 0, 1)) for x in IMAGES]
    same_everywhere(lambda: ndd.flip(ndd.equalize(ndd.batch(planes, layout="CHW"))) + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_bits_on_the_gpu(program, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    on_cpu = program(ndd.batch(IMAGES, layout="HWC"))
    on_gpu = program(ndd.batch(IMAGES, layout="HWC").gpu()).cpu()
    for a, b in zip(arrays(on_cpu), arrays(on_gpu), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bands_on_the_gpu(layout, monkeypatch):
    """A GPU counts a large image in bands of rows; here one sample has several, another one."""
    monkeypatch.setenv("NDD_GPU", "simulate")
    lead, tail = LAYOUTS[layout]
    x = ndd.batch(photos([(301, 117), (5, 4)], tail, lead), layout=layout)
    for a, b in zip(arrays(ndd.equalize(x)), arrays(ndd.equalize(x.gpu()).cpu()), strict=True):
        assert a.tobytes() == b.tobytes()


def test_what_follows_a_table_is_in_its_kernel():
    with ndd.EvalMode.deferred:
        text = str(ndd.explain(chain(ndd.batch(IMAGES, layout="HWC"))))
        local = str(ndd.explain(local_chain(ndd.batch(IMAGES, layout="HWC"))))
    assert ": equalize → flip → crop_mirror_normalize" in text, text
    assert ": clahe → flip → cast → " in local, local
    assert "it is looked up by position" in text, text


def test_what_comes_before_is_counted_on_the_fly():
    with ndd.EvalMode.deferred:
        x = ndd.batch(IMAGES, layout="HWC")
        text = str(ndd.explain(ndd.equalize(ndd.cast(255 - x, dtype=ndd.uint8))))
    assert "_equalize__u8_i32" in text, text  # the histogram's kernel computes the difference


def test_new_tiles_and_limits_compile_nothing():
    def run(sizes, **arguments):
        x = ndd.batch(photos(sizes), layout="HWC")
        for luma_only in (True, False):
            arrays(ndd.clahe(x, luma_only=luma_only, **arguments))
        arrays(ndd.equalize(x))

    run([(9, 8), (5, 7)], tiles_x=2, tiles_y=2, clip_limit=2.0)
    before = cpu_runtime.compile_count
    run([(19, 3), (8, 8), (1, 1)], tiles_x=5, tiles_y=1, clip_limit=0.0)
    run([(6, 6), (7, 9)], tiles_x=ndd.batch([3, 7]), tiles_y=4, clip_limit=40.0)
    run([(6, 6), (7, 9)], tiles_x=1, tiles_y=1,
        clip_limit=ndd.batch([np.float32(1.0), np.float32(9.0)]))  # fmt: skip
    assert cpu_runtime.compile_count == before


# -- errors ----------------------------------------------------------------------------------------


def image(shape=(5, 6, 3), dtype=np.uint8, layout="HWC"):
    return ndd.tensor(np.zeros(shape, dtype), layout=layout)


def clahe(x, **changes):
    return ndd.clahe(x, **{"tiles_x": 2, "tiles_y": 2, "clip_limit": 2.0, **changes})


ERRORS = [
    (TypeError, "equalize: `input` must have element type uint8, got f32",
     lambda: ndd.equalize(image(dtype=np.float32))),
    (ValueError, "the layout 'DHWC' does not match any of the allowed layouts: HW, HWC, CHW, FHW",
     lambda: ndd.equalize(image((2, 5, 6, 3), layout="DHWC"))),
    (ValueError, "the number of dimensions 1 does not match any of the allowed layouts: HW, HWC",
     lambda: ndd.equalize(image((5,), layout=None))),
    (TypeError, "clahe: `input` must have element type uint8, got i16",
     lambda: clahe(image(dtype=np.int16))),
    (ValueError, "the layout 'CHW' does not match any of the allowed layouts: HWC",
     lambda: clahe(image(layout="CHW"))),
    (ValueError, "`input` must have 1 or 3 channels, sample 0 of shape (5, 6, 2) has 2",
     lambda: clahe(image((5, 6, 2)))),
    (ValueError, "all samples of `input` must have the same number of channels, 1 or 3",
     lambda: clahe(ndd.batch([np.zeros((5, 6, c), np.uint8) for c in (1, 3)], layout="HWC"))),
    (ValueError, "`tiles_x` must be positive, got 0", lambda: clahe(image(), tiles_x=0)),
    (ValueError, "`tiles_y` must be positive, got -3", lambda: clahe(image(), tiles_y=-3)),
    (ValueError, "`tiles_y` must be positive, got 0 for sample 1",
     lambda: clahe(ndd.batch([np.zeros((4, 4, 1), np.uint8)] * 2, layout="HWC"),
                   tiles_y=ndd.batch([2, 0]))),
    (ValueError, "an image can have at most 1048576 tiles, got 4000000",
     lambda: clahe(image(), tiles_x=2000, tiles_y=2000)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "program"), ERRORS)
def test_errors(kind, text, program):
    error_everywhere(kind, text, program)


def test_required_arguments():
    with pytest.raises(TypeError, match="tiles_y"):
        ndd.clahe(image(), tiles_x=2, clip_limit=1.0)
