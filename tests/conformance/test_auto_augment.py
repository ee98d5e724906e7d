"""ndd.auto_augment: every augmentation beside upstream's, which exists in its pipelines only; choices and draws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import pipeline_def
from nvidia.dali.auto_aug import augmentations as upstream_augmentations
from nvidia.dali.auto_aug import auto_augment as upstream_auto
from nvidia.dali.auto_aug import core, rand_augment, trivial_augment

import ndd
from ndd.fusion.plan.planner import PLANNER
from ndd.ops.augment import automatic, policies
from ndd.ops.augment.policies import Use
from tests.conformance.oracle import record

BINS = 31
# Warps at round angles hit ties, which fall differently in the last bit (docs/numerics.md), and
# upstream sums up the sharpening window in another order.
OFF_BY_ONE = {"shear_x": 2e-3, "shear_y": 2e-3, "rotate": 2e-4, "sharpness": 2e-4}
_noise = np.random.default_rng(5)


def picture(height, width):
    rows, columns, channels = np.mgrid[0:height, 0:width, 0:3]
    waves = np.sin(rows / 5 + channels) + np.cos(columns / 7)
    return np.uint8(np.clip(110 + 50 * waves + _noise.normal(0, 20, waves.shape), 0, 255))


IMAGES = [
    picture(37, 53), picture(20, 31), np.full((9, 8, 3), 77, np.uint8), picture(1, 1),
    _noise.integers(0, 2, (5, 4, 3), np.uint8),
]  # fmt: skip
VIDEOS = [np.stack([picture(12, 17) for _ in range(2)]), picture(9, 8)[None]]


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """Upstream uses a deprecated name of its own."""


def upstream(suite, samples, bin, bins, **options):
    """Results of all augmentations of a suite: name → (not negated, negated) → samples."""
    layout = "HWC" if samples[0].ndim == 3 else "FHWC"

    @pipeline_def(batch_size=len(samples), num_threads=1, device_id=None, enable_conditionals=True)
    def pipeline():
        x = fn.external_source(lambda: samples, layout=layout)
        outputs = []
        for augmentation in suite:
            for sign in (0, 1):
                signs = fn.external_source([[np.int32(sign)] * len(samples)], cycle=True)
                number = core.signed_bin(bin, random_sign=signs)
                if augmentation.mag_range is None:
                    number = None
                outputs.append(
                    augmentation(x, magnitude_bin=number, num_magnitude_bins=bins, **options)
                )
        return tuple(outputs)

    outputs = pipeline().run()
    made = [[np.array(o.at(s)) for s in range(len(samples))] for o in outputs]
    return {a.name: made[2 * k : 2 * k + 2] for k, a in enumerate(suite)}


def arrays(batch):
    return [np.array(t) for t in batch.tensors]


def compare(op, name, got, candidates):
    """Each sample of a result equals that of one of the candidates."""
    share = OFF_BY_ONE.get(name, 0.0)
    for s, mine in enumerate(got):
        errors = [np.abs(mine.astype(int) - c[s]) for c in candidates]
        best = min(range(len(errors)), key=lambda k: errors[k].sum())
        record(f"auto_augment.{op} ({name})", [mine], [candidates[best][s]])
        assert errors[best].max() <= (share > 0), f"{name}, sample {s}"
        assert (errors[best] > 0).mean() <= share, (
            f"{name}, sample {s}: {(errors[best] > 0).mean()}"
        )


def others(suite, name):
    return [n for n in suite if n != name]


@pytest.mark.parametrize(
    "bin, monotonic, options",
    [(0, True, {}), (17, True, {"fill_value": None}), (30, False, {"fill_value": 7})],
)
def test_rand_augment_equals_upstream(bin, monotonic, options):
    made = "get_rand_augment_suite" if monotonic else "get_rand_augment_non_monotonic_suite"
    own = policies.RAND if monotonic else policies.RAND_NON_MONOTONIC
    suite = getattr(rand_augment, made)()
    assert [a.name for a in suite] == list(own)
    batch = ndd.batch(IMAGES, layout="HWC")
    for name, candidates in upstream(suite, IMAGES, bin, BINS, **options).items():
        y = ndd.auto_augment.rand_augment(
            batch, 1, bin, monotonic_mag=monotonic, excluded=others(own, name),
            rng=ndd.random.RNG(seed=bin), **options,
        )  # fmt: skip
        compare("rand_augment", name, arrays(y), candidates)


def test_trivial_augment_equals_upstream():
    suite = trivial_augment.get_trivial_augment_wide_suite(use_shape=True)
    shape = (37, 53)
    ends = [upstream(suite, VIDEOS, bin, 2, shape=shape) for bin in (0, 1)]
    assert [a.name for a in suite] == list(policies.TRIVIAL_WIDE)
    batch = ndd.batch(VIDEOS, layout="FHWC")
    for name in policies.TRIVIAL_WIDE:
        y = ndd.auto_augment.trivial_augment(
            batch, num_magnitude_bins=2, shape=shape, excluded=others(policies.TRIVIAL_WIDE, name),
            rng=ndd.random.RNG(seed=3),
        )  # fmt: skip
        compare("trivial_augment", name, arrays(y), ends[0][name] + ends[1][name])


def test_auto_augment_equals_upstream(monkeypatch):
    suite = [upstream_augmentations.invert, upstream_augmentations.solarize_add]
    batch = ndd.batch(IMAGES, layout="HWC")
    for name, candidates in upstream(suite, IMAGES, 7, 11).items():
        monkeypatch.setitem(automatic.POLICIES, "svhn", ((Use(name, 1.0, 7),),))
        y = ndd.auto_augment.auto_augment(batch, "svhn")
        compare("auto_augment", name, arrays(y), candidates)


@pytest.mark.parametrize("name", policies.POLICIES)
def test_policies_are_upstreams(name):
    theirs = getattr(upstream_auto, f"get_{name}_policy")()
    assert theirs.num_magnitude_bins == policies.POLICY_BINS
    ours = policies.POLICIES[name]
    assert [[(u.name, u.probability) for u in s] for s in ours] == [
        [(a.name, p) for a, p, _ in s] for s in theirs.sub_policies
    ]
    for mine, other in zip(ours, theirs.sub_policies, strict=True):
        for use, (a, _, bin) in zip(mine, other, strict=True):
            assert use.bin == (bin or 0)
            own = policies.AUTO[use.name]
            if a.mag_range is not None and use.name not in policies.TRANSLATIONS:
                assert (own.first, own.last, own.is_signed) == (*a.mag_range, a.randomly_negate)


# -- choices ---------------------------------------------------------------------------------------

COUNT = 4000


@pytest.fixture
def choices(monkeypatch):
    """Records what is chosen, instead of doing it: (names, parameters) of every step."""
    seen = []

    def augmented(op, x, suite, chosen, parameters, options):
        seen.append(([suite[k] for k in chosen], parameters))
        return x

    monkeypatch.setattr(automatic, "augmented", augmented)
    return seen


def pixels():
    return ndd.zeros(shape=[1, 1, 3], dtype=ndd.uint8, layout="HWC", batch_size=COUNT)


def assert_shares(names, shares):
    """The names are drawn with these probabilities."""
    found = Counter(names)
    assert set(found) <= set(shares)
    chi2 = sum((found[n] - COUNT * p) ** 2 / (COUNT * p) for n, p in shares.items())
    assert chi2 < len(shares) + 6 * np.sqrt(2 * len(shares)), found


def test_draws_of_rand_augment(choices):
    ndd.auto_augment.rand_augment(pixels(), 3, 15, rng=ndd.random.RNG(seed=1))
    assert len(choices) == 3
    for names, parameters in choices:
        assert_shares(names, dict.fromkeys(policies.RAND, 1 / 14))
        angles = parameters[np.array(names) == "rotate"]
        assert set(angles) == {15.0, -15.0} and abs((angles > 0).mean() - 0.5) < 0.15
        shifts = parameters[np.array(names) == "translate_x"]
        assert set(shifts) == {50.0, -50.0}
    assert choices[0][0] != choices[1][0]
    both = Counter(zip(choices[0][0], choices[1][0], strict=True))
    assert len(both) == 14 * 14  # steps are independent


def test_draws_of_trivial_augment(choices):
    ndd.auto_augment.trivial_augment(
        pixels(), num_magnitude_bins=5, excluded=["identity"], rng=ndd.random.RNG(seed=2)
    )
    [(names, parameters)] = choices
    assert_shares(names, dict.fromkeys(others(policies.TRIVIAL_WIDE, "identity"), 1 / 13))
    angles = parameters[np.array(names) == "rotate"]
    assert set(np.abs(angles)) == {0.0, 33.75, 67.5, 101.25, 135.0}
    assert abs((np.abs(angles) == 135).mean() - 0.2) < 0.1


def test_draws_of_auto_augment(choices):
    ndd.auto_augment.auto_augment(pixels(), "reduced_image_net", rng=ndd.random.RNG(seed=3))
    assert len(choices) == 2
    for k, (names, _) in enumerate(choices):
        shares = Counter()
        for sub in policies.POLICIES["reduced_image_net"]:
            use = sub[k] if k < len(sub) else Use("identity", 1.0)
            shares[use.name] += use.probability / 25
            shares["identity"] += (1 - use.probability) / 25
        assert_shares(names, {n: p for n, p in shares.items() if p > 1e-9})


def test_translations_are_limited_by_arguments(choices):
    """Limits are (height, width); relative ones belong to a shape, also one per sample."""
    one = others(policies.RAND, "translate_x")
    shapes = ndd.batch([np.int32([10 + s, 20 + s]) for s in range(COUNT)])
    for options, wanted in (
        ({"max_translate_abs": [7, 9]}, np.full(COUNT, 9.0)),
        ({"shape": [10, 40], "max_translate_rel": 0.25}, np.full(COUNT, 10.0)),
        ({"shape": shapes, "max_translate_rel": [1, 0.5]}, (20 + np.arange(COUNT)) / 2),
    ):
        ndd.auto_augment.rand_augment(pixels(), 1, 30, excluded=one, **options)
        np.testing.assert_allclose(np.abs(choices[-1][1]), wanted)


# -- programs --------------------------------------------------------------------------------------


def test_all_modes_and_batch_sizes_give_the_same():
    """A sample's result depends only on the generator and its number in the batch."""
    images = IMAGES * 3
    results = []
    for mode in ("deferred", "eager", "sync_cpu"):
        with getattr(ndd.EvalMode, mode):
            rng = ndd.random.RNG(seed=4)
            x = ndd.batch(images, layout="HWC")
            results.append(arrays(ndd.auto_augment.rand_augment(x, 2, 20, rng=rng)))
    first = ndd.auto_augment.rand_augment(
        ndd.tensor(images[0], layout="HWC"), 2, 20, rng=ndd.random.RNG(seed=4)
    )
    results.append([np.array(first)])
    for other in results[1:]:
        for mine, reference in zip(other, results[0], strict=False):
            np.testing.assert_array_equal(mine, reference)
    assert sum(not np.array_equal(a, b) for a, b in zip(images, results[0], strict=True)) > 5


