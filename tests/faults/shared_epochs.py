"""Several threads take batches from one epoch: every sample must come exactly once.

`python -m tests.faults.shared_epochs decode 1 100` shares 100 epochs.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ndd
from tests.decoders.fixtures import encoded, photo
from tests.faults.child import is_over, main

SAMPLES = 60


def decode(data: ndd.Batch) -> None:
    ndd.resize(ndd.decoders.image(data), size=[10, 12]).evaluate()


def labels_only(data: ndd.Batch) -> None:
    pass


WHATS: dict[str, Callable[[ndd.Batch], None]] = {"decode": decode, "labels_only": labels_only}


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    draw, tried = random.Random(seed), 0
    sys.setswitchinterval(1e-5)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{k:03d}.jpg" for k in range(SAMPLES)]
        for k, file in enumerate(files):
            file.write_bytes(encoded(".jpg", photo(20, 24, seed=k)))
        for k in range(count):
            if k and is_over():
                break
            tried = k + 1
            reader = ndd.readers.File(
                files=[str(f) for f in files], labels=[*range(SAMPLES)], random_shuffle=True,
                seed=draw.randrange(1000), prefetch_queue_depth=draw.randint(1, 4),
            )  # fmt: skip
            for prefetch in (0, 2):
                epoch = reader.next_epoch(batch_size=draw.choice([1, 4, 6]), prefetch=prefetch)
                seen = shared(epoch, WHATS[what], draw.randint(2, 6))
                assert sorted(seen) == [*range(SAMPLES)], sorted(seen)
    return {"epochs": 2 * tried}


def shared(epoch: Any, use: Callable[[ndd.Batch], None], threads: int) -> list[int]:
    seen: list[int] = []
    failures: list[BaseException] = []

    def consume() -> None:
        try:
            for data, labels in epoch:
                use(data)
                seen.extend([int(np.asarray(t).item()) for t in labels.tensors])
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=consume) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return seen


if __name__ == "__main__":
    main(attack)
