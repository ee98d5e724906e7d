"""Lowers a fused group to a KernelSpec, plus the recipe that fills the kernel's table.

Lowering walks from a group's root towards its inputs. For each dimension of the current value it
carries a `Term`: how the position follows from the group's output position. Each kind knows how to
lower itself (`Kind.lower`); this module drives the walk and offers the functions that kinds need.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.core import CORE_AXES, Core
from ...kernels.ir.expr import Expr
from ...kernels.ir.spec import Access, Index, KernelSpec
from ..graph.node import Node, static_channels
from ..kinds.base import Request, Step, Term, Terms, Work


class WindowRecipe(NamedTuple):
    """The test whether some dimensions of node `position` stay inside of its extents."""

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
    cores: tuple[tuple[int, Terms], ...] = ()  # a core's node, and the terms it is requested at


def _at(terms: Terms, axes: Sequence[int]) -> Terms:
    return tuple(terms[a] for a in axes)


def identity_terms(rank: int) -> Terms:
    return tuple((a, 0, ()) for a in range(rank))


# If a kernel fetches more elements of every channel than this, its channels are a loop and not
# unrolled: 16 taps of a cubic filter, unrolled for three channels, took 10 s to compile on a busy
# machine.
MAX_UNROLLED_FETCHES = 4


class CoreConflictError(Exception):
    """A kernel cannot compute node `position`, which needs its core, so it must be stored."""

    def __init__(
        self,
        position: int,
        reason: str = "a kernel computes one resample, filter or reduction, at one place",
    ) -> None:
        super().__init__(position)
        self.position = position
        self.reason = reason


class Lowering:
    """The lowered group that computes node `root`.

    `buffers` contains the positions whose value is in memory when the group runs.
    """

    def __init__(
        self,
        nodes: list[Node],
        inputs: list[tuple[int, ...]],
        buffers: Container[int],
        root: int,
        inline: Container[int] = (),
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.root = root
        self.buffers = buffers
        self.inline = inline  # results that this kernel computes and also stores
        self.members: dict[int, None] = {}
        self.stores: dict[int, tuple[Terms, Expr]] = {}
        self._loads: dict[Request, int] = {}
        self._windows: dict[WindowRecipe, int] = {}
        self._padding: dict[Expr, tuple[int, ...]] = {}  # windows with a fill value → their axes
        self._indices: dict[Term, int] = {}
        self._memo: dict[Request, Expr] = {}
        self._cores: list[tuple[int, Terms, Core] | None] = [None, None]  # outer, inner
        self._claims: list[list[tuple[int, Terms, Core]]] = [[], []]  # what they were made from
        self.rank = nodes[root].rank
        self.channels = static_channels(nodes[root])  # the channel axis, if it may be unrolled
        terms = identity_terms(self.rank)
        self.stores[root] = (terms, self._evaluate((root, terms, None)))

    @property
    def loads(self) -> list[tuple[int, Terms]]:
        """The operands that the kernel reads: position in the program, and terms."""
        return [(position, terms) for position, terms, _ in self._loads]

    @property
    def has_core(self) -> bool:
        return self._cores[0] is not None

    @property
    def core_at(self) -> int | None:
        """The value that the kernel's core computes."""
        return None if self._cores[0] is None else self._cores[0][0]

    # -- values --------------------------------------------------------------------------------

    def _evaluate(self, root: Request) -> Expr:
        """The expression for a request. `Kind.lower` yields the requests that it depends on and is
        sent their expressions; the stack is explicit, because a long chain is too deep to recurse.
        """
        stack = [(root, self._begin(*root))]
        answer: Expr | None = None
        while stack:
            request, work = stack[-1]
            try:
                needed = work.send(answer)  # type: ignore[arg-type]
            except StopIteration as done:
                stack.pop()
                answer = self._memo[request] = done.value
                if request[0] in self.inline:
                    self.stores.setdefault(request[0], (request[1], done.value))
                continue
            answer = self._known(needed)
            if answer is None:
                stack.append((needed, self._begin(*needed)))
        assert answer is not None
        return answer

    def _begin(self, position: int, terms: Terms, guard: Expr | None) -> Work:
        self.members[position] = None
        return self.nodes[position].definition.kind.lower(self, position, terms, guard)

    def _known(self, request: Request) -> Expr | None:
        position, terms, guard = request
        if position in self.buffers and position not in self.inline:
            return self._load(position, terms, guard)
        return self._memo.get(request)

    def places(self, position: int) -> list[Request]:
        """All requests in this kernel for the value of a node, computed or loaded."""
        return [r for r in (*self._memo, *self._loads) if r[0] == position]

    # -- for the pass `store_repeated` ---------------------------------------------------------

    def computed(self) -> list[tuple[int, Expr]]:
        """All values that the kernel computes: positions in the program, and expressions."""
        return [(position, value) for (position, _, _), value in self._memo.items()]

    def values(self) -> list[Expr]:
        """What the kernel stores."""
        return [value for _, value in self.stores.values()]

    def loops(self) -> list[int]:
        """The output axes that become loops, outermost first."""
        return [a for a, n in enumerate(self._extents(self.nodes[self.root])) if n is None]

    def own_axes(self, e: Expr) -> frozenset[int]:
        """The axes that a leaf follows by itself; a core may follow any of them."""
        if e.op in ("load", "fetch", "bilinear"):
            return frozenset(
                a for a, _, _ in self.loads[e.attr][1] if a is not None and a < self.rank
            )
        if e.op == "index":
            return frozenset(a for a, _, _ in [list(self._indices)[e.attr]] if a is not None)
        if e.op == "window":
            return frozenset(list(self._windows)[e.attr].axes)
        return frozenset(range(self.rank)) if e.op == "core" else frozenset()

    # -- for kinds -----------------------------------------------------------------------------

    def broadcast(self, position: int, terms: Terms, same: tuple[bool, ...] = ()) -> Terms:
        """Terms that stay at 0 in dimensions of extent 1; dimensions in `same` need no change."""
        return tuple(
            term
            if (same and same[d]) or term[0] is None
            else (term[0], term[1], (*term[2], ("broadcast", position, d)))
            for d, term in enumerate(terms)
        )

    def index(self, term: Term) -> Expr:
        """A position as an int32 expression."""
        axis, k, path = term
        if axis is None and not path:
            return ex.const(k, dt.int32)
        slot = self._indices.setdefault(term, len(self._indices))
        return Expr("index", dt.int32, (), slot)

    def window(self, position: int, tests: tuple[tuple[int, Term], ...], is_padding: bool) -> Expr:
        """The test whether dimensions of node `position` stay inside of its extents.

        `is_padding`: outside there is a fill value, so nothing else depends on the test.
        """
        axes = sorted({t[0] for _, t in tests if t[0] is not None}) or [0]
        recipe = WindowRecipe(position, tests, tuple(axes))
        slot = self._windows.setdefault(recipe, len(self._windows))
        window = Expr("window", dt.bool_, (), slot)
        if is_padding and all(t[0] is not None for _, t in tests):
            self._padding[window] = tuple(t[0] for _, t in tests if t[0] is not None)
        return window

    def slot(self, position: int, terms: Terms, guard: Expr | None) -> int:
        """The slot of an operand that the kernel reads; a new one if the operand is new."""
        return self._loads.setdefault((position, terms, guard), len(self._loads))

    def in_core(
        self, position: int, terms: Terms, axes: Sequence[int]
    ) -> tuple[Terms, int, tuple[str, int]]:
        """How a core reads its input if its dimensions are these axes of node `position`.

        Returns the terms of the input; how many channels the core computes together, 0 if it
        computes them one by one; and which of them is requested, as `claim` takes it.
        """
        own = list(terms)
        inside = self._is_inside(terms)
        first = self.first_dimension(terms)
        for k, a in enumerate(axes):
            own[a] = (first + k, 0, ())
        count, which = self._channels_of(position, terms, axes)
        if count:
            channel, _ = static_channels(self.nodes[position])  # type: ignore[misc]
            own[channel] = (first + len(axes), 0, ())
        # The core around this one asks for whole rows: nothing else may depend on its positions.
        left = [t for t in own if t[0] is not None and t[0] < first]
        if inside and (self._is_inside(tuple(left)) or not self._is_inside(_at(terms, axes))):
            raise CoreConflictError(position)
        return tuple(own), count, which

    def first_dimension(self, terms: Terms) -> int:
        """The number of the first dimension of a core that is requested at `terms`."""
        return self.rank + CORE_AXES * self._is_inside(terms)

    def _channels_of(
        self, position: int, terms: Terms, axes: Sequence[int]
    ) -> tuple[int, tuple[str, int]]:
        """How many channels a core computes together, and which is requested; see `in_core`."""
        channels = static_channels(self.nodes[position])
        if channels is None or channels[0] in axes:
            return 0, ("at", 0)
        axis, k, path = terms[channels[0]]
        if path:
            return 0, ("at", 0)
        if axis is None:
            return channels[1], ("at", k)
        # A core around this one computes its channels together, as a kernel unrolls its own.
        is_unrolled = self.channels == (axis, channels[1]) or axis >= self.rank
        if not is_unrolled or axis in [t[0] for t in _at(terms, axes)]:
            return 0, ("at", 0)
        return channels[1], ("axis", axis)

    def claim(self, position: int, where: Terms, core: Core, which: tuple[str, int]) -> Expr:
        """Use the kernel's core for node `position`; the result reads it.

        `where`: the terms at which its dimensions are requested; `which`: ("at", k) for channel k,
        or ("axis", a) for the channel at the position of the unrolled output axis `a`.
        """
        inside = self._is_inside(where)
        if not inside and self._reads_core(core):
            core = replace(core, inner=self._inner_of(core))
        found, claims = (position, where, core), self._claims[inside]
        if found not in claims:
            self._cores[inside] = self._joined(self._cores[inside], found, inside)
            claims.append(found)
        behind = (core.lanes,) if claims.index(found) else ()
        return Expr("core", self.nodes[position].dtype, (), (*which, *behind))

    def _joined(
        self, held: tuple[int, Terms, Core] | None, found: tuple[int, Terms, Core], inside: bool
    ) -> tuple[int, Terms, Core]:
        """The core of a kernel that has the core `held` so far and needs `found`, too."""
        if held is None:
            return found
        position, where, core = found
        both = None
        if not inside and held[1] == where and self.nodes[position].device is None:
            both = held[2].beside(core)
        if both is None:
            raise CoreConflictError(position)
        return held[0], where, both

    def keep_neighbours(self, position: int, where: Terms) -> None:
        """Store node `position` if neighbours of the kernel's result are not its neighbours along
        these dimensions: a kernel that computes tiles may flip them or cut parts out of them."""

        def is_near(step: Step) -> bool:
            what, view, dimension = step
            kind = self.nodes[view].definition.kind
            return what == "view" and (kind.is_unit(dimension) or kind.is_onto)

        axes = {axis for axis, _, path in where if axis is not None and all(map(is_near, path))}
        if len(axes) < len(where):
            raise CoreConflictError(position, "a kernel computes whole tiles of it")

    def _is_inside(self, terms: Terms) -> bool:
        """Whether a core is requested at positions that another core computes."""
        return any(axis is not None and axis >= self.rank for axis, _, _ in terms)

    def _reads_core(self, core: Core) -> bool:
        return any(e.op == "core" for e in ex.walk([core.value]))

    def _inner_of(self, core: Core) -> Core:
        """The core that computes the rows that `core` reads."""
        found = self._cores[True]
        assert found is not None
        position, _, inner = found
        follows = tuple(range(self.rank, self.rank + len(core.axes)))
        if not core.takes(inner) or inner.axes != follows:
            raise CoreConflictError(position)
        return inner

    def placed(self, template: Expr, positions: tuple[Expr, ...]) -> Expr:
        """A template that reads its varying loads at these positions."""
        varying = self._varying()

        def leaf(e: Expr) -> Expr | None:
            if e.op != "load" or e.attr not in varying:
                return None
            return Expr("fetch", e.dtype, positions, e.attr)

        return ex.rewrite(template, leaf, {})

    def plain_load(self, template: Expr, dimensions: int) -> Expr | None:
        """The load if the template is only that, or its exact conversion to float32; else None.

        The load must follow all computed positions, unlike a column that is repeated along rows.
        """
        e = template
        if e.op == "cast" and e.dtype is dt.float32 and e.args[0].dtype.bits <= 16:
            e = e.args[0]
        if e.op != "load":
            return None
        followed = {axis for axis, _, _ in self.loads[e.attr][1]}
        return e if followed.issuperset(range(self.rank, self.rank + dimensions)) else None

    def _varying(self) -> set[int]:
        """Slots of loads at positions that the kernel computes; a load of a constant has none."""
        return {
            k
            for k, (_, terms, _) in enumerate(self._loads)
            if any((axis or 0) >= self.rank for axis, _, _ in terms)
        }

    # -- bilinear reads ------------------------------------------------------------------------

    def spell_out_bilinear(self) -> None:
        """Write bilinear reads as four taps each, unless a CPU kernel can read whole lines.

        See `KernelSpec.has_whole_lines`.
        """
        values = [v for _, v in self.stores.values()]
        if not any(e.op == "bilinear" for e in ex.walk(values)):
            return
        if self.nodes[self.root].device is None and self.finish()[0].has_whole_lines:
            return
        sources = [self.nodes[p].dtype for p, _, _ in self._loads]
        memo: dict[Expr, Expr] = {}

        def leaf(e: Expr) -> Expr | None:
            if e.op != "bilinear":
                return None
            y, x, h, w, *fill = (memo[a] for a in e.args)

            def tap(row: Expr, column: Expr) -> Expr:
                return ex.cast(Expr("fetch", sources[e.attr], (row, column), e.attr), dt.float32)

            return ex.bilinear_of(tap, y, x, h, w, fill[0] if fill else None)

        self.stores = {p: (t, ex.rewrite(v, leaf, memo)) for p, (t, v) in self.stores.items()}

    # -- leaves --------------------------------------------------------------------------------

    def _load(self, position: int, terms: Terms, guard: Expr | None) -> Expr:
        guard = self._needed(guard, {axis for axis, _, _ in terms})
        slot = self.slot(position, terms, guard)
        args = () if guard is None else (guard,)
        return Expr("load", self.nodes[position].dtype, args, slot)

    def _needed(self, guard: Expr | None, axes: set[int | None]) -> Expr | None:
        """The part of a guard that a load along `axes` needs.

        A scalar can always be read, and padding along other axes does not move a load. So the
        scalars of an op, and everything computed from them alone, stay outside of the loops over
        a padded or stacked image (lines of a warp need them there).
        """
        if not axes:
            return None
        kept = None
        while guard is not None:
            guard, test = guard.args if guard.op == "and" else (None, guard)
            moves = self._padding.get(test)
            if moves is None or not axes.isdisjoint(moves):
                kept = test if kept is None else test & kept
        return kept

    # -- the spec ------------------------------------------------------------------------------

    def finish(self) -> tuple[KernelSpec, Recipe]:
        """The kernel's spec, and the recipe that fills its table."""
        node = self.nodes[self.root]
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
        cores = [c for c in self._cores if c is not None]
        # The kernel's name lists its ops. Leave out views that only rename axes: they are no-ops.
        renamed = {p for p in self.members if self.nodes[p].definition.kind.is_rename}
        ops = tuple(self.nodes[p].op for p in sorted(self.members.keys() - renamed or renamed))
        spec = KernelSpec(
            ops, extents, loads, stores, tuple(v for _, v in self.stores.values()),
            tuple(w.axes for w in self._windows), indices, cores[0][2] if cores else None,
        )  # fmt: skip
        recipe = Recipe(
            self.root, flat, tuple(self.loads),
            tuple((p, t) for p, (t, _) in self.stores.items()),
            tuple(self._windows), tuple(self._indices),
            tuple((position, terms) for position, terms, _ in cores),
        )  # fmt: skip
        return spec, recipe

    def _is_flat(self, rank: int) -> bool:
        """Whether all operands run over the same contiguous elements, so one loop is enough."""
        if self._windows or self._indices or self.has_core:
            return False
        whole = identity_terms(rank)
        for position, terms, _ in self._loads:
            if terms != whole and any(term != (None, 0, ()) for term in terms):
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
        if channels is None or self._core_follows(channels[0]):
            return tuple(extents)
        values = [v for _, v in self.stores.values()]
        places = list(self._loads)
        followed = [{t[0] for t in terms} for _, terms, _ in places]
        # A fetch that does not follow the channels is done once for all of them.
        fetches = [e for e in ex.walk(values) if e.op == "fetch"]
        if sum(channels[0] in followed[e.attr] for e in fetches) <= MAX_UNROLLED_FETCHES:
            extents[channels[0]] = channels[1]
        return tuple(extents)

    def _core_follows(self, axis: int) -> bool:
        """Whether the core must be computed for every position along an axis."""
        places, indices = list(self._loads), list(self._indices)
        followed: set[int | None] = set()
        for found in self._cores:
            if found is None:
                continue
            _, terms, core = found
            parts = ex.walk([core.value])
            loads = [e.attr for e in parts if e.op == "load"]
            followed |= {t[0] for slot in loads for t in places[slot][1]} | {t[0] for t in terms}
            followed |= {indices[e.attr][0] for e in parts if e.op == "index"}
        return axis in followed

    def _access(self, key: Request, flat: bool, rank: int) -> Access:
        position, terms, guard = key
        dtype = self.nodes[position].dtype
        if flat:
            moves = any(axis is not None for axis, _, _ in terms)
            return Access(dtype, (1 if moves else 0,))
        strides = self._strides(position, terms, rank)
        likely = self._strides(position, terms, rank, assume_unit=True)
        likely = likely if likely != strides else ()
        return Access(dtype, strides, guard is not None, likely, self._twin(key))

    def _twin(self, key: Request) -> tuple[int, int] | None:
        """The slot that reads channel 0 where this one reads another channel; see `Access.twin`."""
        position, terms, guard = key
        node = self.nodes[position]
        channels = static_channels(node)
        if channels is None or len(terms) != node.rank:
            return None
        d = channels[0]
        axis, k, path = terms[d]
        stride = self._known_strides(node, position)[d]
        if axis is not None or path or k == 0 or stride is None:
            return None
        slot = self._loads.get((position, (*terms[:d], (None, 0, ()), *terms[d + 1 :]), guard))
        return None if slot is None else (slot, k * stride)

    def _strides(
        self, position: int, terms: Terms, rank: int, assume_unit: bool = False
    ) -> tuple[int | None, ...]:
        """Stride per output axis: 0 if the operand ignores it, a number if it is known, else None.

        `assume_unit`: treat flips and stepped slices as if their step were 1.
        """
        node = self.nodes[position]
        known = self._known_strides(node, position)
        behind = [axis + 1 for axis, _, _ in terms if axis is not None]
        strides: list[int | None] = [0] * max([rank, *behind])
        seen: set[int] = set()
        for d, (axis, _, path) in enumerate(terms):
            if axis is None:
                continue
            unit = all(
                kind == "view" and (assume_unit or self.nodes[p].definition.kind.is_unit(dim))
                for kind, p, dim in path
            )
            strides[axis] = known[d] if unit and axis not in seen else None
            seen.add(axis)
        return tuple(strides)

    def _known_strides(self, node: Node, position: int) -> list[int | None]:
        """Strides that are the same for all sizes: 1 for the last axis, C for the one before."""
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
