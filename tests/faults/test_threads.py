"""Several threads that use one epoch."""

from __future__ import annotations

import os

import pytest

from tests.faults import shared_epochs
from tests.faults.child import counts_of

TIMES = int(os.environ.get("NDD_FAULTS", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("what", shared_epochs.WHATS)
def test_threads_that_share_an_epoch_get_every_sample_once(what: str) -> None:
    assert counts_of("shared_epochs", what, 1, 10 * TIMES)["epochs"] == 20 * TIMES
