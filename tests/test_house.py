"""House rules that a test can check."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ndd
from ndd.fusion.graph.node import Node
from ndd.fusion.kinds.base import Kind
from tests.helpers import ROOT

# Two versions of the same thing may share a name.
SIDES = {
    # of the CPU, the GPU, the IR
    "bands", "cores", "fourier", "histogram", "mosaic", "ranks", "reduce", "render", "runtime",
    "separable", "sinc", "spectrum", "windows",
    "explain",  # for programs and on the command line
}  # fmt: skip
SIDED_CLASSES = {"Writer"}  # of source for the CPU and the GPU


def sources() -> Iterator[Path]:
    """All files of the package, each once."""
    for top in ("ndd", "fusion", "kernels"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            if parts[:2] not in (("ndd", "fusion"), ("ndd", "kernels")):
                yield path


def all_kinds(kind: type[Kind] = Kind) -> set[str]:
    found = {kind.__name__} - {"Kind"}
    for derived in kind.__subclasses__():
        found |= all_kinds(derived)
    return found


def test_no_two_modules_have_one_name() -> None:
    places = defaultdict(list)
    for path in sources():
        if path.name != "__init__.py":
            places[path.stem].append(str(path.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() <= SIDES, {n: f for n, f in twice.items() if n not in SIDES}


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() <= SIDED_CLASSES, twice


@pytest.mark.parametrize("room", ["fusion/plan", "fusion/run", "fusion/graph"])
def test_planner_and_executor_know_no_particular_kind(room: str) -> None:
    """Passes ask a kind for its properties and never test for a class; only the builders name kinds."""
    kinds = all_kinds()
    assert {"Pointwise", "View", "Resample"} <= kinds
    for path in sorted((ROOT / room).glob("*.py")):
        if path.name == "build.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "kinds" in (node.module or ""):
                assert node.module == "kinds.base", f"{path.name} imports {node.module}"
            if isinstance(node, ast.Name):
                assert node.id not in kinds, f"{path.name}:{node.lineno} names {node.id}"


def test_back_ends_know_no_particular_core() -> None:
    """Renderers of kernels ask a core for its renderer; they do not know the cores."""
    for name in ("cpu/render.py", "gpu/render.py", "cpu/cores.py", "gpu/cores.py", "ir/spec.py"):
        tree = ast.parse((ROOT / "kernels" / name).read_text())
        modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not any("separable" in (m or "") for m in modules), name


def test_a_node_is_frozen() -> None:
    """Nodes are frozen; `checked_graph` in conftest.py checks it in all tests."""
    node = ndd.tensor(np.zeros(3, np.float32))._node
    for field in Node.__slots__:
        if field != "__weakref__":
            with pytest.raises(AssertionError, match="assigned again"):
                setattr(node, field, None)
