"""Scalar expressions: they define what an op computes, and are printed as Numba or Triton source.

An `Expr` is immutable and hash-consed, so equal expressions are one object: common subexpressions
and cache keys come for free. Arithmetic is exactly typed (no promotion, integers wrap, no
contraction), so both back-ends give the same bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ..common import forks
from . import dtypes as dt
from .dtypes import DType

Number = int | float | bool

_interned: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()
_interning = forks.lock()


class Expr:
    """One typed operation on scalars. Build it with operators and the functions of this module."""

    __slots__ = ("__weakref__", "args", "attr", "dtype", "op")

    op: str
    dtype: DType
    args: tuple[Expr, ...]
    attr: Any

    def __new__(cls, op: str, dtype: DType, args: tuple[Expr, ...] = (), attr: Any = None) -> Expr:
        # repr distinguishes -0.0 from 0.0 and makes two nans equal; == would do neither.
        tag = repr(attr) if isinstance(attr, float) else attr
        key = (op, dtype.name, args, tag)
        found = _interned.get(key)
        if found is None:
            with _interning:  # two threads that make the same expression must get one object
                found = _interned.get(key)
                if found is None:
                    found = object.__new__(cls)
                    found.op, found.dtype, found.args, found.attr = op, dtype, args, attr
                    _interned[key] = found
        return found

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args))
        attr = "" if self.attr is None else f"[{self.attr}]"
        return f"{self.op}{attr}:{self.dtype}" + (f"({inner})" if inner else "")

    # Comparison operators build expressions, except `==` and `!=`: these compare by identity,
    # because expressions are dictionary keys. Use eq() and ne() to build expressions.

    def _binary(self, op: str, other: Expr | Number, dtype: DType | None = None) -> Expr:
        rhs = lift(other, self.dtype)
        if rhs.dtype is not self.dtype:
            raise TypeError(f"{op}: operands have types {self.dtype} and {rhs.dtype}")
        return Expr(op, dtype or self.dtype, (self, rhs))

    def __add__(self, other: Expr | Number) -> Expr:
        return self._binary("add", other)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._binary("sub", other)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._binary("mul", other)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self._binary("div", other)

    def __radd__(self, other: Number) -> Expr:
        return lift(other, self.dtype) + self

    def __rsub__(self, other: Number) -> Expr:
        return lift(other, self.dtype) - self

    def __rmul__(self, other: Number) -> Expr:
        return lift(other, self.dtype) * self

    def __rtruediv__(self, other: Number) -> Expr:
        return lift(other, self.dtype) / self

    def __and__(self, other: Expr | Number) -> Expr:
        return self._binary("and", other)

    def __or__(self, other: Expr | Number) -> Expr:
        return self._binary("or", other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return self._binary("xor", other)

    def __lshift__(self, other: Expr | Number) -> Expr:
        return self._binary("shl", other)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return self._binary("shr", other)

    def __neg__(self) -> Expr:
        return Expr("neg", self.dtype, (self,))

    def __invert__(self) -> Expr:
        return Expr("inv", self.dtype, (self,))

    def __lt__(self, other: Expr | Number) -> Expr:
        return self._binary("lt", other, dt.bool_)

    def __le__(self, other: Expr | Number) -> Expr:
        return self._binary("le", other, dt.bool_)

    def __gt__(self, other: Expr | Number) -> Expr:
        return self._binary("gt", other, dt.bool_)

    def __ge__(self, other: Expr | Number) -> Expr:
        return self._binary("ge", other, dt.bool_)

    def to(self, dtype: DType) -> Expr:
        """Plain conversion: integers wrap; a float must lie inside the integer's range."""
        return cast(self, dtype)


def const(value: Number, dtype: DType) -> Expr:
    """A literal of the given type; floats are rounded to it here, so that cache keys are exact."""
    if dtype.is_float:
        number: Number = float(value)
        if dtype is not dt.float64:
            number = float(dt.float32.np.type(number))
    elif dtype is dt.bool_:
        number = bool(value)
    else:
        number = int(value)
    return Expr("const", dtype, attr=number)


def lift(value: Expr | Number, dtype: DType) -> Expr:
    """`value` as an expression; a number becomes a constant of the given type."""
    return value if isinstance(value, Expr) else const(value, dtype)


