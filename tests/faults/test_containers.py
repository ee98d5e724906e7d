"""Damaged files of every reader, and readers that are killed: a few cases of what `make fuzz` does."""

from __future__ import annotations

import json
import warnings

import pytest

from tests.faults import containers, killed_readers
from tests.helpers import run_python


@pytest.mark.parametrize("what", containers.FORMATS)
def test_damaged_files_are_read_or_refused(what):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {containers.trial(what, 11, number) for number in range(60)}
    assert found >= {"read", "refused"}, "the cases are too hard, or too easy"


def test_resuming_after_a_kill():
    told = run_python(
        """
        import json
        from tests.faults.killed_readers import WHATS, attack
        print(json.dumps({what: attack(what, 12, 2) for what in WHATS}))
        """
    )
    found = json.loads(told.splitlines()[-1])
    assert set(found) == set(killed_readers.WHATS)
    assert all(counts["kills"] == 2 for counts in found.values())
