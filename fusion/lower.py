"""A fused group → KernelSpec, plus the recipe that fills the kernel's table.

Lowering walks from a group's root towards its inputs. On the way it carries, for each dimension of
the value at hand, a `Term`: how its position follows from the group's output position. Views only
rewrite terms; so a chain of flips, crops, slices and transposes costs the kernel nothing: at launch
it becomes one address and one stride per axis.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..kernels import expr as ex
from ..kernels.expr import Expr
from ..kernels.spec import Access, Index, KernelSpec
from .graph import Merge, Node, Pointwise, View, static_channels

# (axis, constant, path): start at o[axis] (or at the constant), then apply each step of the path:
# ("view", position, dimension) or ("broadcast", position, dimension).
Step = tuple[str, int, int]
Term = tuple[int | None, int, tuple[Step, ...]]
Terms = tuple[Term, ...]


class WindowRecipe(NamedTuple):
    """Where some dimensions of node `position` stay inside its extents."""

    position: int
    tests: tuple[tuple[int, Term], ...]
    axes: tuple[int, ...]


class Recipe(NamedTuple):
    """How to fill the table of a lowered group; positions are those of the program."""

    root: int
    flat: bool
    loads: tuple[tuple[int, Terms], ...]
    stores: tuple[tuple[int, Terms], ...]
    windows: tuple[WindowRecipe, ...]
    indices: tuple[Term, ...]


def identity_terms(rank: int) -> Terms:
    return tuple((a, 0, ()) for a in range(rank))


class Lowering:
    """Lowers one group. `buffers` are positions whose value is in memory when the group runs."""

    def __init__(
        self, nodes: list[Node], inputs: list[tuple[int, ...]], buffers: set[int], inline: set[int]
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.buffers = buffers
        self.inline = inline  # results that this kernel computes and also stores
        self.members: dict[int, None] = {}
        self.stores: dict[int, tuple[Terms, Expr]] = {}
        self._loads: dict[tuple[int, Terms, Expr | None], int] = {}
        self._windows: dict[WindowRecipe, int] = {}
        self._indices: dict[Term, int] = {}
        self._memo: dict[tuple[int, Terms, Expr | None], Expr] = {}

    def group(self, root: int) -> tuple[KernelSpec, Recipe]:
        terms = identity_terms(self.nodes[root].rank)
        value = self._compute(root, terms, None)
        self.stores[root] = (terms, value)
        return self._finish(root)

    # -- values --------------------------------------------------------------------------------

    def value(self, position: int, terms: Terms, guard: Expr | None) -> Expr:
        """The value of a node at the position that `terms` describe."""
        if position in self.buffers and position not in self.inline:
            return self._load(position, terms, guard)
        key = (position, terms, guard)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._compute(position, terms, guard)
            if position in self.inline and guard is None and position not in self.stores:
                self.stores[position] = (terms, found)
        return found

    def _compute(self, position: int, terms: Terms, guard: Expr | None) -> Expr:
        self.members[position] = None
        static = self.nodes[position].static
        if isinstance(static, Pointwise):
            return self._pointwise(position, static, terms, guard)
        if isinstance(static, View):
            window, value = self._view(position, static, terms, guard)
            if window is None:
                return value
            fill = self.inputs[position][1]
            fill_terms = tuple(terms[a] for a in static.fill_axes)
            fill_terms = self._broadcast(fill, fill_terms)
            return ex.select(window, value, self.value(fill, fill_terms, guard))
        assert isinstance(static, Merge)
        return self._merge(position, terms, guard)

    def _pointwise(self, position: int, static: Pointwise, terms: Terms, guard: Expr | None) -> Expr:
        def leaf(e: Expr) -> Expr | None:
            if e.op == "input":
                i, pins = e.attr
                return self._input(position, static, i, pins, terms, guard)
            if e.op == "index":
                return self._index(terms[e.attr])
            if e.op == "lookup":
                table = self.inputs[position][e.attr]
                slot = self._slot(table, ((None, 0, ()),), None)
                return Expr("lookup", e.dtype, tuple(memo[a] for a in e.args), slot)
            return None

        memo: dict[Expr, Expr] = {}
        return ex.rewrite(static.expr, leaf, memo)

    def _input(
        self,
        position: int,
        static: Pointwise,
        i: int,
        pins: tuple[tuple[int, int], ...],
        terms: Terms,
        guard: Expr | None,
    ) -> Expr:
        pinned: dict[int, Term] = {axis % static.rank: (None, k, ()) for axis, k in pins}
        source = self.inputs[position][i]
        own = tuple(pinned.get(a, terms[a]) for a in static.axes[i])
        return self.value(source, self._broadcast(source, own, static.same[i]), guard)

    def _broadcast(self, position: int, terms: Terms, same: tuple[bool, ...] = ()) -> Terms:
        """Terms that stay at 0 in dimensions of extent 1; those in `same` need no such care."""
        return tuple(
            term
            if (same and same[d]) or term[0] is None
            else (term[0], term[1], (*term[2], ("broadcast", position, d)))
            for d, term in enumerate(terms)
        )

    def _view(
        self, position: int, static: View, terms: Terms, guard: Expr | None
    ) -> tuple[Expr | None, Expr]:
        source = self.inputs[position][0]
        own: list[Term] = []
        for d, a in enumerate(static.axes):
            axis, k, path = (None, 0, ()) if a is None else terms[a]
            own.append(
                (axis, k, path)
                if static.unit[d] and static.still[d]
                else (axis, k, (*path, ("view", position, d)))
            )
        window = None
        if static.checked:
            window = self._window(source, tuple((d, own[d]) for d in static.checked))
            guard = window if guard is None else guard & window
        return window, self.value(source, tuple(own), guard)

    def _merge(self, position: int, terms: Terms, guard: Expr | None) -> Expr:
        parts = []
        for part in self.inputs[position]:
            self.members[part] = None
            parts.append(self._view(part, self.nodes[part].static, terms, guard))
        value = parts[-1][1]
        for window, part_value in reversed(parts[:-1]):
            assert window is not None
            value = ex.select(window, part_value, value)
        return value

    # -- leaves --------------------------------------------------------------------------------

    def _slot(self, position: int, terms: Terms, guard: Expr | None) -> int:
        return self._loads.setdefault((position, terms, guard), len(self._loads))

    def _load(self, position: int, terms: Terms, guard: Expr | None) -> Expr:
        slot = self._slot(position, terms, guard)
        args = () if guard is None else (guard,)
        return Expr("load", self.nodes[position].dtype, args, slot)

    def _window(self, position: int, tests: tuple[tuple[int, Term], ...]) -> Expr:
        axes = sorted({t[0] for _, t in tests if t[0] is not None}) or [0]
        recipe = WindowRecipe(position, tests, tuple(axes))
        slot = self._windows.setdefault(recipe, len(self._windows))
        return Expr("window", ex.dt.bool_, (), slot)

    def _index(self, term: Term) -> Expr:
        slot = self._indices.setdefault(term, len(self._indices))
        return Expr("index", ex.dt.int32, (), slot)

    # -- the spec ------------------------------------------------------------------------------

    def _finish(self, root: int) -> tuple[KernelSpec, Recipe]:
        node = self.nodes[root]
        flat = self._is_flat(node.rank)
        extents: tuple[int | None, ...] = (None,) if flat else self._extents(node)
        loads = tuple(self._access(k, flat, node.rank) for k in self._loads)
        stores = tuple(
            Access(self.nodes[p].dtype, (1,))
            if flat
            else Access(self.nodes[p].dtype, self._strides(p, terms, node.rank))
            for p, (terms, _) in self.stores.items()
        )
        indices = tuple(Index(t[0], t[0] is not None and not t[2]) for t in self._indices)
        ops = tuple(self.nodes[p].op for p in sorted(self.members))
        spec = KernelSpec(
            ops, extents, loads, stores, tuple(v for _, v in self.stores.values()),
            tuple(w.axes for w in self._windows), indices,
        )  # fmt: skip
        recipe = Recipe(
            root, flat, tuple((p, t) for p, t, _ in self._loads),
            tuple((p, t) for p, (t, _) in self.stores.items()),
            tuple(self._windows), tuple(self._indices),
        )  # fmt: skip
        return spec, recipe

    def _is_flat(self, rank: int) -> bool:
        """Whether all operands run over the same contiguous elements, so one loop does."""
        if self._windows or self._indices:
            return False
        whole = identity_terms(rank)
        for position, terms, _ in self._loads:
            if terms != whole and any(axis is not None for axis, _, _ in terms):
                return False
            if terms == whole and not self._contiguous(position):
                return False
        return all(terms == whole for terms, _ in self.stores.values())

    def _contiguous(self, position: int) -> bool:
        storage = self.nodes[position].storage
        return storage is None or storage.strides is None

    def _extents(self, node: Node) -> tuple[int | None, ...]:
        extents: list[int | None] = [None] * node.rank
        channels = static_channels(node)
        if channels is not None:
            extents[channels[0]] = channels[1]
        return tuple(extents)

    def _access(
        self, key: tuple[int, Terms, Expr | None], flat: bool, rank: int
    ) -> Access:
        position, terms, guard = key
        dtype = self.nodes[position].dtype
        if flat:
            moves = any(axis is not None for axis, _, _ in terms)
            return Access(dtype, (1 if moves else 0,))
        return Access(dtype, self._strides(position, terms, rank), guard is not None)

    def _strides(self, position: int, terms: Terms, rank: int) -> tuple[int | None, ...]:
        """Per output axis: 0 if the operand ignores it, a number if it is known, else None."""
        node = self.nodes[position]
        known = self._known_strides(node, position)
        strides: list[int | None] = [0] * rank
        seen: set[int] = set()
        for d, (axis, _, path) in enumerate(terms):
            if axis is None:
                continue
            unit = all(kind == "view" and self.nodes[p].static.unit[dim] for kind, p, dim in path)
            strides[axis] = known[d] if unit and axis not in seen else None
            seen.add(axis)
        return tuple(strides)

    def _known_strides(self, node: Node, position: int) -> list[int | None]:
        """Element strides that no size can change: 1 for the last axis, C for the one before."""
        known: list[int | None] = [None] * node.rank
        if not self._contiguous(position):
            return known
        channels = static_channels(node)
        stride: int | None = 1
        for d in range(node.rank - 1, -1, -1):
            known[d] = stride
            fixed = channels is not None and channels[0] == d
            stride = stride * channels[1] if fixed and stride is not None else None  # type: ignore[index]
        return known


def describe(recipe: Recipe, nodes: list[Node]) -> dict[str, Any]:
    """Numbers for explain(): what a group reads and writes."""
    return {
        "reads": [p for p, _ in recipe.loads],
        "writes": [p for p, _ in recipe.stores],
        "root": recipe.root,
    }