def body_input(i: int, dtype: DType, at: tuple[tuple[int, int], ...] = ()) -> Expr:
    """Input `i` of an op's body; `at` pins some output axes to constants (`((axis, k), …)`)."""
    return Expr("input", dtype, attr=(i, at))


def at_axis(x: Expr, axis: int, k: int) -> Expr:
    """The body input `x`, read at position `k` of `axis` whatever the output position is."""
    if x.op != "input":
        raise TypeError("only an input of the body can be read at another position")
    i, at = x.attr
    return body_input(i, x.dtype, (*at, (axis, k)))


def index(axis: int) -> Expr:
    """The output position along `axis`, as int32."""
    return Expr("index", dt.int32, attr=axis)


def lookup(table: Expr, position: Expr) -> Expr:
    """Element `position` (int32, in range) of the one-dimensional input `table`."""
    return Expr("lookup", table.dtype, (position,), attr=table.attr[0])


At = tuple[int, Expr]  # an output axis, and a position along it


def fetch(x: Expr, *at: At) -> Expr:
    """The body input `x`, read at computed int32 positions along some axes.

    The positions must lie inside of the input: nothing checks them.
    """
    i, pins = x.attr
    return Expr("fetch", x.dtype, tuple(p for _, p in at), (i, pins, tuple(a for a, _ in at)))


def extent(x: Expr, axis: int) -> Expr:
    """Extent of the body input `x` along its dimension for the output axis `axis`, as int32."""
    return Expr("extent", dt.int32, (), (x.attr[0], axis))


def bilinear(x: Expr, y: At, x_: At, fill: Expr | None = None) -> Expr:
    """The body input `x`, interpolated at float32 positions along two axes, as float32.

    Whole numbers are pixels. Outside of the input the value is `fill`, or that of the nearest
    pixel if there is no `fill`.
    """
    i, pins = x.attr
    args = (y[1], x_[1], *(() if fill is None else (fill,)))
    return Expr("bilinear", dt.float32, args, (i, pins, (y[0], x_[0])))


def bilinear_of(
    tap: Callable[[Expr, Expr], Expr], y: Expr, x: Expr, h: Expr, w: Expr, fill: Expr | None
) -> Expr:
    """`bilinear` written as four taps; `tap(row, column)` is the float32 value of a pixel."""
    rows, fy = (_pair_clamped if fill is None else _pair)(y, h)
    columns, fx = (_pair_clamped if fill is None else _pair)(x, w)

    def at(r: int, c: int) -> Expr:
        (row, row_in), (column, column_in) = rows[r], columns[c]
        value = tap(row, column)
        return value if fill is None else select(row_in & column_in, value, fill)

    left, right = (_between(at(0, c), at(1, c), fy) for c in (0, 1))
    return _between(left, right, fx)


