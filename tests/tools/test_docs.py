"""Documentation that runs: docstrings of public names, code blocks of README and docs, generated files."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import types
from functools import reduce
from pathlib import Path

import pytest

import docs.bench as docs_bench
import docs.names as docs_names
import docs.ops as docs_ops
import ndd
from ndd.core.schema import OPS
from ndd.tools import stubs
from tests.conformance import report as numerics

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("name", [n for n in OPS if "." in n])
def test_ops_of_modules_have_examples_that_run(name):
    text = OPS[name].public.__doc__
    assert ">>>" in text, f"ndd.{name} has no example"
    parsed = doctest.DocTestParser().get_doctest(text, {"ndd": ndd}, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
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


READERS = [
    (module, name)
    for module in (ndd.readers, ndd.experimental.readers, ndd.tfrecord)
    for name in module.__all__
    if callable(getattr(module, name)) and name not in ("Epoch", "Feature", "Reader", "ReaderState")
]


@pytest.mark.parametrize("module, name", READERS, ids=lambda x: getattr(x, "__name__", x))
def test_readers_have_examples_that_run(module, name):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    text = getattr(module, name).__doc__
    runner.run(doctest.DocTestParser().get_doctest(text, {"ndd": ndd}, name, None, 0))
    assert runner.failures == 0 and runner.tries > 0


# Pages that have only tables; all others must have a program.
NO_PROGRAM = {"differences.md", "gpu.md", "numerics.md", "transforms.md"}
# A block of Python and, after a marker, its output.
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\n<!-- prints -->\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


def neutral(text: str) -> str:
    """Remove parts that differ between machines: folders and digests of source."""
    text = re.sub(r"(called at|source) .*/", r"\1 ", text)
    return re.sub(r"called at .*", "called at", re.sub(r"__[0-9a-f]{8}\b", "", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run(page, capsys, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "")  # undo what a page sets
    found = blocks(page)
    assert bool(found) is (page.name not in NO_PROGRAM), f"{page.name} lost its program"
    assert len(found) == page.read_text().count("```python\n")
    namespace: dict[str, object] = {"__name__": "page"}
    try:
        for block, printed in found:
            capsys.readouterr()
            exec(compile(block, str(page), "exec"), namespace)
            if printed:
                assert neutral(capsys.readouterr().out) == neutral(printed)
    finally:
        ndd.set_num_threads(None)
    assert "BENCH_TABLE" not in page.read_text() and "KERNEL_TABLE" not in page.read_text()


def test_fusion_page_shows_what_is_printed():
    assert any(printed for _, printed in blocks(ROOT / "docs" / "fusion.md"))


def test_links_between_pages_lead_somewhere():
    generated = {f"reference/{name}.md" for name in docs_ops.pages()}
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and target not in generated:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_op_is_in_the_reference():
    listed = [op for family in docs_ops.FAMILIES for op in docs_ops.members(family)]
    assert sorted(op.name for op in listed) == sorted(OPS), (
        "docs/ops.py: FAMILIES must name every module once"
    )
    text = "\n".join(docs_ops.pages().values())
    for op in OPS.values():
        assert f"## ndd.{op.name} {{" in text
        for p in op.params:
            assert f"| `{p.name}` |" in docs_ops.entry(op)
    assert "## ndd.EvalContext" in text and "## ndd.readers.File" in text


def test_methods_of_tensors_and_batches_are_in_the_reference():
    text = docs_ops.pages()["tensors"]
    for kind in (ndd.Tensor, ndd.Batch):
        own = text.split(f"## ndd.{kind.__name__}\n")[1].split("## ndd.")[0]
        for name in dir(kind):
            if not name.startswith("_"):
                assert f"| `{name}` | " in own or f"### {kind.__name__}.{name}\n" in own, name
                assert inspect.getdoc(getattr(kind, name)), (
                    f"{kind.__name__}.{name} has no docstring"
                )


METHODS = [ndd.Batch.valid, ndd.Batch.torch, ndd.checkpoint.current]


@pytest.mark.parametrize("method", METHODS, ids=["valid", "torch", "current"])
def test_methods_have_examples_that_run(method):
    runner = doctest.DocTestRunner()
    parsed = doctest.DocTestParser().get_doctest(inspect.getdoc(method), {}, "method", None, 0)
    runner.run(parsed)
    assert runner.failures == 0 and runner.tries > 1


def test_generated_tables_are_current():
    for module, page in ((docs_names, docs_names.PAGE), (docs_bench, docs_bench.README)):
        text = page.read_text()
        assert module.BEGIN in text and module.END in text
        assert module.rendered(text) == text, (
            f"{page.name} is old; run: python -m {module.__name__}"
        )


MEASURED = (
    "gaussian_blur laplacian filter debayer equalize clahe normalize reductions.sum "
    "reductions.mean reductions.mean_square reductions.rms reductions.min reductions.max "
    "reductions.std_dev reductions.variance"
).split()
OF_OPENCV = [f"experimental.{name}" for name in ("dilate", "erode", "median_blur")]


def test_numerics_has_a_row_for_every_op_with_neighbours_or_sums():
    lines = (ROOT / "docs" / "numerics.md").read_text().splitlines()
    rows = {line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")}
    wanted = {*MEASURED, *(f"{name} (OpenCV)" for name in OF_OPENCV)}
    missing = wanted - rows
    assert not missing, (
        f"numerics.md lacks {sorted(missing)}; run: python -m tests.conformance.report"
    )
    assert {name.removesuffix(" (OpenCV)") for name in wanted} <= set(OPS)


def test_numerics_mentions_every_op():
    page = (ROOT / "docs" / "numerics.md").read_text()
    missing = numerics.unmentioned(page)
    assert not missing, f"numerics.md lacks {missing}; run: python -m tests.conformance.report"


def test_numerics_keeps_the_rows_of_ops_that_were_not_compared_again():
    def line(**facts):
        return json.dumps(facts)

    values = dict(dtype="u8", max_abs=0.0, max_rel=0.0, differing=0)
    old = numerics.rendered("", [
        line(op="flip", total=5, **values), line(op="crop", total=3, **values),
        line(op="noise.shot", draws=10, distance=0.25), line(op="random.beta", draws=9, distance=0.5),
    ])  # fmt: skip
    new = numerics.rendered(old, [
        line(op="crop", total=7, **values), line(op="crop", total=1, **values),
        line(op="random.beta", draws=20, distance=0.1), line(op="random.beta", draws=2, distance=0.9),
    ])  # fmt: skip
    rows = [text for text in new.splitlines() if text.startswith("| ")]
    assert rows[1:3] == ["| crop | u8 | 8 | 0 | – | – |", "| flip | u8 | 5 | 0 | – | – |"]
    assert rows[4:] == ["| noise.shot | 10 | 0.250 |", "| random.beta | 20 | 0.100 |"]
    missing = numerics.unmentioned(new)
    assert "rotate" in missing and not {"crop", "flip", "random.beta", "jitter"} & set(missing)
    assert set(numerics.REASONS) <= {*OPS, "imread"}


@pytest.mark.gpu
def test_gpu_page_has_a_row_for_every_kernel(monkeypatch):
    from ndd.kernels.cpu.runtime import kernel_name
    from tests.gpu.programs import all_kernels
    from tests.gpu.report import PAGE, row_name

    monkeypatch.setenv("NDD_GPU", "simulate")
    text = PAGE.read_text()
    names = {row_name(kernel_name(spec, "")) for spec in all_kernels()}
    missing = {name for name in names if f"| `{name}` |" not in text}
    assert not missing, f"gpu.md lacks {sorted(missing)}; run: python -m tests.gpu.report"
    for op in (*MEASURED, *OF_OPENCV):
        assert f"`{op.replace('.', '_')}" in text or f"_{op.replace('.', '_')}_" in text, op


def test_table_of_single_ops_is_current():
    text = docs_bench.OPS_PAGE.read_text()
    assert docs_bench.BEGIN in text and docs_bench.END in text
    assert docs_bench.rendered_ops(text) == text, "performance.md is old; run: python -m docs.bench"


def test_every_measured_op_has_a_table():
    """Rows of single ops are kept out of the README, and each goal of an op finds its workload."""
    from bench import op_goals

    peers = {"oracle", "opencv", "pillow", op_goals.READ}
    peers |= {op_goals.TORCH, op_goals.SOXR, op_goals.SOUNDFILE}
    for what, workload, peer, least in op_goals.claims():
        assert docs_bench.is_op(workload), f"{what} would fill the README"
        assert least > 0 and peer in peers
    for workload in ("ResNet-50 eval, 2 threads", "resize 224² AA", "SSL: colour twist", "rotate"):
        assert not docs_bench.is_op(workload)


def test_table_of_upstream_names_is_complete():
    import nvidia.dali.experimental.dynamic as upstream

    def public(module, prefix=""):
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                if value.__name__.startswith(f"{upstream.__name__}.") and not name.startswith("_"):
                    yield from public(value, f"{prefix}{name}.")
            elif not name.startswith("_") and getattr(value, "__module__", "") not in (
                "typing",
                "__future__",
                "_thread",
            ):
                yield prefix + name

    # The nodes' module is full of what it imports: only its own classes count.
    nodes = {n for n, v in vars(upstream.pytorch.nodes).items()
             if isinstance(v, type) and v.__module__ == upstream.pytorch.nodes.__name__ and n[0] != "_"}  # fmt: skip
    found = {n for n in public(upstream) if not n.startswith("pytorch.")}
    assert set(docs_names.upstream_names()) == found | {f"pytorch.nodes.{n}" for n in nodes}


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("migrating-*.md")), ids=lambda p: p.stem
)
def test_migration_pages_name_what_is_here(page):
    names = set(re.findall(r"`ndd\.([a-z_]\w*(?:\.\w+)*)", page.read_text()))
    for name in names - {
        "reductions",
        "segmentation",
        "experimental.readers",
    }:  # rows of missing modules
        assert reduce(getattr, name.split("."), ndd), name


def test_newest_results_are_those_of_the_last_commit(tmp_path):
    rows = [("a", "ndd", 3.0, "old"), ("a", "x", 1.0, "old"), ("a", "ndd", 2.0, "new"), ("a", "oracle", 8.0, "new"),
            ("a", "ndd", 4.0, "new"), ("a", "y", 2.0, "new"), ("b", "ndd", 1.0, "new")]  # fmt: skip
    path = tmp_path / "results.csv"
    head = "date,commit,machine,workload,name,value,unit,spread,busy\n"
    path.write_text(head + "".join(f"d,{c},m,{w},{n},{v},s,0,0\n" for w, n, v, c in rows))
    found = docs_bench.newest(path)
    assert set(found["a"]) == {"ndd", "oracle", "y"}
    line = docs_bench.table(found).splitlines()[2:]
    assert line == ["| a | 4e+03 ms | 8e+03 ms | 2× | 2e+03 ms (y) | 0.5× | d, new |"]


def test_contributing_example_works_as_written():
    """Run the op of CONTRIBUTING's walk, taken from the page itself."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    import inspect

    from ndd.ops.pointwise import color

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
        assert path.read_text() == text, f"{path.name} is old; run: python -m ndd.tools.stubs"


def test_every_op_documents_its_parameters():
    for op in OPS.values():
        assert op.doc, f"{op.name} has no summary"
        for p in op.params:
            assert p.doc, f"{op.name}: `{p.name}` has no description"
            assert p.name in op.public.__doc__
