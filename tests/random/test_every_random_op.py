"""Every random op draws the same numbers in all modes, with any number of threads, on both devices."""

from __future__ import annotations

import io

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest
from PIL import Image
from scipy import stats

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


@pytest.mark.parametrize(
    "arguments",
    [{}, dict(random_area=[0.2, 0.4], random_aspect_ratio=[0.5, 2.0]),
     dict(random_area=[0.9, 1.0], random_aspect_ratio=[3.0, 4.0], num_attempts=2)],
    ids=["usual", "small", "failing"],
)  # fmt: skip
def test_windows_of_decoded_images_have_upstreams_distribution(arguments):
    """The colours of the picture tell where a window begins."""
    y, x = np.mgrid[0:40, 0:60]
    file = io.BytesIO()
    Image.fromarray(np.uint8(np.stack([x, y, x], axis=-1))).save(file, "PNG")
    contents = [np.frombuffer(file.getvalue(), np.uint8)] * 500

    def windows(lib):
        rng = lib.random.RNG(4)
        batches = [lib.batch(contents) for _ in range(6)]
        found = [lib.decoders.image_random_crop(b, rng=rng, **arguments) for b in batches]
        pictures = [np.asarray(t) for b in found for t in b.tensors]
        return np.array([[*p.shape[:2], *p[0, 0, :2]] for p in pictures])

    for ours, theirs in zip(windows(ndd).T, windows(upstream).T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3
