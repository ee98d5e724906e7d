"""Caches in memory have one owner and a bound, can be cleared at any time, and hold their keys."""

from __future__ import annotations

import ast
import functools
import gc
import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.kernels.common import memo
from ndd.kernels.common.memo import Memo, memoized, once
from ndd.kernels.cpu import runtime as cpu_runtime
from tests.gpu.programs import PROGRAMS
from tests.helpers import ROOT, arrays, assert_same, nothing_compiled

# A varied selection: literals, constants, tables, cores, functions that kernels inline, random
# numbers, opaque steps.
SOME = (
    "brightness", "crop pad", "lookup_table", "permute_batch", "operators", "long chain",
    "resize normalise", "resize nearest", "rotate", "noise.gaussian", "noise.shot", "transforms",
    "random_resized_crop", "cat",
)  # fmt: skip
ON_GPU = ("brightness", "crop pad", "lookup_table", "resize normalise", "noise.gaussian")


def run(name: str, device: str = "cpu") -> list[np.ndarray[Any, Any]]:
    samples, layout, program = PROGRAMS[name]
    return arrays(program(ndd.batch(samples, layout=layout, device=device)))


# -- the owner -----------------------------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unregister the caches that a test makes."""
    monkeypatch.setattr(memo, "_clearing", dict(memo._clearing))


@pytest.mark.usefixtures("registered")
def test_a_full_memo_starts_again() -> None:
    kept: Memo[int, int] = Memo("a test's", 3)
    for k in range(3):
        kept[k] = -k
    assert [kept.get(k) for k in range(4)] == [0, -1, -2, None]
    kept[1] = 5  # no new key: nothing has to go
    assert kept.setdefault(2, 7) == -2 and len(kept) == 3
    kept[3] = -3
    assert len(kept) == 1 and kept.get(3) == -3 and 0 not in kept
    for k in range(1000):
        assert kept.setdefault(k, -k) == -k and kept.get(k) == -k
        assert len(kept) <= kept.limit
    kept.clear()
    assert len(kept) == 0 and kept.get(3) is None


@pytest.mark.usefixtures("registered")
def test_a_function_remembers_its_last_results() -> None:
    calls = []

    @memoized(2)
    def double(x: float) -> float:
        calls.append(x)
        return 2 * x

    assert [double(x) for x in (1, 1, 1.0, True)] == [2, 2, 2.0, 2]
    assert list(map(type, calls)) == [int, float, bool]  # equal, but not the same
    assert double(1) == 2 and len(calls) == 4  # forgotten
    memo.clear_all()
    assert double(1) == 2 and len(calls) == 5
    loose = memoized(2, typed=False)(lambda x, y: calls.append(x))
    assert loose(1, 2) == loose(1.0, 2) == loose(True, 2.0) and len(calls) == 6


@pytest.mark.usefixtures("registered")
def test_names_are_unique() -> None:
    Memo("a test's", 1)
    with pytest.raises(AssertionError, match="two caches are called a test's"):
        Memo("a test's", 1)
    memoized(1)(run)
    with pytest.raises(AssertionError, match=r"two caches are called .*test_memo\.run"):
        memoized(1)(run)
    names = memo.names()
    assert len(names) == len(set(names)) > 40
    assert {"plans", "CPU kernels", "kinds", "literal arguments"} <= set(names)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("limit", [1000, 2])
