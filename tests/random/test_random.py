"""Random numbers: Philox, generators, distributions, windows; the same in all modes and on all devices."""

from __future__ import annotations

import doctest
import json
import threading
from collections import Counter

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest
from scipy import stats

import ndd
from ndd.core import convert
from ndd.core.call import wrap
from ndd.fusion.graph import build
from ndd.fusion.graph.shapes import Shapes
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir import interpreter as interp
from ndd.kernels.ir import philox
from ndd.ops.geometry.window import on_device
from ndd.ops.random.crop import crop_windows, largest_window
from ndd.runtime.rng import State
from tests.conformance.modes import error_everywhere, same_everywhere
from tests.conformance.oracle import record, record_draws
from tests.helpers import arrays, kernels, nothing_compiled

# -- Philox --------------------------------------------------------------------------------------

# counter, key, result: the known answers of Random123 (kat_vectors, philox4x32 10)
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    assert philox.block(counter, key) == result
    assert tuple(int(w) for w in philox.blocks(counter, key)) == result


def in_kernel(rows, device=None):
    """The four words of counters and keys [n, 6], computed by a generated kernel."""

    def body(x):
        words = [ex.at_axis(x, -1, k) for k in range(6)]
        made = philox.philox(words[:4], words[4:])
        result = made[0]
        for k in (1, 2, 3):
            result = ex.select(ex.eq(ex.index(-1), k), made[k], result)
        return result

    x = on_device(convert.copy_arrays([rows], dt.uint32, None, False), device)
    shapes = Shapes(np.array([[len(rows), 4]]))
    node = build.pointwise("philox", body, [x], [(0, 1)], shapes, None)
    (result,) = arrays(wrap(node))
    return result


def test_kernels_draw_the_same_bits(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    rows = np.random.default_rng(0).integers(0, 2**32, (200, 6), np.uint32)
    rows[: len(KNOWN)] = [(*c, *k) for c, k, _ in KNOWN]
    want = np.array([philox.block(r[:4], r[4:]) for r in rows.tolist()], np.uint32)
    assert tuple(want[2]) == KNOWN[2][2]
    leaves = [ex.body_input(k, dt.uint32) for k in range(6)]
    env = {leaf: rows[:, k] for k, leaf in enumerate(leaves)}
    numpy = interp.evaluate_all(philox.philox(leaves[:4], leaves[4:]), env)
    assert np.array_equal(np.stack(numpy, axis=1), want)
    assert np.array_equal(in_kernel(rows), want)
    assert np.array_equal(in_kernel(rows, 0), want)
    counters, key = rows[:, :4].T, rows[0, 4:].tolist()
    vectors = np.stack(philox.blocks(list(counters), key), axis=1)
    assert vectors.tolist() == [list(philox.block(c, key)) for c in rows[:, :4].tolist()]


# -- generators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 5, -1, 2**64 + 3])
def test_generator_gives_the_words_of_the_oracle(seed):
    ours, theirs = ndd.random.RNG(seed), upstream.random.RNG(seed)
    assert [ours() for _ in range(11)] == [theirs() for _ in range(11)]
    assert repr(ours) == repr(theirs) and str(ours.state) == str(theirs.state)
    for rng in (ours, theirs):
        rng.advance(2**40 + 3)
    assert str(ours.get_state()) == str(theirs.get_state()) and ours() == theirs()
    ours.seed = theirs.seed = 99
    assert ours() == theirs()
    ours.set_state(theirs.get_state())  # a state of upstream
    assert ours() == theirs()


def test_states():
    rng = ndd.random.RNG(seed=5)
    rng.advance(6)
    state = rng.get_state()
    text = json.loads(json.dumps(str(state)))
    want = [rng() for _ in range(9)]
    for again in (ndd.random.RNG(state=state), ndd.random.RNG(state=text)):
        assert [again() for _ in range(9)] == want
    rng.state = text
    copy = rng.clone()
    assert [rng() for _ in range(9)] == want
    assert [copy() for _ in range(9)] == want, "a clone is a generator of its own"
    carried = ndd.random.RNG(state="Philox_0000000000000007_0000000000000002:FFFFFFFFFFFFFFFF_3")
    theirs = upstream.random.RNG(state=str(carried.state))
    assert [carried() for _ in range(3)] == [theirs() for _ in range(3)]
    assert str(carried.state) == str(theirs.state)


@pytest.mark.parametrize("start", [0, 5, 4 * 2**32 - 301, 2**130 - 900])
def test_words_are_those_of_the_position(start):
    """Also those that a busy generator computes ahead, and across every carry of the counter."""
    rng = ndd.random.RNG(state=State(77, start))
    for k in range(300):
        alone = ndd.random.RNG(state=State(77, (start + 7 * k) % 2**130))
        assert rng.state == alone.state and rng._draw() == alone._draw()
    rng.seed = 78
    assert rng() == ndd.random.RNG(78)()
    for _ in range(20):
        rng()
    rng.advance(1000)
    assert rng() == ndd.random.RNG(state=State(78, 1021))()


def test_generators_without_a_seed_differ():
    assert ndd.random.RNG()() != ndd.random.RNG()()


def test_wrong_seeds_and_states():
    rng = ndd.random.RNG(1)
    with pytest.raises(AttributeError, match="seed is write-only"):
        _ = rng.seed
    with pytest.raises(ValueError, match="`seed` and `state` exclude each other"):
        ndd.random.RNG(1, rng.state)
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        ndd.random.RNG(1.5)
    with pytest.raises(ValueError, match="cannot advance by a negative number, got -1"):
        rng.advance(-1)
    for text in ("", "abc", str(rng.state)[:-1], str(rng.state)[:-1] + "4", "x" + str(rng.state)):
        with pytest.raises(ValueError, match="not the state of a generator"):
            rng.set_state(text)
    with pytest.raises(TypeError, match="a state or its text is needed, got int"):
        rng.set_state(5)
    assert rng() == ndd.random.RNG(1)(), "what failed changed nothing"


def test_default_generator_belongs_to_the_thread():
    found = {}

    def work(name, seed):
        ndd.random.set_seed(seed)
        rng = ndd.random.get_default_rng()
        assert rng is ndd.random.get_default_rng()
        found[name] = rng, [rng() for _ in range(5)]

    ndd.random.set_seed(1)
    mine = ndd.random.get_default_rng().clone()
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        thread = threading.Thread(target=work, args=(name, seed))
        thread.start()
        thread.join()
    assert len({id(rng) for rng, _ in found.values()} | {id(ndd.random.get_default_rng())}) == 4
    assert found["a"][1] == found["c"][1] != found["b"][1]
    assert ndd.random.get_default_rng()() == mine(), "other threads do not move this one"


def test_threads_share_a_generator_without_drawing_twice():
    rng = ndd.random.RNG(3)
    words = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda w=w: w.extend(rng() for _ in range(500))) for w in words
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    again = ndd.random.RNG(3)
    assert sorted(w for part in words for w in part) == sorted(again() for _ in range(2000))


