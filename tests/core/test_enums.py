"""Tensors and batches of enum values: made, moved and converted as upstream does."""

from __future__ import annotations

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import nvidia.dali.types as dali_types
import pytest

import ndd
from ndd import types

MEMBERS = [
    (types.INTERP_CUBIC, ndd.InterpType, 2),
    (types.BGR, ndd.ImageType, 1),
    (types.FLOAT, ndd.DataType, 9),
    (dali_types.INTERP_CUBIC, ndd.InterpType, 2),
    (dali_types.YCbCr, ndd.ImageType, 3),
]
FILTERS = [types.INTERP_NN, types.INTERP_CUBIC, types.INTERP_LINEAR]


def numbers(value):
    """What a cast to int32 gives, which works on every device."""
    found = ndd.cast(value, dtype=ndd.int32).cpu()
    if isinstance(found, ndd.Tensor):
        return np.asarray(found).tolist()
    return [np.asarray(t).tolist() for t in found]


def test_tensors_of_members(mode, device):
    for member, dtype, number in MEMBERS:
        for make in (ndd.Tensor, ndd.tensor, ndd.as_tensor):
            t = make(member, device=device)
            assert t.dtype is dtype and t.dtype == dtype and t.shape == () and t.itemsize == 4
            assert numbers(t) == number and t.item() == member
            assert t.device.device_type == device
        assert numbers(ndd.tensor([[member], [member]], device=device)) == [[number], [number]]
        assert numbers(ndd.tensor(member, dtype=ndd.uint8, device=device)) == number
        assert ndd.tensor(number, dtype=dtype, device=device).item() == member
        assert numbers(ndd.tensor(np.uint8([number]), dtype=dtype, device=device)) == [number]
        assert ndd.tensor(number, dtype=str(dtype)).dtype is dtype


def test_batches_of_members(mode, device):
    b = ndd.batch(FILTERS, device=device)
    assert b.dtype == ndd.InterpType and b.shape == [(), (), ()]
    assert numbers(b) == [0, 2, 1]
    assert numbers(ndd.batch([0, 2], dtype=ndd.ImageType, device=device)) == [0, 2]
    assert numbers(ndd.batch(FILTERS, dtype=ndd.int32, device=device)) == [0, 2, 1]
    assert numbers(ndd.Batch.broadcast(types.GRAY, 3, device=device)) == [2, 2, 2]
    ragged = ndd.batch([[types.RGB], [types.BGR, types.GRAY]], device=device)
    assert ragged.shape == [(1,), (2,)] and numbers(ragged) == [[0], [1, 2]]
    assert numbers(ndd.as_tensor(ragged, pad=True)) == [[0, 0], [1, 2]]
    assert b.select(1).item() is types.INTERP_CUBIC
    assert numbers(ndd.as_tensor(b)) == [0, 2, 1] and numbers(ndd.batch(ndd.as_tensor(b))) == [
        0,
        2,
        1,
    ]
    assert numbers(ndd.batch([ndd.tensor(types.INTERP_CUBIC), 1])) == [2, 1]


def test_values_can_be_moved(mode, device):
    t = ndd.tensor(FILTERS, device=device)
    for moved, wanted in (
        (t[::-1], [1, 2, 0]),
        (t[1], 2),
        (ndd.reshape(t, shape=[3, 1]), [[0], [2], [1]]),
        (ndd.stack(t, t), [[0, 2, 1], [0, 2, 1]]),
        (ndd.cat(t, t), [0, 2, 1, 0, 2, 1]),
        (ndd.expand_dims(t, axes=[0]), [[0, 2, 1]]),
        (ndd.pad(t, shape=[4]), [0, 2, 1, 0]),
        (ndd.copy(t), [0, 2, 1]),
        (t.to_device(device, force_copy=True), [0, 2, 1]),
        (ndd.transpose(ndd.stack(t, t), perm=[1, 0]), [[0, 0], [2, 2], [1, 1]]),
        (ndd.permute_batch(ndd.batch(FILTERS, device=device), indices=[2, 0, 1]), [1, 0, 2]),
        (ndd.cast(t, dtype=ndd.ImageType), [0, 2, 1]),
        (ndd.reinterpret(ndd.reinterpret(t, dtype=ndd.uint8), dtype=ndd.InterpType), [0, 2, 1]),
    ):
        assert moved.dtype in (ndd.InterpType, ndd.ImageType)
        assert numbers(moved) == wanted
    drawn = ndd.random.choice(FILTERS, batch_size=20, rng=ndd.random.RNG(seed=1))
    assert drawn.dtype == ndd.InterpType and set(numbers(drawn)) == {0, 1, 2}


