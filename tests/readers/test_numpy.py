"""readers.Numpy: arrays and regions as the oracle gives them, all types, damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from tests.readers.helpers import info

A = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("npy")
    for name in (
        "b.npy",
        ".h.npy",
        "sub/c.npy",
        "sub/deep/d.npy",
        "-x/e.npy",
        ".hid/z.npy",
        "x.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("wb") as file:
            np.save(file, A)
    np.save(folder / "a.npy", np.asfortranarray(A * 2))
    with (folder / "U.NPY").open("wb") as file:
        np.save(file, A)
    (folder / "l.npy").symlink_to("b.npy")
    (folder / "list.txt").write_text("b.npy\nsub/c.npy\n")
    return folder


def batches(library, batch_size=1, **options):
    found = []
    for (b,) in library.readers.Numpy(**options).next_epoch(batch_size=batch_size):
        arrays = [np.asarray(t) for t in b.tensors]
        found.append(
            (
                str(b.dtype),
                b.layout or None,
                info(library, b),
                [(a.shape, a.tolist()) for a in arrays],
            )
        )
    return found  # fmt: skip


def test_files_are_listed_as_by_the_oracle(root):
    for options in (
        dict(file_root=str(root)),
        dict(file_root=str(root), file_filter="*.NPY"),
        dict(file_root=str(root), file_filter="[bc].npy"),
        dict(file_list=str(root / "list.txt")),
        dict(file_list=str(root / "list.txt"), file_root=str(root)),
        dict(files=["b.npy", "sub/c.npy"], file_root=str(root)),
        dict(files=[str(root / "a.npy"), str(root / "b.npy")], batch_size=2),
        dict(files=str(root / "a.npy"), cache_header_information=True),
    ):
        assert batches(ndd, **options) == batches(dali, **options), options


def test_types_equal_the_oracles(tmp_path):
    for code in "?bBhHiIlLefd":
        for array in (np.arange(6).reshape(2, 3), np.array(1), np.zeros((0, 3))):
            np.save(tmp_path / "d.npy", array.astype(code))
            options = dict(files=[str(tmp_path / "d.npy")])
            assert batches(ndd, **options) == batches(dali, **options)


def test_what_the_oracle_does_not_read(tmp_path):
    for code in (">f4", ">u2", ">i8"):
        np.save(tmp_path / "d.npy", A.astype(code))
        assert batches(ndd, files=tmp_path / "d.npy")[0][3] == [(A.shape, A.tolist())]
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "v.npy").open("wb") as file:
            np.lib.format.write_array(file, A, version=version)
        assert batches(ndd, files=tmp_path / "v.npy")[0][3] == [(A.shape, A.tolist())]


REGIONS = [
    dict(roi_start=[1, 2], roi_end=[3, 5]), dict(roi_start=[1, 2], roi_shape=[2, 2]), dict(roi_start=1, roi_axes=0),
    dict(roi_start=[1], roi_end=[2], roi_axes=[1]), dict(rel_roi_start=[0.25, 0.5], rel_roi_shape=[0.5, 0.5]),
    dict(roi_shape=[2, 2]), dict(roi_end=[2, 2]), dict(roi_start=[1], roi_end=[2]), dict(roi_shape=3),
    dict(roi_start=[1, 1], roi_axes=[1, 0], roi_shape=[1, 2]), dict(roi_start=[1], roi_axes=[-1]),
    dict(roi_start=[-1, -2], roi_end=[3, 5], out_of_bounds_policy="pad", fill_value=9),
    dict(roi_start=[2, 2], roi_end=[9, 8], out_of_bounds_policy="trim_to_shape"),
    dict(roi_start=[2, 2], roi_end=[9, 8], out_of_bounds_policy="pad"),
    dict(roi_start=[9, 9], roi_end=[12, 12], out_of_bounds_policy="trim_to_shape"),
    dict(roi_start=[9, 9], roi_end=[12, 12], out_of_bounds_policy="pad", fill_value=2.5),
    dict(roi_start=[1, 2], roi_end=[1, 2]),
]  # fmt: skip


def test_regions_equal_the_oracles(root):
    files = dict(files=[str(root / "b.npy"), str(root / "a.npy")], batch_size=2)
    for options in REGIONS:
        assert batches(ndd, **files, **options) == batches(dali, **files, **options), options


def test_relative_regions_are_rounded_as_by_the_oracle(root):
    files = dict(files=[str(root / "b.npy"), str(root / "a.npy")], batch_size=2)
    random.seed(3)
    parts = [k / 24 for k in range(25)] + [0.1, 0.3, 0.7, 0.9]
    for _ in range(60):
        start, end = zip(*(sorted(random.choices(parts, k=2)) for _ in range(2)))
        name = random.choice(["rel_roi_end", "rel_roi_shape", "roi_shape"])
        last = {
            "rel_roi_end": end,
            "rel_roi_shape": [e - s for s, e in zip(start, end)],
            "roi_shape": [1, 2],
        }[name]
        options = {"rel_roi_start": list(start), name: list(last), "out_of_bounds_policy": "pad"}
        assert batches(ndd, **files, **options) == batches(dali, **files, **options), options


def test_regions_of_calls(root):
    reader = ndd.readers.Numpy(files=[root / "b.npy", root / "a.npy"])
    starts = ndd.as_batch([np.array([1, 1], np.int32), np.array([2, 3], np.int32)])
    (found,) = reader(batch_size=2, roi_start=starts)
    assert found.shape == [(3, 5), (2, 3)]
    np.testing.assert_array_equal(np.asarray(found.tensors[1]), A[2:, 3:] * 2)
    (one,) = reader(roi_start=[1, 1], roi_shape=[1, 1])
    assert isinstance(one, ndd.Tensor) and one.item() == 7
    with pytest.raises(ValueError, match="`roi_start` has 2 samples, the batch 3"):
        reader(batch_size=3, roi_start=starts)
    with pytest.raises(ValueError, match="the reader has a region already"):
        ndd.readers.Numpy(files=root / "b.npy", roi_start=1)(batch_size=1, roi_start=1)


def test_only_the_outermost_part_is_read(tmp_path, monkeypatch):
    from ndd.readers.stores.byte_files import LocalFile

    big = np.arange(1000 * 100, dtype=np.int32).reshape(1000, 100)
    np.save(tmp_path / "c.npy", big)
    np.save(tmp_path / "f.npy", np.asfortranarray(big))
    read, plain = [], LocalFile.read_into
    monkeypatch.setattr(
        LocalFile,
        "read_into",
        lambda self, view, at: read.append(len(view)) or plain(self, view, at),
    )
    for name, options in (
        ("c.npy", dict(roi_start=[10, 3], roi_shape=[5, 7])),
        ("f.npy", dict(roi_start=[3, 10], roi_shape=[7, 5])),
    ):
        read.clear()
        ((_, _, _, ((shape, values),)),) = batches(ndd, files=tmp_path / name, **options)
        start = options["roi_start"]
        wanted = big[start[0] : start[0] + shape[0], start[1] : start[1] + shape[1]]
        assert values == wanted.tolist()
        assert sum(read) < 256 + 5 * 1000 * 4 + 1


ERRORS = [
    (dict(roi_start=[1, 2], roi_end=[7, 5]), r"the region \[\(1, 7\), \(2, 5\)\] lies outside of the array of shape \(4, 6\)"),
    (dict(roi_start=[3, 3], roi_end=[1, 1]), "the region ends before it begins: 3 … 1 of axis 0"),
    (dict(roi_start=[1, 1, 1]), "`roi_start` must have 2 numbers, got 3"),
    (dict(roi_start=[1], roi_axes=[5]), "`roi_axes` has 5, but the array has 2 dimensions"),
    (dict(roi_start=[1, 1], roi_axes=[0, -2]), r"`roi_axes` has an axis twice: \[0, -2\]"),
]  # fmt: skip


@pytest.mark.parametrize("options, text", ERRORS, ids=lambda x: str(x)[:30])
def test_regions_that_do_not_fit(root, options, text):
    with pytest.raises(ValueError, match=f"readers.Numpy: cannot read .*b.npy' .sample 0.: {text}"):
        batches(ndd, files=root / "b.npy", **options)


def test_arguments(root):
    for options, text in (
        (
            dict(roi_start=1, rel_roi_start=0.5),
            "`roi_start` and `rel_roi_start` exclude each other",
        ),
        (dict(roi_end=1, roi_shape=1), "`roi_end` and `roi_shape` exclude each other"),
        (dict(roi_start="x"), "`roi_start` must be a number or a list of numbers, got 'x'"),
        (dict(roi_start=[float("nan")]), "`roi_start` must be a number"),
        (
            dict(out_of_bounds_policy="bogus"),
            "must be one of error, pad, trim_to_shape, got 'bogus'",
        ),
        (dict(file_list="x"), "`files` and `file_list` exclude each other"),
    ):
        with pytest.raises(ValueError, match=text):
            ndd.readers.Numpy(files=root / "b.npy", **options)
    with pytest.raises(ValueError, match="`file_root`, `files` or `file_list` is needed"):
        ndd.readers.Numpy()
    with pytest.raises(ValueError, match=r"no files found that fit '\*\.gone'"):
        ndd.readers.Numpy(file_root=root, file_filter="*.gone")
    with pytest.raises(OSError, match=r"readers.Numpy: cannot list .*nowhere"):
        ndd.readers.Numpy(file_root=root / "nowhere")


def test_batches_of_different_arrays(tmp_path):
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", A.astype(int))
    with pytest.raises(
        ValueError,
        match=r"output 0 of sample 1 \(.*\) is 2-D int64, that of the first one \(.*\) 2-D float32",
    ):
        batches(ndd, batch_size=2, file_root=tmp_path)
    assert [b[0] for b in batches(ndd, file_root=tmp_path)] == ["f32", "i64"]


def header(text: str, version: int = 1) -> bytes:
    raw = text.encode()
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + len(raw).to_bytes(2 if version == 1 else 4, "little")
        + raw
    )


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"


def test_damaged_files(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    cases = [
        (b"", "not a .npy file"),
        (b"hello world, how are you", "not a .npy file"),
        (header(GOOD)[:9], "not a .npy file"),
        (header(GOOD, 7), "version 7 of the format is not known"),
        (header(GOOD)[:40], "the header at offset 10 has 59 bytes, too many"),
        (header(GOOD, 2)[:40], "the header at offset 12 has 59 bytes, too many"),
        (header(GOOD) + bytes(23), r"an array of 24 bytes \(shape \(2, 3\), float32\) at offset 69, but 23 bytes are left"),
        (header(GOOD.replace("(2, 3)", "(99999999, 99999999)")), "an array of 39999999200000004 bytes"),
        (header(GOOD.replace("(2, 3)", "(9" + "9" * 30 + ",)")), "the shape is too large"),
        (header(GOOD.replace("(2, 3)", "(-2, 3)")), "is not a .npy header"),
        (header(GOOD.replace("(2, 3)", "(" + "1," * 40 + ")")), "the shape is too large"),
        (header(GOOD.replace("False", "exit()")), "is not a .npy header"),
        (header("{'descr': '<f4'}"), "is not a .npy header"),
        (header("[" * 3000), "is not a .npy header"),
        (header(GOOD.replace("<f4", "<c8")) + bytes(99), "elements of type '<c8' are not supported"),
        (header(GOOD.replace("'<f4'", "[('a', '<f4')]")) + bytes(99), r"elements of type \[.* are not supported"),
        ((tmp_path / "o.npy").read_bytes(), r"elements of type '\|O' are not supported"),
    ]  # fmt: skip
    path = tmp_path / "x.npy"
    for content, text in cases:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read .*x.npy' .sample 0.: .*{text}"):
            batches(ndd, files=path)
    with pytest.raises(FileNotFoundError, match=r"cannot read .*gone.npy"):
        batches(ndd, files=tmp_path / "gone.npy")


def test_on_error_replaces_arrays(tmp_path):
    np.save(tmp_path / "a.npy", A)
    (tmp_path / "b.npy").write_bytes(b"damaged")
    for policy, shape in (("fill", (0, 0)), ("skip", (4, 6)), (lambda e: A[:1], (1, 6))):
        reader = ndd.readers.Numpy(file_root=tmp_path, on_error=policy)
        ((found,),) = reader.next_epoch(2)
        assert found.shape == [(4, 6), shape] and [e.index for e in reader.errors] == [1]
    with pytest.raises(TypeError, match="`on_error` must return an array or None, got str"):
        list(ndd.readers.Numpy(file_root=tmp_path, on_error=lambda e: "x").next_epoch(2))


def test_kept_headers_follow_the_files(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, A)
    reader = ndd.readers.Numpy(files=path, cache_header_information=True)
    assert next(reader.next_epoch())[0].shape == (4, 6)
    np.save(path, A[:2])  # a kept header must not lead outside of the file
    assert next(reader.next_epoch())[0].shape == (2, 6)
