"""The path of every op call: arguments enter, handles on new nodes leave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.doubts import picked
from ..fusion.graph.node import Definition, Node
from ..fusion.graph.shapes import Array, Shapes
from ..kernels.common import trace
from ..kernels.common.memo import Memo
from ..kernels.ir import dtypes as dt
from ..kernels.ir import expr as ex
from ..kernels.ir.dtypes import DType
from ..kernels.ir.expr import Expr
from ..loop.calls import site_of_caller
from ..runtime.context import current_context
from ..runtime.device import device as as_device
from . import convert, enumerations, framewise
from .batch import Batch
from .empty import is_empty, without_samples
from .encoded_inputs import encoded_node
from .errors import at_site, user_site
from .handle import Handle, evaluate_argument, evaluate_node, finish_call, input_of
from .schema import NOTHING, REQUIRED, OpDef, Param
from .tensor import Tensor, tensor_node


def call(op: OpDef, inputs: Sequence[Any], choices: Sequence[Any]) -> Any:
    """Run one op call: every public function ends here. Its last choices: batch size, device."""
    stage = call_stage(op.name) if trace.active else None
    try:
        result = _build_any(op, inputs, choices)
        if op.kind != "pointwise":  # a pointwise node has its inputs, and inherits their doubts
            for value in (*inputs, *choices):
                if isinstance(value, Handle) and value._node.doubts:
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
            node = _input_node(op.data[0 if op.variadic else k], value)
        if node.device is not None:
            is_on_host = False
        if node.dtype.is_enum:
            has_enums = True
        nodes.append(node)
    ordinal = None if is_on_host else _place(nodes, choices[-1])
    if has_enums:
        return enumerations.checked(op, nodes, lambda n: _graph(op, n, choices, ordinal))
    if op.kind == "pointwise":
        return _pointwise(op, nodes, choices, ordinal)
    return _graph(op, nodes, choices, ordinal)


def _graph(op: OpDef, nodes: list[Node], others: Sequence[Any], ordinal: int | None) -> Any:
    """Let the body of a graph op build its nodes."""
    if op.frame_slots and framewise.is_given(op, others):
        x = _check_data(op, nodes[0])
        if "F" in (x.layout or ""):
            return _by_frame(op, x, others, ordinal)
    arguments = _choices(op, others)
    computed: list[Node] = []
    for k, p in op.arg_slots:
        node = arguments[p.name] = _argument(p, others[k])
        if node is not None and node.op != "const":
            computed.append(node)
    for k, p in op.geometry_slots:
        arguments[p.name], node = _geometry(p, others[k])
        if node is not None:
            computed.append(node)
    count = _count_of(op, nodes, computed, others)
    if ordinal is not None and not op.mixed:
        nodes = [_on(n, ordinal) for n in nodes]
        arguments = {k: _on(v, ordinal) if isinstance(v, Node) else v for k, v in arguments.items()}
    if nodes:
        nodes[0] = _check_data(op, nodes[0])
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
    return op.body(*nodes, **arguments)


def _by_frame(op: OpDef, x: Node, others: Sequence[Any], ordinal: int | None) -> Node:
    """A call with arguments that differ from frame to frame."""
    given = [input_of(v) for v in others if isinstance(v, Handle)]
    count = _count_of(op, [x], given, others)
    if ordinal is not None:
        x = _on(x, ordinal)
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


# -- inputs --------------------------------------------------------------------------------------


def _input_node(p: Param, value: Any) -> Node:
    if isinstance(value, Handle):
        return input_of(value)
    if value is None:
        raise TypeError(f"`{p.name}` is missing: got None, wanted a Tensor, a Batch or an array")
    if p.files and (node := encoded_node(value)) is not None:
        return node
    is_list = isinstance(value, (list, tuple)) and len(value) > 0
    item = value[0] if is_list else value
    if isinstance(item, (str, bytes, os.PathLike)):
        what = (
            f"{type(value).__name__} of {type(item).__name__}" if is_list else type(item).__name__
        )
        hint = ""
        if p.files:
            hint = "; give the bytes of a file, as pathlib.Path(path).read_bytes() reads them"
        elif isinstance(item, bytes):
            hint = "; the bytes of a file are np.frombuffer(data, np.uint8)"
        raise TypeError(f"`{p.name}` must be a Tensor, a Batch or an array, got {what}{hint}")
    return tensor_node(value, None, None, None, copy=False)


def _check_data(op: OpDef, node: Node) -> Node:
    facts = node.dtype.name, node.layout, node.rank
    if facts in op.accepted.entries:
        return node
    checked = _checked_data(op, node)
    if checked is node and op.needs_channels is None:  # then `facts` decide alone
        op.accepted[facts] = True
    return checked


def _checked_data(op: OpDef, node: Node) -> Node:
    if node.dtype in op.rejects:
        raise TypeError(f"element type {node.dtype} is not supported")
    if not op.layouts:
        return node
    layout = resolve_layout(op.layouts, node)
    if op.needs_channels is not None:
        axis = layout.index("C")
        extents = node.shapes.rows[:, axis]
        bad = np.flatnonzero(extents != op.needs_channels)
        if len(bad):
            s = int(bad[0])
            raise ValueError(
                f"`{op.data[0].name}` must have {op.needs_channels} channels, sample {s} of shape "
                f"{node.shapes.tuples[s]} ({layout}) has {extents[s]}"
            )
    return node if node.layout == layout else build.relabel("layout", node, layout)


def resolve_layout(layouts: Sequence[str], node: Node) -> str:
    """The node's layout if it is allowed; the first allowed one of its rank if it has none."""
    if node.layout is not None:
        if node.layout not in layouts:
            raise ValueError(
                f"the layout {node.layout!r} does not match any of the allowed layouts: "
                f"{', '.join(layouts)}"
            )
        return node.layout
    for layout in layouts:
        if len(layout) == node.rank:
            return layout
    raise ValueError(
        f"the number of dimensions {node.rank} does not match any of the allowed layouts: "
        f"{', '.join(layouts)}"
    )


