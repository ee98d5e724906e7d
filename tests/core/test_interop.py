"""Memory that comes from and goes to other libraries: shared where it can be, never stale."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import ndd

every_mode = pytest.mark.parametrize("mode", list(ndd.EvalMode), ids=lambda m: m.name)
NATIVE = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bool".split()


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")


def strided(kind):
    """The same numbers in every kind of memory."""
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    if kind == "contiguous":
        return a
    if kind == "reversed":
        return a[::-1, ::-1].copy()[::-1, ::-1]
    if kind == "every other":
        wide = np.full((8, 18), -1, np.float32)
        wide[::2, ::3] = a
        return wide[::2, ::3]
    if kind == "transposed":
        return a.T.copy().T
    if kind == "fortran":
        return np.asfortranarray(a)
    if kind == "big-endian":
        return a.astype(">f4")
    if kind == "unaligned":
        raw = np.zeros(a.nbytes + 1, np.uint8)
        view = raw[1:].view(np.float32).reshape(a.shape)
        view[...] = a
        return view
    if kind == "field":
        table = np.zeros(a.shape, [("tag", "u1"), ("x", "f4")])
        table["x"] = a
        return table["x"]
    assert kind == "read-only"
    a.flags.writeable = False
    return a


MEMORY = (
    "contiguous",
    "reversed",
    "every other",
    "transposed",
    "fortran",
    "big-endian",
    "unaligned",
    "field",
    "read-only",
)


# -- NumPy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MEMORY)
def test_every_kind_of_memory_reads_right(kind):
    want = np.arange(24, dtype=np.float32).reshape(4, 6)
    for wrap in (ndd.tensor, ndd.as_tensor):
        t = wrap(strided(kind))
        assert t.shape == (4, 6) and t.dtype is ndd.float32
        assert np.array_equal(np.asarray(t), want)
        assert np.array_equal(np.asarray(t + 1), want + 1)
        assert np.array_equal(np.asarray(ndd.reshape(t, shape=[24])), want.ravel())
        assert np.array_equal(np.asarray(t[::-2, 1:]), want[::-2, 1:])
        assert np.array_equal(t.torch().numpy(), want)
    for batch in (ndd.as_batch([strided(kind), strided(kind)[:2]]), ndd.as_batch(strided(kind))):
        rows = [want, want[:2]] if batch.ndim == 2 else list(want)
        assert all(np.array_equal(np.asarray(t), r) for t, r in zip(batch, rows, strict=True))
        assert all(
            np.array_equal(np.asarray(t), r * 2) for t, r in zip(batch * 2, rows, strict=True)
        )
    whole = np.asarray(ndd.as_tensor(ndd.as_batch(strided(kind))))
    assert np.array_equal(whole, want)


@pytest.mark.parametrize("kind", ["contiguous", "reversed", "every other", "transposed", "fortran"])
def test_wrapping_shares_memory_both_ways(kind):
    a = strided(kind)
    t = ndd.as_tensor(a)
    view = np.asarray(t)
    assert np.shares_memory(view, a) and view.strides == a.strides
    a[1, 2] = -5
    assert view[1, 2] == -5 and np.asarray(t + 0)[1, 2] == -5
    view[3, 4] = -7
    assert a[3, 4] == -7
    rows = ndd.as_batch(a)
    np.asarray(rows.tensors[2])[0] = -9
    assert a[2, 0] == -9
    assert not np.shares_memory(np.asarray(ndd.tensor(a)), a)


@pytest.mark.parametrize("name", NATIVE)
def test_every_type_goes_through_numpy_torch_and_dlpack(name):
    a = np.array([[0, 1, 1], [0, 0, 1]]).astype(name)
    t = ndd.as_tensor(a)
    shared = (
        np.asarray(t),
        np.from_dlpack(t),
        t.torch().numpy(),
        torch.from_dlpack(t).numpy(),
        np.asarray(ndd.as_tensor(torch.from_numpy(a))),
    )
    a[1, 0] = 1
    for view in shared:
        assert view.dtype == np.dtype(name) and np.array_equal(view, a)
    assert t.__dlpack_device__() == (1, 0)


def test_array_protocol():
    t = ndd.tensor(np.arange(3, dtype=np.int32))
    assert np.shares_memory(np.asarray(t), np.asarray(t))
    assert np.shares_memory(np.array(t, copy=False), np.asarray(t))
    assert not np.shares_memory(np.array(t), np.asarray(t))
    assert np.asarray(t, np.float64).dtype == np.float64
    assert np.asarray(t, np.int32).dtype == np.int32
    with pytest.raises(ValueError, match="needs a copy"):
        np.array(t, np.float64, copy=False)
    assert np.asarray(ndd.tensor(2.5)).shape == () and np.asarray(ndd.tensor([])).shape == (0,)
    with pytest.raises(AttributeError, match="only for GPU tensors"):
        _ = t.__cuda_array_interface__


def test_read_only_memory_stays_read_only():
    a = strided("read-only")
    t = ndd.as_tensor(a, layout="HW")
    views = [
        t,
        ndd.as_tensor(t),
        ndd.as_batch(a).tensors[0],
        ndd.as_tensor(ndd.as_batch([a])),
        ndd.as_batch([a]).tensors[0],
        ndd.as_tensor(ndd.as_batch(a)),
    ]
    for view in views:
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(view)[...] = 1
    t.torch()[...] = 1  # a copy, since torch has no read-only memory
    assert a[0, 0] == 0
    assert np.asarray(t + 1).flags.writeable and np.asarray(ndd.copy(t)).flags.writeable


def test_results_outlive_their_handles():
    def make():
        x = ndd.tensor(np.arange(1000, dtype=np.int32))
        y = x * 2
        return np.asarray(y), (x + 1).torch(), np.from_dlpack(x + 2), np.asarray((x + 3)[::-1])

    arrays = make()
    gc.collect()
    for _ in range(20):  # would reuse freed memory
        (ndd.tensor(np.full(1000, -1, np.int32)) * 1).evaluate()
    i = np.arange(1000)
    for got, want in zip(arrays, (i * 2, i + 1, i + 2, i[::-1] + 3), strict=True):
        assert np.array_equal(np.asarray(got), want)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 3), (1,), (1, 1, 1, 1, 1, 1)])
def test_empty_and_scalar_shapes(shape):
    a = np.ones(shape, np.int16)
    for t in (ndd.as_tensor(a), ndd.tensor(torch.from_numpy(a)), ndd.copy(a)):
        assert t.shape == shape and t.size == a.size
        assert np.array_equal(np.asarray(t), a) and tuple(t.torch().shape) == shape
        assert np.from_dlpack(t).shape == shape
        assert np.array_equal(np.asarray(t + np.int16(2)), a + 2)
    b = ndd.as_batch([a, a])
    assert b.shape == [shape] * 2 and tuple(b.torch().shape) == (2, *shape)


def test_other_sources_of_host_memory():
    a = np.arange(6, dtype=np.float64).reshape(2, 3)

    class OnlyArray:
        def __array__(self, dtype=None, copy=None):
            return a

    class OnlyInterface:
        __array_interface__ = a.__array_interface__

    class OnlyDLPack:
        def __dlpack__(self, **kwargs):
            return a.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return a.__dlpack_device__()

    for source in (OnlyArray(), OnlyInterface(), OnlyDLPack()):
        t = ndd.as_tensor(source)
        assert np.shares_memory(np.asarray(t), a) and t.shape == (2, 3)
        assert np.array_equal(np.asarray(ndd.transpose(source)), a.T)
        assert ndd.as_batch(source).shape == [(3,), (3,)]


def test_numpy_does_not_take_operators_over():
    t = ndd.tensor([1, 2])
    added = np.array([10, 20], np.int32) + t
    assert isinstance(added, ndd.Tensor) and np.asarray(added).tolist() == [11, 22]


# -- torch and bfloat16 --------------------------------------------------------------------------


def test_torch_tensors_are_shared():
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    for view in (x, x.T, x[:, ::2], x.clone().requires_grad_()):
        t = ndd.as_tensor(view)
        assert np.array_equal(np.asarray(t), view.detach().numpy())
        with torch.no_grad():
            view[0, 0] += 5
        assert np.asarray(t)[0, 0] == view[0, 0]
    out = ndd.as_tensor(x).torch()
    out[0, 1] = -1
    assert x[0, 1] == -1
    assert ndd.as_tensor(x).torch(copy=True).data_ptr() != x.data_ptr()
    flipped = ndd.as_tensor(x.numpy()[::-1]).torch()  # torch has no negative strides: a copy
    assert torch.equal(flipped, x.flip(0))


def test_batches_become_torch_tensors():
    dense = ndd.as_batch(np.zeros((2, 3), np.float32)) + 1.0
    assert dense.torch().data_ptr() == dense.torch(copy=False).data_ptr()
    assert dense.torch(copy=True).data_ptr() != dense.torch().data_ptr()
    stacked = np.zeros((2, 3), np.float32)
    ndd.as_batch(stacked).torch(copy=False)[1, 2] = 4
    assert stacked[1, 2] == 4
    parts = ndd.as_batch([np.zeros(3), np.ones(3)])
    assert parts.torch().tolist() == [[0] * 3, [1] * 3]
    with pytest.raises(ValueError, match="a copy is needed"):
        parts.torch(copy=False)
    swapped = dense.select([1, 0])
    with pytest.raises(ValueError, match="a copy is needed"):
        swapped.torch(copy=False)
    ragged = ndd.batch([[1, 2], [3]])
    assert ragged.torch(pad=True).tolist() == [[1, 2], [3, 0]]
    with pytest.raises(ValueError, match="padding needs a copy"):
        ragged.torch(copy=False, pad=True)
    assert not hasattr(ragged, "__dlpack__")  # and no array: test_mistakes.py


def test_bfloat16():
    x = torch.tensor([[1.5, -2.0, 3.25], [float("inf"), 1e-3, 65536.0]], dtype=torch.bfloat16)
    t = ndd.as_tensor(x)
    assert t.dtype is ndd.bfloat16 and t.nbytes == 12
    x[0, 0] = 7.5  # still shared
    assert np.asarray(t)[0, 0] == 7.5 and np.asarray(t).dtype == np.float32
    assert torch.equal(t.torch(), x) and t.torch().data_ptr() == x.data_ptr()
    assert torch.equal(torch.from_dlpack(t), x)
    with pytest.raises(ValueError, match="can only be copied to float32"):
        np.array(t, copy=False)
    assert torch.equal(ndd.transpose(t).torch(), x.T)
    assert torch.equal(
        ndd.pad(t, shape=[3, 3], fill_value=0.3).torch()[2], torch.full((3,), 0.3).bfloat16()
    )
    assert torch.equal(ndd.as_batch([x, x[:1]]).tensors[1].torch(), x[:1])
    # rounded to nearest even, like torch, also at ties and at the top
    numbers = [1.00390625, 1.01171875, 3.4e38, -1e-40, 0.1, float("nan"), 2.0]
    mine = ndd.tensor(numbers, dtype=ndd.bfloat16).torch()
    assert torch.equal(mine.nan_to_num(5), torch.tensor(numbers).bfloat16().nan_to_num(5))
    assert ndd.full(ndd.tensor(0.1, dtype=ndd.bfloat16), shape=[2]).torch().dtype is torch.bfloat16


# -- memory that may change under us -------------------------------------------------------------

READERS = {
    "flip": lambda x: ndd.flip(x),
    "crop": lambda x: ndd.crop(x, crop=[2, 2]),
    "slice": lambda x: ndd.slice(x, start=[0, 0], shape=[2, 2]),
    "pad": lambda x: ndd.pad(x, shape=[5]),
    "transpose": lambda x: ndd.transpose(x),
    "no transpose": lambda x: ndd.transpose(x, perm=[0, 1, 2]),
    "reshape": lambda x: ndd.reshape(x, shape=[-1]),
    "reinterpret": lambda x: ndd.reinterpret(x, dtype=ndd.uint8),
    "squeeze": lambda x: ndd.squeeze(x, axes=[2]),
    "expand_dims": lambda x: ndd.expand_dims(x, axes=[0]),
    "stack": lambda x: ndd.stack(x, x),
    "cat": lambda x: ndd.cat(x, x, axis=1),
    "index": lambda x: x.slice[1:] if isinstance(x, ndd.Batch) else x[1:],
    "nothing": lambda x: x.slice[...] if isinstance(x, ndd.Batch) else x[...],
    "copy": lambda x: ndd.copy(x),
    "cast": lambda x: (
        ndd.as_tensor(x, dtype="f64") if isinstance(x, ndd.Tensor) else ndd.as_batch(x, "f64")
    ),
    "relabelled": lambda x: ndd.reshape(x, layout="ABC"),
    "two steps": lambda x: ndd.squeeze(ndd.expand_dims(x, axes=[0]), axes=[0]),
    "arithmetic": lambda x: x * 2 + 1,
    "full_like": lambda x: ndd.full_like(x, x),
    "repeated": lambda x: (
        ndd.reshape(x, shape=[-1], batch_size=2) if isinstance(x, ndd.Tensor) else x + 0
    ),
    "device copy": lambda x: x.to_device("cpu", force_copy=True),
    "permuted": lambda x: ndd.permute_batch(x, indices=[0] * getattr(x, "batch_size", 1)),
}


def snapshot(x):
    return [np.array(t) for t in (x if isinstance(x, ndd.Batch) else [x])]


@every_mode
@pytest.mark.parametrize("fused", ["1", "0"], ids=["fused", "unfused"])
def test_wrapped_memory_is_read_before_the_call_returns(mode, fused, monkeypatch):
    monkeypatch.setenv("NDD_FUSION", fused)
    a = np.arange(12, dtype=np.float32).reshape(4, 3, 1)
    sources = {
        "tensor": lambda m: ndd.as_tensor(m, layout="HWC"),
        "named later": lambda m: ndd.as_tensor(ndd.as_tensor(m), layout="HWC"),
        "batch": lambda m: ndd.as_batch([m, m], layout="HWC"),
        "sample": lambda m: ndd.as_batch([m, m], layout="HWC").tensors[1],
        "torch": lambda m: ndd.as_tensor(torch.from_numpy(m), layout="HWC"),
        "strided": lambda m: ndd.as_tensor(m[::-1], layout="HWC"),
        "broadcast": lambda m: ndd.Batch.broadcast(m, 2),
    }
    with mode:
        for kind, wrap in sources.items():
            for name, op in READERS.items():
                want = snapshot(op(wrap(a.copy())))
                memory = a.copy()
                result = op(wrap(memory))
                memory[...] = -99
                got = snapshot(result)
                assert all(map(np.array_equal, got, want)), f"{name} of a {kind} sees later writes"
                for array in got:
                    assert not np.shares_memory(array, memory)


@every_mode
def test_wrapped_arguments_are_read_before_the_call_returns(mode):
    with mode:
        x = ndd.tensor(np.arange(12, dtype=np.float32).reshape(4, 3, 1), layout="HWC")
        memory = np.array([1, 1], np.int32)
        flags = np.array([0, 1], np.int32)
        results = [
            ndd.slice(x, start=memory, shape=ndd.as_tensor(memory)),
            ndd.flip(x, horizontal=ndd.as_batch(flags)),
            x[ndd.as_tensor(memory[:1].reshape(()))],
            ndd.pad(x, fill_value=ndd.as_batch(flags.astype(np.float32)), shape=[5]),
            ndd.brightness(x, brightness=ndd.as_batch(flags.astype(np.float32))),
        ]
        before = [
            ndd.slice(x, start=[1, 1], shape=[1, 1]),
            ndd.flip(x, horizontal=ndd.batch([0, 1])),
            x[1],
            ndd.pad(x, fill_value=ndd.batch([0.0, 1.0]), shape=[5]),
            ndd.brightness(x, brightness=ndd.batch([0.0, 1.0])),
        ]
        memory[...] = 3
        flags[...] = 7
        for got, want in zip(results, before, strict=True):
            assert all(map(np.array_equal, snapshot(got), snapshot(want)))


# -- the simulated GPU ---------------------------------------------------------------------------


class OnDevice:
    """Another library's array in device memory, which is host memory on the simulated GPU."""

    def __init__(self, array, strides=None, readonly=False):
        self.array = array
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.__array_interface__["data"][0], readonly),
            "strides": strides,
        }


