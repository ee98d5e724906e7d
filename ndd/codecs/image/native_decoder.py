"""nvimgcodec through its C interface, for the loop of kernels/cpu/decode_loop/structures.py.

Its Python objects cannot be used without the interpreter. What is needed here: an instance for the
process, and for every thread a decoder and the structures that its pictures are described with.
The structures are those of nvimgcodec 0.9; of another version nothing is used, and pictures are
decoded as usual.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from ctypes import (
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)  # fmt: skip
from functools import cache, partial
from pathlib import Path
from typing import Any

from ...kernels.cpu.decode_loop.structures import Own

_VERSION = 9  # minor
# colour specification and sample format, by name of an output type
FORMATS = {"RGB": (1, 8), "BGR": (1, 10), "GRAY": (2, 4)}
_CPU_ONLY, _UINT8, _ON_HOST = -99999, 0x0802, 2

is_enabled = os.environ.get("NDD_NATIVE_LOOP", "1") != "0"


class _Head(ctypes.Structure):
    """What all structures begin with."""

    _fields_ = (("kind", c_int), ("size", c_size_t), ("following", c_void_p))
    KIND = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(kind=self.KIND, size=ctypes.sizeof(self), **fields)


def _structure(kind: int, **fields: Any) -> Any:
    """A structure by the number that nvimgcodec gives it, and its fields."""
    return type(f"_Structure{kind}", (_Head,), {"KIND": kind, "_fields_": tuple(fields.items())})


_Properties = _structure(1, version=c_uint32, cudart_version=c_uint32)
_InstanceInfo = _structure(
    2, load_builtin_modules=c_int, load_extension_modules=c_int, extension_modules_path=c_char_p,
    create_debug_messenger=c_int, debug_messenger=c_void_p, severity=c_uint32, category=c_uint32,
)  # fmt: skip
_DecodeParams = _structure(5, apply_exif_orientation=c_int)
_Orientation = _structure(7, rotated=c_int, flip_x=c_int, flip_y=c_int)
_Region = _structure(
    8, ndim=c_int, start=c_int * 5, end=c_int * 5, policy=c_int, samples=c_uint64 * 5
)
_View = _structure(9, image=c_size_t, region=_Region, offset=c_size_t)
_Plane = _structure(
    12, width=c_uint32, height=c_uint32, row_stride=c_size_t, channels=c_uint32, type=c_int,
    precision=c_uint8,
)  # fmt: skip
_ImageInfo = _structure(
    11, codec=c_char * 256, spec=c_int, subsampling=c_int, format=c_int, orientation=_Orientation,
    num_planes=c_uint32, planes=_Plane * 32, buffer=c_void_p, buffer_kind=c_int,
    cuda_stream=c_void_p,
)  # fmt: skip
_BackendParams = _structure(29, load_hint=c_float, load_hint_policy=c_int)
_Backend = _structure(17, backend=c_int, params=_BackendParams)
_ExecutionParams = _structure(
    30, device_allocator=c_void_p, pinned_allocator=c_void_p, threads=c_int, executor=c_void_p,
    device=c_int, pre_init=c_int, skip_pre_sync=c_int, num_backends=c_int, backends=c_void_p,
)  # fmt: skip

_FUNCTIONS = {
    "new_stream": "CodeStreamCreateFromHostMem", "new_part": "CodeStreamGetSubCodeStream",
    "new_image": "ImageCreate", "decode": "DecoderDecode", "wait": "FutureWaitForAll",
    "ask": "FutureGetProcessingStatus", "free_future": "FutureDestroy",
    "free_stream": "CodeStreamDestroy", "free_image": "ImageDestroy",
}  # fmt: skip


@cache
def _library() -> tuple[Any, int] | None:
    """The library and an instance of it; None if there is none that we know."""
    from .nvimgcodec import nvimgcodec

    try:
        path = Path(nvimgcodec().__file__).with_name("libnvimgcodec.so.0")
        library = ctypes.CDLL(str(path))
        properties = _Properties()
        if library.nvimgcodecGetProperties(ctypes.byref(properties)) != 0:
            return None
        if properties.version // 100 != _VERSION:
            return None
        instance = c_void_p()
        info = _InstanceInfo(load_builtin_modules=1, load_extension_modules=1)
        if library.nvimgcodecInstanceCreate(ctypes.byref(instance), ctypes.byref(info)) != 0:
            return None
    except (ImportError, OSError, AttributeError):
        return None
    return (library, instance.value) if instance.value else None


class NativeDecoder:
    """What one thread decodes with; `address` is that of its `Own` cells."""

    def __init__(self, library: Any, instance: int, fast_idct: bool) -> None:
        backend = _Backend(backend=1, params=_BackendParams(load_hint=1.0, load_hint_policy=2))
        execution = _ExecutionParams(
            threads=1, device=_CPU_ONLY, num_backends=1, backends=ctypes.addressof(backend)
        )
        decoder = c_void_p()
        options = f":fancy_upsampling=1 :fast_idct={int(fast_idct)}".encode()
        status = library.nvimgcodecDecoderCreate(
            c_void_p(instance), ctypes.byref(decoder), ctypes.byref(execution), options
        )
        self.is_good = status == 0 and bool(decoder.value)
        self._info = _ImageInfo(num_planes=1, buffer_kind=_ON_HOST, orientation=_Orientation())
        self._plane = self._info.planes[0] = _Plane(type=_UINT8)
        self._view = _View(region=_Region(ndim=2))
        self._params = _DecodeParams()
        self._cells = (c_int64 * len(Own))()
        self._fill(library, instance, decoder.value or 0)
        self.address = ctypes.addressof(self._cells)
        # not at exit: nobody knows what is still there of the library then
        finalizer = weakref.finalize(self, _destroy, library, self._cells)
        finalizer.atexit = False

    def _fill(self, library: Any, instance: int, decoder: int) -> None:
        info, view = ctypes.addressof(self._info), ctypes.addressof(self._view)
        plane, region = info + _ImageInfo.planes.offset, view + _View.region.offset
        found = {
            "instance": instance, "decoder": decoder, "info": info, "view": view,
            "params": ctypes.addressof(self._params),
            "at_height": plane + _Plane.height.offset, "at_width": plane + _Plane.width.offset,
            "at_stride": plane + _Plane.row_stride.offset,
            "at_channels": plane + _Plane.channels.offset,
            "at_buffer": info + _ImageInfo.buffer.offset,
            "at_spec": info + _ImageInfo.spec.offset,
            "at_format": info + _ImageInfo.format.offset,
            "at_start": region + _Region.start.offset, "at_end": region + _Region.end.offset,
        }  # fmt: skip
        for name, function in _FUNCTIONS.items():
            found[name] = _address(getattr(library, f"nvimgcodec{function}"))
        found["give_way"] = _address(ctypes.CDLL(None).sched_yield)
        for name, cell in found.items():
            self._cells[Own[name]] = cell


def _address(function: Any) -> int:
    return ctypes.cast(function, c_void_p).value or 0


def _destroy(library: Any, cells: Any) -> None:
    for name, function in (
        ("part", "CodeStreamDestroy"), ("stream", "CodeStreamDestroy"), ("image", "ImageDestroy"),
        ("decoder", "DecoderDestroy"),
    ):  # fmt: skip
        if cells[Own[name]]:
            getattr(library, f"nvimgcodec{function}")(c_void_p(cells[Own[name]]))


class _Local(threading.local):
    def __init__(self) -> None:
        self.decoders: dict[bool, NativeDecoder] = {}


_own = _Local()


def is_available() -> bool:
    """Whether pictures can be decoded without the interpreter."""
    return is_enabled and _library() is not None


def _own_address(fast_idct: bool) -> int:
    """The `Own` cells of this thread; 0 if there are none."""
    found = _own.decoders.get(fast_idct)
    if found is None:
        made = _library()
        assert made is not None, "is_available says so"
        found = _own.decoders[fast_idct] = NativeDecoder(*made, fast_idct)
    return found.address if found.is_good else 0


OF_THREAD = {fast_idct: partial(_own_address, fast_idct) for fast_idct in (False, True)}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _own.__init__())  # type: ignore[misc]
