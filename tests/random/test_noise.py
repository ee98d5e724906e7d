"""Noise, batch_permutation and roi_random_crop; random ops do not depend on threads and splits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest
from scipy import special, stats

import ndd
from ndd.kernels.ir import distributions
from ndd.kernels.ir import interpreter as interp
from tests.conformance.modes import error_everywhere, same_everywhere
from tests.conformance.oracle import check, record_draws
from tests.decoders.fixtures import encoded, photo
from tests.helpers import arrays, kernels, nothing_compiled
from tests.random.test_random import LIMIT, counts_fit

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
TYPES = (*INTEGERS, "float32")  # all types that upstream accepts
N = 60_000


def seeded(seed=1):
    return ndd.random.RNG(seed)


def noisy(op, values, seed=1, **kwargs):
    """The op's result for an array without layout, as an array."""
    return arrays(getattr(ndd.noise, op)(ndd.tensor(values), rng=seeded(seed), **kwargs))[0]


def oracle(op, values, **kwargs):
    numbers = {k: upstream.tensor(np.float32(v)) for k, v in kwargs.items()}
    with upstream.EvalMode.sync_cpu:
        made = getattr(upstream.noise, op)(
            upstream.tensor(values), rng=upstream.random.RNG(1), **numbers
        )
        return np.array(made)


def same_moments(mine, theirs):
    """The first three moments differ by less than four of their standard errors."""
    for power in (1, 2, 3):
        a, b = mine.astype(float) ** power, theirs.astype(float) ** power
        error = np.sqrt(a.var() / a.size + b.var() / b.size)
        assert abs(a.mean() - b.mean()) <= 4 * error, power


# -- fusion ----------------------------------------------------------------------------------------


def images(device=None):
    rng = np.random.default_rng(3)
    shapes = ((6, 5, 3), (4, 7, 3), (1, 1, 3))
    samples = [rng.integers(0, 256, s, dtype=np.uint8) for s in shapes]
    return ndd.batch(samples, layout="HWC", device=device)


def normalised(x, rng):
    """Noise, then brightness, then a normalising crop."""
    x = ndd.noise.gaussian(x, stddev=ndd.batch(np.float32([0.0, 5.0, 50.0])), rng=rng)
    x = ndd.brightness(x, brightness=1.2)
    return ndd.crop_mirror_normalize(x, mirror=1, mean=[100.0, 110.0, 120.0], std=[50.0])


def test_noise_is_made_in_the_kernel_that_needs_it():
    """Noise is not stored: one kernel reads the image and some numbers, and writes the result."""
    x = images()
    rng = seeded(5)
    with ndd.EvalMode.deferred:
        y = normalised(x, rng)
        told = ndd.explain(y)
        assert len(told.kernels) == 1
        (group,) = (g for g in told.groups if g.kind == "kernel")
        assert [op for op in group.ops if "noise" in op] == ["noise.gaussian"]
        size = sum(a.size for a in arrays(x))
        numbers = 3 * 4 * (5 + 3 + 1) + 100  # keys, strides and stddev; arguments of the others
        assert size <= group.read_bytes <= size + numbers
        assert group.written_bytes == 4 * size
        got = arrays(y)
        # long parts are functions: Numba would take seconds for them in every loop and channel
        calls = [
            ndd.explain(y).groups[-1].code.count(f"= {f}__")
            for f in ("philox_0", "standard_normal")
        ]
        assert calls[0] == calls[1] <= 9
        with nothing_compiled():
            assert not np.array_equal(arrays(normalised(x, rng))[1], got[1])
        assert kernels(ndd.flip(ndd.noise.shot(x))) == 1
        assert kernels(ndd.noise.salt_and_pepper(ndd.noise.shot(ndd.brightness(x)))) == 1
    with ndd.EvalMode.sync_cpu:
        want = arrays(normalised(x, seeded(5)))
    assert [a.tobytes() for a in got] == [a.tobytes() for a in want]


# -- what a draw depends on ------------------------------------------------------------------------

