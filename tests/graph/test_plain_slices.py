"""Slices with Python's integers take a short way, which finds the same positions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ndd.ops.shape.indexing import _plain_range, _range

ENDS = (None, -(10**12), -9, -3, -1, 0, 1, 4, 7, 10**12)
STEPS = (None, -(10**12), -3, -1, 1, 2, 5, 10**12)


@pytest.mark.parametrize("extent", [0, 1, 2, 5, 7])
def test_both_ways_find_the_same_positions(extent: int) -> None:
    for ends in itertools.product(ENDS, ENDS, STEPS):
        by_numpy = _range(slice(*ends), np.array([extent, extent]), False)
        found = _plain_range(slice(*ends), extent)
        assert found is not None
        wanted = [np.broadcast_to(v, (2,)).tolist() for v in by_numpy]
        assert [[v, v] for v in found] == wanted, ends


def test_other_slices_take_the_long_way() -> None:
    assert _plain_range(slice(0, 4, 0), 5) is None
    assert _plain_range(slice(np.int64(1), None), 5) is None
    assert _plain_range(slice(0, True), 5) is None
