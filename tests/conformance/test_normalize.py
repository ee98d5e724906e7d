"""normalize against the oracle, in all modes and on both devices; errors."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from tests.decoders.fixtures import encoded, photo
from tests.helpers import arrays

from .geometry_data import images, numbers, with_layout
from .modes import error_everywhere, same_everywhere
from .oracle import RTOL, check, compare, ndd_call, oracle_call, per_sample, record

INPUTS = "uint8 int8 uint16 int16 uint32 int32 float32".split()


def near(*args, exact=None, **kwargs):
    """Floats within 1e-6 of the largest value, one integer in 10⁴ off by one.

    Upstream subtracts a mean that it computed in float32. If `exact` values are given, a float may
    differ from upstream's by as much more as upstream's differs from the exact one; but then ours
    must be within 1e-6 of the exact one.
    """
    want, got = (f("normalize", *args, **kwargs) for f in (oracle_call, ndd_call))
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.shapes, ours.dtype, ours.layout) == (
            theirs.shapes, theirs.dtype, theirs.layout,
        )  # fmt: skip
        if ours.dtype != "f32":
            compare("normalize", [ours], [theirs], exact=False)
            continue
        record("normalize", ours.arrays, theirs.arrays)
        for k, (a, b) in enumerate(zip(ours.arrays, theirs.arrays, strict=True)):
            limit = RTOL * np.abs(b[np.isfinite(b)]).max(initial=0)
            if exact is not None:
                np.testing.assert_allclose(a, exact[k], rtol=0, atol=limit)
                limit = limit + np.abs(b - exact[k])
            assert_within(a, b, limit)
    return got


def assert_exact(got, want):
    """Within 1e-6 of the largest exact value."""
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * np.abs(want).max())


def assert_within(a, b, limit):
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    with np.errstate(invalid="ignore"):
        excess = np.where(finite, np.abs(a.astype(np.float64) - b) - limit, 0.0)
    assert excess.max(initial=0.0) <= 0, f"beyond the limit by {excess.max():g}"


def normalized(samples, axes=None, pooled=False):
    """The definition, in float64; 0 where the deviation is 0."""
    axes = tuple(range(samples[0].ndim)) if axes is None else tuple(axes)
    wide = [a.astype(np.float64) for a in samples]

    def mean_of(values):
        if not pooled:
            return [v.mean(axis=axes, keepdims=True) for v in values]
        count = sum(v.size / v.sum(axis=axes).size for v in values)
        return [sum(v.sum(axis=axes, keepdims=True) for v in values) / count] * len(values)

    means = mean_of(wide)
    variances = mean_of([(v - m) ** 2 for v, m in zip(wide, means, strict=True)])
    return [
        np.divide(v - m, np.sqrt(s), out=np.zeros_like(v), where=np.broadcast_to(s > 0, v.shape))
        for v, m, s in zip(wide, means, variances, strict=True)
    ]


@pytest.mark.parametrize("dtype", INPUTS)
def test_types(dtype):
    x = images(dtype)
    for arguments in ({}, dict(axes=[0, 1]), dict(axes=[2]), dict(axes=[0, 2])):
        near(x, layout="HWC", exact=normalized(x, **arguments), **arguments)
    pooled = normalized(x, [0, 1], pooled=True)
    near(x, layout="HWC", exact=pooled, arguments=dict(axes=[0, 1], batch=True))


@pytest.mark.parametrize("dtype", INPUTS)
def test_types_of_results(dtype):
    near(images(), layout="HWC", axes=[0, 1], dtype=dtype, scale=30.0, shift=64.0)
    halves = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, 1e20, -1e20, np.nan])
    check("normalize", halves, mean=0.0, stddev=1.0, dtype=dtype)


@pytest.mark.parametrize("layout", ["HWC", "CHW", "FHWC", "DHWC", "FCHW", "HW"])
def test_layouts(layout):
    x = with_layout(layout, "float32")
    near(x, layout=layout)
    near(x, layout=layout, axis_names="HW")
    near(x, layout=layout, axis_names="W", epsilon=1.0)
    near(x, layout=layout, arguments=dict(axis_names="HW", epsilon=0.5, batch=True))


def test_numbers():
    x = images("float32")
    for arguments in (
        dict(epsilon=1.0),
        dict(epsilon=-1.0),
        dict(ddof=1, epsilon=1.0),
        dict(ddof=-1),
        dict(ddof=105),
        dict(ddof=200, epsilon=2.0),
        dict(scale=10.0, shift=100.0),
        dict(mean=2.0),
        dict(mean=2.0, axes=[0]),
        dict(stddev=2.0),
        dict(stddev=2.0, axes=[0, 1]),
        dict(stddev=-2.0),
        dict(mean=2.0, stddev=0.5),
        dict(mean=2.0, stddev=0.5, epsilon=0.75),
        dict(mean=2.0, stddev=0.0),
        dict(stddev=2.0, ddof=1, epsilon=3.0, scale=0.5, shift=-1.0),
    ):
        near(x, layout="HWC", **arguments)
        near(x[0], **arguments)


def test_tensors_as_parameters():
    x = images("float32")
    mean, dev = np.float32([[[1, 2, 3]]]), np.float32([[[4, 0, 5]]])
    for arguments in (
        dict(mean=mean), dict(mean=mean, axes=[0, 1]), dict(stddev=dev), dict(mean=mean, stddev=dev),
        dict(mean=mean, stddev=dev, epsilon=2.0), dict(mean=mean, stddev=2.0),
        dict(mean=7.0, stddev=dev), dict(mean=mean, stddev=0.0), dict(mean=mean, ddof=1, epsilon=1.0),
        dict(mean=mean.astype(np.int32)),
    ):  # fmt: skip
        near(x, layout="HWC", **arguments)
    near(x[0], mean=x[0])  # nothing is reduced
    near(x[0], mean=x[0] - 1, ddof=1)
    # Upstream measures all deviations from the first mean.
    ones = np.asarray(ndd.normalize(ndd.tensor(x[0]), mean=ndd.tensor(x[0] - 2)))
    np.testing.assert_allclose(ones, 1.0, rtol=1e-6)
    each = per_sample([np.float32([[[k, 2 * k, 3]]]) for k in range(4)])
    near(x, layout="HWC", mean=each)
    near(x, layout="HWC", stddev=each)
    columns = per_sample([a.mean(axis=1, keepdims=True) for a in x])  # ragged
    near(x, layout="HWC", mean=columns, axes=[1])


def test_a_number_per_sample():
    """Upstream takes no scalar tensors."""
    x = images("float32")
    numbers_ = ndd.batch([np.float32(k) for k in (1, 2, 3, 4)])
    got = ndd.normalize(ndd.batch(x, layout="HWC"), mean=numbers_, stddev=numbers_, shift=numbers_)
    for k, (a, y) in enumerate(zip(x, arrays(got), strict=True)):
        assert_exact(y, (a.astype(np.float64) - (k + 1)) / (k + 1) + k + 1)
    got = ndd.normalize(ndd.batch(x, layout="HWC"), scale=numbers_, epsilon=numbers_)
    for k, (a, y) in enumerate(zip(x, arrays(got), strict=True)):
        wide = a.astype(np.float64)
        assert_exact(y, (wide - wide.mean()) / np.sqrt(wide.var() + k + 1) * (k + 1))


def test_batches():
    x = [np.float32([[1, 2]]), np.float32([[3, 4], [5, 9]])]
    for arguments in ({}, dict(axes=[0]), dict(ddof=1), dict(epsilon=0.5), dict(ddof=50)):
        near(x, arguments=dict(batch=True, **arguments))
    near([a[:1] for a in x], arguments=dict(batch=True, axes=[1]))
    near(x[1], arguments=dict(batch=True))
    near(images("uint8", sizes=[(37, 89), (1, 1), (65, 3)]), layout="HWC",
         arguments=dict(batch=True, axis_names="HW"))  # fmt: skip


def test_degenerate_images():
    tenths = np.full((90, 90), 0.1, np.float32)  # upstream gets their mean wrong
    assert not np.asarray(ndd.normalize(ndd.tensor(tenths))).any()
    for a in (np.full((9, 9, 3), 7, np.uint8), np.full((9, 9), 0.25, np.float32)):
        assert not np.asarray(ndd.normalize(ndd.tensor(a))).any()
        near(a)
        near(a, epsilon=1e-5)
    near(np.float32([[7]]))
    near(np.zeros((0, 3), np.float32))
    near([np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32)])
    near(np.float32([1, np.nan, 3]))
    near(np.float32([[1, np.nan, 3], [1, 2, 3]]), axes=[1])
    near(np.float32([1, np.inf, 3]))
    assert ndd.normalize(ndd.tensor(7.0)).item() == 0.0  # upstream reads foreign memory
    assert ndd.normalize(ndd.tensor(7.0), mean=2.0, stddev=2.0).item() == 2.5


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "uint64", "bool"])
def test_more_types(dtype):
    x = numbers((40, 9), dtype)
    wide = x.astype(np.float64)
    got = np.asarray(ndd.normalize(ndd.tensor(x)))
    assert_exact(got, (wide - wide.mean()) / wide.std())


def test_accuracy():
    x = np.random.default_rng(5).normal(1000, 1, (400, 500, 3)).astype(np.float32)
    wide = x.astype(np.float64)
    got = np.asarray(ndd.normalize(ndd.tensor(x, layout="HWC"), axes=[0, 1]))
    mean = wide.mean(axis=(0, 1)).astype(np.float32)
    assert_exact(got, (wide - mean) / wide.std(axis=(0, 1)))


PROGRAMS = {
    "all": lambda x: ndd.normalize(x),
    "planes": lambda x: ndd.normalize(x, axis_names="HW", epsilon=0.5),
    "batch": lambda x: ndd.normalize(x, axis_names="HW", batch=True, dtype=ndd.int16, scale=50.0),
    "given mean": lambda x: ndd.normalize(x, mean=ndd.tensor(np.float32([[[1, 2, 3]]])), ddof=1),
    "chain": lambda x: ndd.flip(ndd.normalize(ndd.color_twist(x, hue=9.0), axes=[0, 1])) * 2.0,
    "resized": lambda x: ndd.normalize(ndd.resize(x, size=[20, 30]), axes=[0, 1]),
    "twice": lambda x: ndd.normalize(ndd.normalize(x, axes=[2]), axes=[0]),
    "by hand": lambda x: x - ndd.reductions.mean(x, axes=[0, 1]),
}


def several(dtype):
    return images(dtype, sizes=[(37, 89), (1, 1), (65, 3), (130, 131)])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_modes_fusion_and_threads(name, dtype):
    x = several(dtype)
    same_everywhere(lambda: PROGRAMS[name](ndd.batch(x, layout="HWC")))


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_simulated_gpu_gives_the_same_bits(name, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    with ndd.EvalMode.deferred:
        x = ndd.batch(several("float32"), layout="HWC")
        cpu, gpu = PROGRAMS[name](x), PROGRAMS[name](x.gpu())
        assert gpu.device.device_type == "gpu" and gpu.shape == cpu.shape
        for a, b in zip(arrays(cpu), arrays(gpu.cpu()), strict=True):
            np.testing.assert_array_equal(a, b)


def test_how_many_kernels_read_an_image():
    """Integers and their squares are summed together; the deviation of floats needs their mean."""
    with ndd.EvalMode.deferred:
        x = ndd.batch(several("uint8"), layout="HWC")
        assert "in 2 groups" in str(ndd.explain(ndd.normalize(x, axes=[0, 1])))
        x = ndd.cast(x, dtype=ndd.float32)
        assert "in 3 groups" in str(ndd.explain(ndd.normalize(x, axes=[0, 1])))


def test_decoded_images():
    """All kernels of a sample run in the loop that decodes it; a crop decodes only its region."""
    sizes = ((200, 300), (40, 50), (333, 111))
    files = [np.frombuffer(encoded(".jpg", photo(*s)), np.uint8) for s in sizes]
    same_everywhere(lambda: ndd.normalize(ndd.decoders.image(ndd.batch(files)), axes=[0, 1]))

    def part():
        x = ndd.crop(ndd.decoders.image(ndd.batch(files)), crop=[30, 30])
        return x - ndd.reductions.mean(ndd.brightness(x, brightness=0.5), axes=[0, 1])

    def mean_of_part():
        x = ndd.crop(ndd.decoders.image(ndd.batch(files)), crop=[30, 30])
        return ndd.reductions.mean(x, axes=[0, 1])

    same_everywhere(part)
    same_everywhere(mean_of_part)
    with ndd.EvalMode.deferred:
        assert "only what is read is decoded" in str(ndd.explain(part()))


def test_other_numbers_compile_nothing():
    from ndd.kernels.cpu import runtime

    def run(epsilon, scale, ddof, size):
        x = ndd.batch([np.ones((size, size, 3), np.uint8)] * 2, layout="HWC")
        arrays(ndd.normalize(x, axes=[0, 1], epsilon=epsilon, scale=scale, ddof=ddof))

    run(0.5, 2.0, 0, 5)
    before = runtime.compile_count
    for numbers_ in ((0.25, 3.0, 1, 1), (0.0, 1.0, 7, 100)):
        run(*numbers_)
    assert runtime.compile_count == before


def test_errors():
    x = ndd.tensor(numbers((4, 6, 3)), layout="HWC")
    two = ndd.batch([numbers((4, 6, 3)), numbers((2, 5, 3))], layout="HWC")
    row, cell = (ndd.tensor(np.zeros(s, np.float32)) for s in ((3,), (1, 2, 1)))
    for text, program in {
        "normalize: at least one axis must be given": lambda: ndd.normalize(x, axes=[]),
        "normalize: axis 5 is out of range [-3, 2] for 3-D input":
            lambda: ndd.normalize(x, axes=[5]),
        "normalize: axis 1 occurs more than once": lambda: ndd.normalize(x, axes=[1, 1]),
        "normalize: `axes` and `axis_names` exclude each other":
            lambda: ndd.normalize(x, axes=[1], axis_names="H"),
        "normalize: axis 'Z' is not present in the layout of the input ('HWC')":
            lambda: ndd.normalize(x, axis_names="Z"),
        "normalize: no axes can be given if both `mean` and `stddev` are numbers":
            lambda: ndd.normalize(x, axes=[0], mean=1.0, stddev=2.0),
        "normalize: `batch` excludes `mean`": lambda: ndd.normalize(x, batch=True, mean=1.0),
        "normalize: `batch` excludes `stddev`": lambda: ndd.normalize(x, batch=True, stddev=1.0),
        "normalize: `mean` must be a number or have as many dimensions as the input, 3; it has 1":
            lambda: ndd.normalize(x, mean=row),
        "normalize: `stddev` of sample 0 has shape (1, 2, 1), but the input of shape (4, 6, 3), "
        "reduced, has shape (1, 6, 1)": lambda: ndd.normalize(x, stddev=cell, axes=[0, 2]),
        "normalize: with `batch` all samples must have the same extents in the axes that are not "
        "reduced; sample 0 has shape (4, 6, 3), sample 1 has (2, 5, 3)":
            lambda: ndd.normalize(two, batch=True, axes=[0]),
    }.items():  # fmt: skip
        error_everywhere(ValueError, text, program)
