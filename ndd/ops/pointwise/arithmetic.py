"""Arithmetic, comparison, bitwise and math functions, all with the same type promotion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import convert
from ...core.call import call_stage, wrap
from ...core.errors import at_site, user_site
from ...core.handle import Handle, finish_call, input_of
from ...core.inputs import const_on_gpu
from ...core.operators import Operators
from ...core.tensor import tensor_node
from ...fusion.graph import build
from ...fusion.graph.node import Definition, Node
from ...fusion.graph.shapes import Shapes
from ...kernels.common import trace
from ...kernels.common.memo import Memo
from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir import mathlib as ml
from ...kernels.ir.dtypes import DType, promote
from ...kernels.ir.expr import Expr
from ...loop.calls import made

Body = Callable[..., Expr]


@dataclass(frozen=True)
class Elementwise:
    """One elementwise function: its body, and the types it accepts and returns."""

    name: str  # as users see it: "+", "math.sin"
    body: Body
    arity: int
    doc: str
    result: str = "promoted"  # promoted | float | bool
    takes_bool: bool = False
    only_integers: bool = False
    label: str = ""  # the name in kernels and explain
    has_condition: bool = False  # the first operand chooses between the others

    @property
    def shown(self) -> str:
        """The name in messages."""
        return self.name.removeprefix("unary ").removeprefix("math.")


# -- bodies: operands arrive in the common type --------------------------------------------------


def _float_pair(fn: Body, if_integer: Body) -> Body:
    return lambda a, b: fn(a, b) if a.dtype.is_float else if_integer(a, b)


def _divide(a: Expr, b: Expr) -> Expr:
    return a / b


def _fmod(a: Expr, b: Expr) -> Expr:
    return Expr("fmod", a.dtype, (a, b))


def _times(a: Expr, b: Expr) -> Expr:
    return a & b if a.dtype is dt.bool_ else a * b


def _negate(a: Expr) -> Expr:
    return -a


def _absolute(a: Expr) -> Expr:
    # compare instead of clearing the sign bit: abs(-0.0) stays -0.0, as upstream
    return a if a.dtype.kind is DType.Kind.unsigned else ex.select(a < 0, -a, a)


def _minimum(a: Expr, b: Expr) -> Expr:
    return ex.select(a < b, a, b)


def _maximum(a: Expr, b: Expr) -> Expr:
    return ex.select(a > b, a, b)


def _clamp(value: Expr, lo: Expr, hi: Expr) -> Expr:
    raised = ex.select(value < lo, lo, value)
    return ex.select(raised > hi, hi, raised)


def _shift(fn: Body) -> Body:
    def body(a: Expr, b: Expr) -> Expr:
        if a.dtype is dt.bool_:
            return fn(a.to(dt.int32), b.to(dt.int32)).to(dt.bool_)
        return fn(a, b)

    return body


def _bitwise(name: str, body: Body, doc: str, label: str, arity: int = 2) -> Elementwise:
    return Elementwise(name, body, arity, doc, takes_bool=True, only_integers=True, label=label)


ARITHMETIC = (
    Elementwise("+", lambda a, b: a + b, 2, "Sum.", label="add"),
    Elementwise("-", lambda a, b: a - b, 2, "Difference.", label="sub"),
    Elementwise("*", _times, 2, "Product.", takes_bool=True, label="mul"),
    Elementwise("/", _divide, 2, "Quotient, as a float.", "float", label="div"),
    Elementwise(
        "//", _float_pair(_divide, ml.idiv), 2, "Quotient; integers truncate.", label="floordiv"
    ),
    Elementwise(
        "%", _float_pair(_fmod, ml.irem), 2, "Remainder, sign of the dividend.", label="mod"
    ),
    Elementwise("**", _float_pair(ml.pow, ml.ipow), 2, "Power.", label="pow"),
    _bitwise("&", lambda a, b: a & b, "Bitwise and.", "and"),
    _bitwise("|", lambda a, b: a | b, "Bitwise or.", "or"),
    _bitwise("^", lambda a, b: a ^ b, "Bitwise exclusive or.", "xor"),
    _bitwise("<<", _shift(ml.shift_left), "Shift left.", "shl"),
    _bitwise(">>", _shift(ml.shift_right), "Shift right.", "shr"),
)  # fmt: skip

COMPARISON = (
    Elementwise("<", lambda a, b: a < b, 2, "Less.", "bool", True, label="lt"),
    Elementwise("<=", lambda a, b: a <= b, 2, "Less or equal.", "bool", True, label="le"),
    Elementwise(">", lambda a, b: a > b, 2, "Greater.", "bool", True, label="gt"),
    Elementwise(">=", lambda a, b: a >= b, 2, "Greater or equal.", "bool", True, label="ge"),
    Elementwise("==", ex.eq, 2, "Equal.", "bool", True, label="eq"),
    Elementwise("!=", ex.ne, 2, "Not equal.", "bool", True, label="ne"),
)

UNARY = (
    Elementwise("unary -", _negate, 1, "Negation.", label="neg"),
    _bitwise("~", lambda a: ~a, "Bitwise complement.", "invert", arity=1),
)  # fmt: skip


def _f(name: str, fn: Body, doc: str, arity: int = 1, result: str = "float") -> Elementwise:
    return Elementwise(f"math.{name}", fn, arity, doc, result, label=name)


MATH = (
    _f("abs", _absolute, "Absolute value.", result="promoted"),
    _f("acos", ml.acos, "Inverse cosine."),
    _f("acosh", ml.acosh, "Inverse hyperbolic cosine."),
    _f("asin", ml.asin, "Inverse sine."),
    _f("asinh", ml.asinh, "Inverse hyperbolic sine."),
    _f("atan", ml.atan, "Inverse tangent."),
    _f("atan2", ml.atan2, "Angle of the point (x, y); y is the first argument.", 2),
    _f("atanh", ml.atanh, "Inverse hyperbolic tangent."),
    _f("cbrt", ml.cbrt, "Cube root."),
    _f("ceil", ml.ceil, "Smallest integer that is not less, as a float."),
    _f("clamp", _clamp, "The value, limited to the range from lo to hi.", 3, "promoted"),
    _f("cos", ml.cos, "Cosine."),
    _f("cosh", ml.cosh, "Hyperbolic cosine."),
    _f("exp", ml.exp, "Exponential function."),
    _f("fabs", ml.fabs, "Absolute value, as a float."),
    _f("floor", ml.floor, "Largest integer that is not greater, as a float."),
    _f("fpow", ml.pow, "Power, computed in floating point.", 2),
    _f("log", ml.log, "Natural logarithm."),
    _f("log10", ml.log10, "Logarithm to base 10."),
    _f("log2", ml.log2, "Logarithm to base 2."),
    _f("max", _maximum, "The larger of two values.", 2, "promoted"),
    _f("min", _minimum, "The smaller of two values.", 2, "promoted"),
    _f("pow", _float_pair(ml.pow, ml.ipow), "Power, in the promoted type.", 2, "promoted"),
    _f("rsqrt", ml.rsqrt, "Reciprocal square root."),
    _f("sin", ml.sin, "Sine."),
    _f("sinh", ml.sinh, "Hyperbolic sine."),
    _f("sqrt", ml.sqrt, "Square root."),
    _f("tan", ml.tan, "Tangent."),
    _f("tanh", ml.tanh, "Hyperbolic tangent."),
)


def _select(condition: Expr, x: Expr, y: Expr) -> Expr:
    return ex.select(condition, x, y)


WHERE = Elementwise(
    "where", _select, 3, "Choose between two values, element by element.", takes_bool=True,
    label="where", has_condition=True,
)  # fmt: skip

FUNCTIONS = {f.name: f for f in (*ARITHMETIC, *COMPARISON, *UNARY, *MATH, WHERE)}


# -- types ---------------------------------------------------------------------------------------


def result_type(f: Elementwise, dtypes: Sequence[DType]) -> tuple[DType, DType]:
    """(type of the result, type of the computation); raises TypeError if operands do not fit."""
    enum = next((t for t in dtypes if t.is_enum), None)
    if enum is not None:
        raise TypeError(
            f"operands of `{f.shown}` cannot be {enum}; ndd.cast(value, dtype=ndd.int32) gives its "
            f"number"
        )
    common, *others = dtypes[f.has_condition :]
    for t in others:
        common = promote(common, t)
    if common is dt.bool_ and not f.takes_bool:
        if f.arity == 1:
            raise TypeError(f"the operand of `{f.shown}` cannot be bool; use ~, or a numeric type")
        raise TypeError(
            f"operands of `{f.shown}` cannot all be bool; use & | ^, or a number for one of them"
        )
    if f.only_integers and common.is_float:
        got = " and ".join(map(str, dtypes))
        raise TypeError(f"operands of `{f.shown}` must be integers, got {got}")
    if f.result == "bool":
        return dt.bool_, _wide(common)
    if f.result == "float" and not common.is_float:
        common = dt.float32
    return common, _wide(common)


def _wide(dtype: DType) -> DType:
    """16-bit floats are computed in float32 and rounded once."""
    return dt.float32 if dtype.is_float and dtype.bits == 16 else dtype


def _run(*arguments: Any) -> Expr:
    *xs, name = arguments
    f = FUNCTIONS[name]
    result, common = result_type(f, [x.dtype for x in xs])
    if f.has_condition:
        condition, *values = xs
        if condition.dtype is not dt.bool_:
            condition = ex.ne(condition, ex.const(0, condition.dtype))
        return f.body(condition, *(ex.cast(x, result) for x in values))
    kinds = {x.dtype for x in xs}
    if f.result == "bool" and dt.uint64 in kinds and common is dt.int64:
        return _compare_with_uint64(f, *xs)
    if f.label == "mod" and common is dt.float32 and any(x.dtype.is_integer for x in xs):
        # float32 does not hold integers beyond 2^24; take the remainder of the exact values
        common = dt.float64
    return ex.cast(f.body(*(ex.cast(x, common) for x in xs)), result)


def _compare_with_uint64(f: Elementwise, a: Expr, b: Expr) -> Expr:
    """Sign-correct comparison of a signed with an unsigned 64-bit integer."""
    as_unsigned = f.body(ex.cast(a, dt.uint64), ex.cast(b, dt.uint64))
    if a.dtype.kind is DType.Kind.signed:
        return ex.select(a < 0, f.body(ex.const(-1, dt.int32), ex.const(0, dt.int32)), as_unsigned)
    return ex.select(b < 0, f.body(ex.const(0, dt.int32), ex.const(-1, dt.int32)), as_unsigned)


# -- the call ------------------------------------------------------------------------------------


def apply(f: Elementwise, *operands: Any) -> Any:
    """Call an elementwise function."""
    return made(f, operands, (), _applied)


def _applied(f: Elementwise, operands: Sequence[Any], _choices: Sequence[Any]) -> Any:
    stage = call_stage(f.label or f.name) if trace.active else None
    try:
        node = _node(f, operands)
        finish_call((node,), user_site())
    except Exception as error:
        raise at_site(error, f.label or f.name, user_site()) from error.__cause__
    finally:
        if stage is not None:
            stage.end()
    return wrap(node)


def _node(f: Elementwise, operands: Sequence[Any]) -> Node:
    nodes = [_operand(v) for v in operands]
    largest, device, is_batch = nodes[0], None, False
    for n in nodes:
        if n.rank > largest.rank:
            largest = n
        device = n.device if device is None else device
        is_batch = is_batch or n.batch
    if device is not None:
        nodes = [_to(n, device) for n in nodes]
    key = _kind_key(f, nodes, largest.shapes)
    known = None if key is None else _known_kinds.get(key)
    if known is None:
        result_type(f, [n.dtype for n in nodes])
    if f.label in ("floordiv", "mod"):
        _check_divisor(nodes, operands[1])
    if known is not None:
        kind, layout = known
        definition = Definition(kind, tuple(nodes))
        dtype = kind.expr.dtype
        return Node(f.label, definition, largest.shapes, dtype, layout, is_batch, device)
    shapes, axes = broadcast_shapes(nodes)
    layout = broadcast_layout(nodes, shapes.rank)
    node = build.pointwise(f.label, _run, nodes, axes, shapes, layout, (f.name,))
    if key is not None:
        _known_kinds[key] = node.definition.kind, layout
    return node


# What `_kind_key` says → the kind and the layout of the result.
_known_kinds: Memo[tuple[Any, ...], tuple[Any, str | None]] = Memo("kinds of arithmetic", 4096)


def _kind_key(f: Elementwise, nodes: Sequence[Node], largest: Shapes) -> tuple[Any, ...] | None:
    """All that a kind depends on if operands are numbers or have the same shapes; else None."""
    key: list[Any] = [f.name]
    for n in nodes:
        if n.shapes is not largest and (n.rank or (n.batch and n.count != largest.count)):
            return None
        key += n.dtype.name, n.layout, n.rank
    return tuple(key)


def _to(node: Node, device: int) -> Node:
    if node.device is not None:
        if node.device != device:
            raise ValueError(f"the operands are on different GPUs: {node.device} and {device}")
        return node
    return const_on_gpu(node, device) if node.op == "const" else build.transfer(node, device)


def _check_divisor(nodes: Sequence[Node], divisor: Any) -> None:
    if any(n.dtype.is_float for n in nodes) or not isinstance(divisor, (int, np.integer, np.bool_)):
        return
    if divisor == 0 and nodes[0].shapes.rows.all(axis=1).any():  # an empty dividend is fine
        raise ValueError("Integer division by zero.")


def _operand(value: Any) -> Node:
    if isinstance(value, Handle):
        return input_of(value)
    if isinstance(value, np.generic):  # tested first: np.float64 is also a float
        kind = dt.from_numpy(value.dtype)
        if kind is not None and kind is not dt.bfloat16:
            return convert.const_scalar(value.item(), kind)
    if isinstance(value, bool):
        return convert.const_scalar(value, dt.bool_)
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise OverflowError(f"integer {value} is out of range for int32")
        return convert.const_scalar(value, dt.int32)
    if isinstance(value, float):
        return convert.const_scalar(value, dt.float32)
    if value is None or isinstance(value, (str, bytes, complex)):
        raise TypeError(f"cannot compute with {type(value).__name__}")
    return tensor_node(value, None, None, None, copy=False)


def broadcast_shapes(nodes: Sequence[Node]) -> tuple[Shapes, list[tuple[int, ...]]]:
    """Common shape by NumPy's broadcasting, sample by sample, and the axes of each operand."""
    rank = max(n.rank for n in nodes)
    axes = [tuple(range(rank - n.rank, rank)) for n in nodes]
    batches = {n.count for n in nodes if n.batch}
    if len(batches) > 1:
        a, b = sorted(batches)[:2]
        sizes = [f"operand {k} has {n.count} samples" for k, n in enumerate(nodes) if n.batch]
        raise ValueError(f"Inconsistent batch size: {a} != {b}: {', '.join(sizes)}")
    count = next(iter(batches), 1)
    full = [n for n in nodes if n.rank == rank]
    first = next((n for n in full if n.count == count), full[0]).shapes
    if first.count == count and all(n.shapes is first or n.rank == 0 for n in nodes):
        return first, axes
    rows = np.ones((count, rank), np.int64)
    for n, at in zip(nodes, axes, strict=True):
        if not at:
            continue
        mine, so_far = n.shapes.rows, rows[:, list(at)]
        bad = (mine != so_far) & (mine != 1) & (so_far != 1)
        if bad.any():
            s = int(np.flatnonzero(bad.any(axis=1))[0])
            shown = " and ".join(str(m.shapes.tuples[s % m.count]) for m in nodes)
            raise ValueError(f"shapes {shown} cannot be broadcast together (sample {s})")
        rows[:, list(at)] = np.where(mine == 1, so_far, mine)
    shapes = Shapes(rows)
    for n in full:
        if n.shapes.count == count and n.shapes.same_as(shapes):
            return n.shapes, axes
    return shapes, axes


