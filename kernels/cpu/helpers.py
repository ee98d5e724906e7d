"""Names of helpers → native functions that many CPU kernels call, compiled once for all kernels.

Interpolation needs long loops in many versions. Inlined, they would dominate the compile time of
every kernel (2.5 s instead of 0.6 s for a resize), so kernels call them, a few times per line. Each
helper has its own object file, and the linker finds it by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..common import background, forks
from ..common.disk_cache import cache_dir, cached_object
from ..common.memo import Memo, memoized
from . import compile_ahead, numba_start

# Held while LLVM or Numba work. Their state cannot be made anew, so a fork waits for them.
compiling = forks.foreign_lock()
# Name → (engine that owns the code, address). Not a cache: linked kernels jump to this address, so
# an entry stays for the life of the process. There are a few dozen.
_loaded: dict[str, tuple[Any, int]] = {}
compile_count = 0  # how many helpers this process compiled; tests assert on it
# Numba keeps every intrinsic for ever, and looks through its tables anew after each new one.
_intrinsics: Memo[str, Any] = Memo("calls of helpers in kernels", 256)
_IMPORT = re.compile(r"^from ndd\.kernels\.cpu\.helpers import (.+)$", re.MULTILINE)


def names_in(source: str) -> list[str]:
    """The helpers that a generated kernel calls."""
    return [name for line in _IMPORT.findall(source) for name in line.split(", ")]


def ensure(
    names: Iterable[str], machine: str, link: Callable[[str, bytes], tuple[Any, int]]
) -> None:
    """Load helpers from disk, or compile them now, and announce them to the linker."""
    with compiling:
        import llvmlite.binding as llvm

    def file(name: str) -> Path:
        return cache_dir() / "cpu" / f"helper_{name}.{machine}.o"

    for name in sorted(names, key=compile_ahead.turn):
        with compiling:
            if name in _loaded:
                continue
            compile_ahead.wait_for(name, file)
            if name == "jpeg_frames" and not file(name).exists():
                missing = [n for n in compile_ahead.USUAL if not file(n).exists()]
                compile_ahead.begin(missing, file(name).parent)
            kept = cached_object(file(name), name, partial(_compile, name))
            engine, address = link(*kept)
            llvm.add_symbol(_symbol(name), address)
            _loaded[name] = engine, address


@memoized(64)
def function(name: str) -> Callable[[int, int, int], int]:
    """A helper that takes three numbers, callable from Python."""
    from .runtime import link, machine, native

    background.uninterrupted(lambda: ensure([name], machine(), link))
    return native(*_loaded[name])


@cache
def looks_up_many() -> bool:
    """Whether this CPU looks up 64 bytes at once: see native/byte_tables.py."""
    with compiling:
        import llvmlite.binding as llvm

        return bool(llvm.get_host_cpu_features().get("avx512vbmi", False))


def _symbol(name: str) -> str:
    return f"ndd_{name}"


def _compile(name: str) -> tuple[str, bytes]:
    global compile_count
    compile_count += 1
    numba_start.load()
    from .native import catalogue
    from .native.compile import compile_native

    return compile_native(*catalogue.helper(name))


def __getattr__(name: str) -> Any:
    """The intrinsic by which a generated kernel calls a helper."""
    if name.startswith("_"):
        raise AttributeError(name)
    found = _intrinsics.get(name)
    if found is None:
        from .native import catalogue

        made = catalogue.external(_symbol(name), catalogue.helper(name)[1])
        found = _intrinsics.setdefault(name, made)
    return found
