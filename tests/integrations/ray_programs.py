"""What Ray's workers run in the tests; they import it by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import ndd


def wait_for_two(folder: Path) -> None:
    """Wait until two workers have got here, so that each of them gets some of the rows."""
    (folder / f"worker-{os.getpid()}").touch()
    end = time.monotonic() + 60
    while len(list(folder.glob("worker-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)


class Draw:
    """Random numbers, and where they were drawn."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        import ray

        wait_for_two(self.folder)
        count = columns["id"].batch_size
        words = [ndd.random.get_default_rng()() for _ in range(count)]
        node = ray.get_runtime_context().get_node_id()
        where = f"{node} {os.getpid()} {ndd.get_num_threads()} {cache_folder()}"
        return {
            "id": columns["id"],
            "drawn": np.array(words, np.uint32),
            "where": np.array([where] * count, object),
        }


def cache_folder() -> str:
    from ndd.kernels.common import disk_cache

    return str(disk_cache.cache_dir())


def double(columns: dict[str, Any]) -> dict[str, Any]:
    """Uses columns of all sorts, and tells whether they were copied."""
    x = columns["image"] * 2 + 1
    return {
        "id": columns["id"],
        "image": x,
        "sizes": ndd.batch([int(n) for (n,) in columns["data"].shape]),
        "data": columns["data"],
        "ragged": columns["ragged"],
        "name": columns["name"],
    }


class Deadly:
    """Ends its own process once, in mid-run; the marker tells that this has happened."""

    def __init__(self, marker: str, at: int) -> None:
        self.marker, self.at = Path(marker), at

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        ids = [int(i) for i in columns["id"].tensors]
        time.sleep(0.02)
        if self.at in ids and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"id": columns["id"], "twice": columns["id"] * 2}


class Present:
    """Writes how many batches its node has done, so that the test can end a node at work."""

    def __init__(self, folder: str) -> None:
        self.folder, self.done = Path(folder), 0

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        import ray

        wait_for_two(self.folder)
        time.sleep(0.1)
        self.done += 1
        (self.folder / f"{ray.get_runtime_context().get_node_id()}-{self.done}").touch()
        return {"id": columns["id"], "twice": columns["id"] * 2}


def fails_on_seven(columns: dict[str, Any]) -> dict[str, Any]:
    """A function that cannot deal with one of its samples."""
    for value in columns["id"].tensors:
        if int(value) == 7:
            raise ValueError("seven is not possible")
    return {"id": columns["id"], "x": columns["id"] * 1.5}
