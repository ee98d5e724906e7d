from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.decoders.fixtures import encoded, photo
from tests.loop.helpers import COUNT, ahead_threads, wait_until


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{k:02d}.jpg" for k in range(COUNT)]
    for k, path in enumerate(paths):
        path.write_bytes(encoded(".jpg", photo(40 + k, 50 + k % 7, seed=k)))
    return [str(p) for p in paths]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    if ahead_threads():  # a collection takes more than a second in a process that has compiled much
        gc.collect()
        wait_until(lambda: not ahead_threads())