def test_arguments_take_enum_values_per_sample(mode, device):
    rng = np.random.default_rng(3)
    samples = [rng.integers(0, 256, (4, 5, 3), dtype=np.uint8) for _ in FILTERS]
    images = ndd.batch(samples, layout="HWC", device=device)
    filters = ndd.batch(FILTERS, device=device)
    theirs = dali.batch(samples, layout="HWC")
    their_filters = dali.batch([getattr(dali_types, f.name) for f in FILTERS])
    for ours, wanted in (
        (ndd.resize(images, size=[9, 7], interp_type=filters),
         dali.resize(theirs, size=[9, 7], interp_type=their_filters)),
        (ndd.resize(images, size=[9, 7], mag_filter=filters.select(1)),
         dali.resize(theirs, size=[9, 7], mag_filter=their_filters.select(1))),
    ):  # fmt: skip
        for a, b in zip(ours.cpu(), wanted, strict=True):
            assert np.abs(np.int32(a) - np.int32(b)).max() <= 1


def test_conversions_that_upstream_refuses(mode, device):
    t = ndd.tensor(types.INTERP_CUBIC, device=device)
    image = ndd.zeros(shape=[2, 2, 3], dtype=ndd.uint8, layout="HWC", device=device)
    pair = ndd.batch([image, image])
    for call, text in (
        (lambda: ndd.cast(t, dtype=ndd.float32), "InterpType cannot be converted to f32"),
        (lambda: ndd.cast(ndd.tensor(2.0), dtype=ndd.InterpType), "f32 cannot be converted to InterpType"),
        (lambda: ndd.tensor(np.array([1.0]), dtype=ndd.ImageType), "f64 cannot be converted to ImageType"),
        (lambda: ndd.cast_like(t, ndd.tensor(2.0)), "InterpType cannot be converted to f32"),
        (lambda: t + 1, "operands of `\\+` cannot be InterpType; ndd.cast"),
        (lambda: t == types.INTERP_CUBIC, "operands of `==` cannot be InterpType"),
        (lambda: ndd.math.sqrt(t), "`sqrt` cannot be InterpType"),
        (lambda: ndd.reductions.max(t), "element type InterpType is not supported; ndd.cast"),
        (lambda: ndd.full(t, shape=[2]), "element type InterpType is not supported"),
        (lambda: ndd.zeros(shape=[2], dtype=ndd.InterpType), "`dtype` cannot be InterpType"),
        (lambda: ndd.stack(t, ndd.cast(t, dtype=ndd.int32)), "the inputs have different element types"),
        (lambda: ndd.brightness(image, brightness=t), "`brightness` must be a number, got InterpType"),
        (lambda: ndd.rotate(image, angle=t), "`angle` must be a number, got InterpType"),
        (lambda: ndd.resize(pair, size=[2, 2], interp_type=ndd.batch([0.0, 1.0])),
         "`interp_type` must be an InterpType or an integer, got f32"),
        (lambda: ndd.rotate(pair, angle=3, interp_type=ndd.batch(FILTERS[:2])),
         "`interp_type` must be the same for all samples, got a Batch"),
        (lambda: ndd.cast(image, dtype=t), "is not an element type that ndd knows"),
        (lambda: t.torch(), "torch has no type for InterpType values; ndd.cast"),
        (lambda: t.__dlpack__(), "DLPack has no type for InterpType"),
        (lambda: np.asarray(t.cpu()), "NumPy has no type for InterpType"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=text):
            call()
    with pytest.raises(OverflowError, match="8589934592 is out of range for InterpType"):
        ndd.tensor(2**33, dtype=ndd.InterpType)


def test_the_oracle_agrees():
    """The same calls, upstream: a change there shows here."""
    t = dali.tensor(dali_types.INTERP_CUBIC)
    assert str(t.dtype) == "InterpType" and dali.cast(t, dtype=dali.int32).item() == 2
    for call in (
        lambda: dali.cast(t, dtype=dali.float32),
        lambda: dali.cast(dali.tensor(2.0), dtype=dali.InterpType),
        lambda: t + 1,
        lambda: dali.reductions.max(t),
        lambda: t.torch(),
    ):
        with pytest.raises(RuntimeError), dali.EvalMode.sync_cpu:
            call()


def test_repr_names_the_members():
    assert "[INTERP_NN INTERP_CUBIC INTERP_LINEAR]" in repr(ndd.tensor(FILTERS))
    assert "dtype=InterpType" in repr(ndd.batch(FILTERS))
    assert "100" in repr(ndd.tensor(100, dtype=ndd.InterpType))  # no member has this number
