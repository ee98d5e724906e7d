"""readers.File: the oracle's sequences, its lists of files, errors, and threads that end."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest

import ndd
from ndd.readers import names, order
from tests.helpers import run_python, start_python
from tests.readers.helpers import batch_of, epoch_of, flat, info, numbered


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered(tmp_path_factory.mktemp("files"), 40)


def readers_alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("ndd-read-ahead")]


def opened_files(monkeypatch):
    """A list of the files that are opened from now on."""
    from ndd.readers import contents

    found = []
    plain = contents.open_regular
    monkeypatch.setattr(
        contents, "open_regular", lambda path, opened: (found.append(path), plain(path, opened))[1]
    )
    return found


def wait_for_no_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("ndd-read-ahead"):
            thread.join(timeout=60)
    assert readers_alive() == []


# -- sequences of batches, as the oracle gives them ----------------------------------------------

SHARDS = [(1, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def ranks_differ(count: int, num_shards: int, batch_size: int) -> bool:
    """Whether shards of the oracle have different numbers of batches: ours never do."""
    smallest, largest = count // num_shards, -(-count // num_shards)
    return -(-smallest // batch_size) != -(-largest // batch_size)


@pytest.mark.parametrize("batch_size", [None, 1, 3, 4, 5, 13])
@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("stick", [False, True])
def test_sequences_equal_the_oracles(files, batch_size, pad, stick):
    for num_shards, shard_id in SHARDS:
        for count in (10, 11, 12):
            options = dict(files=files[:count], shard_id=shard_id, num_shards=num_shards,
                           stick_to_shard=stick, pad_last_batch=pad)  # fmt: skip
            if not pad and num_shards > 1 and ranks_differ(count, num_shards, batch_size or 1):
                continue
            ours, theirs = ndd.readers.File(**options), dali.readers.File(**options)
            for epoch in range(4):
                length = len(ours.next_epoch(batch_size))
                got, wanted = epoch_of(ours, batch_size), epoch_of(theirs, batch_size)
                assert got == wanted, (options, epoch)
                assert length == len(wanted)
            assert ours.get_metadata() == dict(theirs.get_metadata())


def test_metadata_of_shuffled_readers_equals_the_oracles(files):
    for options in (dict(shuffle_after_epoch=True), dict(random_shuffle=True, pad_last_batch=True)):
        options |= dict(files=files[:11], num_shards=3, shard_id=1)
        ours, theirs = ndd.readers.File(**options), dali.readers.File(**options)
        assert ours.get_metadata(batch_size=4) == dict(theirs.get_metadata())


def test_outputs_are_bytes_and_labels(files, mode):
    data, labels = next(ndd.readers.File(files=files[:3], labels=[7, -1, 2**31 - 1]).next_epoch(3))
    assert (data.dtype, data.layout, data.shape) == (ndd.uint8, None, [(1,)] * 3)
    assert (labels.dtype, labels.layout, labels.shape) == (ndd.int32, None, [(1,)] * 3)
    assert labels.torch(copy=False).tolist() == [[7], [-1], [2**31 - 1]]
    assert [np.asarray(t + 1).tolist() for t in data.tensors] == [[1], [2], [3]]
    one, label = next(ndd.readers.File(files=files[3:4]).next_epoch())
    assert isinstance(one, ndd.Tensor) and one.shape == (1,) and one.item() == 3
    assert isinstance(label, ndd.Tensor) and label.shape == (1,) and label.item() == 0


# -- lists of files ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in ("b/1.jpg", "b/10.jpg", "b/2.jpg", "b/Z.JPG", "b/x.txt", "b/.hidden.png", "a/only.txt",
                 "Zeta/x.png", ".dot/x.bmp", "é/ü.jpg", "b/sub/deep.jpg", "top.jpg", "c/a b.jpg", "c/[x].jpg"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    (root / "c" / "folder.jpg").mkdir()
    (root / "c" / "link.jpg").symlink_to(root / "b" / "1.jpg")
    (root / "empty").mkdir()
    (root / "list.txt").write_text("b/1.jpg 3\n\nc/a b.jpg   0\nb/x.txt\t2147483647  \n")
    return root


def listed(library, **options):
    return [
        (info(library, data)[0], int(np.asarray(label.tensors[0])[0]), bytes(np.asarray(data.tensors[0])))
        for data, label in library.readers.File(**options).next_epoch(batch_size=1)
    ]  # fmt: skip


TREES = [
    {},
    {"file_filters": ["*.txt"]},
    {"file_filters": ["*.JPG"], "case_sensitive_filter": True},
    {"file_filters": ["?.jpg", "*.p*g", "[12]*"]},
    {"dir_filters": ["[!b]*"]},
    {"dir_filters": ["B", "z*"]},
    {"dir_filters": ["B", "b"], "case_sensitive_filter": True},
    {"file_filters": "*.png"},
]


@pytest.mark.parametrize("options", TREES, ids=str)
def test_folders_are_listed_as_by_the_oracle(tree, options):
    root = str(tree)
    wanted = (
        dict(options, file_filters=["*.png"]) if options.get("file_filters") == "*.png" else options
    )
    got = listed(ndd, file_root=root, **options)
    assert got == listed(dali, file_root=root, **wanted)
    assert len(got) > 0


def test_files_and_lists_are_read_as_by_the_oracle(tree, monkeypatch):
    root = str(tree)
    for options in (
        dict(file_root=root, files=["b/x.txt", "b/1.jpg"]),
        dict(file_root=root, files=["b/x.txt", "b/1.jpg"], labels=[5, 3]),
        dict(files=[f"{root}/b/x.txt"], file_filters=["*.png"]),
        dict(file_root=root, file_list=f"{root}/list.txt"),
        dict(file_list=f"{root}/list.txt"),
        dict(file_root=root + "/", file_list=f"{root}/list.txt", lazy_init=True),
    ):
        assert listed(ndd, **options) == listed(dali, **options), options
    monkeypatch.chdir(tree)
    assert listed(ndd, file_list="list.txt") == listed(dali, file_list="list.txt")
    assert listed(ndd, file_root=tree, files=[Path("b/1.jpg")])[0][0] == "b/1.jpg"


def test_names_that_are_not_text_are_read(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff\xfe.jpg")).write_bytes(b"odd")
    ((data, _),) = ndd.readers.File(file_root=tmp_path).next_epoch()
    assert bytes(np.asarray(data)) == b"odd"


def test_an_empty_file_is_an_empty_sample(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").touch()
    (tmp_path / "a" / "y.jpg").write_bytes(b"abc")
    ((data, _),) = ndd.readers.File(file_root=tmp_path).next_epoch(batch_size=2)
    assert data.shape == [(0,), (3,)]


def test_source_info_follows_the_chosen_sample(files):
    data, _ = next(ndd.readers.File(files=files[:4]).next_epoch(batch_size=4))
    assert info(ndd, data) == files[:4]
    assert info(ndd, data.select([3, 1])) == [files[3], files[1]]
    one = ndd.get_property(data.tensors[2], key="source_info")
    assert bytes(np.asarray(one)).decode() == files[2]


# -- shuffling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [dict(random_shuffle=True), dict(shuffle_after_epoch=True)], ids=str
)
def test_shuffled_epochs_are_permutations_and_repeatable(files, options):
    def epochs(**more):
        reader = ndd.readers.File(files=files, **options, **more)
        return [flat(epoch_of(reader, 8)) for _ in range(3)]

    first = epochs(seed=5)
    assert all(sorted(e) == list(range(40)) for e in first)
    assert first == epochs(seed=5) != epochs(seed=6)
    assert epochs() == epochs()
    assert first[0] != first[1] != first[2] and first[0] != list(range(40))
    if "shuffle_after_epoch" in options:
        assert epochs(shuffle_after_epoch_seed=5) == first


@pytest.mark.parametrize("options", [dict(random_shuffle=True), dict(random_shuffle=True, stick_to_shard=True), dict(shuffle_after_epoch=True)], ids=str)  # fmt: skip
def test_shuffled_shards_are_disjoint_in_every_epoch(files, options):
    readers = [
        ndd.readers.File(files=files, num_shards=3, shard_id=i, last_batch="partial", **options)
        for i in range(3)
    ]
    seen = set()
    for _ in range(3):
        parts = [flat(epoch_of(r, 5)) for r in readers]
        assert sorted(flat(parts)) == list(range(40))
        assert all(max(p) - min(p) > len(p) for p in parts), "a shard of neighbours"
        seen.add(frozenset(parts[0]))
    assert len(seen) == (1 if "stick_to_shard" in options else 3)


def test_every_order_of_four_is_as_likely():
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(4800):
        found = tuple(order.permutation(4, seed, 1, seed % 7).tolist())
        counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 24
    chi2 = sum((c - 200) ** 2 / 200 for c in counts.values())
    assert chi2 < 49.7  # 23 degrees of freedom: exceeded by chance once in 1000 sets of seeds


def test_the_order_of_a_seed_never_changes():
    """Checkpoints of older releases rely on it."""
    assert order.permutation(9, 42, 1, 3).tolist() == PERMUTATION_9_42_1_3


PERMUTATION_9_42_1_3 = [5, 7, 8, 2, 0, 6, 4, 3, 1]


# -- the last batch ------------------------------------------------------------------------------

LAST = {  # 10 files, batches of 4, three epochs
    "wrap": [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]], [[2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]],
    "pad": [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]] * 2,
    "partial": [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 2,
    "drop": [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2,
}  # fmt: skip


@pytest.mark.parametrize("last_batch", LAST)
def test_last_batch(files, last_batch):
    reader = ndd.readers.File(files=files[:10], last_batch=last_batch)
    assert [epoch_of(reader, 4) for _ in range(2)] == LAST[last_batch]


@pytest.mark.parametrize("last_batch", [None, *LAST])
@pytest.mark.parametrize("stick", [False, True])
def test_all_ranks_get_as_many_batches(files, last_batch, stick):
    for count in (10, 11, 12, 13):
        for batch_size in (None, 1, 2, 3, 4, 5, 20):
            ranks = [
                ndd.readers.File(files=files[:count], num_shards=3, shard_id=i,
                                 stick_to_shard=stick, last_batch=last_batch)
                for i in range(3)
            ]  # fmt: skip
            for _ in range(2):
                lengths = [len(r.next_epoch(batch_size)) for r in ranks]
                epochs = [epoch_of(r, batch_size) for r in ranks]
                assert lengths == [len(e) for e in epochs]
                assert len(set(lengths)) == 1, (count, batch_size)
                shards = [flat(e) if batch_size else e for e in epochs]
                if last_batch in ("partial", "pad"):
                    assert set(flat(shards)) == set(range(count))
                if last_batch == "partial":
                    assert sum(map(len, shards)) <= count + 2, "more than one repeated per rank"


# -- epochs --------------------------------------------------------------------------------------


def test_an_epoch_that_was_left_counts_as_finished(files):
    for last_batch in ("wrap", "pad"):
        reader = ndd.readers.File(files=files[:10], last_batch=last_batch)
        for item in reader.next_epoch(batch_size=4):
            assert batch_of(item) == [0, 1, 2, 3]
            break
        assert epoch_of(reader, 4) == LAST[last_batch][1]


def test_batch_size_may_change_between_epochs(files):
    reader = ndd.readers.File(files=files[:10])
    assert epoch_of(reader, 4)[-1] == [8, 9, 0, 1]
    assert epoch_of(reader, 5) == [[2, 3, 4, 5, 6], [7, 8, 9, 0, 1]]
    assert epoch_of(reader, None) == [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_asking_for_the_length_begins_nothing(files):
    wait_for_no_threads()  # those of other tests
    reader = ndd.readers.File(files=files[:10])
    assert len(reader.next_epoch(batch_size=3)) == 4
    reader.next_epoch(batch_size=4)
    assert readers_alive() == []
    epoch = reader.next_epoch(batch_size=4)
    assert batch_of(next(epoch)) == [0, 1, 2, 3] and len(epoch) == 3
    assert [batch_of(item) for item in epoch] == [[4, 5, 6, 7], [8, 9, 0, 1]]
    assert next(epoch, None) is None


def test_an_older_epoch_says_that_it_has_ended(files):
    reader = ndd.readers.File(files=files[:10])
    older = reader.next_epoch(batch_size=2)
    next(older)
    newer = reader.next_epoch(batch_size=2)
    next(newer)
    with pytest.raises(RuntimeError, match="this epoch has ended because another"):
        next(older)
    assert batch_of(next(newer)) == [2, 3]


def test_a_call_gives_the_next_batch_without_an_end(files):
    reader = ndd.readers.File(files=files[:3])
    assert [batch_of(reader(batch_size=2)) for _ in range(4)] == [[0, 1], [2, 0], [1, 2], [0, 1]]
    assert int(np.asarray(reader()[0])[0]) == 2


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_reading_ahead_changes_nothing(files, depth):
    reader = ndd.readers.File(files=files, random_shuffle=True, seed=3, prefetch_queue_depth=depth)
    plain = ndd.readers.File(files=files, random_shuffle=True, seed=3)
    assert [epoch_of(reader, 3) for _ in range(2)] == [epoch_of(plain, 3) for _ in range(2)]


def test_no_more_is_read_ahead_than_asked_for(files, monkeypatch):
    read = opened_files(monkeypatch)
    epoch = ndd.readers.File(files=files, prefetch_queue_depth=2).next_epoch(batch_size=4)
    next(epoch)
    for thread in threading.enumerate():  # they wait for the next batch to be taken
        if thread.name.startswith("ndd-read-ahead"):
            thread.join(timeout=0.2)
    assert 4 <= len(read) <= 12


def test_a_repeated_sample_is_read_once(files, monkeypatch):
    read = opened_files(monkeypatch)
    assert epoch_of(ndd.readers.File(files=files[:2], pad_last_batch=True), 9) == [[0] + [1] * 8]
    assert len(read) == 2


# -- errors --------------------------------------------------------------------------------------


@pytest.fixture()
def damaged(tmp_path) -> list[str]:
    """Ten files, of which 3 is gone, 4 is a folder and 9 must not be opened."""
    found = numbered(tmp_path / "damaged", 10)
    Path(found[3]).unlink()
    Path(found[4]).unlink()
    Path(found[4]).mkdir()
    Path(found[9]).unlink()
    os.mkfifo(found[9])
    return found


def test_an_unreadable_file_is_named_and_the_epoch_goes_on(damaged):
    reader = ndd.readers.File(files=damaged)
    epoch = reader.next_epoch(batch_size=2)
    assert batch_of(next(epoch)) == [0, 1]
    with pytest.raises(FileNotFoundError) as caught:
        next(epoch)
    text = str(caught.value)
    assert text.startswith(
        f"readers.File: cannot read {damaged[3]!r} (sample 3): No such file or directory (called at "
    )
    assert "test_file.py:" in text and caught.value.errno == 2
    with pytest.raises(IsADirectoryError, match=r"\(sample 4\): Is a directory"):
        next(epoch)
    assert batch_of(next(epoch)) == [6, 7]
    with pytest.raises(OSError, match=r"\(sample 9\): Not a regular file"):
        next(epoch)
    assert next(epoch, None) is None
    assert [(e.file, e.index) for e in reader.errors] == [(damaged[i], i) for i in (3, 4, 9)]
    assert isinstance(reader.errors[0].cause, FileNotFoundError)
    # without on_error, too, what can be read is read in the next epoch
    assert batch_of(next(reader.next_epoch(batch_size=2))) == [0, 1]


def test_on_error_skip_keeps_the_length(damaged):
    reader = ndd.readers.File(files=damaged, on_error="skip")
    for _ in range(2):
        assert epoch_of(reader, 5) == [[0, 1, 2, 5, 5], [5, 6, 7, 8, 0]]
        assert [e.index for e in reader.errors] == [3, 4, 9]
    data, labels = next(reader.next_epoch(batch_size=5))
    assert labels.torch().ravel().tolist() == [0, 1, 2, 5, 5]
    assert info(ndd, data)[3] == damaged[5]


def test_many_bad_files_are_not_tried_again_and_again(files, tmp_path, monkeypatch):
    tried = opened_files(monkeypatch)
    bad = [tmp_path / f"{i}" for i in range(50)]
    reader = ndd.readers.File(files=[*bad, files[7]], on_error="skip")
    assert epoch_of(reader, 51) == [[7] * 51]
    assert len(tried) < 200  # each at first, once more for the first bad one, and 7 for each


def test_on_error_fill_keeps_labels(damaged):
    reader = ndd.readers.File(files=damaged, on_error="fill")
    data, labels = next(reader.next_epoch(batch_size=10))
    assert [s[0] for s in data.shape] == [1, 1, 1, 0, 0, 1, 1, 1, 1, 0]
    assert labels.torch().ravel().tolist() == list(range(10))
    assert info(ndd, data) == damaged
    assert [t.shape for t, _ in reader.next_epoch()][2:5] == [(1,), (0,), (0,)]


def test_on_error_function(damaged):
    seen = []

    def decide(error):
        seen.append((error.index, type(error.cause).__name__))
        return {3: b"\x63", 4: np.array([98, 99], np.uint8)}.get(error.index)

    reader = ndd.readers.File(files=damaged, on_error=decide)
    assert epoch_of(reader, 10) == [[0, 1, 2, 99, 98, 5, 6, 7, 8, 0]]
    assert seen == [(3, "FileNotFoundError"), (4, "IsADirectoryError"), (9, "OSError")]
    wrong = ndd.readers.File(files=damaged, on_error=lambda error: "text")
    with pytest.raises(
        TypeError, match="`on_error` must return bytes, a 1-D array of uint8 or None"
    ):
        list(wrong.next_epoch(batch_size=10))


def test_on_error_skip_with_nothing_left(tmp_path):
    reader = ndd.readers.File(files=[tmp_path / "a", tmp_path / "b"], on_error="skip")
    with pytest.raises(FileNotFoundError, match="no other sample can be read, either"):
        next(reader.next_epoch(batch_size=2))
    assert [e.index for e in reader.errors] == [0, 1]


NO_FILE = [
    (dict(), ValueError, "readers.File: `file_root`, `files` or `file_list` is needed"),
    (dict(files=["a"], file_list="b"), ValueError, "`files` and `file_list` exclude each other"),
    (dict(file_root="/", labels=[1]), ValueError, "`labels` belong to `files`, which are not given"),
    (dict(files=["a", "b"], labels=[1]), ValueError, "readers.File: 1 labels were given for 2 files"),
    (dict(files=["a"], labels=[1.5]), TypeError, "`labels` must be a list of integers, got 1-D data of float64"),
    (dict(files=["a"], labels=[2**31]), ValueError, "`labels` must fit into 32 bits"),
    (dict(files=[]), ValueError, "readers.File: no files found in an empty list"),
    (dict(file_root="/nowhere"), FileNotFoundError, "readers.File: cannot list '/nowhere': No such file"),
    (dict(file_list="/nowhere"), FileNotFoundError, "readers.File: cannot list '/nowhere': No such file"),
    (dict(files=[3]), TypeError, "readers.File: expected str, bytes or os.PathLike object, not int"),
    (dict(files=["a"], shard_id=3, num_shards=3), ValueError, r"`shard_id` must be in 0 … 2 \(num_shards - 1\), got 3"),
    (dict(files=["a"], num_shards=0), ValueError, "`num_shards` must be positive, got 0"),
    (dict(files=["a"], num_shards=2), ValueError, "1 samples are too few for 2 shards"),
    (dict(files=["a"], device="gpu"), ValueError, "readers work on the CPU, got device='gpu'"),
    (dict(files=["a"], device="mixed"), ValueError, "readers work on the CPU, got device='mixed'"),
    (dict(files=["a"], prefetch_queue_depth=0), ValueError, "`prefetch_queue_depth` must be positive, got 0"),
    (dict(files=["a"], initial_fill=-1), ValueError, "`initial_fill` must be positive, got -1"),
    (dict(files=["a"], max_batch_size=1.5), TypeError, "`max_batch_size` must be an integer, got float"),
    (dict(files=["a"], random_shuffle=True, shuffle_after_epoch=True), ValueError, "`shuffle_after_epoch` and `random_shuffle` exclude"),
    (dict(files=["a"], stick_to_shard=True, shuffle_after_epoch=True), ValueError, "`shuffle_after_epoch` and `stick_to_shard` exclude"),
    (dict(files=["a"], last_batch="fill"), ValueError, "`last_batch` must be one of wrap, pad, partial, drop, got 'fill'"),
    (dict(files=["a"], last_batch="drop", pad_last_batch=True), ValueError, "pad_last_batch=True and last_batch='drop' exclude"),
    (dict(files=["a"], on_error="ignore"), ValueError, '`on_error` must be "raise", "skip", "fill" or a function, got \'ignore\''),
    (dict(files=["a"], shuffle=True), TypeError, "unexpected keyword argument 'shuffle'"),
]  # fmt: skip


@pytest.mark.parametrize("options, kind, text", NO_FILE, ids=[t[:40] for _, _, t in NO_FILE])
def test_wrong_arguments_are_explained(options, kind, text):
    with pytest.raises(kind, match=text):
        ndd.readers.File(**options)


def test_wrong_lists_are_explained(tmp_path):
    lines = tmp_path / "list.txt"
    for text in ("a 1\nb\n", "a 1\nb c\n", "a 1\nb 4294967296\n"):
        lines.write_text(text)
        with pytest.raises(
            ValueError,
            match=r"readers.File: line 2 of '.*list.txt' must be a file name and a label",
        ):
            ndd.readers.File(file_list=lines)
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        ValueError, match=r"no files found in the folders of '.*' \(patterns: \*.x\)"
    ):
        ndd.readers.File(file_root=tmp_path, file_filters=["*.x"])


def test_lazy_init_lists_at_the_first_use():
    reader = ndd.readers.File(file_root="/nowhere", lazy_init=True)
    for use in (reader.get_metadata, reader.get_state, lambda: next(reader.next_epoch())):
        with pytest.raises(FileNotFoundError, match="cannot list '/nowhere'"):
            use()


def test_wrong_batch_sizes_are_explained(files):
    reader = ndd.readers.File(max_batch_size=4, files=files[:10])
    assert len(epoch_of(reader, 4)) == 3
    with pytest.raises(ValueError, match="batch_size 5 is larger than max_batch_size 4"):
        reader.next_epoch(batch_size=5)
    with pytest.raises(ValueError, match="`batch_size` must be positive, got 0"):
        reader.next_epoch(batch_size=0)
    with pytest.raises(TypeError, match="`batch_size` must be an integer, got str"):
        reader.next_epoch(batch_size="4")


def test_a_wrong_name_leads_to_the_class():
    with pytest.raises(AttributeError, match=r"did you mean `ndd\.readers\.File`"):
        ndd.readers.file


# -- threads and processes -----------------------------------------------------------------------


def test_threads_end_with_the_epoch_and_with_its_owner(files):
    reader = ndd.readers.File(files=files, prefetch_queue_depth=3)
    epoch = reader.next_epoch(batch_size=2)
    next(epoch)
    assert readers_alive() != []
    for _ in epoch:
        pass
    wait_for_no_threads()
    gc.disable()  # no cycle: dropping is enough
    try:
        for _ in reader.next_epoch(batch_size=2):
            break
        wait_for_no_threads()
        epoch = reader.next_epoch()
        next(epoch)
        del epoch
        wait_for_no_threads()
        reader(batch_size=2)
        assert readers_alive() != []
        del reader
        wait_for_no_threads()
    finally:
        gc.enable()


def test_memory_of_batches_is_given_back(files):
    from ndd.kernels.common.buffers import POOL

    gc.collect()
    before = POOL.live_bytes
    reader = ndd.readers.File(files=files)
    for _ in range(3):
        for data, labels in reader.next_epoch(batch_size=7):
            del data, labels
    wait_for_no_threads()
    assert POOL.live_bytes == before


READ_SOME = """
    import ndd, sys
    reader = ndd.readers.File(files={files!r}, prefetch_queue_depth=2)
    epoch = reader.next_epoch(batch_size=2)
    next(epoch)
