"""NumPy's functions read CPU tensors as arrays; operators with an array on the left give Tensors."""

from __future__ import annotations

import operator

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd

FLOATS = np.array([1.0, 4.0, 9.0], np.float32)
INTS = np.array([3, 1, 2], np.int32)
ARITHMETIC = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
]  # fmt: skip
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]

# Each takes (an array or a tensor, the array INTS).
FUNCTIONS = {
    "sqrt": lambda x, a: np.sqrt(x),
    "maximum": lambda x, a: np.maximum(a, x),
    "maximum reversed": lambda x, a: np.maximum(x, a),
    "add": lambda x, a: np.add(x, 1),
    "add with out": lambda x, a: np.add(a, x, out=np.zeros(3)),
    "isnan": lambda x, a: np.isnan(x),
    "where": lambda x, a: np.add(x, 1, where=np.array([True, False, True]), out=np.zeros(3)),
    "reduce": lambda x, a: np.add.reduce(x),
    "accumulate": lambda x, a: np.multiply.accumulate(x),
    "outer": lambda x, a: np.subtract.outer(a, x),
    "reduceat": lambda x, a: np.add.reduceat(x, [0, 2]),
    "array_equal": lambda x, a: np.array_equal(x, a),
    "array_equal itself": lambda x, a: np.array_equal(x, FLOATS),
    "allclose": lambda x, a: np.allclose(x, a),
    "sum": lambda x, a: np.sum(x),
    "mean": lambda x, a: np.mean(x, keepdims=True),
    "stack": lambda x, a: np.stack([x, a, x]),
    "concatenate": lambda x, a: np.concatenate((x, a)),
    "where function": lambda x, a: np.where(x > 2, x, a),
    "clip": lambda x, a: np.clip(x, 2, 5),
    "matmul": lambda x, a: np.matmul(a, x),
    "at": lambda x, a: a @ x,
    "dot": lambda x, a: np.dot(a, x),
    "divmod": lambda x, a: np.divmod(a, x)[1],
    "expand_dims": lambda x, a: np.expand_dims(x, 0),
    "norm": lambda x, a: np.linalg.norm(x),
    "argmax": lambda x, a: np.argmax(x),
    "shape": lambda x, a: np.shape(x),
    "size": lambda x, a: np.size(x, 0),
    "interp": lambda x, a: np.interp(2.0, x, a),
    "options": lambda x, a: np.percentile(a=x, q=50),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_work_as_on_arrays(name):
    function = FUNCTIONS[name]
    wanted = function(FLOATS, INTS)
    for mode in ndd.EvalMode:
        with mode:
            ours = function(ndd.tensor(FLOATS) * 1.0, INTS)
            assert type(ours) is type(wanted), name
            np.testing.assert_array_equal(ours, wanted)
            if isinstance(wanted, np.ndarray):
                assert ours.dtype == wanted.dtype and ours.shape == wanted.shape


def test_in_place_operators_write_into_the_array(mode):
    for update in (operator.iadd, operator.isub, operator.imul, operator.itruediv):
        ours, wanted = FLOATS.copy(), FLOATS.copy()
        result = update(ours, ndd.tensor(INTS))
        update(wanted, INTS)
        assert result is ours
        np.testing.assert_array_equal(ours, wanted)
    numbers = np.zeros(3)
    np.add.at(numbers, [0, 0], ndd.tensor([1.0, 2.0]))
    assert numbers.tolist() == [3.0, 0.0, 0.0]


def test_operators_with_arrays_on_the_left_give_tensors(mode, device):
    for apply in (*ARITHMETIC, *BITS, *COMPARISONS):
        for left in (np.int32([7, 5, 3]), np.int32(7)):
            ours = apply(left, ndd.tensor(INTS, device=device))
            assert isinstance(ours, ndd.Tensor) and ours.device.device_type == device
            np.testing.assert_allclose(ours.cpu(), apply(left, INTS), rtol=1e-6)
    batch = ndd.batch([INTS, INTS[:1]], device=device)
    for apply in (operator.mul, operator.sub, operator.lt, operator.eq):
        ours = apply(np.int32([7]), batch)
        assert isinstance(ours, ndd.Batch)
        for t, row in zip(ours.cpu(), (INTS, INTS[:1]), strict=True):
            np.testing.assert_array_equal(t, apply(np.int32([7]), row))
    assert [np.asarray(t).tolist() for t in np.subtract(batch, 1).cpu()] == [[2, 0, 1], [2]]
    assert [np.asarray(t).tolist() for t in np.less(batch, [2]).cpu()] == [
        [False, True, False],
        [False],
    ]


@pytest.mark.parametrize("lib", [ndd, dali], ids=["ndd", "upstream"])
def test_arrays_are_indexed_as_by_arrays(lib):
    a = np.arange(12).reshape(4, 3)
    for index in (np.int64(2), np.int64([2]), np.int32([[1]]), np.int64([3, 0]), a[:, 0] > 2):
        assert a[lib.tensor(index)].tolist() == a[index].tolist()


def test_a_function_does_not_hand_out_memory():
    """Values that NumPy only read stay ours: later calls may still be fused and deferred."""
    with ndd.EvalMode.deferred:
        t = ndd.tensor(FLOATS) + 1
        np.sqrt(t)
        assert not t._node.stored.external
        np.asarray(t)
        assert t._node.stored.external


def test_bfloat16_is_read_as_float32():
    t = ndd.tensor([1.5, 2.0], dtype=ndd.bfloat16)
    ours = np.multiply(t, 2)
    assert ours.dtype == np.float32 and ours.tolist() == [3.0, 4.0]


@pytest.mark.gpu
def test_values_that_numpy_cannot_read(mode, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    gpu, batch = ndd.tensor(FLOATS, device="gpu"), ndd.batch([FLOATS, FLOATS])
    array = FLOATS.copy()
    for call, text in (
        (lambda: np.sqrt(gpu), r"np.sqrt cannot read a GPU tensor; copy it to the host first: tensor.cpu\(\)"),
        (lambda: np.maximum(FLOATS, gpu), "np.maximum cannot read a GPU tensor"),
        (lambda: np.array_equal(gpu, FLOATS), "np.array_equal cannot read a GPU tensor"),
        (lambda: np.stack([gpu, gpu]), "np.stack cannot read a GPU tensor"),
        (lambda: np.add.reduce(gpu), "np.add.reduce cannot read a GPU tensor"),
        (lambda: operator.iadd(array, gpu), "np.add cannot read a GPU tensor"),
        (lambda: np.sqrt(FLOATS, out=ndd.tensor(FLOATS)), "np.sqrt: `out` must be an array, got a Tensor"),
        (lambda: np.sqrt(batch), r"np.sqrt takes no Batch: use ndd.math and the operators, or np.sqrt of its samples"),
        (lambda: np.array_equal(batch, batch), "np.array_equal takes no Batch"),
        (lambda: np.stack([batch, batch]), "np.stack takes no Batch"),
        (lambda: np.add(ndd.tensor(ndd.types.RGB), 1), "NumPy has no type for ImageType values"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=text):
            call()
    assert np.shape(gpu) == (3,) and np.ndim(gpu) == 1  # no value is read
    assert np.array_equal(gpu.cpu(), FLOATS)


def test_upstream_gives_the_same_arrays():
    """Where a difference is intended it is the type: an operator gives a Tensor here."""
    ours, theirs = ndd.tensor(FLOATS), dali.tensor(FLOATS)
    for name, function in FUNCTIONS.items():
        np.testing.assert_array_equal(function(ours, INTS), function(theirs, INTS), err_msg=name)
    assert isinstance(INTS * ours, ndd.Tensor) and isinstance(INTS * theirs, np.ndarray)
