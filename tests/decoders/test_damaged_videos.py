"""Some hundred damaged video files: each gives frames or a ValueError; none ends the process."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from tests.faults.videos import FRAMES, KINDS, decoded, mutated

from .clips import encoded

COUNT = 40 * int(os.environ.get("NDD_FAULTS", "1"))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_decoded_or_refused(kind) -> None:
    names, counts = KINDS[kind], Counter[str]()
    for number in range(COUNT):
        rng = np.random.default_rng([7, number])
        data = mutated(encoded(names[number % len(names)], FRAMES), rng)
        counts[decoded(data, number).split(":")[0]] += 1
    assert counts["decoded"] and counts["refused"], counts
