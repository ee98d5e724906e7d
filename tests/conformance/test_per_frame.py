"""per_frame, and arguments that differ from frame to frame, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndd
from ndd.core.schema import OPS
from tests.helpers import arrays, samples

from .modes import error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import check, check_program, oracle_call, per_sample

SHAPES = [(3, 9, 11, 3), (1, 4, 5, 3), (2, 12, 7, 3)]
VIDEOS = samples(SHAPES, np.uint8, seed=1)
FRAMES = [s[0] for s in SHAPES]
# Ops of upstream 2.4.0 → the arguments that may differ from frame to frame.
UPSTREAM = {
    "brightness": ["brightness", "brightness_shift"],
    "brightness_contrast": ["brightness", "brightness_shift", "contrast", "contrast_center"],
    "color_twist": ["brightness", "contrast", "hue", "saturation"],
    "contrast": ["contrast", "contrast_center"],
    "coord_transform": ["M", "MT", "T"],
    "debayer": ["blue_position"],
    "experimental.dilate": ["anchor", "mask_size"],
    "experimental.erode": ["anchor", "mask_size"],
    "experimental.warp_perspective": ["matrix"],
    "filter": ["anchor"],
    "gaussian_blur": ["sigma", "window_size"],
    "hsv": ["hue", "saturation", "value"],
    "hue": ["hue"],
    "laplacian": ["scale", "smoothing_size", "window_size"],
    "multi_paste": [
        "in_anchors",
        "in_anchors_rel",
        "out_anchors",
        "out_anchors_rel",
        "shapes",
        "shapes_rel",
    ],
    "rotate": ["angle", "axis"],
    "saturation": ["saturation"],
    "transforms.crop": ["from_end", "from_start", "to_end", "to_start"],
    "transforms.rotation": ["angle", "axis", "center"],
    "transforms.scale": ["center", "scale"],
    "transforms.shear": ["angles", "center", "shear"],
    "transforms.translation": ["offset"],
    "warp_affine": ["matrix"],
}
BEYOND = {"clahe": ["clip_limit", "tiles_x", "tiles_y"]}  # upstream's takes no sequences


def values(shape, dtype=np.float32, low=0.3, high=3.0, seed=0):
    """An argument per sample, with a value of this shape per frame."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, (f, *shape)).astype(dtype) for f in FRAMES]


def per_frame(lib, arguments):
    return lib.per_frame(lib.batch(arguments))


def check_frames(name, program, videos=VIDEOS, layout="FHWC"):
    return check_program(name, program, videos, layout=layout, exact=False)


# -- per_frame -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "i4", "f2", "f4", "f8", "?"])
def test_only_the_layout_changes(dtype):
    for shape in [(4,), (4, 5), (2, 3, 4)]:
        x = samples([shape, (1, *shape[1:])], np.dtype(dtype).type)
        got = check("per_frame", x)
        assert got[0].layout == "F" + "*" * (len(shape) - 1)
        check("per_frame", x, batch=False)


def test_layouts():
    x = samples([(4, 5)], np.float32)
    check("per_frame", x, layout="FX")
    check("per_frame", x, layout="XY", replace=True)
    check("per_frame", x, layout="FY", replace=True)
    error_everywhere(
        ValueError, "the layout of `input` must begin with F, got 'XY'",
        lambda: ndd.per_frame(ndd.tensor(x[0], layout="XY")),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`input` must have at least one dimension, got a scalar",
        lambda: ndd.per_frame(ndd.tensor(np.float32(3))),
    )  # fmt: skip


# -- ops on sequences ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_blur(shape):
    sigmas = values(shape)
    check_frames("gaussian_blur", lambda lib, x: lib.gaussian_blur(x, sigma=per_frame(lib, sigmas)))
    sizes = [(v.astype(np.int32) * 2 + 1) for v in sigmas]
    check_frames(
        "gaussian_blur", lambda lib, x: lib.gaussian_blur(x, window_size=per_frame(lib, sizes))
    )


