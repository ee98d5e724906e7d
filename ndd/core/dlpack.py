"""Memory ↔ DLPack capsules where NumPy cannot: device memory, and bfloat16 numbers.

The structures are those of dlpack.h 1.0. A consumer that asks for version 1 gets the versioned one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ..kernels.common import forks
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType

KDL_CPU, KDL_CUDA = 1, 2
_VERSION = (1, 0)
_READ_ONLY, _IS_COPIED = 1, 2
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    ]  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("rank", ctypes.c_int32), ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_python.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)

# This is not a cache: consumers use these structures and what they keep alive until they call the
# deleter.
_exported: dict[int, tuple[Any, ...]] = {}
_lock = forks.lock()


def _forget(address: int) -> None:
    with _lock:
        _exported.pop(address, None)


_delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)


# A capsule that no consumer has taken still has its first name when it dies, and is ours to delete.
# The capsule is passed as an address: it has no references left.
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_GetName", _python))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)


def _forget_capsule(capsule: int) -> None:
    name = _capsule_name(capsule)
    if name is not None and not name.startswith(b"used_"):
        _forget(_capsule_pointer(capsule, name))


_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_capsule)


def export(
    owner: Any,
    address: int,
    shape: Sequence[int],
    strides: Sequence[int] | None,
    dtype: DType,
    device_id: int,
    *,
    device_type: int = KDL_CUDA,
    max_version: tuple[int, int] | None = None,
    readonly: bool = False,
    copied: bool = False,
) -> Any:
    """A capsule over memory, which keeps `owner` alive until its consumer lets go of it."""
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = (ctypes.c_int64 * max(len(shape), 1))(*(strides or _packed_strides(shape)))
    code = _BFLOAT if dtype is dt.bfloat16 else _CODES[dtype.np.kind]
    tensor = _Tensor(
        address, _Device(device_type, device_id), len(shape), _Type(code, 8 * dtype.bytes, 1),
        sizes, steps, 0,
    )  # fmt: skip
    deleter = ctypes.cast(_delete, ctypes.c_void_p)
    made: Any
    if max_version is not None and max_version[0] >= 1:
        name = b"dltensor_versioned"
        flags = _READ_ONLY * readonly | _IS_COPIED * copied
        made = _Versioned(*_VERSION, None, deleter, flags, tensor)
    else:
        if readonly:
            raise BufferError("DLPack before version 1 cannot say that memory is read-only")
        name = b"dltensor"
        made = _Managed(tensor, None, deleter)
    place = ctypes.addressof(made)
    with _lock:
        _exported[place] = (made, sizes, steps, owner)
    return _python.PyCapsule_New(place, _names[name], ctypes.cast(_destroy, ctypes.c_void_p))


def export_host(
    array: Any,
    dtype: DType,
    *,
    copy: bool | None = None,
    dl_device: tuple[int, int] | None = None,
    max_version: tuple[int, int] | None = None,
) -> Any:
    """A capsule over a NumPy array, which for bfloat16 holds the bits of the numbers."""
    if dtype is not dt.bfloat16:  # NumPy can do it
        return array.__dlpack__(copy=copy, dl_device=dl_device, max_version=max_version)
    if dl_device is not None and tuple(dl_device) != (KDL_CPU, 0):
        raise BufferError(f"__dlpack__: the value is in host memory; wanted {tuple(dl_device)}")
    array = array.copy() if copy else array
    strides = [step // array.itemsize for step in array.strides]
    return export(
        array, array.ctypes.data, array.shape, strides, dtype, 0, device_type=KDL_CPU,
        max_version=max_version, readonly=not array.flags.writeable, copied=bool(copy),
    )  # fmt: skip


# A capsule keeps the address of its name.
_names = {n: ctypes.c_char_p(n) for n in (b"dltensor", b"dltensor_versioned")}
_used = ctypes.c_char_p(b"used_dltensor")


def _packed_strides(shape: Sequence[int]) -> list[int]:
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return steps[::-1]


class Imported:
    """The memory of a DLPack capsule, as a CUDA array interface; given back with this object."""

    def __init__(self, capsule: Any) -> None:
        if not _python.PyCapsule_IsValid(capsule, b"dltensor"):
            raise BufferError("the DLPack capsule has been consumed, or has an unknown version")
        place = _python.PyCapsule_GetPointer(capsule, b"dltensor")
        self._managed = _Managed.from_address(place)
        _python.PyCapsule_SetName(capsule, _used)
        tensor = self._managed.tensor
        if tensor.type.lanes != 1 or tensor.device.type != KDL_CUDA:
            raise BufferError("the DLPack capsule holds no CUDA memory of scalars")
        kinds = {code: kind for kind, code in _CODES.items()}
        nbytes = tensor.type.bits // 8
        self.device_id = int(tensor.device.id)
        self.is_bfloat16 = tensor.type.code == _BFLOAT
        kind = "u" if self.is_bfloat16 else kinds.get(tensor.type.code, "V")
        strides = tensor.strides[: tensor.rank] if tensor.strides else None
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape[: tensor.rank]),
            "typestr": f"{'|' if nbytes == 1 else '<'}{kind}{nbytes}",
            "data": ((tensor.data or 0) + tensor.offset, False),
            "strides": None if strides is None else tuple(s * nbytes for s in strides),
            "stream": None,
        }

    def __del__(self) -> None:
        managed = getattr(self, "_managed", None)
        if managed is not None and managed.deleter:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(ctypes.addressof(managed))
