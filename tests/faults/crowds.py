"""Sixteen threads at once: on shared values, on shared readers, in contexts that come and go.

`python -m tests.faults.crowds values 1 100` makes 100 rounds. Every thread compares what it computes with what one
thread computed alone.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.decoders.fixtures import encoded, photo
from tests.faults.child import Resources, main, numbers

THREADS = 16
MODES = ("deferred", "eager", "sync_cpu", "sync_full")
Round = Callable[[random.Random], None]


def together(work: Callable[[random.Random], None], seed: str, threads: int = THREADS) -> None:
    """Do the same in many threads, which start at the same moment."""
    barrier = threading.Barrier(threads)
    failures: list[BaseException] = []

    def one(k: int) -> None:
        try:
            barrier.wait()
            work(random.Random(f"{seed} {k}"))
        except BaseException as error:
            failures.append(error)

    all_threads = [threading.Thread(target=one, args=(k,)) for k in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    if failures:
        raise failures[0]


def stacked(x: Any) -> np.ndarray[Any, Any]:
    return np.stack([np.asarray(t) for t in x.tensors])


def values() -> Round:
    """Chains on one batch and on values that another thread has begun."""
    images = ndd.batch([photo(20, 24, seed=k) for k in range(4)], layout="HWC")
    chains: tuple[Callable[[Any], Any], ...] = (
        lambda x: ndd.brightness_contrast(ndd.flip(x, horizontal=1), brightness=1.2),
        lambda x: ndd.resize(x, size=[10, 12]),
        lambda x: ndd.crop_mirror_normalize(x, crop=[8, 8], mean=[120.0], std=[60.0]),
        lambda x: ndd.gaussian_blur(x, sigma=1.0),
        lambda x: (x + 1) * 2 - x,
    )
    with ndd.EvalMode.sync_cpu:
        wanted = [stacked(chain(images)) for chain in chains]

    def round_(r: random.Random) -> None:
        with ndd.EvalMode[r.choice(MODES)]:
            begun = [chain(images) for chain in chains]

        def work(own: random.Random) -> None:
            for _ in range(6):
                k = own.randrange(len(chains))
                if own.random() < 0.2:
                    np.testing.assert_array_equal(stacked(begun[k]), wanted[k])
                    continue
                with ndd.EvalMode[own.choice(MODES)]:
                    if own.random() < 0.1:
                        with ndd.EvalContext(num_threads=2):
                            found = stacked(chains[k](images))
                    else:
                        found = stacked(chains[k](images))
                np.testing.assert_array_equal(found, wanted[k])

        together(work, str(r.random()))

    return round_


def readers() -> Round:
    """All threads take batches from one epoch of one reader, and decode them; then from epochs of their own."""
    folder = tempfile.mkdtemp()
    files = [Path(folder) / f"{k:03d}.jpg" for k in range(48)]
    for k, file in enumerate(files):
        file.write_bytes(encoded(".jpg", photo(16, 20, seed=k)))
    names = [str(f) for f in files]
    pictures = ndd.batch([np.frombuffer(f.read_bytes(), np.uint8) for f in files])
    small = stacked(ndd.resize(ndd.decoders.image(pictures), size=[8, 10]))

    def round_(r: random.Random) -> None:
        reader = ndd.readers.File(
            files=names, labels=[*range(48)], random_shuffle=True, seed=r.randrange(99)
        )
        epoch = reader.next_epoch(batch_size=r.choice((1, 2, 3)), prefetch=r.choice((0, 2)))
        seen: list[int] = []

        def check(data: Any, labels: Any) -> list[int]:
            numbers_ = [int(np.asarray(t).item()) for t in labels.tensors]
            found = stacked(ndd.resize(ndd.decoders.image(data), size=[8, 10]))
            np.testing.assert_array_equal(found, small[numbers_])
            return numbers_

        def work(own: random.Random) -> None:
            for data, labels in epoch:
                seen.extend(check(data, labels))
            if own.random() < 0.2:
                mine = ndd.readers.File(files=names[:6], labels=[*range(6)])
                for data, labels in mine.next_epoch(batch_size=3):
                    check(data, labels)

        together(work, str(r.random()))
        assert Counter(seen) == Counter(range(48)), sorted(seen)

    return round_


WHATS: dict[str, Callable[[], Round]] = {"values": values, "readers": readers}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    sys.setswitchinterval(1e-4)
    round_ = WHATS[what]()
    tried, before = 0, None
    for number in numbers(count):
        round_(random.Random(f"{seed} {number}"))
        tried += 1
        if tried == 5:
            before = Resources()
    if before is not None:
        before.check(files=8, threads=10)
    return {"tried": tried, "threads": tried * THREADS}


if __name__ == "__main__":
    main(attack)
