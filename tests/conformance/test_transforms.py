"""transforms.*: matrices against the oracle."""

from __future__ import annotations

import doctest

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd

from ..helpers import arrays, nothing_compiled
from .modes import error_everywhere, same_everywhere
from .oracle import ndd_call, oracle_call, per_sample, record

M2 = np.float32([[1, -2, 3], [4, 5, -6]])
M3 = np.float32([[1, 2, 3, 4], [-5, 6, 7, 8], [9, 10, -11, 12]])
TOLERANCE = 1e-6  # relative to the largest entry: sines and sums are rounded at other places


def check(op, *inputs, layout=None, batch=True, **kwargs):
    """Both libraries agree, with and without an input matrix, in both orders."""
    op = f"transforms.{op}"
    want = oracle_call(op, *inputs, layout=layout, batch=batch, **kwargs)
    got = ndd_call(op, *inputs, layout=layout, batch=batch, **kwargs)
    (got,), (want,) = got, want
    compare_to_scale(op, got, want)
    return got


def compare_to_scale(op, got, want):
    """Equal kind, shapes, type, layout and nans; values within a tolerance relative to the largest."""
    for field in ("batch", "shapes", "dtype", "layout"):
        assert getattr(got, field) == getattr(want, field), f"{op}: {field}"
    record(op, got.arrays, want.arrays)
    for a, b in zip(got.arrays, want.arrays, strict=True):
        limit = TOLERANCE * np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=0, atol=limit, err_msg=op)


def check_chained(op, ndim, **kwargs):
    matrix = {2: M2, 3: M3}[ndim]
    check(op, **kwargs)
    check(op, matrix, **kwargs)
    check(op, matrix, reverse_order=True, **kwargs)
    check(op, [matrix, -matrix, matrix / 3], **kwargs)


