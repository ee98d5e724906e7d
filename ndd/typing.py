"""Types for annotations: everything that ops accept as a Tensor, an element type or a device.

>>> from ndd.typing import TensorLike
>>> def brighter(images: TensorLike) -> TensorLike: ...
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from .core.batch import Batch
from .core.tensor import Tensor
from .kernels.ir.dtypes import DALIDataType, DALIImageType, DALIInterpType, DType
from .runtime.device import Device

__all__ = [
    "Array",
    "ArrayLike",
    "DTypeLike",
    "DeviceLike",
    "ImageTypeLike",
    "InterpTypeLike",
    "TensorLike",
]

# fmt: off
DTypeName: TypeAlias = Literal[
    "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "bfloat16", "bool",
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "bf16", "half", "float", "double", "int",
]
ImageTypeName: TypeAlias = Literal["RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA"]
InterpTypeName: TypeAlias = Literal[
    "INTERP_NN", "INTERP_LINEAR", "INTERP_CUBIC", "INTERP_LANCZOS3", "INTERP_TRIANGULAR",
    "INTERP_GAUSSIAN",
]
# fmt: on


class SupportsArray(Protocol):
    """NumPy arrays and scalars, and objects that convert to an array."""

    def __array__(self) -> np.ndarray[Any, Any]: ...


class SupportsDLPack(Protocol):
    """Tensors of torch, CuPy, JAX and others."""

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class SupportsCudaArray(Protocol):
    """Arrays in the memory of a GPU."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class TorchType(Protocol):
    """`torch.dtype`."""

    is_floating_point: bool


class TorchDevice(Protocol):
    """`torch.device`."""

    type: str
    index: Any


# Array is one tensor of any library, ArrayLike adds Python numbers, TensorLike adds batches.
Array: TypeAlias = Tensor | SupportsArray | SupportsDLPack | SupportsCudaArray
ArrayLike: TypeAlias = Array | float | list[Any] | tuple[Any, ...] | range
TensorLike: TypeAlias = Batch | ArrayLike

DTypeLike: TypeAlias = (
    DType | DTypeName | DALIDataType | type[bool | int | float] | type[np.generic]
    | np.dtype[Any] | TorchType
)  # fmt: skip
DeviceLike: TypeAlias = Device | str | TorchDevice
ImageTypeLike: TypeAlias = DALIImageType | ImageTypeName
InterpTypeLike: TypeAlias = DALIInterpType | InterpTypeName
