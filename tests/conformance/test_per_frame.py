"""per_frame, and arguments that differ from frame to frame, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from tests.helpers import arrays, samples

from .modes import error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import check, check_program

SHAPES = [(3, 9, 11, 3), (1, 4, 5, 3), (2, 12, 7, 3)]
VIDEOS = samples(SHAPES, np.uint8, seed=1)
FRAMES = [s[0] for s in SHAPES]


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


# -- modes, devices, errors ------------------------------------------------------------------------


def chain(x):
    """Work before and after, on sequences of different sizes."""
    sigmas = ndd.per_frame(ndd.batch(values(())))
    y = ndd.gaussian_blur(ndd.flip(x), sigma=sigmas) + 1
    return ndd.gaussian_blur(ndd.cast(y, dtype=ndd.uint8), sigma=sigmas * 0.5)


def kernels_per_frame(x):
    kernels = ndd.batch(values((3, 4), low=-0.2, high=0.3), layout="FHW")
    return ndd.filter(x, kernels * 0.5, dtype=ndd.float32)


PROGRAMS = [chain, kernels_per_frame]


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
