"""The CUDA path, executed on an emulated driver: pytest processes of their own (tests/emulator)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the simulated GPU is tested with. Left out: tests in which host memory stands for that of a GPU
# (test_writes and one of test_interop; tests/emulator/test_runtime.py writes through the driver), PyTorch with CUDA,
# and files that import the oracle, which does not import beside another driver: tests of single ops, whose kernels
# run as programs of tests/gpu/programs.py.
SHARED_WITH_SIMULATION = [
    "tests/modes", "tests/core/test_empty_batches.py", "tests/core/test_mistakes.py", "tests/runtime/control",
    "tests/core/test_interop.py", "tests/core/test_pickling.py", "tests/graph/test_repeats.py",
    "tests/graph/test_inner_cores.py", "tests/kernels/test_memo.py",
    "-m", "gpu", "--ignore=tests/modes/test_writes.py", "--deselect=tests/core/test_empty_batches.py::test_conversions",
]  # fmt: skip


def run(*arguments: str, part: str = "0/1") -> None:
    """Run tests in a process with an emulated driver; what they print is the error."""
    environment = {**os.environ, "NDD_TEST_PART": part}
    environment.pop("NDD_GPU", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.emulator.plugin",
        "-p",
        "no:xdist",
    ]
    command += ["-p", "no:cacheprovider", *arguments]
    made = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert made.returncode == 0, made.stdout[-20000:] + made.stderr[-3000:]
    assert " passed" in made.stdout and "no tests ran" not in made.stdout, made.stdout


pytestmark = [pytest.mark.gpu, pytest.mark.slow(seconds=90)]


@pytest.mark.parametrize("part", ["0/2", "1/2"])
def test_programs(part):
    """All programs, three architectures, lazily and eagerly; their kernels do not spill."""
    run("tests/emulator/test_programs.py", part=part)


def test_driver_and_runtime():
    run("tests/emulator", "--ignore=tests/emulator/test_programs.py")


def test_modes_contexts_and_hand_over():
    run(*SHARED_WITH_SIMULATION)
