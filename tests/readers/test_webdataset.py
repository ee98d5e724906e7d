"""readers.Webdataset: samples and components as the oracle finds them, indexes, archives, errors."""

from __future__ import annotations

import io
import tarfile
import warnings
from pathlib import Path

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from ndd.cli import main
from ndd.readers.stores import columns, tar
from ndd.readers.stores.columns import Packed
from tests.readers.datasets import DEVICE, FOLDER, LINK, write_tar
from tests.readers.helpers import info

LONG = "long" * 40
MEMBERS = [
    ("0.jpg", b"j0"), ("0.cls", b"0"), ("1.jpg", b"j1"), ("1.cls", b"1"), ("1.json", b"{}"), (".hid.jpg", b"h"),
    ("dir.x", FOLDER), ("dir/2.jpg", b"j2"), ("dir/2.seg.png", b"p2"), ("lnk.jpg", LINK), ("3.JPG", b"j3"),
    ("3.cls", b"3"), ("noext", b"n"), ("d.ir/4.jpg", b"j4" * 300), ("d.ir/4.cls", b"4"), (f"{LONG}/5.jpg", b"j5"),
    (f"{LONG}/5.cls", b"5"), ("0.cls", b"again"), ("dev.jpg", DEVICE), ("6.cls", b"6"), ("6.cls", b"66"), ("6.jpg", b""),
]  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> str:
    return write_tar(tmp_path_factory.mktemp("tar") / "a.tar", MEMBERS)


