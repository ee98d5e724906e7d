"""The path of every op call: arguments enter, handles on new nodes leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.doubts import picked
from ..fusion.graph.node import Definition, Node
from ..fusion.graph.shapes import Shapes
from ..fusion.kinds.base import Kind
from ..kernels.common import trace
from ..kernels.ir import expr as ex
from ..kernels.ir.dtypes import DType
from ..kernels.ir.expr import Expr
from ..loop.calls import site_of_caller
from . import convert, enumerations, framewise
from .arguments import ARG_DTYPES, geometry_argument, kernel_argument
from .batch import Batch
from .choices import PLAIN, choices_of
from .empty import is_empty, without_samples
from .errors import at_site, user_site
from .handle import Handle, finish_call, input_of
from .inputs import check_data, input_node, on_gpu, place, repeat
from .known_graphs import built
from .schema import OpDef, Param
from .tensor import Tensor


def call(op: OpDef, inputs: Sequence[Any], choices: Sequence[Any]) -> Any:
    """Run one op call: every public function ends here. Its last choices: batch size, device."""
    stage = call_stage(op.name) if trace.active else None
    try:
        result = _build_any(op, inputs, choices)
        if op.kind != "pointwise":  # a pointwise node has its inputs, and inherits their doubts
            for value in (*inputs, *choices):
                if value is not None and isinstance(value, Handle) and value._node.doubts:
                    result = _with_doubts(result, value._node)
        nodes = (result,) if isinstance(result, Node) else tuple(result)
        finish_call(nodes, user_site())
    except Exception as error:
        raise at_site(error, op.name, user_site()) from error.__cause__
    finally:
        if stage is not None:
            stage.end()
    if isinstance(result, Node):
        return wrap(result)
    assert op.outputs != 1, f"{op.name} has several results: its definition must say `outputs=`"
    return tuple([wrap(n) for n in nodes])


def _with_doubts(result: Any, given: Node) -> Any:
    """The results of a call, which know which samples of an input or argument may be bad, also if
    they were computed at once."""
    if not isinstance(result, Node):
        return tuple([_with_doubts(node, given) for node in result])
    known = {id(d.failures) for d in result.doubts}
    new = tuple([d for d in given.doubts if id(d.failures) not in known])
    if not new:
        return result
    if given.count != result.count:
        new = picked(new, np.zeros(result.count, np.int64))
    return result.like(doubts=(*result.doubts, *new))


def call_stage(name: str) -> trace.Stage:
    """Begin the trace stage of a call."""
    return trace.begin("call", name, about={"line": str(site_of_caller())})


def wrap(node: Node) -> Any:
    """The handle of a new node."""
    if node.result.handle is not None:
        live = node.result.handle()
        if live is not None:
            return live
    return (Batch if node.batch else Tensor)._of(node)


def _build_any(op: OpDef, inputs: Sequence[Any], choices: Sequence[Any]) -> Any:
    """The nodes of a call, also of one with batches without samples."""
    try:
        made = _build(op, inputs, choices)
    except Exception:
        if not is_empty((*inputs, *choices), choices[-2]):
            raise
    else:
        first = made if isinstance(made, Node) else made[0]
        # A batch from a pointwise op has the size of its inputs; bodies of graph ops may not.
        is_settled = first.count == 0 or (first.batch and op.kind == "pointwise")
        if inputs and isinstance(inputs[0], Batch) and inputs[0]._node.count:
            is_settled = True  # found at once for most calls
        if is_settled or not is_empty((*inputs, *choices), choices[-2]):
            return made
    nodes = without_samples(op, inputs, choices, lambda i, c: _build(op, i, c))
    return nodes[0] if op.outputs == 1 or len(nodes) == 1 else nodes


def _build(op: OpDef, inputs: Sequence[Any], choices: Sequence[Any]) -> Any:
    """The stages of a call: coerce, place, broadcast, check, infer.

    The op caches what the stages find out about types and choices, so that similar calls are cheap:
    `_choices`, `_check_data` and `_pointwise` look there first.
    """
    nodes: list[Node] = []
    is_on_host, has_enums = choices[-1] is None, False
    for k, value in enumerate(inputs):
        if isinstance(value, Handle):
            node = input_of(value)
        else:
            node = input_node(op.data[0 if op.variadic else k], value)
        if node.device is not None:
            is_on_host = False
        if node.dtype.is_enum:
            has_enums = True
        nodes.append(node)
    ordinal = None if is_on_host else place(nodes, choices[-1])
    if has_enums:
        return enumerations.checked(op, nodes, lambda n: _graph(op, n, choices, ordinal))
    if op.kind == "pointwise":
        return _pointwise(op, nodes, choices, ordinal)
    return _graph(op, nodes, choices, ordinal)


def _graph(op: OpDef, nodes: list[Node], others: Sequence[Any], ordinal: int | None) -> Any:
    """Let the body of a graph op build its nodes."""
    if op.frame_slots and framewise.is_given(op, others):
        x = check_data(op, nodes[0])
        if "F" in (x.layout or ""):
            return _by_frame(op, x, others, ordinal)
    arguments = choices_of(op, others)
    computed: list[Node] = []
    for k, p in op.arg_slots:
        node = arguments[p.name] = kernel_argument(p, others[k])
        if node is not None and node.op != "const":
            computed.append(node)
    for k, p in op.geometry_slots:
        value = others[k]
        is_default = value is p.default
        if is_default and (value is None or k in op.default_args):
            arguments[p.name] = op.default_args.get(k)
            continue
        arguments[p.name], node = geometry_argument(p, value)
        if node is not None:
            computed.append(node)
        elif is_default:
            op.default_args[k] = arguments[p.name]
    count = _count_of(op, nodes, computed, others)
    if ordinal is not None and not op.mixed:
        nodes = [on_gpu(n, ordinal) for n in nodes]
        arguments = {
            k: on_gpu(v, ordinal) if isinstance(v, Node) else v for k, v in arguments.items()
        }
    if nodes:
        nodes[0] = check_data(op, nodes[0])
    if not op.data:
        arguments |= {"count": count, "ordinal": ordinal}
    elif op.mixed:
        arguments["ordinal"] = ordinal
    if count is not None:
        nodes = [repeat(n, count) for n in nodes]
    if op.variadic:
        if not nodes:
            raise TypeError("at least one input is needed")
        return op.body(tuple(nodes), **arguments)
    return built(op, nodes, arguments) if op.by_facts else op.body(*nodes, **arguments)


def _by_frame(op: OpDef, x: Node, others: Sequence[Any], ordinal: int | None) -> Node:
    """A call with arguments that differ from frame to frame."""
    given = [input_of(v) for v in others if isinstance(v, Handle)]
    count = _count_of(op, [x], given, others)
    if ordinal is not None:
        x = on_gpu(x, ordinal)
    if count is not None:
        x = repeat(x, count)
    return framewise.by_frame(op, x, others, count, _graph, ordinal)


def _count_of(
    op: OpDef, nodes: Sequence[Node], computed: Sequence[Node], others: Sequence[Any]
) -> int | None:
    """The batch size of a call, or None for a single tensor; `computed` are the arguments that are
    not plain numbers."""
    count: int | None = None
    for node in (*nodes, *computed):
        if node.batch and node.count != count:
            if count is not None:
                sizes = f"{count} != {node.count}{_two_sizes(op, nodes, others)}"
                raise ValueError(f"Inconsistent batch size: {sizes}")
            count = node.count
    if count is None and others[-2] is not None:
        count = int(others[-2])
        if count < 0:
            raise ValueError(f"`batch_size` must not be negative, got {others[-2]}")
    if computed and count is not None and count > 1:
        _check_draws(op, others, count)
    return count


def _two_sizes(op: OpDef, nodes: Sequence[Node], others: Sequence[Any]) -> str:
    """Which two arguments of a call have different batch sizes."""
    inputs = (
        [f"input {k}" for k in range(len(nodes))]
        if op.variadic
        else [f"`{p.name}`" for p in op.data]
    )
    sizes = [(name, n.count) for name, n in zip(inputs, nodes, strict=True) if n.batch]
    sizes += [
        (f"`{p.name}`", value.batch_size)
        for p, value in zip(op.others, others, strict=False)
        if isinstance(value, Batch)
    ]
    other = next((s for s in sizes if s[1] != sizes[0][1]), None)
    if other is None:
        return ""
    return f": {sizes[0][0]} has {sizes[0][1]} samples, {other[0]} has {other[1]}"


def _check_draws(op: OpDef, others: Sequence[Any], count: int) -> None:
    """Warn if one random number is used for all samples: most likely `batch_size` was forgotten."""
    for p, value in zip(op.others, others[:-2], strict=True):
        if isinstance(value, Tensor) and value._node.op.startswith("random."):
            from .suggestions import one_draw

            one_draw(op.name, p.name, value._node.op, count)


# -- pointwise ops -------------------------------------------------------------------------------


def _pointwise(op: OpDef, nodes: list[Node], others: Sequence[Any], ordinal: int | None) -> Node:
    """The node of a pointwise op."""
    facts = _plain_facts(op, nodes, others) if ordinal is None else None
    known: PlainCall | None = None if facts is None else op.known_calls.get(facts)
    if known is not None:
        return known.node(op.name, nodes[0], others)
    args, given, computed = _numbers(op, others)
    count = _count_of(op, nodes, computed, others)
    if ordinal is not None:
        nodes = [on_gpu(n, ordinal) for n in nodes]
        args = [None if v is None else on_gpu(v, ordinal) for v in args]
        given = [v for v in args if v is not None]
    x = nodes[0] = check_data(op, nodes[0])
    kind = key = None
    if len(nodes) == 1 and (count is None or x.count == count):
        key = _kind_key(op, x, args, others)
        kind = None if key is None else op.known_kinds.get(key)
    if kind is None:
        choices = choices_of(op, others)
        statics = tuple([choices[p.name] for p in op.statics])
        node = _pointwise_node(op, nodes, args, statics, count)
        if key is not None:
            op.known_kinds[key] = node.definition.kind
        return node
    if facts is not None and facts[:3] in op.accepted:
        op.known_calls[facts] = PlainCall.like(op, kind, args)
    is_batch = count is not None
    definition = Definition(kind, (x, *given))
    return Node(op.name, definition, x.shapes, kind.expr.dtype, x.layout, is_batch, x.device)


_NUMBERS = {bool, int, float}


class PlainCall(NamedTuple):
    """What calls with plain numbers have in common, if all their types and choices are equal."""

    kind: Kind
    dtype: DType
    # Of each number: its place, its type for us and for the kernel, the default, and its node.
    numbers: tuple[tuple[int, type, DType, Any, Node | None], ...]

    @classmethod
    def like(cls, op: OpDef, kind: Any, args: Sequence[Node | None]) -> PlainCall:
        numbers: list[tuple[int, type, DType, Any, Node | None]] = [
            (k, p.type, ARG_DTYPES[p.type], p.default, op.default_args.get(k))
            for (k, p), node in zip(op.arg_slots, args, strict=True)
            if node is not None
        ]
        return cls(kind, kind.expr.dtype, tuple(numbers))

    def node(self, op: str, x: Node, others: Sequence[Any]) -> Node:
        """The node of such a call."""
        given = [x]
        for k, of, dtype, default, usual in self.numbers:
            value = others[k]
            if usual is None or value is not default:
                usual = convert.const_scalar(of(value), dtype)
            given.append(usual)
        definition = Definition(self.kind, tuple(given))
        return Node(op, definition, x.shapes, self.dtype, x.layout, x.batch, x.device)


def _plain_facts(op: OpDef, nodes: Sequence[Node], others: Sequence[Any]) -> tuple[Any, ...] | None:
    """Types and choices of a call with plain numbers; None for other calls."""
    x = nodes[0]
    if len(nodes) != 1 or others[-2] is not None:
        return None
    types: list[Any] = [*map(type, others)]
    for k, p in op.arg_slots:
        if types[k] not in _NUMBERS and others[k] is not p.default:
            return None
    for k, p in op.static_slots:
        types[k] = others[k]
        if others[k] is not p.default and type(others[k]) not in PLAIN:
            return None
    return (x.dtype.name, x.layout, x.rank, *types)


def _numbers(op: OpDef, others: Sequence[Any]) -> tuple[list[Node | None], list[Node], list[Node]]:
    """The numbers of a call for the kernel, as nodes: all of them, without None, and those that are
    not plain numbers."""
    known = op.default_args.get
    args: list[Node | None] = []
    given: list[Node] = []
    computed: list[Node] = []
    for k, p in op.arg_slots:
        value = others[k]
        node = known(k) if value is p.default else None
        if node is None:
            node = kernel_argument(p, value)
            if value is p.default:
                op.default_args[k] = node
        args.append(node)
        if node is not None:
            given.append(node)
            if node.op != "const":
                computed.append(node)
    return args, given, computed


def _kind_key(
    op: OpDef, x: Node, args: Sequence[Node | None], others: Sequence[Any]
) -> tuple[Any, ...] | None:
    """All that the kind of a call with one number per argument depends on; None for other calls."""
    key: list[Any] = [x.dtype.name, x.layout, x.rank]
    for v in args:
        if v is not None and v.rank:
            return None
        key.append(None if v is None else v.dtype.name)
    for k, p in op.static_slots:
        value = others[k]
        if value is not p.default and type(value) not in PLAIN:
            return None
        key.append(value)
    return tuple(key)


def _pointwise_node(
    op: OpDef, nodes: list[Node], args: list[Node | None], statics: tuple[Any, ...],
    count: int | None,
) -> Node:  # fmt: skip
    given = [v for v in args if v is not None]
    x = nodes[0]
    shapes = x.shapes
    if count is not None and shapes.count != count:
        shapes = Shapes(np.broadcast_to(shapes.rows, (count, x.rank)))
    framed = [v is not None and p.per_frame and framewise.is_framed(v)
              for p, v in zip(op.args, args, strict=True)]  # fmt: skip
    if any(framed):
        return _pointwise_by_frame(op, nodes, args, statics, shapes, count is not None, framed)
    whole = tuple(range(x.rank))
    channel = (x.layout.index("C"),) if x.layout and "C" in x.layout else whole[-1:]
    axes = [whole] * len(nodes) + [channel if v.rank else () for v in given]
    for p, v in zip(op.args, args, strict=True):
        if v is not None and v.rank:
            _check_vector(p, v, x, channel)
    return _with_body(op, nodes, args, statics, axes, shapes, count is not None)


def _pointwise_by_frame(
    op: OpDef, nodes: list[Node], args: list[Node | None], statics: tuple[Any, ...],
    shapes: Shapes, batch: bool, framed: list[bool],
) -> Node:  # fmt: skip
    """The node of a pointwise op with numbers that differ from frame to frame."""
    x = nodes[0]
    axes: list[tuple[int, ...]] = [tuple(range(x.rank))] * len(nodes)
    numbers: list[Node | None] = []
    for p, v, is_framed in zip(op.args, args, framed, strict=True):
        if v is not None and is_framed:
            v = framewise.one_by_one(op.name, p.name, v, x)
        elif v is not None and v.rank:
            raise ValueError(f"`{p.name}` must be a number beside arguments that differ by frame")
        if v is not None:
            axes.append((framewise.axis_of(x),) * v.rank)
        numbers.append(v)
    return _with_body(op, nodes, numbers, statics, axes, shapes, batch)


def _with_body(
    op: OpDef, nodes: list[Node], args: list[Node | None], statics: tuple[Any, ...],
    axes: list[tuple[int, ...]], shapes: Shapes, batch: bool,
) -> Node:  # fmt: skip
    key = (op.name, tuple(v is not None for v in args), statics)
    inputs = [*nodes, *(v for v in args if v is not None)]
    layout = nodes[0].layout
    return build.pointwise(op.name, _run_body, inputs, axes, shapes, layout, key, batch)


def _check_vector(p: Param, v: Node, x: Node, channel: tuple[int, ...]) -> None:
    want = x.shapes.rows[:, channel[0]]
    got = v.shapes.rows[:, 0]
    bad = np.flatnonzero((got != 1) & (got != want))
    if len(bad):
        s = int(bad[0])
        raise ValueError(
            f"argument `{p.name}` has {int(got[s % len(got)])} values, but sample {s} of shape "
            f"{x.shapes.tuples[s % x.count]} has {int(want[s % len(want)])} channels"
        )


def _run_body(*arguments: Any) -> Expr:
    """Run an op's body on expressions; the last three arguments are its key."""
    from .schema import OPS

    *inputs, name, present, statics = arguments
    op = OPS[name]
    named: dict[str, Any] = {}
    rest = list(inputs)
    for p in op.data:
        named[p.name] = rest.pop(0)
    for p, is_given in zip(op.args, present, strict=True):
        named[p.name] = ex.convert(rest.pop(0), ARG_DTYPES[p.type]) if is_given else None
    for p, value in zip(op.statics, statics, strict=True):
        named[p.name] = value
    first = named[op.data[0].name]
    if "dtype" in named:
        default = first.dtype if op.out == "same" else op.out
        named["dtype"] = named["dtype"] or default
        return ex.convert(op.body(**named), named["dtype"])
    result: Expr = op.body(**named)
    return result
