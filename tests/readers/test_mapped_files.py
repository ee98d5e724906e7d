"""Large records stay in mapped files: what they hold, who may write, and files that are truncated at any time."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.kernels.cpu import bus_errors
from ndd.readers import epoch
from ndd.readers.stores import byte_files
from ndd.readers.stores.byte_files import ByteFiles
from ndd.readers.stores.mapped_files import MappedContents
from tests.helpers import ROOT
from tests.readers.datasets import example, strings, write_tar, write_tfrecord

BYTES, COUNT = 100_000, 12
NOISE = np.random.default_rng(0)


@pytest.fixture
def contents():
    return [NOISE.bytes(BYTES + 37 * k) for k in range(COUNT)]


@pytest.fixture(params=["TFRecord", "tar"])
def data_set(request, tmp_path, contents):
    """The file, and a function that makes readers which yield one output."""
    if request.param == "tar":
        path = write_tar(tmp_path / "a.tar", [(f"{k:02d}.jpg", c) for k, c in enumerate(contents)])
        return path, lambda **o: ndd.readers.Webdataset(paths=path, ext="jpg", **o)
    made = write_tfrecord(tmp_path / "a.tfrecord", *(example(image=strings(c)) for c in contents))
    feature = ndd.tfrecord.FixedLenFeature((), ndd.tfrecord.string, "")
    return made["path"], lambda **o: ndd.readers.TFRecord(**made, features={"image": feature}, **o)


def output(item):
    return item["image"] if isinstance(item, dict) else item[0]


def mapping_of(batch):
    return getattr(batch._node.stored.owner, "mapped", None)


def samples(batch):
    return [np.asarray(t).tobytes() for t in batch.tensors]


def test_large_records_are_not_copied(data_set, contents):
    _, reader = data_set
    for option, is_mapped in (({}, True), ({"dont_use_mmap": True}, False)):
        made = reader(**option)
        for _ in range(2):
            found = []
            for item in made.next_epoch(batch_size=4):
                assert (mapping_of(output(item)) is not None) == is_mapped
                assert np.asarray(output(item).tensors[0]).flags.writeable != is_mapped
                found += samples(output(item))
            assert found == contents
    shuffled = reader(random_shuffle=True)
    found = [s for item in shuffled.next_epoch(batch_size=5) for s in samples(output(item))]
    assert set(found) == set(contents)
    found = [np.asarray(output(item)).tobytes() for item in reader().next_epoch()]
    assert found == contents  # single samples


def test_large_batches_are_mapped_together(data_set, contents, monkeypatch):
    """They take no memory, so several are read at a time."""
    _, reader = data_set
    monkeypatch.setattr(epoch, "RUN_BYTES_IN_FILES", 8 * BYTES)
    monkeypatch.setattr(epoch, "RUN_BYTES", 3 * BYTES)
    for option, wanted in (({}, 3), ({"dont_use_mmap": True}, 1)):
        made = reader(last_batch="partial", **option)
        read: list[int] = []
        monkeypatch.setattr(made._data()[0], "read_many", noting(read, made._data()[0].read_many))
        items = [*made.next_epoch(batch_size=2)]
        assert [samples(output(item)) for item in items] == [
            contents[k : k + 2] for k in range(0, COUNT, 2)
        ]
        assert read == [2 * wanted] * (COUNT // 2 // wanted)
    owners = [output(item)._node.stored.owner for item in items]
    assert len({id(owner) for owner in owners}) == len(items)  # each may be handed out alone


def noting(read, read_many):
    def noted(indices):
        read.append(len(indices))
        return read_many(indices)

    return noted


def test_what_the_user_writes_reaches_nobody(data_set, contents):
    path, reader = data_set
    made = reader()
    for _ in range(2):
        (batch,) = [output(item) for item in made.next_epoch(batch_size=COUNT)]
        assert samples(batch) == contents
        for tensor in batch.tensors:
            with pytest.raises(ValueError, match="read-only"):
                np.asarray(tensor)[0] = 1
            tensor.torch()[:] = 7  # a copy
        assert samples(batch) == contents
        assert samples(batch + np.uint8(0)) == contents
    assert contents[0] in Path(path).read_bytes()


def test_ops_do_not_see_later_changes(data_set, contents):
    path, reader = data_set
    (batch,) = [output(item) for item in reader().next_epoch(batch_size=COUNT)]
    before = batch + np.uint8(0)
    at = Path(path).read_bytes().index(contents[0])
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(bytes(BYTES))
    assert samples(before) == samples(batch + np.uint8(0)) == contents
    assert samples(batch)[0] == bytes(BYTES)  # the map itself


def test_the_policy_decides_about_samples_that_are_lost_when_they_are_read(data_set, contents):
    path, reader = data_set
    size = Path(path).stat().st_size
    made, filling = reader(), reader(on_error="fill")
    os.truncate(path, size - 3 * BYTES)
    with pytest.raises(ValueError, match=r"a\.(tar|tfrecord).* bytes at offset \d+ are wanted"):
        list(made.next_epoch(batch_size=COUNT))
    (batch,) = [output(item) for item in filling.next_epoch(batch_size=COUNT)]
    kept = sum(batch.valid)
    assert 8 <= kept <= 9 and samples(batch)[:kept] == contents[:kept]
    assert len(filling.errors) == COUNT - kept


def test_whoever_wants_bytes_that_are_lost_gets_an_error(data_set):
    path, reader = data_set
    first, *_ = (output(item) for item in reader().next_epoch(batch_size=6))
    os.truncate(path, 50_000)
    for use in (
        lambda: samples(first),
        lambda: first.torch(pad=True),
        lambda: first.tensors[5].torch(),
        lambda: np.array(first.tensors[5]),
        lambda: pickle.dumps(first),
        lambda: first + np.uint8(1),
        lambda: ndd.decoders.image(first),
    ):
        with pytest.raises(
            ValueError,
            match=r"was truncated while it was read: 100\d+ bytes at offset \d+ are wanted",
        ):
            use()


def test_a_file_that_was_shorter_for_a_while(data_set, contents):
    """Its map has places of zeros for ever; the next batch gets a new one."""
    path, reader = data_set
    data = Path(path).read_bytes()
    made = reader()
    batches = made.next_epoch(batch_size=6, prefetch=0)
    first = output(next(batches))
    address = int(first._node.stored.addresses[5])
    os.truncate(path, 1000)
    assert _bytes(address, 9) == bytes(9)
    with Path(path).open("r+b") as file:
        file.write(data)
    with pytest.raises(ValueError, match="was truncated for a while, or cannot be read: 100"):
        samples(first)
    found = [s for item in made.next_epoch(batch_size=6) for s in samples(output(item))]
    assert found == contents


def _bytes(address, size):
    from ndd.fusion.graph.storage import array_at

    return array_at(address, (size,), np.dtype(np.uint8)).tobytes()


def test_maps_are_closed_and_limited(tmp_path, monkeypatch, contents):
    (tmp_path / "f").write_bytes(b"".join(contents))
    free = len(bus_errors._free)
    files = ByteFiles([str(tmp_path / "f")], maps=True)
    parts = files.read_parts([0, 0], [0, BYTES], [BYTES, BYTES])
    assert isinstance(parts, MappedContents) and len(bus_errors._free) == free - 1
    again = files.read_parts([0], [5], [BYTES])
    assert len(bus_errors._free) == free - 1  # one map for a file
    del files, again
    assert parts[0].tobytes() == contents[0] and len(bus_errors._free) == free - 1
    del parts
    assert len(bus_errors._free) == free
    monkeypatch.setattr(bus_errors, "_free", [])
    parts = ByteFiles([str(tmp_path / "f")], maps=True).read_parts([0], [0], [BYTES])
    assert not isinstance(parts, MappedContents) and parts[0].tobytes() == contents[0]


def test_pages_of_many_bytes_do_not_stay_in_the_process(tmp_path, monkeypatch):
    """What is looked at is taken away again if the maps are larger than a limit."""
    path, count = tmp_path / "f", 40
    path.write_bytes(b"".join(bytes([k]) * (1 << 20) for k in range(count)))
    for limit, most in ((count << 21, None), (8 << 20, 20)):
        monkeypatch.setattr(bus_errors, "RESIDENT_BYTES", limit)
        monkeypatch.setattr(bus_errors, "_looked_at", [0])
        files = ByteFiles([str(path)], maps=True)
        before, parts = resident_megabytes(), []
        for k in range(count):
            parts.append(files.read_parts([0], [k << 20], [1 << 20]))
        grown = resident_megabytes() - before
        assert grown > 30 if most is None else grown < most
        assert [int(part[0][-1]) for part in parts] == [*range(count)]
        del files, parts


def resident_megabytes():
    """Pages of files in the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[2]) * bus_errors.PAGE >> 20