def test_threads_that_miss_together_get_one_object(limit: int) -> None:
    kept: Memo[int, object] = Memo("a test's", limit)
    shared = once(object)
    count = 8
    barrier = threading.Barrier(count)
    found: list[list[object]] = [[] for _ in range(count)]

    def look_up(mine: list[object]) -> None:
        for key in range(200):
            barrier.wait()
            value = kept.get(key)
            mine.append(kept.setdefault(key, object()) if value is None else value)
        mine.append(shared())

    threads = [threading.Thread(target=look_up, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(set(map(id, each))) == 1 for each in zip(*found, strict=True))


def test_one_object_for_good() -> None:
    made = []

    @once
    def value() -> object:
        made.append(object())
        return made[-1]

    assert value() is value() is made[0] and value.__name__ == "value"
    memo.clear_all()
    assert value() is made[0] and len(made) == 1


# -- clearing ------------------------------------------------------------------------------------


def test_clearing_changes_no_bit(mode: str) -> None:
    before = {name: run(name) for name in SOME}
    memo.clear_all()
    # Kernels come from disk. In eager mode a busy machine may cut a program at another place, which
    # needs other kernels.
    with nothing_compiled() if mode != "eager" else nullcontext():
        for name, wanted in before.items():
            assert_same(run(name), wanted, name)


@pytest.mark.gpu
def test_clearing_changes_no_bit_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NDD_GPU", "simulate")
    before = {name: run(name, "gpu") for name in ON_GPU}
    memo.clear_all()
    for name, wanted in before.items():
        assert_same(run(name, "gpu"), wanted, name)


@pytest.mark.slow(seconds=40)
def test_clearing_changes_no_bit_of_any_op() -> None:
    with ndd.EvalMode.sync_cpu:
        before = {name: run(name) for name in PROGRAMS}
        for name, wanted in before.items():
            memo.clear_all()
            with nothing_compiled():
                assert_same(run(name), wanted, name)


def test_clearing_between_a_call_and_its_result() -> None:
    samples, layout, program = PROGRAMS["long chain"]
    with ndd.EvalMode.deferred:
        wanted = run("long chain")
        x = program(ndd.batch(samples, layout=layout))
        memo.clear_all()
        y = program(ndd.batch(samples, layout=layout))
        both = x + y  # nodes from before and after in one program
        memo.clear_all()
        assert_same(x, wanted)
        assert_same(both, [a + a for a in wanted])


def test_a_forgotten_kernel_is_unloaded_and_loaded_again() -> None:
    with ndd.EvalMode.sync_cpu:
        wanted = run("operators")
        memo.clear_all()
        with nothing_compiled():
            assert_same(run("operators"), wanted)
        loaded = {kernel.address for kernel in cpu_runtime._kernels.entries.values()}
        assert loaded and loaded <= set(cpu_runtime._engines)
        memo.clear_all()
        gc.collect()
        assert not loaded & set(cpu_runtime._engines)
        with nothing_compiled():
            assert_same(run("operators"), wanted)


def test_whoever_holds_a_kernel_can_run_it() -> None:
    memo.clear_all()
    with ndd.EvalMode.sync_cpu:
        run("operators")
        run_kernel = next(iter(cpu_runtime._kernels.entries.values())).run
        memo.clear_all()
        gc.collect()
        assert run_kernel(0, 0, 0) == 0  # over no rows: the code only has to be there


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_clearing_while_others_run(mode: str) -> None:
    wanted = {name: run(name) for name in SOME}
    until, failures = time.monotonic() + 1.5, []
    runs = itertools.count()

    def work(seed: int) -> None:
        names = random.Random(seed)
        with ndd.EvalMode[mode]:
            while time.monotonic() < until and not failures:
                name = names.choice(SOME)
                try:
                    assert_same(run(name), wanted[name], name)
                except BaseException as error:
                    failures.append(error)
                next(runs)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memo.clear_all()
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert next(runs) > 10


def test_results_do_not_depend_on_what_was_cached_before() -> None:
    """0.0 and -0.0 are equal keys."""
    x = ndd.tensor(np.ones((2, 2, 3), np.float32), layout="HWC")
    codes = ndd.tensor(np.array([0, 1], np.int32))
    for zeros in ((0.0, -0.0), (-0.0, 0.0)):
        memo.clear_all()
        for zero in zeros:
            negative = bool(np.signbit(zero))
            fill = [zero, 1.0, 2.0]
            corner = ndd.crop(x, crop=(4, 4), fill_values=fill, out_of_bounds_policy="pad")
            assert np.signbit(np.asarray(corner)[0, 0, 0]) == negative
            entries = ndd.lookup_table(codes, keys=[0], values=[zero], default_value=zero)
            assert np.signbit(np.asarray(entries)).tolist() == [negative] * 2
            assert np.signbit(np.asarray(x * zero)).all() == negative


# -- the source ----------------------------------------------------------------------------------

# Containers that functions add to and that are not caches, with the reason. All others must be a
# Memo. Thread-local containers count, too: they live as long as the thread.
REGISTRIES = {
    ("kernels/common/background.py", "_finals"): "what to do at exit, once per module",
    ("kernels/common/forks.py", "_foreign"): "locks of other packages, one per module",
    ("kernels/common/forks.py", "_renewals"): "what a child makes anew, once per module",
    ("kernels/common/forks.py", "_taken"): "for the time of a fork",
    ("ndd/codecs/image/isolated/decoder_process.py", "_running"): "decoder processes that live",
    ("kernels/common/memo.py", "_clearing"): "the owner's own list of all caches",
    ("kernels/common/threads.py", "_local.inside"): "which crews a thread works in now",
    ("kernels/cpu/decode_loop/decoder.py", "_own.decoders"): "a thread's two decoders",
    ("kernels/cpu/functions.py", "_sources"): "named by the text of kernels; four",
    ("kernels/cpu/bus_errors.py", "_maps"): "a table of fixed size that a signal handler reads",
    ("kernels/cpu/bus_errors.py", "_chain"): "a table of fixed size that a signal handler reads",
    ("kernels/cpu/bus_errors.py", "_free"): "the rows of that table that are not in use",
    ("kernels/cpu/bus_errors.py", "_is_installed"): "one at most",
    ("kernels/cpu/bus_errors.py", "_looked_at"): "one number",
    ("kernels/cpu/helpers.py", "_loaded"): "native code that kernels are linked with",
    ("kernels/gpu/kernel.py", "linecache.cache"): "Python's: Triton looks for the text there",
    ("ndd/cli/explain.py", "executor.observers"): "for the time of a block",
    ("ndd/core/handle.py", "_waiting.handles"): "weak ones on pending values; swept",
    ("ndd/core/schema.py", "OPS"): "the definitions of all ops",
    ("ndd/loop/ahead.py", "_Thread.idle"): "threads that wait for work",
    ("ndd/ops/audio/audio_decoder.py", "errors"): "the user's list of bad files, each once",
    ("ndd/ops/images/image_decoders.py", "errors"): "the user's list of bad files, each once",
    ("ndd/ops/video/video_decoder.py", "errors"): "the user's list of bad files, each once",
    ("ndd/runtime/rng.py", "_seeded"): "one at most",
    ("kernels/common/forks.py", "_preparations"): "modules register themselves when imported",
    ("ndd/runtime/context.py", "_default_streams"): "the user's choice for each GPU",
    ("ndd/runtime/context.py", "_local.streams.chosen"): "a thread's choice for each GPU",
    (
        "ndd/core/dlpack.py",
        "_exported",
    ): "what consumers of DLPack still use; they say when they are done",
    ("ndd/runtime/gpu_runtimes.py", "_runtimes"): "each owns what a stream still works on",
}
# Functions whose keys contain an `id`, with the reason why the object lives as long as the key.
IDENTITIES = {
    ("fusion/plan/program.py", "_collected"): "a dictionary of the call",
    ("fusion/plan/program.py", "_writable_twins"): "sets of the call, which has the nodes",
    ("fusion/plan/program.py", "_identity"): "a dictionary of the call",
    ("fusion/plan/program.py", "_input"): "a dictionary of the call",
    ("ndd/core/call.py", "_with_doubts"): "compared at once, while both nodes are there",
    ("fusion/run/executor.py", "unpicked"): "a dictionary of the call",
    ("fusion/run/executor.py", "live_sinks"): "a set of the call",
    ("kernels/gpu/runtime.py", "constant"): "the entry has the array",
    ("ndd/cli/explain.py", "recorded"): "the entry has the report, and that has the plan",
    ("ndd/readers/contents.py", "storage"): "a dictionary of the call",
    ("ndd/readers/stores/remote.py", "_asked"): "a dictionary of the call, whose entries have it",
    ("ndd/readers/stores/remote.py", "_merged"): "an order of the call's own parts",
    ("ndd/loop/calls.py", "key"): "compared at once, while both values are there",
    (
        "kernels/cpu/native/compile.py",
        "_once_per_value",
    ): "a dictionary of the call, whose entries have it",
}
ADDING = {"add", "append", "appendleft", "extend", "insert", "setdefault", "update", "__setitem__"}
WEAK = {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary"}  # they keep nothing alive
ENVIRONMENT = {"os.environ", "sys.path"}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@functools.cache
def sources() -> list[tuple[str, ast.Module]]:
    """All files of the package, by their paths."""
    root = ROOT.resolve()
    paths = (p for f in ("ndd", "fusion", "kernels") for p in sorted((root / f).rglob("*.py")))
    real = (p for p in paths if p.resolve() == p)  # not through the links in ndd/
    return [(str(p.relative_to(root)), ast.parse(p.read_text())) for p in real]


def shared_names(body: list[ast.stmt]) -> set[str]:
    """Names that a module or a class assigns, except irrelevant ones."""
    found = set[str]()
    for statement in body:
        inner = ast.walk(statement) if isinstance(statement, (ast.If, ast.Try)) else [statement]
        for node in inner:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {(a.asname or a.name).split(".")[0] for a in node.names}
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue  # an annotation alone makes no container: it declares a field of instances
            made_by = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
            if made_by.rpartition(".")[2] not in {"Memo", "field", *WEAK}:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                parts = (part for target in targets for part in ast.walk(target))
                found |= {part.id for part in parts if isinstance(part, ast.Name)}
    return found


def local_names(function: Function) -> set[str]:
    a = function.args
    found = {x.arg for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg] if x}
    others = set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Global):
            others |= set(node.names)
    return found - others