def _place(nodes: Sequence[Node], device: Any) -> int | None:
    """Ordinal of the GPU to run on, or None for the CPU."""
    on_gpu = {n.device for n in nodes if n.device is not None}
    if len(on_gpu) > 1:
        raise ValueError(f"the inputs are on different GPUs: {sorted(on_gpu)}")
    follow = next(iter(on_gpu), None)
    if device is None:
        return follow
    target = as_device(device)
    assert target is not None
    if target.device_type == "cpu":
        if follow is not None:
            raise ValueError(
                f"an input is on gpu:{follow}, but device='cpu'; use .cpu() to copy it"
            )
        return None
    if follow is not None and follow != target.device_id:
        raise ValueError(f"an input is on gpu:{follow}, but device={str(target)!r}")
    ordinal: int | None = target.device_id
    return ordinal


def _on(node: Node, ordinal: int) -> Node:
    if node.device == ordinal:
        return node
    if node.op == "const":
        return _const_on(node, ordinal)
    return build.transfer(node, ordinal)


_gpu_consts: Memo[tuple[Node, int], Node] = Memo("constants on GPUs", 8192)


def _const_on(node: Node, ordinal: int) -> Node:
    """A constant in device memory, uploaded once."""
    found = _gpu_consts.get((node, ordinal))
    if found is None:
        moved = build.transfer(node, ordinal)
        moved.result.context = current_context()
        evaluate_node(moved)
        found = _gpu_consts.setdefault((node, ordinal), moved.like(op="const"))
    return found


def repeat(node: Node, count: int) -> Node:
    """A single tensor as a batch of `count` equal samples."""
    if node.batch:
        return node
    return build.choose("repeat", node, np.zeros(count, np.int64), True)


# -- arguments -----------------------------------------------------------------------------------

_ARG_DTYPES = {float: dt.float32, int: dt.int32, bool: dt.bool_}


def _or_default(p: Param, value: Any) -> Any:
    if value is None:
        if p.default is REQUIRED:
            raise TypeError(f"argument `{p.name}` is required")
        return p.default
    return value


