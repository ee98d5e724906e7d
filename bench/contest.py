"""Runs contestants in separate processes and measures them in turn: A B C, B C A, …"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from ctypes.util import find_library
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path
from typing import Any

from . import photos
from .harness import Row, rotated, undisturbed
from .peers import Contestant, Job

ANSWER_SECONDS = 180
# Idle threads of OpenMP must not spin while another contestant is measured.
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "PYTHONWARNINGS": "ignore"}


class Missing(Exception):
    """A contestant cannot run here."""


@dataclass
class Process:
    """The process of a contestant, which waits for orders."""

    contestant: Contestant
    job: Job
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Process:
        self._errors = tempfile.TemporaryFile("w+")
        self._started = time.clock_gettime(time.CLOCK_MONOTONIC)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"], cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, **QUIET, **ffmpeg(self.contestant), **self.environment},
        )  # fmt: skip
        self._tell(self.contestant.as_json(self.job))
        return self

    def wait(self) -> None:
        """Wait until the first batch is there."""
        self.facts = self._answer()
        if "missing" in self.facts:
            raise Missing(self.facts["missing"])
        self.facts["seconds"] = self.facts["first"] - self._started

    def __exit__(self, *error: object) -> None:
        """End the process; one that does not end by itself is killed."""
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, **order: Any) -> dict[str, float]:
        self._tell(json.dumps(order))
        return self._answer()

    def run(self, batches: int, work: float = 0.0) -> dict[str, float]:
        """Seconds that `batches` batches of a running loop take, and seconds spent waiting."""
        return self.ask(lead=self.contestant.ahead, batches=batches, work=work)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _tell(self, line: str) -> None:
        with suppress(BrokenPipeError):  # it has ended; reading its answer shows why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        if not select.select([self._process.stdout], [], [], ANSWER_SECONDS)[0]:
            self._process.kill()
            raise Missing(f"no answer in {ANSWER_SECONDS} s")
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines() or ["no message"]
        raise Missing(f"ended with status {self._process.returncode}: {said[-1]}")


def ffmpeg(contestant: Contestant) -> dict[str, str]:
    """SPDL needs the system's FFmpeg; without one, link PyAV's libraries under the usual names."""
    if contestant.module != "spdl_pipeline" or find_library("avutil"):
        return {}
    try:
        libraries = Path(str(distribution("av").locate_file("av.libs")))
    except PackageNotFoundError:
        return {}
    names = photos.folder() / "ffmpeg"
    names.mkdir(parents=True, exist_ok=True)
    for file in libraries.glob("lib[as][vw]*"):
        link = names / re.sub(r"-\w+(\.so\.\d+).*", r"\1", file.name)
        link.unlink(missing_ok=True)
        link.symlink_to(file)
    return {"LD_LIBRARY_PATH": f"{names}:{libraries}"}


@dataclass(frozen=True)
class Measure:
    """A number that is measured for every contestant in every round."""

    workload: str
    take: Callable[[Process], float]
    unit: str = "s"


@dataclass
class Result:
    """The rows of a contest, and all else that the processes reported."""

    rows: list[Row]
    facts: dict[str, dict[str, Any]]
    memory: dict[str, float]
    missing: dict[str, str]

    def of(self, workload: str) -> list[Row]:
        return [r for r in self.rows if r.workload == workload]


def seconds_per_image(images: int) -> Callable[[Process], float]:
    """A function that times a loop of about `images` images."""

    def take(process: Process) -> float:
        size = process.job.batch
        batches = 2 * max(1, round(images / size / 2))  # even: two workers take turns
        return process.run(batches)["seconds"] / (batches * size)

    return take


def contest(
    contestants: Mapping[str, Contestant],
    job: Job | Mapping[str, Job],
    rounds: int,
    *measures: Measure,
) -> Result:
    """Take all measures of all contestants, in turn; `job`: one for all, or one per name."""
    facts: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    processes: dict[str, Process] = {}
    with ExitStack() as stack:
        for name, contestant in contestants.items():
            own = job[name] if isinstance(job, Mapping) else job
            processes[name] = stack.enter_context(Process(contestant, own))
        for name, process in list(processes.items()):  # they start in parallel
            try:
                process.wait()
                facts[name] = process.facts
            except Missing as reason:
                missing[name] = str(reason)
                print(f"  {name} is missing: {reason}", flush=True)
                del processes[name]
        rows = _rounds(processes, rounds, measures, missing)
        memory = {}
        for name, process in processes.items():
            with suppress(Missing):  # it has ended, but its times are already taken
                memory[name] = process.ask(memory=1)["peak"]
    return Result(rows, facts, memory, missing)


def _rounds(
    processes: dict[str, Process],
    rounds: int,
    measures: tuple[Measure, ...],
    missing: dict[str, str],
) -> list[Row]:
    """Rows of the contestants that finish; one that fails is removed from `processes`."""
    keys = list(product(measures, processes))
    samples: dict[Any, list[float]] = {key: [] for key in keys}
    busy = dict.fromkeys(keys, False)
    for r in range(rounds):
        for name in rotated(list(processes), r):
            process = processes[name]
            try:
                for measure in measures:
                    take = partial(measure.take, process)
                    sample, disturbed = undisturbed(take, process.pid)
                    samples[measure, name].append(sample)
                    busy[measure, name] |= disturbed
            except Missing as reason:
                missing[name] = str(reason)
                print(f"  {name} failed: {reason}", flush=True)
                del processes[name]
    return [
        Row.of(m.workload, name, samples[m, name], m.unit, busy[m, name])
        for m, name in keys
        if name in processes
    ]
