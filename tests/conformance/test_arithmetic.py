"""Operators of Tensor and Batch, ndd.math and cast: types, values, broadcasting, layouts, errors.

The oracle is upstream wherever it has an answer. It has none for 16-bit floats (we compute in
float32 and round once), kills the process for MIN // -1, and orders negative integers below
every float; there the expected values are spelled out here.

Kernels are compiled per op and pair of types, so each test puts all its values into one array.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd
from ndd.kernels.cpu import runtime as cpu_runtime
from tests.conformance.oracle import check, check_program, per_sample, record

INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
TYPES = ("bool", *INTEGERS, *FLOATS)  # the types that upstream computes with
HALVES = ("float16", "bfloat16")

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
BITWISE = ("&", "|", "^", "<<", ">>")
MATH_PAIRS = ("min", "max", "pow", "fpow", "atan2")
BINARY = (*OPERATORS, *MATH_PAIRS)

UNARY_MATH = (
    "sqrt", "rsqrt", "cbrt", "exp", "log", "log2", "log10", "fabs", "abs", "floor", "ceil",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
)  # fmt: skip
EXACT_MATH = ("sqrt", "rsqrt", "fabs", "abs", "floor", "ceil")
# Units in the last place between us and the C library, which itself is off by up to one or two.
MATH_ULPS = {"float32": 2, "float64": 4}

MODES = ("deferred", "eager", "sync_cpu", "sync_full")


# -- values --------------------------------------------------------------------------------------


def edges(name: str) -> np.ndarray:
    """Edge values of a type."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, -1, -2, -7, -31, -33]
        near += [info.min, info.min + 1, info.max // 2, info.max - 1, info.max]
        return np.array([v for v in near if info.min <= v <= info.max], dtype)
    info = np.finfo(dtype)
    near = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 255.0, 2.0**24, 2.0**31, 2.0**63, np.inf]
    near += [float(v) for v in (info.max, info.tiny, info.smallest_subnormal)]
    with np.errstate(over="ignore"):
        return np.array([*near, *(-v for v in near), np.nan]).astype(dtype)


def random_values(name: str, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    small = rng.integers(0 if dtype.kind == "u" else -40, 40, count)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, count, dtype, endpoint=True)
        return np.where(rng.random(count) < 0.5, wide, small.astype(dtype))
    reach = 4 if name == "float16" else 9
    wide = rng.normal(size=count) * 10.0 ** rng.uniform(-reach, reach, count)
    return np.where(rng.random(count) < 0.8, wide, small).astype(dtype)


