"""readers.MXNet: records as the oracle reads them, several parts, indexes, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from ndd.cli import main
from tests.readers.datasets import labelled, recordio, write_recordio
from tests.readers.helpers import info


def samples(library, **options):
    return [
        [(str(b.dtype), b.shape, np.asarray(b.tensors[0]).tolist(), info(library, b)) for b in item]
        for item in library.readers.MXNet(**options).next_epoch(batch_size=1)
    ]


RECORDS = [
    recordio(labelled(3.0, b"abc")),
    recordio(labelled(0.0, b"defgh", 1.5, -2.0)),
    recordio(labelled(4.0, b"ab"), 1) + recordio(b"cd", 2) + recordio(b"efg", 3),  # cut into parts
    recordio(labelled(5.0, b"")),
    recordio(labelled(1.0, b"x", 7.0)),
]


def test_records_equal_the_oracles(tmp_path):
    made = write_recordio(tmp_path / "a.rec", *RECORDS)
    wanted = samples(dali, **made)
    assert samples(ndd, **made) == wanted and len(wanted) == 5
    assert samples(ndd, path=made["path"]) == wanted
    index = Path(made["index_path"])
    index.write_text("".join(reversed(index.read_text().splitlines(keepends=True))))
    assert samples(ndd, **made) == samples(dali, **made) == wanted


def test_several_files_and_indexes(tmp_path):
    a = write_recordio(tmp_path / "a.rec", *RECORDS[:2])
    b = write_recordio(tmp_path / "b.rec", *RECORDS[2:])
    size = Path(a["path"]).stat().st_size
    both = tmp_path / "both.idx"
    lines = [line.split("\t") for line in Path(b["index_path"]).read_text().splitlines()]
    both.write_text(
        Path(a["index_path"]).read_text() + "".join(f"{k}\t{int(o) + size}\n" for k, o in lines)
    )
    paths = [a["path"], b["path"]]
    wanted = samples(dali, path=paths, index_path=[str(both)])
    assert samples(ndd, path=paths, index_path=str(both)) == wanted
    assert samples(ndd, path=paths, index_path=[a["index_path"], b["index_path"]]) == wanted
    with pytest.raises(ValueError, match="one index, or one for each of the 3 files, got 2"):
        ndd.readers.MXNet(path=[*paths, "x"], index_path=["y", "z"])


def test_index_from_the_command_line(tmp_path, capsys):
    made = write_recordio(tmp_path / "a.rec", *RECORDS)
    assert main(["index", "recordio", made["path"]]) == 0
    assert Path(f"{made['path']}.idx").read_text() == Path(made["index_path"]).read_text()


def test_damaged_records(tmp_path):
    good = recordio(labelled(3.0, b"abc"))
    for k, (content, text) in enumerate((
        (b"\0" + good[1:], "no magic number at byte 0"),
        (good[:4], "it ends after 4 bytes of a part's head at byte 0"),
        (good[:-8], "a part of 27 bytes at byte 0, but 20 are left"),
        (recordio(b"abc"), "its data has 3 bytes, fewer than the 24 of its header"),
        (recordio(labelled(3.0, b"abc").replace(b"\0\0\0\0", b"\xff\0\0\0", 1)), "255 labels in 3 bytes of data"),
        (recordio(b"x" * 24, 2), "a part of kind 2 at byte 0 does not belong there"),
        (recordio(b"x" * 24, 1), "it ends after 0 bytes of a part's head at byte 32"),
        (recordio(b"x" * 24, 1) + recordio(b"", 0), "a part of kind 0 at byte 32 does not belong"),
    )):  # fmt: skip
        (tmp_path / f"{k}.rec").write_bytes(content)
        (tmp_path / "x.idx").write_text("0\t0\n")
        with pytest.raises(
            ValueError, match=f"cannot read '.*{k}.rec at index 0' .sample 0.: .*{text}"
        ):
            samples(ndd, path=tmp_path / f"{k}.rec", index_path=tmp_path / "x.idx")
        if k not in (3, 4, 5, 7):
            with pytest.raises(ValueError, match=r"readers.MXNet: .*"):
                samples(ndd, path=tmp_path / f"{k}.rec")


def test_indexes_that_do_not_fit(tmp_path):
    made = write_recordio(tmp_path / "a.rec", *RECORDS)
    size = Path(made["path"]).stat().st_size
    index = tmp_path / "x.idx"
    for text, message in (
        ("", "index .* names no records"),
        ("hello", "must have 2 integers per line"),
        (f"0\t{size}\n", f"names offset {size}, but the file has {size} bytes"),
        ("0\t-4\n", "names offset -4"),
        ("0\t4\n", "no magic number at byte 0"),
    ):
        index.write_text(text)
        with pytest.raises(ValueError, match=message):
            samples(ndd, path=made["path"], index_path=index)
    index.write_text("0\t0\n1\t99999\n")
    with pytest.raises(ValueError, match="names offset 99999, but all files have"):
        samples(ndd, path=[made["path"], made["path"]], index_path=index)
    for options in (
        dict(path=tmp_path / "gone"),
        dict(path=made["path"], index_path=tmp_path / "gone"),
    ):
        with pytest.raises(FileNotFoundError, match=r"readers.MXNet: cannot read .*gone"):
            samples(ndd, **options)
