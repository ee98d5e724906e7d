"""The four modes are flush policies: same values, same fusion, whatever the names and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.fusion.run.pipeline import Pipeline
from tests.helpers import (
    arrays,
    assert_same,
    counted_runs,
    forget_plans,
    nothing_planned,
    ragged,
    samples,
    worker_held,
)

Job = Callable[[ndd.Batch], ndd.Batch]


def normalise(x: ndd.Batch) -> ndd.Batch:
    x = ndd.crop(ndd.flip(x, horizontal=ndd.batch([1, 0, 1])), crop=(3, 3))
    x = (ndd.cast(x, dtype=ndd.float32) - ndd.tensor([1.0, 2.0, 3.0])) * 0.017
    return ndd.cast(ndd.transpose(x, perm=[2, 0, 1]), dtype=ndd.float16)


def tabulated(x: ndd.Batch) -> ndd.Batch:
    return ndd.cast(
        ndd.math.pow(ndd.cast(x, dtype=ndd.float32) / 255.0, 2.2) * 255.0, dtype=ndd.uint8
    )


def colours(x: ndd.Batch) -> ndd.Batch:
    x = ndd.color_twist(x, hue=ndd.batch([10.0, 20.0, 30.0]), saturation=1.3, brightness=0.9)
    return ndd.brightness_contrast(ndd.pad(x, fill_value=128.0), contrast=1.5)


def joined(x: ndd.Batch) -> ndd.Batch:
    dear = ndd.math.exp(ndd.math.sin(ndd.cast(x, dtype=ndd.float32)))
    return ndd.cat(dear, ndd.flip(dear), ndd.cast(x, dtype=ndd.float32) % 7.0, axis=1)


def through_memory(x: ndd.Batch) -> ndd.Batch:
    x = ndd.permute_batch(x + 1, indices=[2, 0, 0])
    return ndd.reshape(x, shape=[-1, 3], layout="WC") * 3 - 1


JOBS = [normalise, tabulated, colours, joined, through_memory]


def expected(job: Job, *shapes: Any) -> list[Any]:
    """The values op by op: every call is computed before the next one is made."""
    with pytest.MonkeyPatch.context() as patch, ndd.EvalMode.sync_full:
        patch.setenv("NDD_FUSION", "0")
        return arrays(job(ragged(*shapes)))


@pytest.mark.parametrize("job", JOBS, ids=lambda f: f.__name__)
def test_same_bits_in_all_modes(job: Job, mode: str, fusion: str) -> None:
    wanted = expected(job)
    assert_same(job(ragged()), wanted)


@pytest.mark.parametrize("job", JOBS, ids=lambda f: f.__name__)
def test_metadata_is_known_before_and_right_after(job: Job) -> None:
    with ndd.EvalMode.deferred:
        x = job(ragged())
        before = (x.shape, x.dtype, x.layout, x.ndim, x.batch_size, x.device)
        assert x._node.storage is None
        x.evaluate()
        assert (x.shape, x.dtype, x.layout, x.ndim, x.batch_size, x.device) == before
        assert [a.shape for a in arrays(x)] == x.shape
        assert {a.dtype for a in arrays(x)} == {x.dtype.np}


# -- threads -------------------------------------------------------------------------------------

LARGE = [(90, 120, 3), (40, 300, 3), (1, 1, 3), (200, 100, 3), (64, 64, 3)]


def cheap_work(x: ndd.Batch) -> ndd.Batch:
    return ndd.flip(ndd.cast(x, dtype=ndd.float32) * 0.5 + 1.0, vertical=1)


def staged_work(x: ndd.Batch) -> ndd.Batch:
    """Costly values that are read at two places each: three kernels with large intermediates."""
    y = ndd.math.exp(ndd.math.sin(ndd.cast(x, dtype=ndd.float32)))
    z = ndd.math.log(ndd.flip(y) + y)
    return ndd.flip(z, vertical=1) - ndd.math.cos(z)


@pytest.mark.parametrize("job", [cheap_work, staged_work])
def test_one_and_two_threads_give_the_same_bits(job: Job) -> None:
    wanted = expected(job, LARGE)
    for threads in (1, 2, 3):
        with ndd.EvalContext(num_threads=threads), ndd.EvalMode.deferred:
            assert_same(job(ragged(LARGE)), wanted, f"{threads} threads")


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """All plans that ran, with the scratch memory that they used."""
    found: list[Pipeline] = []
    run = Pipeline.run

    def spy(self: Pipeline, count: int) -> None:
        run(self, count)
        found.append(self)

    monkeypatch.setattr(Pipeline, "run", spy)
    return found


def test_large_intermediates_go_through_scratch(pipelines: list[Pipeline]) -> None:
    with ndd.EvalContext(num_threads=2), ndd.EvalMode.deferred:
        staged_work(ragged(LARGE)).evaluate()
        (large,) = pipelines
        assert len(large.steps) == 3
        large_sample = max(h * w for h, w, _ in LARGE) * 3 * 4
        assert large.between == 2 * large_sample  # of one sample, not of the batch
        staged_work(ragged()).evaluate()
    assert pipelines == [large], "small intermediates need neither scratch nor a pipeline"


def test_scratch_is_shared_by_values_that_never_meet(pipelines: list[Pipeline]) -> None:
    def many_stages(x: ndd.Batch) -> ndd.Batch:
        x = ndd.cast(x, dtype=ndd.float32)
        for _ in range(6):
            x = ndd.math.sin(x)
            x = ndd.flip(x) + x
        return x

    with ndd.EvalMode.deferred:
        fused = arrays(many_stages(ragged(LARGE)))
    (only,) = pipelines
    assert len(set(only.scratch.values())) == 2
    assert_same(fused, expected(many_stages, LARGE))


# -- names ---------------------------------------------------------------------------------------


def rebinding(x: ndd.Batch) -> tuple[ndd.Batch, ...]:
    x = ndd.flip(x)
    x = ndd.cast(x, dtype=ndd.float32)
    x = x * 2.0
    x = x + 1.0
    return (x,)


def naming(x: ndd.Batch) -> tuple[ndd.Batch, ...]:
    flipped = ndd.flip(x)
    floats = ndd.cast(flipped, dtype=ndd.float32)
    doubled = floats * 2.0
    result = doubled + 1.0
    return (result, flipped, floats, doubled)


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_named_intermediates_fuse_like_rebound_ones(mode: str) -> None:
    with ndd.EvalMode[mode], worker_held(), counted_runs() as runs:
        first = rebinding(ragged())
        first[0].evaluate()
        named = naming(ragged())
        named[0].evaluate()
        assert runs == [1, 1]
        assert ndd.explain(named[0]).kernels == ndd.explain(first[0]).kernels
        assert [g.outputs for g in ndd.explain(named[0]).groups] == [
            g.outputs for g in ndd.explain(first[0]).groups
        ]
        assert [v._node.storage is None for v in named] == [False, True, True, True]
    assert_same(named[0], first[0])


@pytest.mark.parametrize("mode", ["sync_cpu", "sync_full"])
def test_sync_modes_materialise_every_call(mode: str) -> None:
    with ndd.EvalMode[mode], counted_runs() as runs:
        named = naming(ragged())
        assert runs == [1, 1, 1, 1]
        assert all(v._node.storage is not None for v in named)
        assert rebinding(ragged())[0]._node.storage is not None
        assert runs == [1] * 8


def test_an_intermediate_that_is_read_later_is_right(mode: str, fusion: str) -> None:
    data = samples()
    for _ in range(3):
        result, flipped, floats, doubled = naming(ndd.batch(data, layout="HWC"))
        mirrored = [np.ascontiguousarray(a[:, ::-1]) for a in data]
        assert_same(result, [a.astype(np.float32) * 2 + 1 for a in mirrored])
        assert_same(doubled, [a.astype(np.float32) * 2 for a in mirrored])
        assert_same(flipped, mirrored)
        assert_same(floats, [a.astype(np.float32) for a in mirrored])


@pytest.fixture
def no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the plans of earlier programs."""
    forget_plans(monkeypatch)


