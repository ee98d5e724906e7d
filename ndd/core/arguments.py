"""Numbers given to an op call → nodes for the kernel; arrays where they decide shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.node import Node
from ..fusion.graph.shapes import Array
from ..kernels.common.memo import Memo
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from . import convert
from .choices import enum_of, names_a_member, or_default
from .handle import Handle
from .inputs import input_node, on_host
from .schema import REQUIRED, Param
from .tensor import tensor_node

ARG_DTYPES = {float: dt.float32, int: dt.int32, bool: dt.bool_}


def kernel_argument(p: Param, value: Any) -> Node | None:
    """A number for the kernel, as a node."""
    if value is None:
        value = or_default(p, value)
        if value is None:
            return None
    kind = ARG_DTYPES[p.type]
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
        return input_node(p, value)
    try:
        return tensor_node(value, None, None, None, copy=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"argument `{p.name}`: {error}") from None


def geometry_argument(p: Param, value: Any) -> tuple[Any, Node | None]:
    """A host array [samples or 1] or [samples or 1, k], and its node if it is no plain number."""
    if value is None:
        if p.default is REQUIRED:
            raise TypeError(f"argument `{p.name}` is required")
        value = p.default
        if value is None:
            return None, None
    if p.type is dt.DALIInterpType and names_a_member(p, value):
        value = enum_of(p, value)
    if p.ragged:
        node = _argument_node(p, value)
        here = on_host(node)
        whole = convert.dense_array(here)
        if whole is not None:
            return list(_as_numbers(p.name, whole, node.dtype, p.type)), node
        arrays = [_as_numbers(p.name, a, node.dtype, p.type) for a in convert.arrays_of(here)]
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
    # Zeros of both signs are equal.
    key = (p.type, values, tuple(map(type, values)), vector, str(values) if 0 in values else "")
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
    if array.dtype == np.float32 and kind in (float, None):
        return array.copy()  # `errstate` takes longer than the rest
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
