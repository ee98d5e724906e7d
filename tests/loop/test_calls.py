"""There is one way to make a call, and calls compare equal only if their results are equal."""

from __future__ import annotations

import ast
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.core.schema import OPS
from ndd.fusion.graph.node import Node
from ndd.loop import calls
from ndd.loop.calls import Call, Iteration, Recorded, Recording, Ref, UnrepeatableError
from ndd.runtime.context import current_context, current_mode
from ndd.runtime.rng import use_default_rng
from tests.helpers import ROOT

# -- one way to make a call ----------------------------------------------------------------------


class Follower:
    """Stands in for a loop: notes each call and makes it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def follow(self, call: Call) -> Any:
        self.calls.append(call)
        calls.this_thread.loop = None
        try:
            return call.result()
        finally:
            calls.this_thread.loop = self  # type: ignore[assignment]


@pytest.fixture
def follower() -> Iterator[Follower]:
    found = Follower()
    calls.this_thread.loop = found  # type: ignore[assignment]
    yield found
    calls.this_thread.loop = None


def test_all_ops_are_called_in_one_way() -> None:
    assert len(OPS) > 50
    for op in OPS.values():
        assert op.public.__globals__["_made"] is calls.made and op.public.__globals__["_op"] is op
        # A loop never makes a call with effects in advance, so it does not follow it either.
        names = [n for n in op.public.__code__.co_names if n in ("_made", "_call", "_op")]
        assert names == (["_call", "_op"] if op.has_effects else ["_made", "_op", "_call"])
        assert {*op.public.__code__.co_names} - {*names} <= {
            "_reject",
            "_too_many",
            "_listed",
            "_NOTHING",
        }
    assert {op.name for op in OPS.values() if op.has_effects} == {"dump_image"}


def test_everything_that_makes_a_value_of_values_is_followed(follower: Follower) -> None:
    b, t = ndd.batch([[1.0, 2.0], [3.0, 4.0]]), ndd.tensor([[1.0, 2.0]])
    assert not follower.calls  # making a value from data is not a call
    results = [
        ndd.flip(ndd.reshape(t, shape=[1, 2, 1], layout="HWC")), ndd.cat(t, t, axis=0), b + 1, 1 - b,
        -t, abs(t), b > b, ndd.math.sin(t), t[0], b.slice[0:1], b.to_device("cpu", True),
        ndd.random.uniform(range=[0.0, 1.0], batch_size=2),
    ]  # fmt: skip
    seen = [getattr(c.op, "name", c.op) for c in follower.calls]
    assert seen == [
        "reshape", "flip", "cat", "+", "-", "unary -", "math.abs", ">", "math.sin", "index", "index",
        "to_device", "random.uniform",
    ]  # fmt: skip
    assert all(isinstance(r, (ndd.Tensor, ndd.Batch)) for r in results)
    assert [c.arguments[: c.inputs] for c in follower.calls[3:5]] == [(b, 1), (1, b)]


def test_a_call_names_its_generator(follower: Follower) -> None:
    rng = ndd.random.RNG(seed=1)
    x = ndd.random.uniform(range=[0.0, 1.0])
    ndd.random.uniform(range=[0.0, 1.0], rng=rng) + x
    assert [c.rng() for c in follower.calls] == [ndd.random.get_default_rng(), rng, None]


# The functions that make calls, and where they are defined.
MAKERS = {
    "call": "core/call.py", "_applied": "ops/pointwise/arithmetic.py",
    "_getitem": "ops/shape/indexing.py", "_moved": "core/handle.py",
}  # fmt: skip


def test_nobody_makes_a_call_another_way() -> None:
    """Functions that make calls are only passed to `made`, never called directly, and only
    ndd/loop reads `this_thread.loop`."""
    package = ROOT / "ndd"
    given, watchers = {"call"}, set()  # the generated source of public functions passes `call`
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
        for node in nodes:
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "this_thread.loop":
                watchers.add(file)
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "made":
                given.add(ast.unparse(node.args[3]))
            is_maker = node.func.id in imported or MAKERS.get(node.func.id) == file
            assert node.func.id not in MAKERS or not is_maker, f"{file}:{node.lineno}"
    assert given == set(MAKERS)
    assert watchers == {"loop/calls.py", "loop/loop.py"}


# -- when a call is the same ---------------------------------------------------------------------


def iteration() -> Iteration:
    return Iteration(Recording(current_context(), current_mode()))


def recorded(value: Any, here: Iteration) -> Recorded:
    return Recorded.of(called(value), None, here)


def called(value: Any) -> Call:
    return Call("op", (value, None), 1, lambda op, inputs, choices: inputs[0])


def is_same(a: Any, b: Any) -> bool:
    here = iteration()
    return recorded(a, here).is_made_by(called(b), here)


def other(value: Any) -> Any:
    """An equal value in a new object."""
    return pickle.loads(pickle.dumps(value))


F32 = np.float32
EQUAL = [
    None, True, 12345678, -1, 0.1, -0.0, math.nan, math.inf, "linear", b"bytes", ndd.uint8, ...,
    ndd.Device("cpu"), ndd.types.INTERP_CUBIC, F32(0.1), np.int64(7), np.bool_(True),
    [1, 2.5], (1, 2.5), [], [[1, 2], (3, [4])], np.arange(6.0).reshape(2, 3), np.zeros(0, F32),
    [np.arange(3), 2],
]  # fmt: skip


@pytest.mark.parametrize("value", EQUAL)
def test_the_same_value_in_another_object(value: Any) -> None:
    assert is_same(value, value)
    assert is_same(value, other(value))


UNEQUAL = [
    (1, True), (1, 1.0), (True, 1.0), (0, False), (1, 2), (0.0, -0.0), (math.nan, -math.nan),
    (math.nan, 0.0), (0.1, math.nextafter(0.1, 1)), (1, "1"), ("a", b"a"), ("a", "b"), (None, 0),
    (None, False), ([1], (1,)), ([1], [1, 1]), ([], ()), ([0.0], [-0.0]), ([1], [True]), ([1], 1),
    ((1, (2, 3)), (1, (2, 4))), (slice(0, 2), slice(0, 2, 1)), (slice(0, 2), slice(0.0, 2)),
    (slice(0, 2), slice(False, 2)), (slice(0, 2), (0, 2, None)), (slice(None), None), (F32(1), 1.0),
    (F32(1), np.float64(1)), (np.float64(1), 1.0), (F32(0.0), F32(-0.0)), (np.int8(1), np.uint8(1)),
    (np.ones(2), np.ones(2, F32)), (np.ones(2), np.ones((1, 2))), (np.ones(1), [1.0]),
    (np.zeros(2), -np.zeros(2)), (np.ones(()), np.float64(1)), (ndd.uint8, ndd.int8),
    (ndd.uint8, "uint8"), (ndd.Device("cpu"), "cpu"), (len, abs), (int, float),
    (ndd.types.INTERP_CUBIC, ndd.types.INTERP_LINEAR),
    (ndd.types.INTERP_CUBIC, int(ndd.types.INTERP_CUBIC)),
    (ndd.random.RNG(seed=1), ndd.random.RNG(seed=1)), ((lambda: 1), (lambda: 1)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_another_value(a: Any, b: Any) -> None:
    assert not is_same(a, b)
    assert not is_same(b, a)
    assert not is_same([1, a], [1, b])


def test_slices() -> None:
    assert is_same(slice(1, None, -2), slice(1, None, -2))
    assert is_same((..., slice(0, 5), 3), (..., slice(0, 5), 3))


def test_what_is_called_is_the_same_object() -> None:
    rng = ndd.random.RNG(seed=1)
    for value in (len, rng, np.float32):
        assert is_same(value, value) and is_same([value], [value])


def test_a_call_with_more_arguments_or_another_op() -> None:
    here = iteration()
    known = recorded(1, here)
    assert known.is_made_by(called(1), here)
    assert not known.is_made_by(called(1)._replace(arguments=(1, None, None)), here)
    assert not known.is_made_by(called(1)._replace(arguments=(1,)), here)
    assert not known.is_made_by(called(1)._replace(op="other"), here)


@pytest.mark.parametrize("change", ["array", "list", "nested", "array in a list"])
def test_what_was_changed_in_place(change: str) -> None:
    values: dict[str, Any] = {
        "array": np.zeros(3), "list": [1, 2], "nested": [[1, 2], 3], "array in a list": [np.ones(2)]
    }  # fmt: skip
    value, here = values[change], iteration()
    known = recorded(value, here)
    assert known.is_made_by(called(value), here)
    target = value if change in ("array", "list") else value[0]
    before, target[0] = target[0], 7
    assert not known.is_made_by(called(value), here)
    target[0] = before
    assert known.is_made_by(called(value), here)  # the recorded value is a copy


@pytest.mark.parametrize(
    "value",
    [
        object(), {1, 2}, {"a": 1}, range(3), 1j, np.zeros(calls.MAX_ARRAY_BYTES + 1, np.uint8),
        np.array([None]), [1, [object()]], slice(0, object()), np.zeros(2).view(np.recarray),
        np.str_("x" * calls.MAX_ARRAY_BYTES),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_what_cannot_be_compared(value: Any) -> None:
    with pytest.raises(UnrepeatableError):
        recorded(value, iteration())
    assert not is_same(1, value)


def test_the_largest_array_that_is_compared() -> None:
    value = np.zeros(calls.MAX_ARRAY_BYTES, np.uint8)
    assert is_same(value, value.copy())


def test_another_generator_of_the_thread() -> None:
    """A call that names no generator uses the default one, which `ndd.warmup` replaces."""
    uniform, make = OPS["random.uniform"], lambda op, inputs, choices: None
    call, here = Call(uniform, (None,) * (len(uniform.others) + 2), 0, make), iteration()
    known = Recorded.of(call, None, here)
    assert known.rng is ndd.random.get_default_rng() and known.is_made_by(call, here)
    with use_default_rng(ndd.random.get_default_rng().clone()):
        assert not known.is_made_by(call, here)


# -- values of the iteration, and from outside ---------------------------------------------------


def test_a_value_is_known_by_the_call_that_made_it() -> None:
    here, later = iteration(), iteration()
    x, same = ndd.tensor([1.0]), ndd.tensor([1.0])
    here.claim(3, [same._node, x._node])
    known = recorded([x, 5], here)
    assert known.call.arguments[0] == [Ref(3, 1), 5] and known.uses == [Ref(3, 1)]
    assert known.is_made_by(called([x, 5]), here)
    assert not known.is_made_by(called([same, 5]), here)
    y = ndd.tensor([1.0])
    later.claim(3, [ndd.tensor([1.0])._node, y._node])
    assert known.is_made_by(called([y, 5]), later)
    assert not known.is_made_by(called([x, 5]), later)  # `x` was made in another iteration


def test_a_value_from_outside() -> None:
    x, same = ndd.tensor([1.0]), ndd.tensor([1.0])
    assert is_same(x, x) and not is_same(x, same)
    with pytest.raises(UnrepeatableError):  # others may write to external memory
        recorded(ndd.as_tensor(np.zeros(3)), iteration())
    with ndd.EvalMode.deferred, pytest.raises(UnrepeatableError):  # not computed yet
        recorded(x + 1, iteration())


def test_a_call_that_returns_a_value_from_outside_did_not_make_it() -> None:
    here, x = iteration(), ndd.tensor([1.0])
    call = Call("to_device", (x, "cpu", False), 1, lambda *_: x)
    here.recording.add(call, x, here)
    assert len(here.recording.calls) == 1 and here.key(x) == (Node, id(x._node))
