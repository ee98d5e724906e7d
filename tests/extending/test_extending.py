"""An op, a kind of computation and a reader can each be added from outside, with one file."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import ndd
from ndd.core.schema import OPS
from tests.extending.toy_reader import Ramp
from tests.helpers import arrays, assert_same, kernels, nothing_compiled, samples

SHAPES = ((5, 7, 3), (1, 9, 3), (8, 1, 3), (1, 1, 3))


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """Remove the ops afterwards, because other tests look at all ops."""
    for name in ("toy_op", "toy_kind"):
        importlib.import_module(f"tests.extending.{name}")
    for name in [n for n in OPS if n.startswith("toy_")]:
        _defined.setdefault(name, OPS.pop(name))
    for name, defined in _defined.items():
        monkeypatch.setitem(OPS, name, defined)


_defined: dict = {}


def call(name, *args, **kwargs):
    return _defined[name].public(*args, **kwargs)


def solarized(a, threshold=128.0):
    x = a.astype(np.float32)
    return np.where(x < threshold, x, np.float32(255) - x)


def running_max(a, n, axis=0):
    moved = np.moveaxis(a.astype(np.float32), axis, 0)
    out = np.stack([moved[max(i - n + 1, 0) : i + 1].max(axis=0) for i in range(len(moved))])
    return np.moveaxis(out, 0, axis)


def on(device, data):
    batch = ndd.batch(data, layout="HWC")
    return batch.gpu() if device == "gpu" else batch


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_an_op(mode, device, fusion, dtype):
    data = samples(SHAPES, dtype)
    thresholds = [10.0, 100.0, 200.0, 50.0]
    x = on(device, data)
    got = call("toy_solarize", ndd.flip(x), threshold=ndd.batch(thresholds), dtype=ndd.float32)
    assert_same(got, [solarized(a[:, ::-1], t) for a, t in zip(data, thresholds)])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_kind(mode, device, fusion, dtype, axis):
    data, counts = samples(SHAPES, dtype), [1, 3, 2, 20]
    got = call("toy_running_max", on(device, data), length=ndd.batch(counts), axis=axis)
    assert_same(got, [running_max(a, n, axis) for a, n in zip(data, counts)])


def chain(x, counts):
    x = ndd.cast(x, dtype=ndd.float32) + 1.0  # cheap enough to recompute for every read
    x = call("toy_running_max", x, length=ndd.batch(counts))
    x = ndd.flip(x, horizontal=1, vertical=ndd.batch([1, 0, 1, 0]))
    return call("toy_solarize", x.slice[:, :1], dtype=ndd.uint8)


def test_both_fuse_with_their_neighbours(device):
    data, counts = samples(SHAPES), [1, 3, 2, 20]
    wanted = []
    for k, (a, n) in enumerate(zip(data, counts)):
        x = running_max(a.astype(np.float32) + 1, n)[:, ::-1]
        x = x[::-1] if k % 2 == 0 else x
        wanted.append(np.clip(np.floor(solarized(x[:, :1]) + 0.5), 0, 255).astype(np.uint8))
    with ndd.EvalMode.deferred:
        y = chain(on(device, data), counts)
        assert kernels(y) == 1
        assert_same(y, wanted)


def test_new_lengths_compile_nothing():
    data = samples(SHAPES)
    arrays(chain(ndd.batch(data, layout="HWC"), [1, 3, 2, 20]))
    with nothing_compiled():
        arrays(chain(ndd.batch(data[:4], layout="HWC"), [5, 6, 7, 8]))


def test_its_errors_name_op_argument_and_line(mode):
    with pytest.raises(
        ValueError, match=r"toy_running_max: `length` must be positive, got 0 \(called"
    ):
        call("toy_running_max", ndd.batch(samples(), layout="HWC"), length=0)


def test_only_the_part_that_is_read_is_decoded(tmp_path):
    """A kind says which region of its input it needs, so that decoders decode only that region."""
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    ok, data = cv2.imencode(".jpg", image)
    assert ok
    with ndd.EvalMode.deferred:
        x = ndd.decoders.image(ndd.batch([np.asarray(data).reshape(-1)]))
        y = call("toy_running_max", x, length=4).slice[40:48]
        (decode,) = [g for g in ndd.explain(y).groups if g.kind == "opaque"]
        assert 11 * 64 * 3 <= decode.written_bytes < 24 * 64 * 3
        whole = call(
            "toy_running_max",
            ndd.decoders.image(ndd.batch([np.asarray(data).reshape(-1)])),
            length=4,
        )
        assert_same(y, [arrays(whole)[0][40:48]])


# -- a reader ------------------------------------------------------------------------------------


def lengths(epoch) -> list[int]:
    return [n for _, numbers in epoch for n in numbers.torch().reshape(-1).tolist()]


def test_a_reader_has_all_that_readers_have():
    reader = Ramp(10, random_shuffle=True, seed=3, num_shards=2, shard_id=1, stick_to_shard=True)
    first, second = (lengths(reader.next_epoch(batch_size=2)) for _ in range(2))
    assert sorted(set(first)) == sorted(set(second)) and len(set(first)) == 5 and first != second
    state = reader.get_state()
    third = lengths(reader.next_epoch(batch_size=2))
    again = Ramp(10, random_shuffle=True, seed=3, num_shards=2, shard_id=1, stick_to_shard=True)
    again.set_state(state)
    assert lengths(again.next_epoch(batch_size=2)) == third
    (ramps, _), *_ = Ramp(3).next_epoch(batch_size=3)
    assert_same(ramps * 2.0, [2 * np.arange(k + 1, dtype=np.float32) for k in range(3)])
    with pytest.raises(ValueError, match=r"`shard_id` must be in 0 … 0"):
        Ramp(3, shard_id=4)


def test_its_bad_samples_follow_the_policy():
    with pytest.raises(ValueError, match=r"ramp 13.*an unlucky number"):
        lengths(Ramp(14).next_epoch(batch_size=14))
    reader = Ramp(14, on_error="fill")
    assert lengths(reader.next_epoch(batch_size=14)) == [*range(1, 14), 0]
    assert [e.index for e in reader.errors] == [13]