@every_mode
def test_device_memory_is_wrapped(mode, simulated):
    with mode:
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        t = ndd.as_tensor(OnDevice(a), layout="HW")
        assert (t.device, t.shape, t.dtype, t.layout) == (
            ndd.Device("gpu", 0),
            (2, 3),
            ndd.float32,
            "HW",
        )
        a[0, 0] = 5
        assert np.asarray(t.cpu())[0, 0] == 5
        added = t + 1
        reshaped = ndd.reshape(t, shape=[6])
        a[0, 0] = 9
        assert added.device == t.device
        assert np.asarray(added.cpu()).tolist() == [[6, 2, 3], [4, 5, 6]]
        assert np.asarray(reshaped.cpu()).tolist() == [5, 1, 2, 3, 4, 5]
        turned = OnDevice(a.T, strides=a.T.strides)
        assert np.array_equal(np.asarray(ndd.as_tensor(turned).cpu()), a.T)
        copied = ndd.tensor(OnDevice(a))
        a[0, 0] = 1
        assert np.asarray(copied.cpu())[0, 0] == 9
        with pytest.raises(TypeError, match=r"copy it to the host first: tensor\.cpu\(\)"):
            np.asarray(t)
        interface = added.__cuda_array_interface__
        assert (interface["shape"], interface["typestr"], interface["version"]) == (
            (2, 3),
            "<f4",
            3,
        )
        assert np.array_equal(np.from_dlpack(added), a * 0 + [[6, 2, 3], [4, 5, 6]])


