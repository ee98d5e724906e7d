"""Processes that end while daemon threads of the user are inside the library; `make fuzz` ends more kinds of them."""

from __future__ import annotations

import os

import pytest

from tests.faults.child import counts_of

TIMES = int(os.environ.get("NDD_FAULTS", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["decode", "eager", "reader", "isolated"])
def test_a_process_ends_while_daemon_threads_work(what: str) -> None:
    assert counts_of("exits", what, 1, 3 * TIMES, 150 * TIMES)["exits"] == 3 * TIMES
