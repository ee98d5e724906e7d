"""Small things that went wrong: pipes, links in loops, damaged .npy files, wide ranges."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

import ndd
from tests.decoders.fixtures import as_bytes, files
from tests.helpers import run_python


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody writes into the pipe, so that opening it would wait for ever."""
    pipe = tmp_path / "pipe.jpg"
    os.mkfifo(pipe)
    told = run_python(
        f"""
        import ndd, signal
        signal.alarm(60)
        try:
            ndd.imread({str(pipe)!r})
        except OSError as error:
            print(error)
        ndd.decoders.errors.clear()
        print(ndd.imread([{str(pipe)!r}], on_error="fill").shape, len(ndd.decoders.errors))
        """
    )
    assert "imread: cannot read" in told and "Not a regular file" in told
    assert "[(1, 1, 3)] 1" in told


def test_links_in_loops_cost_one_sample(tmp_path: Path) -> None:
    folder = tmp_path / "cats"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(files()["jpeg"])
    (folder / "b.jpg").symlink_to("b.jpg")
    (tmp_path / "dogs").symlink_to("dogs")
    reader = ndd.readers.File(file_root=tmp_path, on_error="skip")
    read = [data.tensors[0].shape for data, _ in reader.next_epoch(1)]
    assert len(read) == 2 and [Path(e.file).name for e in reader.errors] == ["b.jpg"]
    with pytest.raises(OSError, match=r"b\.jpg.*symbolic links"):
        list(ndd.readers.File(file_root=tmp_path).next_epoch(2))


def npy(header: bytes, data: bytes = bytes(64)) -> np.ndarray:
    """A .npy file with any header."""
    text = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    return as_bytes(text + data)


HEADERS = (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"(" * 3000,
    b"{'descr': 3, 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, " + b"9" * 40 + b")}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    b"\xff\xfe\x00", b"", b"'''", b"    1\n  2", b"f'{1}'", b"-" * 2000 + b"1",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("header", HEADERS)
def test_damaged_npy_headers(header: bytes) -> None:
    with pytest.raises(ValueError, match=r"decoders\.numpy: sample 0: "):
        ndd.decoders.numpy(ndd.tensor(npy(header)))


@pytest.mark.filterwarnings("ignore")
def test_damaged_npy_files() -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(12, dtype=np.int16).reshape(3, 4))
    good, rng = stream.getvalue(), np.random.default_rng(0)
    for k in range(600):
        bad = bytearray(good)
        for _ in range(1 + k % 3):
            bad[int(rng.integers(len(bad)))] = int(rng.integers(256))
        try:
            ndd.decoders.numpy(ndd.tensor(as_bytes(bytes(bad)))).evaluate()
        except ValueError as error:
            assert "sample 0" in str(error)


@pytest.mark.parametrize("dtype", [ndd.float32, ndd.float64])
def test_a_range_wider_than_a_number_can_be(dtype: ndd.DType) -> None:
    drawn = np.asarray(ndd.random.uniform(range=[-3e38, 3e38], shape=[4000], dtype=dtype))
    drawn = drawn.astype(np.float64)
    assert np.isfinite(drawn).all() and len(np.unique(drawn)) > 3900
    assert abs(drawn.mean()) < 1e37 and drawn.min() < -2.9e38 and drawn.max() > 2.9e38
