"""Operators of Tensor and Batch: types of results, values, numbers of others, graphs."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from tests.conformance.arithmetic_data import (
    BINARY,
    BITWISE,
    COMPARISONS,
    FLOATS,
    HALVES,
    INTEGERS,
    MODES,
    OPERATORS,
    TYPES,
    as_float32,
    assert_same,
    edges,
    function,
    half_tensor,
    half_values,
    oracle,
    ours,
    pair,
    ramp,
    random_values,
    round_to,
    to_bfloat16,
    tolerance,
)
from tests.conformance.oracle import record

# -- result types --------------------------------------------------------------------------------


def upstream_type(op: str, left: str, right: str) -> str | None:
    """Name of the result type upstream, or None if the types are rejected."""
    with upstream.EvalMode.sync_cpu:
        a, b = (upstream.tensor(np.ones(1, t)) for t in (left, right))
        try:
            return str(function(upstream, op)(a, b).dtype)
        except RuntimeError:
            return None


def our_type(op: str, left: str, right: str) -> str | None:
    with ndd.EvalMode.deferred:  # the type is known without computing anything
        a, b = (ndd.zeros(shape=[1], dtype=getattr(ndd, t)) for t in (left, right))
        try:
            return str(function(ndd, op)(a, b).dtype)
        except TypeError:
            return None


@pytest.mark.parametrize("op", BINARY)
def test_result_types_of_all_pairs(op: str) -> None:
    pairs = list(itertools.product(TYPES, TYPES))
    wanted = {p: upstream_type(op, *p) for p in pairs}
    assert {p: our_type(op, *p) for p in pairs} == wanted


@pytest.mark.parametrize("op", BINARY)
def test_result_types_with_16_bit_floats(op: str) -> None:
    """A half is a float like others: it beats integers and loses against wider floats."""

    def expected(left: str, right: str) -> str | None:
        if op in BITWISE:
            return None
        if op in COMPARISONS:
            return "bool"
        floats = {t for t in (left, right) if "float" in t}
        widest = (
            floats.pop() if len(floats) == 1 else "float64" if "float64" in floats else "float32"
        )
        return {"float16": "f16", "float32": "f32", "float64": "f64"}.get(widest, widest)

    every = (*TYPES, *HALVES)
    pairs = [p for p in itertools.product(every, every) if set(p) & set(HALVES)]
    assert len(pairs) == 48
    assert {p: our_type(op, *p) for p in pairs} == {p: expected(*p) for p in pairs}


def test_types_of_python_numbers() -> None:
    """int is int32, float is float32, bool is bool: not weakly typed."""
    for t, number in itertools.product(TYPES, (2, 2.5, True)):
        with upstream.EvalMode.sync_cpu:
            x = upstream.tensor(np.ones(1, t))
            want = str((x * number).dtype), str((number * x).dtype), str((x / 3).dtype)
        with ndd.EvalMode.deferred:
            y = ndd.zeros(shape=[1], dtype=getattr(ndd, t))
            assert (str((y * number).dtype), str((number * y).dtype), str((y / 3).dtype)) == want


# -- values --------------------------------------------------------------------------------------


def safe_divisor(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`b` with 1 where upstream raises or dies; where `b` was 0; where the quotient was MIN / -1."""
    common = oracle("-", a[:1], b[:1]).dtype
    wide_a, wide_b = a.astype(common), b.astype(common)
    zero = wide_b == 0
    overflow = np.zeros(a.shape, bool)
    if common.kind == "i":
        overflow = (wide_a == np.iinfo(common).min) & (wide_b == -1)
    return np.where(zero | overflow, b.dtype.type(1), b), zero, overflow


def check_values(op: str, left: str, right: str) -> None:
    a, b = pair(left, right)
    what = f"{left} {op} {right}"
    got = ours(op, a, b)
    if op in ("//", "%") and got.dtype.kind != "f":
        divisor, zero, overflow = safe_divisor(a, b)
        want = oracle(op, a, divisor)
        want[zero] = 0
        want[overflow] = np.iinfo(want.dtype).min if op == "//" else 0
    elif op in COMPARISONS and {np.dtype(left).kind, np.dtype(right).kind} == {"i", "f"}:
        common = oracle("-", a[:1], b[:1]).dtype
        want = OPERATORS[op](a.astype(common), b.astype(common))
    else:
        want = oracle(op, a, b)
    record(op if op in OPERATORS else f"math.{op}", [got], [want])
    assert_same(got, want, what, a, b, ulp=tolerance(op, got.dtype))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("op", BINARY)
