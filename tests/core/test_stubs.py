"""Completion: `dir`, `inspect.signature` and the stubs agree with the definitions of the ops."""

from __future__ import annotations

import ast
import inspect
import typing
from pathlib import Path

import pytest

import ndd
from ndd.core.schema import OPS, REQUIRED
from ndd.kernels.ir import dtypes as dt
from ndd.readers.files import FILE_FILTERS
from ndd.tools import stubs

MODULES = [ndd, *(getattr(ndd, n) for n in ndd.__all__ if isinstance(getattr(ndd, n), type(ndd)))]


def test_dir_lists_the_public_names():
    names = [n for n in dir(ndd) if not n.startswith("__")]
    assert names == sorted(ndd.__all__)
    for module in MODULES:
        assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_op_has_a_signature(name):
    op = OPS[name]
    found = inspect.signature(op.public).parameters
    assert list(found)[-2:] == ["batch_size", "device"]
    assert set(found) == {p.name for p in op.params} | {"batch_size", "device"}
    for p in op.params:
        shown = found[p.name]
        required = p.default is REQUIRED
        assert (shown.default is inspect.Parameter.empty) == required
        assert required or shown.default is p.default
        assert (shown.kind is shown.KEYWORD_ONLY) == (not p.positional)
    assert not any(p.kind is p.VAR_KEYWORD for p in found.values())


def test_readers_have_the_arguments_of_all_readers():
    found = inspect.signature(ndd.readers.File).parameters
    assert {"file_root", "shard_id", "random_shuffle", "on_error"} <= set(found)
    assert not any(p.kind is p.VAR_KEYWORD for p in found.values())
    defaults = {"num_shards": 1, "initial_fill": 1024, "seed": -1, "random_shuffle": False}
    assert {n: found[n].default for n in defaults} == defaults
    files = {"read_ahead": False, "tensor_init_bytes": 1 << 20, "file_filters": FILE_FILTERS}
    assert {n: found[n].default for n in files} == files


def functions(path: Path) -> dict[str, list[ast.FunctionDef]]:
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_a_stub_says_what_inspect_says(module):
    """Parameters in the same order, required or with the same default."""
    path = Path(module.__file__).with_suffix(".pyi")
    if not path.exists():
        assert not any(
            getattr(module, n) in stubs._PUBLIC
            for n in module.__all__
            if inspect.isfunction(getattr(module, n))
        )
        return
    namespace = {"_dt": dt}
    for name, overloads in functions(path).items():
        real = inspect.signature(getattr(module, name)).parameters
        for node in overloads:
            a = node.args
            positional = [*a.posonlyargs, *a.args]
            vararg = [a.vararg] if a.vararg else []
            assert [x.arg for x in (*positional, *vararg, *a.kwonlyargs)] == list(real), name
            defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
            pairs = [*zip(positional, defaults), *zip(a.kwonlyargs, a.kw_defaults)]
            forced = OPS[name].outputs if name in OPS else None
            for x, default in pairs:
                if x.arg == forced:
                    continue
                wanted = real[x.arg].default
                if default is None:
                    assert wanted is inspect.Parameter.empty, (name, x.arg)
                else:
                    assert eval(ast.unparse(default), namespace) == wanted, (name, x.arg)


def test_names_of_types_and_enums_are_complete():
    from ndd import typing as ours

    def names(alias):
        return set(typing.get_args(alias))

    numeric = {n for n, t in dt._BY_NAME.items() if t in dt.NUMERIC}
    assert names(ours.DTypeName) == numeric
    assert names(ours.ImageTypeName) == set(dt.DALIImageType.__members__)
    assert names(ours.InterpTypeName) == set(dt.DALIInterpType.__members__)


def test_operators_of_the_stub_exist():
    text = stubs.render()[Path(ndd.__file__).with_name("core") / "operators.pyi"]
    (body,) = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef)]
    found = {n.name for n in body.body if isinstance(n, ast.FunctionDef)}
    assert {
        "__add__",
        "__rsub__",
        "__lt__",
        "__eq__",
        "__neg__",
        "__abs__",
        "__matmul__",
    } - found == {"__matmul__"}
    assert all(hasattr(ndd.Tensor, n) for n in found)
