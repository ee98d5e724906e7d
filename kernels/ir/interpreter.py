"""Evaluates expressions with NumPy; this defines the IR, and tests compare generated code with it.

Every operation is done in its own type: integers wrap, floats round once, nothing is contracted.
A bfloat16 is stored as its uint16 bits, a float16 as np.float16.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from . import dtypes as dt
from .dtypes import DType
from .expr import RUN, Expr, bfloat16_bits, inlined, walk

Array = np.ndarray[Any, Any]


def evaluate(expr: Expr, env: Mapping[Any, Any]) -> Array:
    """The value of `expr`, where `env` maps each leaf to an array.

    `env` may map other expressions, too, not only leaves. It contains the table of a `lookup` under
    the key `("table", slot)`.
    """
    return evaluate_all((expr,), env)[0]


def evaluate_all(roots: tuple[Expr, ...], env: Mapping[Any, Any]) -> list[Array]:
    """The values of several expressions; common subexpressions are computed once."""
    known: dict[Expr, Array] = {}
    memo: dict[Expr, Expr] = {}
    roots = tuple(inlined(root, memo) for root in roots)
    with np.errstate(all="ignore"):
        for e in walk(roots):
            if e in env:
                known[e] = np.asarray(env[e], e.dtype.np)
            elif e.op == "lookup":
                known[e] = np.asarray(env["table", e.attr], e.dtype.np)[known[e.args[0]]]
            elif e.op != "bilinear" and all(a in known for a in e.args):
                known[e] = _apply(e, *(known[a] for a in e.args))
    for root in roots:
        if root not in known:
            missing = [e for e in walk([root]) if e not in known and not e.args]
            raise KeyError(f"no value for {missing}")
    return [known[root] for root in roots]


def _apply(e: Expr, *args: Array) -> Array:
    if e.op == "const":
        return _constant(e)
    if e.op == "cast":
        return _cast(args[0], e.dtype)
    if e.op == "bits":
        return np.ascontiguousarray(args[0]).view(e.dtype.np).reshape(args[0].shape)
    if e.op == "select":
        return np.where(*args).astype(e.dtype.np, copy=False)
    function = _FUNCTIONS.get(e.op)
    if function is None:
        raise NotImplementedError(f"the meaning of {e.op!r} is given by its place in a kernel")
    return np.asarray(function(*args)).astype(e.dtype.np, copy=False)


def _constant(e: Expr) -> Array:
    if e.dtype is dt.bfloat16:
        return np.asarray(bfloat16_bits(e.attr), np.uint16)
    if e.dtype.is_integer:
        # A literal such as -1 of an unsigned type wraps, like all integers.
        return np.asarray(int(e.attr) & ((1 << e.dtype.bits) - 1), f"u{e.dtype.bytes}").view(
            e.dtype.np
        )
    return np.asarray(e.attr, e.dtype.np)


def _cast(x: Array, to: DType) -> Array:
    return x.astype(to.np)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    raise TypeError("integers are divided by udiv")


def _unsigned(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        return np.where(b == 0, a.dtype.type(0), function(a, np.where(b == 0, a.dtype.type(1), b)))

    return apply


def _invert(x: Array) -> Array:
    return np.asarray(~x)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


def _libm(name: str) -> Callable[..., Array]:
    """The function of the C library; NumPy's vector versions differ in the last bit."""

    def apply(*args: Array) -> Array:
        single = args[0].dtype == np.float32
        function = getattr(_library(), name + "f" * single)
        function.restype = ctypes.c_float if single else ctypes.c_double
        function.argtypes = [function.restype] * len(args)
        return np.asarray(np.frompyfunc(function, len(args), 1)(*args), args[0].dtype)

    return apply


def _fma(a: Array, b: Array, c: Array) -> Array:
    # The product is exact in float64; the sum is rounded twice, which changes one in 2^29 results.
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _stepped(start: Array, step: Array, x: Array) -> Array:
    total = np.array(np.broadcast_arrays(start, step, x)[0])
    for by, times in ((step * np.float32(RUN), x // RUN), (step, x % RUN)):
        for k in range(int(np.max(times, initial=0))):
            total = np.where(k < times, total + by, total)
    return total


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fma": _fma, "stepped": _stepped,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide,
    "udiv": _unsigned(np.floor_divide), "urem": _unsigned(np.remainder),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
    "neg": np.negative, "inv": _invert, "abs": np.abs, "sqrt": np.sqrt,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fmod": np.fmod,
    "exp": _libm("exp"), "log": _libm("log"), "sin": _libm("sin"), "cos": _libm("cos"),
}  # fmt: skip