def broadcast_layout(nodes: Sequence[Node], rank: int) -> str | None:
    """The longest layout, if all others are suffixes of it and it fits the result."""
    layouts = [n.layout for n in nodes if n.layout]
    if not layouts:
        return None
    longest = max(layouts, key=len)
    for layout in layouts:
        if not longest.endswith(layout):
            raise ValueError(
                f"layouts {longest!r} and {layout!r} do not match: one must end the other"
            )
    return longest if len(longest) == rank else None


# -- the operators of Tensor and Batch -----------------------------------------------------------


def _install_operators() -> None:
    for f in (*ARITHMETIC, *COMPARISON):
        stem = {"div": "truediv", "shl": "lshift", "shr": "rshift"}.get(f.label, f.label)
        _named(f"__{stem}__", _forward(f))
        if f.result != "bool":
            _named(f"__r{stem}__", _reflected(f))
    for f in (*UNARY, FUNCTIONS["math.abs"]):
        _named(f"__{f.label}__", _of_one(f))
    _named("__pos__", lambda self: self)


def _named(name: str, method: Callable[..., Any]) -> None:
    method.__name__, method.__qualname__ = name, f"Handle.{name}"
    setattr(Operators, name, method)


def _forward(f: Elementwise) -> Callable[[Any, Any], Any]:
    return lambda self, other: apply(f, self, other)


def _reflected(f: Elementwise) -> Callable[[Any, Any], Any]:
    return lambda self, other: apply(f, other, self)


def _of_one(f: Elementwise) -> Callable[[Any], Any]:
    return lambda self: apply(f, self)


_install_operators()
