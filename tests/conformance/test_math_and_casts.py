"""ndd.math and cast: values of all types."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd
from tests.conformance.arithmetic_data import (
    EXACT_MATH,
    FLOATS,
    MATH_PAIRS,
    MATH_ULPS,
    TYPES,
    UNARY_MATH,
    as_float32,
    assert_same,
    edges,
    half_tensor,
    oracle,
    ours,
    random_values,
    to_bfloat16,
)
from tests.conformance.oracle import check, check_program, record

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