@pytest.mark.gpu
def test_values_move_between_devices(simulated):
    b = ndd.batch([np.ones((2, 3), np.uint8), np.full((1, 3), 7, np.uint8)], layout="HW")
    g = b.gpu()
    assert g.device == ndd.Device("gpu", 0) and g.layout == "HW" and g.shape == b.shape
    assert g.gpu() is g and g.to_device("gpu") is g
    assert snapshot(g.cpu())[1].tolist() == [[7, 7, 7]]
    assert snapshot(g.select([1, 0]).cpu())[0].tolist() == [[7, 7, 7]]
    assert np.asarray(g.tensors[1].cpu()).tolist() == [[7, 7, 7]]
    t = ndd.tensor([1.0, 2.0], device="gpu")
    assert t.device.device_type == "gpu" and np.asarray(t.cpu()).tolist() == [1.0, 2.0]
    assert ndd.zeros(shape=[2], device="gpu").device.device_type == "gpu"
    assert ndd.as_tensor(t, device="cpu").device.device_type == "cpu"
    half = ndd.tensor([1.5], dtype=ndd.bfloat16, device="gpu")
    assert half.item() == 1.5
    with pytest.raises(ValueError, match="same device"):
        ndd.batch([t, ndd.tensor([1.0, 2.0])])


def test_values_of_the_simulated_gpu_reach_torch(simulated):
    """Torch takes them for host memory, which they are."""
    g = ndd.batch([np.ones((2, 3), np.uint8), np.full((1, 3), 7, np.uint8)], layout="HW").gpu()
    assert g.torch(pad=True).tolist() == [[[1] * 3] * 2, [[7] * 3, [0] * 3]]
    assert ndd.tensor([1.0, 2.0], device="gpu").torch().tolist() == [1.0, 2.0]
    half = ndd.tensor([1.5], dtype=ndd.bfloat16, device="gpu")
    assert torch.from_dlpack(half).dtype is torch.bfloat16
    assert half.torch().dtype is torch.bfloat16


def test_without_a_gpu_the_message_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"NDD_GPU=simulate"):
        ndd.tensor([1]).gpu()
    assert np.asarray(ndd.tensor([1]) + 1).tolist() == [2]
