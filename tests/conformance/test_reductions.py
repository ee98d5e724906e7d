"""Reductions against the oracle and a float64 reference; the order of summation; errors."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.kernels.ir.reduction import FOLD, MAX_LANES, lane_count
from tests.helpers import arrays

from .geometry_data import TYPES, images, numbers, with_layout
from .modes import error_everywhere, same_everywhere
from .oracle import check, check_program, ndd_call, oracle_call

SIMPLE = ("sum", "mean", "mean_square", "rms", "min", "max")
AROUND = ("std_dev", "variance")
UPSTREAM = [t for t in TYPES if t not in ("float16", "float64", "bool")]
LAYOUTS = ("HWC", "CHW", "FHWC", "DHWC", "CDHW", "FCHW", "HW")
ODD = [(1, 1), (1, 67), (65, 1), (3, 43), (37, 89), (130, 131)]  # with one lane and with several
R = ndd.reductions


def odd(dtype="uint8"):
    return [numbers((h, w, 3), dtype, seed) for seed, (h, w) in enumerate(ODD)]


def small(x):
    """Values whose squares do not overflow upstream, and whose sums do not cancel, because upstream
    sums in float32."""
    by = {"uint16": 2, "int64": 2**40, "uint64": 2**40}
    return [np.abs(a) // by[a.dtype.name] if a.dtype.name in by else np.abs(a / 2).astype(a.dtype)
            for a in x]  # fmt: skip


# -- against the oracle ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", UPSTREAM)
@pytest.mark.parametrize("name", SIMPLE)
def test_types(name, dtype):
    is_exact = name in ("min", "max") or (name == "sum" and dtype != "float32")
    x = images(dtype) if is_exact else small(images(dtype))
    for arguments in ({}, dict(axes=[0, 1]), dict(axes=[2]), dict(axes=[1], keep_dims=True)):
        check(f"reductions.{name}", x, layout="HWC", **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SIMPLE)
def test_layouts(name, layout):
    x = with_layout(layout)
    check(f"reductions.{name}", x, layout=layout)
    check(f"reductions.{name}", x, layout=layout, keep_dims=True)
    check(f"reductions.{name}", x, layout=layout, axis_names="HW")
    check(f"reductions.{name}", x, layout=layout, axis_names="W", keep_dims=True)
    for axis in range(-len(layout), len(layout)):
        check(f"reductions.{name}", x, layout=layout, axes=[axis])
        check(f"reductions.{name}", x[0], axes=axis)
    check(f"reductions.{name}", x, layout=layout, axes=[])
    check(f"reductions.{name}", x, layout=layout, axis_names="", keep_dims=True)


@pytest.mark.parametrize("name", SIMPLE)
def test_sizes(name):
    for dtype in ("uint8", "float32"):
        for arguments in ({}, dict(axes=[0, 1]), dict(axes=[0]), dict(axes=[1, 2])):
            x = odd(dtype) if name in ("min", "max") else small(odd(dtype))
            check(f"reductions.{name}", x, layout="HWC", **arguments)
    for shape in ((), (1,), (0,), (0, 3), (3, 0), (2, 0, 3)):
        x = numbers(shape, "float32")
        check(f"reductions.{name}", x)
        check(f"reductions.{name}", x.astype(np.uint8))
        for axis in range(len(shape)):
            check(f"reductions.{name}", x, axes=[axis])
    check(f"reductions.{name}", [numbers((2, 3)), numbers((0, 3)), numbers((1, 3))], axes=[0])


@pytest.mark.parametrize("dtype", UPSTREAM)
@pytest.mark.parametrize("name", AROUND)
def test_deviations(name, dtype):
    x = [a // 2**40 for a in images(dtype)] if np.dtype(dtype).itemsize == 8 else images(dtype)
    for axes in ([0, 1], [1], [2], [0, 1, 2]):
        for keep in (False, True):
            check_program(
                f"reductions.{name}",
                lambda lib, x, axes=axes, keep=keep: getattr(lib.reductions, name)(
                    x, lib.reductions.mean(x, axes=axes, keep_dims=keep), axes=axes, ddof=1
                    if axes != [2] else 0,
                ),
                # Leave out single pixels: their variance with ddof=1 is a division by 0.
                [a for a in x if a.shape[0] > 1],
                layout="HWC",
            )  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_deviations_from_other_means(name):
    x = images("float32")
    check(f"reductions.{name}", x, np.float32(3.5))
    check(f"reductions.{name}", x, [np.float32(k) for k in range(4)], layout=("HWC", None))
    check(f"reductions.{name}", x[0], np.float32([1, 2, 3]), axes=[0, 1])
    check(f"reductions.{name}", x[0], np.float32([[[1, 2, 3]]]), axes=[0, 1], keep_dims=True)
    check(f"reductions.{name}", x[0], np.float32(1), axes=[])
    check(f"reductions.{name}", x[0], np.float32(1), ddof=-3)
    check(f"reductions.{name}", x[0], np.float32(1), ddof=105)  # equals the number of values
    check(f"reductions.{name}", x[0], np.float32(1), ddof=200)
    check(f"reductions.{name}", np.float32(5), np.float32(3))
    check(f"reductions.{name}", x[0][:0], np.float32(3))
    check(f"reductions.{name}", np.full((9, 9, 3), 7, np.uint8), np.float32(7))


@pytest.mark.parametrize("name", SIMPLE)
def test_numbers_that_are_none(name):
    nan, inf = np.nan, np.inf
    for values in ([nan], [nan, 1, 3], [1, nan], [nan, nan], [inf, 1], [-inf, inf], [-inf], [inf]):
        for n in (1, 50):  # one lane, several lanes
            check(f"reductions.{name}", np.float32(values * n))
    x = np.float32([[nan, 1], [2, 3]])
    check(f"reductions.{name}", x, axes=[0])
    check(f"reductions.{name}", x, axes=[])


def test_types_of_results():
    x = numbers((50, 7), "uint8")
    check("reductions.sum", x, dtype="uint8")  # wraps around
    check("reductions.sum", x, dtype="float32")
    check("reductions.sum", numbers((50, 7), "int8"), dtype="int8")
    check("reductions.sum", numbers((50, 7), "int16"), dtype="int64")
    check("reductions.sum", np.uint64([2**64 - 1, 5]))
    check("reductions.mean", np.int8([-1, -2]), dtype="int8")
    check("reductions.mean", np.uint8([1, 2]), dtype="uint8")
    check("reductions.rms", np.uint8([3, 4]), dtype="uint8")
    # Upstream divides a sum that has wrapped around.
    assert ndd_mean(np.uint8([200, 201]), ndd.uint8) == 200
    assert ndd_mean(np.int32([2**31 - 1, 2**31 - 3]), ndd.int32) == 2**31 - 2


def ndd_mean(x, dtype):
    return R.mean(ndd.tensor(x), dtype=dtype).item()


# -- what upstream does not have -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float64", "bool"])
def test_more_types(dtype):
    x = numbers((40, 9), dtype)
    wide = x.astype(np.float64)
    t = ndd.tensor(x)
    floating = np.float64 if dtype == "float64" else np.float32
    for name, want in (
        ("sum", wide.sum()), ("mean", wide.mean()), ("mean_square", (wide**2).mean()),
        ("min", wide.min()), ("max", wide.max()),
    ):  # fmt: skip
        got = np.asarray(getattr(R, name)(t))
        assert np.isclose(float(got), want, rtol=1e-6), name
        if name.startswith("m") and name not in ("min", "max"):
            assert got.dtype == floating
    assert R.max(t).dtype == t.dtype
    assert R.max(ndd.cast(t, dtype=ndd.bfloat16)).dtype == ndd.bfloat16


def test_large_integers_are_exact():
    x = np.full((1 << 17, 3), 65535, np.uint16)
    assert R.sum(ndd.tensor(x)).item() == x.size * 65535
    assert np.asarray(R.sum(ndd.tensor(x, layout="HC"), axes=[0])).tolist() == [65535 << 17] * 3
    y = np.full(1 << 17, -32768, np.int16)
    assert R.sum(ndd.tensor(y)).item() == -(1 << 32)
    assert R.mean_square(ndd.tensor(y)).item() == 2.0**30
    z = np.int32([2**31 - 1, -(2**31)] * 5000)
    assert R.sum(ndd.tensor(z)).item() == -5000
    assert R.mean_square(ndd.tensor(np.int64([2**40, 0]))).item() == 2.0**79


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_narrow_lanes_do_not_overflow(dtype, channels):
    """Blocks of 16- and 32-bit lanes are emptied in time; the extremes of a type fill them first."""
    by_channel = 1 << (16 if dtype in ("uint8", "int8") else 22)  # more than a block can take
    limits = np.iinfo(dtype)
    for value in (limits.min, limits.max):
        for n in (by_channel + 1, 77):  # the last block is not full
            x = np.full((n, channels), value, dtype)
            t = ndd.tensor(x, layout="HC")
            assert np.asarray(R.sum(t, axes=[0])).tolist() == [int(value) * n] * channels
            assert R.sum(t).item() == int(value) * n * channels
            squares = np.asarray(R.mean_square(t, axes=[0], dtype=ndd.float64)).tolist()
            assert squares == [float(value) ** 2] * channels


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "bool"])
def test_blocks_go_on_over_rows(dtype):
    """Rows that are not contiguous, of lengths that do not fill blocks; values that are computed."""
    x = numbers((67, 301, 3), dtype)
    part = ndd.tensor(x, layout="HWC")[1::2, 5:293]
    wanted = x[1::2, 5:293].astype(np.int64)
    assert np.asarray(R.sum(part, axes=[0, 1])).tolist() == wanted.sum(axis=(0, 1)).tolist()
    assert R.sum(part).item() == wanted.sum()
    for name in ("min", "max"):
        extremes = getattr(wanted, name)(axis=(0, 1)).tolist()
        assert np.asarray(getattr(R, name)(part, axes=[0, 1])).astype(int).tolist() == extremes
    if dtype == "uint8":
        total = R.sum(255 - ndd.cast(part, dtype=ndd.int16), axes=[0, 1])
        assert np.asarray(total).tolist() == (255 - wanted).sum(axis=(0, 1)).tolist()
        assert R.sum(ndd.brightness(part, brightness=0.0)).item() == 0


@pytest.mark.parametrize("shape", [(400, 500, 3), (1, 1000003), (1000003, 1)])
def test_accuracy(shape):
    """Compare with float64 for float32 values far from 0, which are hard to sum accurately."""
    x = np.random.default_rng(5).normal(1000, 1, shape).astype(np.float32)
    t, wide = ndd.tensor(x), x.astype(np.float64)
    mean = R.mean(t)
    np.testing.assert_allclose(np.asarray(mean), wide.mean(), rtol=1e-7)
    np.testing.assert_allclose(np.asarray(R.sum(t)), wide.sum(), rtol=1e-7)
    around = ((wide - np.float64(mean.item())) ** 2).mean()
    np.testing.assert_allclose(np.asarray(R.variance(t, mean)), around, rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_that_cancel(name):
    """Upstream sums in float32, so it is farther from the exact value than we are."""
    x = np.random.default_rng(6).normal(0, 1, (300, 400, 3)).astype(np.float32)
    exact = getattr(np, name)(x.astype(np.float64), axis=(0, 1))
    got = ndd_call(f"reductions.{name}", x, axes=[0, 1])[0].arrays[0]
    theirs = oracle_call(f"reductions.{name}", x, axes=[0, 1])[0].arrays[0]
    np.testing.assert_array_equal(got, exact.astype(np.float32))
    assert np.abs(got - exact).max() < np.abs(theirs - exact).max()


# -- the order of summation --------------------------------------------------------------------------


def ordered_sum(values):
    """A sum in the order that NOTE [order of summation] defines."""
    lanes = [0.0] * int(lane_count(np.array([len(values)]))[0])
    for k, v in enumerate(values):
        lanes[k % len(lanes)] += float(v)
    folded = [0.0] * min(len(lanes), FOLD)
    for k, v in enumerate(lanes):
        folded[k % len(folded)] += v
    total = 0.0
    for v in folded:
        total += v
    return total


def test_lane_counts():
    n = np.array([0, 1, 64, 65, 128, 129, 2048, 2049, 65536, 10**9])
    assert lane_count(n).tolist() == [1, 1, 1, 2, 2, 4, 32, 64, 1024, 1024]
    assert MAX_LANES % FOLD == 0


@pytest.mark.parametrize("n", [1, 64, 65, 1000, 3000, 70000])
def test_order(n):
    """Sums of float64 values for which any other order gives other bits."""
    rng = np.random.default_rng(n)
    x = rng.normal(0, 1, (n, 3)) * 10.0 ** rng.integers(-8, 8, (n, 3))
    want = [ordered_sum(c) for c in x.T]
    for layout in ("HC", None):  # channels combined together, or one by one
        assert np.asarray(R.sum(ndd.tensor(x, layout=layout), axes=[0])).tolist() == want
    planes = ndd.tensor(np.ascontiguousarray(x.T))
    assert np.asarray(R.sum(planes, axes=[1])).tolist() == want
    turned = ndd.transpose(planes, perm=[1, 0])  # the reduced axis is contiguous
    assert np.asarray(R.sum(turned, axes=[0])).tolist() == want
    assert R.sum(ndd.tensor(x)).item() == ordered_sum(x.reshape(-1))


def test_order_of_several_axes():
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, (7, 23, 19, 2)) * 10.0 ** rng.integers(-8, 8, (7, 23, 19, 2))
    t = ndd.tensor(x)
    for axes in ([0, 1], [0, 2], [1, 3], [0, 1, 2], [1, 2, 3], [0, 3]):
        kept = [d for d in range(4) if d not in axes]
        rows = x.transpose(*kept, *axes).reshape(-1, np.prod([x.shape[a] for a in axes]))
        got = np.asarray(R.sum(t, axes=axes)).reshape(-1).tolist()
        assert got == [ordered_sum(r) for r in rows], axes
    part = x[1:6, ::-1, 2:17]  # rows that are not contiguous
    got = R.sum(t[1:6, ::-1, 2:17], axes=[0, 1, 2])
    assert np.asarray(got).tolist() == [ordered_sum(part[..., c].reshape(-1)) for c in range(2)]


# -- modes, devices, fusion ------------------------------------------------------------------------

PROGRAMS = {
    **{
        f"{name} {axes}": lambda x, name=name, axes=axes: getattr(R, name)(x, axes=axes)
        for name in SIMPLE
        for axes in (None, [0, 1], [1], [2])
    },
    "std_dev": lambda x: R.std_dev(x, R.mean(x, axes=[0, 1]), axes=[0, 1], ddof=1),
    "variance": lambda x: R.variance(x, R.mean(x)),
    "of a chain": lambda x: R.mean(ndd.color_twist(x, hue=20.0, dtype=ndd.float32), axes=[0, 1]),
    "of products": lambda x: R.sum(x * x - 3.5, axes=[1]),
    "of a crop": lambda x: R.mean(ndd.flip(ndd.crop(x, crop=[1, 1])), axes=[0, 1]),
    "of a view": lambda x: R.mean(x.slice[::2, ::-1] * 0.1, axes=[0, 1]),
    "of a view, all": lambda x: R.mean(x.slice[::2, ::-1, ::2] * 0.1),
    "of a padded view": lambda x: R.mean(
        ndd.crop(x, crop=[9, 9], out_of_bounds_policy="pad"), axes=[0, 1]
    ),
    "of a resampled image": lambda x: R.mean(ndd.resize(x, size=[70, 9]) * 2, axes=[0, 1]),
    "of a warped image": lambda x: R.max(ndd.rotate(x, angle=20.0, fill_value=0.0), axes=[2]),
    "of a join": lambda x: R.sum(ndd.cat(x, x, axis=1), axes=[0]),
    "of a reduction": lambda x: R.max(R.mean(x, axes=[0, 1])),
    "before arithmetic": lambda x: ndd.math.sqrt(R.mean(x, axes=[0, 1]) * 2.0) + 1,
    "subtracted": lambda x: (x - R.mean(x, axes=[0, 1])) * 0.5,
    "subtracted, kept": lambda x: x - R.mean(x, axes=[0, 1], keep_dims=True),
    "subtracted twice": lambda x: (x - R.mean(x)) / (R.max(x) - R.min(x) + 1),
    "brightness from the mean": lambda x: ndd.brightness(x, brightness=R.mean(x) * 0.01),
    "two at once": lambda x: (R.mean(x + 1, axes=[0, 1]), R.max(x + 1, axes=[2])),
}


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_modes_fusion_and_threads(name, dtype):
    x = odd(dtype)
    same_everywhere(lambda: PROGRAMS[name](ndd.batch(x, layout="HWC")))


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_simulated_gpu_gives_the_same_bits(name, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    for dtype in ("uint8", "float32"):
        with ndd.EvalMode.deferred:
            x = ndd.batch(odd(dtype), layout="HWC")
            ours, theirs = (PROGRAMS[name](b) for b in (x, x.gpu()))
            pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
            for cpu, gpu in pairs:
                assert gpu.device.device_type == "gpu" and gpu.shape == cpu.shape
                for a, b in zip(arrays(cpu), arrays(gpu.cpu()), strict=True):
                    np.testing.assert_array_equal(a, b)


def test_what_feeds_a_reduction_is_fused_into_it():
    x = ndd.batch(odd(), layout="HWC")
    with ndd.EvalMode.deferred:
        text = str(ndd.explain(R.mean(ndd.color_twist(x, hue=20.0) * 0.5, axes=[0, 1])))
        assert "in 1 group" in text
        text = str(ndd.explain(x - R.mean(x * 2, axes=[0, 1])))
        assert "in 2 groups" in text and "it is one number for many elements" in text


def test_another_size_compiles_nothing():
    from ndd.kernels.cpu import runtime

    def run(h, w):
        x = ndd.batch([np.ones((h, w, 3), np.float32)] * 2, layout="HWC")
        return arrays(R.std_dev(x, R.mean(x, axes=[0, 1]), axes=[0, 1], ddof=h % 3))

    run(5, 7)
    before = runtime.compile_count
    for h, w in ((1, 1), (300, 200), (64, 1)):
        run(h, w)
    assert runtime.compile_count == before


# -- mistakes --------------------------------------------------------------------------------------


def test_errors():
    x = ndd.tensor(numbers((4, 6, 3)), layout="HWC")
    plain = ndd.tensor(numbers((4, 6, 3)))
    both = ndd.batch([numbers((4, 6, 3)), numbers((2, 5, 3))])
    wrong = ndd.tensor(np.float32([1, 2]))
    for text, program in {
        "reductions.sum: axis 3 is out of range [-3, 2] for 3-D input": lambda: R.sum(x, axes=[3]),
        "reductions.mean: axis -2 occurs more than once": lambda: R.mean(x, axes=[1, -2]),
        "reductions.max: axis 'Z' is not present in the layout of the input ('HWC')":
            lambda: R.max(x, axis_names="Z"),
        "reductions.rms: axis 'H' is not present in the layout of the input (none)":
            lambda: R.rms(plain, axis_names="H"),
        "reductions.min: `axes` and `axis_names` exclude each other":
            lambda: R.min(x, axes=[0], axis_names="H"),
        "reductions.variance: `mean` of sample 0 has shape (2,), it must be one of (), (3,), "
        "(1, 1, 3)": lambda: R.variance(x, wrong, axes=[0, 1]),
        "reductions.std_dev: `mean` of sample 1 has shape (6, 3), it must be one of (), (5, 3), "
        "(1, 5, 3)": lambda: R.std_dev(both, ndd.tensor(np.zeros((6, 3), np.float32)), axes=[0]),
        "reductions.sum: axis 0 is out of range [0, -1] for 0-D input":
            lambda: R.sum(ndd.tensor(1.0), axes=[0]),
    }.items():  # fmt: skip
        error_everywhere(ValueError, text, program)