"""


def test_the_interpreter_exits_in_mid_epoch(files):
    code = READ_SOME.format(files=files)
    assert run_python(code + "    print('end')") == "end"
    assert (
        run_python(code + "    x = [epoch]; x.append(x); del reader, epoch; print('end')") == "end"
    )


def test_ctrl_c_stops_the_wait_and_the_reader_goes_on(files):
    code = f"""
        import signal, threading, time, ndd
        from ndd.readers import contents as module
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
        waiting, slow, plain = threading.Event(), threading.Event(), module.open_regular
        def read(path, opened):
            if path.endswith(b"005.bin") and not slow.is_set():
                waiting.wait()
                time.sleep(1.0)  # so that the caller waits by then, on a busy machine too
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                slow.wait()
            return plain(path, opened)
        module.open_regular = read
        epoch = ndd.readers.File(files={files[:10]!r}).next_epoch(batch_size=2)
        seen = []
        try:
            for data, _ in epoch:
                seen += [t.item() for t in data.tensors]
                if len(seen) == 4:
                    waiting.set()
            print("not interrupted")
        except KeyboardInterrupt:
            slow.set()
            print(seen)
        seen += [t.item() for data, _ in epoch for t in data.tensors]
        print(seen == list(range(10)))
    """
    assert run_python(code).splitlines() == ["[0, 1, 2, 3]", "True"]


def test_ctrl_c_while_a_batch_is_made_does_not_lose_it(files, monkeypatch):
    reader = ndd.readers.File(files=files[:6])
    epoch = reader.next_epoch(batch_size=2)
    next(epoch)
    with monkeypatch.context() as patch:
        patch.setattr(reader, "_outputs", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            next(epoch)
    assert [batch_of(item) for item in epoch] == [[2, 3], [4, 5]]


def test_a_forked_process_goes_on_by_itself(files):
    code = f"""
        import os, ndd
        epoch = ndd.readers.File(files={files[:10]!r}).next_epoch(batch_size=2)
        first = [t.item() for t in next(epoch)[0].tensors]
        child = os.fork()
        rest = [[t.item() for t in data.tensors] for data, _ in epoch]
        assert rest == [[2, 3], [4, 5], [6, 7], [8, 9]], rest
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            print("both")
    """
    assert run_python(code) == "both"


# -- many files ----------------------------------------------------------------------------------


def test_names_are_kept_as_bytes():
    found = names.Names()
    found.add([b"a", b"", b"ccc"])
    found.add([])
    found.add([b"dd"])
    found.finish()
    assert [found[i] for i in range(len(found))] == [b"a", b"", b"ccc", b"dd"]


COUNT = 1_000_000 if "NDD_STRESS" in os.environ else 20_000


@pytest.mark.slow
def test_many_files_take_little_memory(tmp_path):
    """At most 400 bytes a file at the peak; how long it takes is printed, not judged."""
    for folder in range(20):
        (tmp_path / f"class_{folder:04d}").mkdir()
        for i in range(COUNT // 20):
            os.close(os.open(tmp_path / f"class_{folder:04d}" / f"{i:08d}.jpg", os.O_CREAT))
    listing = tmp_path / "list.txt"
    with listing.open("w") as lines:
        for i in range(COUNT):
            lines.write(f"class_{i % 20:04d}/{i // 20:08d}.jpg {i % 20}\n")
    process = start_python(
        f"""
        import pathlib, re, time, ndd
        def peak():  # not ru_maxrss: that begins with the peak of the process that started this one
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
        next(ndd.readers.File(file_root={str(tmp_path)!r}, dir_filters=["class_0000"], file_filters=["00000001.jpg"]).next_epoch())
        before = peak()
        for options in (dict(file_root={str(tmp_path)!r}), dict(file_list={str(listing)!r}, random_shuffle=True, num_shards=2)):
            start = time.monotonic()
            reader = ndd.readers.File(**options)
            data, labels = next(reader.next_epoch(batch_size=64))
            assert reader.get_metadata()["epoch_size"] == {COUNT}
            assert len(str(reader.get_state())) < 400
            print((peak() - before) / {COUNT}, time.monotonic() - start)
        """
    )
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    print(out)
    peaks = [float(line.split()[0]) for line in out.splitlines()]
    assert len(peaks) == 2 and all(0 < p <= 400 for p in peaks)


def test_many_files_at_once(tmp_path):
    """More than are open at a time, empty and missing ones among them, folders too."""
    from ndd.readers.contents import read_files

    wanted, paths = [], []
    for k in range(150):
        path = tmp_path / f"{k}"
        content = os.urandom(k * 37 % 1000)
        if k % 10 == 3:
            wanted.append(FileNotFoundError)
        elif k % 10 == 4:
            path.mkdir()
            wanted.append(IsADirectoryError)
        else:
            path.write_bytes(content)
            wanted.append(content)
        paths.append(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for found, content in zip(read_files(paths), wanted, strict=True):
        if isinstance(content, bytes):
            assert found.tobytes() == content and found.ctypes.data % 64 == 0
        else:
            assert type(found) is content
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("size", [1, 5, 150])
def test_a_batch_is_made_of_places_in_few_blocks(tmp_path, size):
    """Empty files, several blocks, a single sample; the batch outlives its reader."""
    contents = [os.urandom(k * 37 % 500) for k in range(150)]
    paths = [tmp_path / f"{k}" for k in range(150)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    numbers = [k * k - 7 for k in range(150)]
    reader = ndd.readers.File(files=paths, labels=numbers)
    batches = list(reader.next_epoch(size))
    del reader
    gc.collect()
    read = [np.asarray(t).tobytes() for data, _ in batches for t in data.tensors]
    assert read == contents
    assert [int(t.item()) for _, labels in batches for t in labels.tensors] == numbers
    data, labels = batches[-1]
    assert data.shape == [(len(c),) for c in contents[-size:]]
    assert labels.torch().tolist() == [[n] for n in numbers[-size:]]


def test_one_file_too_large_for_memory_is_one_bad_sample(files, tmp_path, monkeypatch):
    from ndd.readers import contents

    class SmallPool:
        def take(self, nbytes):
            if nbytes > 10_000:
                raise MemoryError(f"there is no memory for {nbytes} bytes")
            return plain.take(nbytes)

    plain = contents.POOL
    monkeypatch.setattr(contents, "POOL", SmallPool())
    large = tmp_path / "large"
    large.write_bytes(bytes(20_000))
    reader = ndd.readers.File(files=[files[0], large, files[2]], on_error="skip")
    _, labels = next(reader.next_epoch(batch_size=3))
    assert labels.torch().ravel().tolist() == [0, 2, 2]
    assert [e.index for e in reader.errors] == [1]
    assert "no memory for 20032 bytes" in str(reader.errors[0].cause)
