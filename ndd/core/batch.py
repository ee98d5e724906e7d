"""Batch: samples of one rank and element type whose shapes may differ."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from types import EllipsisType
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.doubts import side_by_side, valid_samples
from ..fusion.graph.node import Node, source
from ..fusion.graph.shapes import Array, Shapes
from ..fusion.graph.storage import Joined, Storage, allocate, as_array, nothing
from ..kernels.ir.dtypes import DType, bool_, promote
from ..kernels.ir.dtypes import dtype as as_dtype
from ..loop.calls import note_read
from ..runtime.device import Device
from . import convert
from .enumerations import refuse_export
from .errors import user_site
from .handle import Handle, check_files, evaluate_node, finish_call, hand_out
from .interop import array_to_torch
from .tensor import Tensor, describe, finished, second_node, tensor_node

MAX_SHOWN_SHAPES = 8  # in repr()
Several = slice | Sequence[SupportsIndex] | EllipsisType | Array  # indices of several samples


class Batch(Handle):
    """A list of tensors with the same rank and element type.

    >>> import ndd
    >>> b = ndd.batch([[1, 2, 3], [4, 5]])
    >>> b.batch_size, b.shape
    (2, [(3,), (2,)])
    >>> (b * 2).tensors[1].shape
    (2,)
    """

    __slots__ = ()

    def __init__(
        self,
        tensors: Any = None,
        dtype: Any = None,
        device: Any = None,
        layout: str | None = None,
        invocation_result: Any = None,
        copy: bool = False,
    ) -> None:
        data = tensors if tensors is not None else invocation_result
        if data is None:
            raise ValueError("Batch: no tensors given")
        self._node = batch_node(data, dtype, device, layout, copy)
        self._node.result.handle = weakref.ref(self)

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: Any = None, dtype: Any = None) -> Batch:
        """One sample, repeated `batch_size` times."""
        if batch_size < 0:
            raise ValueError(f"Batch.broadcast: batch_size must not be negative, got {batch_size}")
        node = tensor_node(sample, dtype, device, None, copy=False)
        return _choose(node, np.zeros(batch_size, np.int64), "broadcast")  # type: ignore[no-any-return]

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return self._node.count

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """Shapes of all samples."""
        return list(self._node.shapes.tuples)

    @property
    def tensors(self) -> TensorList:
        """The samples: `tensors[i]` is a Tensor; `tensors[1:3]`, `tensors[[2, 0]]` are Batches."""
        return TensorList(self)

    @property
    def slice(self) -> BatchedSlice:
        """Index inside every sample: `b.slice[0]`, `b.slice[1:n]`; bounds may differ per sample."""
        return BatchedSlice(self)

    @property
    def valid(self) -> Array:
        """Whether each sample is good: False where a file could not be read or decoded, and
        `on_error` put something else in its place. Results of further ops remember it.

        >>> import ndd, numpy as np
        >>> files = [b"P3 2 1 255 1 2 3 4 5 6 ", b"no image"]
        >>> files = ndd.batch([np.frombuffer(f, np.uint8) for f in files])
        >>> images = ndd.decoders.image(files, on_error="fill")
        >>> images.valid.tolist()
        [True, False]
        >>> ndd.resize(images, size=[8, 8]).tensors[images.valid].batch_size
        1
        """
        node = self._node
        if node.doubts:
            evaluate_node(node)
        return valid_samples(node.doubts, node.count)

    @overload
    def select(self, sample_range: Several) -> Batch: ...  # type: ignore[overload-overlap]
    @overload
    def select(self, sample_range: SupportsIndex) -> Tensor: ...
    def select(self, sample_range: Any) -> Any:
        """Pick samples: an int gives a Tensor; a slice, a list, `...` or a boolean for each sample
        gives a Batch."""
        n = self.batch_size
        if sample_range is Ellipsis:
            return self
        mask = _mask_of(sample_range, n)
        if mask is not None:
            return _choose(self._node, np.flatnonzero(mask), "select")
        if isinstance(sample_range, slice):
            indices = np.arange(n)[sample_range]
        elif isinstance(sample_range, (list, tuple, np.ndarray)):
            indices = np.array([_sample_index(i, n) for i in sample_range], np.int64)
        else:
            indices = np.array([_sample_index(sample_range, n)], np.int64)
            return _choose(self._node, indices, "select", batch=False)
        return _choose(self._node, indices, "select")

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return self.batch_size

    def __bool__(self) -> bool:
        raise TypeError(
            "a Batch has no truth value: ask for that of a sample, bool(batch.tensors[i]), for "
            "batch.batch_size > 0, or for np.any(ndd.as_tensor(batch))"
        )

    if not TYPE_CHECKING:  # type checkers must accept neither batch[i] nor a Batch as an array

        def __getitem__(self, key: Any) -> Any:
            raise TypeError(
                "'Batch' object is not subscriptable: use batch.tensors[i] or batch.select(i) to "
                "pick samples, batch.slice[i] to index inside every sample"
            )

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            raise TypeError(
                "a Batch is not one array: use np.asarray(batch.tensors[i]) for a sample, or "
                "np.asarray(ndd.as_tensor(batch)) for samples of one shape"
            )

    def torch(self, copy: bool | None = None, pad: bool | float = False) -> Any:
        """One torch tensor with a leading sample axis.

        Parameters
        ----------
        copy : bool, optional
            True always copies, False never does (and raises if it has to), None copies if needed.
        pad : bool or number
            Pad samples of differing shapes, with this number, or with zeros if it is True.

        >>> import ndd
        >>> ndd.batch([[1, 2, 3], [4]]).torch(pad=-1).tolist()
        [[1, 2, 3], [4, -1, -1]]
        """
        node = self._node
        if node.result.export is not None and not copy:
            tensor, node.result.export = node.result.export, None
            hand_out(node)
            return tensor
        refuse_export(node.dtype, "torch")
        if node.device is None and node.shapes.uniform and node.count:
            evaluate_node(node)
            note_read(node, as_tensor=True)
            whole = convert.dense_array(node)
            if whole is not None:
                if not copy:
                    hand_out(node)
                return array_to_torch(whole, node.dtype, bool(copy))
        return dense_tensor(self, pad, copy).torch()

    def __repr__(self) -> str:
        shapes = f"[{', '.join(map(str, self.shape[:MAX_SHOWN_SHAPES]))}"
        more = ", …]" if self.batch_size > MAX_SHOWN_SHAPES else "]"
        return describe(self, f"batch_size={self.batch_size}, shape={shapes}{more}")


class TensorList(Sequence[Tensor]):
    """The samples of a Batch."""

    def __init__(self, owner: Batch) -> None:
        self._owner = owner

    def __len__(self) -> int:
        return self._owner.batch_size

    @overload  # type: ignore[override]
    def __getitem__(self, key: Several) -> Batch: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, key: SupportsIndex) -> Tensor: ...
    def __getitem__(self, key: Any) -> Any:
        return self._owner.select(key)

    def __iter__(self) -> Iterator[Tensor]:
        return (self._owner.select(i) for i in range(len(self)))

    def tolist(self) -> list[Tensor]:
        """The samples in a list."""
        return list(self)

    def as_batch(self) -> Batch:
        """The samples as a Batch again."""
        return self._owner

    def __repr__(self) -> str:
        return f"TensorList({self._owner!r})"


class BatchedSlice:
    """Indexing inside every sample of a Batch."""

    def __init__(self, owner: Batch) -> None:
        self._owner = owner

    def __getitem__(self, key: Any) -> Batch:
        from ..ops.shape.indexing import getitem

        return getitem(self._owner, key)  # type: ignore[no-any-return]


def _mask_of(given: Any, n: int) -> Array | None:
    """A boolean for each of `n` samples; None if these are no booleans."""
    if isinstance(given, (Tensor, Batch)):
        if given.dtype is not bool_ or given.ndim > isinstance(given, Tensor):
            return None
        given = given.cpu()
        given = np.asarray(dense_tensor(given, False, None) if isinstance(given, Batch) else given)
    elif isinstance(given, list):
        if not given or not all(isinstance(v, (bool, np.bool_)) for v in given):
            return None
        given = np.array(given)
    elif not isinstance(given, np.ndarray) or given.dtype != np.bool_:
        return None
    if given.size != n or given.ndim == 0:
        raise IndexError(f"a mask of {given.size} booleans cannot pick from a batch of {n} samples")
    flat: Array = given.reshape(-1)
    return flat


def _sample_index(i: Any, n: int) -> int:
    try:
        index = int(i.__index__())
    except AttributeError:
        raise TypeError(f"a sample index must be an integer, got {type(i).__name__}") from None
    if not -n <= index < n:
        raise IndexError(f"sample {index} is out of range for a batch of {n}")
    return index % n


def _choose(node: Node, indices: Array, op: str, batch: bool = True) -> Any:
    chosen = build.choose(op, node, indices, batch)
    if node.storage is not None:
        # This copies only addresses, so nothing has to run, and external memory stays shared.
        kind = chosen.definition.kind
        chosen.result.deliver(kind.compute(chosen, [node], None))
        chosen.result.context = node.result.context
    else:
        finish_call((chosen,), user_site())
    return (Batch if batch else Tensor)._of(chosen)


def batch_node(data: Any, dtype: Any, device: Any, layout: str | None, copy: bool) -> Node:
    """The node of `Batch(data, …)`."""
    kind = None if dtype is None else as_dtype(dtype)
    if isinstance(data, TensorList):
        data = data.as_batch()
    if isinstance(data, Batch):
        return finished(second_node(data._node, layout, copy), kind, device)
    if isinstance(data, Tensor) or _is_array(data):
        node = _split(tensor_node(data, kind, device, None, copy))
        wanted = convert.check_layout(layout, node.rank)
        return node.like(layout=wanted) if wanted else node
    if isinstance(data, (str, bytes, dict)) or not isinstance(data, Iterable):
        raise TypeError(f"a Batch is made from a sequence of tensors, got {type(data).__name__}")
    if _is_scalars(data):
        # One array for all numbers, because a Tensor for each of 64 numbers takes 6 ms.
        convert.check_layout(layout, rank=0)
        return _split(tensor_node(_numbers(data), kind, device, None, copy=True))
    if copy and _is_alike(data):
        # Without a Tensor for each array: 16 pairs of numbers take 80 µs instead of 300.
        arrays, own = zip(*map(convert.array_of, data), strict=True)
        return finished(convert.copy_arrays(arrays, own[0], layout, batch=True), kind, device)
    samples = _samples(data, kind)
    if not samples:
        return _no_samples(kind, device, layout)
    return finished(_join(samples, layout, copy), None, device)


def _no_samples(dtype: DType | None, device: Any, layout: str | None) -> Node:
    """The node of an empty batch; a layout tells how many axes its samples would have."""
    if dtype is None:
        raise ValueError(
            "a Batch without samples needs its element type: for example dtype=ndd.float32"
        )
    shapes = Shapes(np.zeros((0, len(layout or "")), np.int64))
    node = source(nothing(), shapes, dtype, convert.check_layout(layout, shapes.rank), True)
    return finished(node, None, device)


_NUMBERS = (bool, int, float)


def _is_scalars(data: Any) -> bool:
    if not isinstance(data, (list, tuple)) or not data:
        return False
    kind = type(data[0])
    if kind in _NUMBERS:
        return all(type(v) in _NUMBERS for v in data)
    return issubclass(kind, np.generic) and all(type(v) is kind for v in data)


def _is_alike(data: Any) -> bool:
    """Whether these are NumPy arrays of one element type and rank."""
    if type(data) is not list or not data or type(data[0]) is not np.ndarray:
        return False
    dtype, rank = data[0].dtype, data[0].ndim
    return all(type(a) is np.ndarray and a.dtype == dtype and a.ndim == rank for a in data)


def _numbers(data: Any) -> Any:
    """Scalars in one list or array. NumPy scalars keep their type; Python numbers of several types
    become the type of their sum."""
    return np.array(data) if isinstance(data[0], np.generic) else list(data)


def _is_array(data: Any) -> bool:
    return any(hasattr(data, name) for name in ("__array_interface__", "__dlpack__", "__array__"))


def _samples(data: Iterable[Any], dtype: DType | None) -> list[Tensor]:
    """All items as tensors of one type: the one asked for, or the one that holds all of them."""
    items = list(data)
    for i, item in enumerate(items):
        if isinstance(item, Batch):
            raise TypeError(f"sample {i} is a Batch; the samples of a batch are tensors")
    # No copy is made here: `_join` copies if asked to.
    samples = [item if isinstance(item, Tensor) else Tensor(item, dtype) for item in items]
    kinds = [s.dtype for s, item in zip(samples, items, strict=True) if not _is_nothing(item)]
    if not samples:
        return []
    wanted = dtype or _common_type(kinds or [samples[0].dtype])
    return [s if s.dtype is wanted else Tensor(s, wanted) for s in samples]


def _is_nothing(item: Any) -> bool:
    """An empty list has no element type of its own."""
    return isinstance(item, (list, tuple)) and not item


def _common_type(kinds: Sequence[DType]) -> DType:
    """The type of samples of these types: that of their sum, so that no value is cut off."""
    if any(k.is_enum for k in kinds):
        return kinds[0]
    return reduce(promote, kinds)


def _join(samples: list[Tensor], layout: str | None, copy: bool) -> Node:
    nodes = [s._node for s in samples]
    first = nodes[0]
    for i, node in enumerate(nodes):
        if node.rank != first.rank:
            raise ValueError(
                f"all samples of a batch need one rank: sample 0 is {first.rank}-D of shape "
                f"{first.shapes.tuples[0]}, sample {i} is {node.rank}-D of shape "
                f"{node.shapes.tuples[0]}"
            )
        if node.device != first.device:
            raise ValueError("all samples of a batch must be on the same device")
        evaluate_node(node)
    shapes = Shapes.of([n.shapes.tuples[0] for n in nodes], first.rank)
    layout = convert.check_layout(layout, first.rank) or first.layout
    stored: list[Storage] = [n.storage for n in nodes if n.storage is not None]
    if copy and first.device is None:
        arrays = [as_array(s, n, 0) for s, n in zip(stored, nodes, strict=True)]
        made = convert.copy_arrays(arrays, first.dtype, layout, batch=True)
        for node in nodes:
            check_files(node)
        return made.like(doubts=side_by_side(nodes))
    strides = None
    if any(s.strides is not None for s in stored):
        strides = np.concatenate(
            [
                n.shapes.strides if s.strides is None else s.strides
                for s, n in zip(stored, nodes, strict=True)
            ]
        )
    storage = Storage(
        np.array([int(s.addresses[0]) for s in stored], np.int64),
        Joined([s.owner for s in stored]),
        strides,
        dense=len(stored) == 1 and strides is None,
        external=any(s.external for s in stored),
    )
    storage.readonly = any(s.readonly for s in stored)
    doubts = side_by_side(nodes)
    node = source(storage, shapes, first.dtype, layout, True, first.device, doubts=doubts)
    node.result.context = first.result.context
    return second_node(node, None, copy=True) if copy else node


def _split(node: Node) -> Node:
    """Split a tensor along its first axis into a batch over the same memory."""
    if node.rank == 0:
        raise ValueError("a 0-dimensional tensor has no samples")
    evaluate_node(node)
    assert node.storage is not None
    shape = node.shapes.tuples[0]
    storage = node.storage
    strides = node.shapes.strides if storage.strides is None else storage.strides
    rows = Shapes(np.broadcast_to(node.shapes.rows[:, 1:], (shape[0], node.rank - 1)))
    addresses = storage.addresses[0] + np.arange(shape[0]) * int(strides[0, 0]) * node.dtype.bytes
    inner = None
    if storage.strides is not None:
        inner = np.broadcast_to(storage.strides[:, 1:], (shape[0], node.rank - 1))
    result = Storage(addresses, storage.owner, inner, inner is None).share_flags(storage)
    layout = node.layout[1:] if node.layout else None
    split = source(result, rows, node.dtype, layout or None, True, node.device)
    split.result.context = node.result.context
    return split


def _padded(batch: Batch, pad: bool | float) -> Batch:
    """Samples of one shape, padded with zeros or with the number `pad`."""
    from ..ops.geometry.crops import pad as pad_op

    kind = batch.dtype
    if pad is True:
        return pad_op(batch)  # type: ignore[no-any-return]
    if not isinstance(pad, (int, float, np.number)):
        raise TypeError(f"`pad` must be True, False or a number, got {type(pad).__name__}")
    number = float(pad)
    if kind.is_integer and (int(number) if np.isfinite(number) else None) != pad:
        raise ValueError(f"`pad` must be an integer for samples of {kind}, got {pad}")
    if kind.is_integer:
        limits: Any = np.iinfo(kind.np)
        if not limits.min <= pad <= limits.max or float(np.float32(number)) != pad:
            raise ValueError(f"samples of {kind} cannot be padded with {pad}")
    return pad_op(batch, fill_value=number)  # type: ignore[no-any-return]


def dense_tensor(batch: Batch, pad: bool | float, copy: bool | None) -> Tensor:
    """All samples as one tensor with a leading axis N. `copy` as for `Batch.torch`."""
    node = batch._node
    if node.count == 0:
        return _no_rows(node)
    if not node.shapes.uniform:
        if pad is False or pad is None:
            raise ValueError(
                f"the samples have different shapes: {batch.shape[:4]}…; use pad=True to pad them "
                f"with zeros to a common shape, or pad=-1 to pad with another number"
            )
        if copy is False:
            raise ValueError("padding needs a copy, but copy=False was asked for")
        batch = _padded(batch, pad)
        node = batch._node
    evaluate_node(node)
    assert node.storage is not None
    layout = None if node.layout is None and node.rank else "N" + (node.layout or "")
    rows = np.concatenate([[node.count], node.shapes.rows[0]]).astype(np.int64)[None]
    storage = node.storage
    if storage.dense and storage.strides is None and not copy:
        joined = Storage(storage.addresses[:1], storage.owner, dense=True).share_flags(storage)
        result = source(joined, Shapes(rows), node.dtype, layout, False, node.device)
        result.result.context = node.result.context
        return Tensor._of(result)
    if copy is False:
        raise ValueError("the samples do not lie one after the other in memory: a copy is needed")
    if node.device is not None:
        packed = build.copy("copy", node)
        packed.result.context = node.result.context
        evaluate_node(packed)
        return dense_tensor(Batch._of(packed), pad, None)
    result = source(allocate(Shapes(rows), node.dtype.bytes), Shapes(rows), node.dtype, layout)
    assert result.storage is not None
    target = as_array(result.storage, result, 0)
    for s in range(node.count):
        if target[s].size:
            target[s] = as_array(storage, node, s)
    check_files(node)
    return Tensor._of(result)


def _no_rows(node: Node) -> Tensor:
    """A batch without samples as one tensor; nobody knows the extents of its other axes."""
    shapes = Shapes(np.zeros((1, 1 + node.rank), np.int64))
    layout = None if node.layout is None and node.rank else "N" + (node.layout or "")
    made = Tensor._of(source(allocate(shapes, node.dtype.bytes), shapes, node.dtype, layout))
    return made if node.device is None else made.to_device(Device("gpu", node.device))


def batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """Copy samples into a new Batch.

    >>> import ndd
    >>> ndd.batch([[1.0], [2.0, 3.0]]).shape
    [(1,), (2,)]

    Parameters
    ----------
    tensors : sequence of tensors, or one array or tensor
        The samples. One array is split along its first axis.
    dtype : DType, optional
        Element type to convert to.
    device : str or Device, optional
        Where the batch is to live.
    layout : str, optional
        One letter per axis of a sample.
    """
    return Batch(tensors, dtype, device, layout, copy=True)


def as_batch(
    tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None
) -> Batch:
    """Wrap samples in a Batch, sharing their memory where possible. Arguments as for `batch`.

    >>> import ndd, numpy as np
    >>> ndd.as_batch(np.zeros((4, 2, 3), np.uint8)).shape[:2]
    [(2, 3), (2, 3)]
    """
    if isinstance(tensors, Batch) and dtype is None and device is None and layout is None:
        return tensors
    return Batch(tensors, dtype, device, layout, copy=False)


__all__ = ["Batch", "BatchedSlice", "DType", "TensorList", "as_batch", "batch"]
