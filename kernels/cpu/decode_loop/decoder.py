"""nvimgcodec's library → the decoder of the calling thread, as a structure for the native loop."""

from __future__ import annotations

import threading
import weakref
from ctypes import byref, c_void_p, pointer
from typing import Any

from ...common import forks
from . import nvimgcodec_c as c
from .structures import FREED_BY, Decoder


class ThreadDecoder:
    """A decoder for one thread; the objects in `state` live as long as this one."""

    def __init__(self, library: c.Library, fast_idct: bool) -> None:
        backend = c.Backend(backend=1, params=c.BackendParams(load_hint=1.0, load_hint_policy=2))
        execution = c.ExecutionParams(
            threads=1, device=c.CPU_ONLY, num_backends=1, backends=pointer(backend)
        )
        info = c.ImageInfo(num_planes=1, buffer_kind=c.ON_HOST, orientation=c.Orientation())
        info.planes[0] = c.Plane(type=c.UINT8)
        view, params = c.View(region=c.Region(ndim=2)), c.DecodeParams()
        self.state = Decoder(instance=library.instance, info=info, view=view, params=params)
        # Before the library makes anything, so that an interrupt cannot come between.
        # Not at exit, because parts of the library may already be unloaded by then.
        weakref.finalize(self, _destroy, library.functions, self.state).atexit = False
        made = byref(self.state, Decoder.decoder.offset)
        options = f":fancy_upsampling=1 :fast_idct={int(fast_idct)}".encode()
        status = library.functions.nvimgcodecDecoderCreate(
            c_void_p(library.instance), made, byref(execution), options
        )
        self.is_good = status == 0 and bool(self.state.decoder)


def _destroy(functions: Any, state: Decoder) -> None:
    for field, function in {**FREED_BY, "decoder": "DecoderDestroy"}.items():
        if getattr(state, field):
            getattr(functions, f"nvimgcodec{function}")(c_void_p(getattr(state, field)))


class _LocalDecoders(threading.local):
    def __init__(self) -> None:
        self.decoders: dict[bool, ThreadDecoder] = {}


_own = _LocalDecoders()

# A decoder's own threads do not survive a fork, so a child process makes new decoders.
forks.in_child(lambda: _own.__init__())  # type: ignore[misc]


def of_thread(library: c.Library, fast_idct: bool) -> ThreadDecoder:
    """The decoder of the calling thread, created on first use."""
    decoders = _own.decoders
    if fast_idct not in decoders:
        decoders[fast_idct] = ThreadDecoder(library, fast_idct)
    return decoders[fast_idct]
