"""KernelSpec: everything that a code generator may know about a fused group.

Both back-ends read one table of int64, with one row per sample: extents, addresses, strides,
window bounds. Everything that depends on a size or an argument is in the table, so a new image
size, batch size or argument value never changes the spec, and never causes compilation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, product

from ..common.memo import made_once
from .core import CORE_AXES, Column, Core
from .dtypes import DType
from .expr import Expr, const, rewrite, walk
from .rewrites import fold


@dataclass(frozen=True)
class Access:
    """A strided operand. A stride is in elements: a number, or None if only the table knows it."""

    dtype: DType
    strides: tuple[int | None, ...]
    guarded: bool = False  # read only where a window allows it
    likely: tuple[int | None, ...] = ()  # the strides if no axis is mirrored or has steps
    # (slot, elements): the operand is that of another slot, so many elements later, such as another
    # channel of the same pixels. If all channels have the same base, LLVM loads whole pixels.
    twin: tuple[int, int] | None = None

    @property
    def is_scalar(self) -> bool:
        return not self.guarded and all(s == 0 for s in self.strides)


@dataclass(frozen=True)
class Index:
    """The position `step * o[axis] + offset`, or just `o[axis]` if `identity`."""

    axis: int | None
    identity: bool


@dataclass(frozen=True)
class KernelSpec:
    """A kernel that loops over its output, computes `values` at each point and stores them."""

    ops: tuple[str, ...]
    extents: tuple[int | None, ...]  # a number for a small static axis, which is unrolled
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]
    values: tuple[Expr, ...]
    windows: tuple[tuple[int, ...], ...] = ()  # axes tested by each window
    indices: tuple[Index, ...] = ()
    core: Core | None = None  # computes the value of a `core` leaf
    is_tabulated: bool = False  # see tabulate.py

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def chain(self) -> str:
        """The ops in readable form; an op that consists of several nodes is named once."""
        return " → ".join(op for op, _ in groupby(self.ops))

    @property
    def cores(self) -> tuple[Core, ...]:
        """The core, and the one inside of it."""
        return () if self.core is None else self.core.chain

    @made_once
    def of_inner(self) -> KernelSpec:
        """The kernel as the core inside of its core sees it.

        It loops over the dimensions of the outer core, in place of the axes that these follow.
        """
        core = self.core
        assert core is not None and core.inner is not None
        own = [1 if a in core.axes else n for a, n in enumerate(self.extents)]
        dims: list[int | None] = [None] * len(core.axes)
        more = [1] * (CORE_AXES - len(dims))
        return replace(self, extents=(*own, *dims, *more), core=core.inner)

    @made_once
    def loop_axes(self) -> tuple[int, ...]:
        """Axes that become loops, outermost first; axes that the core follows are innermost."""
        axes = [a for a, n in enumerate(self.extents) if n is None]
        followed = [a for a in self.core.axes if a is not None] if self.core else []
        return (*(a for a in axes if a not in followed), *followed)

    @made_once
    def static_points(self) -> tuple[dict[int, int], ...]:
        """Every position on the unrolled axes."""
        axes = [a for a, n in enumerate(self.extents) if n is not None]
        ranges = [range(self.extents[a]) for a in axes]  # type: ignore[arg-type]
        return tuple(dict(zip(axes, p, strict=True)) for p in product(*ranges))

    @made_once
    def columns(self) -> dict[Column, int]:
        """The column of each run-time number in the table."""
        names: list[Column] = [("n", a) for a in self.loop_axes]
        for kind, accesses in (("out", self.stores), ("in", self.loads)):
            for k, access in enumerate(accesses):
                names.append((kind, k))
                if access.guarded:
                    names.append((f"{kind}_first", k))
                names += [
                    (f"{kind}_stride", k, a) for a, s in enumerate(access.strides) if s is None
                ]
                if len(access.strides) > self.rank:
                    names.append((f"{kind}_reach", k))  # elements that can be read
        for w, axes in enumerate(self.windows):
            for a in axes:
                names += [("lo", w, a), ("hi", w, a)]
        for i, ix in enumerate(self.indices):
            if not ix.identity:
                names += [("step", i), ("offset", i)]
        for core in self.cores:
            names += core.columns()
        return {name: k for k, name in enumerate(names)}

    def at_point(self, point: dict[int, int]) -> tuple[Expr, ...]:
        """The values at one position of the unrolled axes, with leaves pinned to it."""

        def pin(e: Expr) -> Expr | None:
            if e.op in ("load", "fetch", "bilinear"):
                pinned = self._pins(e.attr, point)
                if e.op == "bilinear":
                    return self._lane(e, tuple(memo[a] for a in e.args), pinned)
            elif e.op == "core":
                kind, number, *behind = e.attr
                result = point[number] if kind == "axis" else number
                return Expr("core", e.dtype, (), sum(behind, result))
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

    def _pins(self, slot: int, point: dict[int, int]) -> tuple[tuple[int, int], ...]:
        strides = self.loads[slot].strides
        return tuple((a, k) for a, k in point.items() if strides[a] != 0)

    def _lane(self, e: Expr, args: tuple[Expr, ...], pinned: tuple[tuple[int, int], ...]) -> Expr:
        """One lane of a bilinear read; channels that lie side by side are read together."""
        strides = self.loads[e.attr].strides
        if len(pinned) == 1 and strides[pinned[0][0]] == 1:
            axis, lane = pinned[0]
            lanes = self.extents[axis]
            whole = Expr("bilinear", e.dtype, args, (e.attr, ((axis, 0),), lanes))
            return Expr("lane", e.dtype, (whole,), lane)
        return Expr("lane", e.dtype, (Expr("bilinear", e.dtype, args, (e.attr, pinned, 1)),), 0)

    @made_once
    def has_whole_lines(self) -> bool:
        """Whether bilinear reads depend on the innermost loop only through their positions, so that
        a whole line can be interpolated at once."""
        inner = self.loop_axes[-1:]
        slots = {e.attr for e in walk(self.values) if e.op == "bilinear"}
        return not any(self.loads[slot].strides[a] != 0 for slot in slots for a in inner)

    @made_once
    def core_loads(self) -> tuple[Access, ...]:
        """Operands that the core reads."""
        assert self.core is not None
        return tuple(self.loads[e.attr] for e in walk([self.core.value]) if e.op == "load")

    def depth(self, e: Expr, depths: dict[Expr, int]) -> int:
        """How many loops, counted from outside, a pinned expression depends on."""
        own = self._depth_of(self.own_axes(e))
        if e.op == "core":
            assert self.core is not None
            own = self.core.depth(len(self.loop_axes))
        elif e.op == "lane" and not e.args:
            own = len(self.loop_axes)
        return max([own, *(depths[a] for a in e.args)])

    def own_axes(self, e: Expr) -> set[int]:
        """The output axes that a pinned load, window or index follows, apart from its arguments."""
        if e.op in ("load", "fetch", "bilinear"):
            return {a for a, s in enumerate(self.loads[e.attr[0]].strides) if s != 0}
        if e.op == "window":
            return set(self.windows[e.attr[0]])
        if e.op == "index":
            axis = self.indices[e.attr[0]].axis
            return set() if axis is None else {axis}
        return set()

    def _depth_of(self, axes: set[int]) -> int:
        return max((d + 1 for d, a in enumerate(self.loop_axes) if a in axes), default=0)
