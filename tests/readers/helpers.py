"""Small data sets, and what readers of either library make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def numbered(folder: Path, count: int) -> list[str]:
    """Files whose only byte is their number."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"{i:03d}.bin" for i in range(count)]
    for i, file in enumerate(files):
        file.write_bytes(bytes([i]))
    return [str(f) for f in files]


def batch_of(item: Any) -> list[int]:
    """The numbers of a batch of such files."""
    return [int(np.asarray(t)[0]) for t in item[0].tensors]


def epoch_of(reader: Any, batch_size: int | None) -> list[Any]:
    """The numbers of an epoch, batch by batch."""
    if batch_size is None:
        return [int(np.asarray(data)[0]) for data, _ in reader.next_epoch()]
    return [batch_of(item) for item in reader.next_epoch(batch_size=batch_size)]


def flat(batches: list[list[int]]) -> list[int]:
    """All numbers of several batches."""
    return [n for batch in batches for n in batch]


def info(library: Any, value: Any) -> list[str]:
    """`source_info` of all samples of a batch."""
    found = library.get_property(value, key="source_info")
    return [bytes(np.asarray(t)).decode() for t in found.tensors]