@pytest.mark.usefixtures("no_plans")
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_what_was_read_is_made_in_the_same_pass_the_next_time(mode: str) -> None:
    x = ragged(dtype=np.float32, seed=7)

    def iteration() -> list[int]:
        with counted_runs() as runs:
            square = x * x
            root = ndd.math.sqrt(square)
            last = root - 1.0
            last.evaluate()
            square.evaluate()
            assert_same(square, [a * a for a in arrays(x)])
            del root
        return runs

    with ndd.EvalMode[mode], worker_held():
        assert iteration() == [1, 1]  # `square` was fused away, then computed from its inputs
        assert iteration() == [1]
        with nothing_planned():
            assert iteration() == [1]


@pytest.mark.usefixtures("no_plans")
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_what_later_calls_use_is_computed_once(mode: str) -> None:
    calls = []
    with ndd.EvalMode[mode], worker_held(), counted_runs() as runs:
        base = ndd.math.sin(ragged(dtype=np.float32))
        for k in range(5):
            (base * float(k)).evaluate()
            calls.append(base._node.storage is not None)
        assert calls == [False, True, True, True, True]
        assert runs == [1, 1, 1, 1, 1]
        kernels = ndd.explain(base).groups
        assert [g.ops for g in kernels] == [("sin", "mul")]


