"""A fused group → KernelSpec, plus the recipe that fills the kernel's table.

Lowering walks from a group's root towards its inputs. On the way it carries, for each dimension of
the value at hand, a `Term`: how its position follows from the group's output position. Views only
rewrite terms; so a chain of flips, crops, slices and transposes costs the kernel nothing: at launch
it becomes one address and one stride per axis.
"""

from __future__ import annotations

from collections.abc import Container, Generator
from functools import lru_cache
from typing import NamedTuple

from ...kernels.ir import dtypes as dt
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.spec import Access, Index, KernelSpec, Sampler
from ..graph.node import Merge, Node, Pointwise, Resample, View, static_channels

# (axis, constant, path): start at o[axis] (or at the constant), then apply each step of the path:
# ("view", position, dimension), ("broadcast", position, dimension), or ("extent", …), which is the
# extent of that dimension. Axes from the group's rank on are positions that the kernel computes.
Step = tuple[str, int, int]
Term = tuple[int | None, int, tuple[Step, ...]]
Terms = tuple[Term, ...]
# A value at a place: position in the program, terms, and the window in which it is defined.
Request = tuple[int, Terms, Expr | None]
Work = Generator[Request, Expr, Expr]


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
    sampler: tuple[int, Terms] | None = None  # the interpolated node, and where it is asked for


def identity_terms(rank: int) -> Terms:
    return tuple((a, 0, ()) for a in range(rank))


# Channels of values that read more elements than this are a loop: 16 taps of a cubic filter for
# each of three channels, unrolled, took 10 s to compile on a busy machine.
MAX_UNROLLED_FETCHES = 4


