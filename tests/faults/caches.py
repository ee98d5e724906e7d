"""Damaged and hostile caches of kernels: the values are right, and nothing crashes, hangs or runs foreign code.

`python -m tests.faults.caches all 1 100` damages 100 caches. Files are cut, changed, exchanged, replaced by folders,
pipes and links, given to others and made unreadable; a child process then computes with such a cache.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.faults.child import main, numbers, size_limit
from tests.faults.kills import forked, wait_for

STRANGER = 54321  # a user who does not exist


def compute() -> None:
    """A few small kernels; each is loaded from the cache or compiled."""
    warnings.simplefilter("ignore", RuntimeWarning)  # that the cache is not safe
    data = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    with ndd.EvalMode.sync_cpu:
        x = ndd.tensor(data, layout="HWC")
        np.testing.assert_array_equal(np.asarray(ndd.flip(x) + 3), data[:, ::-1].astype(int) + 3)
        np.testing.assert_array_equal(np.asarray(ndd.cast(x, dtype=ndd.float32) * 2), data * 2.0)
        np.testing.assert_array_equal(np.asarray(x > 7), data > 7)


# -- damages: functions of a file, another file and a source of random numbers --------------------


def cut(file: Path, other: Path, r: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: r.randrange(len(data) + 1)])


def change(file: Path, other: Path, r: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(r.choice((1, 1, 20))):
        if data:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    file.write_bytes(data)


def exchange(file: Path, other: Path, r: random.Random) -> None:
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def fill_with_rubbish(file: Path, other: Path, r: random.Random) -> None:
    start = r.choice((b"", b"ndd-kernel-2\n", b"\x7fELF"))
    file.write_bytes(start + r.randbytes(r.randrange(5000)))


def make_a_folder(file: Path, other: Path, r: random.Random) -> None:
    file.unlink()
    file.mkdir()


def make_a_pipe(file: Path, other: Path, r: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def make_a_link(file: Path, other: Path, r: random.Random) -> None:
    file.unlink()
    file.symlink_to(r.choice((other.name, file.name, "/nowhere", "/dev/zero")))


def give_away(file: Path, other: Path, r: random.Random) -> None:
    if os.geteuid() == 0:
        os.chown(r.choice((file, file.parent, file.parent.parent)), STRANGER, STRANGER)


def open_to_all(file: Path, other: Path, r: random.Random) -> None:
    r.choice((file, file.parent, file.parent.parent)).chmod(r.choice((0o777, 0o666, 0o1777)))


def close_to_all(file: Path, other: Path, r: random.Random) -> None:
    r.choice((file, file.parent)).chmod(r.choice((0, 0o400, 0o500)))


def remove(file: Path, other: Path, r: random.Random) -> None:
    file.unlink()


DAMAGES: tuple[Callable[[Path, Path, random.Random], None], ...] = (
    cut, cut, change, change, exchange, fill_with_rubbish, make_a_folder, make_a_pipe, make_a_link,
    give_away, open_to_all, close_to_all, remove,
)  # fmt: skip
WHATS = {"all": compute}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    import ndd.kernels.cpu.native.compile  # noqa: F401  (takes its time once, not in each child)

    warnings.simplefilter("ignore", DeprecationWarning)  # os.fork with threads
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        warm, cache = Path(folder) / "warm", Path(folder) / "cache"
        os.environ["NDD_CACHE_DIR"] = str(warm)
        wait_for(forked(compute))
        os.environ["NDD_CACHE_DIR"] = str(cache)
        for number in numbers(count):
            r = random.Random(f"{seed} {number}")
            shutil.copytree(warm, cache)
            damages = [r.choice(DAMAGES) for _ in range(size_limit(r.choice((1, 2, 4))))]
            for damage in damages:
                files = sorted(f for f in cache.rglob("*") if f.is_file() and not f.is_symlink())
                if len(files) > 1:
                    damage(*r.sample(files, 2), r)
            try:
                wait_for(forked(compute))
            except AssertionError as error:
                raise AssertionError(f"{error} after {[d.__name__ for d in damages]}") from None
            for above in (cache, *cache.rglob("*")):
                if above.is_dir() and not above.is_symlink():
                    above.chmod(0o700)
            shutil.rmtree(cache)
            tried += 1
    return {"tried": tried}


if __name__ == "__main__":
    main(attack)
