"""The states of a loop: programs as users write them enter and leave each one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.loop import calls
from ndd.loop.loop import Loop, LoopState
from ndd.readers.epoch import Epoch
from tests.helpers import ROOT, arrays
from tests.loop.helpers import COUNT, SIZE, ahead_threads, augmented, wait_until

Body = Callable[[int, ndd.Batch, ndd.Batch], Any]
BATCHES = -(-COUNT // SIZE)


def state_of(epoch: Epoch[Any]) -> str:
    assert epoch._loop is not None
    return epoch._loop.state.name


def states(reader: ndd.readers.Reader, body: Body, **options: Any) -> list[str]:
    """The state of a loop at the end of each iteration, and at the end of the epoch."""
    epoch = reader.next_epoch(SIZE, **options)
    found = []
    for number, (jpegs, labels) in enumerate(epoch):
        body(number, jpegs, labels)
        found.append(state_of(epoch))
    return [*found, state_of(epoch)]


def decoded(_number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    return ndd.resize(ndd.decoders.image(jpegs), size=[8, 9])


def flipped_in(*numbers: int) -> Body:
    def body(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
        x = decoded(number, jpegs, labels)
        return ndd.flip(x) if number in numbers else x + 1

    return body


@pytest.fixture
def reader(pictures: list[str]) -> ndd.readers.File:
    return ndd.readers.File(files=pictures)


def test_recording_then_replaying_then_off(reader: ndd.readers.File) -> None:
    assert states(reader, augmented) == ["recording", *["replaying"] * (BATCHES - 1), "off"]


def test_the_next_epoch_begins_replaying(reader: ndd.readers.File) -> None:
    states(reader, augmented)
    assert states(reader, augmented) == [*["replaying"] * BATCHES, "off"]
    # The recording does not apply to another batch size.
    for _ in reader.next_epoch(SIZE + 1):
        pass
    assert states(reader, augmented)[0] == "recording"


def test_an_epoch_that_was_left_is_known_to_the_next(reader: ndd.readers.File) -> None:
    epoch = reader.next_epoch(SIZE)
    for number, (jpegs, labels) in enumerate(epoch):
        augmented(number, jpegs, labels)
        if number == 2:
            break
    loop = epoch._loop
    assert loop is not None and loop.state is LoopState.replaying
    del epoch, jpegs, labels
    assert loop.state is LoopState.off and calls.this_thread.loop is None
    assert states(reader, augmented)[0] == "replaying"


def test_recording_goes_on_if_there_is_little_to_do(reader: ndd.readers.File) -> None:
    found = states(reader, lambda _number, _jpegs, labels: labels + 1)
    assert found == [*["recording"] * BATCHES, "off"]


def test_recording_goes_on_if_a_call_cannot_be_repeated(reader: ndd.readers.File) -> None:
    shared = np.zeros((8, 9, 3), np.float32)

    def body(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> None:
        decoded(number, jpegs, labels) + ndd.as_tensor(shared)

    assert states(reader, body) == [*["recording"] * BATCHES, "off"]


def test_recording_goes_on_after_an_error(reader: ndd.readers.File) -> None:
    def body(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> None:
        x = decoded(number, jpegs, labels)
        if number < 2:
            with pytest.raises(ValueError, match="crop"):
                ndd.crop(x, crop=[100, 100])

    assert states(reader, body)[:4] == ["recording", "recording", "recording", "replaying"]


def test_diverged_then_replaying_what_was_done_instead(reader: ndd.readers.File) -> None:
    epoch = reader.next_epoch(SIZE)
    for number, (jpegs, labels) in enumerate(epoch):
        x = decoded(number, jpegs, labels)
        if number == 2:
            assert state_of(epoch) == "replaying" and ahead_threads()
        x = ndd.flip(x) if number >= 2 else x + 1
        assert state_of(epoch) == ["recording", "replaying", "diverged", *["replaying"] * 9][number]
        expected = ["+" if number < 2 else "flip"]
        recording = x._node.result.origin[0].recording
        assert [c.call.op.name for c in recording.calls[2:]] == expected


@pytest.mark.parametrize(
    "where", [ndd.EvalMode.sync_cpu, ndd.EvalContext()], ids=["mode", "context"]
)
def test_diverged_in_another_mode_or_context(reader: ndd.readers.File, where: Any) -> None:
    epoch = reader.next_epoch(SIZE)
    for number, (jpegs, labels) in enumerate(epoch):
        if number == 2:
            with where:
                decoded(number, jpegs, labels)
            assert state_of(epoch) == "diverged"
        else:
            decoded(number, jpegs, labels)
            assert state_of(epoch) == ("replaying" if number in (1, 4, 5, 6) else "recording")


def test_diverged_then_recording(reader: ndd.readers.File) -> None:
    """The iteration differs from the recording, and cannot be repeated either."""
    shared = np.zeros((8, 9, 3), np.float32)

    def body(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> None:
        x = decoded(number, jpegs, labels)
        if number == 2:
            x + ndd.as_tensor(shared)

    assert states(reader, body)[1:5] == ["replaying", "diverged", "recording", "replaying"]


def test_off_after_two_divergences(reader: ndd.readers.File) -> None:
    """Iteration 2 flips, so iteration 3 is expected to flip, but does not."""
    epoch = reader.next_epoch(SIZE)
    for number, (jpegs, labels) in enumerate(epoch):
        flipped_in(2)(number, jpegs, labels)
        assert state_of(epoch) == ["recording", "replaying", "diverged", *["off"] * 9][number]
        assert (calls.this_thread.loop is None) == (number >= 3)
    wait_until(lambda: "ndd-call-ahead" not in ahead_threads())
    assert reader._known_loop == (SIZE, None)
    assert states(reader, augmented)[0] == "recording"


def fewer_calls(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> None:
    x = decoded(number, jpegs, labels)
    if number != 2:
        ndd.flip(x)


def test_replaying_then_recording_after_fewer_calls(reader: ndd.readers.File) -> None:
    wanted = ["recording", "replaying", "replaying", "recording", "replaying"]
    assert states(reader, fewer_calls)[:5] == wanted


def test_replaying_then_recording_if_nothing_was_made(pictures: list[str]) -> None:
    """A batch with an unreadable file is not made in advance: the reader has to handle the file."""
    files = [*pictures[:13], "/nowhere.jpg", *pictures[13:]]
    reader = ndd.readers.File(files=files, on_error="skip")
    found = states(reader, augmented)
    assert found[:6] == [
        "recording",
        "replaying",
        "replaying",
        "recording",
        "replaying",
        "replaying",
    ]


def test_a_call_within_a_call_is_a_part_of_it(reader: ndd.readers.File) -> None:
    for jpegs, labels in reader.next_epoch(SIZE):
        x = calls.made("twice", (jpegs, labels), (), lambda op, inputs, _: decoded(0, *inputs))
        recording = x._node.result.origin[0].recording
        assert [c.call.op for c in recording.calls] == ["twice"]


def test_off_from_the_start(reader: ndd.readers.File) -> None:
    assert states(reader, augmented, prefetch=0) == ["off"] * (BATCHES + 1)


def test_an_interrupted_reader_goes_on(
    reader: ndd.readers.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Ctrl-C comes before the caller has the next batch, the caller gets it at the next try."""
    give = ndd.readers.File._give
    stops: list[int] = []

    def interrupted(self: Any, run: Any, ready: Any = None) -> Any:
        if run.given == 3 and not stops:
            stops.append(run.given)
            raise KeyboardInterrupt
        return give(self, run, ready)

    wanted = [arrays(labels) for _, labels in reader.next_epoch(SIZE, prefetch=0)]
    monkeypatch.setattr(ndd.readers.File, "_give", interrupted)
    epoch, found, seen = reader.next_epoch(SIZE), [], []
    while len(found) < BATCHES:
        try:
            jpegs, labels = next(epoch)
        except KeyboardInterrupt:
            continue
        augmented(len(found), jpegs, labels)
        found.append(arrays(labels))
        seen.append(state_of(epoch))
    assert stops and len(wanted) == BATCHES
    assert seen == [
        "recording",
        "replaying",
        "replaying",
        "recording",
        *["replaying"] * (BATCHES - 4),
    ]


