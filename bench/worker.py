"""The process of one contestant: reads orders as lines of JSON, answers with lines of JSON.

The first line names the contestant (`Contestant.as_json`); the answer describes its first batch.
`{"lead": 6, "batches": 8, "work": 0.02}` asks for 6 batches that are not timed, which use up those
made in advance, then for 8 that are timed, each followed by 0.02 s in which the consumer works on
something else (a GPU). `{"memory": 1}` asks for the peak memory. The process ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a library that prints must not garble the answers
    order = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    import torch  # every loop returns torch tensors, so its import counts for no contestant

    torch_seconds = time.perf_counter() - start
    try:
        from .peers import Job

        module = import_module(f".peers.{order['module']}", __package__)
        loop = getattr(module, order["function"])(Job(**order["job"]), **order["options"])
        first = next(loop)
    except Exception as error:
        answers.write(json.dumps({"missing": f"{type(error).__name__}: {error}"[:200]}) + "\n")
        os._exit(1)
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    ready = {"first": now, "torch": torch_seconds, **facts(first)}
    del first, torch
    answers.write(json.dumps(ready) + "\n")
    obey(loop, answers)
    os._exit(0)  # at once: a loader with threads might first finish batches that nobody needs


def obey(loop: Iterator[Any], answers: TextIO) -> None:
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        answer = peak_memory() if "memory" in order else run(loop, **order)
        answers.write(json.dumps(answer) + "\n")


def run(loop: Iterator[Any], lead: int, batches: int, work: float = 0.0) -> dict[str, float]:
    """Seconds that `batches` batches take, and how many of them the consumer waits for data."""
    waited = 0.0
    for k in range(-lead, batches):
        if k == 0:
            start, waited = time.perf_counter(), 0.0
        asked = time.perf_counter()
        batch = next(loop)
        waited += time.perf_counter() - asked
        del batch
        if work:
            time.sleep(work)
    return {"seconds": time.perf_counter() - start, "waited": waited}


def facts(batch: Any) -> dict[str, Any]:
    """What the first batch looks like, to see that all contestants do the same work."""
    images = batch[0] if isinstance(batch, tuple | list) else batch
    if not hasattr(images, "is_contiguous") or images.ndim != 4:  # a list of decoded images
        return {}
    return {
        "shape": list(images.shape),
        "dtype": str(images.dtype).removeprefix("torch."),
        "contiguous": images.is_contiguous(),
        "mean": float(images.mean()),
        "deviation": float(images.std()),
    }


def peak_memory() -> dict[str, float]:
    """Peak memory of this process and its workers, in MB."""
    children = Path("/proc/self/task").glob("*/children")
    ids = [int(i) for p in children for i in p.read_text().split()]
    peaks = [_status(i, "VmHWM") for i in (os.getpid(), *ids)]
    return {"peak": sum(peaks), "processes": len(peaks)}


def _status(process: int, name: str) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