NOISE = {
    "gaussian": lambda x, **k: ndd.noise.gaussian(x, stddev=3.0, **k),
    "shot": lambda x, **k: ndd.noise.shot(x, factor=2.0, **k),
    "salt_and_pepper": lambda x, **k: ndd.noise.salt_and_pepper(x, prob=0.5, **k),
}


@pytest.mark.parametrize("name", NOISE)
def test_draws_are_a_function_of_seed_draw_sample_and_element(name):
    op = NOISE[name]
    whole = [np.full((40, 1), 100, np.float32)] * 7
    x = ndd.batch(whole[:3])
    rng = seeded(11)
    first = arrays(op(x, rng=rng))
    assert str(rng.state).endswith(":0000000000000001_3")  # 7 words
    second = arrays(op(x, rng=rng))
    assert len({a.tobytes() for a in first + second}) == 6, "samples and calls have their own"
    (alone,) = arrays(op(x.tensors[0], rng=seeded(11)))
    assert alone.tobytes() == first[0].tobytes(), "a tensor is like sample 0 of a batch"
    more = arrays(op(ndd.batch(whole), rng=seeded(11)))
    assert [a.tobytes() for a in more[:3]] == [a.tobytes() for a in first]
    (longer,) = arrays(op(ndd.tensor(np.full((60, 1), 100, np.float32)), rng=seeded(11)))
    assert longer[:40].tobytes() == alone.tobytes()
    repeated = arrays(op(x.tensors[0], rng=seeded(11), batch_size=3))
    assert [a.tobytes() for a in repeated] == [a.tobytes() for a in first]


def everything(device=None):
    """All kinds of noise, with arguments per sample, channels last, first and none."""
    x = images(device)
    per_sample = ndd.batch(np.float32([0.0, 0.5, 1.0]))
    planes = ndd.cast(ndd.transpose(x, perm=[2, 0, 1]), dtype=ndd.float32)
    counted = ndd.noise.shot(
        ndd.cast(x.slice[:, :, 0], dtype=ndd.int32), factor=per_sample * 8.0, rng=seeded(3)
    )
    peppered = ndd.noise.salt_and_pepper(
        planes, prob=per_sample, salt_vs_pepper=per_sample, salt_val=per_sample, rng=seeded(4)
    )
    start = ndd.roi_random_crop(
        crop_shape=[3, 30], roi_start=[5, 5], roi_shape=[9, 9], batch_size=3, rng=seeded(5)
    )
    order = ndd.batch_permutation(batch_size=3, rng=seeded(6))
    return normalised(x, seeded(2)), counted, peppered, start, order


def test_modes_threads_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    first = same_everywhere(everything)
    with ndd.EvalContext(num_threads=8):
        results = everything()
    on_gpu = everything("gpu")
    assert all(x.device.device_type == "gpu" for x in on_gpu[:3])
    for want, mine, theirs in zip(first, results, on_gpu, strict=True):
        for a, b, c in zip(want.arrays, arrays(mine), arrays(theirs), strict=True):
            assert a.shape == b.shape == c.shape
            assert a.tobytes() == b.tobytes() == c.tobytes()