def test_another_thread_asks_for_the_next_batch(reader: ndd.readers.File) -> None:
    """A thread may still make calls after another thread has ended the loop's iteration."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        epoch = reader.next_epoch(SIZE)
        for number in range(BATCHES):
            jpegs, labels = (pool.submit(next, epoch).result)() if number % 2 else next(epoch)
            assert augmented(number, jpegs, labels).batch_size == SIZE


def test_the_table_lists_what_happens(pictures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The transitions in the docstring of `Loop` are exactly those that occur in programs."""
    rows = re.findall(r"^    (\w+) +[^=]+? {2,}(\w+)$", Loop.__doc__ or "", re.MULTILINE)
    listed = {(a, b) for a, b in rows if a not in ("in", "any")}
    listed |= {("diverged", b) for a, b in listed if a == "recording"}
    listed |= {(s.name, "off") for s in LoopState}
    happened: set[tuple[str, str]] = set()
    enter = Loop._enter

    def noted(self: Loop, state: LoopState) -> None:
        happened.add((self.state.name, state.name))
        enter(self, state)

    monkeypatch.setattr(Loop, "_enter", noted)
    shared = np.zeros((8, 9, 3), np.float32)

    def unrepeatable(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> None:
        x = decoded(number, jpegs, labels)
        if number in (0, 4):
            x + ndd.as_tensor(shared)

    def leave(last: int) -> None:
        for number, (jpegs, labels) in enumerate(ndd.readers.File(files=pictures).next_epoch(SIZE)):
            flipped_in(2)(number, jpegs, labels)
            if number == last:
                break

    for body in (augmented, flipped_in(BATCHES - 1), flipped_in(2), fewer_calls, unrepeatable):
        states(ndd.readers.File(files=pictures), body)
    for number in (0, 1, 2):
        leave(number)
    assert {s for pair in listed for s in pair} == {s.name for s in LoopState}
    assert happened == listed


def test_what_readers_know_of_a_loop() -> None:
    text = "".join(p.read_text() for p in (ROOT / "ndd" / "readers").glob("*.py"))
    assert set(re.findall(r"_loop\.(\w+)", text)) == {"next", "close", "share"}
    assert set(re.findall(r"from \.\.loop\.(.+)", text)) == {
        "loop import Loop",
        "calls import Recording",
    }