def pair(left: str, right: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edge values, and some hundred random pairs."""
    a, b = edges(left), edges(right)
    return (
        np.concatenate([np.repeat(a, len(b)), random_values(left, 500, 1)]),
        np.concatenate([np.tile(b, len(a)), random_values(right, 500, 2)]),
    )


def function(library: Any, op: str) -> Callable[..., Any]:
    return OPERATORS[op] if op in OPERATORS else getattr(library.math, op)


def oracle(op: str, *operands: Any) -> np.ndarray:
    """Upstream's value of a program. Arrays become tensors, Python numbers stay Python numbers."""
    with upstream.EvalMode.sync_cpu:
        wrapped = [upstream.tensor(x) if isinstance(x, np.ndarray) else x for x in operands]
        return np.array(function(upstream, op)(*wrapped))


def ours(op: str, *operands: Any) -> np.ndarray:
    wrapped = [ndd.tensor(x) if isinstance(x, np.ndarray) else x for x in operands]
    return np.array(function(ndd, op)(*wrapped))


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units in the last place; 0 from nan to nan, -0.0 and 0.0 are 1 apart."""
    word = np.dtype(f"i{got.dtype.itemsize}")

    def rank(x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(word)
        return np.where(bits < 0, np.iinfo(word).min - bits - 1, bits)

    a, b = rank(got), rank(want)
    with np.errstate(over="ignore"):
        distance = np.where(a > b, a - b, b - a).view(f"u{word.itemsize}")
    return np.where(np.isnan(got) & np.isnan(want), 0, distance)


def assert_same(got: np.ndarray, want: np.ndarray, what: Any, *operands: Any, ulp: int = 0) -> None:
    """Equal type, shape and bits (nan is nan), or floats within `ulp` units in the last place."""
    assert got.dtype == want.dtype, f"{what}: type {got.dtype}, wanted {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, wanted {want.shape}"
    bad = ulps(got, want) > ulp if got.dtype.kind == "f" else got != want
    if bad.any():
        k = np.unravel_index(int(np.argmax(bad)), bad.shape)
        at = ", ".join(repr(x[k] if np.shape(x) == bad.shape else x) for x in operands)
        raise AssertionError(
            f"{what} of {at}: got {got[k]!r}, wanted {want[k]!r}; "
            f"{int(bad.sum())} of {bad.size} differ"
        )


def tolerance(op: str, dtype: np.dtype) -> int:
    return (
        MATH_ULPS[dtype.name] if op in ("**", "pow", "fpow", "atan2") and dtype.kind == "f" else 0
    )


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


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 numbers rounded to the nearest with 8 significant bits, ties to even."""
    word = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16 << 16
    return np.where(np.isnan(x), np.float32(np.nan), rounded.astype(np.uint32).view(np.float32))


def round_to(name: str, x: np.ndarray) -> np.ndarray:
    """Rounded once, as float32 numbers."""
    with np.errstate(over="ignore"):
        return to_bfloat16(x) if name == "bfloat16" else x.astype(np.float16).astype(np.float32)


def half_values(name: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    special = [0.0, -0.0, 1.0, -1.5, 65504.0, -65504.0, 6e-8, 6.1e-5, np.inf, -np.inf, np.nan]
    wide = rng.normal(size=300) * 10.0 ** rng.uniform(-5, 4, 300)
    return round_to(name, np.concatenate([np.repeat(special, 11), wide]).astype(np.float32))


def half_tensor(name: str, x: np.ndarray) -> Any:
    return ndd.cast(ndd.tensor(x), dtype=getattr(ndd, name))


def as_float32(x: Any) -> np.ndarray:
    return np.array(ndd.cast(x, dtype=ndd.float32))


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


# -- math ----------------------------------------------------------------------------------------


def math_values(name: str) -> np.ndarray:
    rng = np.random.default_rng(9)
    special = [
        88.72,
        88.73,
        -87.4,
        -103.9,
        -104.0,
        709.78,
        709.79,
        -745.1,
        -745.2,
        np.pi,
        np.pi / 2,
        1e22,
    ]
    special += [1.0 - 2.0**-24, 1.0 + 2.0**-23, 0.4142135, 1e-20, 1e5]
    parts = [
        special,
        rng.uniform(-1, 1, 800),
        rng.uniform(-100, 100, 800),
        rng.uniform(-750, 750, 300),
        1 + rng.normal(size=400) * 10.0 ** rng.uniform(-12, 0, 400),
        rng.normal(size=800) * 10.0 ** rng.uniform(-38, 37, 800),
    ]
    return np.concatenate([edges(name), np.concatenate(parts).astype(name)])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("fn", UNARY_MATH)
def test_math_functions(fn: str, name: str) -> None:
    x = math_values(name)
    if fn == "rsqrt":  # upstream's has three bits less, and nan at 0 and at infinity
        with np.errstate(all="ignore"):
            want = x.dtype.type(1) / np.sqrt(x)
    else:
        want = oracle(fn, x)
    got = ours(fn, x)
    record(f"math.{fn}{' (NumPy)' if fn == 'rsqrt' else ''}", [got], [want])
    assert_same(got, want, f"{fn} {name}", x, ulp=0 if fn in EXACT_MATH else MATH_ULPS[name])


@pytest.mark.parametrize("fn", ["sqrt", "exp", "floor", "ceil", "abs", "fabs"])
@pytest.mark.parametrize("name", ["uint8", "int64", "uint64"])
def test_math_of_integers(fn: str, name: str) -> None:
    """Integers are converted to float32 first, except by abs."""
    x = np.concatenate([edges(name), random_values(name, 200, 10)])
    assert_same(ours(fn, x), oracle(fn, x), f"{fn} {name}", x, ulp=0 if fn in EXACT_MATH else 2)


def test_all_math_functions_are_there_with_their_parameters() -> None:
    names = {"clamp", *MATH_PAIRS, *UNARY_MATH}
    assert len(names) == 29
    assert set(ndd.math.__all__) == names
    for name in names:
        want = list(inspect.signature(getattr(upstream.math, name)).parameters)
        assert list(inspect.signature(getattr(ndd.math, name)).parameters) == want, name


@pytest.mark.parametrize(
    ("fn", "numbers"),
    [("sin", (1,)), ("sqrt", (2.0,)), ("pow", (2, 3)), ("pow", (2.0, 3)), ("clamp", (5, 1, 3)),
     ("min", (1, 2.5)), ("max", (True, 3)), ("atan2", (1, 2)), ("abs", (-3,)),
     ("sin", ([1.0, 2.0],))],
)  # fmt: skip
def test_math_of_python_numbers(fn: str, numbers: tuple[Any, ...]) -> None:
    got = getattr(ndd.math, fn)(*numbers)
    assert type(got) is ndd.Tensor
    assert_same(np.array(got), oracle(fn, *numbers), fn, ulp=1)


# -- cast ----------------------------------------------------------------------------------------

CAST_TYPES = (*TYPES, "float16")


def cast_values(name: str) -> np.ndarray:
    """Values around all limits; for floats also halves, their neighbours, and values out of range."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return np.array([False, True])
    limits = [
        sign * 2**k + d
        for k in (0, 7, 8, 15, 16, 24, 31, 32, 53, 62, 63, 64)
        for sign in (1, -1)
        for d in (-2, -1, 0, 1, 2)
    ]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        inside = np.array([v for v in limits if info.min <= v <= info.max], dtype)
        return np.concatenate([inside, random_values(name, 300, 11)])
    special = [
        np.nan,
        0.49999997,
        0.5 - 2.0**-54,
        65504,
        65519.9,
        65520,
        65536,
        2.98e-8,
        1e300,
        -1e300,
    ]
    special += [8388607.5, -8388609.0, 4503599627370495.5]
    with np.errstate(over="ignore"):
        near = np.array([*map(float, limits), *(np.arange(-300, 300) / 2)]).astype(dtype)
        up, down = np.nextafter(near, dtype.type(np.inf)), np.nextafter(near, dtype.type(-np.inf))
        tail = np.array(special).astype(dtype)
    return np.concatenate([near, up, down, tail, edges(name), random_values(name, 300, 12)])


@pytest.mark.parametrize("source", CAST_TYPES)
def test_cast(source: str) -> None:
    x = cast_values(source)
    t = ndd.tensor(x)
    for target in CAST_TYPES:
        got = np.array(ndd.cast(t, dtype=getattr(ndd, target)))
        if target == "float16":  # ties to even; upstream has them away from zero
            with np.errstate(over="ignore"):
                want = x.astype(np.float32).astype(np.float16)
        else:
            with upstream.EvalMode.sync_cpu:
                want = np.array(upstream.cast(upstream.tensor(x), dtype=getattr(upstream, target)))
        assert_same(got, want, f"cast {source} → {target}", x)


@pytest.mark.parametrize("name", CAST_TYPES)
def test_cast_to_and_from_bfloat16(name: str) -> None:
    x = cast_values(name)
    with np.errstate(over="ignore"):
        rounded = to_bfloat16(x.astype(np.float32))
    half = half_tensor("bfloat16", x)
    assert half.dtype is ndd.bfloat16
    assert_same(as_float32(half), rounded, f"cast {name} → bfloat16", x)
    # casting back equals casting the float32 of the same value
    got = np.array(ndd.cast(half, dtype=getattr(ndd, name)))
    want = np.array(ndd.cast(ndd.tensor(rounded), dtype=getattr(ndd, name)))
    assert_same(got, want, f"cast bfloat16 → {name}", rounded)


def test_cast_to_the_same_type_keeps_value_and_layout() -> None:
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    check("cast", x, layout="HW", dtype="uint8")
    check("cast", [x, x[:1]], layout="HW", dtype="float32")
    same = ndd.cast(half_tensor("bfloat16", np.ones(3, np.float32)), dtype=ndd.bfloat16)
    assert as_float32(same).tolist() == [1.0] * 3


def test_cast_like() -> None:
    x = [np.array([[0.5, -1.5], [300.0, 2.5]], np.float32), np.array([[7.0]], np.float32)]
    like = np.zeros(4, np.uint8)
    check_program("cast_like", lambda lib, a, b: lib.cast_like(a, b), x, like, layout=("HW", None))
    check_program("cast_like", lambda lib, a: lib.cast_like(a, 3), x)
    check_program("cast_like", lambda lib, a: lib.cast_like(2.5, a), like)
    check_program("cast", lambda lib: lib.cast([1.5, -2.5], dtype=lib.int32))
    check_program("cast", lambda lib: lib.cast(3.7, dtype=lib.uint8))


def test_cast_needs_a_type() -> None:
    with pytest.raises(TypeError, match="dtype"):
        ndd.cast(ndd.tensor([1.0]))
    with pytest.raises((TypeError, ValueError), match="cast"):
        ndd.cast(ndd.tensor([1.0]), dtype="no such type")


# -- broadcasting --------------------------------------------------------------------------------


def ramp(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 1), (1, 3)), ((), (2, 2)), ((2, 2), ()), ((), ()),
        ((1,), (1,)), ((4,), (3, 1, 1)), ((0, 3), (1, 3)), ((0, 3), (3,)), ((0,), ()),
        ((2, 0), (2, 1)), ((1, 1, 1), (0,)), ((2, 1, 3, 1), (1, 2, 1, 2)), ((1, 3), (2, 2, 1)),
    ],
)  # fmt: skip
def test_broadcasting_of_tensors(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    got = check_program("sub", lambda lib, a, b: a - b, ramp(*left), ramp(*right))
    assert got[0].arrays[0].shape == np.broadcast_shapes(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([(2, 3), (4, 1)], [(3,), (1,)]),  # ragged
        ([(2, 3), (4, 3)], [(1, 3), (4, 1)]),  # another axis in each sample
        ([(2, 3), (0, 5)], [(), ()]),  # one number per sample
    ],
)
def test_broadcasting_of_batches(left: list[tuple[int, ...]], right: list[tuple[int, ...]]) -> None:
    a, b = [ramp(*s) for s in left], [ramp(*s) for s in right]
    check_program("sub", lambda lib, x, y: x - y, a, b)
    check_program("clamp", lambda lib, x, y: lib.math.clamp(x, y, 4.0), a, b)


def test_the_samples_of_a_batch_broadcast_independently() -> None:
    """Upstream applies the shape of one sample to all: [1] - [1, 2, 3] is [0, -1, -1] there."""
    a, b = [ramp(1), ramp(3), ramp(2)], [ramp(3), ramp(1), ramp(2)]
    for k, got in enumerate((ndd.batch(a) - ndd.batch(b)).tensors):
        assert_same(np.array(got), a[k] - b[k], f"sample {k}")


def test_batch_with_a_tensor() -> None:
    batch = [ramp(2, 3), ramp(1, 3), ramp(5, 3)]
    for tensor in (ramp(3), ramp(1, 1, 3), ramp()):
        check_program("sub", lambda lib, x, y: x - y, batch, tensor)
        check_program("sub", lambda lib, x, y: y - x, batch, tensor)
    check_program("sub", lambda lib, x: 1 - x, batch)
    check_program("sub", lambda lib, x: x - np.float64(0.5), batch)
    check_program("sub", lambda lib, x: x - [[1.0], [2.0]], [ramp(3), ramp(2)])
    check_program("eq", lambda lib, x: x == 2, batch)
    check_program("sin", lambda lib, x: lib.math.sqrt(x) * -x, batch)


def test_one_number_per_sample() -> None:
    batch = [np.full((2, 2), 10, np.uint8), np.full((1, 3), 200, np.uint8)]
    factor = per_sample([0.5, 2.0])
    got = ndd.batch(batch) * ndd.batch(list(factor.values))
    assert [np.array(t).max() for t in got.tensors] == [5.0, 400.0]


# -- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("HW", (2, 3)), ("HW", (2, 3))),
        (("HW", (2, 3)), (None, (2, 3))),
        ((None, (3,)), ("HW", (2, 3))),
        (("HW", (2, 3)), ("W", (3,))),
        (("W", (3,)), ("HW", (2, 3))),
        (("HWC", (2, 2, 3)), ("C", (3,))),
        (("HWC", (2, 2, 1)), (None, ())),
        (("HW", (2, 3)), (None, (1, 2, 3))),  # too short for the result
        (("W", (3,)), (None, (2, 3))),
    ],
)
def test_layout_of_the_result(left: Any, right: Any) -> None:
    layouts, shapes = (left[0], right[0]), (left[1], right[1])
    arrays = [ramp(*s) for s in shapes]
    for op in ("-", "<"):
        check_program(op, lambda lib, a, b, op=op: OPERATORS[op](a, b), *arrays, layout=layouts)
    batches = [[x, x] for x in arrays]
    check_program("-", lambda lib, a, b: a - b, *batches, layout=layouts)


def test_layout_of_unary_results() -> None:
    for call in (operator.neg, abs, operator.pos):
        check_program("unary", lambda lib, x, call=call: call(x), ramp(2, 3), layout="HW")
    check_program("exp", lambda lib, x: lib.math.exp(x), [ramp(2, 3), ramp(1, 1)], layout="HW")
    check_program("invert", lambda lib, x: ~x, np.ones((2, 3), bool), layout="HW")


# -- errors --------------------------------------------------------------------------------------


def booleans() -> Any:
    return ndd.tensor(np.array([True, False]))


def floats(*shape: int, layout: str | None = None) -> Any:
    return ndd.tensor(ramp(*shape), layout=layout)


def float_batch(*shapes: tuple[int, ...]) -> Any:
    return ndd.batch([ramp(*s) for s in shapes])


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "bool + bool": (
        lambda: booleans() + booleans(),
        TypeError,
        r"add: operands of `\+` cannot all be bool",
    ),
    "bool - True": (
        lambda: booleans() - True,
        TypeError,
        "sub: operands of `-` cannot all be bool",
    ),
    "min of bools": (
        lambda: ndd.math.min(booleans(), booleans()),
        TypeError,
        "min: operands of `min` cannot",
    ),
    "-bool": (lambda: -booleans(), TypeError, "neg: the operand of `-` cannot be bool"),
    "sin of bool": (
        lambda: ndd.math.sin(booleans()),
        TypeError,
        "sin: the operand of `sin` cannot be bool",
    ),
    "float & int": (
        lambda: floats(2) & 1,
        TypeError,
        "and: operands of `&` must be integers, got f32 and i32",
    ),
    "int << float": (
        lambda: 1 << floats(2),
        TypeError,
        "shl: operands of `<<` must be integers, got i32 and f32",
    ),
    "~float": (lambda: ~floats(2), TypeError, "invert: operands of `~` must be integers, got f32"),
    "f16 | int": (
        lambda: half_tensor("float16", ramp(2)) | 1,
        TypeError,
        "or: operands of `|` must be integers, got f16 and i32",
    ),
    "batch sizes": (
        lambda: float_batch((2,), (2,)) + float_batch((2,), (2,), (2,)),
        ValueError,
        "add: Inconsistent batch size: 2 != 3",
    ),
    "one is no broadcast": (
        lambda: float_batch((2,), (2,)) * float_batch((2,)),
        ValueError,
        "mul: Inconsistent batch size: 1 != 2",
    ),
    "shapes": (
        lambda: floats(2, 3) + floats(2),
        ValueError,
        r"add: shapes \(2, 3\) and \(2,\) cannot be broadcast together",
    ),
    "shapes of one sample": (
        lambda: float_batch((2,), (3,)) < float_batch((2,), (2,)),
        ValueError,
        r"lt: shapes \(3,\) and \(2,\) cannot be broadcast together \(sample 1\)",
    ),
    "batch and tensor": (
        lambda: float_batch((2,), (3,)) - floats(2),
        ValueError,
        r"sub: shapes \(3,\) and \(2,\) .* \(sample 1\)",
    ),
    "clamp bounds": (
        lambda: ndd.math.clamp(floats(2), floats(3), 1.0),
        ValueError,
        r"clamp: shapes \(2,\) and \(3,\) and \(\)",
    ),
    "layouts": (
        lambda: floats(2, 3, layout="HW") + floats(2, 3, layout="WH"),
        ValueError,
        "add: layouts 'HW' and 'WH' do not match",
    ),
    "layout is no suffix": (
        lambda: floats(2, 3, layout="HW") + floats(3, layout="H"),
        ValueError,
        "add: layouts 'HW' and 'H' do not",
    ),
    "large int": (
        lambda: floats(2) * 3_000_000_000,
        OverflowError,
        "mul: integer 3000000000 is out of range for int32",
    ),
    "small int": (
        lambda: -(2**31) - 1 - floats(2),
        OverflowError,
        "sub: integer -2147483649 is out of range",
    ),
    "// 0": (lambda: ndd.tensor([1, 2]) // 0, ValueError, r"floordiv: Integer division by zero\."),
    "% 0": (lambda: ndd.tensor([1, 2]) % 0, ValueError, r"mod: Integer division by zero\."),
    "None": (lambda: floats(2) + None, TypeError, "add: cannot compute with NoneType"),
    "str": (lambda: floats(2) == "two", TypeError, "eq: cannot compute with str"),
    "complex": (lambda: 1j * floats(2), TypeError, "mul: cannot compute with complex"),
    "object": (lambda: floats(2) + object(), TypeError, "add: cannot make a tensor from object"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_the_same_in_all_modes(case: str) -> None:
    call, kind, message = ERRORS[case]
    texts = set()
    for mode in MODES:
        with ndd.EvalMode[mode]:
            with pytest.raises(kind, match=message) as caught:
                call()
            assert type(caught.value) is kind
            texts.add(str(caught.value))
            assert int(np.array(ndd.tensor([20]) + 1)[0]) == 21, "the next call works"
    assert len(texts) == 1
    lines, first = inspect.getsourcelines(call)
    place = texts.pop().rpartition("(called at ")[2].rstrip(")")
    file, _, line = place.rpartition(":")
    assert file == __file__
    assert first <= int(line) < first + len(lines)


def test_what_is_no_operator() -> None:
    x = ndd.tensor([1, 2])
    for call in (lambda: x @ x, lambda: divmod(x, 2), lambda: pow(x, 2, 3), lambda: round(x)):
        with pytest.raises(TypeError):
            call()


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