def _between(a: Expr, b: Expr, f: Expr) -> Expr:
    return fma(f, b - a, a)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c in float32, rounded once."""
    return Expr("fma", dt.float32, (a, b, c))


RUN_BITS = 8
RUN = 1 << RUN_BITS
# With this factor, a leap of a running sum stops short of the next power of two, however its number
# of steps is rounded.
SHORT = 1 - 2**-20


def stepped(start: Expr, step: Expr, x: Expr) -> Expr:
    """start + x * step as a running sum of `x` steps, each rounded to float32.

    NOTE [running sums] A running sum accumulates rounding errors, and a warp must accumulate the
    same ones as upstream. `x` is an int32; the first of every `RUN` positions is reached in steps
    of RUN * step. While the sum stays between two powers of two, every step adds the same number:
    `step`, rounded to the value of the last place there. (Unless this is a tie, which rounds to
    even: then every step but the first adds the same.) So the sum need not be computed step by
    step, but in leaps from one power of two to the next.
    """
    return Expr("stepped", dt.float32, (start, step, x))


Pixels = list[tuple[Expr, Expr]]  # clamped positions, and whether they were inside of the input
# NOTE [wild positions] Positions are clamped as floats, to at most one pixel beyond the border; nan
# counts as far up and left. So every position fits into an int32, whatever the matrix contains.


def _pair(at: Expr, n: Expr) -> tuple[Pixels, Expr]:
    """The two pixels around a position, and the weight of the second one."""
    end = cast(n, dt.float32)
    at = select(at >= -1.0, at, const(-1.0, dt.float32))
    at = select(at < end, at, end)
    base = floor(at)
    first = cast(base, dt.int32)
    zero = const(0, dt.int32)
    pixels = [
        (select(k > 0, select(k < n, k, n - 1), zero), (k >= 0) & (k < n))
        for k in (first, first + 1)
    ]
    return pixels, at - base


def _pair_clamped(at: Expr, n: Expr) -> tuple[Pixels, Expr]:
    """Like `_pair` for a position clamped to the border; the last pair is the last two pixels."""
    zero, true = const(0, dt.int32), const(True, dt.bool_)
    last = cast(n - 1, dt.float32)
    at = select(at > 0.0, at, const(0.0, dt.float32))
    at = select(at < last, at, last)
    first = cast(at, dt.int32)
    first = select(first < n - 2, first, n - 2)
    first = select(first > 0, first, zero)
    second = select(first + 1 < n, first + 1, n - 1)
    return [(first, true), (second, true)], at - cast(first, dt.float32)


class Function(NamedTuple):
    """A long expression of plain operations that CPU kernels call instead of repeating it."""

    name: str
    parameters: tuple[Expr, ...]
    result: Expr


def function(name: str, body: Callable[..., Expr], *dtypes: DType) -> Function:
    """`body` as a function of parameters of these types."""
    parameters = tuple(Expr("parameter", t, attr=k) for k, t in enumerate(dtypes))
    return Function(name, parameters, body(*parameters))


def call(f: Function, *args: Expr) -> Expr:
    """The result of calling a function."""
    return Expr("call", f.result.dtype, args, f)


def inlined(root: Expr, memo: dict[Expr, Expr]) -> Expr:
    """`root` with every call replaced by the operations of its function."""

    def leaf(e: Expr) -> Expr | None:
        if e.op != "call":
            return None
        given = dict(zip(e.attr.parameters, (memo[a] for a in e.args), strict=True))
        return rewrite(e.attr.result, lambda _: None, given)

    return rewrite(root, leaf, memo)


def eq(a: Expr, b: Expr | Number) -> Expr:
    return a._binary("eq", b, dt.bool_)


def ne(a: Expr, b: Expr | Number) -> Expr:
    return a._binary("ne", b, dt.bool_)


def select(cond: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    """`a` where `cond`, else `b`."""
    if not isinstance(a, Expr):
        a = lift(a, b.dtype if isinstance(b, Expr) else dt.float32)
    b = lift(b, a.dtype)
    if a.dtype is not b.dtype:
        raise TypeError(f"select: branches have types {a.dtype} and {b.dtype}")
    return a if a is b else Expr("select", a.dtype, (cond, a, b))


def unary(op: str, x: Expr) -> Expr:
    """One of the float primitives: floor ceil trunc sqrt abs exp log sin cos …"""
    return Expr(op, x.dtype, (x,))


def floor(x: Expr) -> Expr:
    return unary("floor", x)


def trunc(x: Expr) -> Expr:
    return unary("trunc", x)


def ceil(x: Expr) -> Expr:
    return unary("ceil", x)


def sqrt(x: Expr) -> Expr:
    return unary("sqrt", x)


def fabs(x: Expr) -> Expr:
    return unary("abs", x)


def bits(x: Expr, dtype: DType) -> Expr:
    """The same bits, read as another type of the same width."""
    if x.dtype.bits != dtype.bits:
        raise TypeError(f"bits: {x.dtype} and {dtype} differ in width")
    return x if x.dtype is dtype else Expr("bits", dtype, (x,))


def cast(x: Expr, to: DType) -> Expr:
    """Plain conversion (see `Expr.to`). The 16-bit floats convert through float32."""
    if x.dtype is to:
        return x
    if x.op == "const" and not (to is dt.bool_ or (x.dtype.is_float and not to.is_float)):
        return const(wrap(x.attr, to), to)
    if x.dtype is dt.bfloat16:
        wide = bits(x, dt.uint16).to(dt.uint32) << 16
        return cast(bits(wide, dt.float32), to)
    if to is dt.bfloat16:
        return _float32_to_bfloat16(cast(x, dt.float32))
    if to is dt.bool_:
        return ne(cast(x, dt.float32) if x.dtype is dt.float16 else x, 0)
    if x.dtype is dt.float16 and to is not dt.float32:
        return cast(cast(x, dt.float32), to)
    if to is dt.float16 and x.dtype is not dt.float32:
        return cast(cast(x, dt.float32), to)
    return Expr("cast", to, (x,))


def wrap(value: Number, to: DType) -> Number:
    """A Python number, wrapped into the range of `to` if that is an integer type."""
    if not to.is_integer:
        return value
    low = int(value) & ((1 << to.bits) - 1)
    return low - (1 << to.bits) if to.kind is DType.Kind.signed and low >> (to.bits - 1) else low


def bfloat16_bits(value: float) -> int:
    """The 16 bits of the bfloat16 that is nearest to a number; ties round to even."""
    word: int = struct.unpack("I", struct.pack("f", dt.float32.np.type(value)))[0]
    if value != value:
        return (word >> 16) | 0x40
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16


def _float32_to_bfloat16(x: Expr) -> Expr:
    word = bits(x, dt.uint32)
    # Round half to even: add 0x7fff, plus one if the last bit that stays is odd.
    rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
    quiet_nan = (word >> 16) | 0x40
    is_nan = (word & 0x7FFFFFFF) > 0x7F800000
    return bits(select(is_nan, quiet_nan, rounded).to(dt.uint16), dt.bfloat16)


def minimum(a: Expr, b: Expr | Number) -> Expr:
    """The smaller one; `b` if one is nan."""
    return select(a < b, a, b)


def maximum(a: Expr, b: Expr | Number) -> Expr:
    """The larger one; `b` if one is nan."""
    return select(a > b, a, b)


# The largest number below one half. Adding it instead of 0.5 keeps 0.49999997 from becoming 1, and
# ties still round up, because the sum 0.5 + 0.49999997 itself rounds to even, to 1.
_BELOW_HALF = {
    dt.float32: struct.unpack("f", struct.pack("I", 0x3EFFFFFF))[0],
    dt.float64: struct.unpack("d", struct.pack("Q", 0x3FDFFFFFFFFFFFFF))[0],
}


def round_half_away(x: Expr) -> Expr:
    """The nearest integer as a float; halves round away from zero."""
    half = _BELOW_HALF[x.dtype]
    return trunc(x + select(x < 0.0, const(-half, x.dtype), const(half, x.dtype)))


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer (or bool) type."""
    if dtype is dt.bool_:
        return 0, 1
    if dtype.kind is DType.Kind.signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def convert(x: Expr, to: DType, rounding: str = "away", in_range: bool = False) -> Expr:
    """Saturating conversion, as for the results of ops. `rounding` is away, trunc or even.

    `in_range`: no value is nan or beyond the limits of `to`, so there is no need to clamp.
    """
    if x.dtype is to:
        return x
    if x.dtype in (dt.float16, dt.bfloat16):
        x = cast(x, dt.float32)
        if x.dtype is to:
            return x
    if to.is_float:
        return cast(x, to)
    if x.dtype.is_float:
        return _float_to_int(x, to, rounding, in_range)
    if to is dt.bool_ or x.dtype is dt.bool_:
        return cast(x, to)
    return _int_to_int(x, to)


