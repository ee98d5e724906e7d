"""pytest plugin: the process has an emulated CUDA driver, and tests of a simulated GPU use it instead.

`python -m pytest -p tests.emulator.plugin tests/emulator` runs the tests of this folder; other tests
can be run in the same way. ndd does not know: it finds a driver and four GPUs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.emulator.emulator import Emulator, start

# Three architectures, and a second GPU of the first one.
ARCHITECTURES = (80, 90, 120, 80)
EMULATOR = start(ARCHITECTURES)
_setenv = pytest.MonkeyPatch.setenv


def _without_simulation(self: pytest.MonkeyPatch, name: str, value: str, *rest: str) -> None:
    if name != "NDD_GPU":
        _setenv(self, name, value, *rest)


def pytest_configure() -> None:
    pytest.MonkeyPatch.setenv = _without_simulation  # type: ignore[method-assign]


@pytest.fixture
def emulator() -> Emulator:
    return EMULATOR


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """A test must not end with an illegal access, unless it has looked at it and cleared it."""
    yield
    fault, errors = EMULATOR.fault, [*EMULATOR.errors]
    if fault or errors:
        EMULATOR.clear()
        gc.collect()
    assert not fault, fault
    assert not errors, errors
