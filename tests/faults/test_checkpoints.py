"""Checkpoints that are damaged or hostile, names that count in other bases, and what is no file."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import ndd
from ndd.checkpoint import Checkpoint
from ndd.kernels.common.replacing import NotRegularFileError, replace_file
from ndd.readers.order import Order, Position


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A test that spins or waits ends the process instead of the patience of CI."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    folder = tmp_path / "data"
    folder.mkdir()
    for k in range(12):
        (folder / f"{k:02d}.bin").write_bytes(bytes([k]))
    return sorted(map(str, folder.iterdir()))


def of_a_generator() -> Checkpoint:
    checkpoint = Checkpoint()
    checkpoint.register(ndd.random.RNG(seed=1), "g")
    checkpoint.collect()
    return checkpoint


@pytest.mark.parametrize(
    "spec", ["", ":x", ":X", ":#x", ":o", ":#o", ":b", ":04x", ":+d", ":08b", ":_", ":>6", "!r"]
)
def test_numbers_in_any_base(tmp_path: Path, spec: str) -> None:
    """They used to be read as decimal: after ck_a.json every save went to ck_a.json again."""
    pattern = tmp_path / ("ck_{seq" + spec + "}.json")
    checkpoint, names = of_a_generator(), []
    for _ in range(19):
        names.append(checkpoint.save(str(pattern)))
        assert Checkpoint().load(str(pattern)) == names[-1]
    assert len(set(names)) == 19


@pytest.mark.parametrize("field", ["{seq:e}", "{seq:c}", "{seq:%}", "{seq!r:.1}", "{seq.real}",
                                   "{seq[0]}", "{seq:q}", "{other}", "{0}", "{"])  # fmt: skip
def test_names_that_do_not_give_back_their_number(tmp_path: Path, field: str) -> None:
    with pytest.raises(ValueError, match=r"is not a pattern: only {seq} stands for a number"):
        of_a_generator().save(str(tmp_path / f"ck_{field}.json"))
    assert not list(tmp_path.glob("ck*"))


HUGE = 10**9, 10**18, 2**62, 10**40, -1, 1.5, float("inf"), True, None, "7", [1], {}


@pytest.mark.parametrize("last_batch", ["wrap", "pad", "partial", "drop"])
def test_positions_that_no_reader_has(files: list[str], last_batch: str) -> None:
    state = ndd.readers.File(files=files, last_batch=last_batch).get_state().values
    for key in ("epoch", "pass", "offset", "taken"):
        for number in HUGE:
            reader = ndd.readers.File(files=files, last_batch=last_batch)
            try:
                reader.set_state(json.dumps({**state, key: number}))
            except ValueError as error:
                assert "no valid position" in str(error) and len(str(error)) < 400
            else:  # many samples were taken, or many epochs are over
                assert key in ("taken", "epoch", "pass"), (key, number)
                for _ in range(2):
                    assert len(list(reader.next_epoch(batch_size=5))) <= 3


@pytest.mark.parametrize("last_batch", ["wrap", "pad"])
@pytest.mark.parametrize("stick", [False, True])
def test_states_of_numbers_of_shards_that_cannot_be(
    files: list[str], last_batch: str, stick: bool
) -> None:
    """What many ranks had left was put together, rank by rank, for ever."""
    options = dict(files=files, last_batch=last_batch, stick_to_shard=stick, random_shuffle=True)
    state = ndd.readers.File(**options).get_state().values
    for shards in (13, 2**31, 10**18, 10**40):
        for changed in ({"num_shards": shards}, {"rest": [[shards, 0, 0, 0, 0, 0]] * 3}):
            with pytest.raises(ValueError, match="no valid position: 12 samples among"):
                ndd.readers.File(**options).set_state(json.dumps(state | changed))
    for far in (10**9, 2**61):
        reader = ndd.readers.File(**options)
        reader.set_state(json.dumps(state | {"num_shards": 12, "epoch": far, "pass": far}))
        assert len(list(reader.next_epoch(batch_size=5))) <= 3


@pytest.mark.parametrize("stick", [False, True])
def test_places_far_away(stick: bool) -> None:
    """The same as one step after the other, but at once."""
    order = Order(11, 1, 4, stick, "no", 0)
    for pass_ in range(5):
        for offset in range(60):
            at, left = pass_, offset
            while left >= order.size(at):
                left -= order.size(at)
                at += 1
            assert order.normal(pass_, offset) == (at, left)
        assert order.used_before(pass_) == sum(order.size(p) for p in range(pass_))
    assert order.normal(0, 10**18)[0] > 10**17
    assert order.has(Position(3, 3, 0, 10), False) and not order.has(Position(3, 2, 0, 10), False)
    assert not order.has(Position(0, 0, order.size(0), 0), True)


DEEP = (
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"format": "ndd-checkpoint", "version": 1, "states": {"a": {"type": "RNG", "state": '
    + "[" * 5000 + "]" * 5000 + "}}}",
    '{"format": "ndd-checkpoint", "version": 1, "states": {"a": {"type": "File", "state": '
    + '"' + "[" * 90_000 + '"}}}',
)  # fmt: skip


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_nesting_is_refused(files: list[str], tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="Checkpoint: the text"):
        Checkpoint().deserialize(text)
    (tmp_path / "ck.json").write_text(text)
    with pytest.raises(ValueError, match="Checkpoint: file"):
        Checkpoint().load(str(tmp_path / "ck.json"))
    with pytest.raises(ValueError, match=r"readers\.File: (not )?the state "):
        ndd.readers.File(files=files).set_state(text)


def special_files(folder: Path) -> Iterator[Path]:
    """What exists and is no regular file."""
    os.mkfifo(folder / "pipe")
    yield folder / "pipe"
    (folder / "folder").mkdir()
    yield folder / "folder"
    (folder / "link").symlink_to("pipe")
    yield folder / "link"
    (folder / "loop").symlink_to("loop")
    yield folder / "loop"
    try:
        os.mknod(folder / "device", 0o600 | 0o020000, os.makedev(1, 7))  # like /dev/full
    except OSError:  # only root can
        return
    yield folder / "device"


def test_nothing_but_files_is_replaced(tmp_path: Path) -> None:
    for path in special_files(tmp_path):
        before = path.lstat()
        with pytest.raises(OSError, match=r"Checkpoint: cannot save: .* is not a regular file"):
            of_a_generator().save(str(path))
        with pytest.raises(NotRegularFileError):
            replace_file(path, b"")
        assert path.lstat() == before
        with pytest.raises(OSError):
            Checkpoint().load(str(path))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], "a temporary file is left"


def test_open_files_of_this_process_are_not_exchanged() -> None:
    with pytest.raises(OSError, match="cannot save: '/proc/"):
        of_a_generator().save("/dev/stdout")


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/ck.json")
    of_a_generator().save(str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real/ck.json").is_file()
    Checkpoint().load(str(tmp_path / "link"))
    with pytest.raises(FileExistsError, match="link' exists; delete it first"):
        of_a_generator().save(str(tmp_path / "link"))
