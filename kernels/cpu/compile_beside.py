"""Sources of kernels → object files in the cache, compiled by a process beside this one.

A thread would slow this process down to half its speed while it compiles, a process does not. It
starts with the first request, takes one request at a time, and ends when this process does, or when
it has had nothing to do for `IDLE_SECONDS`. What it compiles goes to the disk cache under the rules
of every other process: checked folders, atomic writes, one compiler per kernel.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from typing import Any

from ..common import background, forks, own_process
from ..common.disk_cache import cache_dir, is_usable

# Starting again takes 0.8 s of CPU time; waiting takes 150 MB.
IDLE_SECONDS = 20.0
# The process gives way to the program that it compiles for.
NICENESS = 5


class CompilerProcess:
    """The process, and the name of the kernel that it compiles now."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._current: str | None = None
        self._replies = b""
        self.started = 0  # how many processes this one has started; tests assert on it

    def is_possible(self) -> bool:
        """Whether a second process can fill the cache for this one."""
        folder = cache_dir() / "cpu"
        return own_process.can_start() and is_usable(folder) and os.access(folder, os.W_OK)

    def is_free(self) -> bool:
        """Whether the next request would be taken."""
        return self._current is None

    def take(self, name: str, source: str, functions: dict[str, str]) -> bool:
        """Compile a kernel, with the functions that it inlines; False if it is busy or cannot."""
        request = {
            "name": name, "source": source, "functions": functions,
            "folder": str(cache_dir().absolute()),
        }  # fmt: skip
        return background.uninterrupted(self._take, name, json.dumps(request).encode() + b"\n")

    def _take(self, name: str, request: bytes) -> bool:
        with self._lock:
            if self._current is not None:
                return False
            try:
                if self._process is None or self._process.poll() is not None:
                    self._start()
                assert self._process is not None and self._process.stdin is not None
                self._process.stdin.write(request)
            except OSError:
                self._end()
                return False
            self._current = name
            return True

    def _start(self) -> None:
        self._end()
        self._process = subprocess.Popen(
            own_process.command("ndd.kernels.cpu.compile_beside", "main"), bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the program, not for its compiler
            env=own_process.environment(NDD_TIERS="0", NDD_COMPILE_AHEAD="0"),
        )  # fmt: skip
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self.started += 1

    def finished(self) -> str | None:
        """The kernel that was finished since the last question, compiled or not."""
        with self._lock:
            name, process = self._current, self._process
            if name is None or process is None or process.stdout is None:
                return None
            with suppress(OSError):
                self._replies += process.stdout.read() or b""
            if b"\n" in self._replies:
                self._current, self._replies = None, b""
                return name
            if process.poll() is not None:
                self._end()
                return name
            return None

    def _end(self) -> None:
        """Forget the process. It ends when it finds that nobody can send to it any more."""
        process, self._process = self._process, None
        self._current, self._replies = None, b""
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if process.poll() is None:
            process.returncode = 0  # keeps `Popen` from warning that it still runs

    def close(self) -> None:
        """Let the process end, without waiting for it."""
        with self._lock:
            self._end()


COMPILER = CompilerProcess()
atexit.register(COMPILER.close)
# In a child process the pipes are copies. Closing them keeps the compiler from waiting for the
# child after its own process has ended.
forks.in_child(COMPILER.close)


def main() -> None:
    """What the process does: compile what comes in, until nothing comes any more."""
    os.nice(NICENESS)
    # Its own output, should a library print something, is not a reply.
    replies, sys.stdout = sys.stdout, sys.stderr
    requests = sys.stdin.buffer
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        line = requests.readline()
        if not line:
            return
        # If it fails, the process that asked compiles it, and raises the error if it stays.
        with suppress(Exception):
            _compile(json.loads(line))
        with suppress(OSError):  # nobody listens any more
            print("done", file=replies, flush=True)


def _compile(request: dict[str, Any]) -> None:
    from . import functions
    from .runtime import stored

    os.environ["NDD_CACHE_DIR"] = request["folder"]
    functions.add(request["functions"])
    stored(request["name"], request["source"])
