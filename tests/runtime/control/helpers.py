"""Threads, processes and conditions that the tests of this folder share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ndd.kernels.gpu import env as gpu_env

ROOT = Path(__file__).resolve().parents[3]


def has_real_gpu() -> bool:
    return gpu_env.driver_device_count() > 0


cpu_only = pytest.mark.skipif(has_real_gpu(), reason="about machines without a GPU")


def in_thread(fn: Callable[[], Any]) -> Any:
    """Result of `fn` run in another thread; its error is raised here."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(fn())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the thread hangs"
    if errors:
        raise errors[0]
    return result[0]


def run_python(code: str, **env: str) -> str:
    """Output of a fresh interpreter; it must end by itself, without an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def fail() -> None:
    raise ZeroDivisionError("in the queue")
