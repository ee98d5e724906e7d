"""Files behind URLs: the same batches as from files, with failures, slow answers and a cache."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.readers.stores import block_cache, remote
from tests.readers.datasets import CASES
from tests.readers.helpers import batch_of, epoch_of, numbered
from tests.readers.servers import http_server, s3_server

fsspec = pytest.importorskip("fsspec")
COUNT = 7
# What moto and botocore warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A folder with a data set for each reader, and the options of the readers."""
    root = tmp_path_factory.mktemp("sets")
    made = {}
    for name in ("TFRecord", "Webdataset", "Numpy", "MXNet", "Caffe", "COCO"):
        (root / name).mkdir()
        made[name] = CASES[name].make(root / name, COUNT)
    numbered(root / "files", COUNT)
    return root, made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture(scope="module")
def http(sets):
    with http_server(sets[0]) as found:
        yield found


@pytest.fixture
def trouble(http):
    found = http[1]
    found.requests.clear()
    yield found
    found.failures, found.cut, found.slow, found.ranges = 0, 0, 0.0, True


@pytest.fixture(scope="module")
def s3(sets):
    with s3_server() as options:
        system = fsspec.filesystem("s3", **options)
        system.mkdir("data")
        system.put(str(sets[0]), "data/sets", recursive=True)
        yield options


def moved(made, root, base):
    """The options with URLs in place of paths."""

    def url(value):
        if isinstance(value, list):
            return [url(v) for v in value]
        return value.replace(str(root), base) if isinstance(value, str) else value

    return {key: url(value) for key, value in made.items()}


def wanted(name, made):
    return CASES[name].epoch(CASES[name].open(ndd, made), 3)


@pytest.mark.parametrize("name", ["TFRecord", "Webdataset", "Numpy", "MXNet", "Caffe", "COCO"])
def test_s3_gives_what_files_give(sets, s3, name):
    root, made = sets
    options = moved(made[name], root, "s3://data/sets")
    reader = CASES[name].open(ndd, options, storage_options=s3)
    assert CASES[name].epoch(reader, 3) == wanted(name, made[name])


@pytest.mark.parametrize("name", ["TFRecord", "Webdataset", "MXNet", "COCO"])
def test_http_gives_what_files_give(sets, http, name):
    root, made = sets
    reader = CASES[name].open(ndd, moved(made[name], root, http[0]))
    assert CASES[name].epoch(reader, 3) == wanted(name, made[name])


def test_file_and_numpy_from_lists_of_urls(sets, http, s3):
    root, made = sets
    local = sorted((root / "files").iterdir())
    plain = epoch_of(ndd.readers.File(files=local), 3)
    urls = [f"{http[0]}/files/{p.name}" for p in local]
    assert epoch_of(ndd.readers.File(files=urls), 3) == plain
    assert epoch_of(ndd.readers.File(files=[urls[0], local[1], *urls[2:]]), 3) == plain
    named = [p.name for p in local]
    assert epoch_of(ndd.readers.File(files=named, file_root=f"{http[0]}/files"), 3) == plain
    arrays = [f"{http[0]}/Numpy/{k:03d}.npy" for k in range(COUNT)]
    assert CASES["Numpy"].epoch(ndd.readers.Numpy(files=arrays), 3) == wanted(
        "Numpy", made["Numpy"]
    )
    reader = ndd.readers.Numpy(files=arrays, roi_start=[0, 1])
    assert [np.asarray(a).tolist() for (a,) in reader.next_epoch()] == [[[7]]] * COUNT


