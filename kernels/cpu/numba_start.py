"""Numba → imported, with its implementations, in half of the CPU time of a plain import.

Every process that compiles a kernel pays for this first (0.56 s, so 0.31 s; minima of three
interleaved runs on a busy machine). Only imported to compile something.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


def load() -> None:
    """Import all that `compile_native` needs; does nothing from the second call on."""
    if "ndd.kernels.cpu.native.compile" in sys.modules:
        return
    with uncollected():
        _import_without_scipy()
        from numba.core.registry import cpu_target

        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()
        from .native import catalogue, compile  # noqa: F401


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside the `with` block: it walks many objects and finds little."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _import_without_scipy() -> None:
    """Import the module of Numba that imports SciPy's linear algebra to see whether it is there.

    That takes 0.15 s, if SciPy is installed. Numba imports it anyway where a function calls BLAS.
    """
    from numba.np import linalg

    if "numba.np.arraymath" in sys.modules:
        return
    slow = linalg.ensure_blas
    linalg.ensure_blas = _look_for_scipy
    try:
        from numba.np import arraymath  # noqa: F401
    finally:
        linalg.ensure_blas = slow


def _look_for_scipy() -> None:
    if find_spec("scipy") is None:
        raise ImportError("SciPy is not installed")
