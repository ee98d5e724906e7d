"""Imports only point ndd → fusion → kernels, and `import ndd` is light."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.helpers import ROOT, run_python

# The folders of this project from which the files of each folder may import.
ALLOWED = {
    "kernels": ("ndd.kernels",),
    "fusion": ("ndd.kernels", "ndd.fusion"),
}
HEAVY = ("torch", "triton", "cupy", "numba", "jax", "llvmlite", "nvidia")


def imported_modules(path: Path, package: str) -> set[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module or "") if p)
            # `from . import passes` imports a module, `from .passes import keep_shared` a name of one
            found |= {f"{module}.{a.name}" for a in node.names} if not node.module else {module}
    return found


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_point_downwards(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert len(files) > 5
    for path in files:
        package = ".".join(["ndd", *path.relative_to(ROOT).parts[:-1]])
        for module in imported_modules(path, package):
            if module == "ndd" or module.startswith("ndd."):
                lower = any(module == a or module.startswith(f"{a}.") for a in ALLOWED[folder])
                assert lower, f"{path.relative_to(ROOT)} imports {module}"


def test_a_relative_import_is_resolved(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "from ...runtime.context import EvalMode\nfrom . import lowering\nimport ndd.core.call as c\n"
    )
    assert imported_modules(file, "ndd.fusion.plan") == {
        "ndd.runtime.context",
        "ndd.fusion.plan.lowering",
        "ndd.core.call",
    }


def test_import_is_light() -> None:
    loaded = run_python(
        f"""
        import sys, ndd
        print([m for m in {HEAVY!r} if m in sys.modules])
        """
    )
    assert loaded == "[]"


def test_import_takes_less_than_half_a_second(tmp_path) -> None:
    code = """
        import time
        start = time.process_time()  # not wall time: the machine may be busy with other tests
        import ndd
        print(time.process_time() - start)
    """
    # With byte code, like any second start: the environment may forbid Python to write it.
    env = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    run_python(code, **env)
    assert min(float(run_python(code, **env)) for _ in range(3)) < 0.5
