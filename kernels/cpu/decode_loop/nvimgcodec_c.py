"""A function that imports nvimgcodec → an instance of its C library; also its C structures.

The native loop cannot use nvimgcodec's Python objects, because they need the interpreter. The
structures are those of nvimgcodec 0.9; with any other version, decoding falls back to Python.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, byref, c_float, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

from ...common.memo import memoized

_VERSION = 9  # minor version
# Output type → nvimgcodec's colour specification and sample format.
FORMATS = {"RGB": (1, 8), "BGR": (1, 10), "GRAY": (2, 4)}
CPU_ONLY, UINT8, ON_HOST = -99999, 0x0802, 2
SUCCESS = 1  # NVIMGCODEC_PROCESSING_STATUS_SUCCESS

is_enabled = os.environ.get("NDD_NATIVE_LOOP", "1") != "0"


class _Head(ctypes.Structure):
    """The fields that all structures begin with."""

    _fields_ = (("kind", c_int), ("size", c_size_t), ("following", c_void_p))
    KIND = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(kind=self.KIND, size=ctypes.sizeof(self), **fields)


def _structure(kind: int, **fields: Any) -> Any:
    """A structure class with nvimgcodec's number for its kind, and its fields."""
    return type(f"Structure{kind}", (_Head,), {"KIND": kind, "_fields_": tuple(fields.items())})


Properties = _structure(1, version=c_uint32, cudart_version=c_uint32)
InstanceInfo = _structure(
    2, load_builtin_modules=c_int, load_extension_modules=c_int,
    extension_modules_path=ctypes.c_char_p, create_debug_messenger=c_int, debug_messenger=c_void_p,
    severity=c_uint32, category=c_uint32,
)  # fmt: skip
DecodeParams = _structure(5, apply_exif_orientation=c_int)
Orientation = _structure(7, rotated=c_int, flip_x=c_int, flip_y=c_int)
Region = _structure(
    8, ndim=c_int, start=c_int * 5, end=c_int * 5, policy=c_int, samples=ctypes.c_uint64 * 5
)
View = _structure(9, image=c_size_t, region=Region, offset=c_size_t)
Plane = _structure(
    12, width=c_uint32, height=c_uint32, row_stride=c_size_t, channels=c_uint32, type=c_int,
    precision=ctypes.c_uint8,
)  # fmt: skip
ImageInfo = _structure(
    11, codec=ctypes.c_char * 256, spec=c_int, subsampling=c_int, format=c_int,
    orientation=Orientation, num_planes=c_uint32, planes=Plane * 32, buffer=c_void_p,
    buffer_kind=c_int, cuda_stream=c_void_p,
)  # fmt: skip
BackendParams = _structure(29, load_hint=c_float, load_hint_policy=c_int)
Backend = _structure(17, backend=c_int, params=BackendParams)
ExecutionParams = _structure(
    30, device_allocator=c_void_p, pinned_allocator=c_void_p, threads=c_int, executor=c_void_p,
    device=c_int, pre_init=c_int, skip_pre_sync=c_int, num_backends=c_int,
    backends=POINTER(Backend),
)  # fmt: skip


class Library(NamedTuple):
    """The C functions, and the instance that all decoders of this process belong to."""

    functions: Any
    instance: int


@memoized(4)
def library(load: Callable[[], Any]) -> Library | None:
    """The library beside the module that `load` imports; None if it is missing or unsupported."""
    try:
        functions = ctypes.CDLL(str(Path(load().__file__).with_name("libnvimgcodec.so.0")))
        properties, instance = Properties(), c_void_p()
        status = functions.nvimgcodecGetProperties(byref(properties))
        if status != 0 or properties.version // 100 != _VERSION:
            return None
        info = InstanceInfo(load_builtin_modules=1, load_extension_modules=1)
        status = functions.nvimgcodecInstanceCreate(byref(instance), byref(info))
    except (ImportError, OSError, AttributeError):
        return None
    return Library(functions, instance.value) if status == 0 and instance.value else None
