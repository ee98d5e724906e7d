"""Runs a generator of faults in a child process, where a crash or a hang costs nothing but that child.

A generator is a module of this folder with a function ``attack(what, seed, count)`` and a list `WHATS`.
It prints one line of JSON with its counts, and fails by an assertion, a crash or a hang.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers import ROOT


def counts_of(
    module: str, what: str, seed: int, count: int, seconds: float = 120, **environment: str
) -> dict[str, Any]:
    """Run `attack(what, seed, count)` of a module in a child process, and return the counts."""
    command = [
        sys.executable,
        "-m",
        f"tests.faults.{module}",
        what,
        str(seed),
        str(count),
        str(seconds),
    ]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, cwd=ROOT,
        capture_output=True, text=True, timeout=seconds + 60,
    )  # fmt: skip
    reproduce = " ".join(["python", *command[1:-1]])
    assert done.returncode == 0, (
        f"{reproduce}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-8000:]}"
    )
    counts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counts


def main(attack: Callable[[str, int, int], dict[str, Any]]) -> None:
    """The main function of a generator: arguments what, seed, count and seconds until a hang is reported."""
    what, seed, count, *seconds = sys.argv[1:]
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(seconds[0]) if seconds else 300, exit=True)
    print(json.dumps(attack(what, int(seed), int(count))), flush=True)
    faulthandler.cancel_dump_traceback_later()


def thread_count() -> int:
    """Native threads of this process, those of C++ libraries included."""
    return len([*Path("/proc/self/task").iterdir()])
