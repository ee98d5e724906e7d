"""Rewrites of expressions that make kernels shorter without changing any bit of the results."""

from __future__ import annotations

from collections.abc import Iterable

from . import dtypes as dt
from .expr import Expr, const, cut_again, rewrite


def fold(e: Expr, memo: dict[Expr, Expr]) -> Expr | None:
    """The result of a test on constants, so that no kernel makes the test; None if `e` is no test.

    `memo` maps the arguments of `e` to their rewritten forms.
    """
    args = [memo[a] for a in e.args]
    if e.op == "eq" and all(a.op == "const" for a in args):
        return const(args[0].attr == args[1].attr, e.dtype)
    if e.op == "select" and args[0].op == "const":
        return args[1] if args[0].attr else args[2]
    if e.op == "inv" and e.dtype is dt.bool_ and args[0].op == "const":
        return const(not args[0].attr, e.dtype)
    if e.op in ("and", "or") and e.dtype is dt.bool_:
        for known, other in (args, args[::-1]):
            if known.op == "const":
                return other if known.attr == (e.op == "and") else known
    return None


def without_detours(values: Iterable[Expr]) -> list[Expr]:
    """Replace conversions from float to integer and back by a truncation of the float."""
    memo: dict[Expr, Expr] = {}

    def leaf(e: Expr) -> Expr | None:
        if e.op != "cast":
            return None
        return cut_again(Expr("cast", e.dtype, (memo[e.args[0]],), e.attr))

    return [rewrite(value, leaf, memo) for value in values]
