"""Samples with different numbers of axes: arguments enter, groups of similar samples leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array

# Numbers [samples or 1, k], or a list with an array of its own length for each sample.
Uneven = Array | list[Array]


class AlikeSamples(NamedTuple):
    """Samples that have equally many axes."""

    samples: Array | None  # their numbers; None for all
    axes: Array  # [samples or 1, k]

    def of(self, table: Array) -> Array:
        """The numbers of these samples along their axes, from a table [all samples, rank]."""
        own = table if self.samples is None else table[self.samples]
        if len(self.axes) == 1:
            return own[:, self.axes[0]]
        return np.take_along_axis(own, self.axes, axis=1)

    def put(self, table: Array, numbers: Array) -> None:
        """Write numbers of these samples along their axes into such a table."""
        if self.samples is None and len(self.axes) == 1:
            table[:, self.axes[0]] = numbers
        else:
            samples = np.arange(len(table)) if self.samples is None else self.samples
            table[samples[:, None], self.axes] = numbers

    def number(self, k: int) -> int:
        """The number of sample `k` of the group."""
        return k if self.samples is None else int(self.samples[k])


def groups(
    count: int, axes: Uneven, values: dict[str, Uneven | None]
) -> Iterator[tuple[AlikeSamples, list[Array | None]]]:
    """Samples that have equally many axes and values, and the values of each group.

    `values`: one for all axes or one per axis, by the argument's name; an empty one is missing.
    """
    parts = [axes, *values.values()]
    if not any(isinstance(v, list) for v in parts):
        assert isinstance(axes, np.ndarray)
        yield AlikeSamples(None, axes), _present(parts[1:])
        return
    keys = [tuple(_length(v, s) for v in parts) for s in range(count)]
    for s, (wanted, *lengths) in enumerate(keys):
        for name, length in zip(values, lengths, strict=True):
            if length not in (0, 1, wanted):
                raise ValueError(f"`{name}` of sample {s} has {length} values for {wanted} axes")
    for key in dict.fromkeys(keys):
        samples = np.array([s for s in range(count) if keys[s] == key])
        own, *rest = (None if v is None else _chosen(v, samples) for v in parts)
        assert own is not None
        yield AlikeSamples(samples, own), _present(rest)


def _present(values: Sequence[Any]) -> list[Array | None]:
    return [None if v is None or not v.shape[1] else v for v in values]


def _length(value: Uneven | None, sample: int) -> int:
    if value is None:
        return 0
    return len(value[sample]) if isinstance(value, list) else int(value.shape[1])


def _chosen(value: Uneven, samples: Array) -> Array:
    if isinstance(value, list):
        return np.stack([value[s] for s in samples])
    return value if len(value) == 1 else value[samples]
