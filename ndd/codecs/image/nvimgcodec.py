"""Imports nvimgcodec on first use and makes its decoders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.common import background, forks

_importing = forks.foreign_lock()
_nvimgcodec: Any = None


def nvimgcodec() -> Any:
    """The library, imported on first use, with its log and the log of its OpenCV switched off.

    Its decoders report the reasons of failures only in that log. The C libraries inside (libpng,
    libtiff, libjpeg) still print a line on stderr for some corrupt files.
    """
    if _nvimgcodec is None:
        background.uninterrupted(_import)
    return _nvimgcodec


@background.before_exit
def _close() -> None:
    """Keep daemon threads of the user out of the library: one that returns from its C++ code while
    the interpreter shuts down aborts the process."""
    global _nvimgcodec
    _nvimgcodec = None  # a thread that asks for it from now on ends in `_import`
    background.wait_until_left(Path(__file__).parent)


def _import() -> None:
    global _nvimgcodec
    background.leave_at_exit()
    with _importing:
        if _nvimgcodec is None:
            quiet = {"PYNVIMGCODEC_VERBOSITY": "0", "OPENCV_LOG_LEVEL": "SILENT"}
            before = {name: os.environ.get(name) for name in quiet}
            os.environ.update({n: v for n, v in quiet.items() if before[n] is None})
            try:
                with without_notes():
                    _nvimgcodec = _load()
            finally:
                for name, value in before.items():
                    if value is None:
                        os.environ.pop(name, None)


@contextmanager
def without_notes() -> Iterator[None]:
    """Suppress complaints of nvimgcodec's GPU parts on stderr about libraries that only they need.

    `python -m ndd info` lists what is missing. Other output is held back and printed at the end.
    """
    import tempfile

    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            for line in held:
                if not line.startswith(_NOTES):
                    os.write(2, line)


_NOTES = (b"Failed to load nv", b"Note: If using nvImageCodec's Python distribution")


def _load() -> Any:
    is_first = "nvidia.nvimgcodec" not in sys.modules
    try:
        from nvidia import nvimgcodec as library
    except ImportError as error:
        raise ImportError(
            "image decoding needs the package nvidia-nvimgcodec-cu12 (or -cu13): "
            "pip install nvidia-nvimgcodec-cu12"
        ) from error
    if is_first:
        # nvimgcodec and OpenCV read these variables when they first log, so make them log now.
        broken = np.frombuffer(b"P6 9 9 255\n", np.uint8)
        new_decoder(library, False).decode(library.CodeStream(broken))
    return library


def new_decoder(library: Any, fast_idct: bool) -> Any:
    return library.Decoder(
        device_id=library.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=1,
        backends=[library.Backend(library.BackendKind.CPU_ONLY)],
        # On the CPU, upstream smooths chroma whatever `jpeg_fancy_upsampling` says.
        options=f":fancy_upsampling=1 :fast_idct={int(fast_idct)}",
    )


def new_encoder(library: Any) -> Any:
    return library.Encoder(
        device_id=library.NVIMGCODEC_DEVICE_CPU_ONLY,
        max_num_cpu_threads=1,
        backends=[library.Backend(library.BackendKind.CPU_ONLY)],
    )
