"""Conversion: arrays, lists, scalars and other libraries' tensors enter, nodes leave."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Held, Storage, allocate, array_at, as_array
from ..kernels.common.memo import Memo, memoized
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType

_EMPTY = np.zeros(64, np.uint8)
_DLPACK_CPU = (1, 3)  # plain and pinned host memory


def check_layout(layout: str | None, rank: int) -> str | None:
    """Check that a layout fits the rank; an empty layout becomes None."""
    if not layout:
        return None
    if not isinstance(layout, str):
        raise TypeError(f"layout must be a string, got {type(layout).__name__}")
    if len(layout) != rank:
        raise ValueError(f"layout {layout!r} has {len(layout)} axes, but the data has {rank}")
    return layout


def array_of(data: Any, dtype: DType | None = None) -> tuple[Array, DType] | None:
    """Host data as a NumPy array (sharing memory where possible) and its element type.

    None if the data is in device memory. Only Python numbers, which have no element type, are
    converted to `dtype`; everything else keeps its type.
    """
    if isinstance(data, np.ndarray):
        return _typed(data)
    if isinstance(data, np.generic):
        return _typed(np.asarray(data))
    if isinstance(data, (bool, int, float)) or dt.enum_type(data) is not None:
        return _number_array(data, dtype)
    if isinstance(data, (list, tuple, range)):
        return _from_list(data, dtype)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        return _from_torch(data.detach())
    if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
        if data.__dlpack_device__()[0] in _DLPACK_CPU:
            return _typed(_from_dlpack(data))
        return None
    if hasattr(data, "__cuda_array_interface__"):
        return None
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return _typed(np.asarray(data))
    if isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"cannot make a tensor from {type(data).__name__}; the bytes of a file are an array: "
            f"np.frombuffer(data, np.uint8)"
        )
    raise TypeError(
        f"cannot make a tensor from {type(data).__name__}; wanted an array, a tensor, "
        f"a number or a (nested) list of numbers"
    )


def _typed(array: Array) -> tuple[Array, DType]:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    found = dt.from_numpy(array.dtype)
    if found is None:
        raise TypeError(f"element type {array.dtype} is not supported")
    return (array.view(np.uint16) if found is dt.bfloat16 else array), found


def _from_dlpack(data: Any) -> Array:
    try:
        return np.from_dlpack(data)
    except (BufferError, RuntimeError):
        # NumPy knows no bfloat16 in DLPack; arrays of JAX offer it as an array of ml_dtypes, too.
        if getattr(getattr(data, "dtype", None), "name", "") != "bfloat16":
            raise
        return np.asarray(data)


def _from_torch(tensor: Any) -> tuple[Array, DType] | None:
    import torch

    if tensor.is_cuda:
        return None
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy(), dt.bfloat16
    return _typed(tensor.numpy())


def _number_array(data: Any, dtype: DType | None) -> tuple[Array, DType]:
    """A Python number, or a member of an enum."""
    kind = dt.enum_type(data)
    return _python_array(data if kind is None else int(data), dtype or kind)


def _python_array(data: Any, dtype: DType | None = None) -> tuple[Array, DType]:
    """Python numbers are 32-bit: bool, int32 (uint32 if only that holds them), float32."""
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        if array.dtype == object and all(isinstance(v, int) for v in array.flat):
            raise OverflowError(f"integer {max(array.flat, key=abs)} is out of range")
        raise TypeError(f"cannot make a tensor from {data!r}")
    if dtype is None:
        dtype = _python_type(array)
    return stored(array, dtype), dtype


def _python_type(array: Array) -> DType:
    if array.dtype.kind == "b":
        return dt.bool_
    if array.dtype.kind == "f":
        return dt.float32
    unsigned = bool(array.size) and int(array.max()) >= 2**31
    return dt.uint32 if unsigned else dt.int32


def stored(values: Array, dtype: DType) -> Array:
    """Numbers as this type holds them in memory: integers are truncated and must fit."""
    if dtype.is_integer or dtype.is_enum:
        info: Any = np.iinfo(dtype.np)
        # Comparisons with Python integers are exact. NaN fails both.
        bad = ~((values > info.min - 1) & (values < info.max + 1))
        if values.dtype.kind in "iu":
            bad = (values < info.min) | (values > info.max)
        if bad.any():
            raise OverflowError(f"{values[bad].flat[0]} is out of range for {dtype}")
        return values.astype(dtype.np)
    if dtype is dt.bfloat16:
        return bfloat16_bits(values)
    with np.errstate(over="ignore"):  # overflow gives infinity
        return values.astype(dtype.np)


def bfloat16_bits(values: Array) -> Array:
    """Upper halves of float32 numbers, rounded to nearest even."""
    with np.errstate(over="ignore"):
        exact = values.astype(np.float32)
    bits = exact.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(exact), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def bfloat16_values(bits: Array) -> Array:
    """bfloat16 as float32, exactly."""
    return np.asarray(bits.astype(np.uint32) << 16, np.uint32).view(np.float32)


def _from_list(data: Sequence[Any], dtype: DType | None) -> tuple[Array, DType]:
    leaf = _first_leaf(data)
    if dt.enum_type(leaf) is not None:
        return _from_list(_as_integers(data), dtype or dt.enum_type(leaf))
    if leaf is None or (isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic)):
        if leaf is None and dtype is None:
            dtype = dt.float32
        try:
            array = np.asarray(data)
        except ValueError as e:
            raise ValueError(
                "a nested list must be rectangular to become a tensor; lists of different lengths "
                "are samples of a Batch: ndd.batch([...])"
            ) from e
        return _python_array(array, dtype)
    parts = [array_of(item) for item in data]
    if any(p is None for p in parts):
        raise TypeError("a list of GPU tensors cannot become one tensor; use ndd.stack")
    arrays = [p[0] for p in parts if p is not None]
    kinds = {p[1] for p in parts if p is not None}
    if len(kinds) != 1:
        raise TypeError(f"the items have different element types: {', '.join(map(str, kinds))}")
    shapes = list(dict.fromkeys(a.shape for a in arrays))
    if len(shapes) > 1:
        shown = ", ".join(map(str, shapes[:3])) + (", …" if len(shapes) > 3 else "")
        raise ValueError(
            f"a list of arrays of different shapes ({shown}) is not one tensor; samples are a "
            f"Batch: ndd.batch([...])"
        )
    return np.stack(arrays), kinds.pop()


def _as_integers(data: Any) -> Any:
    """A nested list with the numbers of the enum members in it."""
    if isinstance(data, (list, tuple)):
        return [_as_integers(item) for item in data]
    return data if dt.enum_type(data) is None else int(data)


def _first_leaf(data: Any) -> Any:
    while isinstance(data, (list, tuple, range)):
        if not data:
            return None
        data = data[0]
    return data


def wrap_arrays(
    arrays: Sequence[Array], dtype: DType, layout: str | None, batch: bool, external: bool,
    source_info: Any = None,
) -> Node:  # fmt: skip
    """A node over existing host memory, without a copy."""
    rank = arrays[0].ndim
    shapes = Shapes.of([a.shape for a in arrays], rank)
    # An empty array may point anywhere, but a guarded load reads one element at its address.
    empty = _EMPTY.__array_interface__["data"][0]
    addresses = np.array(
        [a.__array_interface__["data"][0] if a.size else empty for a in arrays], np.int64
    )
    strides = None
    item = dtype.bytes
    if not all(a.flags.aligned for a in arrays):
        copies = [a.copy() for a in arrays]
        return wrap_arrays(copies, dtype, layout, batch, external, source_info)
    if not all(a.flags.c_contiguous for a in arrays):
        if any(s % item for a in arrays for s in a.strides):
            copies = [a.copy() for a in arrays]
            return wrap_arrays(copies, dtype, layout, batch, external, source_info)
        strides = np.array([[s // item for s in a.strides] for a in arrays], np.int64)
        strides = strides.reshape(len(arrays), rank)
    dense = len(arrays) == 1 and strides is None
    storage = Storage(addresses, Held(list(arrays)), strides, dense, external)
    storage.readonly = not all(a.flags.writeable for a in arrays)
    layout = check_layout(layout, rank)
    return source(storage, shapes, dtype, layout, batch, source_info=source_info)


def rows_node(rows: Array, dtype: DType, batch: bool) -> Node:
    """One row per sample, over the memory of `rows`."""
    rows = np.ascontiguousarray(rows, dtype.np)
    base, step = rows.__array_interface__["data"][0], max(rows.shape[1] * dtype.bytes, 1)
    addresses = np.arange(base, base + len(rows) * step, step, dtype=np.int64)
    storage = Storage(addresses, Held([rows]), None, True)
    return source(storage, _lists(*rows.shape), dtype, None, batch)


@memoized(256)
def _lists(count: int, length: int) -> Shapes:
    """Shapes of `count` lists of numbers."""
    return Shapes(np.full((count, 1), length, np.int64))


def batch_node(rows: Array, dtype: DType) -> Node:
    """A batch with its own memory, filled from the rows of an array."""
    shapes = Shapes(np.broadcast_to(np.array(rows.shape[1:], np.int64), (len(rows), rows.ndim - 1)))
    node = source(allocate(shapes, dtype.bytes), shapes, dtype, batch=True)
    whole = dense_array(node)
    assert whole is not None, "its samples are alike"
    whole[...] = rows
    return node


def copy_arrays(arrays: Sequence[Array], dtype: DType, layout: str | None, batch: bool) -> Node:
    """A node with its own memory, filled from arrays."""
    rank = arrays[0].ndim
    shapes = Shapes.of([a.shape for a in arrays], rank)
    storage = allocate(shapes, dtype.bytes)
    node = source(storage, shapes, dtype, check_layout(layout, rank), batch)
    whole = dense_array(node)
    if whole is not None and rank > 0 and whole.size:  # a few times as fast as sample by sample
        rows = whole.reshape(-1, *whole.shape[2:])
        np.concatenate(arrays, out=rows, casting="unsafe")
        return node
    for target, array in zip(arrays_of(node), arrays, strict=True):
        target[...] = array
    return node


def arrays_of(node: Node) -> list[Array]:
    """NumPy views of all samples of a materialised host node."""
    whole = dense_array(node)
    if whole is not None:
        return [whole[s, ...] for s in range(node.count)]
    assert node.storage is not None
    return [as_array(node.storage, node, s) for s in range(node.count)]


def dense_array(node: Node) -> Array | None:
    """All samples of a materialised host node as one array, or None if its memory is not dense."""
    storage = node.storage
    assert storage is not None
    if not storage.dense or storage.strides is not None or not node.count:
        return None
    shape = (node.count, *node.shapes.tuples[0])
    return array_at(int(storage.addresses[0]), shape, node.dtype.np, None, storage)


# -- arguments -----------------------------------------------------------------------------------


_scalars: Memo[tuple[Any, ...], Node] = Memo("numbers as nodes", 8192)


def const_scalar(value: float | int | bool, dtype: DType) -> Node:
    """A number as a node; one object per value, so that plans can compare it by identity."""
    # -0.0 equals 0.0, so it needs its own cache key. Equal numbers of other types do not: `dtype`
    # decides how the value is stored.
    key = value, dtype.name, not value and str(value)[0] == "-"
    found = _scalars.get(key)
    if found is None:
        found = _scalars.setdefault(key, const_array(_fit(value, dtype), dtype))
    return found


def const_vector(values: tuple[float | int, ...], dtype: DType) -> Node:
    """A short list of numbers as a one-dimensional node; one object per list."""
    return _cached_vector(values, dtype, str(values) if 0 in values else "")  # -0.0 equals 0.0


@memoized(4096, typed=False)
def _cached_vector(values: tuple[float | int, ...], dtype: DType, zeros: str) -> Node:
    return const_array(np.array([_fit(v, dtype) for v in values], dtype.np), dtype)


def _fit(value: Any, dtype: DType) -> Any:
    """One number as `stored` keeps it, without NumPy guessing an array type first."""
    if dtype.is_integer:
        number = int(value)
        info: Any = np.iinfo(dtype.np)
        if not info.min <= number <= info.max:
            raise OverflowError(f"integer {number} is out of range for {dtype}")
        return np.asarray(number, dtype.np)
    return stored(np.asarray(value), dtype)


def const_array(array: Array, dtype: DType) -> Node:
    """An array as a constant node, with memory of its own."""
    return copy_arrays([array], dtype, None, batch=False).like(op="const")
