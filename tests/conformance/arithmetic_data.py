"""Values of all types, pairs of edge values, and comparisons in units in the last place.

The oracle is upstream wherever it has an answer. It has none for 16-bit floats (we compute in
float32 and round once), kills the process for MIN // -1, and orders negative integers below
every float; there the expected values are spelled out in the tests.

Kernels are compiled per op and pair of types, so each test puts all its values into one array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as upstream

import ndd

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


def ramp(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
