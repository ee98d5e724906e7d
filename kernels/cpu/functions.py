"""Long parts of bodies as functions of their own, which LLVM inlines wherever a kernel calls them.

Numba's own work grows with the lines of a kernel, and loops come in versions, with channels
unrolled in each. As functions these parts are typed once per process (normal numbers added to a
mirrored image: 1.1 s instead of 4, and 0.7 s once), and loops with them are still vectorised.
"""

from __future__ import annotations

from typing import Any

from ..common.disk_cache import cache_dir, digest, write_atomically
from ..common.memo import Memo

# No cache: the text of a kernel names a function, which must be found whenever it is compiled.
# There is one for each function of the IR, and those are written by hand (four by now).
_sources: dict[str, str] = {}
_functions: Memo[str, Any] = Memo("functions that kernels inline", 64)


def register(stem: str, source: str) -> str:
    """The name under which kernels import a function whose source defines `stem`."""
    name = f"{stem}__{digest(source)}"
    _sources[name] = source
    return name


def __getattr__(name: str) -> Any:
    """The Numba function, for generated kernels."""
    if name not in _sources:
        raise AttributeError(name)
    found = _functions.get(name)
    if found is None:
        from numba import njit

        from .native.compile import KernelCompiler

        path = cache_dir() / "cpu" / f"{name}.py"
        write_atomically(path, _sources[name].encode())  # for people
        namespace: dict[str, Any] = {"__name__": f"ndd_generated.{name}"}
        exec(compile(_sources[name], str(path), "exec"), namespace)
        compiled = njit(
            forceinline=True, error_model="numpy", no_cpython_wrapper=True,
            pipeline_class=KernelCompiler,
        )  # fmt: skip
        found = _functions.setdefault(name, compiled(namespace[name.rpartition("__")[0]]))
    return found
