"""What a new user tries first: it works, or a message says what to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ndd
from tests.core.test_types import every_mode, values
from tests.helpers import arrays

IMAGES = ndd.zeros(shape=[6, 8, 3], dtype=ndd.uint8, layout="HWC", batch_size=3)
GOOD, BAD = b"P3 2 1 255 1 2 3 4 5 6 ", b"no image"


def encoded(*files):
    return ndd.batch([np.frombuffer(f, np.uint8) for f in files])


# -- batches -------------------------------------------------------------------------------------


def test_a_batch_has_a_length_but_no_truth():
    b = ndd.batch([[1], [2, 3]])
    assert len(b) == 2
    for wrong in (b, b == b, ndd.batch([], dtype=ndd.float32)):
        with pytest.raises(TypeError, match=r"a Batch has no truth value: .*batch\.batch_size > 0"):
            bool(wrong)


def test_cat_and_stack_take_lists(device):
    a, b = (ndd.batch(v, device=device) for v in ([[1, 2], [3]], [[4, 5], [6]]))
    for join in (ndd.cat, ndd.stack):
        for given in ([a, b], (a, b)):
            assert values(join(given).cpu()) == values(join(a, b).cpu())
    assert values(ndd.cat([a, b, a], axis=0).cpu()) == [[1, 2, 4, 5, 1, 2], [3, 6, 3]]
    assert values(ndd.stack([np.ones(2), np.zeros(2)])).tolist() == [[1, 1], [0, 0]]
    assert values(ndd.cat([1, 2])).tolist() == [1, 2]  # a list of numbers is one tensor


def test_padding_with_a_number():
    ragged = ndd.batch([[1, 2, 3], [4], []], dtype=ndd.int32)
    for pad, number in ((-1, -1), (True, 0), (0, 0), (np.int64(7), 7)):
        want = [[1, 2, 3], [4, number, number], [number] * 3]
        assert ragged.torch(pad=pad).tolist() == want
        assert values(ndd.as_tensor(ragged, pad=pad)).tolist() == want
        assert values(ndd.tensor(ragged, pad=pad)).tolist() == want
    for pad in (False, None):
        with pytest.raises(ValueError, match=r"different shapes.*use pad=True .*or pad=-1"):
            ragged.torch(pad=pad)
    assert np.isnan(ndd.batch([[1.0], []]).torch(pad=float("nan")).tolist()[1][0])
    for kind, pad, text in [
        ("u8", -1, "samples of u8 cannot be padded with -1"), ("i32", 2**24 + 1, "cannot be padded"),
        ("i32", 0.5, "`pad` must be an integer for samples of i32, got 0.5"), ("i32", "a", "True, False or a number, got str"),
    ]:  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=text):
            ndd.cast(ragged, dtype=kind).torch(pad=pad)
    assert ndd.batch([[1, 2], [3, 4]]).torch(pad=-1).tolist() == [[1, 2], [3, 4]]


@every_mode
def test_a_mask_picks_samples(mode):
    with mode:
        b = ndd.batch([[1], [2, 3], [4]]) * 1
        for mask in ([True, False, True], np.array([True, False, True]), ndd.tensor([True, False, True]),
                     ndd.batch([True, False, True])):  # fmt: skip
            assert values(b.select(mask)) == values(b.tensors[mask]) == [[1], [4]]
        assert b.tensors[np.zeros(3, bool)].batch_size == 0
        with pytest.raises(IndexError, match="a mask of 2 booleans cannot pick from a batch of 3"):
            b.tensors[[True, False]]


@every_mode
def test_a_mask_picks_rows(mode):
    rng = np.random.default_rng(3)
    boxes = [rng.random((n, 4)).astype(np.float32) for n in (3, 0, 5)]
    with mode:
        b = ndd.batch(boxes) * 2
        keep = b.slice[:, 2] > 1.0
        masks = [np.asarray(a)[:, 2] > 0.5 for a in boxes]
        for found, box, mask in zip(arrays(b.slice[keep] * 3), boxes, masks, strict=True):
            np.testing.assert_array_equal(found, box[mask] * 6)
        for found, box, mask in zip(arrays(b.slice[keep, 1:3]), boxes, masks, strict=True):
            np.testing.assert_array_equal(found, box[mask, 1:3] * 2)
        columns = np.array([True, False, True, True])
        for found, box in zip(arrays(b.slice[:, columns]), boxes, strict=True):
            np.testing.assert_array_equal(found, box[:, columns] * 2)
        one = ndd.tensor(boxes[2])
        np.testing.assert_array_equal(one[masks[2]], boxes[2][masks[2]])
        np.testing.assert_array_equal(one[masks[2].tolist(), 0], boxes[2][masks[2], 0])


def test_masks_that_do_not_fit():
    b = ndd.batch([[1, 2, 3], [4]])
    for key, error, text in [
        (ndd.batch([[True], [True]]), IndexError, r"the mask has 1 elements, but axis 0 of sample 0 of shape \(3,\) has 3"),
        (ndd.batch([[True] * 3]), ValueError, "Inconsistent batch size: 2 != 1: the batch has 2 samples, the mask has 1"),
        (np.ones((3, 3), bool), TypeError, "so it has one dimension; got 2"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            b.slice[key]
    with pytest.raises(TypeError, match="a Tensor cannot be indexed with a Batch"):
        ndd.tensor([1, 2])[ndd.batch([[True, True]])]


# -- where ---------------------------------------------------------------------------------------


def test_where_is_that_of_numpy(device):
    rng = np.random.default_rng(1)
    samples = [rng.integers(0, 256, (4, n, 3)).astype(np.uint8) for n in (5, 7)]
    b = ndd.batch(samples, device=device)
    for a, x in zip(arrays(ndd.where(b > 99, b, 7)), samples, strict=True):
        np.testing.assert_array_equal(a, np.where(x > 99, x, 7))
    mixed = ndd.where(b & 1, b, 0.25)  # not 0 is true; the values promote, the condition does not
    assert mixed.dtype is ndd.float32
    for a, x in zip(arrays(mixed), samples, strict=True):
        np.testing.assert_array_equal(a, np.where(x & 1, x, np.float32(0.25)))
    per_sample = ndd.where(ndd.batch([True, False]), b, 255 - b)
    for a, x, want in zip(arrays(per_sample), samples, (1, 0), strict=True):
        np.testing.assert_array_equal(a, x if want else 255 - x.astype(np.int32))
    assert values(ndd.where(ndd.tensor([0.5, 0.0]), True, ndd.tensor([[False], [True]]))).tolist() == [
        [True, False], [True, True]]  # fmt: skip


@every_mode
def test_where_fuses(mode):
    with mode:
        b = ndd.batch(np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3))
        x = ndd.where(b > 9, b, 7) * 2.0
        if mode is ndd.EvalMode.deferred:
            assert "in 1 group" in str(ndd.explain(x))
        a = np.arange(48).reshape(4, 4, 3)
        np.testing.assert_array_equal(arrays(x)[0], np.where(a > 9, a, 7) * 2.0)


def test_where_of_what_does_not_fit():
    with pytest.raises(
        ValueError, match=r"where: shapes \(2,\), \(3,\)|where: shapes .* broadcast"
    ):
        ndd.where(ndd.tensor([True, False]), ndd.tensor([1, 2, 3]), 0)
    with pytest.raises(ValueError, match="operand 0 has 2 samples, operand 1 has 3 samples"):
        ndd.where(ndd.batch([True, False]), ndd.batch([1, 2, 3]), 0)


# -- which samples are bad -----------------------------------------------------------------------


@every_mode
def test_bad_samples_stay_bad(mode):
    ndd.decoders.errors.clear()
    with mode:
        x = ndd.decoders.image(encoded(GOOD, BAD, GOOD), on_error="fill")
        y = ndd.resize(x, size=[4, 6])
        z = ndd.flip(ndd.brightness(y, brightness=ndd.batch([1.0, 2.0, 3.0])), horizontal=1) / 255
        want = [True, False, True]
        for result in (z, y, x, ndd.batch(x), ndd.cat(y, y), ndd.reductions.mean(x), x.slice[0],
                       ndd.where(y > 0, y, 0)):  # fmt: skip
            assert result.valid.tolist() == want
        assert z.tensors[1:].valid.tolist() == [False, True]
        assert (z.tensors[1:] + z.tensors[:2]).valid.tolist() == [False, False]
        assert ndd.permute_batch(z, indices=[1, 2, 0]).valid.tolist() == [False, True, True]
        assert ndd.batch([z.tensors[1], z.tensors[0]]).valid.tolist() == [False, True]
        assert (IMAGES + x.tensors[1].shape[0] * 0).valid.all()
        one = IMAGES * ndd.reductions.mean(x.tensors[1])  # one bad tensor spoils all samples
        assert not one.valid.any()
        angle = ndd.reductions.mean(x) * 0.0  # so does an argument of a sample
        assert ndd.rotate(IMAGES, angle=angle).valid.tolist() == want
    assert [e.index for e in ndd.decoders.errors] == [1]


def test_frames_of_a_bad_sample_are_bad():
    video = ndd.stack([ndd.decoders.image(encoded(BAD, GOOD), on_error="fill")] * 2, axis_name="F")
    angles = ndd.batch([[0.0, 90.0]] * 2, layout="F")
    assert ndd.rotate(video, angle=angles, keep_size=True).valid.tolist() == [False, True]
    assert ndd.warp_affine(
        video, matrix=ndd.per_frame(ndd.batch([np.eye(2, 3)[None].repeat(2, 0)] * 2))
    ).valid.tolist() == [False, True]


def test_readers_tell_what_they_filled(tmp_path):
    (tmp_path / "a.ppm").write_bytes(GOOD)
    files = [tmp_path / "a.ppm", tmp_path / "none.ppm"]
    ((data, labels),) = ndd.readers.File(files=files, on_error="fill").next_epoch(2)
    assert data.valid.tolist() == labels.valid.tolist() == [True, False]
    assert ndd.decoders.image(data, on_error="fill").valid.tolist() == [True, False]
    # a reader that skips gives another sample with its label, so all are good
    ((data, labels),) = ndd.readers.File(files=files, on_error="skip").next_epoch(2)
    assert data.valid.all() and labels.torch().flatten().tolist() == [0, 0]


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ndd.brightness(IMAGES, brightness=[1.0, 2.0, 3.0]), ValueError, r"got shape \(3,\); one number per sample is a Batch: brightness=ndd\.batch\(\[\.\.\.\]\)"),
        (lambda: ndd.crop(IMAGES, crop=[2, 2], crop_pos_x=[0.1, 0.2, 0.3]), TypeError, r"got a list; one number per sample is a Batch: crop_pos_x=ndd\.batch"),
        (lambda: ndd.rotate(IMAGES, angle=[1, 2, 3]), ValueError, r"those of all samples are a Batch: angle=ndd\.batch\("),
        (lambda: ndd.resize([np.zeros((3, 3, 3)), np.zeros((3, 4, 3))], size=[2, 2]), ValueError, r"arrays of different shapes \(\(3, 3, 3\), \(3, 4, 3\)\) .*ndd\.batch\(\[\.\.\.\]\)"),
        (lambda: ndd.tensor([[1, 2], [3]]), ValueError, r"are samples of a Batch: ndd\.batch"),
        (lambda: ndd.resize(IMAGES, [4, 4]), TypeError, r"resize\(\) takes 1 positional argument \(`input`\), got 2; give \[4, 4\] by name, as `size=` .*\(called at .*test_first_program"),
        (lambda: ndd.rotate(IMAGES, 30), TypeError, "give 30 by name, as `angle=`"),
        (lambda: ndd.cast(IMAGES, ndd.float32), TypeError, "give the DType by name, as `dtype=`"),
        (lambda: ndd.flip(IMAGES, True), TypeError, "give True by name, as .*`horizontal=`"),
        (lambda: ndd.brightness(IMAGES, brightness=ndd.batch([1.0, 2.0])), ValueError, "Inconsistent batch size: 3 != 2: `input` has 3 samples, `brightness` has 2"),
        (lambda: ndd.rotate(IMAGES, angle=ndd.batch([1.0, 2.0])), ValueError, "`input` has 3 samples, `angle` has 2"),
        (lambda: ndd.warp_affine(IMAGES.tensors[0], matrix=ndd.batch([np.eye(2, 3)] * 2), size=ndd.batch([[2, 2]])), ValueError, "`matrix` has 2 samples, `size` has 1"),
        (lambda: ndd.stack(IMAGES, ndd.batch([1, 2])), ValueError, "input 0 has 3 samples, input 1 has 2"),
        (lambda: IMAGES + ndd.batch([1, 2]), ValueError, "2 != 3: operand 0 has 3 samples, operand 1 has 2 samples"),
        (lambda: ndd.decoders.image("x.jpg"), TypeError, r"decoders\.image: `input` .*got str; give the bytes of a file, as pathlib\.Path\(path\)\.read_bytes\(\)"),
        (lambda: ndd.decoders.image([Path("x.jpg")]), TypeError, "got list of PosixPath; give the bytes of a file"),
        (lambda: ndd.flip(["x.jpg"]), TypeError, r"an array, got list of str \(called"),
        (lambda: IMAGES.mean(), AttributeError, r"'Batch' object has no attribute 'mean'; use ndd\.reductions\.mean\(x\)"),
        (lambda: IMAGES.tensors[0].T, AttributeError, r"use ndd\.transpose\(x\)"),
        (lambda: ndd.tensor(b"abc"), TypeError, r"the bytes of a file are an array: np\.frombuffer\(data, np\.uint8\)"),
        (lambda: list(ndd.readers.File(files=[__file__])), TypeError, r"readers\.File: a reader is read epoch by epoch: for … in reader\.next_epoch\(batch_size=64\)"),
    ],
)  # fmt: skip
def test_messages_say_what_to_write(call, error, text):
    with pytest.raises(error, match=text):
        call()