def _int_to_int(x: Expr, to: DType) -> Expr:
    (from_lo, from_hi), (lo, hi) = limits(x.dtype), limits(to)
    if from_hi > hi:
        x = select(x < hi, x, hi)
    if from_lo < lo:
        x = select(x > lo, x, lo)
    return cast(x, to)


def _float_to_int(x: Expr, to: DType, rounding: str, in_range: bool) -> Expr:
    if to is dt.bool_:
        # Round first: 0.3 is False, 0.5 is True, nan is True.
        return ne(_round(x, rounding), 0.0)
    lo, hi = limits(to)
    if to.bits < x.dtype.significand_bits:  # type: ignore[operator]
        return _narrow_float_to_int(x if in_range else _clamped(x, to, lo, hi), to, rounding, lo)
    # This float type cannot represent hi, but it can represent hi + 1.
    r = _round(x, rounding)
    inside = select(r < float(hi + 1), r, const(0.0, x.dtype))
    number = cast(select(inside > float(lo), inside, const(0.0, x.dtype)), to)
    number = select(r < float(hi + 1), number, const(hi, to))
    # Here and in the narrow case, nan becomes what the CPU's conversion instruction makes of it.
    at_nan = lo if to.kind is DType.Kind.signed else {dt.uint64: 1 << 63}.get(to, 0)
    # r > lo is false for the lowest value and for nan.
    return select(r > float(lo), number, select(ne(r, r), const(at_nan, to), const(lo, to)))


