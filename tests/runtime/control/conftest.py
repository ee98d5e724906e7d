"""Every test here begins and ends with the settings of a new process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ndd.runtime import context as context_module
from ndd.runtime.context import (
    set_num_threads,
)


@pytest.fixture(autouse=True)
def clean_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NDD_GPU", "NDD_NUM_THREADS", "DALI_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    set_num_threads(None)
    yield
    set_num_threads(None)
    context_module._default_streams.clear()
    context_module._local.streams.chosen.clear()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
