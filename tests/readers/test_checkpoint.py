"""Checkpoints: a resumed epoch yields exactly what was left, after any stop, from readable files."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path

import pytest

import ndd
from ndd.checkpoint import Checkpoint
from tests.helpers import start_python
from tests.readers.helpers import batch_of, epoch_of, flat, numbered

ORDERS = [{}, {"random_shuffle": True, "seed": 4}, {"shuffle_after_epoch": True}]
LAST = [None, "wrap", "pad", "partial", "drop"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered(tmp_path_factory.mktemp("files"), 40)


# -- the state of a reader -----------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 3, 4])
@pytest.mark.parametrize("last_batch", LAST)
@pytest.mark.parametrize("shuffle", ORDERS, ids=str)
def test_a_resumed_epoch_yields_what_was_left(files, shuffle, last_batch, batch_size):
    for num_shards, stick in ((1, False), (3, False), (3, True)):
        if stick and "shuffle_after_epoch" in shuffle:
            continue
        options = dict(files=files[:13], last_batch=last_batch, num_shards=num_shards,
                       shard_id=num_shards - 1, stick_to_shard=stick, **shuffle)  # fmt: skip
        whole = ndd.readers.File(**options)
        wanted = [epoch_of(whole, batch_size) for _ in range(3)]
        for epoch in range(2):
            for taken in range(len(wanted[epoch]) + 1):
                first = ndd.readers.File(**options)
                for _ in range(epoch):
                    epoch_of(first, batch_size)
                items = first.next_epoch(batch_size)
                for _ in range(taken):
                    next(items)
                # as text, and with batches read ahead that nobody has seen
                state = str(first.get_state())
                resumed = ndd.readers.File(prefetch_queue_depth=3, **options)
                resumed.set_state(state)
                # the first item of an epoch begins it: before, the one before is just finished
                left = wanted[epoch][taken:]
                assert len(resumed.next_epoch(batch_size)) == len(left)
                assert epoch_of(resumed, batch_size) == left, (options, epoch, taken)
                assert epoch_of(resumed, batch_size) == wanted[epoch + 1]


def test_resuming_with_another_batch_size(files):
    first = ndd.readers.File(files=files[:10])
    next(first.next_epoch(batch_size=4))
    resumed = ndd.readers.File(files=files[:10])
    resumed.set_state(first.get_state())
    assert epoch_of(resumed, 3) == [[4, 5, 6], [7, 8, 9]]
    assert epoch_of(resumed, 5)[0] == [0, 1, 2, 3, 4]


def test_an_epoch_that_was_left_can_be_resumed(files):
    reader = ndd.readers.File(files=files[:12])
    for item in reader.next_epoch(batch_size=4):
        assert batch_of(item) == [0, 1, 2, 3]
        break
    resumed = ndd.readers.File(files=files[:12])
    resumed.set_state(reader.get_state())
    assert epoch_of(resumed, 4) == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_state_between_epochs(files):
    reader = ndd.readers.File(files=files[:10])
    epoch_of(reader, 4)
    resumed = ndd.readers.File(files=files[:10])
    resumed.set_state(reader.get_state())
    assert epoch_of(resumed, 4) == [[2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]


def test_a_state_after_an_error_is_after_the_bad_batch(files):
    bad = [*files[:3], "/nowhere", *files[4:8]]
    reader = ndd.readers.File(files=bad)
    epoch = reader.next_epoch(batch_size=2)
    next(epoch)
    with pytest.raises(FileNotFoundError):
        next(epoch)
    resumed = ndd.readers.File(files=bad)
    resumed.set_state(reader.get_state())
    assert epoch_of(resumed, 2) == [[4, 5], [6, 7]]


def test_skipped_samples_are_skipped_again(files):
    bad = [*files[:3], "/nowhere", *files[4:8]]
    options = dict(files=bad, on_error="skip", random_shuffle=True, seed=2)
    whole = epoch_of(ndd.readers.File(**options), 2)
    reader = ndd.readers.File(**options)
    next(reader.next_epoch(batch_size=2))
    resumed = ndd.readers.File(**options)
    resumed.set_state(reader.get_state())
    assert epoch_of(resumed, 2) == whole[1:]


def test_the_size_of_a_state_does_not_grow(files, tmp_path):
    small = ndd.readers.File(files=files[:2], random_shuffle=True)
    large = ndd.readers.File(files=files * 5000, random_shuffle=True)
    for reader in (small, large):
        next(reader.next_epoch(batch_size=2))
    assert len(str(large.get_state())) <= len(str(small.get_state())) + 6  # digits of 200000


def test_a_state_is_set_before_the_first_batch_only(files):
    state = ndd.readers.File(files=files[:10]).get_state()
    reader = ndd.readers.File(files=files[:10])
    len(reader.next_epoch(batch_size=2))
    reader.set_state(state)
    next(reader.next_epoch(batch_size=2))
    with pytest.raises(
        RuntimeError,
        match="a state cannot be set after the first batch was read: set it on a new reader",
    ):
        reader.set_state(state)


def test_states_of_other_readers_are_refused(files):
    state = ndd.readers.File(files=files[:10], random_shuffle=True, seed=3).get_state()
    for options, text in (
        (dict(random_shuffle=True, seed=4), "seed is 3 there and 4 here"),
        (dict(seed=3), "shuffle is 'pass' there and 'no' here"),
        (dict(random_shuffle=True, seed=3, last_batch="drop"), "last_batch is 'wrap' there and 'drop' here"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"the state is that of another reader: {text}"):
            ndd.readers.File(files=files[:10], **options).set_state(state)
    with pytest.raises(ValueError, match="samples is 10 there and 9 here"):
        ndd.readers.File(files=files[:9], random_shuffle=True, seed=3).set_state(state)
    with pytest.warns(
        UserWarning, match="the samples have other names than when the state was saved"
    ):
        ndd.readers.File(files=files[1:11], random_shuffle=True, seed=3).set_state(state)


@pytest.mark.parametrize(
    "state, kind, text",
    [
        (None, TypeError, "a state must be a ReaderState or its text, got NoneType"),
        (3, TypeError, "a state must be a ReaderState or its text, got int"),
        ("Cg8KCTUz", ValueError, "not the state of a reader: "),
        ("[1]", ValueError, "not the state of a reader, or one of another version of ndd: wanted version 1, got None"),
        ('{"version": 2}', ValueError, "wanted version 1, got 2"),
        ('{"version": 1}', ValueError, "the state is that of another reader: reader is None there and 'File' here"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_state_is_refused(files, state, kind, text):
    with pytest.raises(kind, match=text):
        ndd.readers.File(files=files[:2]).set_state(state)


def test_a_state_with_a_wrong_position_is_refused(files):
    reader = ndd.readers.File(files=files[:2])
    for wrong in (-1, "1", None, 1.5):
        state = {**reader.get_state().values, "taken": wrong}
        with pytest.raises(ValueError, match="the state has no valid position"):
            reader.set_state(json.dumps(state))


# -- checkpoints ---------------------------------------------------------------------------------


def test_the_program_of_the_guide(files, tmp_path):
    pattern = str(tmp_path / "run_{seq:04d}.json")
    reader, geometry = (
        ndd.readers.File(files=files[:12], random_shuffle=True),
        ndd.random.RNG(seed=1),
    )
    saved = Checkpoint()
    assert saved.register(reader, "train") == "train"
    assert saved.register(geometry, "geometry") == "geometry"
    epoch = reader.next_epoch(batch_size=4)
    for name in ("run_0000.json", "run_0001.json"):
        next(epoch)
        ndd.random.uniform(batch_size=4, rng=geometry)
        saved.collect()
        assert saved.save(pattern) == str(tmp_path / name)
    wanted = [batch_of(item) for item in epoch], epoch_of(reader, 4), geometry()

    reader = ndd.readers.File(files=files[:12], random_shuffle=True, enable_checkpointing=True)
    rng = ndd.random.RNG(seed=99)
    loaded = Checkpoint()
    assert loaded.load(pattern) == str(tmp_path / "run_0001.json")
    loaded.register(reader, "train")
    loaded.register(rng, "geometry")
    assert (epoch_of(reader, 4), epoch_of(reader, 4), rng()) == wanted
    loaded.collect()
    assert loaded.save(pattern) == str(tmp_path / "run_0002.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"run_000{i}.json" for i in range(3)]


def test_flags_and_names(files):
    c, rng = Checkpoint(), ndd.random.RNG(seed=1)
    assert (c.is_complete, c.is_loaded, c.names, len(c)) == (False, False, (), 0)
    first, last = ndd.random.RNG(seed=8), ndd.random.RNG(seed=9)
    assert [c.register(first), c.register(rng, "a"), c.register(last)] == ["__op_0", "a", "__op_2"]
    assert [c.register(o) for o in (first, rng, last)] == ["__op_0", "a", "__op_2"]
    assert c.names == ("__op_0", "a", "__op_2") and len(c) == 3 and "a" in c and "b" not in c
    assert c.get_state("a") is None
    c.collect()
    assert (c.is_complete, c.is_loaded) == (True, False)
    assert str(c.get_state("a")) == str(rng.get_state())
    other = ndd.random.RNG(seed=2)
    assert c.register(other, "a") == "a" and len(c) == 3  # a new object of the same type
    c.collect()
    text = c.serialize()
    c.clear()
    assert (c.is_complete, c.is_loaded, c.names, len(c)) == (False, False, (), 0)
    c.deserialize(text)
    assert (c.is_complete, c.is_loaded, c.names) == (False, True, ())
    assert c.register(first) == "__op_0"
    c.register(rng, "a")
    assert rng() == other()
    assert c.register(last) == "__op_2"
    c.collect()
    assert (c.is_complete, c.is_loaded) == (True, False)


def test_restore_sets_all_states(files):
    reader, rng = ndd.readers.File(files=files[:8]), ndd.random.RNG(seed=1)
    source = ndd.readers.File(files=files[:8])
    next(source.next_epoch(batch_size=4))
    c = Checkpoint()
    c.register(reader, "r")
    c.register(rng, "g")
    c.set_state("r", source.get_state())
    c.set_state("g", str(ndd.random.RNG(seed=5).get_state()))
    assert not c.is_complete and not c.is_loaded
    c.restore()
    assert epoch_of(reader, 4) == [[4, 5, 6, 7]] and rng() == ndd.random.RNG(seed=5)()
    c.set_state("x", ndd.random.RNG(seed=5).get_state())
    c.set_state("y", str(ndd.random.RNG(seed=5).get_state()), ndd.random.RNG)
    assert c.names == ("r", "g")
    with pytest.raises(RuntimeError, match="there are states without objects: 'x', 'y'"):
        c.restore()


def test_states_are_set_once_by_register_or_restore():
    states = [ndd.random.RNG(seed=i).get_state() for i in range(3)]
    c, rng = Checkpoint(), ndd.random.RNG(seed=9)
    c.set_state("a", states[1])
    c.register(rng, "a")
    assert rng.get_state() == states[1]
    rng()
    later = rng.get_state()
    c.restore()  # nothing is left to set
    c.register(rng, "a")
    assert rng.get_state() == later
    c.set_state("a", str(states[2]), op_type="RNG")
    assert rng.get_state() == later
    c.restore()
    assert rng.get_state() == states[2]
    c.collect()
    rng()
    c.restore()  # the object has been collected from, so it has its state
    assert rng.get_state() != states[2]
    c.set_state("a", states[0])
    assert c.is_complete  # as upstream
    c.restore()
    assert rng.get_state() == states[0]


def test_one_object_has_one_name():
    c, rng = Checkpoint(), ndd.random.RNG(seed=1)
    assert c.register(rng, "a") == c.register(rng) == c.register(rng, "a") == "a"
    with pytest.raises(RuntimeError, match="is registered as 'a', it cannot be 'b' as well"):
        c.register(rng, "b")
    c.collect()
    assert c.register(rng) == "a" and c.is_complete
    for options in ({}, {"name": "b"}):
        with pytest.raises(RuntimeError, match=r"no object can be added after collect\(\)"):
            c.register(ndd.random.RNG(seed=2), **options)
    with pytest.raises(KeyError, match="nothing is registered under 'b'"):
        c.set_state("b", rng.get_state())
    assert c.register(ndd.random.RNG(seed=3), "a") == "a"
    c.clear()
    assert c.register(ndd.random.RNG(seed=2)) == "__op_0"


def test_types_are_compared_before_states_are_parsed(files):
    reader, rng = ndd.readers.File(files=files[:2]), ndd.random.RNG(seed=1)
    for op_type, op, text in (
        ("File", rng, "the state of 'a' is that of a File, not of a RNG"),
        (ndd.random.RNG, reader, "the state of 'a' is that of a RNG, not of a File"),
    ):
        c = Checkpoint()
        c.set_state("a", "garbage", op_type)
        with pytest.raises(TypeError, match=text):
            c.register(op, "a")
        c = Checkpoint()
        c.register(op, "a")
        with pytest.raises(TypeError, match=text):
            c.set_state("a", "garbage", op_type)
    c = Checkpoint()
    c.set_state("a", "garbage")
    with pytest.raises(ValueError, match="not the state of a generator: 'garbage'"):
        c.register(rng, "a")


def test_incomplete_states(files):
    c, rng = Checkpoint(), ndd.random.RNG(seed=1)
    c.register(rng, "a")
    c.restore()  # there are no states at all
    c.register(ndd.random.RNG(seed=2), "b")
    c.set_state("a", rng.get_state())
    with pytest.raises(RuntimeError, match="it is incomplete, there is no state for 'b'"):
        c.restore()
    c.set_state("x", rng.get_state())
    with pytest.raises(RuntimeError, match="there are states without objects: 'x'"):
        c.collect()


def test_without_a_number_nothing_is_overwritten(tmp_path):
    c = rng_checkpoint()
    name = str(tmp_path / "last.json")
    assert c.save(name) == name
    before = Path(name).read_text()
    with pytest.raises(
        FileExistsError, match=r"exists; delete it first, or put \{seq\} into the name"
    ):
        c.save(name)
    assert Path(name).read_text() == before and len(list(tmp_path.iterdir())) == 1
    assert Checkpoint().load(name) == name


def test_current_belongs_to_the_context():
    assert ndd.checkpoint.current() is ndd.EvalContext.current().checkpoint
    with ndd.EvalContext(num_threads=1) as context:
        assert ndd.checkpoint.current() is context.checkpoint
        inner = ndd.checkpoint.current()
    assert inner is not ndd.checkpoint.current()
    found = []
    thread = threading.Thread(target=lambda: found.append(ndd.checkpoint.current()))
    thread.start()
    thread.join()
    assert found[0] is not ndd.checkpoint.current()


def rng_checkpoint() -> Checkpoint:
    c = Checkpoint()
    c.register(ndd.random.RNG(seed=1), "g")
    c.collect()
    return c


def test_names_of_files(tmp_path):
    c = rng_checkpoint()
    for pattern, names in (
        ("plain.json", ["plain.json"]),
        ("{seq}.json", ["0.json", "1.json"]),
        ("a{seq:03d}-{seq}.json", ["a000-0.json", "a001-1.json"]),
        ("new/folder/{{x}}{seq:5d}", ["new/folder/{x}    0", "new/folder/{x}    1"]),
        ("10_{seq}_5", ["10_0_5", "10_1_5"]),
    ):
        for name in names:
            assert c.save(str(tmp_path / pattern)) == str(tmp_path / name)
        assert Checkpoint().load(tmp_path / pattern) == str(tmp_path / names[-1])
    (tmp_path / "9.json.bak").write_text("x")
    (tmp_path / "x9.json").write_text("x")
    (tmp_path / "007.json").write_text("not from {seq}")
    assert c.save(str(tmp_path / "{seq}.json")) == str(tmp_path / "2.json")
    for number in (9, 10):
        (tmp_path / "2.json").rename(tmp_path / f"{number}.json") if number == 9 else c.save(
            str(tmp_path / "{seq}.json")
        )
    assert Checkpoint().load(str(tmp_path / "{seq}.json")) == str(tmp_path / "10.json")
    # {seq} in a folder is text there
    (tmp_path / "{seq}").mkdir()
    assert c.save(tmp_path / "{seq}" / "{seq}") == str(tmp_path / "{seq}" / "0")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    c, target = rng_checkpoint(), tmp_path / "c0.json"
    c.save(str(tmp_path / "c{seq}.json"))
    before = target.read_text()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        c.save(str(tmp_path / "c{seq}.json"))
    assert target.read_text() == before and list(tmp_path.iterdir()) == [target]


def test_a_file_is_readable_to_others(tmp_path):
    mask = os.umask(0o022)
    try:
        path = Path(rng_checkpoint().save(str(tmp_path / "c.json")))
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644


def test_every_truncated_file_is_refused(tmp_path, files):
    c = Checkpoint()
    c.register(ndd.random.RNG(seed=1), "g")
    c.register(ndd.readers.File(files=files[:2]), "r")
    c.collect()
    path = Path(c.save(str(tmp_path / "c.json")))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=r"Checkpoint: file '.*c.json' is not a checkpoint, or it is cut off"
        ):
            Checkpoint().load(str(path))


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", "the text is not a checkpoint, or it is cut off"),
        ("\x80\x04pickle", "the text is not a checkpoint, or it is cut off"),
        ("[]", "the text is JSON, but not a checkpoint of ndd"),
        ('{"version": 2, "states": {}}', "the text is JSON, but not a checkpoint of ndd"),
        ('{"format": "ndd-checkpoint", "version": 7, "states": {}}', "the text has version 7; this release reads version 1"),
        ('{"format": "ndd-checkpoint", "version": 1}', "the text has no valid states: KeyError"),
        ('{"format": "ndd-checkpoint", "version": 1, "states": {"a": {"type": "RNG", "state": "x"}}}', "not the state of a generator: 'x'"),
        ('{"format": "ndd-checkpoint", "version": 1, "states": {"a": {"type": "File", "state": {}}}}', "not the state of a reader"),
        ('{"format": "ndd-checkpoint", "version": 1, "states": {"a": 3}}', "no valid states"),
    ],
    ids=range(9),
)  # fmt: skip
def test_foreign_text_is_refused_and_changes_nothing(text, wanted):
    c = rng_checkpoint()
    with pytest.raises(ValueError, match=wanted):
        c.deserialize(text)
    assert c.is_complete and c.names == ("g",)


def test_foreign_bytes_are_refused(tmp_path):
    (tmp_path / "c.json").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ValueError, match="is not a checkpoint, or it is cut off"):
        Checkpoint().load(str(tmp_path / "c.json"))


def test_mistakes_are_explained(files, tmp_path):
    c, rng, reader = Checkpoint(), ndd.random.RNG(seed=1), ndd.readers.File(files=files[:2])
    for call, kind, text in (
        (lambda: c.register(object(), "x"), TypeError, "only readers and random generators have a state, got object"),
        (lambda: c.register(rng, 3), TypeError, "a name must be a string, got int"),
        (lambda: c.register(rng, ""), ValueError, "the name must not be empty"),
        (lambda: c.serialize(), RuntimeError, r"it is empty; call collect\(\) or set_state\(\) first"),
        (lambda: c.save(str(tmp_path / "{seq}")), RuntimeError, "it is empty"),
        (lambda: c.get_state("x"), KeyError, "nothing is registered under 'x'"),
        (lambda: c.register(rng, "__op_1"), ValueError, "names that begin with '__op_' are made for objects"),
        (lambda: c.set_state("x", "text", 5), TypeError, "`op_type` must be a class or its name, got int"),
        (lambda: c.set_state("x", "text", rng), TypeError, "`op_type` must be a class or its name, got RNG"),
        (lambda: c.deserialize(3), TypeError, "JSON text is needed, got int"),
        (lambda: c.load(str(tmp_path / "{seq}")), FileNotFoundError, "no file matches '.*{seq}'"),
        (lambda: c.load(str(tmp_path / "none")), FileNotFoundError, "there is no file '.*none'"),
        (lambda: c.load("{number}"), ValueError, "'{number}' is not a pattern: only {seq} stands for a number"),
        (lambda: c.load("{"), ValueError, "'{' is not a pattern"),
    ):  # fmt: skip
        with pytest.raises(kind, match=text):
            call()
    c = rng_checkpoint()
    with pytest.raises(TypeError, match="'g' is a RNG, it cannot be replaced by a File"):
        c.register(reader, "g")
    loaded = Checkpoint()
    loaded.deserialize(c.serialize())
    with pytest.raises(TypeError, match="the state of 'g' is that of a RNG, not of a File"):
        loaded.register(reader, "g")
    with pytest.raises(
        KeyError, match="the loaded checkpoint has no state for 'other'; it has 'g'"
    ):
        loaded.register(rng, "other")
    next(reader.next_epoch())
    c = Checkpoint()
    c.register(reader, "r")
    c.collect()
    c.restore()  # the reader has this state
    c.set_state("r", c.get_state("r"))
    with pytest.raises(RuntimeError, match="a state cannot be set after the first batch was read"):
        c.restore()


# -- kill -9 -------------------------------------------------------------------------------------

KILLS = 50 if "NDD_STRESS" in os.environ else 4

READ_UNTIL_KILLED = """
    import time, ndd
    reader = ndd.readers.File(files={files!r}, random_shuffle=True, seed={seed}, last_batch="partial",
                              prefetch_queue_depth=2)
    rng = ndd.random.RNG(seed=1)
    checkpoint = ndd.checkpoint.Checkpoint()
    checkpoint.register(reader, "train")
    checkpoint.register(rng, "rng")
    epoch = reader.next_epoch(batch_size=3)
    for number, (data, labels) in enumerate(epoch):
        time.sleep(0.003)  # so that the kill, which comes at its own pace, can hit any batch
        samples = [t.item() for t in data.tensors]
        print(*samples, rng(), flush=True)  # what the training step would have done
        if number % {every} == 0:
            checkpoint.collect()
            checkpoint.save({pattern!r})
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("run", range(KILLS))
def test_kill_at_any_point_and_resume(files, tmp_path, run):
    """Samples up to the last checkpoint, and those of the resumed epoch, are all, each once."""
    chance = random.Random(run)
    pattern, every = str(tmp_path / "c_{seq}.json"), chance.choice([1, 2])
    options = dict(files=files, random_shuffle=True, seed=run, last_batch="partial")
    child = start_python(
        READ_UNTIL_KILLED.format(files=files, seed=run, every=every, pattern=pattern)
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(chance.randrange(1, 14))]
    for _ in range(
        chance.randrange(2000)
    ):  # anywhere between two lines, or in the middle of a save
        os.sched_yield()
    child.kill()
    with child:  # closes its pipes
        lines += child.stdout.read().splitlines()  # not communicate(): it skips what is buffered
    assert child.returncode == -9
    seen = [[int(n) for n in line.split()] for line in lines]

    reader, rng = ndd.readers.File(**options), ndd.random.RNG(seed=0)
    resumed = Checkpoint()
    done = 0
    if list(tmp_path.glob("c_*")):  # it may have died before the first one
        resumed.load(pattern)
        done = -(-resumed.get_state("train").values["taken"] // 3)
        resumed.register(reader, "train")
        resumed.register(rng, "rng")
        assert done in (len(seen), len(seen) - 1, len(seen) - 2)  # nothing older than it may be
        whole = ndd.random.RNG(seed=1)
        numbers = [whole() for _ in range(done + 1)]
        assert [line[-1] for line in seen[:done]] == numbers[:-1] and rng() == numbers[-1]
    before = [n for line in seen[:done] for n in line[:-1]]
    after = flat(epoch_of(reader, 3))
    assert sorted(before + after) == list(range(40))
    assert before + after == flat(epoch_of(ndd.readers.File(**options), 3))
