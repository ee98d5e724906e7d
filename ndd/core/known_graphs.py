"""Graphs of ops whose body depends only on facts of its inputs: built once, then copied.

The body of `reductions.variance` chooses axes, counts values and builds five nodes, which takes
longer than summing a small image. For inputs of the same types and shapes it always builds the same
nodes. So the first call notes them, and later ones make them again from these notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..fusion.graph.node import Definition, Node
from ..fusion.graph.shapes import Shapes
from ..fusion.kinds.base import Kind
from ..kernels.common.memo import Memo
from ..kernels.ir.dtypes import DType
from .choices import PLAIN
from .schema import OpDef


class _Made(NamedTuple):
    """A node to make again."""

    op: str
    kind: Kind
    inputs: tuple[int, ...]  # inputs of the call, then constants, then nodes made before
    params: Any
    shapes: Shapes
    dtype: DType
    layout: str | None
    batch: bool


class _Graph(NamedTuple):
    constants: tuple[Node, ...]
    made: tuple[_Made, ...]


_graphs: Memo[tuple[Any, ...], _Graph] = Memo("graphs of ops", 2048)


def built(op: OpDef, nodes: Sequence[Node], arguments: dict[str, Any]) -> Any:
    """The result of an op's body for these inputs and arguments."""
    inputs = [*nodes, *(v for v in arguments.values() if isinstance(v, Node))]
    key = _key(op, inputs, arguments)
    known = None if key is None else _graphs.get(key)
    if known is not None:
        return _copied(known, inputs)
    result = op.body(*nodes, **arguments)
    if key is not None:
        found = _noted(result, inputs)
        if found is not None:
            _graphs[key] = found
    return result


def _key(op: OpDef, inputs: list[Node], arguments: dict[str, Any]) -> tuple[Any, ...] | None:
    """All that the body's graph depends on; None if it may depend on more, or if samples differ in
    their shapes, which then hardly ever come again."""
    key: list[Any] = [op.name]
    for x in inputs:
        if x.op == "const":
            # Equal constants are one object. The body's own constants may be among them.
            key.append(x)
            continue
        facts = x.shapes.facts
        if not facts or x.device is not None:
            return None
        # Types by name, because DType has a __hash__ in Python. A call may give an input twice.
        key += (facts, x.dtype.name, x.layout, x.batch, inputs.index(x))
    for value in arguments.values():
        if isinstance(value, Node):
            key.append(Node)
        elif type(value) is tuple:
            if not all(type(v) is int for v in value):
                return None
            key.append(value)
        elif type(value) in PLAIN:
            key += (type(value), value)
        else:
            return None
    return tuple(key)


def _noted(result: Any, inputs: Sequence[Node]) -> _Graph | None:
    """Notes about the nodes between inputs and result; None if they hold numbers of the call."""
    if not isinstance(result, Node) or result in inputs:
        return None
    order: dict[Node, None] = {}
    constants: dict[Node, None] = {}
    stack = [(result, False)]
    while stack:
        node, is_ready = stack.pop()
        if node in inputs or node in order or node in constants:
            continue
        if node.op == "const" and node.storage is not None:
            constants[node] = None
        elif node.storage is not None or node.device is not None or node.source_info:
            return None
        elif is_ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack += [(i, False) for i in node.inputs]
    places = {n: k for k, n in enumerate((*inputs, *constants, *order))}
    made = tuple(
        _Made(
            n.op, n.definition.kind, tuple(places[i] for i in n.inputs), n.params, n.shapes,
            n.dtype, n.layout, n.batch,
        )
        for n in order
    )  # fmt: skip
    return _Graph(tuple(constants), made)


def _copied(graph: _Graph, inputs: list[Node]) -> Node:
    """New nodes as noted; the last one is the result."""
    nodes = [*inputs, *graph.constants]
    for op, kind, places, params, shapes, dtype, layout, batch in graph.made:
        definition = Definition(kind, tuple([nodes[p] for p in places]), params)
        nodes.append(Node(op, definition, shapes, dtype, layout, batch))
    return nodes[-1]