class SamplerConflictError(Exception):
    """A group would interpolate two values; that of node `position` has to be stored."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Lowering:
    """Lowers one group. `buffers` are positions whose value is in memory when the group runs."""

    def __init__(
        self,
        nodes: list[Node],
        inputs: list[tuple[int, ...]],
        buffers: Container[int],
        inline: Container[int],
        lines: bool = True,
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.buffers = buffers
        self.inline = inline  # results that this kernel computes and also stores
        self.lines = lines  # whether bilinear values may be read a line at a time
        self.members: dict[int, None] = {}
        self.stores: dict[int, tuple[Terms, Expr]] = {}
        self._loads: dict[Request, int] = {}
        self._windows: dict[WindowRecipe, int] = {}
        self._padding: dict[Expr, tuple[int, ...]] = {}  # windows with a fill value: their axes
        self._indices: dict[Term, int] = {}
        self._memo: dict[Request, Expr] = {}
        self._sampler: tuple[int, Terms, Sampler] | None = None
        self.rank = 0
        self.channels: tuple[int, int] | None = None  # of the root, if they are unrolled

    def group(self, root: int) -> tuple[KernelSpec, Recipe]:
        self.rank = self.nodes[root].rank
        self.channels = static_channels(self.nodes[root])
        terms = identity_terms(self.nodes[root].rank)
        value = self._evaluate((root, terms, None))
        self.stores[root] = (terms, value)
        return self._finish(root)

    # -- values --------------------------------------------------------------------------------

    def _evaluate(self, root: Request) -> Expr:
        """The value of a request. An explicit stack, because a chain is as deep as it is long:
        `_compute` yields what it needs and is sent the answer."""
        stack = [(root, self._compute(*root))]
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
                stack.append((needed, self._compute(*needed)))
        assert answer is not None
        return answer

    def _known(self, request: Request) -> Expr | None:
        position, terms, guard = request
        if position in self.buffers and position not in self.inline:
            return self._load(position, terms, guard)
        return self._memo.get(request)

    def places(self, position: int) -> list[Request]:
        """Where this kernel computes the value of a node, or reads it."""
        return [r for r in (*self._memo, *self._loads) if r[0] == position]

    def _compute(self, position: int, terms: Terms, guard: Expr | None) -> Work:
        self.members[position] = None
        static = self.nodes[position].static
        if isinstance(static, Pointwise):
            return (yield from self._pointwise(position, static, terms, guard))
        if isinstance(static, View):
            window, value = yield from self._view(position, static, terms, guard)
            if window is None:
                return value
            fill = self.inputs[position][1]
            fill_terms = tuple(terms[a] for a in static.fill_axes)
            outside = yield fill, self._broadcast(fill, fill_terms), guard
            return ex.select(window, value, outside)
        if isinstance(static, Resample):
            return (yield from self._resample(position, static, terms))
        assert isinstance(static, Merge)
        return (yield from self._merge(position, terms, guard))

    def _pointwise(
        self, position: int, static: Pointwise, terms: Terms, guard: Expr | None
    ) -> Work:
        memo: dict[Expr, Expr] = {}

        def leaf(e: Expr) -> Expr | None:
            if e.op == "index":
                return self._index(terms[e.attr])
            if e.op == "extent":
                return self._extent(position, static, *e.attr)
            if e.op == "lookup":
                table = self.inputs[position][e.attr]
                slot = self._slot(table, ((None, 0, ()),), None)
                index = memo[e.args[0]]
                if guard is not None and index.op != "const":
                    index = ex.select(guard, index, 0)  # outside of a window it means nothing
                return Expr("lookup", e.dtype, (index,), slot)
            return None

        for e in _reads_of(static.expr):
            if e.op == "input":
                memo[e] = yield self._input(position, static, e, terms, guard)
            else:
                args = tuple(ex.rewrite(a, leaf, memo) for a in e.args)
                memo[e] = yield from self._computed(position, static, e, args, terms)
        return ex.rewrite(static.expr, leaf, memo)

    def _input(
        self, position: int, static: Pointwise, e: Expr, terms: Terms, guard: Expr | None
    ) -> Request:
        i, pins = e.attr
        pinned: dict[int, Term] = {axis % static.rank: (None, k, ()) for axis, k in pins}
        source = self.inputs[position][i]
        own = tuple(pinned.get(a, terms[a]) for a in static.axes[i])
        return source, self._broadcast(source, own, static.same[i]), guard

    # -- computed positions --------------------------------------------------------------------

    def _computed(
        self, position: int, static: Pointwise, e: Expr, args: tuple[Expr, ...], terms: Terms
    ) -> Work:
        """A value read at positions that the kernel computes.

        What is there at any position is a template over axes of our own, behind those of the
        output; the positions are put into it. Bodies keep positions in range, so windows that
        guard other reads do not matter here.
        """
        i, pins, axes = e.attr
        at = {axis % static.rank: self.rank + k for k, axis in enumerate(axes)}
        request = self._input(position, static, ex.body_input(i, e.dtype, pins), terms, None)
        source = self.inputs[position][i]
        own = tuple(
            (at[a], 0, ()) if a in at else term
            for a, term in zip(static.axes[i], request[1], strict=True)
        )
        template = yield source, own, None
        if e.op == "fetch":
            return self._placed(template, args)
        y, x, *fill = args
        h, w = (self._extent(position, static, i, axis) for axis in axes)
        plain = self._plain_load(template)
        if plain is not None and self.lines and self.nodes[position].device is None:
            return Expr("bilinear", dt.float32, (y, x, h, w, *fill), plain.attr)

        def tap(row: Expr, column: Expr) -> Expr:
            return ex.cast(self._placed(template, (row, column)), dt.float32)

        return ex.bilinear_of(tap, y, x, h, w, fill[0] if fill else None)

    def _placed(self, template: Expr, positions: tuple[Expr, ...]) -> Expr:
        """A template with its loads at these positions."""
        varying = self._varying()

        def leaf(e: Expr) -> Expr | None:
            if e.op != "load" or e.attr not in varying:
                return None
            return Expr("fetch", e.dtype, positions, e.attr)

        return ex.rewrite(template, leaf, {})

    def _varying(self) -> set[int]:
        """Loads that follow positions that the kernel computes; one of a constant does not."""
        return {
            k
            for k, (_, terms, _) in enumerate(self._loads)
            if any((axis or 0) >= self.rank for axis, _, _ in terms)
        }

    def _plain_load(self, template: Expr) -> Expr | None:
        """The load that a template is, but for a conversion to float32 that loses nothing."""
        e = template
        if e.op == "cast" and e.dtype is dt.float32 and e.args[0].dtype.bits <= 16:
            e = e.args[0]
        return e if e.op == "load" and e.attr in self._varying() else None

    def _extent(self, position: int, static: Pointwise, i: int, axis: int) -> Expr:
        source = self.inputs[position][i]
        dimension = static.axes[i].index(axis % static.rank)
        return self._index((None, 0, (("extent", source, dimension),)))

    def _resample(self, position: int, static: Resample, terms: Terms) -> Work:
        own = list(terms)
        for k, axis in enumerate(static.axes):
            own[axis] = (self.rank + k, 0, ())
        channels = static_channels(self.nodes[position])
        which: tuple[str, int] | None = None
        if channels is not None and channels[0] not in static.axes:
            which = self._channel(terms[channels[0]], channels[1], static, terms)
        if which is not None:
            assert channels is not None
            own[channels[0]] = (self.rank + len(static.axes), 0, ())
        tap = yield self.inputs[position][0], tuple(own), None
        where = tuple(terms[a] for a in static.axes)
        follows = tuple(axis for axis, _, _ in where)
        count = 0 if which is None or channels is None else channels[1]
        found = (position, where, Sampler(ex.cast(tap, dt.float32), follows, count))
        if self._sampler not in (None, found):
            raise SamplerConflictError(position)
        self._sampler = found
        return Expr("sample", dt.float32, (), which or ("at", 0))

    def _channel(
        self, term: Term, count: int, static: Resample, terms: Terms
    ) -> tuple[str, int] | None:
        """Which channel of an interpolated pixel is asked for: a number, or an unrolled axis."""
        axis, k, path = term
        if path:
            return None
        if axis is None:
            return "at", k
        sampled = [terms[a][0] for a in static.axes]
        return ("axis", axis) if self.channels == (axis, count) and axis not in sampled else None

    def _broadcast(self, position: int, terms: Terms, same: tuple[bool, ...] = ()) -> Terms:
        """Terms that stay at 0 in dimensions of extent 1; those in `same` need no such care."""
        return tuple(
            term
            if (same and same[d]) or term[0] is None
            else (term[0], term[1], (*term[2], ("broadcast", position, d)))
            for d, term in enumerate(terms)
        )

    def _view(
        self, position: int, static: View, terms: Terms, guard: Expr | None, check: bool = True
    ) -> Generator[Request, Expr, tuple[Expr | None, Expr]]:
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
        if static.checked and check:
            tests = tuple((d, own[d]) for d in static.checked)
            window = self._window(source, tests)
            if len(self.inputs[position]) == 2 and all(t[0] is not None for _, t in tests):
                self._padding[window] = tuple(t[0] for _, t in tests if t[0] is not None)
            guard = window if guard is None else guard & window
        value = yield source, tuple(own), guard
        return window, value

    def _merge(self, position: int, terms: Terms, guard: Expr | None) -> Work:
        *parts, last = self.inputs[position]
        placed: list[tuple[Expr, Expr]] = []
        rest = guard
        for part in parts:
            self.members[part] = None
            window, part_value = yield from self._view(part, self.nodes[part].static, terms, guard)
            assert window is not None
            placed.append((window, part_value))
            rest = ~window if rest is None else rest & ~window
        # the parts tile the output: where no other part is, the last one must be
        self.members[last] = None
        _, value = yield from self._view(last, self.nodes[last].static, terms, rest, check=False)
        for window, part_value in reversed(placed):
            value = ex.select(window, part_value, value)
        return value

    # -- leaves --------------------------------------------------------------------------------

    def _slot(self, position: int, terms: Terms, guard: Expr | None) -> int:
        return self._loads.setdefault((position, terms, guard), len(self._loads))

    def _load(self, position: int, terms: Terms, guard: Expr | None) -> Expr:
        guard = self._needed(guard, {axis for axis, _, _ in terms})
        slot = self._slot(position, terms, guard)
        args = () if guard is None else (guard,)
        return Expr("load", self.nodes[position].dtype, args, slot)

    def _needed(self, guard: Expr | None, axes: set[int | None]) -> Expr | None:
        """What is left of a guard for a load that runs along `axes`.

        A number can always be read, and padding along other axes does not move a load. So the
        numbers of an op, and all that is computed from them alone, stay outside of the loops over
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

    def _window(self, position: int, tests: tuple[tuple[int, Term], ...]) -> Expr:
        axes = sorted({t[0] for _, t in tests if t[0] is not None}) or [0]
        recipe = WindowRecipe(position, tests, tuple(axes))
        slot = self._windows.setdefault(recipe, len(self._windows))
        return Expr("window", dt.bool_, (), slot)

    def _index(self, term: Term) -> Expr:
        slot = self._indices.setdefault(term, len(self._indices))
        return Expr("index", dt.int32, (), slot)

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
        # without views that rename axes: they are nothing to a kernel, which is found by its name
        renamed = {p for p in self.members if getattr(self.nodes[p].static, "relabel", False)}
        ops = tuple(self.nodes[p].op for p in sorted(self.members.keys() - renamed or renamed))
        spec = KernelSpec(
            ops, extents, loads, stores, tuple(v for _, v in self.stores.values()),
            tuple(w.axes for w in self._windows), indices, self._sampler_spec(),
        )  # fmt: skip
        recipe = Recipe(
            root, flat, tuple((p, t) for p, t, _ in self._loads),
            tuple((p, t) for p, (t, _) in self.stores.items()),
            tuple(self._windows), tuple(self._indices),
            None if self._sampler is None else self._sampler[:2],
        )  # fmt: skip
        return spec, recipe

    def _sampler_spec(self) -> Sampler | None:
        return None if self._sampler is None else self._sampler[2]

    def _is_flat(self, rank: int) -> bool:
        """Whether all operands run over the same contiguous elements, so one loop does."""
        if self._windows or self._indices or self._sampler:
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
        if channels is None or self._is_sampled_along(channels[0]):
            return tuple(extents)
        values = [v for _, v in self.stores.values()]
        if sum(e.op == "fetch" for e in ex.walk(values)) <= MAX_UNROLLED_FETCHES:
            extents[channels[0]] = channels[1]
        return tuple(extents)

    def _is_sampled_along(self, axis: int) -> bool:
        """Whether the interpolated value must be computed for every position along an axis."""
        if self._sampler is None:
            return False
        _, terms, sampler = self._sampler
        places = list(self._loads)
        loads = [e.attr for e in ex.walk([sampler.value]) if e.op == "load"]
        followed = {t[0] for slot in loads for t in places[slot][1]} | {t[0] for t in terms}
        return axis in followed

    def _access(self, key: Request, flat: bool, rank: int) -> Access:
        position, terms, guard = key
        dtype = self.nodes[position].dtype
        if flat:
            moves = any(axis is not None for axis, _, _ in terms)
            return Access(dtype, (1 if moves else 0,))
        strides = self._strides(position, terms, rank)
        likely = self._strides(position, terms, rank, assume_unit=True)
        return Access(dtype, strides, guard is not None, likely if likely != strides else ())

    def _strides(
        self, position: int, terms: Terms, rank: int, assume_unit: bool = False
    ) -> tuple[int | None, ...]:
        """Per output axis: 0 if the operand ignores it, a number if it is known, else None.

        `assume_unit`: as if flips and stepped slices had a step of 1.
        """
        node = self.nodes[position]
        known = self._known_strides(node, position)
        strides: list[int | None] = [0] * max([rank, *(axis + 1 for axis, _, _ in terms if axis)])
        seen: set[int] = set()
        for d, (axis, _, path) in enumerate(terms):
            if axis is None:
                continue
            unit = all(
                kind == "view" and (assume_unit or self.nodes[p].static.unit[dim])
                for kind, p, dim in path
            )
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


@lru_cache(maxsize=4096)
def _reads_of(expr: Expr) -> tuple[Expr, ...]:
    return tuple(e for e in ex.walk([expr]) if e.op in ("input", "fetch", "bilinear"))