def test_frames_beside_samples():
    """Some arguments per frame, others per sample or for all."""
    sigmas, sizes = values(()), [np.int32(n) for n in (3, 5, 7)]
    check_frames(
        "gaussian_blur",
        lambda lib, x: lib.gaussian_blur(
            x, sigma=per_frame(lib, sigmas), window_size=lib.batch(sizes)
        ),
    )
    check_frames(
        "gaussian_blur",
        lambda lib, x: lib.gaussian_blur(x, sigma=per_frame(lib, sigmas), window_size=5),
    )


def test_one_value_for_all_frames():
    one = [v[:1] for v in values(())]
    check_frames("gaussian_blur", lambda lib, x: lib.gaussian_blur(x, sigma=per_frame(lib, one)))


def test_one_list_for_all_samples():
    videos = samples([(3, 9, 11, 3), (3, 4, 5, 3)], np.uint8)
    sigmas = np.float32([0.5, 1.0, 2.0])
    check_frames(
        "gaussian_blur",
        lambda lib, x: lib.gaussian_blur(x, sigma=lib.per_frame(lib.tensor(sigmas))),
        videos,
    )


def test_one_sequence():
    sigmas = np.float32([0.5, 1.0, 2.0])
    for dtype in (np.uint8, np.float32):
        video = samples([(3, 9, 11, 3)], dtype)[0]
        check_frames(
            "gaussian_blur",
            lambda lib, x: lib.gaussian_blur(x, sigma=lib.per_frame(lib.tensor(sigmas))),
            video,
        )


@pytest.mark.parametrize("layout", ["FHW", "FCHW", "CFHW", "FDHWC"])
def test_blur_layouts(layout):
    extents = {"F": 3, "C": 2, "D": 4, "H": 6, "W": 7}
    video = samples([tuple(extents[c] for c in layout)], np.uint8)
    sigmas = [np.float32([0.5, 1.0, 2.0])]
    check_frames(
        "gaussian_blur",
        lambda lib, x: lib.gaussian_blur(x, sigma=per_frame(lib, sigmas)),
        video,
        layout,
    )


def test_laplacian():
    sizes = [np.int32([3, 5, 7])[:f] for f in FRAMES]
    scales = values((2,), low=-1.0, high=1.0)
    for dtype in (np.uint8, np.float32):
        videos = samples(SHAPES, dtype, seed=2)
        check_frames(
            "laplacian",
            lambda lib, x: lib.laplacian(
                x, window_size=per_frame(lib, sizes), scale=per_frame(lib, scales)
            ),
            videos,
        )
    smoothing = [2 * v.astype(np.int32) + 1 for v in values((2,))]
    check_frames(
        "laplacian", lambda lib, x: lib.laplacian(x, smoothing_size=per_frame(lib, smoothing))
    )


@pytest.mark.parametrize("mode", ["same", "valid"])
def test_filter(mode):
    kernels = values((3, 4), low=-0.2, high=0.3)
    check_frames("filter", lambda lib, x: lib.filter(x, per_frame(lib, kernels), mode=mode))
    check_frames(
        "filter", lambda lib, x: lib.filter(x, lib.batch(kernels, layout="FHW"), mode=mode)
    )


def test_filter_anchors_and_fill_values():
    kernels = values((3, 4), low=-0.2, high=0.3)
    one = kernels[0][0]
    anchors = [(np.arange(2 * f).reshape(f, 2) % 3).astype(np.int32) for f in FRAMES]
    check_frames(
        "filter", lambda lib, x: lib.filter(x, lib.tensor(one), anchor=per_frame(lib, anchors))
    )
    fills = [np.arange(f, dtype=np.uint8) * 40 for f in FRAMES]
    check_frames(
        "filter",
        lambda lib, x: lib.filter(
            x, per_frame(lib, kernels), per_frame(lib, fills), border="constant"
        ),
    )


