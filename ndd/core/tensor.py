"""Tensor: one array with element type, layout and device; possibly not computed yet."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..fusion.graph import build
from ..fusion.graph.node import Node, source
from ..fusion.graph.storage import as_array
from ..kernels.ir import dtypes as dt
from ..runtime.context import current_context
from . import convert
from .dlpack import export_host
from .enumerations import names, refuse_export
from .errors import user_site
from .handle import Handle, check_files, evaluate_node, finish_call, hand_out


class Tensor(Handle):
    """An array with an element type, an optional layout and a device.

    >>> import ndd
    >>> t = ndd.tensor([[1, 2], [3, 4]], layout="HW")
    >>> (t + 1).shape, t.dtype, t.layout
    ((2, 2), DType(kind=Kind.signed, bits=32), 'HW')
    """

    __slots__ = ()

    def __init__(
        self,
        data: Any = None,
        dtype: Any = None,
        device: Any = None,
        layout: str | None = None,
        batch: Any = None,
        index_in_batch: int | None = None,
        invocation_result: Any = None,
        copy: bool = False,
    ) -> None:
        if batch is not None:
            if index_in_batch is None:
                raise ValueError("Tensor: `batch` needs `index_in_batch`")
            data = batch.select(index_in_batch)
        elif data is None:
            data = invocation_result
        if data is None:
            raise ValueError("Tensor: no data given")
        self._node = tensor_node(data, dtype, device, layout, copy)
        self._node.result.handle = weakref.ref(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self._node.shapes.tuples[0]

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self._node.shapes.volumes[0])

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    def item(self) -> Any:
        """The only element as a Python number, or as a member of its enum."""
        if self.size != 1:
            raise ValueError(
                f"item() needs exactly one element, this tensor has shape {self.shape}"
            )
        if self.dtype.is_enum:
            return dt.member(self.dtype, int(self.cpu()._host_array().reshape(-1)[0]))
        return self.cpu()._read_only().reshape(-1)[0].item()

    def _host_array(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array over the same memory (for bfloat16, its bits).

        Whoever gives it to the user calls `hand_out` first.
        """
        evaluate_node(self._node)
        node = self._node
        if node.device is not None:
            raise TypeError(
                "a GPU tensor cannot be read by NumPy; copy it to the host first: tensor.cpu()"
            )
        assert node.storage is not None
        check_files(node)
        return as_array(node.storage, node, 0)

    def _read_only(self) -> np.ndarray[Any, Any]:
        """The value for those who only look at it: later calls still wait, and fuse."""
        array = self._host_array()
        if self.dtype is dt.bfloat16:
            array = convert.bfloat16_values(array)
        array.flags.writeable = False
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self._host_array()
        refuse_export(self.dtype, "NumPy")
        if self.dtype is dt.bfloat16:
            if copy is False:
                raise ValueError("bfloat16 has no NumPy type: it can only be copied to float32")
            array = convert.bfloat16_values(array)
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"an array of {dtype} needs a copy of this {self.dtype} tensor")
            return array.astype(dtype)
        if copy:
            return array.copy()
        hand_out(self._node)
        return array

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        refuse_export(self.dtype, "DLPack")
        if self._node.device is None:
            array = self._host_array()
            hand_out(self._node)
            return export_host(array, self.dtype, **kwargs)
        from .interop import gpu_dlpack

        evaluate_node(self._node)
        hand_out(self._node)
        return gpu_dlpack(self._node, stream, kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._node.device is None:
            return (1, 0)
        from .interop import gpu_dlpack_device

        return gpu_dlpack_device(self._node.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._node.device is None:
            raise AttributeError("__cuda_array_interface__ exists only for GPU tensors")
        from .interop import cuda_array_interface

        refuse_export(self.dtype, "CUDA's array interface")

        evaluate_node(self._node)
        hand_out(self._node)
        return cuda_array_interface(self._node)

    def torch(self, copy: bool = False) -> Any:
        """A torch tensor, over the same memory unless `copy` is set."""
        from .interop import to_torch

        refuse_export(self.dtype, "torch")
        evaluate_node(self._node)
        if not copy:
            hand_out(self._node)
        return to_torch(self._node, self.shape, copy)

    def __getitem__(self, key: Any) -> Tensor:
        from ..ops.shape.indexing import getitem

        return getitem(self, key)  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        if self.ndim == 0:
            raise TypeError("a 0-dimensional tensor has nothing to iterate over")
        return (self[i] for i in range(self.shape[0]))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"the truth of a tensor of shape {self.shape} is ambiguous")
        return bool(self.item())

    def __index__(self) -> int:
        # Not one with axes: NumPy would take it for a number, and drop the axis that it indexes.
        if not (self.dtype.is_integer and self.ndim == 0):
            raise TypeError(
                f"only an integer without axes can be an index, this is {self.dtype} {self.shape}"
            )
        return int(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self) -> str:
        return describe(self, f"shape={self.shape}")


def describe(handle: Handle, shape: str) -> str:
    """The repr of a handle, with data only if that is computed already; it computes nothing."""
    node = handle._node
    kind = type(handle).__name__
    meta = f"dtype={node.dtype}, device={str(handle.device)!r}, layout={node.layout!r}, {shape}"
    if node.storage is None or node.device is not None or not isinstance(handle, Tensor):
        state = "" if node.storage is not None else ", pending"
        return f"{kind}({meta}{state})"
    if node.dtype.is_enum:
        shown = names(as_array(node.storage, node, 0), node.dtype)
        return f"{kind}(\n{np.array2string(shown, formatter={'all': str})},\n{meta})"
    text = np.array2string(handle._read_only(), threshold=20, edgeitems=3)
    return f"{kind}(\n{text},\n{meta})"


_COPIED = (bool, int, float, list, tuple, range, np.generic)  # they have no memory to share


def tensor_node(data: Any, dtype: Any, device: Any, layout: str | None, copy: bool) -> Node:
    """The node of `Tensor(data, …)`."""
    from .batch import Batch

    if isinstance(data, Batch):
        raise TypeError("a Batch becomes one tensor with ndd.as_tensor(batch) or ndd.tensor(batch)")
    kind = None if dtype is None else dt.dtype(dtype)
    if isinstance(data, Tensor):
        return finished(second_node(data._node, layout, copy), kind, device)
    found = convert.array_of(data, kind)
    if found is None:
        from .interop import wrap_gpu

        node = wrap_gpu(data, layout)
        if copy:
            node = second_node(node, None, copy)
    elif copy or isinstance(data, _COPIED) or dt.enum_type(data) is not None:
        node = convert.copy_arrays([found[0]], found[1], layout, batch=False)
    else:
        node = convert.wrap_arrays([found[0]], found[1], layout, batch=False, external=True)
    return finished(node, kind, device)


def second_node(node: Node, layout: str | None, copy: bool) -> Node:
    """A node for a second handle on a value: shares or copies memory, may change the layout."""
    wanted = convert.check_layout(layout, node.rank) or node.layout
    if node.storage is None and node.result.context is not current_context():
        evaluate_node(node)
    if copy:
        return _queued(build.copy("copy", node, wanted))
    if node.storage is None:
        return _queued(build.relabel("tensor", node, wanted))
    twin = source(
        node.storage, node.shapes, node.dtype, wanted, node.batch, node.device, doubts=node.doubts
    )
    twin.result.context = node.result.context
    return twin


def _queued(node: Node) -> Node:
    """Hand a node to the executor, as at the end of an op call."""
    finish_call((node,), user_site())
    return node


def finished(node: Node, dtype: dt.DType | None, device: Any) -> Node:
    """The node converted to `dtype` and moved to `device`, if these are given."""
    if dtype is not None and dtype != node.dtype:
        from ..ops.pointwise.conversion import cast_node

        node = _queued(cast_node("cast", node, dtype))
    if device is not None:
        from .call import wrap

        node = wrap(node).to_device(device)._node
    return node


def tensor(
    data: Any, dtype: Any = None, device: Any = None, layout: str | None = None,
    pad: bool | float = False,
) -> Tensor:  # fmt: skip
    """Copy data into a new Tensor.

    >>> import ndd
    >>> ndd.tensor([1.0, 2.0]).dtype
    DType(kind=Kind.float, bits=32, exponent_bits=8, significand_bits=23)

    Parameters
    ----------
    data : array, tensor, number, nested list or Batch
        The data to copy. A Batch becomes one tensor with a leading sample axis.
    dtype : DType, optional
        Element type to convert to.
    device : str or Device, optional
        Where the tensor is to live.
    layout : str, optional
        One letter per axis.
    pad : bool or number
        Pad samples of a ragged Batch to a common shape: with zeros, or with this number.
    """
    return _make(data, dtype, device, layout, pad, copy=True)


def as_tensor(
    data: Any, dtype: Any = None, device: Any = None, layout: str | None = None,
    pad: bool | float = False,
) -> Tensor:  # fmt: skip
    """Wrap data in a Tensor, sharing its memory where possible. Arguments as for `tensor`.

    >>> import ndd, numpy as np
    >>> a = np.zeros(3, np.float32)
    >>> t = ndd.as_tensor(a)
    >>> a[0] = 5
    >>> t.shape, float(np.asarray(t)[0])
    ((3,), 5.0)
    """
    return _make(data, dtype, device, layout, pad, copy=False)


def _make(
    data: Any, dtype: Any, device: Any, layout: str | None, pad: bool | float, copy: bool
) -> Tensor:
    from .batch import Batch, dense_tensor

    if isinstance(data, Batch):
        data = dense_tensor(data, pad, copy or None)
        copy = False
    return Tensor(data, dtype, device, layout, copy=copy)
