"""Everything baked into compiled code is part of its key, so an edit never runs old code."""

from __future__ import annotations

import ast
import shutil
from importlib.util import resolve_name
from pathlib import Path

import pytest

from ndd.kernels.cpu import runtime
from tests.helpers import ROOT, run_python

# Prints how many kernels and which helpers were compiled, and a result. The helper `fill_steps` of a
# rotation has SHORT of kernels/ir/expr.py in it.
JOB = """
    import sys
    sys.path.insert(0, PACKAGE)
    import numpy as np, ndd
    from ndd.kernels.cpu import helpers, runtime
    assert ndd.__file__.startswith(PACKAGE), ndd.__file__
    plain, made = helpers._compile, []
    helpers._compile = lambda name: (made.append(name), plain(name))[1]
    x = ndd.tensor(np.arange(600, dtype=np.uint8).reshape(20, 10, 3), layout="HWC")
    results = ndd.resize(x, size=[7, 9]), ndd.rotate(x, angle=30.0)
    total = sum(int(np.asarray(y).astype(np.int64).sum()) for y in results)
    print(runtime.compile_count, ",".join(sorted(made)) or "none", total)
"""


def copy_of_the_package(folder: Path) -> Path:
    """A copy of the source alone, including its symbolic links."""
    for name in ("ndd", "fusion", "kernels"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    return folder


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {text.count(old)} of {old!r}"
    file.write_text(text.replace(old, new))


@pytest.mark.slow
def test_a_new_constant_compiles_anew(tmp_path: Path) -> None:
    package = copy_of_the_package(tmp_path / "package")
    job = JOB.replace("PACKAGE", repr(str(package)))
    env = {"NDD_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    kernels, helpers, total = run_python(job, **env).split()
    assert kernels == "2" and {"fill_taps", "fill_steps"} <= set(helpers.split(","))
    assert run_python(job, **env) == f"0 none {total}"
    # These appear in no source of a kernel or helper, but in their machine code.
    edit(package / "kernels/ir/expr.py", "SHORT = 1 - 2**-20", "SHORT = 1 - 2**-19")
    assert run_python(job, **env) == f"2 {helpers} {total}"
    assert run_python(job, **env) == f"0 none {total}"


def used_by(files: list[Path]) -> set[Path]:
    """All files of this package whose code runs when these are imported, these included."""
    found, left = set[Path](), [*files]
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        package = ".".join(["ndd", *path.relative_to(ROOT).parts[:-1]])
        tree = ast.parse(path.read_text())
        # a helper may also import something when it is made; others do so for the GPU's renderers
        for node in ast.walk(tree) if path in files else tree.body:
            if not isinstance(node, ast.ImportFrom):
                continue
            module = resolve_name("." * node.level + (node.module or ""), package)
            for name in (module, *(f"{module}.{alias.name}" for alias in node.names)):
                place = ROOT.joinpath(*name.removeprefix("ndd.").split("."))
                left += [p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()]
    return found


def test_the_key_has_every_file_that_compiled_code_uses() -> None:
    native = sorted((ROOT / "kernels/cpu/native").glob("*.py"))
    used = used_by([*native, ROOT / "kernels/cpu/helpers.py"])
    assert {ROOT / "kernels/ir/expr.py", ROOT / "kernels/cpu/lines.py"} <= used
    left_out = used - {p.resolve() for p in runtime.baked_files()}
    assert not left_out, f"{sorted(left_out)}: their constants are not in the key"


def test_every_file_of_the_key_changes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = copy_of_the_package(tmp_path)
    monkeypatch.setattr(runtime, "__file__", str(package / "kernels/cpu/runtime.py"))
    files = runtime.baked_files()
    assert len(files) > 30 and all(f.is_relative_to(package) for f in files)
    keys = {runtime.machine.__wrapped__()}
    for number, file in enumerate(files, 2):
        file.write_text(file.read_text() + "\nEDITED = True\n")
        keys.add(runtime.machine.__wrapped__())
        assert len(keys) == number, f"{file} is not in the key"
