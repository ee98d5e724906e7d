"""Type checkers find ndd after `pip install -e .`, from any directory."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ndd

def mirrored(x: ndd.Batch) -> ndd.Batch:
    reveal_type(ndd.flip(x))
    return ndd.flip(x, horizntal=1)

def first(x: ndd.Batch) -> None:
    print(x[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_checker_finds_ndd_elsewhere(checker, tmp_path):
    pytest.importorskip(checker)
    (tmp_path / "program.py").write_text(PROGRAM)
    python = ["--pythonpath", sys.executable] if checker == "pyright" else []
    command = [sys.executable, "-m", checker, *python, "program.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    text = found.stdout
    assert "core.batch.Batch" in text or '"Batch"' in text, (
        f"{checker} does not find ndd; an older installation hides it: pip install -e .\n{text}"
    )
    assert "horizntal" in text or 'No overloads for "flip"' in text  # a misspelt argument
    assert "not indexable" in text or "__getitem__" in text  # batch[0]
