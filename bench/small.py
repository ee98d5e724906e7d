"""Small batches: decode, resize and normalise photos in batches of 1, 8 and 64, and in the threads
of a server that answer requests with one photo each."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd

from . import photos
from .harness import ROUNDS, Row, compare, optional, show
from .resample import MEAN, STD, Runs

BATCHES = (1, 8, 64)
REQUEST_THREADS, REQUESTS = 8, 64
SIZE = 224
PHOTOS = 128


def encoded() -> list[np.ndarray]:
    """Photos of about 400×500 pixels, as files in memory."""
    return [np.frombuffer(Path(p).read_bytes(), np.uint8) for p in photos.photos(PHOTOS)]


def prepared(files: list[np.ndarray]) -> ndd.Batch:
    x = ndd.decoders.image(ndd.batch(files))
    x = ndd.resize(x, size=[SIZE, SIZE])
    return ndd.crop_mirror_normalize(x, mean=MEAN, std=STD)


def one_by_opencv(cv2: Any) -> Callable[[np.ndarray, np.ndarray], None]:
    scale = np.float32(1) / np.float32(STD)
    offset = np.float32(MEAN) * scale

    def prepare(file: np.ndarray, out: np.ndarray) -> None:
        image = cv2.imdecode(file, cv2.IMREAD_COLOR_RGB)
        small = cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        np.subtract((small * scale).transpose(2, 0, 1), offset[:, None, None], out=out)

    return prepare


def in_batches(files: list[np.ndarray], size: int) -> Runs:
    """All photos, in batches of a size, on one thread."""
    context = ndd.EvalContext(num_threads=1)
    parts = [files[k : k + size] for k in range(0, len(files), size)]

    def ours() -> None:
        with context:
            for part in parts:
                prepared(part).torch()

    runs: Runs = {"ndd": ours}
    cv2 = optional("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
        prepare = one_by_opencv(cv2)

        def opencv() -> None:
            for part in parts:
                out = np.empty((len(part), 3, SIZE, SIZE), np.float32)
                for k, file in enumerate(part):
                    prepare(file, out[k])

        runs["opencv area"] = opencv
    return runs


def by_requests(files: list[np.ndarray]) -> Runs:
    """Every thread prepares one photo after the other, each for itself."""

    def served(answer: Callable[[np.ndarray], object]) -> Callable[[], None]:
        def worker(first: int) -> None:
            for file in files[first:REQUESTS:REQUEST_THREADS]:
                answer(file)

        def once() -> None:
            threads = [threading.Thread(target=worker, args=(k,)) for k in range(REQUEST_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return once

    runs: Runs = {"ndd": served(lambda file: prepared([file]).torch())}
    cv2 = optional("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
        prepare = one_by_opencv(cv2)

        def answer(file: np.ndarray) -> object:
            out = np.empty((1, 3, SIZE, SIZE), np.float32)
            prepare(file, out[0])
            return out

        runs["opencv area"] = served(answer)
    return runs


def main(rounds: int = ROUNDS) -> list[Row]:
    files = encoded()
    rows: list[Row] = []
    for size in BATCHES:
        name = f"small: batches of {size}, JPEG → {SIZE}² normalised, 1 thread"
        rows += compare(name, in_batches(files, size), rounds, divide=len(files))
    name = f"small: {REQUEST_THREADS} request threads, one photo each"
    rows += compare(name, by_requests(files), rounds, divide=REQUESTS)
    for workload in dict.fromkeys(r.workload for r in rows):
        show([r for r in rows if r.workload == workload], "ndd")
    return rows
