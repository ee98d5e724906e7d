"""Columns of tables: Arrow and NumPy columns enter and become Batches over their memory, and back.

A column of bytes, of numbers, of lists of numbers or of tensors (also of differing shapes) becomes
a Batch without a copy. Any other column, for example of text, stays a NumPy array of objects. Arrow
memory never changes, so ops on it are queued and fused as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import convert
from ..core.batch import Batch, as_batch
from ..core.handle import evaluate_node
from ..core.tensor import Tensor, as_tensor
from ..fusion.graph.node import source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Held, Storage
from ..kernels.ir import dtypes as dt


def batches_of(table: Any) -> dict[str, Any]:
    """The columns of an Arrow table or of a dict of NumPy arrays, as Batches where possible."""
    if isinstance(table, dict):
        return {name: from_numpy(np.asarray(column)) for name, column in table.items()}
    names = table.column_names
    return {name: from_arrow(table.column(k)) for k, name in enumerate(names)}


# -- NumPy ---------------------------------------------------------------------------------------


def from_numpy(column: Array) -> Any:
    """A column as a Batch; an array of text or other objects stays what it is."""
    dtype = dt.from_numpy(column.dtype)
    if dtype is not None:
        return _rows(np.ascontiguousarray(column), dtype)
    if column.dtype != object or not len(column):
        return column
    if all(isinstance(value, (bytes, bytearray, memoryview)) for value in column):
        return _listed([np.frombuffer(value, np.uint8) for value in column])
    arrays = [value for value in column if isinstance(value, np.ndarray)]
    is_one_batch = len(arrays) == len(column) and len({(a.dtype, a.ndim) for a in arrays}) == 1
    if is_one_batch and dt.from_numpy(arrays[0].dtype) is not None:
        return _listed(arrays)
    return column


def _rows(array: Array, dtype: dt.DType) -> Batch:
    """The rows of a contiguous array."""
    count, shape = len(array), array.shape[1:]
    rows = np.broadcast_to(np.array(shape, np.int64), (count, len(shape)))
    first = np.arange(count, dtype=np.int64) * int(np.prod(shape, dtype=np.int64))
    return _parts(array, [(array, first, rows)], dtype, dense=True)


def _listed(arrays: Sequence[Array]) -> Batch:
    dtype = dt.dtype(arrays[0].dtype)
    return Batch._of(convert.wrap_arrays(arrays, dtype, None, batch=True, external=False))


Part = tuple[Array, Array, Array]  # memory, the first element of each sample, shapes


def _parts(owner: Any, parts: Sequence[Part], dtype: dt.DType, dense: bool = False) -> Batch:
    """Samples in several blocks of memory, which `owner` keeps alive."""
    addresses = [
        memory.__array_interface__["data"][0] + first.astype(np.int64) * dtype.bytes
        for memory, first, _ in parts
    ]
    rows = [shapes for *_, shapes in parts]
    if not sum(map(len, rows)):
        return as_batch([], dtype=dtype, layout=None)
    shapes = Shapes(np.concatenate(rows).astype(np.int64))
    storage = Storage(np.concatenate(addresses), Held([owner]), None, dense=dense)
    storage.readonly = not all(memory.flags.writeable for memory, *_ in parts)
    return Batch._of(source(storage, shapes, dtype, None, True))


# -- Arrow ---------------------------------------------------------------------------------------


def from_arrow(column: Any) -> Any:
    """A chunked Arrow array as a Batch, or as a NumPy array of objects."""
    import pyarrow as pa

    kind, chunks = column.type, [c for c in column.chunks if len(c)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        wide = np.int64 if pa.types.is_large_binary(kind) else np.int32
        return _parts(chunks, [_bytes(chunk, wide) for chunk in chunks], dt.uint8)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = dt.from_numpy(_numpy_type(kind.value_type))
        if found is not None and not any(c.null_count or c.values.null_count for c in chunks):
            return _parts(chunks, [_lists(chunk) for chunk in chunks], found)
    is_plain = pa.types.is_primitive(kind) or isinstance(kind, pa.BaseExtensionType)
    if is_plain and len(chunks) == 1 and not chunks[0].null_count:
        return from_numpy(_array(chunks[0]))
    if is_plain and chunks and not column.null_count:
        return from_numpy(_joined([_array(chunk) for chunk in chunks]))
    return np.array([*column.to_pylist(), None], object)[:-1]


def _joined(arrays: list[Array]) -> Array:
    """Chunks of a column together: the samples of ragged chunks are only listed, not copied."""
    if len({(a.dtype, a.shape[1:]) for a in arrays}) == 1 and arrays[0].dtype != object:
        return np.concatenate(arrays)
    samples = [sample for array in arrays for sample in array]
    listed = np.empty(len(samples), object)
    listed[:] = samples
    return listed


def _numpy_type(kind: Any) -> Any:
    try:
        return np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return np.dtype(object)


def _array(chunk: Any) -> Array:
    """The values of a chunk, without a copy unless they are bits."""
    import pyarrow as pa

    try:
        return np.asarray(chunk.to_numpy(zero_copy_only=True))
    except (pa.ArrowInvalid, TypeError, ValueError):
        return np.asarray(chunk.to_numpy(zero_copy_only=False))


def _bytes(chunk: Any, wide: Any) -> Part:
    _, offsets, data = chunk.buffers()
    ends = np.frombuffer(offsets, wide)[chunk.offset : chunk.offset + len(chunk) + 1]
    memory = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    return memory, ends[:-1], np.diff(ends)[:, None]


def _lists(chunk: Any) -> Part:
    ends = chunk.offsets.to_numpy()
    return _array(chunk.values), ends[:-1], np.diff(ends)[:, None]


# -- back ----------------------------------------------------------------------------------------


def to_numpy(value: Any) -> Any:
    """A result as a column: one array over its memory, or an array of arrays if it is ragged."""
    if isinstance(value, Tensor):
        return np.asarray(value.cpu())
    if not isinstance(value, Batch):
        return value.numpy() if hasattr(value, "numpy") else value
    value = value.cpu()
    if value.batch_size and value._node.shapes.uniform:
        evaluate_node(value._node)
        return np.asarray(as_tensor(value))
    column = np.empty(value.batch_size, object)
    column[:] = [np.asarray(sample) for sample in value.tensors]
    return column
