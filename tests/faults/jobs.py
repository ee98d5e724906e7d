"""One child process of the runner: a case enters, what became of it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.child import ROOT, Clock, command_of, environment
from tests.faults.generators import Generator

# For the start of a child (it may compile kernels) and for one case, on a busy machine. It is longer
# than what generators wait for processes of their own, whose failures tell more.
SLACK_SECONDS = 300.0


@dataclass(frozen=True)
class Case:
    """Cases `first` up to `first + count` of a generator's seed, each with at most `size` parts."""

    generator: Generator
    seed: int
    first: int
    count: int
    size: int | None = None

    def __str__(self) -> str:
        size = "" if self.size is None else f", at most {self.size} parts"
        return f"{self.generator.name} seed {self.seed}: {self.count} from {self.first}{size}"


@dataclass(frozen=True)
class Outcome:
    """What became of a job; `kind` is empty if nothing failed."""

    kind: str  # crash, hang, memory, leak, wrong (a failed assertion) or error (another exception)
    tried: int
    seconds: float
    detail: str = ""
    number: int | None = None  # the case at hand when it failed, if the generator tells


class Job:
    """A child process that runs a case."""

    def __init__(self, case: Case, seconds: float = 3600.0) -> None:
        self.case, self.seconds = case, seconds

    def start(self) -> Job:
        generator = self.case.generator
        self._folder = tempfile.TemporaryDirectory(prefix="ndd-fuzz-")
        folder = Path(self._folder.name)
        self._progress = folder / "progress"
        variables = {
            **dict(generator.variables), "NDD_FUZZ_UNTIL": str(time.monotonic() + self.seconds),
            "NDD_FUZZ_FIRST": str(self.case.first), "NDD_FUZZ_PROGRESS": str(self._progress),
            "TMPDIR": str(folder),
        }  # fmt: skip
        if self.case.size is not None:
            variables["NDD_FUZZ_SIZE"] = str(self.case.size)
        limit = min(self.seconds, 3600.0) + SLACK_SECONDS
        # The child's own timer goes on while all processes are stopped, so `_watch` comes first.
        command = command_of(
            generator.module, generator.what, self.case.seed, self.case.count, limit + 3600
        )
        self._out, self._err = (folder / "out").open("wb+"), (folder / "err").open("wb+")
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment(**variables), stdout=self._out, stderr=self._err,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._killed = ""
        self._clock, self._limit = Clock(self._process.pid), limit
        return self

    def poll(self) -> Outcome | None:
        """What became of it, or None while it runs."""
        status = self._process.poll()
        if status is None:
            self._watch()
            return None
        return self._outcome(status)

    def finished(self) -> Outcome:
        """Start it and wait for what becomes of it."""
        self.start()
        while True:
            outcome = self.poll()
            if outcome is not None:
                return outcome
            time.sleep(0.02)

    def kill(self) -> None:
        """End the child and the processes that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _watch(self) -> None:
        """Kill it if it takes too much memory or time."""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return
        megabytes = pages * os.sysconf("SC_PAGE_SIZE") >> 20
        if megabytes > self.case.generator.megabytes:
            self._killed = "memory"
            self.kill()
        elif self._clock.now() > self._limit:
            self._killed = "hang"
            self._process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self.kill()

    def _outcome(self, status: int) -> Outcome:
        seconds = time.monotonic() - self._begin
        out, err = self._text(self._out), self._text(self._err)
        number = None
        if self._progress.exists():
            number = int(self._progress.read_text() or self.case.first)
        self._folder.cleanup()
        if status == 0:
            counts = json.loads(out.splitlines()[-1])
            return Outcome("", int(counts[self.case.generator.unit]), seconds)
        tried = 0 if number is None else number - self.case.first + 1
        detail = f"exit code {status}\n{out[-2000:]}\n{_ends_of(err)}"
        return Outcome(self._killed or _kind(status, err), tried, seconds, detail, number)

    def _text(self, file: object) -> str:
        file.seek(0)  # type: ignore[attr-defined]
        data: bytes = file.read()  # type: ignore[attr-defined]
        file.close()  # type: ignore[attr-defined]
        return data.decode(errors="replace")


def _ends_of(text: str, most: int = 3000) -> str:
    """The first and the last characters: a crash says at once where, an exception at the end."""
    return text if len(text) <= 2 * most else f"{text[:most]}\n...\n{text[-most:]}"


def _kind(status: int, err: str) -> str:
    if "Timeout (" in err and "Traceback" not in err:
        return "hang"
    if status < 0:
        return "crash"
    if "AssertionError: leak" in err:
        return "leak"
    return "wrong" if "AssertionError" in err else "error"