# -- ops: what a draw depends on -----------------------------------------------------------------

OPS = {
    "uniform": lambda **k: ndd.random.uniform(**k),
    "normal": lambda **k: ndd.random.normal(**k),
    "coin_flip": lambda **k: ndd.random.coin_flip(**k),
    "choice": lambda **k: ndd.random.choice(1000, **k),
    "beta": lambda **k: ndd.random.beta(alpha=0.7, beta=2.0, **k),
    "values": lambda **k: ndd.random.uniform(values=[1.0, 5.0, 7.0], **k),
    "weighted": lambda **k: ndd.random.choice([1.5, 2.5, 7.5], p=[0.2, 0.3, 0.5], **k),
}


@pytest.mark.parametrize("name", OPS)
def test_draws_are_a_function_of_seed_draw_sample_and_element(name):
    op = OPS[name]
    rng = ndd.random.RNG(11)
    first = arrays(op(shape=[40], batch_size=3, rng=rng))
    assert (
        str(rng.state) == "Philox_000000000000000B_0000000000000000:0000000000000001_3"
    )  # 7 words
    second = arrays(op(shape=[40], batch_size=3, rng=rng))
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0], first[1])
    (alone,) = arrays(op(shape=[40], rng=ndd.random.RNG(11)))
    assert alone.tobytes() == first[0].tobytes(), "a tensor is like sample 0 of a batch"
    more = arrays(op(shape=[40], batch_size=7, rng=ndd.random.RNG(11)))
    assert [a.tobytes() for a in more[:3]] == [a.tobytes() for a in first]
    (longer,) = arrays(op(shape=[4, 15], rng=ndd.random.RNG(11)))
    assert longer.reshape(-1)[:40].tobytes() == alone.tobytes()


def test_default_generator_is_used():
    def program():
        return ndd.random.uniform(shape=[5]), ndd.random.normal(shape=[5])

    ndd.random.set_seed(4)
    first = [arrays(x)[0] for x in program()]
    ndd.random.set_seed(4)
    assert all(np.array_equal(a, arrays(b)[0]) for a, b in zip(first, program(), strict=True))
    rng = ndd.random.RNG(4)
    assert np.array_equal(arrays(ndd.random.uniform(shape=[5], rng=rng))[0], first[0])


