"""`python -m ndd bench`: runs the benchmarks, which only the repository contains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bench(arguments: list[str]) -> int:
    """Run `python -m bench`; without arguments, its quick part."""
    if not (ROOT / "bench" / "__main__.py").exists():
        print(
            "The benchmarks compare with other libraries and are not part of the installed package:"
            " clone the repository and run `make bench` there.",
            file=sys.stderr,
        )
        return 2
    command = [sys.executable, "-m", "bench", *(arguments or ["--quick"])]
    return subprocess.run(command, cwd=ROOT).returncode
