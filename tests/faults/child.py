"""Runs a generator of faults in a child process, where a crash or a hang costs nothing but that child.

A generator is a module of this folder with a function ``attack(what, seed, count)`` and a dictionary `WHATS`.
It prints one line of JSON with its counts, and fails by an assertion, a crash or a hang. Where a case is a
pure function of its seed and its number, `attack` takes the numbers from `numbers(count)`.

These variables of the environment come from the runner (fuzz.py), to end in time and to shrink a failure:

NDD_FUZZ_UNTIL      time (of time.monotonic) to end at; at least one case is tried
NDD_FUZZ_FIRST      number of the first case
NDD_FUZZ_SIZE       how many mutations, calls or arguments a case may have
NDD_FUZZ_PROGRESS   a file that tells the number of the case at hand
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[
    2
]  # `tests.helpers` would import the package, for half a second of each child


def command_of(module: str, what: str, seed: int, count: int, seconds: float) -> list[str]:
    """The command that runs `attack(what, seed, count)` of a module; `seconds` later it counts as hanging."""
    numbers = [str(seed), str(count), str(seconds)]
    return [sys.executable, "-m", f"tests.faults.{module}", what, *numbers]


def environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def counts_of(
    module: str, what: str, seed: int, count: int, seconds: float = 120, **variables: str
) -> dict[str, Any]:
    """Run `attack(what, seed, count)` of a module in a child process, and return the counts."""
    command = command_of(module, what, seed, count, seconds)
    done = subprocess.run(
        command, env=environment(**variables), cwd=ROOT,
        capture_output=True, text=True, timeout=seconds + 60,
    )  # fmt: skip
    reproduce = " ".join(["python", *command[1:-1]])
    assert done.returncode == 0, (
        f"{reproduce}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-8000:]}"
    )
    counts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counts


# How long threads that are ending, and memory that they hold, may take on a busy machine.
SETTLE_SECONDS = 60.0


class Clock:
    """Seconds after which a process that has not ended hangs.

    At most two seconds count between two looks: if all processes were stopped for a while, nobody
    hangs. Time that the process, or one that it started, waited for a core does not count either.
    """

    def __init__(self, pid: int | None = None) -> None:
        self._pid, self._waited = pid, 0.0
        self._last, self._sum = time.monotonic(), 0.0

    def now(self) -> float:
        now = time.monotonic()
        if self._pid is None:
            self._sum += min(2.0, now - self._last)
        elif now - self._last < 1.0:  # looking at all threads takes a while
            return self._sum
        else:
            before, self._waited = self._waited, waited_for_a_core(self._pid)
            self._sum += min(2.0, max(0.0, now - self._last - max(0.0, self._waited - before)))
        self._last = now
        return self._sum


def waited_for_a_core(pid: int) -> float:
    """Seconds that threads of a process, and of those that it started, could not run for lack of a core."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            seconds += int((task / "schedstat").read_text().split()[1]) / 1e9
            children = (task / "children").read_text().split()
            seconds += sum(waited_for_a_core(int(child)) for child in children)
    return seconds


# -- in the child --------------------------------------------------------------------------------


def main(attack: Callable[[str, int, int], dict[str, Any]]) -> None:
    """The main function of a generator: arguments what, seed, count and seconds until a hang is reported."""
    what, seed, count, *seconds = sys.argv[1:]
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(seconds[0]) if seconds else 300, exit=True)
    print(json.dumps(attack(what, int(seed), int(count))), flush=True)
    faulthandler.cancel_dump_traceback_later()


def is_over() -> bool:
    """Whether the time to try cases in is used up."""
    return time.monotonic() > float(os.environ.get("NDD_FUZZ_UNTIL", "inf"))


def numbers(count: int) -> Iterator[int]:
    """Numbers of the cases to try."""
    first = int(os.environ.get("NDD_FUZZ_FIRST", "0"))
    for number in range(first, first + count):
        if number > first and is_over():
            return
        note(number)
        yield number


def note(number: int) -> None:
    """Tell the runner which case is at hand, so that it knows it even after a crash."""
    path = os.environ.get("NDD_FUZZ_PROGRESS")
    if path:
        Path(path).write_text(str(number))


def size_limit(most: int) -> int:
    """How many mutations, calls or arguments a case may have."""
    return min(most, int(os.environ.get("NDD_FUZZ_SIZE", most)))


def thread_count() -> int:
    """Native threads of this process, those of C++ libraries included."""
    return len([*Path("/proc/self/task").iterdir()])


class Resources:
    """Memory, open files and threads of this process, to see whether cases leak them."""

    def __init__(self) -> None:
        import gc

        gc.collect()
        self.files = len([*Path("/proc/self/fd").iterdir()])
        self.threads = thread_count()
        self.megabytes = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

    def check(
        self, megabytes: int = 200, files: int = 4, threads: int = 6, seconds: float = SETTLE_SECONDS
    ) -> None:  # fmt: skip
        """Fail if much more is in use than when this object was made, and stays in use."""
        limits = megabytes, files, threads
        clock = Clock()
        while True:
            grown = self._grown()
            if all(g <= most for g, most in zip(grown, limits, strict=True)):
                return
            assert clock.now() < seconds, (
                f"leak: {grown} more megabytes, files and threads, at most {limits} are allowed"
            )
            time.sleep(0.1)

    def _grown(self) -> tuple[int, int, int]:
        now = Resources()
        return now.megabytes - self.megabytes, now.files - self.files, now.threads - self.threads