def test_values_of_one_type(op: str, name: str) -> None:
    if our_type(op, name, name) is None:
        with pytest.raises(TypeError):
            ours(op, edges(name), edges(name))
    else:
        check_values(op, name, name)


@pytest.mark.parametrize("left", TYPES)
def test_values_of_mixed_types(left: str) -> None:
    """Both operands are converted to the common type; comparisons are right for all signs."""
    for right in TYPES:
        if right != left:
            check_values("-", left, right)
            check_values("<", left, right)


@pytest.mark.parametrize(
    ("op", "left", "right"),
    [
        # integers beyond 2**24 keep their digits in a remainder with float32
        ("%", "int32", "float32"), ("%", "float32", "uint64"), ("%", "int64", "float64"),
        ("%", "bool", "float32"), ("%", "int64", "uint64"), ("//", "int8", "uint8"),
        ("//", "uint64", "int32"), ("//", "int16", "float32"), ("**", "int8", "uint16"),
        ("**", "int32", "uint64"), ("**", "uint8", "float32"), ("**", "bool", "int32"),
        ("<<", "uint8", "int8"), (">>", "int64", "uint8"), ("<<", "bool", "uint16"),
        ("/", "int64", "uint64"), ("/", "uint8", "bool"), ("/", "uint32", "float64"),
        ("==", "int64", "uint64"), (">=", "uint64", "int8"), ("!=", "int32", "float32"),
        (">", "float64", "int64"), ("<=", "uint32", "int32"), ("==", "bool", "float32"),
        ("min", "uint64", "int64"), ("max", "int8", "float64"), ("fpow", "int16", "int16"),
        ("&", "bool", "int64"), ("^", "uint32", "int8"), ("|", "uint8", "uint64"),
    ],
)  # fmt: skip
def test_values_where_the_op_treats_mixed_types_in_its_own_way(
    op: str, left: str, right: str
) -> None:
    check_values(op, left, right)