def random(shape, seed=0, low=-3.0, high=3.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


@pytest.mark.parametrize("ndim", [2, 3])
def test_translation(ndim):
    check_chained("translation", ndim, offset=[1.0, -2.5, 3.0][:ndim])
    check_chained("translation", ndim, offset=per_sample(list(random((3, ndim)))))
    check("translation", offset=np.int32([1, -2, 7][:ndim]))
    check("translation", offset=[1, 2], batch_size=3)


def test_other_numbers_of_dimensions():
    for ndim in (1, 4, 5, 6):
        check("translation", offset=[1.5] * ndim)
    check("translation", offset=2.5)
    check("scale", scale=[2.0] * 6, center=[1.0] * 6)
    check("crop", from_start=[1.0] * 4, to_end=[3.0])


@pytest.mark.parametrize("ndim", [2, 3])
def test_scale(ndim):
    s, c = [2.0, -3.5, 0.25][:ndim], [0.1, 0.2, -7.0][:ndim]
    check_chained("scale", ndim, scale=s)
    check_chained("scale", ndim, scale=s, center=c)
    check_chained("scale", ndim, scale=s, center=[0.3])
    check_chained("scale", ndim, scale=per_sample(list(random((3, ndim)))), center=c)
    check("scale", scale=[2.0], ndim=ndim)
    check("scale", scale=np.float32(2.0), ndim=ndim, center=c)
    check("scale", {2: M2, 3: M3}[ndim], scale=[2.0])
    check("scale", scale=s, ndim=5)  # `ndim` counts only for a single number
    check("scale", scale=[np.inf, 1.0], center=[1.0, 1.0])
    check("scale", scale=[2.0], ndim=-1)


def test_rotation_of_the_plane():
    for degrees in (30.0, 90.0, -180.0, 0.0, 720.5):
        check("rotation", angle=degrees)
    check_chained("rotation", 2, angle=33.3, center=[1.0, -2.0])
    check_chained("rotation", 2, angle=per_sample([10.0, 20.0, -30.0]), center=[4.0])
    check("rotation", angle=np.float32(np.nan))


def test_rotation_matches_for_many_angles():
    """The angle is converted to radians in single precision, which shows in the last digits."""
    check("rotation", angle=per_sample(list(random(2000, low=-400, high=400))))


def test_rotation_in_space():
    axis, center = [1.0, 2.0, -3.0], [4.0, -5.0, 6.0]
    check_chained("rotation", 3, angle=33.3, axis=axis)
    check_chained("rotation", 3, angle=-120.0, axis=axis, center=center)
    axes = per_sample(list(random((3, 3), seed=1)))
    check_chained("rotation", 3, angle=per_sample([10.0, 20.0, -30.0]), axis=axes, center=center)
    for k in range(3):
        check("rotation", angle=25.0, axis=np.eye(3)[k].tolist())
    check("rotation", angle=25.0, axis=[0.0, 0.0, 0.0])  # no direction: nan


@pytest.mark.parametrize("ndim", [2, 3])
def test_shear(ndim):
    number = ndim * (ndim - 1)
    factors = [0.5, -0.25, 0.1, 0.9, 2.0, -3.0][:number]
    degrees = [10.0, -20.0, 30.0, 44.0, 60.0, -89.0][:number]
    center = [1.0, 2.0, -3.0][:ndim]
    check_chained("shear", ndim, shear=factors)
    check_chained("shear", ndim, angles=degrees, center=center)
    numbers = random((3, ndim, ndim - 1) if ndim == 3 else (3, number))
    check_chained("shear", ndim, shear=per_sample(list(numbers)), center=[2.0])
    check("shear", shear=np.float32(factors).reshape(ndim, ndim - 1))


def test_shear_matches_for_many_angles():
    check("shear", angles=per_sample(list(random((1000, 2), low=-89.0, high=89.0))))


@pytest.mark.parametrize("absolute", [False, True])
def test_crop(absolute):
    corners = dict(
        from_start=[0.0, 5.0], from_end=[2.0, 1.0], to_start=[0.8, 0.3], to_end=[0.2, 0.5]
    )
    check("crop")
    check_chained("crop", 2, **corners, absolute=absolute)
    mixed = dict(from_start=[0.1, 1.0, 3.0], from_end=[2.0], to_start=[0.2], absolute=absolute)
    check_chained("crop", 3, **mixed)
    numbers = {n: per_sample(list(random((50, 2), k))) for k, n in enumerate(corners)}
    check("crop", **numbers, absolute=absolute)
    check("crop", from_start=[0.0, 1.0], from_end=[0.0, 1.0], to_start=[0.2, 0.3])


def test_combine():
    for reverse in (False, True):
        check("combine", M2, M2.copy(), reverse_order=reverse)
        check("combine", M3, M3 / 2, -M3, M3 + 1, reverse_order=reverse)
    check("combine", [M2, M2 + 1, M2 - 1], M2)
    check("combine", M2, [M2, M2 + 1, M2 - 1], M2 / 7)


def test_values_per_frame():
    """A layout that begins with F: a sequence of matrices."""
    frames = per_sample([random((2, 2)), random((4, 2))], layout="FX")
    angles = per_sample([random(2), random(4)], layout="F")
    sequences = [random((2, 2, 3)), random((4, 2, 3))]
    got = check("translation", offset=frames)
    assert got.shapes == [(2, 2, 3), (4, 2, 3)] and got.layout == "F**"
    check("rotation", angle=angles, center=frames)
    check("rotation", angle=45.0, center=frames)
    check("rotation", sequences, layout="F**", angle=angles)
    check("rotation", sequences, layout="F**", angle=45.0)
    check("scale", sequences, layout="F**", scale=[2.0], reverse_order=True)
    one = per_sample([random(1), random(1)], layout="F")
    check("rotation", sequences, layout="F**", angle=one)
    check("combine", sequences, [M2, M2], layout=["F**", None])
    check("combine", sequences, sequences, layout="F**")


def test_modes_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    angles = ndd.batch(list(random(3, low=-90.0, high=90.0)))

    def program(device=None):
        turned = ndd.transforms.rotation(angle=angles, center=[4.0, 5.0], device=device)
        moved = ndd.transforms.translation(turned, offset=[1.0, 2.0])
        sheared = ndd.transforms.shear(angles=[10.0, 20.0], device=device)
        space = ndd.transforms.rotation(angle=20.0, axis=[1.0, 2.0, 3.0], device=device)
        cropped = ndd.transforms.crop(from_start=[1.0, 3.0], to_end=[2.0], device=device)
        return moved, ndd.transforms.combine(moved, sheared), space, cropped

    same_everywhere(program)
    for ours, theirs in zip(program(), program("gpu"), strict=True):
        assert theirs.device.device_type == "gpu"
        for a, b in zip(arrays(ours), arrays(theirs), strict=True):
            assert a.tobytes() == b.tobytes()


def test_the_result_is_an_argument():
    """coord_transform accepts the matrix; a combination equals its transforms one after the other."""
    points = random((5, 2))
    batch = ndd.batch([points, points[:3]])
    a = ndd.transforms.rotation(angle=ndd.batch([10.0, -70.0]))
    b = ndd.transforms.scale(scale=[2.0, 0.5], center=[1.0, 1.0])
    once = ndd.coord_transform(batch, MT=ndd.transforms.combine(a, b))
    twice = ndd.coord_transform(ndd.coord_transform(batch, MT=a), MT=b)
    for x, y in zip(arrays(once), arrays(twice), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_the_result_warps_images():
    """warp_affine accepts the matrix, here and upstream."""
    images = [(random((12, 15, 3), k, 0, 255)).astype(np.uint8) for k in range(2)]

    def program(lib):
        angles = lib.batch([np.float32(30.0), np.float32(-70.0)])
        matrix = lib.transforms.rotation(angle=angles, center=[7.0, 6.0])
        matrix = lib.transforms.translation(matrix, offset=[1.0, 2.0])
        warped = lib.warp_affine(lib.batch(images, layout="HWC"), matrix=matrix)
        return [np.array(t) for t in warped.tensors]

    for a, b in zip(program(ndd), program(upstream), strict=True):
        difference = np.abs(a.astype(int) - b)
        assert difference.max() <= 1 and (difference > 0).mean() <= 0.01


def test_new_numbers_compile_nothing():
    arrays(ndd.transforms.rotation(angle=1.0, center=[1.0, 1.0]))
    with nothing_compiled():
        arrays(ndd.transforms.rotation(angle=2.0, center=[5.0, 1.0]))


def test_errors():
    t = ndd.transforms

    def refused(kind, text, program):
        error_everywhere(kind, text, program)

    refused(TypeError, "`input` must be float32", lambda: t.scale(np.eye(2, 3), scale=[1.0]))
    refused(
        ValueError, "`input` must be a matrix of shape (n, n + 1), got (3, 3)",
        lambda: t.translation(np.eye(3, dtype=np.float32), offset=[1.0, 2.0, 3.0]),
    )  # fmt: skip
    refused(
        ValueError, "`input` is a transform of 2 dimensions, the other arguments have 3",
        lambda: t.translation(M2, offset=[1.0, 2.0, 3.0]),
    )  # fmt: skip
    refused(ValueError, "1 to 6 dimensions, got 7", lambda: t.translation(offset=[1.0] * 7))
    refused(ValueError, "1 to 6 dimensions, got 0", lambda: t.translation(offset=[]))
    refused(
        ValueError, "`center` must have 1 or 2 values, got 3",
        lambda: t.rotation(angle=1.0, center=[1.0, 2.0, 3.0]),
    )  # fmt: skip
    refused(
        ValueError, "`axis` must have 1 or 3 values, got 2",
        lambda: t.rotation(angle=1.0, axis=[1.0, 2.0]),
    )  # fmt: skip
    refused(
        ValueError, "argument `angle` must be a number",
        lambda: t.rotation(angle=[1.0, 2.0]),
    )  # fmt: skip
    refused(ValueError, "exactly one of `shear` and `angles`", lambda: t.shear())
    refused(
        ValueError, "`shear` must have 2 values (in the plane) or 6 (in space), got 3",
        lambda: t.shear(shear=[1.0, 2.0, 3.0]),
    )  # fmt: skip
    refused(
        ValueError, "`from_end` must have 1 or 3 values, got 2",
        lambda: t.crop(from_start=[1.0] * 3, from_end=[2.0] * 2),
    )  # fmt: skip
    refused(TypeError, "at least 2 matrices are needed, got 1", lambda: t.combine(M2))
    refused(ValueError, "`input_1` is a transform of 3 dim", lambda: t.combine(M2, M3))
    ragged = ndd.batch([[1.0, 2.0], [1.0, 2.0, 3.0]])
    refused(
        ValueError, "`offset` must have the same shape in every sample",
        lambda: t.translation(offset=ragged),
    )  # fmt: skip
    frames = [ndd.tensor(np.ones((n, 2), np.float32), layout="FX") for n in (2, 3)]
    refused(
        ValueError, "frames",
        lambda: t.scale(scale=frames[0], center=frames[1]),
    )  # fmt: skip


@pytest.mark.parametrize("name", ndd.transforms.__all__)
def test_public_names_have_examples_that_run(name):
    text = getattr(ndd.transforms, name).__doc__
    parsed = doctest.DocTestParser().get_doctest(text, {"ndd": ndd}, name, None, 0)
    runner = doctest.DocTestRunner()
    runner.run(parsed)
    assert runner.failures == 0 and runner.tries > 0
