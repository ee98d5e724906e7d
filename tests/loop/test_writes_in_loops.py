"""Loops that write to their batches give the same values at every depth."""

from typing import Any

import numpy as np
import pytest

import ndd


def training(files: list[str], prefetch: int, write: str) -> list[Any]:
    """What a loop gives that writes to its batches."""
    found = []
    weights = ndd.tensor(np.ones(3, np.float32))
    reader = ndd.readers.File(files=files, labels=list(range(len(files))))
    for _ in range(2):
        for jpegs, labels in reader.next_epoch(batch_size=3, prefetch=prefetch):
            x = ndd.cast(ndd.resize(ndd.decoders.image(jpegs), size=[8, 8]), dtype=ndd.float32)
            before = labels + 1
            if write == "labels":
                labels.torch().add_(100)
            if write == "images":
                np.asarray(x.tensors[0])[...] = 7
            after = x * weights + labels
            if write == "weights":
                weights.torch().add_(1)
            found.append([before.torch().tolist(), labels.torch().tolist(), after.torch().tolist()])
    return found


@pytest.mark.parametrize("write", ["labels", "images", "weights"])
@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu"])
def test_loops_that_write(pictures: list[str], mode: str, write: str) -> None:
    with ndd.EvalMode[mode]:
        want = training(pictures, 0, write)
        for prefetch in (1, 2, 2):
            assert training(pictures, prefetch, write) == want