def test_small_or_scattered_parts_are_copied(tmp_path, monkeypatch, contents):
    (tmp_path / "f").write_bytes(b"".join(contents))
    files = ByteFiles([str(tmp_path / "f")], maps=True)
    assert not isinstance(files.read_parts([0, 0], [0, BYTES], [9, 9]), MappedContents)
    many = ByteFiles([str(tmp_path / "f")] * (byte_files._OPEN + 1), maps=True)
    assert not isinstance(many.read_parts([0, 1], [0, 0], [BYTES] * 2), MappedContents)
    assert isinstance(many.read_parts([3], [0], [11 * BYTES]), MappedContents)


# -- in processes of their own, because a mistake ends them --------------------------------------

_PROGRAM = """
import faulthandler, mmap, os, signal, sys, tempfile, threading
import numpy as np
from pathlib import Path
from ndd.readers.stores.byte_files import ByteFiles

path = Path(tempfile.mkdtemp()) / "f"
data = np.random.default_rng(0).bytes(3_000_000)
path.write_bytes(data)
files = ByteFiles([str(path)], maps=True)

def read():
    return files.read_parts([0, 0], [0, 1_000_000], [1_000_000, 2_000_000])

def look(found):
    storage, sizes = found.storage()
    from ndd.fusion.graph.storage import array_at
    return [array_at(int(a), (int(s),), np.dtype(np.uint8)) for a, s in zip(storage.addresses, sizes)]

def lose(found, size):
    os.truncate(path, size)
    views = look(found)
    def check():
        for _ in range(20):
            assert views[1].tobytes()[: size - 1_000_000] == data[1_000_000:size]
            assert not views[1][size - 1_000_000 :].any()
    errors = []
    def run():
        try:
            check()
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=run) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors, errors
    assert isinstance(found[1], ValueError) and "was truncated while it was read" in str(found[1])
    assert found[0].tobytes() == data[:1_000_000]
    again = read()
    assert again[0].tobytes() == data[:1_000_000] and "are wanted" in str(again[1])
"""