def random_calls(shapes):
    """Every random op, and the random decoder, for samples of these shapes."""
    rng = seeded(8)
    x = ndd.batch([np.full((*s, 3), 90, np.uint8) for s in shapes], layout="HWC")
    grey = ndd.batch([np.full((*s, 1), 90, np.float32).reshape(-1, 1) for s in shapes])
    extents = ndd.batch([np.int32(s) for s in shapes])
    sizes = ndd.batch([np.int32([s[0] * s[1]]) for s in shapes])
    files = [np.frombuffer(encoded(".png", photo(*s)), np.uint8) for s in shapes]
    r = ndd.random
    yield "uniform", r.uniform(shape=sizes, rng=rng)
    yield "normal", r.normal(shape=sizes, rng=rng)
    yield "coin_flip", r.coin_flip(shape=sizes, rng=rng)
    yield "choice", r.choice(1000, shape=[500], batch_size=len(shapes), rng=rng)
    yield "beta", r.beta(shape=sizes, alpha=0.7, beta=2.0, rng=rng)
    for name, op in NOISE.items():
        yield name, op(grey, rng=rng)
    yield "jitter", ndd.jitter(x, rng=rng)
    yield "random_resized_crop", ndd.random_resized_crop(x, size=[9, 9], rng=rng)
    yield "random_crop_generator", ndd.random_crop_generator(extents, rng=rng)[1]
    start = ndd.roi_random_crop(x, crop_shape=[3, 3], roi_start=[1, 1], roi_shape=[9, 9], rng=rng)
    yield "roi_random_crop", start
    decoded = ndd.decoders.image_random_crop(ndd.batch(files), rng=rng)
    yield "image_random_crop", decoded


def test_threads_and_splits_change_nothing():
    """The values do not depend on the number of threads or on the other samples of the batch."""
    shapes = [(40 + 3 * k, 50 + k) for k in range(12)]
    with ndd.EvalContext(num_threads=1):
        want = {name: arrays(x) for name, x in random_calls(shapes)}
    for threads, count in ((8, 12), (1, 5), (8, 3)):
        with ndd.EvalContext(num_threads=threads):
            for name, x in random_calls(shapes[:count]):
                got = arrays(x)
                assert len(got) == count
                for a, b in zip(got, want[name], strict=False):
                    assert a.shape == b.shape and a.tobytes() == b.tobytes(), (name, threads)


# -- values: types, rounding, layouts --------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
def test_gaussian_of_every_type(name):
    """Without deviation, the bits equal upstream's; with deviation, the moments do."""
    kind = np.dtype(name)
    ends = [] if kind.kind == "f" else [np.iinfo(kind).min, np.iinfo(kind).max]
    large = [2 ** min(8 * kind.itemsize - 1, 40) - 3] if kind.kind != "f" else [1e30, -7.25]
    x = np.array([[0, 1, 99], [*ends, *large, 100][:3]], kind)
    for mean in (0.5, -2.5, 1.25):
        check("noise.gaussian", x, mean=mean, stddev=0.0)
    flat = np.full((N, 1), 100 if kind.itemsize == 1 else 1000, kind)
    mine = noisy("gaussian", flat, stddev=6.0, mean=3.0)
    assert mine.dtype == kind
    theirs = oracle("gaussian", flat, stddev=6.0, mean=3.0)
    record_draws("noise.gaussian", mine, theirs)
    same_moments(mine, theirs)


