"""Forks while other threads are busy: children must work with the library, and end.

`python -m tests.faults.forks decode 1 100` makes 100 children. `NDD_CACHE_DIR` on an empty folder makes
the first of them fork while kernels are being compiled.
"""

from __future__ import annotations

import faulthandler
import os
import random
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.decoders.fixtures import encoded, photo
from tests.faults.child import Clock, is_over, main

CHILD_SECONDS = 240.0  # usually 0.1 s; a busy machine that compiles takes its time
CHILDREN = 4  # at a time


def decode() -> Callable[[], None]:
    """Decode and resize, with helper threads."""
    files = ndd.batch([
        np.frombuffer(encoded(".jpg", photo(60 + k, 80, seed=k)), np.uint8) for k in range(6)
    ])  # fmt: skip
    found: list[np.ndarray] = []

    def work() -> None:
        small = ndd.resize(ndd.decoders.image(files), size=[20, 30])
        check(found, np.stack([np.asarray(t) for t in small.tensors]))

    return work


def cold() -> Callable[[], None]:
    """The same with an empty cache: the first forks come while kernels are compiled."""
    os.environ["NDD_CACHE_DIR"] = tempfile.mkdtemp()
    return decode()


def eager() -> Callable[[], None]:
    """Calls that a background thread flushes, random numbers, and a result of several threads."""
    images = ndd.batch([photo(120, 130, seed=k) for k in range(8)], layout="HWC")
    found: list[np.ndarray] = []

    def work() -> None:
        rng = ndd.random.RNG(seed=7)
        flips = ndd.random.coin_flip(batch_size=8, rng=rng)
        x = ndd.brightness_contrast(ndd.flip(images, horizontal=flips), brightness=1.5)
        check(found, np.stack([np.asarray(t) for t in x.tensors]))

    return work


def epoch() -> Callable[[], None]:
    """An epoch that was begun in the parent and goes on in the child."""
    folder = tempfile.mkdtemp()
    files = [Path(folder) / f"{k:03d}.jpg" for k in range(24)]
    for k, file in enumerate(files):
        file.write_bytes(encoded(".jpg", photo(30, 40, seed=k)))
    reader = ndd.readers.File(files=[str(f) for f in files], labels=[*range(24)])
    state: dict[str, Any] = {"epoch": iter(()), "next": 0}
    turn = threading.Lock()

    def numbers_of(item: Any) -> list[int]:
        ndd.resize(ndd.decoders.image(item[0]), size=[20, 30]).evaluate()
        return [int(np.asarray(t).item()) for t in item[1].tensors]

    def work() -> None:
        # In the parent, threads take turns; a child finds the lock as the fork left it.
        if os.getpid() != parent:
            for item in state["epoch"]:
                numbers = numbers_of(item)
                assert numbers == [*range(numbers[0], numbers[0] + 4)] and numbers[0] % 4 == 0
            for number, item in enumerate(reader.next_epoch(batch_size=4)):
                assert numbers_of(item) == [*range(4 * number, 4 * number + 4)]
            return
        with turn:
            item = next(state["epoch"], None)
            if item is None:
                state["epoch"], state["next"] = reader.next_epoch(batch_size=4), 0
                item = next(state["epoch"])
            assert numbers_of(item) == [*range(state["next"], state["next"] + 4)]
            state["next"] += 4

    parent = os.getpid()
    return work


def tiers() -> Callable[[], None]:
    """Chains that are new to the process; the process that compiles their kernels belongs to the parent."""
    from tests.faults.new_chains import NewChains

    chains = NewChains(1)

    def work() -> None:
        chain = chains.drawn()
        expected = chains.expected(chain)
        for _ in range(4):
            np.testing.assert_array_equal(chains.run(chain), expected)

    return work


def check(found: list[np.ndarray], result: np.ndarray) -> None:
    """Compare a result with the first one."""
    if not found:
        found.append(result)
    np.testing.assert_array_equal(result, found[0])


WHATS: dict[str, Callable[[], Callable[[], None]]] = {
    f.__name__: f for f in (decode, cold, eager, epoch, tiers)
}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    warnings.simplefilter("ignore", DeprecationWarning)  # os.fork with threads
    faulthandler.cancel_dump_traceback_later()  # a child would wait for its thread at exit
    draw = random.Random(seed)
    work = WHATS[what]()
    is_done, tried = False, 0
    children: list[int] = []
    failures: list[BaseException] = []

    def busy() -> None:
        try:
            while not is_done:
                work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for k in range(count):
            if k and is_over():
                break
            tried = k + 1
            time.sleep(draw.random() * 0.02)
            if failures:
                raise failures[0]
            child = os.fork()
            if child == 0:
                in_child(work, ends=k % 2 == 0)
            children.append(child)
            if len(children) == CHILDREN:
                wait_for(children.pop(0))
        for child in children:
            wait_for(child)
    finally:
        is_done = True
        for thread in threads:
            thread.join()
    return {"forks": tried}


def in_child(work: Callable[[], None], ends: bool) -> None:
    """Use the library and exit, half of the time without the exit handlers, as multiprocessing does."""
    try:
        for _ in range(2):
            work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    if ends:
        os._exit(0)
    raise SystemExit(0)


def wait_for(child: int) -> None:
    clock = Clock(child)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0, f"a child ended with status {status:#x}"
            return
        if clock.now() > CHILD_SECONDS:
            os.kill(child, 6)  # faulthandler prints where it hangs
            os.waitpid(child, 0)
            raise AssertionError("a child hangs")
        time.sleep(0.001)


if __name__ == "__main__":
    main(attack)