def added_to(function: Function) -> Iterator[str]:
    """Containers that a function adds to: `x` and `x.y` in `x[k] = v` and `x.y.append(v)`, also
    through an alias."""
    others = {
        target.id: ast.unparse(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        found = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found = ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = ast.unparse(node.func.value) if node.func.attr in ADDING else None
        if found is not None:
            yield others.get(found, found)


def growing(tree: ast.Module) -> Iterator[str]:
    """Containers of a module, of its classes or of other modules that its functions add to."""
    modules = {
        (a.asname or a.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for a in node.names
    }
    shared = shared_names(tree.body) | modules
    of_classes = set[str]()
    for c in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        own = shared_names(c.body)
        of_classes |= {f"{c.name}.{name}" for name in own}
        for function in (n for n in c.body if isinstance(n, Function)):
            names = {f"{who}.{name}" for name in own for who in ("self", "cls")}
            yield from names.intersection(added_to(function))
    for function in (n for n in ast.walk(tree) if isinstance(n, Function)):
        local = local_names(function)
        for name in added_to(function):
            first = name.partition(".")[0]
            # `np.add(a, b)` is a call, and no container is a module
            if first in local or name in modules or name in ENVIRONMENT:
                continue
            if first in shared or name in of_classes:
                yield name


def unbounded(tree: ast.Module) -> Iterator[str]:
    """Uses of Python's own caches, except on functions without arguments."""
    kinds = {"functools.cache", "functools.lru_cache"}
    single = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "functools":
            kinds |= {a.asname or a.name for a in node.names if a.name in ("cache", "lru_cache")}
        elif isinstance(node, ast.FunctionDef) and not ast.unparse(node.args):
            single |= {part for d in node.decorator_list for part in ast.walk(d)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in kinds:
            if node not in single:
                yield f"{ast.unparse(node)} in line {node.lineno}"


def identities(tree: ast.Module) -> Iterator[str]:
    """Functions that use `id`."""
    methods = [n for c in tree.body if isinstance(c, ast.ClassDef) for n in c.body]
    for function in (n for n in (*tree.body, *methods) if isinstance(n, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "id":
                yield function.name


def test_every_container_that_grows_is_a_memo() -> None:
    found = {(file, name) for file, tree in sources() for name in growing(tree)}
    assert found - REGISTRIES.keys() == set(), "make it a Memo (kernels/common/memo.py)"
    assert REGISTRIES.keys() - found == set(), "these are no more"


def test_every_function_that_remembers_is_memoized() -> None:
    found = {file: [*unbounded(tree)] for file, tree in sources()}
    assert len(found.pop("kernels/common/memo.py")) == 1  # the one that counts and clears
    assert {file: uses for file, uses in found.items() if uses} == {}, "use `memoized`"


def test_no_key_is_the_id_of_something_that_may_be_gone() -> None:
    found = {(file, name) for file, tree in sources() for name in identities(tree)}
    assert found - IDENTITIES.keys() == set(), "the entry must hold the object: say where"
    assert IDENTITIES.keys() - found == set(), "these are no more"


CACHES = """
import functools, other
from functools import cache, lru_cache as remember
from ndd.kernels.common.memo import Memo, memoized
a, b, c, d, e = {}, dict(), [], set(), threading.local()
good = Memo("good", 4)
class Thing:
    known = {}
    def __init__(self): self.mine = {}; self.mine[1] = 1
    def keep(self, k): self.known[k] = 1
    def also(k): Thing.known.setdefault(k, 1)
def add(k, v):
    a[k] = v
    found = b[k] = v
    c.append(v), d.add(v), good.setdefault(k, v), other.things.update(v)
    a = {}
def really(k, v):
    a[k] = v
    own, same = {}, good
    own[k] = same[k] = v
    alias = e.f
    alias[k] = v
@cache
def single(): pass
@functools.lru_cache(maxsize=None)
def one(x): pass
@remember
def two(*x): pass
three = cache(add)
@memoized(4)
def four(x): return x
"""


def test_the_search_finds_what_it_should() -> None:
    tree = ast.parse(CACHES)
    found = {"a", "b", "c", "d", "e.f", "other.things", "self.known", "Thing.known"}
    assert set(growing(tree)) == found
    lines = CACHES.splitlines()
    used = [lines[int(use.rpartition(" ")[2]) - 1] for use in unbounded(tree)]
    assert sorted(used) == ["@functools.lru_cache(maxsize=None)", "@remember", "three = cache(add)"]
    assert set(identities(ast.parse("def f(x): y[id(x)] = 1"))) == {"f"}
