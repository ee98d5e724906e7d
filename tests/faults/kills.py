"""kill -9 while files are written: every file is complete or absent, and whoever comes next is not in trouble.

`python -m tests.faults.kills checkpoint 1 100` kills 100 processes.

checkpoint   a training loop saves its state, under one name and under numbered ones
cache        entries of the kernel cache are stored
outputs      pictures and pages are saved
kernels      kernels are compiled into an empty cache; the next process computes the same
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from ndd.kernels.common.disk_cache import load_object, store_object
from ndd.tools.outputs import write_output
from ndd.tools.showing import Picture
from tests.faults.child import Clock, main, numbers

LONGEST = 0.03  # seconds until a writer is killed
CHILD_SECONDS = 240.0  # usually 0.1 s; a busy machine that compiles takes its time


class Attacked:
    """Something that writes into a folder, and a check of what is left after it was killed."""

    longest = LONGEST

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, r: random.Random) -> None:
        """Write again and again."""
        raise NotImplementedError

    def check(self, r: random.Random) -> None:
        raise NotImplementedError


class CheckpointFiles(Attacked):
    """A state of many generators; each file has one position for all of them."""

    def write(self, r: random.Random) -> None:
        checkpoint = ndd.checkpoint.Checkpoint()
        generators = [ndd.random.RNG(seed=k) for k in range(40)]
        for k, rng in enumerate(generators):
            checkpoint.register(rng, f"generator {k} {'x' * 200}")
        while True:
            for rng in generators:
                rng()
            checkpoint.collect()
            (self.folder / "state.json").unlink(missing_ok=True)  # `save` replaces nothing
            checkpoint.save(str(self.folder / "state.json"))
            checkpoint.save(str(self.folder / "numbered-{seq:04d}.json"))

    def check(self, r: random.Random) -> None:
        numbered = sorted(p.name for p in self.folder.glob("numbered-*.json"))
        assert numbered == [f"numbered-{k:04d}.json" for k in range(len(numbered))], numbered
        for name in ("state.json", "numbered-{seq:04d}.json"):
            try:
                checkpoint = ndd.checkpoint.Checkpoint()
                checkpoint.load(str(self.folder / name))
            except FileNotFoundError:
                continue
            found = [ndd.random.RNG(seed=99) for _ in range(40)]
            for k, rng in enumerate(found):
                checkpoint.register(rng, f"generator {k} {'x' * 200}")
            draws = _draws(found[0])
            assert all(_draws(rng) == draws for rng in found), "generators at different positions"


def _draws(rng: ndd.random.RNG) -> str:
    """How far a generator is, without its seed."""
    return str(rng.get_state()).rpartition(":")[2]


class CacheEntries(Attacked):
    """Objects of the kernel cache, each with a content that its source tells."""

    def entry(self, k: int) -> tuple[str, bytes]:
        return f"source {k}", bytes([k]) * (100_000 + 1000 * k)

    def write(self, r: random.Random) -> None:
        while True:
            for k in range(8):
                source, code = self.entry(k)
                store_object(self.folder / f"{k}.o", source, f"symbol{k}", code)

    def check(self, r: random.Random) -> None:
        for k in range(8):
            source, code = self.entry(k)
            found = load_object(self.folder / f"{k}.o", source)
            is_there = (self.folder / f"{k}.o").exists()
            assert found == ((f"symbol{k}", code) if is_there else None), f"entry {k} is damaged"


class OutputFiles(Attacked):
    """Pictures and pages in several versions."""

    def versions(self) -> list[bytes]:
        return [Picture(np.full((200 + k, 300, 3), k, np.uint8)).png() for k in range(3)]

    def write(self, r: random.Random) -> None:
        while True:
            for k in range(3):
                Picture(np.full((200 + k, 300, 3), k, np.uint8)).save(self.folder / "picture.png")
                write_output(self.folder / "page.html", f"{k}" * (100_000 + k))

    def check(self, r: random.Random) -> None:
        picture, page = self.folder / "picture.png", self.folder / "page.html"
        assert not picture.exists() or picture.read_bytes() in self.versions()
        pages = [f"{k}" * (100_000 + k) for k in range(3)]
        assert not page.exists() or page.read_text() in pages


class CompiledKernels(Attacked):
    """Two processes compile the same kernels, one of them is killed, and another one comes later."""

    longest = 4.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import ndd.kernels.cpu.native.compile  # noqa: F401  (takes its time once, not in each child)

        os.environ["NDD_CACHE_DIR"] = str(folder)

    def compute(self, k: int) -> None:
        data = np.arange(12, dtype=("uint8", "int16", "int32", "float32")[k % 4]).reshape(4, 3)
        with ndd.EvalMode.sync_cpu:
            x = ndd.cast(ndd.tensor(data) * 2 + 1, dtype=ndd.float32)
            if k % 2:
                x = x[:, ::-1]
            found = np.asarray(x)
        wanted = (data * 2 + 1).astype(np.float32)
        np.testing.assert_array_equal(found, wanted[:, ::-1] if k % 2 else wanted)

    def write(self, r: random.Random) -> None:
        for k in range(8):
            self.compute(k)

    def check(self, r: random.Random) -> None:
        wait_for(forked(lambda: self.compute(r.randrange(8))))


WHATS: dict[str, type[Attacked]] = {
    "checkpoint": CheckpointFiles, "cache": CacheEntries, "outputs": OutputFiles, "kernels": CompiledKernels,
}  # fmt: skip


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    warnings.simplefilter("ignore", DeprecationWarning)  # os.fork with threads
    tried = hit = 0
    with tempfile.TemporaryDirectory() as folder:
        attacked = WHATS[what](Path(folder))
        for number in numbers(count):
            r = random.Random(f"{seed} {number}")
            if number % 5 == 0:
                for file in Path(folder).rglob("*"):
                    if file.is_file():
                        file.unlink()
            child = forked(partial(attacked.write, r))
            time.sleep(attacked.longest * r.random())
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status) or status == 0, f"the writer ended with {status:#x}"
            hit += any(
                Path(folder).rglob(".*")
            )  # a file under its temporary name: killed in mid-air
            attacked.check(r)
            tried += 1
    return {"kills": tried, "in the middle of a write": hit}


def forked(work: Callable[[], None]) -> int:
    """Do something in a child process."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait_for(child: int) -> None:
    """Wait until a child has ended well."""
    clock = Clock(child)
    while clock.now() < CHILD_SECONDS:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0, f"a child ended with status {status:#x}"
            return
        time.sleep(0.005)
    os.kill(child, signal.SIGABRT)
    os.waitpid(child, 0)
    raise AssertionError("a child hangs after another process was killed")


if __name__ == "__main__":
    main(attack)
