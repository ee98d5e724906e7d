"""readers.TFRecord: features as the oracle gives them, indexes, defaults, errors, checksums."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import nvidia.dali.tfrecord as dali_tfrecord
import pytest

import ndd
from ndd.cli import main
from ndd.kernels.cpu.helpers import function
from ndd.readers.epoch import MAX_BATCHES_PER_RUN, batches_per_run
from ndd.readers.stores import columns, crc32c, tfrecord_file
from tests.readers.datasets import (
    checksum,
    example,
    field,
    floats,
    ints,
    strings,
    tfrecord,
    varint,
    write_tfrecord,
)

T = ndd.tfrecord

RECORDS = [
    example(
        img=strings(b"abc"), lab=ints(5), v=floats(1, 2, 3, 4, 5, 6), i=ints(-1, 2, 2**63 - 1, 0)
    ),
    example(
        img=strings(bytes(300)),
        lab=ints(-(2**63), packed=False),
        v=floats(1, float("inf"), packed=False),
        i=ints(*range(4), packed=False),
        other=strings(b"unused", b"twice"),
    ),
]
KINDS = [
    ("img", "FixedLenFeature", (), "string", ""),
    ("img", "FixedLenFeature", [1], "string", ""),
    ("lab", "FixedLenFeature", [1], "int64", -1),
    ("lab", "FixedLenFeature", [], "int64", -1),
    ("i", "FixedLenFeature", [2, 2], "int64", 7),
    ("i", "VarLenFeature", "int64", 7),
    ("v", "VarLenFeature", "float32", 0.0),
    ("v", "VarLenFeature", [2], "float32", 0.0),
    ("v", "VarLenFeature", [1, 2], "float32", 0.0),
]


def feature(module, kind, *arguments):
    named = [getattr(module, a) if a in ("string", "int64", "float32") else a for a in arguments]
    return getattr(module, kind)(*named)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_tfrecord(tmp_path_factory.mktemp("tfrecord") / "a.tfrecord", *RECORDS)


def test_features_equal_the_oracles(made):
    for name, *kind in KINDS:
        got, wanted = (
            next(iter(library.readers.TFRecord(features={name: feature(module, *kind)}, **made).next_epoch(2)))
            for library, module in ((ndd, T), (dali, dali_tfrecord))
        )  # fmt: skip
        assert list(got) == list(wanted) == [name]
        ours, theirs = got[name], wanted[name]
        assert (ours.shape, str(ours.dtype)) == (theirs.shape, str(theirs.dtype)), kind
        for a, b in zip(ours.tensors, theirs.tensors):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), str(kind))


def test_items_are_dictionaries_of_tensors_and_batches(made, mode):
    reader = ndd.readers.TFRecord(
        features={"lab": T.FixedLenFeature([1], T.int64, -1), "img": T.FixedLenFeature((), T.string, "")}, **made
    )  # fmt: skip
    samples = list(reader.next_epoch())
    assert [list(s) for s in samples] == [["lab", "img"]] * 2
    assert all(isinstance(s["lab"], ndd.Tensor) for s in samples)
    assert [s["lab"].item() for s in samples] == [5, -(2**63)]
    (batch,) = reader.next_epoch(batch_size=2)
    assert isinstance(batch["img"], ndd.Batch) and batch["img"].shape == [(3,), (300,)]
    assert [np.asarray(t + 1).tolist()[:2] for t in batch["img"].tensors] == [[98, 99], [1, 1]]


def read(path, bs=None, **features):
    options = {
        k: features.pop(k) for k in ("index_path", "verify_crc", "on_error") if k in features
    }
    reader = ndd.readers.TFRecord(path=path, features=features, **options)
    return [{k: np.asarray(v) for k, v in item.items()} for item in reader.next_epoch()]


def test_missing_features_get_defaults(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(
        tfrecord(example(), b"", example(n=ints(3), v=floats()), example(n=b"", s=strings()))
    )
    found = read(
        path,
        n=T.FixedLenFeature([2], T.int64, 7),
        v=T.VarLenFeature([3], T.float32, 1.0),
        s=T.FixedLenFeature((), T.string, "no"),
        x=T.FixedLenFeature([], T.float32, 0.5),
    )
    assert [f["n"].tolist() for f in found] == [[7, 7], [7, 7], [3, 7], [7, 7]]
    assert [f["v"].shape for f in found] == [(0, 3)] * 4
    assert [bytes(f["s"]) for f in found] == [b"no"] * 4
    assert [f["x"].shape for f in found] == [()] * 4 and float(found[0]["x"]) == 0.5


def test_messages_are_merged_as_protobuf_does(tmp_path):
    path = tmp_path / "a"
    mixed = field(3, field(1, b"\1") + varint(1 << 3) + b"\2" + field(1, b"\3\4"))
    unknown = field(9, b"skipped") + varint(10 << 3) + b"\5" + varint(11 << 3 | 1) + bytes(8)
    entry = field(1, field(1, b"n") + field(2, unknown + mixed + unknown) + unknown)
    path.write_bytes(
        tfrecord(
            example(n=ints(1)) + example(n=ints(2)),  # the last one counts
            unknown + field(1, unknown + entry + unknown) + unknown,
            example(n=strings(b"x") + ints(8)),  # of several lists, the last one counts
            example(m=ints(1), nn=ints(2)),
        )
    )
    found = read(path, n=T.VarLenFeature(T.int64, 0))
    assert [f["n"].tolist() for f in found] == [[2], [1, 2, 3, 4], [8], []]


ERRORS = [
    (dict(v=T.VarLenFeature([4], T.float32, 0.0)), "feature 'v' has 6 values, not a multiple of 4: VarLenFeature([4], float32, 0.0)"),
    (dict(v=T.FixedLenFeature([2], T.float32, 0.0)), "feature 'v' has 6 values, wanted FixedLenFeature([2], float32, 0.0)"),
    (dict(v=T.VarLenFeature(T.int64, 0)), "feature 'v' holds floats, wanted VarLenFeature([], int64, 0)"),
    (dict(img=T.VarLenFeature(T.float32, 0)), "feature 'img' holds strings"),
]  # fmt: skip


@pytest.mark.parametrize("features, text", ERRORS, ids=lambda x: str(x)[:20])
def test_features_that_do_not_fit(made, features, text):
    with pytest.raises(ValueError) as caught:
        read(made["path"], **features)
    message = str(caught.value)
    assert "readers.TFRecord: cannot read" in message and "a.tfrecord at index 0" in message
    assert text in message and "(sample 0)" in message and "called at" in message


def test_two_strings_are_an_error(tmp_path):
    (tmp_path / "a").write_bytes(tfrecord(example(s=strings(b"a", b"b"))))
    with pytest.raises(ValueError, match="feature 's' has 2 strings, wanted one"):
        read(tmp_path / "a", s=T.FixedLenFeature((), T.string, ""))


def test_arguments():
    with pytest.raises(ValueError, match="tensors of strings are not supported"):
        T.VarLenFeature(T.string, "")
    with pytest.raises(ValueError, match="tensors of strings are not supported"):
        T.FixedLenFeature([2], T.string, "")
    with pytest.raises(ValueError, match=r"int64, string or float32 of ndd.tfrecord, got 9"):
        T.FixedLenFeature([], 9, 0)
    with pytest.raises(TypeError, match="VarLenFeature takes"):
        T.VarLenFeature(T.int64)
    with pytest.raises(TypeError, match="sequence of integers, got 3"):
        T.FixedLenFeature(3, T.int64, 0)
    with pytest.raises(ValueError, match="must not be negative"):
        T.FixedLenFeature([-1], T.int64, 0)
    for features in ({}, None):
        with pytest.raises(ValueError, match="`features` must be a dictionary"):
            ndd.readers.TFRecord(path="x", features=features)
    with pytest.raises(TypeError, match="`features` must map names to"):
        ndd.readers.TFRecord(path="x", features={"a": 3})
    with pytest.raises(ValueError, match="one index for each of the 2 files, got 1"):
        ndd.readers.TFRecord(
            path=["x", "y"], index_path="z", features={"a": T.VarLenFeature(T.int64, 0)}
        )
    with pytest.raises(ValueError, match="`shuffle_after_epoch` and `stick_to_shard` exclude"):
        ndd.readers.TFRecord(
            path="x", features={"a": T.VarLenFeature(T.int64, 0)}, shuffle_after_epoch=True, stick_to_shard=True
        )  # fmt: skip


def test_files_that_are_no_tfrecords(made, tmp_path):
    data = Path(made["path"]).read_bytes()
    wanted = dict(lab=T.VarLenFeature(T.int64, 0))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("This is not a TFRecord file at all, but a text.")
    (tmp_path / "short").write_bytes(data[:-5])
    (tmp_path / "head").write_bytes(data + b"\0" * 7)
    bad = bytearray(data)
    bad[9] ^= 1
    (tmp_path / "check").write_bytes(bad)
    with pytest.raises(FileNotFoundError, match=r"readers.TFRecord: cannot read .*gone"):
        read(tmp_path / "gone", **wanted)
    with pytest.raises(OSError, match="Is a directory"):
        read(tmp_path, **wanted)
    with pytest.raises(ValueError, match=r"no records found in \['.*empty'\]"):
        read(tmp_path / "empty", **wanted)
    second = struct.unpack_from("<Q", data)[0] + 16
    for name, text in (
        ("text", "no TFRecord file, or damaged: record at offset 0: it has .* bytes by its head"),
        ("short", f"record at offset {second}: it has .* bytes by its head, but .* are left"),
        ("head", f"record at offset {len(data)}: the file ends after 7 bytes of its head"),
        ("check", "record at offset 0: the checksum of its length is wrong"),
    ):
        with pytest.raises(ValueError, match=text):
            read(tmp_path / name, **wanted)


def test_indexes_that_do_not_fit(made, tmp_path):
    index = tmp_path / "x.idx"
    size = Path(made["path"]).stat().st_size
    for text, message in (
        ("hello\n", "index .* must have 2 integers per line"),
        ("0 20 3\n", "must have 2 integers per line"),
        ("0 99999999999999999999\n", "must have 2 integers per line"),
        ("", "no records found in the indexes"),
        ("0 15\n", "line 1 .* offset and the length of a record .at least 16 bytes.*0, 15"),
        ("-1 20\n", "line 1 .*-1, 20"),
        (f"0 20\n0 {size + 1}\n", f"line 2 of index .* outside of .*, which has {size}"),
        (f"{2**62} {2**62}\n", "line 1 of index .* outside of"),
        ("0 20\n", "its head says .* bytes, the index 4"),
    ):
        index.write_text(text)
        with pytest.raises(ValueError, match=message):
            read(made["path"], index_path=index, lab=T.VarLenFeature(T.int64, 0))


def test_checksums_are_verified_if_wanted(made, tmp_path):
    data = bytearray(Path(made["path"]).read_bytes())
    data[20] ^= 0x20  # in the name of a feature
    (tmp_path / "a").write_bytes(data)
    wanted = dict(lab=T.VarLenFeature(T.int64, 0))
    assert len(read(tmp_path / "a", **wanted)) == 2
    with pytest.raises(ValueError, match="at index 0: the checksum of its data is wrong"):
        read(tmp_path / "a", verify_crc=True, **wanted)
    assert len(read(made["path"], verify_crc=True, **wanted)) == 2
    data = bytearray(Path(made["path"]).read_bytes())
    data[8] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ValueError, match="at index 0: the checksum of its length is wrong"):
        read(tmp_path / "a", verify_crc=True, index_path=made["index_path"], **wanted)


def test_checksums_equal_a_plain_definition():
    def slow(data: bytes) -> int:
        value = 0xFFFFFFFF
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        value ^= 0xFFFFFFFF
        return (value >> 15 | value << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF

    random.seed(1)
    for size in (0, 1, 7, 8, 9, 16, 31, 100):
        data = random.randbytes(size)
        assert int.from_bytes(checksum(data), "little") == slow(data)
    lengths = np.array([0, 1, 2**40 + 3], np.int64)
    assert crc32c.of_lengths(lengths).tolist() == [
        slow(struct.pack("<Q", n)) for n in lengths.tolist()
    ]


def test_on_error_replaces_records(tmp_path):
    data = bytearray(tfrecord(*(example(n=ints(i), s=strings(b"x")) for i in range(4))))
    size = len(data) // 4
    data[2 * size + 12] = 0xFF  # the third record begins with an invalid field
    (tmp_path / "a").write_bytes(data)
    features = {"n": T.FixedLenFeature([1], T.int64, -1), "s": T.FixedLenFeature((), T.string, "d")}

    def run(policy):
        reader = ndd.readers.TFRecord(path=tmp_path / "a", features=features, on_error=policy)
        (batch,) = reader.next_epoch(4)
        assert [(e.index, e.file) for e in reader.errors] == [
            (2, f"{tmp_path / 'a'} at index {2 * size}")
        ]
        assert "its message is invalid at byte 12" in str(reader.errors[0].cause)
        return [
            (np.asarray(n).tolist(), bytes(np.asarray(s)))
            for n, s in zip(batch["n"].tensors, batch["s"].tensors)
        ]

    good = [([0], b"x"), ([1], b"x"), None, ([3], b"x")]
    for policy, wanted in (
        ("skip", ([3], b"x")),
        ("fill", ([-1], b"d")),
        (lambda e: b"mine", ([-1], b"mine")),
        (lambda e: {"n": [9]}, ([9], b"d")),
        (lambda e: ([8], b"both"), ([8], b"both")),
        (lambda e: None, ([3], b"x")),
    ):
        assert run(policy) == [wanted if g is None else g for g in good]
    with pytest.raises(TypeError, match="`on_error` must return bytes, a sequence of 2 outputs"):
        run(lambda e: 3)
    with pytest.raises(ValueError, match="its message is invalid at byte 12"):
        run("raise")


def test_batches_that_are_read_together(tmp_path):
    """Small batches are cut out of one read; a bad record is an error of its own batch only."""
    many = [example(t=strings(bytes([k]) * (k % 7)), n=ints(k)) for k in range(40)]
    path = str(tmp_path / "a.tfrecord")
    write_tfrecord(Path(path), *many)
    features = {
        "t": T.FixedLenFeature((), T.string, ""),
        "n": T.FixedLenFeature([1], T.int64, -1),
    }
    reader = ndd.readers.TFRecord(path=path, features=features, last_batch="partial")
    assert batches_per_run(reader._data()[0], 3) == MAX_BATCHES_PER_RUN
    found = [
        [(np.asarray(t).tobytes(), int(np.asarray(n)[0])) for t, n in zip(i["t"].tensors, i["n"].tensors)]
        for i in reader.next_epoch(batch_size=3)
    ]  # fmt: skip
    wanted = [(bytes([k]) * (k % 7), k) for k in range(40)]
    assert found == [wanted[k : k + 3] for k in range(0, 40, 3)]
    batches = [item["n"] for item in reader.next_epoch(batch_size=3)]
    batches[0].torch()[0] = 100  # the memory of one batch is not that of the next
    assert [b.torch().flatten().tolist() for b in batches[:2]] == [[100, 1, 2], [3, 4, 5]]

    data = bytearray(Path(path).read_bytes())
    reader = ndd.readers.TFRecord(path=path, features=features)
    data[int(tfrecord_file.scan(path)[19, 0]) + 12] ^= 4  # the message of record 19
    Path(path).write_bytes(data)
    epoch, good = reader.next_epoch(batch_size=4), []
    with pytest.raises(ValueError, match=r"\(sample 19\)"):
        for item in epoch:
            good += item["n"].torch().flatten().tolist()
    assert good == list(range(16))
    assert next(epoch)["n"].torch().flatten().tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize("kind", [2, 3])
def test_numbers_beyond_those_that_were_counted_are_not_written(kind):
    """Another process may change a mapped file after its lists were checked."""
    content = field(1, struct.pack("<3f", 1, 2, 3)) if kind == 2 else field(1, b"\x01\x02\x03")
    data = np.frombuffer(content * 2, np.uint8)
    target = np.full(8, -1, np.float32 if kind == 2 else np.int64)
    lists = np.array([[data.ctypes.data, len(data), target.ctypes.data, 4]], np.int64)
    function("example_values")(lists.ctypes.data, 1, kind)
    assert target.tolist() == [1, 2, 3, 1, -1, -1, -1, -1]


def test_index_from_the_command_line(made, tmp_path, capsys):
    path = tmp_path / "copy"
    path.write_bytes(Path(made["path"]).read_bytes())
    assert main(["index", "tfrecord", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}.idx: 2 records\n"
    assert Path(f"{path}.idx").read_text() == Path(made["index_path"]).read_text()
    assert main(["index", "tfrecord", str(path), "--output", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other").read_text() == Path(made["index_path"]).read_text()
    assert main(["index", "tfrecord", str(path), str(path), "--output", "x"]) == 2
    assert main(["index", "tfrecord", str(tmp_path / "gone")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_large_and_small_records_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MAPPED_BYTES", 30)  # columns in files
    monkeypatch.setattr(tfrecord_file, "_WINDOW_BYTES", 64)
    sizes = [0, 1, 1000, 2, 3, 70, 0, 0, 300, 5]
    (tmp_path / "a").write_bytes(tfrecord(*(bytes(n) for n in sizes)))
    rows = tfrecord_file.scan(str(tmp_path / "a"))
    assert (rows[:, 1] - 16).tolist() == sizes
    assert rows[:, 0].tolist() == np.cumsum([0, *(n + 16 for n in sizes[:-1])]).tolist()


def test_an_index_costs_eight_bytes_per_record(made):
    from ndd.readers.stores.record_index import RecordIndex

    index = RecordIndex(["x"])
    index.add(np.arange(200_000).reshape(-1, 2) + 1)
    index.finish()
    assert index.nbytes == sum(c.nbytes for c in (*index._offsets, *index._lengths))
    assert index.nbytes == 8 * len(index)
