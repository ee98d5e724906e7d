"""Interrupts at any moment: a signal handler raises every 0.5 to 20 ms, or in bursts, while a program runs.

`python -m tests.faults.interrupts decode 1 1000` makes 1000 interrupts. The program must go on, with right
values, without a hang and without a growing number of threads.
"""

from __future__ import annotations

import gc
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.decoders.fixtures import encoded, photo
from tests.faults.child import SETTLE_SECONDS, Clock, is_over, main, thread_count

SHORTEST, LONGEST = 0.5e-3, 20e-3  # seconds between two interrupts
# Of the interrupts, this part is followed by another one within a moment, which hits whatever cleans up.
BURSTS, MOMENT = 0.3, 200e-6

Step = Callable[[], None]


class Interrupts:
    """Raises KeyboardInterrupt again and again, in whatever the program is doing inside `struck`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_armed = self.is_over = False
        self.count = 0
        signal.signal(signal.SIGALRM, self.strike)

    def strike(self, number: int, frame: Any) -> None:
        self.next()
        if self.is_armed:
            self.count += 1
            raise KeyboardInterrupt

    def next(self) -> None:
        """Set the time of the next interrupt."""
        if self.is_over:
            return
        draw = self.random.random
        pause = SHORTEST * (LONGEST / SHORTEST) ** draw()
        if draw() < BURSTS:
            pause = MOMENT * draw() + 1e-6
        signal.setitimer(signal.ITIMER_REAL, pause)

    def struck(self, step: Step) -> bool:
        """Call a function under interrupts; False if one of them left it."""
        try:
            self.is_armed = True
            step()
            self.is_armed = False
            return True
        except KeyboardInterrupt:
            self.is_armed = False  # nothing that is interruptible comes before this assignment
            return False


# -- programs ------------------------------------------------------------------------------------


def jpegs(count: int = 8) -> list[np.ndarray]:
    return [
        np.frombuffer(encoded(".jpg", photo(150 + 7 * k, 200 + 3 * k, seed=k)), np.uint8)
        for k in range(count)
    ]


def decode() -> Iterator[Step]:
    """Decode and resize a batch of pictures with helper threads in native code."""
    files = ndd.batch(jpegs())

    def result() -> np.ndarray:
        small = ndd.resize(ndd.decoders.image(files), size=[70, 80])
        return np.stack([np.asarray(t) for t in small.evaluate().tensors])

    yield from checked(result)


def python_decode() -> Iterator[Step]:
    """The same with decoders that Python calls: PNG files."""
    files = ndd.batch([
        np.frombuffer(encoded(".png", photo(60 + k, 70, seed=k)), np.uint8) for k in range(6)
    ])  # fmt: skip

    def result() -> np.ndarray:
        small = ndd.resize(ndd.decoders.image(files), size=[40, 50])
        return np.stack([np.asarray(t) for t in small.evaluate().tensors])

    yield from checked(result)


def eager() -> Iterator[Step]:
    """Pictures in memory, in eager mode, where a background thread flushes."""
    images = ndd.batch([photo(150 + k, 170, seed=k) for k in range(8)], layout="HWC")

    def result() -> np.ndarray:
        x = ndd.flip(ndd.brightness_contrast(images, brightness=1.2), horizontal=1)
        x = ndd.resize(x, size=[100, 90])
        return np.stack([np.asarray(t) for t in x.tensors])

    yield from checked(result)


def pointwise() -> Iterator[Step]:
    """Single calls on small data, in all modes."""
    data = ndd.tensor(np.arange(48, dtype=np.float32).reshape(4, 4, 3))
    modes = ["deferred", "eager", "sync_cpu", "sync_full"]

    def result() -> np.ndarray:
        made = []
        for mode in modes:
            with ndd.EvalMode[mode]:
                made += [np.asarray(data * float(k) + 1.0) for k in range(4)]
        return np.stack(made)

    yield from checked(result)


def isolated() -> Iterator[Step]:
    """Pictures that decoder processes decode; an interrupt may leave them in the middle of an answer."""
    files = ndd.batch(jpegs(4))

    def result() -> np.ndarray:
        small = ndd.resize(ndd.decoders.image(files, isolate=True), size=[70, 80])
        return np.stack([np.asarray(t) for t in small.tensors])

    yield from checked(result)


def video() -> Iterator[Step]:
    """Videos, whose packets and frames belong to another library."""
    from tests.decoders.clips import encoded as clip_bytes

    files = ndd.batch([np.array(clip_bytes(name, 6)) for name in ("h264.mkv", "mpeg4.avi")])

    def result() -> np.ndarray:
        frames = ndd.decoders.video(files, start_frame=1, sequence_length=3)
        small = ndd.resize(frames, size=[10, 12])
        return np.stack([np.asarray(t) for t in small.tensors])

    yield from checked(result)


def tiers() -> Iterator[Step]:
    """Chains that are new to the process, whose kernels another process compiles meanwhile."""
    from tests.faults.new_chains import NewChains

    chains = NewChains(1)
    while True:
        chain = chains.drawn()
        expected = chains.expected(chain)

        def step(chain: Any = chain, expected: Any = expected) -> None:
            np.testing.assert_array_equal(chains.run(chain), expected)

        for _ in range(8):
            yield step


def checked(result: Callable[[], np.ndarray]) -> Iterator[Step]:
    """Steps that compare a result with the one that was made without interrupts."""
    expected = result()

    def step() -> None:
        np.testing.assert_array_equal(result(), expected)

    while True:
        yield step


def reader() -> Iterator[Step]:
    """A loop over a reader, with work in advance; each batch must come exactly once and in order."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{k:03d}.jpg" for k in range(40)]
        for k, file in enumerate(files):
            file.write_bytes(encoded(".jpg", photo(30 + k % 5, 40, seed=k)))
        source = ndd.readers.File(files=[str(f) for f in files], labels=[*range(40)])
        expected = {}
        for data, labels in source.next_epoch(batch_size=4, prefetch=0):
            small = ndd.resize(ndd.decoders.image(data), size=[20, 24])
            for label, picture in zip(labels.tensors, small.tensors, strict=True):
                expected[int(np.asarray(label).item())] = np.asarray(picture)
        while True:
            loop = ReaderLoop(source, expected)
            while not loop.is_over:
                yield loop.step
                loop.note()
            assert loop.seen() == [*range(40)], loop.seen()