def _clamped(x: Expr, to: DType, lo: int, hi: int) -> Expr:
    if lo < 0 and to is not dt.int32:  # nan becomes 0; for int32, the lowest value
        x = select(ne(x, x), const(0.0, x.dtype), x)
    return minimum(maximum(x, float(lo)), float(hi))


def _narrow_float_to_int(x: Expr, to: DType, rounding: str, lo: int) -> Expr:
    through = dt.int64 if to is dt.uint32 else dt.int32  # a signed type that holds all values
    if rounding == "away" and lo == 0:
        # x is not negative, so the truncation of the conversion rounds down.
        return _cut(x + _BELOW_HALF[x.dtype], through, to)
    return cast(cast(_round(x, rounding), through), to)


def _cut(x: Expr, through: DType, to: DType) -> Expr:
    """The integer part of a number that is not -0 and lies within the limits of an unsigned type.
    The attribute "cut" records this for `cut_again`."""
    return Expr("cast", to, (cast(x, through),), "cut")


def cut_again(e: Expr) -> Expr | None:
    """A conversion float → integer (`_cut`) → float as a truncation; None for anything else."""
    if e.op != "cast" or e.args[0].op != "cast" or e.args[0].attr != "cut":
        return None
    x = e.args[0].args[0].args[0]
    is_exact = e.args[0].dtype.bits < x.dtype.significand_bits  # type: ignore[operator]
    return trunc(x) if x.dtype is e.dtype and is_exact else None


def convert_halves(x: Expr, to: DType, even: Expr) -> Expr:
    """`convert`, but halves round to even where `even` holds."""
    lo, hi = limits(to)
    if not x.dtype.is_float or lo < 0 or to.bits >= 24 or to is dt.bool_:
        return select(even, convert(x, to, "even"), convert(x, to))
    x = _clamped(x, to, lo, hi)
    return _cut(select(even, unary("rint", x), x + _BELOW_HALF[x.dtype]), dt.int32, to)


def _round(x: Expr, rounding: str) -> Expr:
    if rounding == "away":
        return round_half_away(x)
    if rounding == "trunc":
        return trunc(x)
    if rounding == "even":
        return unary("rint", x)
    raise ValueError(f"unknown rounding {rounding!r}")


def walk(roots: Iterator[Expr] | list[Expr] | tuple[Expr, ...]) -> list[Expr]:
    """All expressions below `roots`, arguments before their users, each once."""
    order: dict[Expr, None] = {}
    stack = [*roots]
    stack.reverse()
    while stack:  # a hot loop: half of the time of planning
        e = stack[-1]
        if e not in order:
            size = len(stack)
            for a in reversed(e.args):
                if a not in order:
                    stack.append(a)
            if len(stack) > size:
                continue
            order[e] = None
        stack.pop()
    return list(order)


def rewrite(root: Expr, leaf: Callable[[Expr], Expr | None], memo: dict[Expr, Expr]) -> Expr:
    """`root` with each expression replaced by the one that `leaf` returns for it, if any.

    `memo` maps old expressions to new ones; `leaf` finds its arguments there.
    """
    stack = [root]
    while stack:
        e = stack[-1]
        if e not in memo:
            size = len(stack)
            # Not `walk`: it would go through everything again that other roots have in common.
            for a in reversed(e.args):
                if a not in memo:
                    stack.append(a)
            if len(stack) > size:
                continue
            new = leaf(e)
            if new is None:
                args = tuple([memo[a] for a in e.args])
                new = e if args == e.args else Expr(e.op, e.dtype, args, e.attr)
            memo[e] = new
        stack.pop()
    return memo[root]


# Rough cost of one operation in float additions, for the decisions of the planner.
_COSTLY = {"div": 4, "sqrt": 5, "fmod": 20, "udiv": 10, "urem": 10} | dict.fromkeys(
    ("exp", "log", "sin", "cos", "bilinear", "stepped"), 20
)


def cost(*roots: Expr) -> int:
    """Estimated cost of evaluating expressions once; shared subexpressions count once."""
    return sum(map(op_cost, walk(roots)))


def op_cost(e: Expr) -> int:
    """Estimated cost of one expression, given its arguments."""
    if not e.args:
        return 0
    return cost(e.attr.result) if e.op == "call" else _COSTLY.get(e.op, 1)
