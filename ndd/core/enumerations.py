"""Values of enum types (InterpType, ImageType, DataType): kernels work on their numbers.

A call that only moves values gets them as int32, and its results become enum values again. So no
kernel, no planner and no back-end knows these types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from .schema import OpDef

_HINT = "ndd.cast(value, dtype=ndd.int32) gives its number"


def checked(op: OpDef, nodes: Sequence[Node], body: Callable[[list[Node]], Any]) -> Any:
    """A call of a graph op with enum values among its inputs; `body` builds the nodes."""
    kinds = list(dict.fromkeys(n.dtype for n in nodes))
    if not op.enums:
        kind = next(k for k in kinds if k.is_enum)
        raise TypeError(f"element type {kind} is not supported; {_HINT}")
    if op.enums == "kept":
        return body(list(nodes))
    if len(kinds) > 1:
        raise TypeError(f"the inputs have different element types: {', '.join(map(str, kinds))}")
    return moved(nodes, body)


def moved(nodes: Sequence[Node], body: Callable[[list[Node]], Any]) -> Any:
    """Let `body` build nodes for the numbers of enum values, and label its results as enums."""
    kind = nodes[0].dtype
    made = body([relabelled(n, dt.int32) for n in nodes])
    if isinstance(made, Node):
        return relabelled(made, kind)
    return tuple(relabelled(n, kind) if n.dtype is dt.int32 else n for n in made)


def relabelled(node: Node, dtype: DType) -> Node:
    """The same memory under another element type of the same size."""
    if node.dtype is dtype:
        return node
    if node.storage is not None:
        return node.like(dtype=dtype)
    return build.alias("number", node, node.shapes, dtype, node.layout)


def check_conversion(source: DType, target: DType) -> None:
    """Raise a TypeError if one type is an enum and the other a float."""
    if (source.is_enum and target.is_float) or (source.is_float and target.is_enum):
        raise TypeError(
            f"{source} cannot be converted to {target}: enum types convert only to and from "
            f"integers, bool and each other"
        )


def refuse_export(dtype: DType, where: str) -> None:
    """Raise a TypeError if other libraries have no such type."""
    if dtype.is_enum:
        raise TypeError(f"{where} has no type for {dtype} values; {_HINT}")


def names(numbers: Array, dtype: DType) -> Array:
    """The names of enum values, for people."""
    named = [getattr(m, "name", str(m)) for m in (dt.member(dtype, int(v)) for v in numbers.flat)]
    return np.array(named, object).reshape(numbers.shape)