def _argument(p: Param, value: Any) -> Node | None:
    """A number for the kernel, as a node."""
    if value is None:
        value = _or_default(p, value)
        if value is None:
            return None
    kind = _ARG_DTYPES[p.type]
    if isinstance(value, (bool, int, float)):
        return convert.const_scalar(p.type(value), kind)
    if isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int, float)) for v in value):
        node = convert.const_vector(tuple(p.type(v) for v in value), kind)
    else:
        node = _argument_node(p, value)
        if node.dtype.is_enum:
            raise TypeError(f"argument `{p.name}` must be a number, got {node.dtype}")
    if p.any_shape or (p.per_frame and node.layout and node.layout[0] == "F"):
        return node
    if not p.vector and node.rank:
        if bool((node.shapes.volumes != 1).any()):
            raise ValueError(
                f"argument `{p.name}` must be a number or one number per sample, "
                f"got shape {node.shapes.tuples[0]}{_batch_hint(p.name, value)}"
            )
        node = build.drop_axes("scalar", node, range(node.rank), None)
    elif p.vector and node.rank > 1 + p.matrix:
        raise ValueError(
            f"argument `{p.name}` must be a number or a {'matrix' if p.matrix else 'list'}, "
            f"got {node.rank} dimensions"
        )
    return node


def _batch_hint(name: str, value: Any) -> str:
    """What to write instead of a list or an array of numbers, one for each sample."""
    if isinstance(value, Handle) or np.ndim(value) != 1:
        return ""
    return f"; one number per sample is a Batch: {name}=ndd.batch([...])"


def _argument_node(p: Param, value: Any) -> Node:
    """A tensor, a batch or an array given as an argument."""
    if isinstance(value, Handle):
        return _input_node(p, value)
    try:
        return tensor_node(value, None, None, None, copy=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"argument `{p.name}`: {error}") from None


def _geometry(p: Param, value: Any) -> tuple[Any, Node | None]:
    """A host array [samples or 1] or [samples or 1, k], and its node if it is no plain number."""
    if value is None:
        if p.default is REQUIRED:
            raise TypeError(f"argument `{p.name}` is required")
        value = p.default
        if value is None:
            return None, None
    if p.type is dt.DALIInterpType and _names_a_member(p, value):
        value = _enum(p, value)
    if p.ragged:
        node = _argument_node(p, value)
        arrays = [
            _as_numbers(p.name, a, node.dtype, p.type) for a in convert.arrays_of(on_host(node))
        ]
        return arrays, node
    if isinstance(value, (bool, int, float)):
        return _literal(p, (value,), p.vector), None
    if isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int, float)) for v in value):
        if not p.vector:
            raise TypeError(
                f"argument `{p.name}` must be a number, got a list{_batch_hint(p.name, value)}"
            )
        return _literal(p, tuple(value), True), None
    node = _argument_node(p, value)
    _check_enum_argument(p, node)
    numbers = host_numbers(p.name, node, p.type, p.vector, p.matrix, p.uneven)
    return numbers, node


def _check_enum_argument(p: Param, node: Node) -> None:
    """Enum values do not stand for floats, nor for values of another enum."""
    is_other = node.dtype.is_enum and node.dtype is not dt.InterpType
    if p.type is dt.DALIInterpType and (node.dtype.is_float or is_other):
        raise TypeError(
            f"argument `{p.name}` must be an InterpType or an integer, got {node.dtype}"
        )
    if p.type is float and node.dtype.is_enum:
        raise TypeError(f"argument `{p.name}` must be a number, got {node.dtype}")


_literals: Memo[tuple[Any, ...], Array] = Memo("literal arguments", 8192)


def _literal(p: Param, values: tuple[Any, ...], vector: bool) -> Array:
    # One array per literal, so that views with equal literal arguments merge by identity.
    key = (p.type, values, vector, str(values))
    found = _literals.get(key)
    if found is None:
        numbers = [_number(p, v) for v in values]
        is_float = p.type is float or (p.type is None and any(isinstance(v, float) for v in values))
        with np.errstate(over="ignore"):  # gives infinity; some ops reject that
            found = np.array([numbers] if vector else numbers, np.float32 if is_float else np.int64)
        found.flags.writeable = False
        found = _literals.setdefault(key, found)
    return found


def _number(p: Param, value: Any) -> Any:
    if p.type is float or (p.type is None and isinstance(value, float)):
        return float(value)
    if not abs(value) < 2**63:  # also catches NaN and infinities
        raise ValueError(f"argument `{p.name}` must be a 64-bit integer, got {value}")
    return int(value)


