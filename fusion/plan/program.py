"""Pending nodes → a Program: topological order, common subexpressions merged, and its plan key."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from ...kernels.common.memo import Memo
from ...kernels.ir.dtypes import DType
from ..graph.node import Node, static_channels
from ..graph.shapes import Shapes

Facts = tuple[str, DType, str | None, Shapes]  # op, type, layout, shapes


class Report(NamedTuple):
    """A program and its plan, for explain()."""

    plan: Any
    nodes: list[Facts]
    inputs: list[tuple[int, ...]]
    promises: tuple[int, ...]
    made: Mapping[int, Shapes] = {}  # shapes of values of which only a region is decoded
    tier: str = ""  # `Plan.tier` when it ran

    def of(self, nodes: list[Node]) -> Report:
        """The same report for other nodes."""
        return self._replace(nodes=facts_of(nodes))


class Program:
    """The nodes to compute, in order; positions index all lists.

    `outputs` are positions whose value must be in memory afterwards. `promises` are live values
    that nobody has read: a plan may fuse through them, and they are computed again when read.
    `lent` are values whose memory a result shares: whoever needs them later gets the same memory.
    """

    __slots__ = ("inputs", "key", "lent", "nodes", "outputs", "promises", "twins")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[tuple[int, ...]] = []
        self.twins: dict[int, list[Node]] = {}  # merged duplicates, which share the result
        self.outputs: tuple[int, ...] = ()
        self.promises: tuple[int, ...] = ()
        self.lent: tuple[int, ...] = ()
        self.key: tuple[Any, ...] = ()

    def of(self, nodes: list[Node]) -> Program:
        """The same program for other nodes, without promises."""
        made = Program()
        made.nodes, made.inputs = nodes, self.inputs
        made.outputs, made.key = self.outputs, self.key
        return made

    def report(self, plan: Any, regions: Mapping[int, Any]) -> Report:
        """The facts that explain() needs, without keeping the nodes alive."""
        made = {p: region.shapes(self.nodes[p]) for p, region in regions.items()}
        return Report(plan, facts_of(self.nodes), self.inputs, self.promises, made, plan.tier)

    def consumers(self) -> list[list[int]]:
        users: list[list[int]] = [[] for _ in self.nodes]
        for position, inputs in enumerate(self.inputs):
            for i in inputs:
                users[i].append(position)
        return users


def facts_of(nodes: list[Node]) -> list[Facts]:
    """The facts that explain() shows about the nodes of a program."""
    return [(n.op, n.dtype, n.layout, n.shapes) for n in nodes]


def collect(roots: list[Node]) -> Program:
    """The program that computes `roots` and all their pending ancestors."""
    program = _collected(roots, frozenset())
    if program.twins:
        apart = _writable_twins(program, roots)
        if apart:
            program = _collected(roots, apart)
    return program


def _collected(roots: list[Node], apart: Set[int]) -> Program:
    """The program of `roots`; nodes with these ids are not merged. Does not recurse."""
    program = Program()
    place: dict[int, int] = {}  # id of node → position
    merged: dict[tuple[Any, ...], int] = {}
    key: list[Any] = []
    stack: list[tuple[Node, bool]] = [(n, False) for n in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if id(node) in place:
            continue
        result = node.result
        if result.error is not None:
            raise result.error.with_traceback(None)
        definition = result.definition
        if result.storage is not None or definition is None:
            if node.op != "const":
                place[id(node)] = _add(program, key, node, ())
            continue
        if not ready:
            stack.append((node, True))
            stack.extend([(i, False) for i in reversed(definition.inputs) if id(i) not in place])
            continue
        kind, sources, params = definition
        twin_key = (kind.number, tuple([_identity(place, i) for i in sources]),
                    id(params) if params is not None else node.shapes.rank)  # fmt: skip
        twin = None if id(node) in apart else merged.get(twin_key)
        if twin is not None and _mergeable(program.nodes[twin], node):
            place[id(node)] = twin
            program.twins.setdefault(twin, []).append(node)
            continue
        inputs = tuple([_input(program, key, place, i) for i in sources])
        place[id(node)] = merged[twin_key] = _add(program, key, node, inputs)
    program.outputs = tuple(sorted({place[id(r)] for r in roots}))
    wanted = program.outputs if len(program.outputs) < 8 else set(program.outputs)
    pending = [p for p, n in enumerate(program.nodes) if n.result.storage is None]
    program.promises = tuple([p for p in pending if p not in wanted and _any_live(program, p)])
    program.lent = _sources_of_renames(program)
    program.key = (tuple(key), program.outputs, program.promises)
    return program


def _sources_of_renames(program: Program) -> tuple[int, ...]:
    """Pending values whose memory results will share; the user may hold other views of them."""
    found: list[int] = []
    todo = [*program.outputs, *program.promises]
    for p in todo:
        definition = program.nodes[p].result.definition
        if definition is not None and program.inputs[p] and definition[0].is_rename:
            sources = [i for i in program.inputs[p] if program.nodes[i].storage is None]
            found.extend(sources)
            todo.extend(sources)
    return tuple(found)


def _writable_twins(program: Program, roots: list[Node]) -> set[int]:
    """The ids of merged nodes that must have memory of their own.

    The user may write to what he holds, which must show in no other value. (Decoded pictures are
    never merged, because their params differ.)
    """
    held = {id(root) for root in roots}
    apart: set[int] = set()
    for p in reversed(range(len(program.nodes))):
        group = [
            n for n in (program.nodes[p], *program.twins.get(p, ())) if id(n) in held or n.is_live()
        ]
        for n in group:
            definition = n.result.definition
            if definition is not None and definition[0].is_rename:
                held.update(map(id, definition[1]))
        apart.update(map(id, group[1:]))
    return apart


def _any_live(program: Program, position: int) -> bool:
    if program.nodes[position].is_live():
        return True
    twins = program.twins.get(position) if program.twins else None
    return twins is not None and any(t.is_live() for t in twins)


def _identity(place: dict[int, int], node: Node) -> tuple[str, int]:
    # Equal constants are one object, but every use of one gets its own position: a plan must not
    # depend on two arguments that happen to be equal.
    return ("const", id(node)) if node.op == "const" else ("node", place[id(node)])


def _mergeable(first: Node, second: Node) -> bool:
    return (
        first.dtype is second.dtype
        and first.layout == second.layout
        and first.batch == second.batch
        and first.device == second.device
        and first.shapes.same_as(second.shapes)
    )


def _input(program: Program, key: list[Any], place: dict[int, int], node: Node) -> int:
    if node.op == "const":
        return _add(program, key, node, ())
    return place[id(node)]


def _add(program: Program, key: list[Any], node: Node, inputs: tuple[int, ...]) -> int:
    program.nodes.append(node)
    program.inputs.append(inputs)
    key.append(token(node))
    key.append(inputs)
    return len(program.nodes) - 1


# Facts that a plan may depend on → a small number, so keys of long programs hash and compare fast.
_tokens: Memo[tuple[Any, ...], int] = Memo("tokens of nodes", 1 << 17)
_numbers = itertools.count()  # two threads might see the same len(_tokens)


def token(node: Node) -> int:
    """A number for everything about a node that may change a plan (and nothing else)."""
    result = node.result
    storage = result.storage
    stored = storage is not None
    known = result.token
    if known is not None and known[0] is stored:
        return known[1]
    definition = None if stored else result.definition
    facts = (
        None if stored else node.op, None if definition is None else definition.kind.number,
        node.dtype.name, node.rank,
        node.device, storage is None or storage.strides is None, node.batch, static_channels(node),
    )  # fmt: skip
    number = _tokens.get(facts)
    if number is None:
        number = _tokens.setdefault(facts, next(_numbers))
    result.token = (stored, number)
    return number


# -- one call --------------------------------------------------------------------------------------

Call = tuple[int, ...]  # tokens of a node and of its inputs
Order = tuple[int, ...]


def one_call(node: Node) -> Call | None:
    """The cache key of a single call on values in memory; None if the node is not such a call or
    runs on a GPU."""
    result = node.result
    definition = result.definition
    if node.device is not None or result.promise is not None or definition is None:
        return None
    tokens = [token(node)]
    for i in definition.inputs:
        source = i.result
        if source.storage is None:
            return None
        known = source.token
        tokens.append(known[1] if known is not None and known[0] else token(i))
    return tuple(tokens)


def order_of_inputs(program: Program) -> Order | None:
    """For each position of a single call's program, the index of the call's input that is there, or
    -1 for the call itself. None if there are several calls, or two inputs are the same value."""
    places = program.inputs[program.outputs[0]] if program.outputs else ()
    if len(program.nodes) != len(places) + 1 or len(set(places)) != len(places):
        return None
    return tuple(places.index(p) if p in places else -1 for p in range(len(program.nodes)))