class ReaderLoop:
    """One epoch, which a loop continues after each interrupt; every batch comes exactly once."""

    def __init__(self, source: ndd.readers.File, expected: dict[int, np.ndarray]) -> None:
        self.epoch = source.next_epoch(batch_size=4)
        self.expected = expected
        self.batch: Any = None
        self.batches: list[Any] = []
        self.is_over = False

    def note(self) -> None:
        if self.batch is not None and (not self.batches or self.batches[-1] is not self.batch):
            self.batches.append(self.batch)

    def seen(self) -> list[int]:
        return [int(np.asarray(t).item()) for _, labels in self.batches for t in labels.tensors]

    def step(self) -> None:
        epoch = self.epoch
        for self.batch in epoch:  # an assignment, which no interrupt separates from the epoch
            self.note()
            data, labels = self.batch
            small = ndd.resize(ndd.decoders.image(data), size=[20, 24])
            for label, picture in zip(labels.tensors, small.tensors, strict=True):
                wanted = self.expected[int(np.asarray(label).item())]
                np.testing.assert_array_equal(np.asarray(picture), wanted)
        self.is_over = True


def opened_and_left() -> Iterator[Step]:
    """Epochs that are begun and left, and contexts of their own: threads come and go."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{k:03d}.bin" for k in range(16)]
        for k, file in enumerate(files):
            file.write_bytes(bytes([k]))

        def step() -> None:
            source = ndd.readers.File(files=[str(f) for f in files])
            for number, (data, _) in enumerate(source.next_epoch(batch_size=4)):
                numbers = [int(np.asarray(t)[0]) for t in data.tensors]
                assert numbers == [*range(4 * number, 4 * number + 4)]
                if number == 2:
                    break
            with ndd.EvalContext(num_threads=2):
                x = ndd.tensor(np.ones((700, 700), np.float32)) + 1.0
                assert float(np.asarray(x).sum()) == 2.0 * 700 * 700

        while True:
            yield step


WHATS: dict[str, Callable[[], Iterator[Step]]] = {
    f.__name__: f
    for f in (
        decode, python_decode, eager, pointwise, reader, opened_and_left, isolated, video, tiers,
    )
}  # fmt: skip


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    steps = WHATS[what]()
    for _ in range(3):
        next(steps)()
    before = thread_count()
    interrupts = Interrupts(seed)
    interrupts.next()
    completed = most = 0
    while interrupts.count < count and not is_over():
        completed += interrupts.struck(next(steps))
        leave_contexts()
        most = max(most, thread_count())
    interrupts.is_over = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    for _ in range(3):
        next(steps)()
    steps.close()
    after = settled(before + 4)
    assert after <= before + 4, f"{before} threads before, {after} after {count} interrupts"
    return {
        "interrupts": interrupts.count,
        "completed": completed,
        "threads": [before, most, after],
    }


def leave_contexts() -> None:
    """Leave contexts that stayed entered because an interrupt hit the very end of their ``with`` block.

    No Python code can prevent that (docs/reliability.md). Such a context would keep its threads.
    """
    while (context := ndd.EvalContext.current()) is not ndd.EvalContext.default():
        context.__exit__()


def settled(wanted: int) -> int:
    """The number of threads, after those that are ending have had time to end."""
    gc.collect()
    clock = Clock()
    while thread_count() > wanted and clock.now() < SETTLE_SECONDS:
        time.sleep(0.01)
    return thread_count()


if __name__ == "__main__":
    main(attack)
