"""Sources of IR functions → Numba functions that LLVM inlines into every kernel that calls them.

Numba's compile time grows with the lines of a kernel, and a kernel repeats its body in each version
of a loop and for each unrolled channel. A function is typed once per process instead (adding normal
noise to a mirrored image compiles in 1.1 s instead of 4, plus 0.7 s once), and LLVM still
vectorises the loops that call it.
"""

from __future__ import annotations

from typing import Any

from ..common.disk_cache import cache_dir, digest, write_atomically
from ..common.memo import Memo

# Not a cache: a kernel's source refers to its functions by name, so every entry must stay. There is
# one entry for each function of the IR, and those are written by hand (four so far).
_sources: dict[str, str] = {}
_functions: Memo[str, Any] = Memo("functions that kernels inline", 64)


def register(stem: str, source: str) -> str:
    """Register the source of function `stem`, and return the name by which kernels import it."""
    name = f"{stem}__{digest(source)}"
    _sources[name] = source
    return name


def used_by(source: str) -> dict[str, str]:
    """The functions that a generated kernel calls, with their sources."""
    return {name: text for name, text in _sources.items() if name in source}


def add(sources: dict[str, str]) -> None:
    """Register the functions of a kernel that another process generated."""
    _sources.update(sources)


def __getattr__(name: str) -> Any:
    """Compile a registered function when a generated kernel imports it."""
    if name not in _sources:
        raise AttributeError(name)
    found = _functions.get(name)
    if found is None:
        from numba import njit

        from .native import straight
        from .native.compile import KernelCompiler

        path = cache_dir() / "cpu" / f"{name}.py"
        write_atomically(path, _sources[name].encode())  # for debugging only
        namespace: dict[str, Any] = {"__name__": f"ndd_generated.{name}"}
        exec(compile(_sources[name], str(path), "exec"), namespace)
        stem = name.rpartition("__")[0]
        straight.shortened(_sources[name], str(path), stem, namespace)
        compiled = njit(
            forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True,
            pipeline_class=KernelCompiler,
        )  # fmt: skip
        found = _functions.setdefault(name, compiled(namespace[stem]))
    return found