@pytest.mark.parametrize("name", TYPES)
def test_shot_of_every_type(name):
    kind = np.dtype(name)
    x = np.tile(np.array([0, 4, 100], kind), N // 3).reshape(-1, 1)
    for factor in (2.5, 20.0):
        mine, theirs = noisy("shot", x, factor=factor), oracle("shot", x, factor=factor)
        record_draws("noise.shot", mine.reshape(-1, 3), theirs.reshape(-1, 3))
        assert mine.dtype == kind and not mine[::3].any()
        steps = np.arange(200) * factor  # rounded half up and saturated, like any result
        if kind.kind != "f":
            steps = np.minimum(np.floor(steps + 0.5), float(np.iinfo(kind).max))
        assert np.isin(mine, steps.astype(kind)).all()
        for k in (1, 2):
            same_moments(mine[k::3], theirs[k::3])
    same = noisy("shot", x, factor=0.0)
    assert np.array_equal(same, x), "a factor of 0 changes nothing"


@pytest.mark.parametrize("name", TYPES)
def test_salt_and_pepper_of_every_type(name):
    x = np.full((40, 3), 7, name)
    for salt in (0.0, 1.0):
        check("noise.salt_and_pepper", x, prob=1.0, salt_vs_pepper=salt)
        for value in (2.5, 300.75, -3.5):
            check(
                "noise.salt_and_pepper", x, prob=1.0, salt_vs_pepper=salt, salt_val=value,
                pepper_val=-value,
            )  # fmt: skip
    check("noise.salt_and_pepper", x, prob=0.0)


def test_more_types_than_upstream():
    for kind, op in (("float16", "shot"), ("float64", "salt_and_pepper"), ("float16", "gaussian")):
        x = np.full((2000, 1), 40, kind)
        y = noisy(op, x)
        assert y.dtype == kind and not np.array_equal(y, x)
    exact = noisy("gaussian", np.full(4, 2.0**40 + 2.0**-10), stddev=0.0, mean=0.25)
    assert exact.tolist() == [2.0**40 + 0.25 + 2.0**-10] * 4, "float64 is added in float64"


def test_salt_and_pepper_hits_pixels():
    rng = np.random.default_rng(0)
    image = rng.integers(1, 255, (30, 20, 3), dtype=np.uint8)

    def hits(x, layout, **kwargs):
        made = ndd.noise.salt_and_pepper(
            ndd.tensor(x, layout=layout), prob=0.3, rng=seeded(), **kwargs
        )
        (y,) = arrays(made)
        assert made.layout == layout and set(np.unique(y[y != x])) == {0, 255}
        return y != x

    last = hits(image, "HWC")
    assert (last == last[..., :1]).all() and 0.25 < last.mean() < 0.35
    first = hits(np.ascontiguousarray(image.transpose(2, 0, 1)), "CHW")
    assert np.array_equal(first.transpose(1, 2, 0), last), "a pixel draws the same in any layout"
    assert np.array_equal(hits(image, None), last), "without a layout, the last axis is a pixel"
    assert np.array_equal(hits(image[None], "FHWC")[0], last)
    middle = hits(np.ascontiguousarray(image.transpose(0, 2, 1)), "HCW")
    assert np.array_equal(middle.transpose(0, 2, 1), last)
    for free in (hits(image, "HWC", per_channel=True), hits(image, "ABD")):
        assert not (free == free[..., :1]).all() and 0.25 < free.mean() < 0.35


def test_arguments_per_sample():
    x = ndd.batch([np.full((50, 3), 40, np.uint8)] * 2)

    def per(a, b):
        return ndd.batch(np.float32([a, b]))

    a, b = arrays(ndd.noise.gaussian(x, mean=per(-100, 7), stddev=per(0, 0)))
    assert not a.any() and (b == 47).all()
    a, b = arrays(ndd.noise.shot(x, factor=per(0, 60)))
    assert (a == 40).all() and set(b.flat) <= {0, 60, 120, 180, 240, 255} and b.any()
    a, b = arrays(ndd.noise.salt_and_pepper(
        x, prob=per(0, 1), salt_vs_pepper=per(1, 0), pepper_val=per(1, 2), salt_val=9.0))  # fmt: skip
    assert (a == 40).all() and (b == 2).all()


def test_shot_of_what_no_sensor_sees():
    inf, nan = np.inf, np.nan
    x = np.float32([0, -0.0, -5, nan, inf, -inf, 1e30, 3e38, 1e-30])
    got = noisy("shot", x, factor=2.0)
    assert got[:4].tolist() == [0, 0, 0, 0] and got[4] == inf and got[5] == 0
    np.testing.assert_allclose(got[6:8], x[6:8], rtol=1e-6)
    assert got[8] == 0
    assert np.isnan(noisy("shot", x, factor=0.0)[3])
    below = noisy("shot", np.full(N, -40, np.float32), factor=-4.0)
    same_moments(-below, noisy("shot", np.full(N, 40, np.float32), factor=4.0, seed=2))
    assert not noisy("shot", np.full(50, 40, np.float32), factor=-4.0).any()
    # upstream does not terminate here
    huge = noisy("shot", np.full(N, 2**60, np.int64), factor=1.0).astype(np.float64)
    assert stats.kstest((huge - 2.0**60) / 2.0**30, "norm").pvalue > LIMIT
    assert noisy("shot", np.full(9, 2**62, np.int64), factor=1e-30).tolist() == [2**62] * 9


# -- distributions ---------------------------------------------------------------------------------


def test_gaussian_is_normal():
    x = noisy("gaussian", np.full((N, 1), 2.0, np.float32), stddev=0.5, mean=1.0).reshape(-1)
    assert stats.kstest(x, "norm", (3.0, 0.5)).pvalue > LIMIT
    assert stats.kurtosistest(x).pvalue > LIMIT and stats.skewtest(x).pvalue > LIMIT
    whole = noisy("gaussian", np.full((N, 1), 100, np.uint8), stddev=2.0).reshape(-1)
    edges = np.concatenate([[-np.inf], np.arange(94.5, 106), [np.inf]])
    chances = np.diff(stats.norm.cdf(edges, 100, 2.0)).tolist()
    counts_fit(np.digitize(whole, edges) - 1, dict(enumerate(chances)))
    clipped = noisy("gaussian", np.full((N, 1), 250, np.uint8), stddev=40.0).reshape(-1)
    share = stats.norm.sf(254.5, 250, 40)
    assert abs((clipped == 255).mean() - share) < 4 * np.sqrt(share * (1 - share) / N)


@pytest.mark.parametrize("rate", [1e-3, 0.4, 3.0, 9.99, 10.0, 10.7, 47.3, 1200.0])
def test_shot_is_poisson(rate):
    x = noisy("shot", np.full((N, 1), rate * 0.25, np.float32), factor=0.25).reshape(-1) * 4
    assert np.array_equal(x, np.rint(x))
    cut = stats.poisson.ppf(np.linspace(0, 1, 25)[1:-1], rate)
    edges = np.unique(np.concatenate([[-1], cut, [0], [1e9]]))
    chances = np.diff(stats.poisson.cdf(edges, rate))
    counts_fit(np.searchsorted(edges, x) - 1, {k: p for k, p in enumerate(chances) if p > 1e-9})


def test_normal_numbers_are_as_precise_as_float32():
    """From the least share to the largest, and on both sides of every change of formula."""
    rng = np.random.default_rng(1)
    edges = [0, 1, 2, 2**31, 2**32 - 128, 2**32 - 257, 2**32 - 300, 2**32 - 5000]
    edges += [int(2**k * 2**0.5) + d for k in (10, 20, 31) for d in (-200, 0, 200)]
    first = np.uint32([*edges, *rng.integers(0, 2**32, 100_000)])
    turns = [max(k * 2**29 + d, 0) % 2**32 for k in range(9) for d in (-1, 0, 1, 1000)]
    second = rng.integers(0, 2**32, len(first)).astype(np.uint32)
    second[-len(turns) :] = turns
    f = distributions._standard_normal()
    found = interp.evaluate(f.result, dict(zip(f.parameters, (first, second), strict=True)))
    share = ((first.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)).astype(np.float64)
    angle = second.astype(np.float64) * (np.pi * 2.0**-31)
    exact = np.sqrt(-2 * np.log(share)) * np.cos(angle)
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 1e-6
    near = np.abs(exact) > 1e-4  # NumPy's cosine of a rounded angle is not exact beside its zeros
    assert (np.abs(found - exact)[near] / np.abs(exact)[near]).max() < 3e-7
    assert not found[share == 1].any() and (share == 1).any()


def test_poisson_numbers_are_exact_to_two_in_a_million():
    """Total variation distance, from the words at which the result steps to the next number."""
    f = distributions._poisson()

    def number(rate, normal, share):
        return interp.evaluate(
            f.result, dict(zip(f.parameters, (rate, normal, share), strict=True))
        )

    def distance(rate, above):
        exact = stats.poisson.sf(np.arange(len(above)), rate)
        chances = [-np.diff(np.concatenate([[1.0], tail, [0.0]])) for tail in (above, exact)]
        return np.abs(chances[0] - chances[1]).sum() / 2

    few = np.float64([1e-9, 1e-4, 0.1, 1.0, 4.0, 7.5, 9.0, 9.999])
    goal = np.arange(36)
    low, high = np.zeros((len(few), 36)), np.full((len(few), 36), 2.0**32)
    for _ in range(33):  # the number falls with the word
        word = np.floor((low + high) / 2)
        share = (word.astype(np.uint32).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
        over = number(few[:, None] + 0 * share, 0 * share, share) > goal
        low, high = np.where(over, word, low), np.where(over, high, word)
    for rate, above in zip(few, high / 2.0**32, strict=True):
        assert distance(rate, above) < 2e-6, rate
        assert abs(above.sum() / rate - 1) < 2e-6 or rate < 1e-6, "the mean is kept"
    for rate in (10.0, 10.5, 12.0, 15.0, 21.0, 40.0, 100.0, 1e3, 1e4):
        goal = np.arange(int(rate + 8 * np.sqrt(rate)) + 3)
        goal = goal[goal > rate - 8 * np.sqrt(rate)]
        low, high = np.full(goal.shape, -7.0), np.full(goal.shape, 7.0)
        for _ in range(40):  # the number grows with w
            middle = ((low + high) / 2).astype(np.float32)
            over = number(np.full(goal.shape, rate), middle, 0 * middle) > goal
            low, high = np.where(over, low, middle), np.where(over, middle, high)
        exact, found = stats.poisson.sf(goal, rate), special.ndtr(-high)
        assert np.abs(np.diff(found) - np.diff(exact)).sum() / 2 < 2e-6, rate
        assert np.abs(found - exact).max() < 2e-6, rate


def test_salt_and_pepper_has_its_shares():
    x = np.full((N, 1), 7, np.uint8)
    counts_fit(noisy("salt_and_pepper", x).reshape(-1), {0: 0.025, 7: 0.95, 255: 0.025})
    y = noisy("salt_and_pepper", x, prob=0.3, salt_vs_pepper=0.2)
    counts_fit(y.reshape(-1), {0: 0.24, 7: 0.7, 255: 0.06})
    theirs = oracle("salt_and_pepper", x, prob=0.3, salt_vs_pepper=0.2)
    record_draws("noise.salt_and_pepper", y, theirs)
    same_moments(y, theirs)


def test_neighbours_samples_and_draws_are_independent():
    count = 20_000
    rng = seeded(2)
    rows = []
    for op in (NOISE["gaussian"], NOISE["shot"], NOISE["gaussian"]):
        x = np.hstack(arrays(op(ndd.batch([np.full((count, 1), 100, np.float32)] * 2), rng=rng))).T
        rows += [*x, *np.roll(x, 1, axis=1)]
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlations).max() < 5 / np.sqrt(count)


# -- batch_permutation -----------------------------------------------------------------------------


def orders(count, draws, lib=ndd, **flags):
    with lib.EvalMode.sync_cpu:
        rng = lib.random.RNG(3)
        made = (lib.batch_permutation(batch_size=count, rng=rng, **flags) for _ in range(draws))
        return Counter(tuple(int(np.array(i)) for i in x.tensors) for x in made)


@pytest.mark.parametrize(
    ("count", "possible", "flags"),
    [
        (4, 24, {}),
        (3, 27, {"allow_repetitions": True}),
        (4, 6, {"no_fixed_points": True}),
        (3, 8, {"no_fixed_points": True, "allow_repetitions": True}),
    ],
)
def test_permutations_are_equally_likely(count, possible, flags):
    """The orders are those that upstream makes; without fixed points they are single cycles."""
    mine, theirs = orders(count, 800, **flags), orders(count, 300, upstream, **flags)
    record_draws("batch_permutation", mine, theirs)
    assert set(mine) == set(theirs) and len(mine) == possible
    assert stats.chisquare(list(mine.values())).pvalue > LIMIT


def test_permutations():
    rng = seeded(5)
    order = ndd.batch_permutation(batch_size=1000, rng=rng)
    assert order.dtype == ndd.int32 and order.shape == [()] * 1000 and order.layout is None
    assert str(rng.state).endswith(":0000000000000001_3")
    places = [int(i) for i in order.tensors]
    assert sorted(places) == list(range(1000)) != places
    moved = ndd.batch_permutation(batch_size=1000, no_fixed_points=True, rng=rng)
    assert all(int(i) != k for k, i in enumerate(moved.tensors))
    for flags in ({}, {"no_fixed_points": True}, {"allow_repetitions": True}):
        assert [int(i) for i in ndd.batch_permutation(batch_size=1, **flags).tensors] == [0]
    x = ndd.batch([np.float32([k]) for k in range(5)])
    order = ndd.batch_permutation(batch_size=5, rng=seeded(1))
    mixed = ndd.permute_batch(x, indices=order)
    assert [float(a[0]) for a in arrays(mixed)] == [float(i) for i in arrays(order)]


# -- roi_random_crop -------------------------------------------------------------------------------


def starts(lib, count, **kwargs):
    """How often each start was drawn; lists are tensors upstream, where literals are special."""
    numbers = {k: lib.tensor(np.int32(v)) for k, v in kwargs.items()}
    with lib.EvalMode.sync_cpu:
        x = lib.roi_random_crop(batch_size=count, rng=lib.random.RNG(7), **numbers)
        assert str(x.dtype) == "i64" and x.layout is None
        return Counter(tuple(np.array(t).tolist()) for t in x.tensors)


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(crop_shape=[4], roi_start=[2], roi_end=[4], in_shape=[10]),  # around the region
        dict(crop_shape=[4], roi_start=[1], roi_end=[3]),  # may begin before 0
        dict(crop_shape=[4], roi_start=[1], roi_end=[3], in_shape=[10]),  # at the left border
        dict(crop_shape=[4], roi_start=[7], roi_shape=[2], in_shape=[10]),  # at the right one
        dict(crop_shape=[2, 4], roi_start=[3, 1], roi_end=[8, 4], in_shape=[10, 5]),  # inside
        dict(crop_shape=[5, 0], roi_start=[3, 3], roi_end=[8, 6]),  # exactly; nothing
        dict(crop_shape=[2, 2, 3], roi_start=[3, 3, 0], roi_shape=[0, 5, 3]),
    ],
)
def test_windows_around_a_region_are_distributed_as_upstream(kwargs):
    mine, theirs = (starts(lib, 2000, **kwargs) for lib in (ndd, upstream))
    record_draws("roi_random_crop", mine, theirs)
    assert set(mine) == set(theirs)
    if len(mine) > 1:
        table = np.array([[c[k] for k in sorted(mine)] for c in (mine, theirs)])
        assert stats.chi2_contingency(table).pvalue > LIMIT
        assert stats.chisquare(list(mine.values())).pvalue > LIMIT, "places are equally likely"