def test_what_is_chosen_does_not_change_the_plan():
    x = ndd.batch([picture(12, 16) for _ in range(6)], layout="HWC")
    rng = ndd.random.RNG(seed=5)

    def run():
        with ndd.EvalMode.deferred:
            ndd.auto_augment.trivial_augment(x, rng=rng).evaluate()

    run()
    before = PLANNER.count
    for _ in range(12):
        run()
    assert PLANNER.count - before <= 1  # means of one image and of several are two programs


def test_arguments_of_the_wrong_kind():
    x = ndd.zeros(shape=[4, 4, 3], dtype=ndd.uint8, layout="HWC")
    rand = ndd.auto_augment.rand_augment
    for call, text in (
        (lambda: rand(x, 2, 31), r"`m` must lie in \[0, 30\].*got 31"),
        (lambda: rand(x, -1, 3), "`n` must not be negative, got -1"),
        (lambda: rand(x, 1, 3, excluded="rotat"), "`excluded` must be names of .*got 'rotat'"),
        (lambda: rand(x, 1, 3, excluded=list(policies.RAND)), "`excluded` leaves no augmentation"),
        (lambda: rand(x, 1, 3, max_translate_rel=0.5), "`max_translate_rel` needs `shape`"),
        (lambda: rand(x, 1, 3, shape=[4, 4], max_translate_abs=5), "exclude each other"),
        (lambda: rand(x, 1, 3, shape=[4]), r"`shape` must have 2 values \(height, width\), got 1"),
        (lambda: rand(x, 1, 3, interp_type="INTERP_CUBIC"), "`interp_type` must be one of"),
        (lambda: ndd.auto_augment.auto_augment(x, "cifar"), "`policy_name` must be one of"),
        (lambda: rand(ndd.cast(x, dtype=ndd.float32), 1, 3), "must have element type uint8"),
        (lambda: rand(np.zeros((4, 4, 1), np.uint8), 1, 3), "must have 3 channels"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            call()