def run(body, status=0):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM + textwrap.dedent(body)], cwd=ROOT, capture_output=True,
        text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == status, done.stderr[-3000:]
    return done


@pytest.mark.parametrize(
    "before, after",
    [
        ("", ""),
        ("faulthandler.enable()", ""),
        ("", "faulthandler.enable(); read()"),
        ("faulthandler.enable()", "faulthandler.disable(); read()"),
    ],
)
def test_threads_go_on_while_a_file_gets_shorter(before, after):
    run(f"{before}\nfound = read()\n{after}\nlose(found, 2_000_000)\nlose(found, 1_200_000)")


@pytest.mark.parametrize("how", ["signal.raise_signal(signal.SIGBUS)", "foreign[5000]"])
@pytest.mark.parametrize("before, after", [("", ""), ("E", ""), ("", "E"), ("E", "E")])
def test_other_bus_errors_end_the_process_as_ever(before, after, how):
    enable = "faulthandler.enable(all_threads=False)"
    done = run(
        f"""
        {enable if before else ""}
        found = read()
        {enable if after else ""}
        read()
        other = path.with_name("g")
        other.write_bytes(bytes(8192))
        file = other.open("r+b")
        foreign = mmap.mmap(file.fileno(), 8192)
        os.truncate(other, 0)
        {how}
        """,
        -7,
    )
    assert done.stderr.count("Fatal Python error: Bus error") == bool(before or after)