def test_modes_and_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")

    def program(device=None):
        rng = ndd.random.RNG(21)
        like = ndd.batch([np.zeros((3, 5), np.uint8), np.zeros((2, 2), np.uint8)], device=device)
        numbers = [
            ndd.random.uniform(like, rng=rng),
            ndd.random.uniform(shape=[9], range=[0, 200], dtype=ndd.uint8, rng=rng, device=device),
            ndd.random.normal(like, mean=ndd.batch([1.0, -50.0]), rng=rng),
            ndd.random.normal(shape=[9], dtype=ndd.float64, rng=rng, device=device),
            ndd.random.coin_flip(like, rng=rng, dtype=ndd.bool),
            ndd.random.choice(like, shape=[4], rng=rng),
            ndd.random.choice(5, p=[0.1, 0.2, 0.0, 0.3, 0.4], shape=[9], rng=rng, device=device),
            ndd.random.beta(like, rng=rng),
        ]
        return [*numbers, numbers[0] * numbers[2]]

    same_everywhere(program)
    for k, (ours, theirs) in enumerate(zip(program(), program("gpu"), strict=True)):
        assert theirs.device.device_type == "gpu", k
        for a, b in zip(arrays(ours), arrays(theirs), strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes(), k


def test_generators_fuse():
    """Noise is added in the kernel that needs it; a new draw compiles nothing."""
    x = ndd.batch([np.zeros((6, 5, 3), np.float32), np.ones((4, 4, 3), np.float32)], layout="HWC")
    with ndd.EvalMode.deferred:
        rng = ndd.random.RNG(1)
        noisy = ndd.flip(x + ndd.random.normal(x, rng=rng) * 0.5)
        assert kernels(noisy) == 1
        got = arrays(noisy)
        with nothing_compiled():
            arrays(ndd.flip(x + ndd.random.normal(x, rng=rng) * 0.5))
    noise = arrays(ndd.random.normal(x, rng=ndd.random.RNG(1)))
    for a, b, n in zip(got, arrays(x), noise, strict=True):
        assert np.array_equal(a, (b + n * np.float32(0.5))[:, ::-1])


# -- distributions: fixed seeds, so that nothing can fail by chance --------------------------------

N = 100_000
LIMIT = 1e-3  # p-value


def drawn(op, seed=1, **kwargs):
    return arrays(op(shape=[N], rng=ndd.random.RNG(seed), **kwargs))[0]


def counts_fit(values, expected):
    """χ²: `expected` maps every possible value to its probability."""
    found = Counter(values.tolist())
    assert set(found) <= set(expected)
    have = [found[v] for v in expected]
    assert stats.chisquare(have, [p * len(values) for p in expected.values()]).pvalue > LIMIT


def test_uniform_numbers():
    for dtype in (ndd.float32, ndd.float64):
        x = drawn(ndd.random.uniform, range=[2.0, 5.0], dtype=dtype)
        assert stats.kstest(x, "uniform", (2.0, 3.0)).pvalue > LIMIT
        assert x.min() >= 2.0 and x.max() < 5.0
    edge = drawn(ndd.random.uniform, range=[1.0, 1.0000001])
    assert set(edge.tolist()) == {1.0}, "the end of the range is not drawn"
    halves = {0: 1 / 6, 1: 1 / 3, 2: 1 / 3, 3: 1 / 6}  # rounded, as upstream
    counts_fit(drawn(ndd.random.uniform, range=[0.0, 3.0], dtype=ndd.int32), halves)
    counts_fit(
        drawn(ndd.random.uniform, values=[1.0, 5.0, 7.5]), dict.fromkeys((1.0, 5.0, 7.5), 1 / 3)
    )
    big = drawn(ndd.random.uniform, range=[0.0, 2.0**40], dtype=ndd.int64)
    assert stats.kstest(big / 2.0**40, "uniform").pvalue > LIMIT and len(np.unique(big)) == N


def test_normal_numbers():
    for dtype in (ndd.float32, ndd.float64):
        x = drawn(ndd.random.normal, mean=3.0, stddev=0.5, dtype=dtype)
        assert stats.kstest(x, "norm", (3.0, 0.5)).pvalue > LIMIT
        assert stats.kurtosistest(x).pvalue > LIMIT and stats.skewtest(x).pvalue > LIMIT
    whole = drawn(ndd.random.normal, stddev=2.0, dtype=ndd.int8)
    edges = np.concatenate([[-np.inf], np.arange(-5.5, 6), [np.inf]])
    bins = np.digitize(whole, edges) - 1
    counts_fit(bins, dict(enumerate(np.diff(stats.norm.cdf(edges, 0, 2.0)).tolist())))


def test_coins_choices_and_beta():
    counts_fit(drawn(ndd.random.coin_flip, probability=0.3), {0: 0.7, 1: 0.3})
    assert set(drawn(ndd.random.coin_flip, probability=1.0).tolist()) == {1}
    assert set(drawn(ndd.random.coin_flip, probability=0.0).tolist()) == {0}

    def choose(a, **kwargs):
        return lambda **k: ndd.random.choice(a, **kwargs, **k)

    counts_fit(drawn(choose(7)), dict.fromkeys(range(7), 1 / 7))
    weights = [0.0, 0.15, 0.2, 0.0, 0.05, 0.6, 0.0]
    possible = {k: p for k, p in enumerate(weights) if p}
    counts_fit(drawn(choose(7, p=weights)), possible)
    counts_fit(drawn(choose([2.5, -1.0], p=[0.25, 0.75])), {2.5: 0.25, -1.0: 0.75})
    many = np.random.default_rng(0).dirichlet(np.ones(100))
    counts_fit(drawn(choose(100, p=many.astype(np.float32))), dict(enumerate(many.tolist())))
    for a, b in ((2.0, 3.0), (0.3, 0.6), (1.0, 1.0), (50.0, 0.5)):
        x = drawn(ndd.random.beta, alpha=a, beta=b, dtype=ndd.float64)
        assert stats.kstest(x, "beta", (a, b)).pvalue > LIMIT, (a, b)


@pytest.mark.parametrize("count", [2**31, 2**32 - 1, 2**32, 3 * 2**40 + 1, 2**63 - 1])
def test_choices_of_many_numbers(count):
    """Evenly spread over all numbers, up to the last one; the low bits are random as well."""
    kind = np.uint32 if count < 2**32 else np.int64
    x = drawn(lambda **k: ndd.random.choice(ndd.tensor(kind(count)), **k))
    assert x.dtype == kind and x.min() >= 0 and int(x.max()) < count
    assert stats.kstest(x / float(count), "uniform").pvalue > LIMIT
    counts_fit(x % 8, dict.fromkeys(range(8), 1 / 8))


def test_choices_of_different_numbers_of_many():
    numbers = ndd.batch([np.int64(3), np.int64(2**40)])
    small, large = arrays(ndd.random.choice(numbers, shape=[2000], rng=ndd.random.RNG(1)))
    counts_fit(small, dict.fromkeys(range(3), 1 / 3))
    assert large.max() > 2**39 and large.min() >= 0


def test_choices_of_many_elements():
    """More elements than 32-bit positions reach; only the pages that are touched take memory."""
    values = np.zeros(2**31 + 2**20, np.uint8)
    values[2**31 :] = 1
    x = np.asarray(ndd.random.choice(ndd.as_tensor(values), shape=[40_000], rng=ndd.random.RNG(2)))
    assert 0 < x.sum() < 100  # 20 are expected beyond 2³¹
    rows = values.reshape(-1, 1024)
    y = np.asarray(ndd.random.choice(ndd.as_tensor(rows), shape=[40], rng=ndd.random.RNG(2)))
    assert y.shape == (40, 1024)


def test_too_many_to_choose_from():
    with pytest.raises(ValueError, match="at most 2⁶³ - 1 numbers can be chosen from, got 9223372"):
        ndd.random.choice(ndd.tensor(np.uint64(2**63)))


def test_neighbours_samples_and_draws_are_independent():
    rng = ndd.random.RNG(2)
    x = np.stack(arrays(ndd.random.normal(shape=[20_000], batch_size=4, rng=rng)))
    y = np.stack(arrays(ndd.random.normal(shape=[20_000], batch_size=4, rng=rng)))
    rows = [*x, *y, *np.roll(x, 1, axis=1), *np.roll(x, 7, axis=1)]
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


@pytest.mark.parametrize(
    ("op", "kwargs"),
    [
        ("uniform", {}),
        ("uniform", {"range": [-3.0, 8.0]}),
        ("normal", {"mean": 2.0, "stddev": 3.0}),
        ("coin_flip", {"probability": 0.8}),
        ("beta", {"alpha": 2.0, "beta": 3.0}),
        ("beta", {"alpha": 0.4, "beta": 0.4}),
    ],
)
def test_moments_of_the_oracle(op, kwargs):
    mine = drawn(getattr(ndd.random, op), **kwargs)
    numbers = {k: upstream.tensor(np.float32(v)) for k, v in kwargs.items()}
    with upstream.EvalMode.sync_cpu:
        made = getattr(upstream.random, op)(shape=[100_000], rng=upstream.random.RNG(1), **numbers)
    theirs = np.array(made)
    record_draws(f"random.{op}", mine, theirs)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    for power in (1, 2, 3):
        a, b = mine.astype(float) ** power, theirs.astype(float) ** power
        error = np.sqrt((a.var() + b.var()) / N)
        assert abs(a.mean() - b.mean()) < 4 * error, power


@pytest.mark.parametrize("weights", [None, [0.1, 0.0, 0.2, 0.7]])
def test_odds_of_the_oracle(weights):
    """Rows are chosen as often as upstream chooses them."""
    rows = np.float32([3, -1, 2, 9])
    chosen = []
    for lib in (ndd, upstream):
        p = {} if weights is None else {"p": lib.tensor(np.float32(weights))}
        with lib.EvalMode.sync_cpu:
            made = lib.random.choice(lib.tensor(rows), shape=[20_000], rng=lib.random.RNG(5), **p)
        chosen.append(Counter(np.array(made).tolist()))
    record_draws("random.choice", *chosen)
    assert set(chosen[0]) == set(chosen[1])
    table = np.array([[c[k] for k in sorted(chosen[0])] for c in chosen])
    assert stats.chi2_contingency(table).pvalue > LIMIT


# -- shapes, types, errors -------------------------------------------------------------------------


def test_shapes_types_and_layouts():
    r, u = ndd.random, upstream.random
    rows = np.arange(6).reshape(3, 2)
    cases = [
        lambda lib, m, like, table: m.uniform(),
        lambda lib, m, like, table: m.uniform(batch_size=2),
        lambda lib, m, like, table: m.uniform(shape=[2, 1]),
        lambda lib, m, like, table: m.uniform(shape=3),
        lambda lib, m, like, table: m.uniform(like),
        lambda lib, m, like, table: m.normal(like, dtype=lib.int16),
        lambda lib, m, like, table: m.coin_flip(like, dtype=lib.bool),
        lambda lib, m, like, table: m.beta(like),
        lambda lib, m, like, table: m.choice(5),
        lambda lib, m, like, table: m.choice(5, like),
        lambda lib, m, like, table: m.choice(table),
        lambda lib, m, like, table: m.choice(table, shape=[4]),
        lambda lib, m, like, table: m.choice(table, shape=[4, 1]),
        lambda lib, m, like, table: m.uniform(shape=lib.batch([np.int32([2]), np.int32([5])])),
    ]
    for k, case in enumerate(cases):
        seen = []
        for lib, m in ((ndd, r), (upstream, u)):
            like = lib.tensor(np.zeros((2, 3), np.uint8), layout="HW")
            x = case(lib, m, like, lib.tensor(rows, layout="AB"))
            seen.append((x.shape, str(x.dtype), x.layout or None))
        assert seen[0] == seen[1], k


def test_choice_of_rows_in_ragged_batches():
    a = ndd.batch([np.arange(6.0).reshape(3, 2), np.arange(100.0, 104.0).reshape(1, 4)])
    x, y = arrays(ndd.random.choice(a, shape=[50], rng=ndd.random.RNG(0)))
    assert {tuple(v) for v in x.tolist()} == {(0, 1), (2, 3), (4, 5)}
    assert {tuple(v) for v in y.tolist()} == {(100, 101, 102, 103)}
    p = ndd.batch([np.float32([0, 1, 0]), np.float32([1])])
    x, y = arrays(ndd.random.choice(a, p=p, shape=[5], rng=ndd.random.RNG(0)))
    assert x.tolist() == [[2, 3]] * 5 and len(y) == 5


def test_arguments_per_sample():
    rng = ndd.random.RNG(0)
    ranges = ndd.batch([np.float32([0, 1]), np.float32([10, 20])])
    x, y = arrays(ndd.random.uniform(range=ranges, shape=[100], rng=rng))
    assert x.min() >= 0 and x.max() < 1 and y.min() >= 10 and y.max() < 20 and y.max() > 15
    values = ndd.batch([np.float32([1, 2, 3]), np.float32([7])])
    x, y = arrays(ndd.random.uniform(values=values, shape=[100], rng=rng))
    assert set(x) == {1, 2, 3} and set(y) == {7}
    x, y = arrays(ndd.random.coin_flip(probability=ndd.batch([0.0, 1.0]), shape=[9], rng=rng))
    assert not x.any() and y.all()


def test_errors():
    r = ndd.random

    def refused(text, program, kind=ValueError):
        error_everywhere(kind, text, program)

    refused(
        "argument `rng` must be an ndd.random.RNG, got int", lambda: r.uniform(rng=5), TypeError
    )
    refused("`range` must grow and be finite, got [2.0, 1.0] for sample 0",
            lambda: r.uniform(range=[2.0, 1.0]))  # fmt: skip
    refused("`range` must grow and be finite", lambda: r.uniform(range=[0.0, float("inf")]))
    refused("`range` must have 2 values (start, end), got 1", lambda: r.uniform(range=[1.0]))
    refused("`values` is empty", lambda: r.uniform(values=[]))
    refused("`shape` must not be negative, got (-2,)", lambda: r.normal(shape=[-2]))
    refused("`shape` and `shape_like` exclude each other", lambda: r.normal([1.0], shape=[2]))
    refused("`dtype` must be one of", lambda: r.uniform(dtype=ndd.bool), TypeError)
    refused("`dtype` must be one of f32, f64, got i32", lambda: r.beta(dtype=ndd.int32), TypeError)
    refused("`alpha` must be positive, got 0 for sample 0", lambda: r.beta(alpha=0.0))
    refused("something to choose from, got 0 in sample 0", lambda: r.choice(0))
    refused("must be an integer, got f32", lambda: r.choice(2.5), TypeError)
    refused("`p` has 2 values for 3 rows in sample 0", lambda: r.choice(3, p=[0.5, 0.5]))
    refused("with the sum 1, got [0.5, 0.25] in sample 0", lambda: r.choice(2, p=[0.5, 0.25]))
    refused("with the sum 1, got [1.5, -0.5] in sample 0", lambda: r.choice(2, p=[1.5, -0.5]))
    refused("at most 2³² - 1 numbers", lambda: r.uniform(shape=[2**16, 2**16]))
    crop = ndd.random_crop_generator
    shape = ndd.tensor([5, 5])
    refused("shapes must be integers, got f32", lambda: crop([5.0, 5.0]), TypeError)
    refused("2 or 3 values (HW or HWC), got (4,)", lambda: crop([1, 2, 3, 4]))
    refused("`random_area` must be a range of positive numbers, got [0.5, 0.2]",
            lambda: crop(shape, random_area=[0.5, 0.2]))  # fmt: skip
    refused("`random_area` must have 2 values", lambda: crop(shape, random_area=[0.1, 0.2, 0.3]))
    refused("`random_aspect_ratio` must be positive",
            lambda: crop(shape, random_aspect_ratio=[0.0, 1.0]))  # fmt: skip
    refused("`num_attempts` must not be negative", lambda: crop(shape, num_attempts=-1))
    refused("shapes are out of range: (-5, 5)", lambda: crop([-5, 5]))


# -- random windows --------------------------------------------------------------------------------

AREA, ASPECT = np.float32([0.08, 1.0]), np.float32([3 / 4, 4 / 3])


def windows(extents, attempts=10, area=AREA, aspect=ASPECT, seed=0):
    return crop_windows(np.asarray(extents), ndd.random.RNG(seed)._draw(), area, aspect, attempts)


def oracle_windows(extents, seed=0, **kwargs):
    with upstream.EvalMode.sync_cpu:
        made = upstream.random_crop_generator(
            upstream.batch([np.int64(e) for e in extents]), rng=upstream.random.RNG(seed), **kwargs
        )
    return [np.array([np.array(t) for t in x.tensors]) for x in made]


def test_window_generator():
    shapes = ndd.batch([np.int64([100, 200]), np.int64([50, 60]), np.int64([7, 9])])
    rng = ndd.random.RNG(5)
    anchor, shape = ndd.random_crop_generator(shapes, rng=rng)
    assert anchor.dtype == shape.dtype == ndd.int32 and anchor.shape == shape.shape == [(2,)] * 3
    assert str(rng.state).endswith(":0000000000000001_3")
    one = ndd.random_crop_generator(ndd.tensor([100, 200, 3]), rng=ndd.random.RNG(5))
    assert [arrays(v)[0].tolist() for v in one] == [arrays(v)[0].tolist() for v in (anchor, shape)]
    start, size = windows([(100, 200), (50, 60), (7, 9)], seed=5)
    assert [a.tolist() for a in arrays(anchor)] == start.tolist()
    assert [a.tolist() for a in arrays(shape)] == size.tolist()
    same_everywhere(lambda: ndd.random_crop_generator(shapes, rng=ndd.random.RNG(5)))
    cut = ndd.slice(ndd.zeros(shape=[100, 200, 3], layout="HWC"), *one, axes=[0, 1])
    assert cut.shape == (*size[0].tolist(), 3)


def test_windows_lie_inside_and_keep_the_rules():
    extents = np.random.default_rng(0).integers(1, 300, (5000, 2))
    start, shape = windows(extents)
    assert (start >= 0).all() and (shape >= 1).all() and (start + shape <= extents).all()
    ratio = (shape[:, 1] / shape[:, 0]).astype(np.float32)
    largest = (shape == largest_window(extents, AREA, ASPECT)).all(axis=1)
    assert ((ratio >= ASPECT[0]) & (ratio <= ASPECT[1]) | largest).all()
    assert largest.mean() < 0.5
    (start, shape) = windows([(0, 5), (5, 0), (0, 0), (1, 1)])
    assert start.tolist() == [[0, 0]] * 4 and shape.tolist() == [[0, 0]] * 3 + [[1, 1]]
    assert [v.tolist() for v in oracle_windows([(0, 5), (1, 1)])] == [
        [[0, 0]] * 2,
        [[0, 0], [1, 1]],
    ]


def test_attempts_do_not_depend_on_each_other():
    """More attempts than fit into one round of drawing change nothing about earlier ones."""
    extents = np.random.default_rng(1).integers(2, 30, (2000, 2))
    few, many = windows(extents, 16), windows(extents, 100)
    settled = ~(few[1] == largest_window(extents, AREA, ASPECT)).all(axis=1)
    assert settled.mean() > 0.3
    assert all(np.array_equal(a[settled], b[settled]) for a, b in zip(few, many, strict=True))
    swapped = windows(extents[::-1].copy(), 16)
    assert not np.array_equal(swapped[1][::-1], few[1]), "samples have draws of their own"


def test_windows_are_uniform_in_area_and_log_aspect():
    area, aspect = np.float32([0.2, 0.3]), np.float32([0.5, 2.0])
    extents = np.full((20_000, 2), 20_000)  # so large that rounding does not matter
    start, shape = windows(extents, area=area, aspect=aspect)
    share = shape.prod(axis=1) / 4e8
    assert stats.kstest(share, "uniform", (0.2, 0.1)).pvalue > LIMIT
    logs = np.log2(shape[:, 1] / shape[:, 0])
    assert stats.kstest(logs, "uniform", (-1, 2)).pvalue > LIMIT
    place = start / (extents - shape)
    for axis in (0, 1):
        assert stats.kstest(place[:, axis], "uniform").pvalue > LIMIT
    assert np.abs(np.corrcoef([share, logs, *place.T]) - np.eye(4)).max() < 0.04


@pytest.mark.parametrize(
    ("extents", "attempts"), [((4, 4), 1), ((4, 4), 10), ((3, 7), 2), ((6, 5), 3)]
)
def test_windows_are_distributed_as_upstream(extents, attempts):
    """Small images, where rounding and rejection decide: counts of all shapes and places."""
    count = 20_000
    start, shape = windows([extents] * count, attempts)
    theirs = oracle_windows([extents] * count, num_attempts=np.int32(attempts).item())
    mine = Counter(map(tuple, np.concatenate([start, shape], axis=1).tolist()))
    other = Counter(map(tuple, np.concatenate(theirs, axis=1).tolist()))
    record_draws("random_crop_generator", mine, other)
    assert set(mine) == set(other)
    table = np.array([[c[k] for k in sorted(mine)] for c in (mine, other)])
    assert stats.chi2_contingency(table).pvalue > LIMIT


def test_largest_window_is_that_of_upstream():
    extents = np.random.default_rng(2).integers(1, 300, (3000, 2))
    _, theirs = oracle_windows(extents, num_attempts=0)
    assert np.array_equal(largest_window(extents, AREA, ASPECT), theirs)
    _, theirs = oracle_windows(extents, num_attempts=0, random_area=[0.1, 0.2])
    mine = largest_window(extents, np.float32([0.1, 0.2]), ASPECT)
    # upstream's last digits differ where a side is a whole number
    assert (mine == theirs).mean() > 0.999 and np.abs(mine - theirs).max() <= 1
    for shape, want in (((10, 1000), (10, 13)), ((1000, 10), (13, 10))):
        assert largest_window(np.array([shape]), AREA, ASPECT).tolist() == [list(want)]
        assert (oracle_windows([shape])[1] == want).all()


def test_wide_images_get_the_largest_window_anywhere():
    start, shape = windows([(10, 1000)] * 20_000)
    assert (shape == (10, 13)).all() and start[:, 1].min() == 0 and start[:, 1].max() == 987
    assert stats.chisquare(np.bincount(start[:, 1] // 52, minlength=19)[:19]).pvalue > LIMIT


# -- random_resized_crop ---------------------------------------------------------------------------


def photos(shapes, dtype=np.uint8):
    rng = np.random.default_rng(4)
    return [(rng.random(s) * 255).astype(dtype) for s in shapes]


def as_region(x, layout, seed, size, **kwargs):
    """The oracle's resize of the windows that a seed gives here."""
    spatial = [layout.index("H"), layout.index("W")]
    start, shape = windows([[a.shape[d] for d in spatial] for a in x], seed=seed)
    ends = [upstream.batch(list(v.astype(np.float32))) for v in (start, start + shape)]
    extents = upstream.tensor(np.float32(size))
    with upstream.EvalMode.sync_cpu:
        made = upstream.resize(
            upstream.batch(x, layout=layout),
            size=extents,
            roi_start=ends[0],
            roi_end=ends[1],
            **kwargs,
        )
    return [np.array(t) for t in made.tensors]


@pytest.mark.parametrize(
    ("layout", "shapes"),
    [
        ("HWC", [(41, 53, 3), (33, 47, 3), (97, 61, 3)]),
        ("CHW", [(3, 41, 53), (3, 33, 47)]),
        ("FHWC", [(2, 41, 53, 3), (3, 33, 47, 3)]),
    ],
)
def test_resized_windows_are_regions_of_interest(layout, shapes):
    """Upstream's own windows come from other random numbers; with ours as a region, pixels agree."""
    x = photos(shapes * 20)
    batch = ndd.batch(x, layout=layout)
    got = arrays(ndd.random_resized_crop(batch, size=[17, 23], rng=ndd.random.RNG(6)))
    spatial = [layout.index("H"), layout.index("W")]
    start, shape = windows([[a.shape[d] for d in spatial] for a in x], seed=6)
    ends = [ndd.batch(list(v.astype(np.float32))) for v in (start, start + shape)]
    same = ndd.resize(batch, size=[17, 23], roi_start=ends[0], roi_end=ends[1])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, arrays(same), strict=True))
    want = as_region(x, layout, 6, [17, 23])
    record("random_resized_crop", got, want)
    wrong, total = off_by_one(got, want)
    assert wrong <= 1e-4 * total, f"{wrong} of {total} are off by one"


def off_by_one(got, want):
    """The number of values that differ (by at most 1), and the number of all values."""
    wrong = total = 0
    for a, b in zip(got, want, strict=True):
        difference = np.abs(a.astype(int) - b)
        assert a.shape == b.shape and difference.max() <= 1
        wrong, total = wrong + int((difference > 0).sum()), total + difference.size
    return wrong, total


def test_resized_windows_of_all_sizes():
    """The share of values that are off by one, over 100 random pairs of sizes: 6.5e-5.

    For 20 pairs it varies between 2.6e-5 and 1.04e-4, so fewer pairs prove nothing.
    """
    counts = np.zeros(2, int)
    for seed in range(5, 10):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            shape, size = (rng.integers(*ends, 2).tolist() for ends in ((30, 120), (11, 40)))
            x = photos([(*shape, 3)] * 8)
            batch = ndd.batch(x, layout="HWC")
            got = arrays(ndd.random_resized_crop(batch, size=size, rng=ndd.random.RNG(6)))
            counts += off_by_one(got, as_region(x, "HWC", 6, size))
    wrong, total = counts
    assert total > 1e6 and wrong <= 1e-4 * total, f"{wrong} of {total} are off by one"


def test_resized_windows_with_many_halves():
    """Above 1 in 10⁴ (1.3e-4 to 2.1e-4): 16 and 20 make exact halves; see docs/numerics.md."""
    x = photos([(40, 50, 3), (33, 20, 3), (100, 64, 3)] * 20)
    counts = np.zeros(2, int)
    for seed in (6, 7, 8, 9):
        rng = ndd.random.RNG(seed)
        got = arrays(ndd.random_resized_crop(ndd.batch(x, layout="HWC"), size=[16, 20], rng=rng))
        counts += off_by_one(got, as_region(x, "HWC", seed, [16, 20]))
    wrong, total = counts
    assert wrong <= 2e-4 * total, f"{wrong} of {total} are off by one"


def test_resized_windows_of_upstream_are_regions_too():
    """The oracle's random_resized_crop is its resize of its random_crop_generator's window."""
    x = upstream.batch(photos([(40, 50, 3)] * 20), layout="HWC")
    with upstream.EvalMode.sync_cpu:
        shapes = upstream.batch([np.int64([40, 50])] * 20)
        start, shape = upstream.random_crop_generator(shapes, rng=upstream.random.RNG(3))
        got = upstream.random_resized_crop(x, size=[16, 20], rng=upstream.random.RNG(3))
        low = [np.array(t).astype(np.float32) for t in start.tensors]
        high = [a + np.array(t).astype(np.float32) for a, t in zip(low, shape.tensors, strict=True)]
        region = dict(roi_start=upstream.batch(low), roi_end=upstream.batch(high))
        want = upstream.resize(x, size=[16, 20], **region)
    for a, b in zip(got.tensors, want.tensors, strict=True):
        assert np.array_equal(np.array(a), np.array(b))


def test_resized_windows_types_filters_and_sizes():
    x = photos([(40, 50, 3), (33, 20, 3)], np.float32)
    batch = ndd.batch(x, layout="HWC")
    args = dict(antialias=False, interp_type=ndd.types.INTERP_CUBIC)
    got = ndd.random_resized_crop(batch, size=8, rng=ndd.random.RNG(6), **args)
    cubic = upstream.tensor(np.int32(int(ndd.types.INTERP_CUBIC)))
    want = as_region(x, "HWC", 6, [8, 8], antialias=False, interp_type=cubic)
    for a, b in zip(arrays(got), want, strict=True):
        np.testing.assert_allclose(a, b, atol=255e-5, rtol=0)
    whole = ndd.random_resized_crop(
        batch, size=[5, 6], dtype=ndd.float32, random_area=[1.0], random_aspect_ratio=[0.1, 9.0],
        num_attempts=0,
    )  # fmt: skip
    assert all(
        np.array_equal(a, b)
        for a, b in zip(arrays(whole), arrays(ndd.resize(batch, size=[5, 6])), strict=True)
    )
    assert ndd.random_resized_crop(batch, size=[0, 6]).shape == [(0, 6, 3)] * 2


def test_resized_windows_in_modes_and_on_devices(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = photos([(12, 15, 3), (9, 8, 3)])

    def program(device=None):
        batch = ndd.batch(x, layout="HWC", device=device)
        cut = ndd.random_resized_crop(batch, size=[6, 5], rng=ndd.random.RNG(8))
        flips = ndd.random.coin_flip(batch_size=2, rng=ndd.random.RNG(9))
        return ndd.crop_mirror_normalize(cut, mirror=flips, mean=[120.0], std=[60.0])

    same_everywhere(program)
    for a, b in zip(arrays(program()), arrays(program("gpu")), strict=True):
        np.testing.assert_allclose(a, b, atol=1.1 / 60, rtol=0)


def test_resized_window_errors():
    image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout="HWC")
    crop = ndd.random_resized_crop

    def refused(text, program, kind=ValueError):
        error_everywhere(kind, text, program)

    refused("`size` must have 1 or 2 values, got 3", lambda: crop(image, size=[1, 2, 3]))
    refused("`size` must not be negative, got [-3, 8]", lambda: crop(image, size=[-3, 8]))
    refused("`random_area` must be a range", lambda: crop(image, size=[3], random_area=[1.0, 0.1]))
    empty = ndd.zeros(shape=[0, 8, 3], dtype=ndd.uint8, layout="HWC")
    refused("sample 0 of shape (0, 8, 3) has no pixels", lambda: crop(empty, size=[3]))


@pytest.mark.parametrize("name", ["RNG", "get_default_rng", "set_seed"])
def test_public_names_have_examples_that_run(name):
    text = getattr(ndd.random, name).__doc__
    parsed = doctest.DocTestParser().get_doctest(text, {"ndd": ndd}, name, None, 0)
    runner = doctest.DocTestRunner()
    runner.run(parsed)
    assert runner.failures == 0 and runner.tries > 0