def test_debayer():
    videos = samples([(3, 8, 12), (1, 4, 6), (2, 6, 4)], np.uint8)
    positions = [(np.arange(2 * f).reshape(f, 2) // 2 % 2).astype(np.int32) for f in FRAMES]
    check_frames(
        "debayer",
        lambda lib, x: lib.debayer(x, blue_position=per_frame(lib, positions)),
        videos,
        "FHW",
    )


COLOURS = {
    "brightness": ("brightness", "brightness_shift"),
    "brightness_contrast": ("brightness", "brightness_shift", "contrast", "contrast_center"),
    "color_twist": ("brightness", "contrast", "hue", "saturation"),
    "contrast": ("contrast", "contrast_center"),
    "hsv": ("hue", "saturation", "value"),
    "hue": ("hue",),
    "saturation": ("saturation",),
}


@pytest.mark.parametrize("name", COLOURS)
def test_colours(name):
    """Numbers per frame, beside one per sample if the op has several."""
    numbers: dict[str, Any] = {a: values(()) for a in COLOURS[name]}
    beside = COLOURS[name][1] if len(COLOURS[name]) > 1 else None

    def program(lib, x):
        given = {a: per_frame(lib, v) for a, v in numbers.items() if a != beside}
        if beside is not None:
            given[beside] = lib.batch([np.float32(v) for v in (0.7, 1.2, 0.5)])
        return getattr(lib, name)(x, **given)

    check_frames(name, program)


def test_all_numbers_of_a_colour_twist():
    numbers = {a: values(()) for a in COLOURS["color_twist"]}
    check_frames(
        "color_twist",
        lambda lib, x: lib.color_twist(x, **{a: per_frame(lib, v) for a, v in numbers.items()}),
        samples(SHAPES, np.float32, seed=3),
    )


def test_numbers_of_colours():
    """One number for all frames, numbers in rows, one list for all samples, one sequence."""
    one, rows = [v[:1] for v in values(())], values((1,))
    for given in (one, rows):
        check_frames("hue", lambda lib, x, given=given: lib.hue(x, hue=per_frame(lib, given)))
    same = samples([(3, 4, 5, 3), (3, 2, 2, 3)])
    numbers = np.float32([0.5, 1.0, 2.0])
    for videos in (same, same[0]):
        check_frames(
            "contrast",
            lambda lib, x: lib.contrast(x, contrast=lib.per_frame(lib.tensor(numbers))),
            videos,
        )
    # A single image takes a single number.
    image = [VIDEOS[0][0]]
    check_frames(
        "contrast",
        lambda lib, x: lib.contrast(x, contrast=per_frame(lib, [numbers[:1]])),
        image,
        "HWC",
    )


@pytest.mark.parametrize("keep_size", [False, True])
def test_rotate(keep_size):
    """The canvas holds all frames of a sequence, each turned about the centre."""
    angles = values((), low=-200, high=200)
    check_program(
        "rotate",
        lambda lib, x: lib.rotate(x, angle=per_frame(lib, angles), keep_size=keep_size),
        VIDEOS,
        layout="FHWC",
        exact=False,
        max_off=5e-3,
    )


def test_rotate_volumes():
    shapes = [(3, 4, 5, 6, 1), (1, 3, 3, 4, 1), (2, 5, 4, 3, 1)]
    angles, axes = values((), low=-200, high=200), values((3,), low=-1.0, high=1.0)
    for angle, axis in ((angles, axes), (angles, None), (None, axes)):

        def program(lib, x, angle=angle, axis=axis):
            by = 30.0 if angle is None else per_frame(lib, angle)
            about = lib.tensor(np.float32([1, 2, 3])) if axis is None else per_frame(lib, axis)
            return lib.rotate(x, angle=by, axis=about, keep_size=True)

        check_program("rotate", program, samples(shapes, np.float32), layout="FDHWC", exact=False,
                      max_off=5e-3, rtol=1e-3)  # fmt: skip


@pytest.mark.parametrize("name", ["M", "MT", "T"])
def test_coord_transform(name):
    shape = {"M": (2, 2), "MT": (2, 3), "T": (2,)}[name]
    points = samples([(f, n, 2) for f, n in zip(FRAMES, (4, 1, 3), strict=True)], np.float32)
    given = values(shape, low=-2.0)
    check_frames(
        "coord_transform",
        lambda lib, x: lib.coord_transform(x, **{name: per_frame(lib, given)}),
        points,
        "F**",
    )


@pytest.mark.parametrize("name", ["dilate", "erode"])
def test_morphology_of_each_frame(name):
    """Upstream has these on the GPU only."""
    sizes = [v.astype(np.int32) for v in values((2,), low=1, high=5)]
    anchors = [np.minimum(s - 1, 1) for s in sizes]
    op = getattr(ndd.experimental, name)
    got = arrays(op(
        ndd.batch(VIDEOS, layout="FHWC"), mask_size=per_frame(ndd, sizes),
        anchor=per_frame(ndd, anchors),
    ))  # fmt: skip
    for video, size, anchor, found in zip(VIDEOS, sizes, anchors, got, strict=True):
        for f, frame in enumerate(video):
            alone = op(ndd.tensor(frame, layout="HWC"), mask_size=size[f], anchor=anchor[f])
            np.testing.assert_array_equal(found[f], np.asarray(alone))


def test_multi_paste():
    """Upstream fails for all sequences, so each frame is compared with upstream's of images."""
    videos = samples([(2, 4, 5, 3), (2, 6, 5, 3), (3, 4, 4, 3)], seed=5)
    ids = [[0, 1], [1], [2, 2, 2]]
    rng = np.random.default_rng(0)
    sizes = [rng.integers(1, 4, (len(v), len(i), 2)).astype(np.int32)
             for v, i in zip(videos, ids, strict=True)]  # fmt: skip
    places = [rng.integers(0, 5, s.shape).astype(np.int32) for s in sizes]
    got = arrays(ndd.multi_paste(
        ndd.batch(videos, layout="FHWC"), in_ids=ndd.batch(ids), output_size=[8, 8],
        shapes=per_frame(ndd, sizes), out_anchors=per_frame(ndd, places),
        in_anchors=ndd.batch([np.ones((len(i), 2), np.int32) for i in ids]),
    ))  # fmt: skip
    for s, found in enumerate(got):
        for f in range(len(videos[s])):
            chosen = [videos[i][f] for i in ids[s]]
            (want,) = oracle_call(
                "multi_paste", *[[c] for c in chosen], layout=["HWC"] * len(chosen),
                output_size=[8, 8], shapes=per_sample([sizes[s][f]]),
                out_anchors=per_sample([places[s][f]]),
                in_anchors=per_sample([np.ones((len(chosen), 2), np.int32)]),
            )  # fmt: skip
            np.testing.assert_array_equal(found[f], want.arrays[0])


def test_sequences_beyond_upstream():
    """Upstream takes images only: each frame equals the frame alone."""
    programs = [
        lambda x: ndd.paste(x, ratio=1.5, fill_value=[7, 200, 30], paste_x=0.2, min_canvas_size=14),
        lambda x: ndd.paste(x, ratio=1.2, fill_value=9),
        lambda x: ndd.grid_mask(x, tile=5, ratio=0.4, angle=0.3, shift_x=2.0),
    ]
    for program in programs:
        got = arrays(program(ndd.batch(VIDEOS, layout="FHWC")))
        for video, found in zip(VIDEOS, got, strict=True):
            for f, frame in enumerate(video):
                alone = np.asarray(program(ndd.tensor(frame, layout="HWC")))
                np.testing.assert_array_equal(found[f], alone)


def test_every_argument_of_the_reference():
    """The arguments that upstream's schemas allow per frame (positional ones besides), and ours."""
    found = {
        name: sorted(p.name for p in op.params if p.per_frame and not p.positional)
        for name, op in OPS.items()
        if any(p.per_frame and not p.positional for p in op.params)
    }
    assert found == UPSTREAM | BEYOND


# -- modes, devices, errors ------------------------------------------------------------------------


def chain(x):
    """Work before and after, on sequences of different sizes."""
    sigmas = ndd.per_frame(ndd.batch(values(())))
    y = ndd.gaussian_blur(ndd.flip(x), sigma=sigmas) + 1
    return ndd.gaussian_blur(ndd.cast(y, dtype=ndd.uint8), sigma=sigmas * 0.5)


def colours_and_angles(x):
    sigmas = ndd.per_frame(ndd.batch(values(())))
    y = ndd.color_twist(x, hue=sigmas * 30, contrast=sigmas, brightness=0.9)
    return ndd.rotate(y, angle=sigmas * 50, size=[7, 8], interp_type=ndd.types.INTERP_NN)


def kernels_per_frame(x):
    kernels = ndd.batch(values((3, 4), low=-0.2, high=0.3), layout="FHW")
    return ndd.filter(x, kernels * 0.5, dtype=ndd.float32)


PROGRAMS = [chain, colours_and_angles, kernels_per_frame]


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_bits_in_all_modes(program):
    same_everywhere(lambda: program(ndd.batch(VIDEOS, layout="FHWC")))


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_bits_on_the_gpu(program):
    same_on_the_gpu(program, VIDEOS, "FHWC")


def test_each_frame_equals_the_frame_alone():
    sigmas = values(())
    out = ndd.gaussian_blur(
        ndd.batch(VIDEOS, layout="FHWC"), sigma=ndd.per_frame(ndd.batch(sigmas))
    )
    for video, s, got in zip(VIDEOS, sigmas, arrays(out), strict=True):
        for f, frame in enumerate(video):
            alone = ndd.gaussian_blur(ndd.tensor(frame, layout="HWC"), sigma=float(s[f]))
            np.testing.assert_array_equal(got[f], np.asarray(alone))


def test_errors():
    video = ndd.tensor(VIDEOS[0], layout="FHWC")
    two = ndd.per_frame(ndd.tensor(np.float32([1, 2])))
    error_everywhere(
        ValueError, "`sigma` has 2 frames, but sample 0 of shape (3, 9, 11, 3) (FHWC) has 3",
        lambda: ndd.gaussian_blur(video, sigma=two),
    )  # fmt: skip
    error_everywhere(
        ValueError, "sample 0 of shape (0, 4, 5, 3) has no frames",
        lambda: ndd.gaussian_blur(
            ndd.zeros(shape=[0, 4, 5, 3], dtype=ndd.uint8, layout="FHWC"), sigma=two
        ),
    )  # fmt: skip
    # Without frames in the input, the values are those of the axes.
    error_everywhere(
        ValueError, "`sigma` must have 1 or 2 values, got 3",
        lambda: ndd.gaussian_blur(
            ndd.tensor(VIDEOS[0][0], layout="HWC"),
            sigma=ndd.per_frame(ndd.tensor(np.float32([1, 2, 3]))),
        ),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`hue` has 2 frames, but sample 0 of shape (3, 9, 11, 3) (FHWC) has 3",
        lambda: ndd.hue(video, hue=two),
    )  # fmt: skip
    error_everywhere(
        ValueError, "argument `hue` has a number for each of 2 frames, but the input (HWC) has no "
        "frames",
        lambda: ndd.hue(ndd.tensor(VIDEOS[0][0], layout="HWC"), hue=two),
    )  # fmt: skip
    error_everywhere(
        ValueError, "argument `hue` must be a number per frame, got shape (3, 2)",
        lambda: ndd.hue(video, hue=ndd.per_frame(ndd.tensor(np.zeros((3, 2), np.float32)))),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`angle` must have one number, or as many for each of its 3 frames, got 2 for "
        "sample 0 of shape (3, 9, 11, 3) (FHWC)",
        lambda: ndd.rotate(video, angle=two),
    )  # fmt: skip
    error_everywhere(
        ValueError, "`out_anchors` has 2 frames, but sample 0 has 3",
        lambda: ndd.multi_paste(
            video, in_ids=[0], out_anchors=ndd.tensor(np.zeros((2, 1, 2), np.int32)),
        ),
    )  # fmt: skip
