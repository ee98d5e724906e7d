"""A few hundred interrupts of each program; `NDD_FAULTS=20` makes twenty times as many."""

from __future__ import annotations

import os

import pytest

from tests.faults import interrupts
from tests.faults.child import counts_of

TIMES = int(os.environ.get("NDD_FAULTS", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("what", interrupts.WHATS)
def test_a_program_goes_on_after_interrupts(what: str) -> None:
    found = counts_of("interrupts", what, 1, 150 * TIMES, 120 * TIMES, NDD_NUM_THREADS="4")
    assert found["interrupts"] >= 150 * TIMES
