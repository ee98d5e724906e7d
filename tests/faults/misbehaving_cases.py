"""A generator whose case 13 fails on purpose, if it has at least three parts, to test the runner."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from tests.faults.child import Resources, main, numbers, size_limit

WHATS = dict.fromkeys(("crash", "wrong", "leak", "error", "memory", "hang"))


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    before, tried = Resources(), 0
    for number in numbers(count):
        tried += 1
        if number != 13 or size_limit(8) < 3:
            continue
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif what == "hang":
            time.sleep(3600)
        elif what == "memory":
            held = np.ones(50 << 20)
            time.sleep(60)
            del held
        elif what == "leak":
            held_files = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            assert held_files
            before.check(seconds=0.3)
        elif what == "error":
            raise ZeroDivisionError("of no use")
        assert what != "wrong", "a wrong value"
    return {"tried": tried}


if __name__ == "__main__":
    main(attack)