def on_host(node: Node) -> Node:
    """The node, or its copy in host memory, with its values computed."""
    evaluate_argument(node)
    if node.device is not None:
        node = build.transfer(node, None)
        node.result.context = current_context()
        evaluate_argument(node)
    return node


def host_numbers(
    name: str, node: Node, kind: Any, vector: bool, matrix: bool = False, uneven: bool = False
) -> Any:
    """The values of an argument, evaluated and read on the host: an array [samples or 1] or
    [samples or 1, k], or a list of arrays if they are `uneven`."""
    if node.count == 0:
        # Without samples the length of a list is unknown; one value stands for all of them.
        rows = np.zeros((0, 1) if vector else 0, node.dtype.np)
        return _as_numbers(name, rows, node.dtype, kind)
    node = on_host(node)
    whole = convert.dense_array(node)
    if whole is not None and not vector and whole.size == len(whole):
        return _as_numbers(name, whole.reshape(-1), node.dtype, kind)
    if whole is not None and vector and node.rank <= 1 + matrix:
        return _as_numbers(name, whole.reshape(len(whole), -1), node.dtype, kind)
    arrays = [_as_numbers(name, a, node.dtype, kind) for a in convert.arrays_of(node)]
    if vector:
        if node.rank > 1 + matrix:
            raise ValueError(
                f"argument `{name}` must be a list of numbers, got {node.rank} dimensions"
            )
        lengths = {a.size for a in arrays}
        if len(lengths) > 1 and uneven:
            return [a.reshape(-1) for a in arrays]
        if len(lengths) > 1 and matrix:
            # Samples with fewer rows get rows of zeros.
            rows = np.zeros((len(arrays), max(lengths)), arrays[0].dtype)
            for row, a in zip(rows, arrays, strict=True):
                row[: a.size] = a.reshape(-1)
            return rows
        if len(lengths) > 1:
            raise ValueError(
                f"argument `{name}` must have as many values in every sample, got {sorted(lengths)}"
            )
        return np.stack([a.reshape(-1) for a in arrays])
    if any(a.size != 1 for a in arrays):
        raise ValueError(
            f"argument `{name}` must be a number or one number per sample, got shape "
            f"{node.shapes.tuples[0]}"
        )
    return np.concatenate([a.reshape(1) for a in arrays])


def _as_numbers(name: str, array: Array, dtype: DType, kind: Any) -> Array:
    if dtype is dt.bfloat16:
        array = convert.bfloat16_values(array)
    if kind is float or (kind is None and array.dtype.kind == "f"):
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    if array.dtype.kind in "fu" and not (np.abs(array) < 2.0**63).all():
        raise ValueError(f"argument `{name}` must be a 64-bit integer, got {array.max():g}")
    if array.dtype.kind == "f":
        # Floats given for integers are rounded, halves away from zero.
        exact = array.astype(np.float64)
        return np.trunc(exact + np.copysign(0.5, exact)).astype(np.int64)
    return array.astype(np.int64)


# Types whose equal values are interchangeable in a cache key. Not float: 0.0 equals -0.0.
_PLAIN = {int, bool, str, type(None), DType, dt.DALIImageType, dt.DALIInterpType}


def _choices(op: OpDef, others: Sequence[Any]) -> dict[str, Any]:
    """All static arguments of a call; combinations that were checked before come from a cache."""
    given = tuple([None if (v := others[k]) is p.default else v for k, p in op.static_slots])
    key: Any = given
    if any(v is not None for v in given):  # some are not left at their defaults
        types = tuple(map(type, given))
        key = (given, types) if _PLAIN.issuperset(types) else None  # types: True == 1
    known = None if key is None else op.known_choices.get(key)
    if known is not None:
        return known.copy()
    usual = op.usual_choices
    if not usual:
        usual.update((p.name, _static(p, None)) for p in op.statics if p.default is not REQUIRED)
    found = {
        p.name: usual[p.name] if value is None and p.name in usual else _static(p, value)
        for p, value in zip(op.statics, given, strict=True)
    }
    for name, value in found.items():
        if isinstance(value, DType) and value.is_enum and op.enums != "kept":
            raise TypeError(f"`{name}` cannot be {value}: use ndd.cast to make enum values")
    if key is not None:
        op.known_choices[key] = found.copy()
    return found