def samples(library, **options):
    """Bytes and names of all outputs of all samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = library.readers.Webdataset(**options)
    return [
        [(str(b.dtype), b.shape, [np.asarray(t).tobytes() for t in b.tensors], info(library, b)) for b in item]
        for item in reader.next_epoch(batch_size=1)
    ]  # fmt: skip


CHOICES = [
    dict(ext=["jpg", "cls"]),
    dict(ext=["jpg", "cls"], missing_component_behavior="empty"),
    dict(ext=["jpg", "cls"], missing_component_behavior="skip"),
    dict(ext=["jPg", "cls"], case_sensitive_extensions=False),
    dict(ext=["seg.png;cls"], missing_component_behavior="skip"),
    dict(ext=["jpg;cls"], missing_component_behavior="skip"),
    dict(ext=["jpg;cls", "cls;json"]),
    dict(ext=["jpg", "jpg"]),
    dict(ext="png"),
    dict(ext="jpg", dtypes=[ndd.uint8]),
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_samples_equal_the_oracles(archive, options):
    theirs = dict(options)
    if "dtypes" in theirs:
        theirs["dtypes"] = [dali.uint8.type_id]
    assert samples(ndd, paths=archive, **options) == samples(dali, paths=[archive], **theirs)


def test_types_equal_the_oracles(tmp_path):
    import nvidia.dali.types as types

    path = write_tar(
        tmp_path / "b.tar", [("0.bin", bytes(range(16))), ("0.c", b"x"), ("1.bin", bytes(8))]
    )
    for name in (
        "FLOAT",
        "FLOAT16",
        "FLOAT64",
        "INT8",
        "INT16",
        "UINT16",
        "INT32",
        "UINT32",
        "INT64",
        "UINT64",
    ):
        theirs = getattr(types, name)
        ours = ndd.dtype({"FLOAT": "float32"}.get(name, name.lower()))
        assert samples(ndd, paths=path, ext=["bin", "c"], dtypes=[ours, ndd.uint8]) == samples(
            dali, paths=path, ext=["bin", "c"], dtypes=[theirs, types.UINT8]
        )
    with pytest.raises(
        ValueError, match="`dtypes` must have one type for each of the 2 outputs, got 1"
    ):
        ndd.readers.Webdataset(paths=path, ext=["bin", "c"], dtypes=ndd.float32)
    with pytest.raises(
        ValueError, match=r"component .c. at 1536 has 1 bytes, no multiple of the size of i16"
    ):
        ndd.readers.Webdataset(paths=path, ext=["bin", "c"], dtypes=[ndd.uint8, ndd.int16])
    with pytest.raises(ValueError, match="`dtypes` must be some of"):
        ndd.readers.Webdataset(paths=path, ext=["bin"], dtypes=[ndd.bool])


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def test_names_of_all_kinds_of_archives(tmp_path, format):
    names = [
        "a/b.x",
        f"{'p' * 90}/{'n' * 90}.x",
        *(() if format == tarfile.USTAR_FORMAT else ("é" * 70 + ".x", f"{LONG}.x")),
    ]
    path = write_tar(tmp_path / "n.tar", [(n, n.encode()) for n in names], format)
    found = samples(ndd, paths=path, ext="x")
    assert [f[0][2][0].decode() for f in found] == names
    assert [f[0][3][0].rpartition(":")[2] for f in found] == names
    with tarfile.open(path) as archive:
        assert [(m.name, m.offset, m.size) for m in tar.members(path)] == [
            (m.name, m.offset_data, m.size) for m in archive.getmembers()
        ]


def test_several_fitting_components_warn(archive):
    with pytest.warns(UserWarning, match="several components for one output; the first is used"):
        ndd.readers.Webdataset(paths=archive, ext=["jpg", "cls"])


def test_missing_components_can_be_errors(archive):
    with pytest.raises(ValueError, match=r"sample 2 \(at 7168\) has no component 'cls'"):
        ndd.readers.Webdataset(
            paths=archive, ext=["jpg", "cls"], missing_component_behavior="error"
        )
    with pytest.raises(ValueError, match="must be one of empty, skip, error, got 'bogus'"):
        ndd.readers.Webdataset(paths=archive, ext="jpg", missing_component_behavior="bogus")
    with pytest.raises(ValueError, match="no samples found"):
        ndd.readers.Webdataset(paths=archive, ext="gif", missing_component_behavior="skip")


def test_indexes_equal_the_oracles(tmp_path):
    path = write_tar(tmp_path / "a.tar", MEMBERS[:4])
    index = tmp_path / "a.idx"
    for text in (
        "v1.1 2\njpg 512 2 cls 1536 1\njpg 2560 2\n",
        "v1.2 2\njpg 512 2 0.jpg cls 1536 1 0.cls\njpg 2560 2 other\n",
        "v1.2 1\ncls 1536 1 0.cls\njpg 2560 2 beyond\n",
    ):
        index.write_text(text)
        options = dict(paths=path, index_paths=str(index), ext=["jpg", "cls"])
        assert samples(ndd, **options) == samples(dali, **options)


def test_archives_with_indexes_of_the_first_version_are_read_without_them(tmp_path):
    """Upstream refuses them, so their lines are not looked at, whatever they hold."""
    paths = [write_tar(tmp_path / f"{k}.tar", MEMBERS[4 * k : 4 * k + 4]) for k in range(2)]
    first, second = tmp_path / "0.idx", tmp_path / "1.idx"
    tar.write_index(paths[1], str(second))
    for text in ("v1.0 2\n0 jpg 2 cls 1\n", "v1.0\n", "v1.0 9999999"):
        first.write_text(text)
        with pytest.warns(UserWarning, match="indexes of version v1.0, such as .*0.idx', are not"):
            ndd.readers.Webdataset(paths=paths, index_paths=[first, second], ext=["jpg", "cls"])
        options = dict(paths=paths, ext=["jpg", "cls"])
        found = samples(ndd, index_paths=[first, second], **options)
        assert len(found) == 4 and found == samples(ndd, **options)


def test_an_index_takes_8_bytes_for_two_small_components(tmp_path):
    """Offsets are multiples of 512; these take 1 byte, as lengths do, and places of names in the index file take 2."""
    members = [(f"{k}.{ext}", b"x" * k) for k in range(1, 51) for ext in ("jpg", "cls")]
    path = write_tar(tmp_path / "a.tar", members)
    tar.write_index(path, f"{path}.idx")
    options = dict(paths=path, index_paths=f"{path}.idx", ext=["jpg", "cls"])
    listed = ndd.readers.Webdataset(**options)._list()
    assert len(listed.index) == 50
    assert listed.index.nbytes + listed._lines.nbytes == (2 * (2 + 1) + 2) * 50
    assert listed.index.place(7, 1) == (0, (2 * 7 + 1) * 1024 + 512, 8)


def test_a_column_takes_what_its_numbers_need(monkeypatch):
    monkeypatch.setattr(columns, "_AT_ONCE", 3)
    for numbers, size in (
        ([5, 127, 0, -1, 9, 3, 2], 1), ([128, 1], 2), ([1 << 15, 0, 1], 4), ([5, (1 << 31) - 1], 4),
        ([5, 1 << 31], 8), ([], 1), ([0, 0], 1), ([-1, -1], 1), ([512 * 127, -1, 512], 1),
        ([512 << 31, 512, 0, -1], 8), ([(512 << 31) - 512, 1024, 0, -1, 512], 4),
        ([512, 512, 512, 513], 2), ([(1 << 62) + (1 << 40), -1], 4),
    ):  # fmt: skip
        packed = Packed(np.array(numbers, np.int64))
        assert packed[:].tolist() == numbers and packed.nbytes == size * len(numbers)
        assert len(packed) == len(numbers)
        some = np.arange(0, len(numbers), 2)
        assert packed[some].tolist() == numbers[::2] and packed[some].dtype == np.int64
        assert [int(packed[k]) for k in range(len(numbers))] == numbers


def test_indexes_that_do_not_fit(tmp_path):
    path = write_tar(tmp_path / "a.tar", MEMBERS[:4])
    index = tmp_path / "a.idx"
    for text, message in (
        ("", "is empty; its first line must be a version and a count"),
        ("hello", "has version 'hello', known are v1.1 and v1.2: make it anew with"),
        ("v0.9 1\njpg 512 2", "has version 'v0.9'"),
        ("v1.3 1\njpg 512 2 a.jpg", "has version 'v1.3'"),
        ("v1.2", "line 1 .* a positive number of samples"),
        ("v1.2 0\n", "line 1 .* a positive number of samples"),
        ("v1.2 -1\njpg 512 2 a", "line 1 .* a positive number of samples"),
        ("v1.2 2\njpg 512 2 a.jpg", "has 1 samples, not 2 as line 1 says"),
        (
            "v1.2 1\n\n",
            "line 2 .* must be `<ext> <offset> <size> <name>` for each component, got ''",
        ),
        ("v1.2 1\njpg 512", "line 2 .* must be"),
        ("v1.2 1\njpg 512 2 a.jpg extra", "line 2 .* must be"),
        ("v1.1 1\njpg 512 2 a.jpg", "line 2 .* must be `<ext> <offset> <size>` for"),
        ("v1.2 1\njpg 512 -2 a.jpg", "line 2 .* must be"),
        ("v1.2 1\njpg 512 9999999999999999999999999999999999999 a.jpg", "line 2 .* must be"),
        ("v1.2 1\njpg 511 2 a.jpg", "line 2 .*: offset 511 is not a multiple of 512"),
        (
            "v1.2 1\njpg 512 2000000 a.jpg",
            r"component .jpg. at 512 has 2000000 bytes by the index, but the archive has 10240",
        ),
        ("v1.2 1\njpg 512000 2 a.jpg", "component .jpg. at 512000 has 2 bytes by the index"),
    ):
        index.write_text(text)
        with pytest.raises(ValueError, match=f"readers.Webdataset: .*{message}"):
            ndd.readers.Webdataset(paths=path, index_paths=index, ext=["jpg", "cls"])
    with pytest.raises(ValueError, match="one index for each of the 2 archives, got 1"):
        ndd.readers.Webdataset(paths=[path, path], index_paths=index, ext="jpg")


def test_files_that_are_no_archives(tmp_path):
    data = Path(write_tar(tmp_path / "a.tar", MEMBERS[:4])).read_bytes()
    size = bytearray(data[:512])
    size[124:136] = b"77777777777\0"
    size[148:156] = b"%06o\0 " % (sum(size) - sum(size[148:156]) + 256)
    sparse = bytearray(data[:512])
    sparse[156:157] = b"S"
    sparse[148:156] = b"%06o\0 " % (sum(sparse) - sum(sparse[148:156]) + 256)
    for name, content, message in (
        ("empty", b"", "is empty, not a tar archive"),
        (
            "text",
            b"hello" * 200,
            "no tar archive, or damaged: at offset 0: the checksum of the header is wrong",
        ),
        ("small", b"hello", "at offset 0: the file ends inside of a header"),
        ("head", data[:1500], "at offset 1024: the file ends inside of a header"),
        ("body", data[:1536], "at offset 1024: a member of 1 bytes, but 0 are left"),
        ("size", bytes(size) + data[512:], "at offset 0: a member of 8589934591 bytes, but"),
        ("sparse", bytes(sparse) + data[512:], "at offset 0: a sparse file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"readers.Webdataset: .*{message}"):
            ndd.readers.Webdataset(paths=tmp_path / name, ext="jpg")
    with pytest.raises(FileNotFoundError, match=r"readers.Webdataset: cannot read .*gone"):
        ndd.readers.Webdataset(paths=tmp_path / "gone", ext="jpg")
    with pytest.raises(ValueError, match="`ext` is empty"):
        ndd.readers.Webdataset(paths=tmp_path / "head", ext=[])
    with pytest.raises(ValueError, match="`paths` is empty"):
        ndd.readers.Webdataset(paths=[], ext="jpg")
    with pytest.raises(TypeError, match="`paths` must be a path or a list of paths, got 3"):
        ndd.readers.Webdataset(paths=3, ext="jpg")


def test_names_are_only_compared(tmp_path, monkeypatch):
    """A member called ../x or /x is read from the archive; nothing is written or opened by its name."""
    monkeypatch.chdir(tmp_path)
    path = write_tar(
        tmp_path / "evil.tar", [("../../evil.x", b"1"), ("/etc/passwd.x", b"2"), ("dev.x", DEVICE)]
    )
    before = sorted(tmp_path.iterdir())
    assert [f[0][2][0] for f in samples(ndd, paths=path, ext="x")] == [b"1", b"2"]
    assert sorted(tmp_path.iterdir()) == before


def test_an_archive_that_becomes_shorter(tmp_path):
    path = write_tar(tmp_path / "a.tar", [(f"{i}.x", bytes([i]) * 600) for i in range(4)])
    reader = ndd.readers.Webdataset(paths=path, ext="x", on_error="skip")
    with Path(path).open("r+b") as file:
        file.truncate(512 + 1024 + 512 + 1024)
    (data,) = next(iter(reader.next_epoch(4)))
    assert {int(np.asarray(t)[0]) for t in data.tensors} == {0, 1}
    assert [e.index for e in reader.errors] == [2, 3]
    assert "bytes at offset" in str(reader.errors[0].cause)


def test_index_from_the_command_line(tmp_path, capsys):
    path = write_tar(tmp_path / "a.tar", [m for m in MEMBERS if m[0] != "noext"])
    assert main(["index", "tar", path]) == 0
    assert capsys.readouterr().out == f"{path}.idx: 8 records\n"
    options = dict(paths=path, ext=["jpg", "cls"])
    assert samples(ndd, **options) == samples(ndd, index_paths=f"{path}.idx", **options)
    assert samples(ndd, **options) == samples(dali, index_paths=f"{path}.idx", **options)
    assert main(["index", "tar", write_tar(tmp_path / "b.tar", MEMBERS)]) == 1
    assert "an index cannot hold the name 'noext'" in capsys.readouterr().err


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("fold", [False, True])
def test_listing_finds_what_the_headers_say(tmp_path, format, fold):
    """The native listing equals one header after the other, whatever the headers are like."""
    names = ["a/0.jpg", "a/0.CLS", "a/.hidden.jpg", "a/0.a-very-long-extension", "a/0.png", "b.jpg", "c", "d.cls.jpg",
             "e/" + "x" * 90 + "/f.jpg", "e/" + "x" * 90 + "/f.cls", "g.Jpg", "ä.jpg", "ä.ÄÖ"]  # fmt: skip
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=format) as archive:
        for k, name in enumerate(names * 40):
            member = tarfile.TarInfo(f"{k // len(names)}{name}")
            member.size, member.mtime = k % 1100, 1.5 if k % 3 == 0 else 1
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    exts = ["jpg", "cls", "a-very-long-extension", "äö" if fold else "ÄÖ", ""]
    wanted = tar.Wanted(exts, fold)
    found = [
        row
        for part in tar.scan(str(path), wanted)
        for row in zip(*(c.tolist() for c in part[:4]), strict=True)
    ]
    expected, last = [], ""
    for name, offset, size in tar.members(str(path)):
        base, ext = tar.split(name)
        if base.rpartition("/")[2]:
            expected.append((base != last, wanted.number(ext), offset, size))
            last = base
    assert found == expected and {row[1] for row in found} == {-1, 0, 1, 2, 3, 4}
