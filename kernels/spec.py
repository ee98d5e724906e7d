"""KernelSpec: all that a code generator may see of a fused group.

Both back-ends read one table of int64 rows, one row per sample: extents, addresses, strides,
window bounds. Everything that depends on a size or an argument is in the table, so a new image
size, batch size or argument value never changes the spec, and never compiles anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

from . import dtypes as dt
from .dtypes import DType
from .expr import Expr, const, rewrite, walk

Column = tuple[str | int, ...]


@dataclass(frozen=True)
class Access:
    """A strided operand. A stride is in elements: a number, or None if only the table knows it."""

    dtype: DType
    strides: tuple[int | None, ...]
    guarded: bool = False  # read only where a window allows it
    likely: tuple[int | None, ...] = ()  # strides if nothing is mirrored or stepped over

    @property
    def is_scalar(self) -> bool:
        return not self.guarded and all(s == 0 for s in self.strides)


@dataclass(frozen=True)
class Index:
    """The position `step * o[axis] + offset`; plain `o[axis]` if identity."""

    axis: int | None
    identity: bool


@dataclass(frozen=True)
class KernelSpec:
    """Loops over an output domain; each point computes `values` and stores them."""

    ops: tuple[str, ...]
    extents: tuple[int | None, ...]  # a number: a small static axis, unrolled
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]
    values: tuple[Expr, ...]
    windows: tuple[tuple[int, ...], ...] = ()  # axes tested by each window
    indices: tuple[Index, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.extents)

    @cached_property
    def loop_axes(self) -> tuple[int, ...]:
        """Axes that become loops, outermost first."""
        return tuple(a for a, n in enumerate(self.extents) if n is None)

    @cached_property
    def static_points(self) -> tuple[dict[int, int], ...]:
        """Every position on the unrolled axes."""
        axes = [a for a, n in enumerate(self.extents) if n is not None]
        ranges = [range(self.extents[a]) for a in axes]  # type: ignore[arg-type]
        return tuple(dict(zip(axes, p, strict=True)) for p in product(*ranges))

    @cached_property
    def columns(self) -> dict[Column, int]:
        """Place of each run-time number in a row of the table."""
        names: list[Column] = [("n", a) for a in self.loop_axes]
        for kind, accesses in (("out", self.stores), ("in", self.loads)):
            for k, access in enumerate(accesses):
                names.append((kind, k))
                if access.guarded:
                    names.append((f"{kind}_first", k))
                names += [
                    (f"{kind}_stride", k, a) for a, s in enumerate(access.strides) if s is None
                ]
        for w, axes in enumerate(self.windows):
            for a in axes:
                names += [("lo", w, a), ("hi", w, a)]
        for i, ix in enumerate(self.indices):
            if not ix.identity:
                names += [("step", i), ("offset", i)]
        return {name: k for k, name in enumerate(names)}

    def at_point(self, point: dict[int, int]) -> tuple[Expr, ...]:
        """The values at one position of the unrolled axes, with leaves pinned to it."""

        def pin(e: Expr) -> Expr | None:
            if e.op == "load":
                strides = self.loads[e.attr].strides
                pinned = tuple((a, k) for a, k in point.items() if strides[a] != 0)
            elif e.op == "window":
                pinned = tuple((a, k) for a, k in point.items() if a in self.windows[e.attr])
            elif e.op == "index":
                at = self.indices[e.attr]
                pinned = tuple((a, k) for a, k in point.items() if a == at.axis)
                if pinned and at.identity:
                    return const(pinned[0][1], e.dtype)
            else:
                return fold(e, memo)
            args = tuple(memo[a] for a in e.args)
            return Expr(e.op, e.dtype, args, (e.attr, pinned))

        memo: dict[Expr, Expr] = {}
        return tuple(rewrite(v, pin, memo) for v in self.values)

    def depth(self, e: Expr, depths: dict[Expr, int]) -> int:
        """How many loops (from outside) a pinned expression depends on."""
        own = 0
        if e.op == "load":
            access = self.loads[e.attr[0]]
            own = self._depth_of({a for a, s in enumerate(access.strides) if s != 0})
        elif e.op == "window":
            own = self._depth_of(set(self.windows[e.attr[0]]))
        elif e.op == "index":
            axis = self.indices[e.attr[0]].axis
            own = self._depth_of({axis} if axis is not None else set())
        return max([own, *(depths[a] for a in e.args)])

    def _depth_of(self, axes: set[int]) -> int:
        return max((d + 1 for d, a in enumerate(self.loop_axes) if a in axes), default=0)


def fold(e: Expr, memo: dict[Expr, Expr]) -> Expr | None:
    """Decides tests on constants now, so that no kernel makes them; None if there are none.

    `memo` holds what the arguments of `e` have become.
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


def leaves(spec: KernelSpec) -> list[Expr]:
    """All expressions of a spec, arguments first."""
    return walk(spec.values)
