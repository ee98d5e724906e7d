"""The decorator of functions that only native code calls. Only imported to compile something."""

from __future__ import annotations

from numba import njit

# No wrappers for Python and C, which nobody would use; x / 0 is inf, not an exception.
inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")
