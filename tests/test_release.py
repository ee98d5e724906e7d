"""What a release needs: one version everywhere, a changelog, a workflow that runs the script of CI."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import ndd
from tests.helpers import run_python

ROOT = Path(__file__).resolve().parents[1]


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert ndd.__version__ == project["version"] == newest[1]
    assert f"**Status: {'.'.join(newest[1].split('.')[:2])}," in (ROOT / "README.md").read_text()


def test_a_public_ci_runs_the_same_script() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "run: .ci/run\n" in workflow and "uses: actions/checkout@" in workflow
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_readme_leads_with_the_demo() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.index("docs/images/demo.png") < text.index("make demo") < text.index("## Ten lines")
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert target.startswith("http") or (ROOT / target).exists(), target


PROGRAM = """
from importlib.machinery import PathFinder
absent, find = set({absent!r}), PathFinder.find_spec
def found(name, path=None, target=None):
    return None if name.partition(".")[0] in absent else find(name, path, target)
PathFinder.find_spec = found
import numpy as np
import ndd
from ndd.tools import demo, photos
jpeg = np.frombuffer(photos.encoded(photos.drawing(40, 50, 1), 90), np.uint8)
x = demo.augment(ndd.batch([jpeg, jpeg]))[0]
print(demo.to_framework()[1](x).shape)
"""


def test_the_core_install_is_enough() -> None:
    """Nothing but the required packages is needed to import the package, and to decode and augment pictures."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [p for extra in project["optional-dependencies"].values() for p in extra]
    names = {re.split(r"[^\w-]", p)[0].replace("-", "_").lower() for p in listed}
    absent = {*names, "cv2", "av", "cupy", "PIL", "skimage", "cuda"} - {
        "numpy",
        "numba",
    }
    assert run_python(PROGRAM.format(absent=sorted(absent))) == "(2, 3, 224, 224)"