def test_trees_in_s3_and_zip(tmp_path, s3):
    tree = tmp_path / "tree"
    for k, name in enumerate(("a/0.jpg", "b/1.jpg", "b/2.png", "b/x.txt")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(bytes([k]))
    (tree / "list.txt").write_text("b/2.png 5\na/0.jpg 6\n")
    system = fsspec.filesystem("s3", **s3)
    system.put(str(tree), "data/tree", recursive=True)
    with zipfile.ZipFile(tmp_path / "tree.zip", "w") as archive:
        for file in tree.rglob("*.*"):
            archive.write(file, f"tree/{file.relative_to(tree)}")

    def labelled(**options):
        return [
            (batch_of(item)[0], item[1].tensors[0].item())
            for item in ndd.readers.File(**options).next_epoch(1)
        ]

    plain = labelled(file_root=tree)
    assert plain == [(0, 0), (1, 1), (2, 1)]
    assert labelled(file_root="s3://data/tree", storage_options=s3) == plain
    listed = labelled(file_list=tree / "list.txt")
    assert (
        labelled(file_list="s3://data/tree/list.txt", storage_options=s3)
        == listed
        == [(2, 5), (0, 6)]
    )
    url = f"zip://tree/b/1.jpg::file://{tmp_path}/tree.zip"
    assert labelled(files=[url]) == [(1, 0)]
    fsspec.filesystem("memory").pipe("/x.bin", b"\x09")
    assert labelled(files=["memory://x.bin"]) == [(9, 0)]


def test_neighbours_share_a_request(sets, http, trouble):
    root, made = sets
    reader = CASES["TFRecord"].open(ndd, moved(made["TFRecord"], root, http[0]))
    trouble.requests.clear()
    CASES["TFRecord"].epoch(reader, COUNT)
    data = [r for r in trouble.requests if r[0].endswith(".tfrecord") and r[1]]
    assert 0 < len(data) <= 3  # one for each file, not one for each record


def test_failures_are_tried_again(sets, http, trouble):
    root, made = sets
    for kind in ("failures", "cut"):
        reader = CASES["Webdataset"].open(ndd, moved(made["Webdataset"], root, http[0]))
        setattr(trouble, kind, 2)
        assert CASES["Webdataset"].epoch(reader, 3) == wanted("Webdataset", made["Webdataset"])
        assert getattr(trouble, kind) == 0


def test_lasting_failures_are_errors_that_name_the_url(sets, http, trouble):
    root, made = sets
    reader = CASES["TFRecord"].open(ndd, moved(made["TFRecord"], root, http[0]), on_error="skip")
    raising = CASES["TFRecord"].open(ndd, moved(made["TFRecord"], root, http[0]))
    trouble.failures = 10**6
    with pytest.raises(OSError, match=r"cannot read 'http://.*0.tfrecord at index 0' \(sample 0\)"):
        CASES["TFRecord"].epoch(raising, 2)
    with pytest.raises(OSError, match="no other sample can be read, either"):
        CASES["TFRecord"].epoch(reader, 2)
    trouble.failures = 0
    assert len(CASES["TFRecord"].epoch(reader, 2)) == 4  # the session goes on
    with pytest.raises(
        FileNotFoundError, match=r"readers.Webdataset: cannot read 'http://.*gone.tar'"
    ):
        ndd.readers.Webdataset(paths=f"{http[0]}/gone.tar", ext="x")


def test_slow_answers_count_as_failures(sets, http, trouble, monkeypatch):
    trouble.slow = 2.0
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    with pytest.raises(OSError, match=r"a.tar|0.tar"):
        remote.RemoteFile(f"{http[0]}/Webdataset/0.tar", remote.RemoteOptions(timeout_seconds=0.2))
    trouble.slow = 0.0
    assert remote.RemoteFile(f"{http[0]}/Webdataset/0.tar").size > 0


def test_servers_without_ranges(sets, http, trouble):
    root, made = sets
    trouble.ranges = False
    reader = CASES["TFRecord"].open(ndd, moved(made["TFRecord"], root, http[0]))
    assert CASES["TFRecord"].epoch(reader, 3) == wanted("TFRecord", made["TFRecord"])


def test_a_cache_is_used_and_bounded(sets, http, trouble, tmp_path, monkeypatch):
    root, made = sets
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1024)
    options = dict(moved(made["Webdataset"], root, http[0]), cache_dir=tmp_path / "cache")
    assert CASES["Webdataset"].epoch(CASES["Webdataset"].open(ndd, options), 3) == wanted(
        "Webdataset", made["Webdataset"]
    )
    trouble.requests.clear()
    again = CASES["Webdataset"].epoch(CASES["Webdataset"].open(ndd, options), 3)
    assert again == wanted("Webdataset", made["Webdataset"])
    assert not [r for r in trouble.requests if r[1]]  # only sizes were asked for
    for block in (tmp_path / "cache").iterdir():  # damaged blocks are fetched again
        block.write_bytes(b"short")
    assert CASES["Webdataset"].epoch(CASES["Webdataset"].open(ndd, options), 3) == again
    small = dict(options, cache_dir=tmp_path / "small", cache_bytes=8192)
    assert CASES["Webdataset"].epoch(CASES["Webdataset"].open(ndd, small), 3) == again
    assert sum(p.stat().st_size for p in (tmp_path / "small").iterdir()) <= 8192
    changed = root / "Webdataset" / "0.tar"
    kept = changed.read_bytes()
    changed.write_bytes(kept + bytes(512))  # another size: another file
    trouble.requests.clear()
    CASES["Webdataset"].epoch(CASES["Webdataset"].open(ndd, options), 3)
    changed.write_bytes(kept)
    assert [r for r in trouble.requests if r[1] and r[0].endswith("0.tar")]


def test_least_recently_used_blocks_go_first(tmp_path):
    cache = block_cache.BlockCache(tmp_path / "c", 10_000)
    for k in range(20):
        cache.put("x", k, bytes(1000))
        cache.get("x", 0, 1000)
    assert cache.get("x", 0, 1000) is not None and cache.get("x", 1, 1000) is None


def test_missing_packages_are_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        ImportError, match=r"'s3://a/b.tar' needs fsspec: pip install 'ndd-fusion\[remote\]'"
    ):
        ndd.readers.Webdataset(paths="s3://a/b.tar", ext="x")


def test_states_are_those_of_files(sets, http):
    root, made = sets
    options = moved(made["TFRecord"], root, http[0])
    first = CASES["TFRecord"].open(ndd, options, random_shuffle=True)
    whole = CASES["TFRecord"].epoch(CASES["TFRecord"].open(ndd, options, random_shuffle=True), 2)
    items = first.next_epoch(2)
    next(items)
    resumed = CASES["TFRecord"].open(ndd, options, random_shuffle=True)
    resumed.set_state(json.loads(str(first.get_state())))
    assert CASES["TFRecord"].epoch(resumed, 2) == whole[1:]


def test_unpacked_caches_are_removed(tmp_path):
    folder = Path(tmp_path / "c")
    block_cache.BlockCache(folder, 1000).put("x", 1, b"1")
    shutil.rmtree(folder)  # somebody removes it while it is in use
    cache = block_cache.BlockCache(folder, 1000)
    assert cache.get("x", 1, 1) is None
