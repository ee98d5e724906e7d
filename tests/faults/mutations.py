"""Damaged files as pure functions of (seed, number).

Mutations know the structure of their format (structures.py): they change lengths, counts, offsets and sizes, repair
checksums, cut, repeat and exchange parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tests.faults.corpus import corpus
from tests.faults.structures import Field, fields_of, png_with_checksums


def mutant(seed: int, number: int, most: int = 3) -> tuple[str, bytes]:
    """The kind of a picture file, and the file with one to three mutations, of which the first `most` are made."""
    rng = np.random.default_rng([seed, number])
    names = _names()
    name = names[number % len(names)]
    data = corpus()[name]
    count = (1, 1, 1, 2, 3)[int(rng.integers(5))]
    for k in range(min(count, most)):
        found = _sound_fields(name) if k == 0 else fields_of(name, data)
        data = mutated(data, found, corpus(), rng)
    if name.startswith("png") and rng.random() < 0.8:
        data = png_with_checksums(data)
    return name, data


@lru_cache(maxsize=1)
def _names() -> list[str]:
    return list(corpus())


@cache
def _sound_fields(name: str) -> list[Field]:
    return fields_of(name, corpus()[name])


def mutated(
    data: bytes, found: list[Field], others: Mapping[str, bytes], rng: np.random.Generator
) -> bytes:
    """The file with one mutation: mostly of a field, else of any bytes, or with the end of another file."""
    if not data:
        return data
    choice = rng.random()
    if found and choice < 0.6:
        return _with_field(data, found[int(rng.integers(len(found)))], rng)
    at, run = int(rng.integers(len(data))), int(rng.integers(1, 24))
    if choice < 0.75:
        flipped = data[at] ^ (0xFF, 1, 0x80, 0x10)[int(rng.integers(4))]
        return data[:at] + bytes([flipped]) + data[at + 1 :]
    if choice < 0.82:
        return data[:at]
    if choice < 0.88:
        return data[:at] + rng.bytes(run) + data[at + run :]
    if choice < 0.92:
        return data[:at] + data[at + run :]
    if choice < 0.96:
        return data[: at + run] + data[at:]
    other = list(others.values())[int(rng.integers(len(others)))]
    return data[:at] + other[min(at, len(other)) :]


def _with_field(data: bytes, where: Field, rng: np.random.Generator) -> bytes:
    """Another number in a field: near the old one, near the file's size, or near a power of two."""
    order: Any = "big" if where.order == ">" else "little"
    old = int.from_bytes(data[where.at : where.at + where.size], order)
    top = 1 << 8 * where.size
    near = int(rng.integers(-2, 3))
    new = (
        old + near, len(data) - where.at + near, 0, old * 2 + near,
        (1 << int(rng.integers(0, 8 * where.size + 1))) + near,
        int(rng.integers(0, top) if where.size < 8 else rng.integers(0, top, dtype=np.uint64)),
    )[int(rng.integers(6))]  # fmt: skip
    end = where.at + where.size
    return data[: where.at] + (new % top).to_bytes(where.size, order) + data[end:]