def test_clamp() -> None:
    for names in (
        ("float32",) * 3,
        ("int16",) * 3,
        ("int32", "uint64", "int8"),
        ("uint8", "float32", "bool"),
    ):
        values = [random_values(t, 400, seed) for seed, t in enumerate(names)]
        for x, t in zip(values, names):
            some = edges(t)
            x[:: 400 // len(some)][: len(some)] = some
        got = np.array(ndd.math.clamp(*map(ndd.tensor, values)))
        with upstream.EvalMode.sync_cpu:
            want = np.array(upstream.math.clamp(*map(upstream.tensor, values)))
        record("math.clamp", [got], [want])
        assert_same(got, want, f"clamp {names}", *values)


@pytest.mark.parametrize("name", TYPES)
def test_unary_operators(name: str) -> None:
    x = np.concatenate([edges(name), random_values(name, 300, 3)])
    for op, call in {
        "-": operator.neg,
        "~": operator.invert,
        "abs": abs,
        "+": operator.pos,
    }.items():
        with upstream.EvalMode.sync_cpu:
            try:
                want = np.array(call(upstream.tensor(x)))
            except RuntimeError:
                want = None
        if want is None:
            with pytest.raises(TypeError, match=f"`{op}`"):
                call(ndd.tensor(x))
        else:
            assert_same(np.array(call(ndd.tensor(x))), want, f"{op}{name}", x)


def test_plus_is_the_same_object() -> None:
    x, b = ndd.tensor([1, 2]), ndd.batch([[True], [False]])
    assert +x is x
    assert +b is b


@pytest.mark.parametrize(("a", "b"), [(-7, 3), (7, -3), (-7, -3), (0, 5)])
def test_integer_division_cuts_toward_zero(a: int, b: int) -> None:
    t = ndd.tensor([a])
    quotient, remainder = int(t // b), int(t % b)
    assert quotient == int(a / b)
    assert quotient * b + remainder == a


# -- zero divisors, extremes ---------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
def test_no_divisor_kills_the_process(name: str) -> None:
    info = np.iinfo(name)
    a = np.array([info.min, info.min, info.max, 0, 5], name)
    b = np.array([-1 if info.min else 1, 0, 0, 0, 0], name if info.min else "uint8").astype(name)
    assert ours("//", a, b).tolist() == [int(info.min), 0, 0, 0, 0]
    assert ours("%", a, b).tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("zero", [0, False, np.int32(0), np.uint8(0), np.bool_(False)], ids=repr)
def test_a_literal_zero_divisor_is_an_error(zero: Any) -> None:
    x = ndd.tensor(np.array([1, 2], np.int16))
    for op in ("//", "%"):
        with pytest.raises(ValueError, match=r"Integer division by zero\."):
            OPERATORS[op](x, zero)
        assert OPERATORS[op](ndd.tensor(np.zeros((0, 3), np.int32)), zero).shape == (0, 3)
    # a float division has a result
    assert_same(
        np.array(ndd.tensor([1.0, -1.0]) // zero), np.array([np.inf, -np.inf], np.float32), "//"
    )


# -- numbers and arrays of others ----------------------------------------------------------------


@pytest.mark.parametrize("number", [3, -2, 0.1, -0.0, 1e300, float("nan"), float("inf"), True])
def test_python_numbers_on_either_side(number: Any) -> None:
    for name in ("uint8", "float64"):
        x = np.concatenate([edges(name), random_values(name, 50, 4)])
        for op in ("-", "min", "/", "<"):
            if op == "<" and number == -2 and name in FLOATS:  # wrong upstream, for tensors as well
                assert_same(ours("<", x, number), x < number, "float < -2", x)
                continue
            with np.errstate(over="ignore"):
                there, back = oracle(op, x, number), oracle(op, number, x)
            assert_same(ours(op, x, number), there, f"{name} {op} {number}", x)
            assert_same(ours(op, number, x), back, f"{number} {op} {name}", x)


@pytest.mark.parametrize("name", TYPES)
def test_numpy_numbers_keep_their_type_on_either_side(name: str) -> None:
    x = np.array([1, 2, 100], np.int8)
    number = np.dtype(name).type(1.7 if name in FLOATS else 1)
    got, back = ndd.tensor(x) - number, number - ndd.tensor(x)
    assert type(got) is type(back) is ndd.Tensor
    array = np.full(3, number)
    assert_same(np.array(got), oracle("-", x, array), "tensor - number", x)
    assert_same(np.array(back), oracle("-", array, x), "number - tensor", x)


@pytest.mark.parametrize("op", ["+", "*", "<", "==", "**", "/"])
def test_arrays_on_the_left_do_not_take_over(op: str) -> None:
    array, x = np.array([[1.0], [2.0]], np.float32), np.array([1, 2, 3], np.int32)
    got = OPERATORS[op](array, ndd.tensor(x))
    assert type(got) is ndd.Tensor
    assert_same(np.array(got), oracle(op, array, x), op, ulp=tolerance(op, np.dtype("float32")))
    batch = OPERATORS[op](array, ndd.batch([x, x[:2]]))
    assert type(batch) is ndd.Batch
    assert batch.shape == [(2, 3), (2, 2)]
    assert_same(np.array(batch.tensors[1]), np.array(got)[:, :2], op)


def test_lists_are_tensors() -> None:
    x = np.array([250, 5, 0], np.uint8)
    for values in (
        [1, 2, 3],
        [0.5, 1, 2],
        [True, False, True],
        [3_000_000_000, 0, 1],
        [[1], [2]],
        (4, 5, 6),
    ):
        with upstream.EvalMode.sync_cpu:
            want = np.array(upstream.tensor(x) - values), np.array(values - upstream.tensor(x))
        assert_same(np.array(ndd.tensor(x) - values), want[0], f"tensor - {values}")
        assert_same(np.array(values - ndd.tensor(x)), want[1], f"{values} - tensor")


def test_an_array_operand_is_read_at_the_call() -> None:
    array = np.array([1.0, 2.0], np.float32)
    for mode in MODES:
        with ndd.EvalMode[mode]:
            total = ndd.tensor([10.0, 10.0]) + array
            array += 100
            assert np.array(total).tolist() == [11.0, 12.0], mode
            array -= 100


# -- 16-bit floats -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HALVES)
def test_16_bit_floats_compute_in_float32_and_round_once(name: str) -> None:
    a = half_values(name, 5)
    b = np.concatenate([np.tile(a[:121:11], 11), half_values(name, 6)[121:]])
    x, y = half_tensor(name, a), half_tensor(name, b)
    assert_same(as_float32(x), a, "values of the test", a)
    for op in ("+", "-", "*", "/", "//", "%", "min", "max"):
        got = function(ndd, op)(x, y)
        assert got.dtype is getattr(ndd, name)
        assert_same(as_float32(got), round_to(name, oracle(op, a, b)), f"{name} {op}", a, b)
    for op in COMPARISONS:
        assert_same(np.array(OPERATORS[op](x, y)), oracle(op, a, b), f"{name} {op}", a, b)
    for fn in ("sqrt", "floor", "abs"):
        got = getattr(ndd.math, fn)(x)
        assert_same(as_float32(got), round_to(name, oracle(fn, a)), f"{name} {fn}", a)
    assert_same(as_float32(-x), -a, "-", a)


@pytest.mark.parametrize("name", HALVES)
def test_16_bit_floats_with_other_types(name: str) -> None:
    a = half_values(name, 7)
    x = half_tensor(name, a)
    for other in ("uint8", "int64", "bool", "float32", "float64"):
        b = random_values(other, len(a), 8)
        got = x - ndd.tensor(b)
        want = oracle("-", a, b)
        if other not in FLOATS:
            assert got.dtype is getattr(ndd, name)
            want = round_to(name, want)
            assert_same(as_float32(got), want, f"{name} - {other}", a, b)
        else:
            assert_same(np.array(got), want, f"{name} - {other}", a, b)
        # numpy compares an int64 with float32 in float64
        assert_same(
            np.array(ndd.tensor(b) > x), b.astype(want.dtype) > a, f"{other} > {name}", b, a
        )
    assert_same(as_float32(x * 3), round_to(name, a * np.float32(3)), f"{name} * 3", a)
    mixed = half_tensor("float16", a) + half_tensor("bfloat16", a)
    assert mixed.dtype is ndd.float32
    assert_same(np.array(mixed), round_to("float16", a) + to_bfloat16(a), "f16 + bf16", a)


# -- graphs --------------------------------------------------------------------------------------


def wrapping_program(x: Any, y: Any, z: Any) -> list[Any]:
    """Each step rounds or wraps; a fused kernel must do so as well."""
    wrapped = ((x + y) * x - 7) // 3 % 11 << 2
    rounded = (z * z + z) / (z - 0.3)
    return [wrapped ^ x, rounded * x, rounded > wrapped, ndd.cast(rounded, dtype=ndd.uint8) + y]


def test_modes_and_fusion_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = random_values("uint8", 600, 13), random_values("uint8", 600, 14)
    z = random_values("float32", 600, 15)

    def run() -> list[np.ndarray]:
        return [np.array(r) for r in wrapping_program(ndd.tensor(x), ndd.tensor(y), ndd.tensor(z))]

    results = {}
    for mode in MODES:
        with ndd.EvalMode[mode]:
            results[mode] = run()
    monkeypatch.setenv("NDD_FUSION", "0")
    results["unfused"] = run()
    with np.errstate(all="ignore"):
        seven, three, eleven, two = (np.int32(v) for v in (7, 3, 11, 2))
        total = ((x + y) * x).astype(np.int32) - seven
        quotient = np.trunc(total / three).astype(np.int32)
        wrapped = np.fmod(quotient, eleven) << two
        rounded = (z * z + z) / (z - np.float32(0.3))
        want = [wrapped ^ x, rounded * x, rounded > wrapped]
        want = [want[0].astype(np.int32), want[1].astype(np.float32), want[2]]
    for how, got in results.items():
        for k, value in enumerate(want):
            assert_same(got[k], value, f"{how}, result {k}")
        assert_same(got[3], results["unfused"][3], how)


def test_in_place_operators_rebind() -> None:
    x = first = ndd.tensor([1, 2])
    x += 1
    x *= 2
    assert (np.array(first).tolist(), np.array(x).tolist()) == ([1, 2], [4, 6])


def test_sizes_and_numbers_never_compile() -> None:
    def run(n: int, number: float) -> np.ndarray:
        return np.array(ndd.math.max(ndd.tensor(ramp(n)) * number - 1.5, 0.0))

    run(10, 2.0)
    before = cpu_runtime.compile_count
    for n, number in ((1, 3.0), (1000, -0.0), (0, float("inf")), (10, 1e-3)):
        assert run(n, number).shape == (n,)
    assert cpu_runtime.compile_count == before