def test_a_value_is_computed_once_however_often_it_is_read(mode: str) -> None:
    with worker_held(), counted_runs() as runs:
        x = ndd.flip(ragged()) * 2.0
        for _ in range(3):
            x.evaluate()
            arrays(x)
        assert sum(runs) <= 2  # one per call in the sync modes


# -- the background ------------------------------------------------------------------------------


def test_eager_takes_everything_pending_at_once() -> None:
    with ndd.EvalMode.eager, counted_runs() as runs:
        with worker_held():
            a, b = ragged(seed=1), ragged(seed=2)
            x = ndd.cast(ndd.flip(a), dtype=ndd.float32) * 2.0
            y = ndd.cast(b, dtype=ndd.int32) + 1
        ndd.EvalContext.current().evaluate_all()
        assert runs == [2]
        assert x._node.storage is not None and y._node.storage is not None


def test_eager_runs_without_being_asked() -> None:
    x = ragged(dtype=np.float32) * 2.0
    for _ in range(2000):
        if x._node.storage is not None:
            break
        time.sleep(0.002)
    assert x._node.storage is not None


def test_a_value_is_complete_as_soon_as_it_can_be_seen() -> None:
    # the background thread computes; this one looks at the storage without asking for it
    big = ndd.tensor(np.full((1200, 1200), 0.5, np.float32))
    for k in range(8):
        y = ndd.math.exp(ndd.math.sin(big * float(k)))
        while y._node.storage is None:
            pass
        a = np.asarray(y)
        assert a[-1, -1] == a[0, 0]


def test_several_samples_sizes_in_one_flush(mode: str) -> None:
    with worker_held():
        x, y = ragged(), ragged([(2, 3, 3)] * 7, seed=3)
        doubled, shifted = x * 2, y + 1
        wanted_x = [a.astype(np.int32) * 2 for a in samples()]
        wanted_y = [a.astype(np.int32) + 1 for a in samples([(2, 3, 3)] * 7, seed=3)]
        ndd.EvalContext.current().evaluate_all()
    assert_same(doubled, wanted_x)
    assert_same(shifted, wanted_y)


def test_picking_samples_is_no_work_and_no_plan(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def pick(n: int) -> None:
        some = samples([(2, 3, 3)] * n)
        x = ndd.batch(some) * 2
        picked = [x.tensors[k] for k in range(n)]
        reversed_ = x.tensors[::-1].tensors[0]
        assert_same(reversed_, [some[-1].astype(np.int32) * 2])
        assert_same([np.asarray(t) for t in picked], [a.astype(np.int32) * 2 for a in some])

    forget_plans(monkeypatch)  # other tests may have read other values of the same program
    with worker_held():
        for _ in range(2):  # the second plan knows what was read after the first
            pick(3)
        with nothing_planned():
            for n in (1, 2, 5):
                pick(n)