def test_windows_in_an_input():
    """The leading extents of the data bound the window; each sample has its own region."""
    x = ndd.batch([np.zeros((10, 12, 3), np.uint8), np.zeros((5, 6, 3), np.uint8)], layout="HWC")
    begin = ndd.batch([np.int32([8, 4]), np.int32([0, 5])])
    rng = seeded(1)
    for _ in range(20):
        start = ndd.roi_random_crop(
            x, crop_shape=[4, 3], roi_start=begin, roi_shape=[2, 1], rng=rng
        )
        (a, b), (c, d) = (s.tolist() for s in arrays(start))
        assert a == 6 and 2 <= b <= 4 and c == 0 and d == 3
    cut = ndd.slice(x, start=start, shape=[4, 3], axes=[0, 1])
    assert cut.shape == [(4, 3, 3)] * 2
    one = ndd.roi_random_crop(crop_shape=4, roi_start=5, roi_shape=2)
    assert one.shape == (1,) and isinstance(one, ndd.Tensor)
    same = [
        arrays(ndd.roi_random_crop(crop_shape=[2, 2], roi_start=[0, 0], roi_shape=[90, 90],
                                   rng=seeded(4), batch_size=n))[0].tolist()
        for n in (None, 1, 9)
    ]  # fmt: skip
    assert same[0] == same[1] == same[2]


