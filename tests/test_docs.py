"""Documentation that runs: docstrings of public names, code blocks of README and docs, generated files."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import ndd
from ndd import stubs
from ndd.schema import OPS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPES = {"DType", "DataType", "ImageType", "InterpType", "bool", "bfloat16"} | {
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
}


@pytest.mark.parametrize("name", [n for n in ndd.__all__ if n not in TYPES])
def test_public_names_have_examples_that_run(name):
    value = getattr(ndd, name)
    text = value.__doc__ or ""
    assert ">>>" in text, f"ndd.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    parsed = doctest.DocTestParser().get_doctest(text, {"ndd": ndd, name: value}, name, None, 0)
    runner.run(parsed)
    assert runner.failures == 0 and runner.tries > 0


@pytest.mark.parametrize("name", ndd.math.__all__)
def test_math_functions_have_examples_that_run(name):
    parsed = doctest.DocTestParser().get_doctest(
        getattr(ndd.math, name).__doc__, {"ndd": ndd}, name, None, 0
    )
    runner = doctest.DocTestRunner()
    runner.run(parsed)
    assert runner.failures == 0 and runner.tries > 0


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run(page):
    blocks = python_blocks(page)
    if page.name in ("README.md", "fusion.md", "profiling.md"):
        assert blocks, f"{page.name} lost its program"
    namespace: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
    assert "BENCH_TABLE" not in page.read_text() and "KERNEL_TABLE" not in page.read_text()


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_contributing_example_works_as_written():
    """The op of the walk through adding one, taken from the page itself."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    import inspect

    from ndd.ops import color

    source = inspect.cleandoc("\n" + block)
    try:
        exec(compile(source, "CONTRIBUTING.md", "exec"), dict(vars(color)))
        x = ndd.tensor([[[10, 128, 255]]], dtype=ndd.uint8, layout="HWC")
        import numpy as np

        assert np.asarray(OPS["solarize"].public(x)).tolist() == [[[10, 127, 0]]]
    finally:
        OPS.pop("solarize", None)


def test_stubs_are_current():
    found = stubs.render()
    assert len(found) > 8
    for path, text in found.items():
        assert path.read_text() == text, f"{path.name} is old; run: python -m ndd.stubs"


def test_every_op_documents_its_parameters():
    for op in OPS.values():
        assert op.doc, f"{op.name} has no summary"
        for p in op.params:
            assert p.doc, f"{op.name}: `{p.name}` has no description"
            assert p.name in op.public.__doc__
