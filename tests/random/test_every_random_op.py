"""Every random op draws the same numbers in all modes, with any number of threads, on both devices."""

from __future__ import annotations

import numpy as np
import pytest

import ndd
from ndd.core.schema import OPS
from tests.conformance.modes import same_everywhere
from tests.core.test_empty_batches import recorded
from tests.helpers import arrays

SAMPLES = 3
RANDOM = [name for name, op in OPS.items() if op.rng_at is not None]


def batched(value):
    """Several samples of an input of an example."""
    if isinstance(value, ndd.Batch):
        return value
    tensor = ndd.as_tensor(value)
    return ndd.batch([np.asarray(tensor)] * SAMPLES, layout=tensor.layout)


def results(found):
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.gpu
@pytest.mark.parametrize("name", RANDOM)
def test_draws_depend_on_the_seed_alone(name, monkeypatch):
    op = OPS[name]
    inputs, given, _ = recorded(name, monkeypatch)
    monkeypatch.setenv("NDD_GPU", "simulate")
    inputs = [batched(x) for x in inputs]
    given = {k: v for k, v in given.items() if k not in ("rng", "device", "batch_size")}
    if not any(isinstance(x, ndd.Batch) for x in (*inputs, *given.values())):
        given["batch_size"] = SAMPLES

    def program(device="cpu", seed=5):
        where = "cpu" if op.mixed else device
        rng = ndd.random.RNG(seed)
        rng.advance(7 * 30)  # also beyond the first words of a generator
        found = op.public(*[x.to_device(where) for x in inputs], device=device, rng=rng, **given)
        return results(found), str(rng.state)

    same_everywhere(lambda: program()[0])
    (on_cpu, state), (on_gpu, other) = program(), program("gpu")
    assert state == other
    for a, b in zip(on_cpu, on_gpu, strict=True):
        for x, y in zip(arrays(a), arrays(b), strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def test_ops_are_found():
    assert len(RANDOM) >= 20 and {"jitter", "random_bbox_crop", "noise.shot"} <= set(RANDOM)