def test_a_handler_of_the_user_is_called():
    done = run(
        """
        signal.signal(signal.SIGBUS, lambda *_: print("mine", flush=True))
        found = read()
        lose(found, 2_000_000)
        signal.raise_signal(signal.SIGBUS)
        signal.signal(signal.SIGBUS, lambda *_: print("another", flush=True))
        read()
        lose(found, 1_500_000)
        signal.raise_signal(signal.SIGBUS)
        """
    )
    assert done.stdout.split() == ["mine", "another"]


def test_who_ignores_the_signal_goes_on():
    run(
        """
        signal.signal(signal.SIGBUS, signal.SIG_IGN)
        found = read()
        signal.raise_signal(signal.SIGBUS)
        lose(found, 2_000_000)
        """
    )


def test_a_forked_child_is_protected():
    run(
        """
        found = read()
        child = os.fork()
        if child == 0:
            lose(found, 2_000_000)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        lose(found, 1_200_000)
        """
    )


def test_without_address_space_files_are_copied():
    run(
        """
        import resource
        used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        found = read()
        del found, files
        big = path.with_name("big")
        with big.open("wb") as file:
            file.truncate(3 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), -1))
        part = ByteFiles([str(big)], maps=True).read_parts([0], [1 << 30], [1 << 20])
        assert type(part).__name__ == "PackedContents" and not part[0].any()
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        part = ByteFiles([str(big)], maps=True).read_parts([0], [(3 << 30) - (1 << 20)], [1 << 20])
        assert type(part).__name__ == "MappedContents" and len(part[0]) == 1 << 20
        """
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_shrinks_in_mid_epoch_while_decoders_work(tmp_path):
    """Each batch is right, or an error that names the file; nothing else."""
    import cv2

    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (300, 400, 3), np.uint8)
    jpegs = [
        cv2.imencode(".jpg", np.roll(noise, k, 0), [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
        for k in range(48)
    ]
    wanted = [np.asarray(ndd.decoders.image(np.frombuffer(j, np.uint8))) for j in jpegs]
    path = write_tar(tmp_path / "a.tar", [(f"{k:02d}.jpg", c) for k, c in enumerate(jpegs)])
    whole = Path(path).read_bytes()
    assert len(jpegs[0]) > 80_000
    counts = {"right": 0, "lost": 0}
    for trial in range(12):
        with Path(path).open("r+b") as file:
            file.write(whole)
        reader = ndd.readers.Webdataset(
            paths=path, ext="jpg", seed=trial, random_shuffle=trial % 2 == 1
        )
        timer = threading.Timer(0.002 + 0.004 * trial, os.truncate, (path, 600_000))
        timer.start()
        epoch = reader.next_epoch(batch_size=6)
        for _ in range(len(epoch)):
            try:
                (batch,) = next(epoch)
                pixels = [np.asarray(t) for t in ndd.decoders.image(batch).tensors]
            except ValueError as error:
                assert "a.tar" in str(error) and (
                    "truncated" in str(error) or "wanted" in str(error)
                )
                counts["lost"] += 1
                continue
            assert all(any(np.array_equal(p, w) for w in wanted) for p in pixels)
            counts["right"] += 1
        timer.join()
    assert counts["right"] > 0 and counts["lost"] > 0, counts
