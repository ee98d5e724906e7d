"""Element types, enumerations, Tensor and Batch: construction, metadata, selection."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import nvidia.dali.types as upstream
import pytest

import ndd

NUMERIC = {
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f16", "float32": "f32", "float64": "f64", "bool": "bool",
}  # fmt: skip
NAN = float("nan")
every_mode = pytest.mark.parametrize("mode", list(ndd.EvalMode), ids=lambda m: m.name)


def values(x):
    """A Tensor as an array, a Batch as a list of lists."""
    return [np.asarray(t).tolist() for t in x] if isinstance(x, ndd.Batch) else np.asarray(x)


# -- DType ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("long", "short"), NUMERIC.items())
def test_a_type_has_names_numbers_and_one_identity(long, short):
    kind = getattr(ndd, long)
    native = np.dtype(long)
    assert (str(kind), kind.name, kind.bits, kind.bytes) == (
        short, short, 8 * native.itemsize, native.itemsize,
    )  # fmt: skip
    assert kind.type_id == getattr(upstream, {"float32": "FLOAT"}.get(long, long.upper()))
    for spelling in (
        kind,
        short,
        long,
        native,
        native.type,
        native.newbyteorder(">"),
        kind.type_id,
    ):
        assert ndd.dtype(spelling) is kind
    assert ndd.DType.from_type_id(int(kind.type_id)) is kind
    assert ndd.DType.from_fw_type(native) is kind
    assert ndd.type_id(kind) == kind.type_id
    assert (
        kind.kind.name == {"u": "unsigned", "i": "signed", "f": "float", "b": "bool"}[native.kind]
    )
    assert pickle.loads(pickle.dumps(kind)) is copy.deepcopy(kind) is kind


def test_equal_types_are_interchangeable():
    kind = ndd.DType.Kind
    made = {
        ndd.uint8: ndd.DType(kind.unsigned, 8, type_id=upstream.UINT8),
        ndd.bool: ndd.DType(kind.bool, 8, type_id=upstream.BOOL, name="bool"),
        ndd.bfloat16: ndd.DType(kind.float, 16, 8, 7),
        ndd.float16: ndd.DType(kind.float, 16, 5, 10, type_id=upstream.FLOAT16),
    }
    for ours, other in made.items():
        assert ours == other and hash(ours) == hash(other)
        assert ndd.dtype(other) is ours
        assert ndd.tensor([1], dtype=other).dtype is ours
    assert ndd.float16 != ndd.bfloat16 and ndd.int8 != ndd.uint8
    assert ndd.uint8 != "u8" and ndd.uint8 != np.uint8
    odd = ndd.DType(kind.signed, 24, name="i24")
    assert pickle.loads(pickle.dumps(odd)) == odd != ndd.int32


def test_how_a_type_shows_itself():
    assert repr(ndd.uint8) == "DType(kind=Kind.unsigned, bits=8)"
    assert repr(ndd.float32) == (
        "DType(kind=Kind.float, bits=32, exponent_bits=8, significand_bits=23)"
    )
    assert [(k.name, k.value) for k in ndd.DType.Kind] == [
        ("signed", 1), ("unsigned", 2), ("float", 3), ("bool", 4), ("enum", 5),
    ]  # fmt: skip
    assert ndd.bfloat16.type_id is None and (ndd.bfloat16.exponent_bits, ndd.bfloat16.bits) == (
        8,
        16,
    )


def test_types_of_other_libraries():
    import torch

    pairs = {
        torch.uint8: ndd.uint8, torch.int64: ndd.int64, torch.float16: ndd.float16,
        torch.bfloat16: ndd.bfloat16, torch.bool: ndd.bool, float: ndd.float32, bool: ndd.bool,
    }  # fmt: skip
    for theirs, ours in pairs.items():
        assert ndd.dtype(theirs) is ours


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ("u7", ValueError, "unknown element type 'u7'; known: u8, "),
        (None, TypeError, "None is not an element type"),
        (np.complex64, TypeError, "complex64'> is not an element type"),
        (1, TypeError, "1 is not an element type"),
        (upstream.STRING, TypeError, "has no element type in ndd"),
    ],
)
def test_what_is_no_type(wrong, error, text):
    with pytest.raises(error) as caught:
        ndd.dtype(wrong)
    assert text in str(caught.value)


def test_a_type_is_not_a_conversion():
    with pytest.raises(TypeError, match=r"use ndd\.tensor\(value, dtype=ndd\.u8\)"):
        ndd.uint8([1, 2])


# -- enumerations --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["DALIDataType", "DALIImageType", "DALIInterpType"])
def test_upstream_enums_equal_ours(name):
    ours, theirs = getattr(ndd.types, name), getattr(upstream, name)
    public = {k: v for k, v in theirs.__members__.items() if not k.startswith("_")}
    assert set(ours.__members__) == set(public)
    for key, value in public.items():
        mine = ours[key]
        assert mine == value and value == mine and not (mine != value)
        assert int(mine) == int(value) and hash(mine) == hash(value)
        assert {value: 1}[mine] == 1 and {mine: 1}[value] == 1
        assert getattr(ndd.types, key) is mine
        others = [v for k, v in public.items() if k != key]
        assert all(mine != v and not (mine == v) for v in others)
    assert ndd.types.RGB != ndd.types.UINT8 and ndd.types.RGB != ndd.types.INTERP_NN


def test_upstream_enums_are_accepted_as_arguments():
    x = ndd.tensor([[[1.5, 2.5, 3.5]]], layout="HWC")
    assert ndd.cast(x, dtype=upstream.UINT8).dtype is ndd.uint8
    assert ndd.tensor([1], dtype=upstream.DALIDataType.FLOAT16).dtype is ndd.float16
    same = [
        ndd.color_space_conversion(ndd.cast(x, dtype=ndd.uint8), image_type=a, output_type=b)
        for a, b in [(upstream.RGB, upstream.GRAY), (ndd.types.RGB, ndd.types.GRAY), (0, 2)]
    ]
    assert len({values(s).tobytes() for s in same}) == 1
    assert (str(ndd.DataType), str(ndd.ImageType), str(ndd.InterpType)) == (
        "DataType", "ImageType", "InterpType",
    )  # fmt: skip


# -- tensor() ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind", "shape"),
    [
        (7, "i32", ()), (2**31, "u32", ()), (-5.5, "f32", ()), (True, "bool", ()),
        ([1, 2], "i32", (2,)), ([1, 2.5], "f32", (2,)), ([True, 2], "i32", (2,)),
        ([[1, 2], [3, 4]], "i32", (2, 2)), ([2**32 - 1, 0], "u32", (2,)), ([], "f32", (0,)),
        ([[], []], "f32", (2, 0)), (range(4), "i32", (4,)), ((1, 2, 3), "i32", (3,)),
        (np.float64(2), "f64", ()), (np.int8(2), "i8", ()), ([np.int16(1)] * 2, "i16", (2,)),
        (np.array([1, 2], ">i2"), "i16", (2,)), ([np.zeros((2, 3), np.uint8)] * 4, "u8", (4, 2, 3)),
    ],
)  # fmt: skip
def test_the_type_of_plain_data(data, kind, shape):
    for made in (ndd.tensor(data), ndd.as_tensor(data), ndd.Tensor(data)):
        assert (str(made.dtype), made.shape, made.ndim, made.layout) == (
            kind,
            shape,
            len(shape),
            None,
        )
        assert np.array_equal(values(made), np.asarray(data))
        assert (made.size, made.nbytes) == (np.size(data), np.size(data) * made.dtype.bytes)
        assert made.itemsize == made.dtype.bytes and made.device == ndd.Device("cpu")


def test_python_numbers_are_built_in_the_wanted_type():
    assert values(ndd.tensor([2**40, -1], dtype=ndd.int64)).tolist() == [2**40, -1]
    assert values(ndd.tensor(2**64 - 1, dtype=ndd.uint64)) == 2**64 - 1
    assert ndd.tensor(0.1, dtype=ndd.float64).item() == 0.1
    assert values(ndd.tensor([1.5, -1.5], dtype=ndd.int16)).tolist() == [1, -1]
    assert values(ndd.tensor([0, 0.5, 2], dtype=ndd.bool)).tolist() == [False, True, True]
    assert values(ndd.tensor([1e6, 1.0], dtype=ndd.float16)).tolist() == [np.inf, 1.0]
    assert ndd.batch([[1], [2**40]], dtype="i64").tensors[1].item() == 2**40
    assert values(ndd.batch([1, 2**40], dtype="i64")) == [1, 2**40]
    assert values(ndd.batch([0.1, 0.2], dtype="f64")) == [0.1, 0.2]
    assert ndd.batch([np.float64(1), np.float64(2)]).dtype is ndd.float64
    # arrays are cast instead: halves away from zero, saturated
    arrays = np.array([1.5, -1.5, 300.0])
    assert values(ndd.tensor(arrays, dtype=ndd.uint8)).tolist() == [2, 0, 255]
    assert values(ndd.as_tensor(arrays, dtype=ndd.int16)).tolist() == [2, -2, 300]
    assert values(ndd.tensor(ndd.tensor(arrays), dtype="f32")).tolist() == [1.5, -1.5, 300.0]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ndd.tensor(2**32), OverflowError, "4294967296 is out of range for u32"),
        (lambda: ndd.tensor([-(2**40)]), OverflowError, "-1099511627776 is out of range for i32"),
        (lambda: ndd.tensor(2**70), OverflowError, "is out of range"),
        (lambda: ndd.tensor([300], dtype=ndd.uint8), OverflowError, "300 is out of range for u8"),
        (lambda: ndd.tensor([-1], dtype=ndd.uint64), OverflowError, "-1 is out of range for u64"),
        (lambda: ndd.tensor(NAN, dtype="i32"), OverflowError, "nan is out of range for i32"),
        (lambda: ndd.tensor([2.0**63], dtype="i64"), OverflowError, "out of range for i64"),
        (lambda: ndd.tensor([[1, 2], [3]]), ValueError, "must be rectangular"),
        (lambda: ndd.tensor(None), ValueError, "no data"),
        (lambda: ndd.tensor("abc"), TypeError, "cannot make a tensor from str"),
        (lambda: ndd.tensor({}), TypeError, "cannot make a tensor from dict"),
        (lambda: ndd.tensor(1j), TypeError, "cannot make a tensor from complex"),
        (lambda: ndd.tensor([1j]), TypeError, "cannot make a tensor from"),
        (lambda: ndd.tensor([None]), TypeError, "cannot make a tensor from"),
        (lambda: ndd.tensor(np.zeros(2, np.complex64)), TypeError, "complex64 is not supported"),
        (lambda: ndd.tensor(np.array([None])), TypeError, "object is not supported"),
        (lambda: ndd.tensor([1], layout="HW"), ValueError, "'HW' has 2 axes, but the data has 1"),
        (lambda: ndd.batch([1], layout="W"), ValueError, "'W' has 1 axes, but the data has 0"),
        (lambda: ndd.tensor([1], layout=5), TypeError, "layout must be a string, got int"),
        (lambda: ndd.tensor([1], dtype="x9"), ValueError, "unknown element type 'x9'"),
        (lambda: ndd.tensor([1], device="foo"), ValueError, "foo"),
        (lambda: ndd.Tensor(ndd.batch([1])), TypeError, "a Batch becomes one tensor with"),
        (lambda: ndd.Tensor(batch=ndd.batch([1])), ValueError, "needs `index_in_batch`"),
        (lambda: ndd.batch([]), ValueError, "a Batch without samples needs its element type"),
        (lambda: ndd.batch(5), TypeError, "made from a sequence of tensors, got int"),
        (lambda: ndd.batch("ab"), TypeError, "made from a sequence of tensors, got str"),
        (lambda: ndd.batch(np.float32(5)), ValueError, "0-dimensional"),
        (lambda: ndd.batch([ndd.batch([1])]), TypeError, "sample 0 is a Batch"),
        (lambda: ndd.batch([[1], [[2]]]), ValueError, "1-D of shape (1,), sample 1 is 2-D"),
        (lambda: ndd.batch([[1]], layout="HW"), ValueError, "layout 'HW' has 2 axes"),
        (lambda: ndd.Batch(), ValueError, "no tensors given"),
    ],
)  # fmt: skip
def test_what_cannot_become_a_tensor_or_batch(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)
    assert values(ndd.tensor([1]) + 1).tolist() == [2]


@every_mode
def test_layouts(mode):
    with mode:
        plain = ndd.tensor(np.zeros((2, 3), np.uint8))
        named = ndd.as_tensor(plain, layout="HW")
        assert (plain.layout, named.layout, ndd.tensor(named).layout) == (None, "HW", "HW")
        assert ndd.as_tensor(named, layout="AA").layout == "AA"
        assert ndd.as_tensor(named, layout="").layout == "HW"
        assert ndd.tensor([[1]], layout="").layout is None
        pending = ndd.as_tensor(named + 1, layout="XY")
        assert pending.layout == "XY" and values(pending).tolist() == [[1] * 3] * 2
        assert ndd.as_tensor(named) is not named
        batch = ndd.as_batch(np.zeros((2, 3, 4)), layout="HW")
        assert (batch.layout, batch.shape) == ("HW", [(3, 4)] * 2)
        assert ndd.as_batch(batch, layout="WH").layout == "WH" and batch.layout == "HW"
        assert ndd.batch(ndd.tensor(np.zeros((2, 3)), layout="HW")).layout == "W"
        assert ndd.as_tensor(batch).layout == "NHW"
        assert ndd.as_tensor(batch, layout="FHW").layout == "FHW"
        assert ndd.as_tensor(ndd.batch([1, 2])).layout == "N"
        assert ndd.as_tensor(ndd.batch([[1], [2]])).layout is None
        with pytest.raises(ValueError, match="layout 'HW' has 2 axes, but the data has 3"):
            ndd.as_tensor(batch, layout="HW")


@every_mode
def test_single_values(mode):
    with mode:
        five = ndd.tensor([[2]]) + 3
        assert five.item() == 5 and type(five.item()) is int
        assert (int(five), float(five), bool(five), bool(five - 5)) == (5, 5.0, True, False)
        assert [10, 11, 12, 13, 14, 15][five[0, 0]] == 15
        with pytest.raises(TypeError, match="only an integer without axes can be an index"):
            [1][five - 5]
        assert type(ndd.tensor(0.5).item()) is float and type(ndd.tensor(True).item()) is bool
        assert ndd.tensor(1.5, dtype=ndd.bfloat16).item() == 1.5
        two = ndd.tensor([1, 2])
        for use in (two.item, two.__bool__):
            with pytest.raises(ValueError, match=r"shape \(2,\)"):
                use()
        with pytest.raises(TypeError, match="only an integer without axes can be an index"):
            [1][ndd.tensor(0.0)]


@every_mode
def test_metadata_needs_no_execution(mode):
    """Metadata is known before anything has run, and does not change afterwards."""
    with mode:
        x = ndd.batch([np.ones((4, 5, 3), np.uint8), np.ones((6, 2, 3), np.uint8)], layout="HWC")
        y = ndd.cast(ndd.transpose(ndd.flip(x), perm=[2, 0, 1]), dtype=ndd.float16).slice[0, 1:]
        before = (y.shape, y.dtype, y.layout, y.batch_size, y.ndim, y.device)
        if mode is ndd.EvalMode.deferred:
            assert "pending" in repr(y)
        assert before == (
            [(3, 5), (5, 2)], ndd.float16, "HW", 2, 2, ndd.Device("cpu"),
        )  # fmt: skip
        assert y.evaluate() is y and "pending" not in repr(y)
        assert before == (y.shape, y.dtype, y.layout, y.batch_size, y.ndim, y.device)
        assert [np.asarray(t).shape for t in y] == y.shape
        assert {np.asarray(t).dtype for t in y} == {np.dtype(np.float16)}


def test_repr_shows_values_only_when_they_are_there():
    with ndd.EvalMode.deferred:
        x = ndd.tensor([1, 2], layout="W") + 1
        assert "pending" in repr(x) and "[2 3]" not in repr(x)
        x.evaluate()
        for part in ("[2 3]", "dtype=i32", "layout='W'", "shape=(2,)", "device='cpu'"):
            assert part in repr(x)
        assert "batch_size=2" in repr(ndd.batch([[1], [2]]))


# -- Batch ---------------------------------------------------------------------------------------


@every_mode
@pytest.mark.parametrize("pending", [False, True])
def test_samples_are_selected(mode, pending):
    with mode:
        b = ndd.batch([[0], [1, 1], [2, 2, 2]], layout="X")
        if pending:
            b = b + 0
        want = [[0], [1, 1], [2, 2, 2]]
        for pick in (b.select, b.tensors.__getitem__):
            for i in (0, 2, -1, -3, np.int64(1), ndd.tensor(1)):
                one = pick(i)
                assert isinstance(one, ndd.Tensor) and one.layout == "X"
                assert values(one).tolist() == want[int(i)]
            for key, chosen in [
                (slice(1, None), [1, 2]), (slice(None, None, -1), [2, 1, 0]),
                (slice(-2, 9), [1, 2]),
            ]:  # fmt: skip
                some = pick(key)
                assert isinstance(some, ndd.Batch) and values(some) == [want[k] for k in chosen]
            for key in ([2, 0], (2, 0), np.array([2, 0])):
                some = pick(key)
                assert (values(some), some.batch_size, some.layout) == ([want[2], want[0]], 2, "X")
            assert values(pick([1, 1])) == [want[1]] * 2
            assert values(pick([1, 2]).tensors[1]).tolist() == want[2]
            for wrong, error in [(3, IndexError), (-4, IndexError), ([0, 3], IndexError),
                                 ("a", TypeError), (1.5, TypeError)]:  # fmt: skip
                with pytest.raises(error, match=r"sample"):
                    pick(wrong)
        assert (
            [values(t).tolist() for t in b] == [t.tolist() for t in map(values, b.tensors)] == want
        )
        assert len(b.tensors) == 3 and isinstance(b.tensors.tolist(), list)
        assert b.tensors.as_batch() is b and b.select(...) is b
        assert values(ndd.batch(b.tensors)) == want
        assert values(ndd.batch(b.tensors[1:])) == want[1:]
        assert values(ndd.Tensor(batch=b, index_in_batch=1)).tolist() == want[1]


def test_a_batch_is_not_subscriptable():
    b = ndd.batch([[1], [2]])
    with pytest.raises(TypeError, match=r"use batch\.tensors\[i\] .* batch\.slice\[i\]"):
        b[0]
    assert len(b) == 2


@every_mode
def test_items_of_several_types_promote(mode):
    with mode:
        mixed = ndd.batch([np.zeros(2, np.uint8), np.array([2.5, 300.0])])
        assert mixed.dtype is ndd.float64 and values(mixed) == [[0, 0], [2.5, 300.0]]
        for numbers in ([0, 0.5, -7.5], [True, 0.5], [0.5, 3]):
            assert ndd.batch(numbers).dtype is ndd.tensor(numbers).dtype is ndd.float32
            assert values(ndd.batch(numbers)) == numbers
        assert ndd.batch([True, 2]).dtype is ndd.int32
        lists = ndd.batch([[1, 2], [0.5], []])  # an empty list has no type of its own
        assert lists.dtype is ndd.float32 and values(lists) == [[1, 2], [0.5], []]
        assert ndd.batch([[1, 2], []]).dtype is ndd.int32
        one = np.array([1], np.int8), np.array([200], np.uint8), ndd.tensor([True])
        assert ndd.batch(one).dtype is ndd.int16 and values(ndd.batch(one)) == [[1], [200], [1]]
        assert ndd.batch([[1], [2]], dtype=ndd.float16).dtype is ndd.float16
        pending = ndd.tensor([1.0]) + 1
        assert values(ndd.as_batch([pending, np.array([3.0], np.float32)])) == [[2.0], [3.0]]
        assert values(ndd.batch(np.array([k]) for k in range(3))) == [[0], [1], [2]]


def test_broadcast_repeats_one_sample():
    b = ndd.Batch.broadcast([1, 2], 3)
    assert values(b) == [[1, 2]] * 3 and b.dtype is ndd.int32
    assert ndd.Batch.broadcast(np.uint8(3), 2, dtype=ndd.float32).dtype is ndd.float32
    assert values(b + 1) == [[2, 3]] * 3
    for wrong, error, text in [
        ((ndd.batch([1]), 2), TypeError, "Batch"), (([1], -1), ValueError, "must not be negative"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            ndd.Batch.broadcast(*wrong)


@every_mode
def test_copies_and_wraps(mode):
    with mode:
        a = np.arange(4, dtype=np.float32)
        copied, shared = ndd.tensor(a), ndd.as_tensor(a)
        batches = ndd.batch([a, a]), ndd.as_batch([a, a]), ndd.as_batch(np.stack([a, a]))
        a[0] = 9
        assert values(copied)[0] == 0 and values(shared)[0] == 9
        assert [values(b)[0][0] for b in batches] == [0, 9, 0]
        again, twin = ndd.tensor(shared), ndd.as_tensor(shared)
        a[0] = 5
        assert values(again)[0] == 9 and values(twin)[0] == 5
        b = batches[1]
        assert ndd.as_batch(b) is b and ndd.batch(b) is not b
        assert shared.cpu() is shared and shared.to_device("cpu") is shared
        moved = shared.to_device("cpu", force_copy=True)
        clone = copy.deepcopy(shared)
        assert copy.copy(shared) is shared
        a[0] = 1
        assert values(moved)[0] == values(clone)[0] == 5
        assert b.to_device(ndd.Device("cpu")) is b and b.cpu() is b and b.evaluate() is b
        with pytest.raises(ValueError, match="a device is needed, got None"):
            shared.to_device(None)


@every_mode
def test_equal_samples_become_one_tensor(mode):
    with mode:
        stacked = np.arange(12, dtype=np.int16).reshape(2, 2, 3)
        computed = ndd.flip(ndd.batch(stacked[..., None])).slice[..., 0]
        for b in (
            ndd.batch(list(stacked)),
            ndd.as_batch(stacked),
            computed,
            computed.select([1, 0]),
        ):
            whole = ndd.as_tensor(b)
            assert whole.shape == (2, 2, 3) and whole.dtype is ndd.int16
            assert np.array_equal(values(whole), np.stack(values(b)))
            assert ndd.tensor(b, dtype=ndd.float32).dtype is ndd.float32
        ragged = ndd.batch([[1, 2], [3]])
        for make in (ndd.as_tensor, ndd.tensor, lambda x: x.torch()):
            with pytest.raises(ValueError, match=r"different shapes.*pad=True"):
                make(ragged)
        assert values(ndd.as_tensor(ragged, pad=True)).tolist() == [[1, 2], [3, 0]]
        assert values(ndd.tensor(ragged, pad=True)).tolist() == [[1, 2], [3, 0]]