def _static(p: Param, value: Any) -> Any:
    value = _or_default(p, value)
    if value is None or value is NOTHING:
        return None
    kind = p.type
    if kind is DType:
        is_id = isinstance(value, int) and dt.enum_type(value) is None
        return DType.from_type_id(value) if is_id else dt.dtype(value)
    if isinstance(value, Batch):
        raise TypeError(f"argument `{p.name}` must be the same for all samples, got a Batch")
    if kind in (dt.DALIImageType, dt.DALIInterpType):
        return _enum(p, value)
    if isinstance(value, Handle) or (isinstance(value, np.ndarray) and kind is not None):
        value = np.asarray(value).tolist()
    if kind is str or isinstance(kind, tuple):
        if not isinstance(value, str):
            raise TypeError(f"argument `{p.name}` must be a string, got {type(value).__name__}")
        if isinstance(kind, tuple) and value not in kind:
            if value.lower() in kind:
                return value.lower()
            raise ValueError(f"`{p.name}` must be one of {', '.join(kind)}, got {value!r}")
        return value
    if kind in ("ints", "floats"):
        convert_to = int if kind == "ints" else float
        items = value if isinstance(value, (list, tuple, range)) else [value]
        if convert_to is float:
            return tuple(map(float, items))
        return tuple(_static_number(p, convert_to, v) for v in items)
    if kind in (int, float, bool):
        if isinstance(value, (list, tuple, str)):
            raise TypeError(f"argument `{p.name}` must be a number, got {type(value).__name__}")
        return _static_number(p, kind, value)
    return value


def _static_number(p: Param, kind: Any, value: Any) -> Any:
    if kind is int and isinstance(value, (float, int)) and not abs(value) < 2**63:
        raise ValueError(f"argument `{p.name}` must be a 64-bit integer, got {value:g}")
    return kind(value)


def _names_a_member(p: Param, value: Any) -> bool:
    """Whether a value is a name, or a member of our enum or of upstream's enum of that name."""
    return isinstance(value, str) or type(value).__name__ == p.type.__name__


def _enum(p: Param, value: Any) -> Any:
    try:
        if isinstance(value, str):
            return p.type[value]
        name = getattr(value, "name", None)
        return p.type[name] if name is not None else p.type(int(value))
    except (KeyError, ValueError, TypeError):
        known = ", ".join(m.name for m in p.type)
        raise ValueError(f"argument `{p.name}` must be one of {known}, got {value!r}") from None


# -- pointwise ops -------------------------------------------------------------------------------


def _pointwise(op: OpDef, nodes: list[Node], others: Sequence[Any], ordinal: int | None) -> Node:
    """The node of a pointwise op."""
    args, given, computed = _numbers(op, others)
    count = _count_of(op, nodes, computed, others)
    if ordinal is not None:
        nodes = [_on(n, ordinal) for n in nodes]
        args = [None if v is None else _on(v, ordinal) for v in args]
        given = [v for v in args if v is not None]
    x = nodes[0] = _check_data(op, nodes[0])
    kind = key = None
    if len(nodes) == 1 and (count is None or x.count == count):
        key = _kind_key(op, x, args, others)
        kind = None if key is None else op.known_kinds.get(key)
    if kind is not None:
        is_batch = count is not None
        definition = Definition(kind, (x, *given))
        return Node(op.name, definition, x.shapes, kind.expr.dtype, x.layout, is_batch, x.device)
    choices = _choices(op, others)
    statics = tuple([choices[p.name] for p in op.statics])
    node = _pointwise_node(op, nodes, args, statics, count)
    if key is not None:
        op.known_kinds[key] = node.definition.kind
    return node


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
            node = _argument(p, value)
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
        if value is not p.default and type(value) not in _PLAIN:
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
        named[p.name] = ex.convert(rest.pop(0), _ARG_DTYPES[p.type]) if is_given else None
    for p, value in zip(op.statics, statics, strict=True):
        named[p.name] = value
    first = named[op.data[0].name]
    if "dtype" in named:
        default = first.dtype if op.out == "same" else op.out
        named["dtype"] = named["dtype"] or default
        return ex.convert(op.body(**named), named["dtype"])
    result: Expr = op.body(**named)
    return result
