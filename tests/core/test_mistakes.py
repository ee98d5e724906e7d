"""Messages for common mistakes: each says what is wrong and how to fix it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ndd
from tests.helpers import ragged, run_python

SUBMODULES = [getattr(ndd, n) for n in ndd.__all__ if isinstance(getattr(ndd, n), type(ndd))]


def files(tmp_path, count=3):
    paths = [tmp_path / f"{i}.bin" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]))
    return paths


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda: ndd.readers.file, r"'ndd\.readers' has no attribute 'file'; did you mean `ndd\.readers\.File`"),
        (lambda: ndd.readers.Flie, "did you mean `ndd.readers.File`"),
        (lambda: ndd.rezise, "did you mean `ndd.resize`"),
        (lambda: ndd.Resize, "did you mean `ndd.resize`"),
        (lambda: ndd.crop_mirror_normalise, "did you mean `ndd.crop_mirror_normalize`"),
        (lambda: ndd.random.unifrom, "did you mean `ndd.random.uniform`"),
        (lambda: ndd.decoders.Image, "did you mean `ndd.decoders.image`"),
        (lambda: ndd.math.sqr, "did you mean `ndd.math.sqrt`"),
        (lambda: ndd.types.INTERP_LINAER, "did you mean `ndd.types.INTERP_LINEAR`"),
        (lambda: ndd.pipeline_def, "there are no pipelines: call the ops in a loop"),
        (lambda: ndd.fn, "fn.resize is ndd.resize"),
    ],
)  # fmt: skip
def test_names_that_do_not_exist(look, message):
    with pytest.raises(AttributeError, match=message):
        look()


def test_names_like_nothing_get_no_advice():
    for module in (ndd, *SUBMODULES):
        with pytest.raises(AttributeError) as caught:
            module.zzzzzzzz
        assert str(caught.value) == f"module {module.__name__!r} has no attribute 'zzzzzzzz'"
        assert not hasattr(module, "__wrapped__")


def test_from_import_of_what_does_not_exist_is_an_import_error():
    with pytest.raises(ImportError, match="rezise"):
        from ndd import rezise  # noqa: F401


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda b: b.at(0), r"'Batch' object has no attribute 'at'; use \.tensors\[i\], or \.select\(i\)"),
        (lambda b: b.as_cpu(), r"use \.cpu\(\)"),
        (lambda b: b.tensors[0].numpy(), r"'Tensor' object has no attribute 'numpy'; use np\.asarray"),
        (lambda b: b.cuda(), r"use \.gpu\(\)"),
        (lambda b: b.astype("f4"), r"use ndd\.cast\("),
        (lambda b: b.batchsize, "did you mean `batch_size`"),
        (lambda b: b.tensors[0].shpae, "did you mean `shape`"),
    ],
)  # fmt: skip
def test_attributes_that_do_not_exist(use, message):
    with pytest.raises(AttributeError, match=message):
        use(ragged())


# -- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ndd.flip(x, horizntal=1),
         r"flip\(\) got an unexpected keyword argument 'horizntal'; did you mean `horizontal`\? \(called at .*test_mistakes.py:\d+\)"),
        (lambda x: ndd.cast(x, dtyp="u8"), "did you mean `dtype`"),
        (lambda x: ndd.crop_mirror_normalize(x, stddev=[1.0]), "unexpected keyword argument 'stddev'"),
        (lambda x: ndd.random.uniform(seed=3), r"'seed'; seed the generator: ndd\.random\.set_seed\(n\), or rng="),
        (lambda x: ndd.rotate(x, angel=3), "did you mean `angle`"),
        (lambda x: ndd.readers.File(files=["a"], batch_size=3),
         r"readers\.File\(\) got an unexpected keyword argument 'batch_size'; the batch size belongs to next_epoch"),
        (lambda x: ndd.readers.File(files=["a"], random_shufle=True), "did you mean `random_shuffle`"),
        (lambda x: ndd.readers.File(files=["a"], num_threads=3), r"ndd\.set_num_threads"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_exist(call, message):
    with pytest.raises(TypeError, match=message):
        call(ragged())


def test_mixed_is_gpu():
    jpeg = np.zeros(4, np.uint8)
    with pytest.raises(
        ValueError, match=r'decoders\.image: .*use device="gpu", which also takes inputs on'
    ):
        ndd.decoders.image(jpeg, device="mixed")
    with pytest.raises(ValueError, match='use device="gpu"'):
        ndd.Device("mixed")
    with pytest.raises(ValueError, match=r'readers work on the CPU.*device="gpu"'):
        ndd.readers.File(files=["a"], device="mixed")


def test_choices_are_listed():
    with pytest.raises(
        ValueError,
        match="`out_of_bounds_policy` must be one of error, constant, const, pad, fill, "
        "trim_to_shape, clamp, edge, reflect, reflect_1001, reflect1001, 1001, reflect_101, "
        "reflect101, 101, wrap, got 'padd'",
    ):
        ndd.crop(ragged(), crop=[2, 2], out_of_bounds_policy="padd")
    with pytest.raises(ValueError, match=r"`interp_type` must be one of INTERP_NN, .*got 'linear'"):
        ndd.resize(ragged(), size=[2, 2], interp_type="linear")


# -- batches -------------------------------------------------------------------------------------


def test_a_batch_has_samples_and_slices():
    with pytest.raises(
        TypeError, match=r"batch\.tensors\[i\] or batch\.select\(i\) .* batch\.slice\[i\]"
    ):
        ragged()[0]


def test_ragged_samples_are_padded_only_if_asked():
    with pytest.raises(ValueError, match=r"different shapes.*use pad=True"):
        ragged().torch()


def test_arrays_are_made_of_samples():
    with pytest.raises(
        TypeError,
        match=r"np\.asarray\(batch\.tensors\[i\]\).*np\.asarray\(ndd\.as_tensor\(batch\)\)",
    ):
        np.asarray(ragged())


@pytest.mark.gpu
def test_numpy_reads_host_memory(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    with pytest.raises(TypeError, match=r"GPU tensor.*tensor\.cpu\(\)"):
        np.asarray(ndd.tensor([1]).gpu())


def test_one_random_number_for_all_samples():
    """A legal call that usually forgot `batch_size` warns once per line and names both alternatives."""
    x = ragged()
    text = r"rotate: `angle` is one random value for all 3 samples; .*random\.uniform\(batch_size=3.*broadcast"
    with ndd.EvalMode.deferred, pytest.warns(UserWarning, match=text) as caught:
        ndd.rotate(x, angle=ndd.random.uniform(range=(-10, 10)))
    assert caught[0].filename == __file__
    with ndd.EvalMode.deferred, warnings.catch_warnings():
        warnings.simplefilter("error")
        one = ndd.random.uniform(range=(-10, 10))
        ndd.rotate(x, angle=ndd.Batch.broadcast(one, 3))
        ndd.rotate(x, angle=ndd.random.uniform(batch_size=3, range=(-10, 10)))
        ndd.rotate(x.tensors[0], angle=one)
    once = run_python(
        """
        import warnings, ndd
        x = ndd.zeros(shape=[4, 4, 3], layout="HWC", batch_size=2)
        with ndd.EvalMode.deferred, warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            for _ in range(3):
                ndd.brightness(x, brightness=ndd.random.uniform())
        print(len(found))
        """
    )
    assert once == "1"


# -- readers -------------------------------------------------------------------------------------


def test_a_state_is_restored_before_the_first_batch(tmp_path):
    paths = files(tmp_path)
    saved = ndd.readers.File(files=paths).get_state()
    reader = ndd.readers.File(files=paths)
    next(reader.next_epoch())
    with pytest.raises(
        RuntimeError,
        match=r"cannot be set after the first batch.*on a new reader, before next_epoch",
    ):
        reader.set_state(saved)
    checkpoint = ndd.checkpoint.Checkpoint()
    checkpoint.register(ndd.readers.File(files=paths), "train")
    checkpoint.collect()
    again = ndd.checkpoint.Checkpoint()
    again.deserialize(checkpoint.serialize())
    with pytest.raises(RuntimeError, match="after the first batch"):
        again.register(reader, "train")


def test_what_is_no_mistake_with_us(tmp_path):
    """Programs may leave an epoch, build a second reader, spell out defaults, evaluate() every op."""
    reader = ndd.readers.File(files=files(tmp_path), enable_checkpointing=False)
    for _ in reader.next_epoch(batch_size=1):
        break
    assert len(list(reader.next_epoch(batch_size=2))) == 2
    x = ndd.flip(ragged(), horizontal=1, vertical=0, depthwise=0).evaluate()
    assert np.array_equal(np.asarray(x.tensors[0]), np.asarray(ragged().tensors[0])[:, ::-1])