# -- errors ----------------------------------------------------------------------------------------


def test_errors():
    noise, crop = ndd.noise, ndd.roi_random_crop
    x = ndd.zeros(shape=[4, 4, 3], dtype=ndd.uint8, layout="HWC")

    def refused(text, program, kind=ValueError):
        error_everywhere(kind, text, program)

    flags = ndd.zeros(shape=[4], dtype=ndd.bool)
    for op in (noise.gaussian, noise.shot, noise.salt_and_pepper):
        refused("element type bool is not supported", lambda op=op: op(flags), TypeError)
        refused("`rng` must be an ndd.random.RNG, got int", lambda op=op: op(x, rng=5), TypeError)
    refused("argument `stddev` must be a number or one number per sample, got shape (3,)",
            lambda: noise.gaussian(x, stddev=[1.0, 2.0, 3.0]))  # fmt: skip
    pepper = noise.salt_and_pepper
    refused("`prob` must lie in [0, 1], got 1.5 for sample 0", lambda: pepper(x, prob=1.5))
    two = ndd.batch(np.float32([0.5, -0.25]))
    refused("`salt_vs_pepper` must lie in [0, 1], got -0.25 for sample 1",
            lambda: pepper(x, salt_vs_pepper=two))  # fmt: skip
    refused("`prob` must lie in [0, 1], got nan", lambda: pepper(x, prob=float("nan")))
    refused("`batch_size` is required", lambda: ndd.batch_permutation())
    roi = dict(roi_start=[1, 1], roi_shape=[2, 2])
    refused("argument `crop_shape` is required", lambda: crop(**roi), TypeError)
    refused("argument `roi_start` is required",
            lambda: crop(crop_shape=[2], roi_shape=[2]), TypeError)  # fmt: skip
    refused("either `roi_end` or `roi_shape` must be given, and not both",
            lambda: crop(crop_shape=[2, 2], roi_start=[1, 1]))  # fmt: skip
    refused("either `roi_end` or `roi_shape` must be given, and not both",
            lambda: crop(crop_shape=[2, 2], roi_end=[3, 3], **roi))  # fmt: skip
    refused("`in_shape` and an input exclude each other",
            lambda: crop(x, crop_shape=[2, 2], in_shape=[4, 4], **roi))  # fmt: skip
    refused("`roi_start` must have 3 values, as many as `crop_shape`, got 2",
            lambda: crop(crop_shape=[2, 2, 2], **roi))  # fmt: skip
    refused("`crop_shape` has 4 values for a 3-D input",
            lambda: crop(x, crop_shape=[1] * 4, roi_start=[0] * 4, roi_shape=[1] * 4))  # fmt: skip
    refused("`crop_shape` must not be negative: crop_shape (2, -2) in sample 0",
            lambda: crop(crop_shape=[2, -2], **roi))  # fmt: skip
    refused("`roi_end` lies before `roi_start`: roi_start (5,), roi_end (3,) in sample 0",
            lambda: crop(crop_shape=[2], roi_start=[5], roi_end=[3]))  # fmt: skip
    refused("`crop_shape` is larger than the input: crop_shape (5, 2), in_shape (4, 4) in sample 0",
            lambda: crop(x, crop_shape=[5, 2], **roi))  # fmt: skip
    far = ndd.batch([np.int32([2]), np.int32([9])])
    refused("the region of interest leaves the input: roi_start (9,), roi_end (11,), "
            "in_shape (10,) in sample 1",
            lambda: crop(crop_shape=[2], roi_start=far, roi_shape=[2], in_shape=[10]))  # fmt: skip
    refused("`roi_start` must be 32-bit integers, got 4294967296",
            lambda: crop(crop_shape=[2], roi_start=[2**32], roi_shape=[2]))  # fmt: skip
