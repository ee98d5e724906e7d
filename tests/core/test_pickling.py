"""Tensor, Batch, generators and readers pickle and deep-copy as values."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import ndd
from tests.helpers import assert_same, ragged

WAYS = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "protocol 5": lambda x: _beside(x),
    "deepcopy": copy.deepcopy,
}


def _beside(x):
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert buffers and len(data) < 2000  # the memory travels beside the pickle
    return pickle.loads(data, buffers=[bytes(b) for b in buffers])


VALUES = {
    "tensor": lambda: ndd.tensor(np.arange(6, dtype=np.int16).reshape(2, 3), layout="HW"),
    "scalar": lambda: ndd.tensor(2.5),
    "ragged": lambda: ragged(),
    "uniform": lambda: ndd.batch(np.arange(24, dtype=np.float32).reshape(2, 3, 4), layout="HW"),
    "pending": lambda: ndd.flip(ragged(), horizontal=True) + 1,
    "a part": lambda: ragged().slice[1:3, ::2],
    "wrapped": lambda: ndd.as_tensor(np.arange(12).reshape(3, 4)[:, ::2]),
    "bool": lambda: ragged(dtype=np.bool_),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", VALUES)
def test_values_survive(value, way, mode):
    x = VALUES[value]()
    y = WAYS[way](x)
    assert type(y) is type(x) and y is not x
    assert (y.dtype, y.layout, y.device, y.shape) == (x.dtype, x.layout, x.device, x.shape)
    assert_same(y, x)
    assert_same(y + 1, x + 1)  # goes on as an ordinary value


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_a_copy_is_independent_and_holds_no_graph(way):
    memory = np.zeros(3, np.float32)
    x = ndd.as_tensor(memory)
    with ndd.EvalMode.deferred:
        y = WAYS[way](x + 1)
    memory[:] = 7
    assert np.asarray(y).tolist() == [1, 1, 1]
    assert not y._node.inputs or y._node.storage is not None


def test_bfloat16_enums_and_empty_batches():
    for x in (
        ndd.tensor([1.5, -2.0]).__class__([1.5, -2.0], dtype=ndd.bfloat16),
        ndd.batch([], dtype=ndd.uint8, layout="HWC"),
    ):
        y = WAYS["pickle"](x)
        assert (y.dtype, y.layout, y.ndim, y.shape) == (x.dtype, x.layout, x.ndim, x.shape)
        assert_same(y, x)


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_bad_samples_stay_bad(way):
    files = [b"P3 2 1 255 1 2 3 4 5 6 ", b"no image"]
    x = ndd.decoders.image(files, on_error="fill")
    assert WAYS[way](x).valid.tolist() == [True, False]
    assert (WAYS[way](x) + 1).valid.tolist() == [True, False]


@pytest.mark.gpu
def test_a_value_on_the_gpu_returns_there(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = ndd.batch(np.arange(6, dtype=np.float32).reshape(2, 3)).gpu()
    y = pickle.loads(pickle.dumps(x))
    assert y.device == x.device
    assert_same(y.cpu(), x.cpu())


def test_a_value_on_the_gpu_does_not_return_without_one(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    data = pickle.dumps(ndd.batch(np.float32([[1, 2]])).gpu())
    monkeypatch.delenv("NDD_GPU")
    with pytest.raises(RuntimeError, match="GPU"):
        pickle.loads(data)


def test_an_external_source_before_and_after_its_first_item():
    source = ndd.ExternalSource([[1, 2], [3]], cycle=True)
    assert np.asarray(WAYS["pickle"](source)()).tolist() == [1, 2]
    source()
    with pytest.raises(TypeError, match=r"ExternalSource: .*before its first item"):
        pickle.dumps(source)
