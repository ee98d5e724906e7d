"""Calls for coming batches give the same values, and really are made in advance."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndd
from tests.decoders.fixtures import areas_decoded, encoded, photo
from tests.helpers import arrays, run_python, start_python
from tests.loop.helpers import SIZE, ahead_threads, augmented, wait_until

Body = Callable[[int, ndd.Batch, ndd.Batch], Any]


def values(pictures: list[str], body: Body, epochs: int = 2, **options: Any) -> list[Any]:
    """All values that a loop sees, and the final states of its generators."""
    ndd.random.set_seed(5)
    reader = ndd.readers.File(files=pictures, random_shuffle=True, seed=2)
    seen: list[Any] = []
    for _ in range(epochs):
        for number, (jpegs, labels) in enumerate(reader.next_epoch(SIZE, **options)):
            seen.append([a.tobytes() for a in arrays(body(number, jpegs, labels))])
            seen.append([a.item() for a in arrays(labels)])
            seen.append(jpegs.source_info if hasattr(jpegs, "source_info") else None)
    seen.append(str(ndd.random.get_default_rng().get_state()))
    seen.append(str(reader.get_state()))
    return seen


@pytest.mark.parametrize("mode", ["eager", "deferred", "sync_cpu"])
def test_the_same_values(pictures: list[str], mode: str) -> None:
    wanted = values(pictures, augmented, prefetch=0)
    with getattr(ndd.EvalMode, mode):
        for options in ({}, {"prefetch": 3}, {"capture": True}):
            assert values(pictures, augmented, **options) == wanted


def test_the_same_values_on_the_simulated_gpu(pictures: list[str]) -> None:
    out = run_python(
        f"""
        import ndd
        from tests.helpers import arrays
        def run(prefetch, device):
            reader = ndd.readers.File(files={pictures[:12]!r})
            rng = ndd.random.RNG(seed=3)
            found = []
            for jpegs, labels in reader.next_epoch(3, prefetch=prefetch):
                x = ndd.decoders.image(jpegs, device=device)
                x = ndd.random_resized_crop(x, size=[8, 9], rng=rng)
                found.append([a.tobytes() for a in arrays((x + labels.to_device(device)).cpu())])
            return found
        wanted = run(0, "cpu")
        print(len(wanted), run(0, "gpu") == wanted, run(1, "gpu") == wanted, run(1, "cpu") == wanted)
        """,
        NDD_GPU="simulate",
    )
    assert out == "4 True True True"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return areas_decoded(monkeypatch)


@pytest.mark.parametrize("ahead", [1, 2])
def test_batches_are_made_before_they_are_asked_for(
    pictures: list[str], decoded: list[int], ahead: int
) -> None:
    reader = ndd.readers.File(files=pictures)
    for number, (jpegs, labels) in enumerate(reader.next_epoch(SIZE, prefetch=ahead)):
        augmented(number, jpegs, labels).torch()
        if number == 0:
            assert len(decoded) == SIZE  # nothing has been recorded yet
        if number == 3:
            wait_until(lambda: len(decoded) == SIZE * (4 + ahead))
            time.sleep(0.05)
            assert len(decoded) == SIZE * (4 + ahead)  # not further ahead than `prefetch`
    assert len(decoded) == SIZE * len(reader.next_epoch(SIZE))  # each batch exactly once


def test_an_epoch_begins_with_what_the_last_one_did(
    pictures: list[str], decoded: list[int]
) -> None:
    reader = ndd.readers.File(files=pictures[:24])  # whole batches of both sizes

    def first_of(size: int, body: Body) -> ndd.Batch:
        """Return an epoch's first batch; count what is decoded by the time it has been used."""
        for number, (jpegs, labels) in enumerate(reader.next_epoch(size)):
            if number == 0:
                first = body(number, jpegs, labels)
                first.torch()
                time.sleep(0.05)
                counts.append(len(decoded))
            else:
                body(number, jpegs, labels).torch()
        decoded.clear()
        return first

    def resized(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
        return ndd.resize(ndd.decoders.image(jpegs), size=[9, 8])

    counts: list[int] = []
    wanted = arrays(first_of(SIZE, resized))
    again = arrays(first_of(SIZE, resized))
    assert [a.tobytes() for a in again] == [a.tobytes() for a in wanted]
    first_of(SIZE + 2, resized)
    # The second epoch works two batches ahead; the recording does not apply to another batch size.
    assert counts == [SIZE, SIZE * 3, SIZE + 2]
    # A loop that makes other calls than the epoch before still gets correct results.
    ours = arrays(first_of(SIZE + 2, lambda *b: ndd.flip(resized(*b))))
    assert [a[:, ::-1].tobytes() for a in ours[:SIZE]] == [a.tobytes() for a in wanted]


def test_tensors_are_made_in_advance(pictures: list[str]) -> None:
    """Torch tensors that the loop asks for are exported once, and share the batch's memory."""
    reader = ndd.readers.File(files=pictures)
    seen: list[tuple[Any, list[np.ndarray], Any, list[np.ndarray]]] = []
    in_advance = 0
    for number, (jpegs, labels) in enumerate(reader.next_epoch(SIZE)):
        x = augmented(number, jpegs, labels)
        if number > 2:
            wait_until(lambda node=x._node: node.result.export is not None)
            in_advance += labels._node.result.export is not None
        first = x.torch()
        assert number < 3 or x._node.result.export is None
        second, third = x.torch(), x.torch(copy=True)
        assert first is not second and first.data_ptr() == second.data_ptr() != third.data_ptr()
        assert (first == third).all() and first.data_ptr() == np.asarray(x.tensors[0]).ctypes.data
        seen.append((first, arrays(x), labels.torch(), arrays(labels)))
    assert in_advance
    for tensor, wanted, numbers, labels_wanted in seen:  # tensors outlive their batches
        assert np.array_equal(tensor.numpy(), np.stack(wanted))
        assert np.array_equal(numbers.numpy(), np.stack(labels_wanted))


def test_what_the_loop_looks_at_is_made_in_advance(pictures: list[str]) -> None:
    """A value that the loop reads is stored, even if a later call could fuse it away."""
    reader = ndd.readers.File(files=pictures)
    for number, (jpegs, _) in enumerate(reader.next_epoch(SIZE)):
        x = ndd.decoders.image(jpegs)
        y = ndd.resize(x, size=[9, 9])
        if number > 2:
            wait_until(lambda node=x._node: node.storage is not None)
        y.evaluate()
        x.evaluate()


def test_a_call_that_returns_its_input_did_not_make_it(pictures: list[str]) -> None:
    """Otherwise the export of a value would be recorded under a later call."""
    calls = []
    for number, (jpegs, labels) in enumerate(ndd.readers.File(files=pictures).next_epoch(SIZE)):
        x = augmented(number, jpegs, labels)
        calls.append(x._node.result.origin[1])
        assert x.cpu()._node is x._node
        calls.append(x._node.result.origin[1])
        x.torch()
    assert set(calls) == {calls[0]}


def test_nothing_in_advance_for_a_loop_that_does_little(pictures: list[str]) -> None:
    reader = ndd.readers.File(files=pictures)
    for _, labels in reader.next_epoch(SIZE):
        (labels + 1).torch()
        assert "ndd-call-ahead" not in ahead_threads()


# -- loops that change their mind ----------------------------------------------------------------


def other_size(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    x = ndd.resize(ndd.decoders.image(jpegs), size=[10, 12 if number == 3 else 11])
    return x + ndd.random.uniform(range=[0.0, 5.0], batch_size=SIZE)


def other_calls(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
    x = augmented(number, jpegs, labels)
    return ndd.flip(x) if number % 2 else x + 1.0


def fewer_calls(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
    x = augmented(number, jpegs, labels)
    return x if number == 2 else x + 1.0


def numbers_of_python(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    angle = np.arange(SIZE, dtype=np.float32) * (
        number // 2
    )  # a new array in every iteration, often with other values
    x = ndd.resize(ndd.decoders.image(jpegs), size=[12, 13])
    return ndd.rotate(x, angle=ndd.batch(list(angle))) + np.float32(number // 3)


_shared = np.zeros(3, np.float32)


def an_array_that_changes(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    _shared[:] = number // 2
    return ndd.resize(ndd.decoders.image(jpegs), size=[5, 6]) * _shared


def other_draws(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
    if number == 2:
        ndd.random.set_seed(77)
    if number == 4:
        ndd.random.get_default_rng()()
    return augmented(number, jpegs, labels)


def other_mode(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
    with ndd.EvalMode.sync_cpu if number == 3 else ndd.EvalMode.eager:
        return augmented(number, jpegs, labels)


def a_look_between(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    x = ndd.decoders.image(jpegs)
    bright = x.tensors[0].shape[0] if number % 2 else 3
    y = ndd.resize(x, size=[9, 9])
    return y + x.slice[0:9, 0:9] + bright


def a_generator_of_its_own(number: int, jpegs: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
    return augmented(number, jpegs, labels, rng=ndd.random.RNG(seed=number))


def numbers_alike(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    x = ndd.resize(ndd.decoders.image(jpegs), size=[7, 8])
    return x * (0.0, -0.0, 0, False)[number // 2 % 4]  # equal numbers with different results


_kept: list[ndd.Batch] = []


def values_of_earlier_ones(number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    """Use values that the same call made in earlier iterations, and in the epoch before."""
    x = ndd.resize(ndd.decoders.image(jpegs), size=[7, 8]).evaluate()
    _kept.append(x)
    del _kept[:-3]
    return x + _kept[0] if number == 4 else x + _kept[-1]


_offset = ndd.tensor([5], dtype=ndd.uint8)


def a_value_from_outside(_number: int, jpegs: ndd.Batch, _labels: ndd.Batch) -> ndd.Batch:
    return ndd.resize(ndd.decoders.image(jpegs), size=[7, 8]) + _offset.cpu()


BODIES = (numbers_alike, values_of_earlier_ones, a_value_from_outside, other_size, other_calls, fewer_calls, numbers_of_python, an_array_that_changes,
          other_draws, other_mode, a_look_between, a_generator_of_its_own)  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_a_loop_that_changes_its_mind(pictures: list[str], body: Body) -> None:
    _kept.clear()
    wanted = values(pictures, body, prefetch=0)
    _kept.clear()
    assert values(pictures, body) == wanted
    _kept.clear()
    assert values(pictures, body, prefetch=2) == wanted


def test_it_gives_up_on_such_loops(pictures: list[str]) -> None:
    reader = ndd.readers.File(files=pictures)
    was_ahead = []
    for number, (jpegs, labels) in enumerate(reader.next_epoch(SIZE)):
        was_ahead.append("ndd-call-ahead" in ahead_threads())
        other_calls(number, jpegs, labels).torch()
    assert any(was_ahead) and not was_ahead[-1]


def test_two_readers_at_once(pictures: list[str]) -> None:
    def run(prefetch: int) -> list[Any]:
        first, second = (
            ndd.readers.File(files=pictures, seed=s, random_shuffle=True) for s in (1, 2)
        )
        pairs = zip(
            first.next_epoch(SIZE, prefetch=prefetch), second.next_epoch(SIZE, prefetch=prefetch)
        )
        return [
            [a.tobytes() for a in arrays(augmented(0, x, y) + augmented(0, z, y))]
            for (x, y), (z, _) in pairs
        ]

    ndd.random.set_seed(1)
    wanted = run(0)
    ndd.random.set_seed(1)
    assert run(1) == wanted


# -- errors, ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [300, 700], ids=["no header", "no data"])
def test_an_error_comes_in_its_turn(pictures: list[str], tmp_path: Path, kept: int) -> None:
    """The error occurs when the call is made (no header), or when its value is computed."""
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(Path(pictures[0]).read_bytes()[:kept])
    files = [*pictures[:13], str(broken), *pictures[13:]]

    def run(prefetch: int) -> tuple[int, str]:
        done = 0
        reader = ndd.readers.File(files=files)
        for jpegs, labels in reader.next_epoch(SIZE, prefetch=prefetch):
            try:
                augmented(done, jpegs, labels).torch()
            except ValueError as error:
                return done, str(error)
            done += 1
        raise AssertionError("no error")

    wanted = run(0)
    line = augmented.__code__.co_filename
    assert wanted[0] == 3 and "broken.jpg" in wanted[1] and line in wanted[1]
    assert run(1) == wanted


def test_a_missing_file_comes_in_its_turn(pictures: list[str]) -> None:
    files = [*pictures[:13], "/nowhere.jpg", *pictures[13:]]
    for prefetch in (0, 1):
        done = 0
        with pytest.raises(FileNotFoundError, match=r"nowhere\.jpg"):
            for jpegs, labels in ndd.readers.File(files=files).next_epoch(SIZE, prefetch=prefetch):
                augmented(done, jpegs, labels).torch()
                done += 1
        assert done == 3


def test_leaving_a_loop(pictures: list[str]) -> None:
    reader = ndd.readers.File(files=pictures)
    for number, (jpegs, labels) in enumerate(reader.next_epoch(SIZE)):
        augmented(number, jpegs, labels).torch()
        if number == 3:
            state = str(reader.get_state())
            break
    other = ndd.readers.File(files=pictures)
    for number, _ in enumerate(other.next_epoch(SIZE, prefetch=0)):
        if number == 3:
            assert str(other.get_state()) == state
            break
    del jpegs, labels
    assert ndd.flip(ndd.zeros(shape=[2, 2, 3], layout="HWC")).shape == (2, 2, 3)  # not recorded


def test_results_are_not_kept(pictures: list[str]) -> None:
    """A batch is freed when the caller drops it, even before the caller asks for the next one."""
    import weakref

    reader = ndd.readers.File(files=pictures)
    for number, (jpegs, labels) in enumerate(reader.next_epoch(SIZE)):
        x = augmented(number, jpegs, labels).evaluate()
        owner = weakref.ref(x._node.storage.owner)
        del x
        wait_until(lambda owner=owner: owner() is None)  # type: ignore[misc]
    for jpegs, labels in reader.next_epoch(SIZE):  # `enumerate` would keep a reference to the item
        augmented(0, jpegs, labels).evaluate()
        given = weakref.ref(jpegs._node)
        del jpegs
        wait_until(lambda given=given: given() is None)  # type: ignore[misc]


def test_a_wrong_depth(pictures: list[str]) -> None:
    reader = ndd.readers.File(files=pictures)
    for depth in (-1, 1.5, True):
        with pytest.raises(ValueError, match="`prefetch` must be 0 or more, got"):
            reader.next_epoch(SIZE, prefetch=depth)


def test_the_process_ends_while_its_first_batch_is_made(tmp_path: Path) -> None:
    """Neither the threads nor the libraries that they are loading print anything."""
    data = encoded(".jpg", photo(600, 800))
    for k in range(8):
        (tmp_path / f"{k}.jpg").write_bytes(data)
    for seconds in (0.01, 0.02):
        process = start_python(
            f"""
            import pathlib, time, ndd
            files = sorted(pathlib.Path({str(tmp_path)!r}).iterdir())
            for jpegs, labels in ndd.readers.File(files=files).next_epoch(batch_size=8):
                x = ndd.random_resized_crop(ndd.decoders.image(jpegs), size=[64, 64])
            time.sleep({seconds})
            print("over", flush=True)
            """
        )
        assert process.stdout is not None and process.stdout.readline() == "over\n"
        # Far less than the time that the main thread would wait for a thread that never leaves.
        _, err = process.communicate(timeout=25)
        assert (process.returncode, err) == (0, "")


def test_a_limit_that_is_lowered_in_the_middle_of_an_epoch(pictures: list[str]) -> None:
    """Batches that were made in advance do not escape it."""
    reader = ndd.readers.File(files=pictures)
    before = ndd.decoders.get_max_pixels()
    with pytest.raises(ValueError, match="pixels"):
        try:
            for number, (jpegs, _) in enumerate(reader.next_epoch(SIZE)):
                ndd.resize(ndd.decoders.image(jpegs), size=[9, 8]).evaluate()
                if number == 3:
                    time.sleep(0.3)  # the next batches are made meanwhile
                    ndd.decoders.set_max_pixels(100)
                assert number < 4, "a batch was given that was decoded before"
        finally:
            ndd.decoders.set_max_pixels(before)


def test_failures_of_batches_that_nobody_asks_for_are_not_reported(tmp_path: Path) -> None:
    data = encoded(".jpg", photo(40, 50))
    files = [tmp_path / f"{k:02d}.jpg" for k in range(12)]
    for k, file in enumerate(files):
        file.write_bytes(b"no picture" if k >= 8 else data)
    reader = ndd.readers.File(files=[str(f) for f in files])
    ndd.decoders.errors.clear()
    for number, (jpegs, _) in enumerate(reader.next_epoch(2, prefetch=2)):
        ndd.resize(ndd.decoders.image(jpegs, on_error="fill"), size=[9, 8]).evaluate()
        if number == 3:
            time.sleep(0.3)  # the fifth batch, where the files are broken, is made meanwhile
            assert not ndd.decoders.errors
        if number == 4:
            break
    assert [Path(e.file).name for e in ndd.decoders.errors] == ["08.jpg", "09.jpg"]
    ndd.decoders.errors.clear()
