"""Batches without samples: every op takes one and gives one, in every mode and on both devices."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import ndd
from ndd.core.schema import OPS

# Examples that number the samples of their batch: there are none here.
NUMBERED = {"permute_batch": {"indices": []}, "multi_paste": {"in_ids": None}}
# Ops whose results have axes that depend on extents or contents of samples.
UNKNOWN_AXES = {"one_hot", "decoders.numpy"}
# Ops that take inputs only from the CPU, and compute only there.
CPU_ONLY = {"peek_image_shape"}
# Ops whose example has no result on this machine: they need hardware.
NEEDS_HARDWARE = {"optical_flow"}
NAMES = [name for name in OPS if name not in NEEDS_HARDWARE]


def recorded(name, monkeypatch):
    """The last call of an op in its own example: (inputs, named choices, results)."""
    op = OPS[name]
    calls = []
    maker = "_call" if op.has_effects else "_made"
    made = op.public.__globals__[maker]

    def record(op, inputs, choices, *make):
        result = made(op, inputs, choices, *make)
        calls.append((inputs, choices, result))
        return result

    # Deferred, because nothing of the example has to be computed.
    with monkeypatch.context() as patch, ndd.EvalMode.deferred:
        patch.setitem(op.public.__globals__, maker, record)
        parsed = doctest.DocTestParser().get_doctest(op.public.__doc__, {"ndd": ndd}, name, None, 0)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(parsed)
    inputs, choices, result = calls[-1]
    names = [*op.names, "batch_size", "device"]
    given = {n: v for n, v in zip(names, choices, strict=True) if v is not None}
    results = result if isinstance(result, tuple) else (result,)
    return inputs, {**given, **NUMBERED.get(name, {})}, results


def empty_like(value, device, knows_rank):
    """A batch of no samples like this value (a handle, or something that becomes one)."""
    tensor = value if isinstance(value, (ndd.Tensor, ndd.Batch)) else ndd.as_tensor(value)
    if not knows_rank:
        return ndd.batch([], dtype=tensor.dtype, device=device)
    layout = tensor.layout
    if not layout:
        return ndd.batch(np.zeros((0, *[1] * tensor.ndim)), dtype=tensor.dtype, device=device)
    return ndd.batch([], dtype=tensor.dtype, device=device, layout=layout)


def check(results, wanted, rank_is_known, about):
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(wanted), about
    for ours, example in zip(results, wanted, strict=True):
        assert isinstance(ours, ndd.Batch), about
        assert ours.batch_size == 0 and ours.shape == [] and list(ours) == [], about
        assert ours.dtype == example.dtype or "decoders.numpy" in about, about
        ours.evaluate()
        if rank_is_known:
            assert ours.ndim == example.ndim and ours.layout == example.layout, about


@pytest.mark.parametrize("name", NAMES)
def test_every_op_takes_no_samples(name, monkeypatch):
    op = OPS[name]
    inputs, given, wanted = recorded(name, monkeypatch)
    monkeypatch.setenv("NDD_GPU", "simulate")
    given.pop("batch_size", None)
    for mode in ndd.EvalMode:
        for device in ("cpu", "gpu"):
            for knows_rank in (True, False):
                about = (
                    f"{name} {mode.name} {device} {'knows' if knows_rank else 'guesses'} the rank"
                )
                with mode:
                    where = "cpu" if op.mixed else device
                    options = {"device": "cpu" if name in CPU_ONLY else device, **given}
                    if not inputs:
                        check(
                            op.public(batch_size=0, **options),
                            wanted,
                            name not in UNKNOWN_AXES,
                            about,
                        )
                        continue
                    none = [empty_like(x, where, knows_rank) for x in inputs]
                    known = knows_rank and name not in UNKNOWN_AXES
                    check(op.public(*none, **options), wanted, known, about)


def numbers_of(op, given):
    """Arguments of the example that may also be given per sample."""
    kinds = {p.name: p for p in op.others}
    for name, value in given.items():
        p = kinds.get(name)
        if value is None or isinstance(value, str):
            continue
        if p is not None and p.kind in ("arg", "geometry"):
            yield name, value


# The example of multi_paste has two regions per sample, which must fit each other.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "multi_paste"])
def test_arguments_may_be_empty_batches(name, monkeypatch):
    op = OPS[name]
    inputs, given, wanted = recorded(name, monkeypatch)
    given.pop("batch_size", None)
    for argument, value in numbers_of(op, given):
        empty = empty_like(value, "cpu", True)
        none = [empty_like(x, "cpu", True) for x in inputs]
        for mode in (ndd.EvalMode.deferred, ndd.EvalMode.eager):
            with mode:
                # A list may decide how many axes the result has, and its length is unknown.
                known = empty.ndim == 0 and name not in UNKNOWN_AXES
                check(
                    op.public(*none, **{**given, argument: empty}), wanted, known, (name, argument)
                )


# -- without ops ---------------------------------------------------------------------------------


def none(dtype=ndd.int32, **options):
    return ndd.batch([], dtype=dtype, **options)


def test_making_them(device):
    for make in (ndd.batch, ndd.as_batch, ndd.Batch):
        b = make([], dtype=ndd.int32, device=device)
        assert (b.batch_size, b.shape, b.ndim, b.layout) == (0, [], 0, None)
        assert b.dtype is ndd.int32 and b.device.device_type == device
        assert list(b) == [] and len(b.tensors) == 0 and "batch_size=0" in repr(b)
        with pytest.raises(ValueError, match="without samples needs its element type: for example"):
            make([])
    assert none(layout="HWC").ndim == 3
    assert ndd.batch(np.zeros((0, 4, 5), np.uint8)).ndim == 2
    assert ndd.batch(ndd.tensor(np.zeros((0, 4)))).dtype is ndd.float64
    assert ndd.Batch.broadcast(np.zeros((2, 2)), 0).ndim == 2
    assert ndd.batch((x for x in ()), dtype=ndd.int8).dtype is ndd.int8
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        ndd.Batch.broadcast(1, -1)


def test_picking_none(mode, device):
    b = ndd.batch([[1, 2], [3]], device=device) + 1
    for picked in (b.select([]), b.select(slice(0, 0)), b.tensors[2:], b.tensors[[]]):
        assert isinstance(picked, ndd.Batch) and picked.batch_size == 0
        assert picked.ndim == 1 and picked.dtype is ndd.int32
        assert (picked * 2).shape == []
    with pytest.raises(IndexError, match="sample 0 is out of range for a batch of 0"):
        none().select(0)


def test_indexing_arithmetic_and_functions(mode, device):
    b, f = none(device=device), none(ndd.float32, layout="HWC", device=device)
    for result, dtype, ndim in (
        (b + 1, ndd.int32, 0), (2.5 * b, ndd.float32, 0), (b + b, ndd.int32, 0), (-b, ndd.int32, 0),
        (b == b, ndd.bool, 0), (b + ndd.tensor([1, 2]), ndd.int32, 1), (f // 0, ndd.float32, 3),
        (f.slice[0, 1:], ndd.float32, 2), (b.slice[0], ndd.int32, 0), (b.slice[1:2], ndd.int32, 1),
        (f.slice[: ndd.batch([], dtype=ndd.int32)], ndd.float32, 3),
        (ndd.math.max(b, 1.5), ndd.float32, 0), (np.float32(2) * b, ndd.float32, 0),
    ):  # fmt: skip
        assert (result.batch_size, result.dtype, result.ndim) == (0, dtype, ndim)
        assert result.device.device_type == device
        result.evaluate()
    for other in (lambda: b + ndd.batch([1, 2]), lambda: ndd.rotate(f, angle=ndd.batch([1.0]))):
        with pytest.raises(ValueError, match=r"Inconsistent batch size: (0 != 2|0 != 1)"):
            other()


def test_conversions(mode, device):
    b = none(ndd.float32, layout="HWC", device=device)
    for tensor in (ndd.as_tensor(b), ndd.tensor(b), ndd.as_tensor(b, pad=True)):
        assert tensor.shape == (0, 0, 0, 0) and tensor.layout == "NHWC"
        assert tensor.device.device_type == device
    for options in ({}, {"pad": True}, {"copy": True}, {"copy": False}):
        assert tuple(b.torch(**options).shape) == (0, 0, 0, 0)
        assert tuple(none(device=device).torch(**options).shape) == (0,)
    assert ndd.batch(b, dtype=ndd.uint8).dtype is ndd.uint8
    assert ndd.batch(b, layout="CHW").layout == "CHW"
    assert b.gpu().cpu().shape == [] if device == "gpu" else b.cpu() is b
    assert ndd.as_batch(b) is b


def test_chains(mode, device):
    """A training step without images computes nothing and gives a tensor without rows."""
    images = none(ndd.uint8, layout="HWC", device=device)
    n = images.batch_size
    x = ndd.resize(images, size=[256, 256])
    x = ndd.rotate(x, angle=ndd.random.uniform(batch_size=n, range=(-10, 10)))
    x = ndd.crop_mirror_normalize(x, crop=[224, 224], mean=[1.0, 2.0, 3.0], std=[4.0],
                                  mirror=ndd.random.coin_flip(batch_size=n))  # fmt: skip
    x = ndd.gaussian_blur(x * 0.5 + 1, sigma=1.0)
    assert (x.batch_size, x.dtype, x.layout) == (0, ndd.float32, "CHW")
    assert tuple(x.torch().shape) == (0, 0, 0, 0)
    assert tuple(ndd.reductions.mean(x, axes=[1, 2]).torch().shape) == (0, 0)


def test_files_and_decoders(mode):
    paths = none(ndd.uint8)
    assert ndd.io.file.read(paths).shape == [] and ndd.imread(paths).layout == "HWC"
    images = ndd.decoders.image(ndd.io.file.read(paths))
    assert images.layout == "HWC" and images.ndim == 3


def test_wrong_arguments_are_still_errors(mode):
    images = none(ndd.uint8, layout="HWC")
    for call, text in (
        (lambda: ndd.gaussian_blur(images, sigma=-1.0), "gaussian_blur: `sigma` must be finite and not negative"),
        (lambda: ndd.flip(none(ndd.uint8, layout="XYZ")), "flip: the layout 'XYZ' does not match"),
        (lambda: ndd.hsv(none(ndd.uint8, layout="CHW")), "hsv: the layout 'CHW' does not match"),
        (lambda: ndd.cast(images, dtype="nope"), "unknown element type 'nope'"),
        (lambda: ndd.zeros(shape=[2], batch_size=-1), "`batch_size` must not be negative, got -1"),
        (lambda: ndd.show(images), "show: a batch without samples has nothing to show"),
        (lambda: ndd.explain(images), "explain: nothing runs for a batch without samples"),
        (lambda: ndd.batch([images]), "sample 0 is a Batch"),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=text):
            call()
    with pytest.raises(TypeError, match="encoded data must be one-dimensional uint8"):
        ndd.decoders.image(none(ndd.float32))


def test_in_a_loop_over_a_reader(tmp_path):
    """Empty batches in some iterations do not disturb the loop, which makes calls in advance."""
    for i in range(12):
        (tmp_path / f"{i:02}.bin").write_bytes(bytes([i]) * 5)
    reader = ndd.readers.File(files=sorted(map(str, tmp_path.iterdir())))
    for _ in range(3):
        seen = []
        for contents, _ in reader.next_epoch(batch_size=4):
            firsts = [int(np.asarray(t)[0]) for t in contents]
            few = contents.select([i for i, v in enumerate(firsts) if v % 7 == 6])
            seen += [int(np.asarray(t)[0]) for t in few + 1]
        assert seen == [7]


def test_upstream_agrees():
    import nvidia.dali.experimental.dynamic as dali

    b = dali.batch([], dtype=dali.int32)
    assert (b.batch_size, b.shape, b.ndim) == (0, [], 0)
    for ours, theirs in ((none() + 1, b + 1), (none() == none(), b == b), (-none(), -b)):
        assert str(ours.dtype) == str(theirs.dtype) and theirs.shape == []
    with pytest.raises(ValueError, match="Element type must be specified"):
        dali.batch([])
