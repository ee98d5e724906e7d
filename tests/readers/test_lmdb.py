"""readers.Caffe and readers.Caffe2: records as the oracle reads them, the tree of pages, errors."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from ndd.readers.stores import lmdb_file
from tests.readers.datasets import (
    BYTE,
    FLOAT,
    INT32,
    STRING,
    datum,
    field,
    proto,
    varint,
    write_lmdb,
)
from tests.readers.helpers import info


def samples(library, kind, **options):
    return [
        [(str(b.dtype), b.shape, np.asarray(b.tensors[0]).tolist(), info(library, b)) for b in item]
        for item in getattr(library.readers, kind)(**options).next_epoch(batch_size=1)
    ]


def test_caffe_equals_the_oracle(tmp_path):
    a = write_lmdb(
        tmp_path / "a", {b"%08d_x" % i: datum(b"pic%d" % i * 300 * i, i) for i in (2, 0, 1)}
    )
    b = write_lmdb(
        tmp_path / "b",
        {b"9": datum(b"q", -5), b"8": datum(None, 3), b"7": datum(b"z", None), b"6": b""},
    )
    for options in (
        dict(path=a), dict(path=[b, a]), dict(path=a, label_available=False), dict(path=b, image_available=False),
        dict(path=[a, b], num_shards=2, shard_id=1),
    ):  # fmt: skip
        assert samples(ndd, "Caffe", **options) == samples(dali, "Caffe", **options)
    assert samples(ndd, "Caffe", path=f"{a}/data.mdb")[0][0][2] == []
    with pytest.raises(ValueError, match="neither pictures nor labels are wanted"):
        ndd.readers.Caffe(path=a, image_available=False, label_available=False)


PICTURE, LABEL = proto([1], STRING, s=[b"pic"]), proto([1], INT32, i=[9])
INTS, FLOATS = proto([2], INT32, i=[1, 3]), proto([2, 1], FLOAT, f=[0.25, 0.75])
BOX = proto([4], INT32, i=[1, 2, 3, -4])
RECORDS = [
    (PICTURE + LABEL, dict()),
    (proto([2, 3, 1], BYTE, b=b"uvwxyz") + LABEL, dict()),
    (PICTURE + LABEL + BOX, dict(bbox=True)),
    (PICTURE + LABEL + INTS + BOX, dict(additional_inputs=1, bbox=True)),
    (PICTURE + LABEL + FLOATS + INTS, dict(additional_inputs=2)),
    (PICTURE, dict(label_type=4)),
    (PICTURE + BOX, dict(label_type=4, bbox=True)),
    (LABEL, dict(image_available=False)),
    (LABEL + BOX, dict(image_available=False, bbox=True)),
    (PICTURE + FLOATS, dict(label_type=2, num_labels=2)),
]


@pytest.mark.parametrize(
    "record, options", RECORDS, ids=lambda x: str(x) if isinstance(x, dict) else ""
)
def test_caffe2_equals_the_oracle(tmp_path, record, options):
    path = write_lmdb(tmp_path / "a", {b"0": record, b"1": record})
    assert samples(ndd, "Caffe2", path=path, **options) == samples(
        dali, "Caffe2", path=path, **options
    )


def test_labels_that_the_oracle_does_not_read(tmp_path):
    path = write_lmdb(tmp_path / "a", {b"0": PICTURE + INTS + FLOATS})
    sparse = samples(ndd, "Caffe2", path=path, label_type=1, num_labels=5)
    assert sparse[0][1][:3] == ("i32", [(5,)], [0, 1, 0, 1, 0])
    weighted = samples(ndd, "Caffe2", path=path, label_type=3, num_labels=4)
    assert weighted[0][1][:3] == ("f32", [(4,)], [0, 0.25, 0, 0.75])


ERRORS = [
    (b"\xff\xff", dict(), "its message is invalid at byte 2"),
    (field(1, b"\x0a\x7f"), dict(), "its message is invalid at byte 0"),
    (PICTURE, dict(), "it holds 1 tensors, wanted 2"),
    (LABEL + LABEL, dict(), "the picture is a tensor of type 2, wanted string or byte"),
    (proto([2], STRING, s=[b"a", b"b"]) + LABEL, dict(), "it has 2 pictures, wanted one"),
    (proto([9], BYTE, b=b"ab") + LABEL, dict(), r"a picture of shape \[9\] has 2 bytes"),
    (proto([2**31 - 1] * 9, BYTE, b=b"ab") + LABEL, dict(), "a picture of shape .* has 2 bytes"),
    (PICTURE + INTS, dict(), "it has 2 labels, wanted one"),
    (PICTURE + FLOATS, dict(), "labels are tensors of type 1, wanted int32"),
    (PICTURE + INTS, dict(label_type=1, num_labels=3), "label 3 is not in 0 … 2"),
    (
        PICTURE + INTS + proto([1], FLOAT, f=[1]),
        dict(label_type=3, num_labels=9),
        "2 labels and 1 weights",
    ),
    (PICTURE + LABEL + INTS, dict(bbox=True), "a box is four int32 numbers, got 2"),
    (PICTURE + LABEL + PICTURE, dict(additional_inputs=1), "a tensor of type 4, wanted float"),
]


@pytest.mark.parametrize("record, options, text", ERRORS, ids=[e[2][:20] for e in ERRORS])
def test_records_that_do_not_fit(tmp_path, record, options, text):
    path = write_lmdb(tmp_path / "a", {b"k": record})
    with pytest.raises(
        ValueError,
        match=rf"readers.Caffe2: cannot read '.*a at key k' .sample 0.: .*offset \d+.*{text}",
    ):
        samples(ndd, "Caffe2", path=path, **options)


def test_arguments(tmp_path):
    path = write_lmdb(tmp_path / "a", {b"k": PICTURE})
    for options, text in (
        (dict(label_type=9), "`label_type` must be in 0 … 4, got 9"),
        (dict(additional_inputs=-1), "must not be negative"),
        (dict(image_available=False, label_type=4), "no output is wanted"),
    ):
        with pytest.raises(ValueError, match=text):
            ndd.readers.Caffe2(path=path, **options)


def test_trees_of_any_depth(tmp_path):
    rng = np.random.default_rng(1)
    items = {
        b"%d" % k: rng.bytes(int(rng.choice([0, 1, 50, 2000, 5000, 9000])))
        for k in rng.permutation(3000)
    }
    path = write_lmdb(tmp_path / "a", items)
    environment = lmdb.open(path, map_size=1 << 26)
    with environment.begin(write=True) as transaction:  # free some pages, and use others again
        for key in list(items)[::3]:
            transaction.delete(key)
            del items[key]
    with environment.begin() as transaction:
        wanted = [(bytes(k), bytes(v)) for k, v in transaction.cursor()]
    environment.close()
    data = Path(path, "data.mdb").read_bytes()
    rows = lmdb_file.scan(f"{path}/data.mdb").tolist()
    assert (
        [(data[c : c + d], data[a : a + b]) for a, b, c, d in rows]
        == wanted
        == sorted(items.items())
    )


def test_files_that_are_no_databases(tmp_path):
    path = Path(write_lmdb(tmp_path / "a", {b"k": datum(b"x", 1)}), "data.mdb")
    good = path.read_bytes()
    for name, content, text in (
        ("empty", b"", "at offset 0: the file ends inside of a head"),
        ("text", b"hello" * 2000, "at offset 0: no head of a database"),
        ("short", good[:4096], "at offset 4096: the file ends inside of a head"),
        ("shorter", good[:8192], "at offset 0: page 2, but there are 2"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            ValueError, match=f"readers.Caffe: .*{name}' is no LMDB file, or damaged: {text}"
        ):
            ndd.readers.Caffe(path=tmp_path / name)
    write_lmdb(tmp_path / "none", {})
    with pytest.raises(ValueError, match=r"readers.Caffe: no records found in \[.*none'\]"):
        ndd.readers.Caffe(path=tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"readers.Caffe: cannot read .gone."):
        ndd.readers.Caffe(path="gone")


def test_a_loop_of_pages_is_found(tmp_path):
    path = write_lmdb(tmp_path / "a", {b"%04d" % k: bytes(500) for k in range(200)})
    file = Path(path, "data.mdb")
    data = bytearray(file.read_bytes())
    meta = max((0, 4096), key=lambda at: data[at + 16 + 8 * 16 - 8 + 8 * 1 : at + 16 + 136])
    root = int.from_bytes(data[meta + 16 + 24 + 48 + 40 : meta + 16 + 24 + 96], "little")
    first = root * 4096 + int.from_bytes(data[root * 4096 + 16 : root * 4096 + 18], "little")
    data[first : first + 6] = root.to_bytes(6, "little")  # the first child of the root is the root
    file.write_bytes(data)
    with pytest.raises(ValueError, match="a page that is used twice"):
        ndd.readers.Caffe(path=path)


def test_unpacked_fields_and_negative_labels(tmp_path):
    label = field(1, b"\x08\x01\x10\x02" + varint(4 << 3) + varint(-7))
    path = write_lmdb(tmp_path / "a", {b"k": PICTURE + label})
    assert samples(ndd, "Caffe2", path=path)[0][1][2] == [-7]
